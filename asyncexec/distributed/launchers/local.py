"""LocalLauncher: workers that are processes of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from asyncexec.distributed.cluster_spec import ClusterSpec, worker_name
from asyncexec.distributed.launchers.local_main import Orders
from asyncexec.distributed.launchers.local_process import Ending, LocalProcess
from asyncexec.distributed.launchers.program import describe_program
from asyncexec.distributed.transport.address import MAX_PATH_BYTES
from asyncexec.framework.cooperative import outlast
from asyncexec.framework.errors import UnavailableError

T = TypeVar("T")

_LOGGER: Final = logging.getLogger("asyncexec.cluster")
_MAX_FAILURES: Final = 5  # in a row, of starts of a worker that ran before
_FIRST_WAIT_S: Final = 0.05
_MAX_WAIT_S: Final = 1.0


class LocalLauncher:
    """Starts worker processes, and starts those again that have ended.

    Args:
        job: that of the workers.
        num_workers: how many there are.
        worker: the arguments of their Worker, but for job and task.
        start_timeout_s: how long a process may take until it listens.
        grace_s: how long it may take to end.
    """

    def __init__(
        self, job: str, num_workers: int, worker: Mapping[str, object], *, start_timeout_s: float, grace_s: float
    ) -> None:
        self._job = job
        self._worker = worker
        self._grace_s = grace_s
        self._folder: Path | None = None
        self._workers = {
            worker_name(job, task): _LocalWorker(worker_name(job, task), start_timeout_s) for task in range(num_workers)
        }

    async def start(self) -> ClusterSpec:
        program = await asyncio.to_thread(describe_program)
        self._folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="asyncexec-"))
        for task, worker in enumerate(self._workers.values()):
            worker.prepare(program, self._orders(task, self._folder))
        found = await asyncio.gather(*(worker.start() for worker in self._workers.values()), return_exceptions=True)
        for each in found:
            if isinstance(each, BaseException):
                raise each
        return ClusterSpec({self._job: [worker.address for worker in self._workers.values()]})

    async def revive(self, worker: str) -> str:
        return await self._workers[worker].revive()

    async def close(self) -> None:
        loop = asyncio.get_running_loop()
        workers = self._workers.values()
        until_s = loop.time() + self._grace_s
        for worker in workers:
            worker.end()

        async def wait() -> None:
            endings = [worker.ended for worker in workers if worker.ended is not None]
            _, pending = await asyncio.wait(endings, timeout=max(0.0, until_s - loop.time()))
            if pending:
                for worker in workers:
                    worker.kill()
                await asyncio.wait(endings)

        try:
            await outlast(lambda: all(worker.has_ended for worker in workers), wait)
        finally:
            folder, self._folder = self._folder, None
            if folder is not None:
                await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    def _orders(self, task: int, folder: Path) -> Orders:
        path = f"{folder}/{task}"
        has_unix = hasattr(socket, "AF_UNIX") and os.name != "nt" and len(os.fsencode(path)) <= MAX_PATH_BYTES
        return Orders(
            worker={**self._worker, "job": self._job, "task": task},
            address=f"unix:{path}" if has_unix else "127.0.0.1:0",
            mark=f"asyncexec-{secrets.token_hex(8)}",
            grace_s=self._grace_s,
            folder=str(folder),
        )


class _LocalWorker:
    """A worker, and the process that it is just now.

    Attributes:
        address: where it listens.
        ended: done when the process has ended; None before there is one.
    """

    def __init__(self, name: str, start_timeout_s: float) -> None:
        self.address = ""
        self.ended: asyncio.Future[Ending] | None = None
        self._name = name
        self._start_timeout_s = start_timeout_s
        self._process: LocalProcess | None = None
        self._is_over = False

    def prepare(self, program: Mapping[str, object], orders: Orders) -> None:
        """Take what each process of it is told."""
        self._program = program
        self._orders = orders

    @property
    def has_ended(self) -> bool:
        """Whether no process runs."""
        return self.ended is None or self.ended.done()

    async def start(self) -> str:
        """Start a process; where it listens.

        Raises:
            UnavailableError: it has ended before it did, or takes too long.
        """
        if self._is_over:
            raise UnavailableError(f"{self._name} is closed")
        loop = asyncio.get_running_loop()
        listening: asyncio.Future[str] = loop.create_future()
        ended: asyncio.Future[Ending] = loop.create_future()
        process = LocalProcess(
            self._program, self._orders, lambda address: _tell(listening, address), lambda how: _tell(ended, how)
        )
        self._process, self.ended = process, ended
        process.start()
        news: list[asyncio.Future[Any]] = [listening, ended]
        found, _ = await asyncio.wait(news, timeout=self._start_timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if not found:
            process.kill()
            await asyncio.wait([ended])
            raise UnavailableError(f"{self._name} did not listen within {self._start_timeout_s:g} s")
        if not listening.done():
            raise UnavailableError(f"{self._name} ended before it listened, {ended.result()}")
        ended.add_done_callback(self._warn)
        self.address = listening.result()
        return self.address

    async def revive(self) -> str:
        """Where it listens, its process started again if that has ended.

        Raises:
            UnavailableError: its starts fail, again and again.
        """
        if not self.has_ended:
            return self.address
        wait_s = _FIRST_WAIT_S
        for _ in range(_MAX_FAILURES - 1):
            with contextlib.suppress(UnavailableError):
                return await self.start()
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, _MAX_WAIT_S)
        return await self.start()

    def end(self) -> None:
        """Let its process end, in its grace period, and start no other."""
        self._is_over = True
        if self._process is not None:
            self._process.end()

    def kill(self) -> None:
        """End its process at once."""
        if self._process is not None:
            self._process.kill()

    def _warn(self, ended: asyncio.Future[Ending]) -> None:
        if not self._is_over:
            _LOGGER.warning("%s ended %s", self._name, ended.result().how)


def _tell(future: asyncio.Future[T], value: T) -> None:
    """Give *future* its result, from a thread."""

    def tell() -> None:
        if not future.done():
            future.set_result(value)

    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
        future.get_loop().call_soon_threadsafe(tell)
