"""DaskLauncher: workers in the processes of dask.distributed's workers, which dask starts, places and starts again."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final

from asyncexec.distributed.cluster_spec import ClusterSpec, worker_name
from asyncexec.distributed.transport.address import TcpAddress
from asyncexec.distributed.worker import Worker
from asyncexec.framework.errors import UnavailableError
from asyncexec.framework.extras import require

_LOOK_S: Final = 0.1  # between two looks at dask's workers, while one is missing


class _Hosted:
    """A worker in a process of dask's."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.worker = Worker(**settings)
        self.address: asyncio.Task[str] | None = None


_hosted: Final[dict[str, _Hosted]] = {}  # in a process of dask's, by key


async def _listen(key: str, settings: Mapping[str, object], dask_worker: Any) -> str:
    """Where the worker *key* listens, in the event loop of *dask_worker*; it is made when it is asked for first."""
    hosted = _hosted.get(key)
    if hosted is None:
        hosted = _hosted[key] = _Hosted(settings)
        hosted.address = asyncio.ensure_future(hosted.worker.listen(str(TcpAddress(dask_worker.ip, 0))))
    assert hosted.address is not None
    return await asyncio.shield(hosted.address)


async def _close(keys: list[str]) -> None:
    """End those of the workers *keys* that are here."""
    for hosted in [_hosted.pop(key) for key in keys if key in _hosted]:
        await hosted.worker.close()


def _name(dask_worker: Any) -> str:
    return str(dask_worker.name)


class DaskLauncher:
    """Has one worker in each of several of dask's workers.

    Args:
        client: of ``distributed``, asynchronous or not.
        job: that of the workers.
        num_workers: how many there are; None for as many as dask has.
        worker: the arguments of their Worker, but for job and task.
        start_timeout_s: how long dask may take to have a worker for each.
    """

    def __init__(
        self, client: Any, job: str, num_workers: int | None, worker: Mapping[str, object], *, start_timeout_s: float
    ) -> None:
        require("distributed", extra="dask")
        self._client = client
        self._job = job
        self._num_workers = num_workers
        self._worker = worker
        self._start_timeout_s = start_timeout_s
        self._key = secrets.token_hex(8)
        self._tasks: dict[str, int] = {}  # by the names of our workers
        self._hosts: dict[int, str] = {}  # by task, the name of the worker of dask's

    async def start(self) -> ClusterSpec:
        num_workers = self._num_workers or max(1, len(await self._dask_workers()))
        self._tasks = {worker_name(self._job, task): task for task in range(num_workers)}
        return ClusterSpec({self._job: [await self.revive(worker) for worker in self._tasks]})

    async def revive(self, worker: str) -> str:
        """Where *worker* listens; another worker of dask's has it if the one that had it has not come back."""
        task = self._tasks[worker]
        settings = {**self._worker, "job": self._job, "task": task}
        try:
            async with asyncio.timeout(self._start_timeout_s):
                while True:
                    found = self._choose(task, await self._dask_workers())
                    if found is not None:
                        answers = await self._run(_listen, f"{self._key}-{task}", settings, workers=[found])
                        if found in answers:
                            return str(answers[found])
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            raise UnavailableError(
                f"dask has no worker for {worker} within {self._start_timeout_s:g} s",
                hint="each worker of a cluster needs one of dask's for itself",
            ) from None

    def _choose(self, task: int, dask_workers: Mapping[str, str]) -> str | None:
        """The address of a worker of dask's for *task*: the one that it had, or one that has none."""
        by_name = {name: address for address, name in dask_workers.items()}
        taken = {name for other, name in self._hosts.items() if other != task}
        name = self._hosts.get(task)
        if name not in by_name:
            name = next((each for each in by_name if each not in taken), None)
        if name is None:
            return None
        self._hosts[task] = name
        return by_name[name]

    async def _dask_workers(self) -> dict[str, str]:
        """The names of dask's workers, by their addresses."""
        return await self._run(_name)

    async def _run(
        self, function: Callable[..., Any], *args: object, workers: list[str] | None = None
    ) -> dict[str, Any]:
        """What *function* gives in dask's workers, by their addresses; without those that cannot be reached.

        Raises:
            UnavailableError: it fails in one of them.
        """
        options = {"workers": workers, "on_error": "return"}
        if self._client.asynchronous:
            answers = await self._client.run(function, *args, **options)
        else:
            answers = await asyncio.to_thread(self._client.run, function, *args, **options)
        for address, answer in answers.items():
            if isinstance(answer, Exception) and not isinstance(answer, OSError):
                raise UnavailableError(
                    f"the worker of dask at {address} cannot be a worker: {type(answer).__name__}: {answer}"
                ) from answer
        return {address: answer for address, answer in answers.items() if not isinstance(answer, OSError)}

    async def close(self) -> None:
        await self._run(_close, [f"{self._key}-{task}" for task in self._tasks.values()])
