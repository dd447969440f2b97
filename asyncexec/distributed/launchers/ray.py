"""RayLauncher: workers that are actors of Ray, which places them, gives them resources, and starts them again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from asyncexec.distributed.cluster_spec import ClusterSpec, worker_name
from asyncexec.distributed.launchers.program import become_program, describe_program
from asyncexec.distributed.transport.address import TcpAddress
from asyncexec.distributed.worker import Worker
from asyncexec.framework.errors import UnavailableError
from asyncexec.framework.extras import require

# What Ray has parameters of their own for.
_PARAMETERS: Final = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}


class RayWorker:
    """The actor: a worker, in the event loop that Ray runs for it.

    Args:
        main: tells the main module of the program; it is left alone where its file is not.
        worker: the arguments of the Worker.
    """

    def __init__(self, main: dict[str, Any], worker: Mapping[str, Any]) -> None:
        path = main.get("init_main_from_path")
        if path is None or Path(path).exists():
            become_program(main)
        self._worker = Worker(**worker)
        self._listening: asyncio.Task[str] | None = None

    async def listen(self) -> str:
        """Where it listens; it begins with that when it is asked first."""
        if self._listening is None:
            host = require("ray", extra="ray").util.get_node_ip_address()
            self._listening = asyncio.ensure_future(self._worker.listen(str(TcpAddress(host, 0))))
        return await asyncio.shield(self._listening)


class RayLauncher:
    """Starts actors in a placement group.

    Args:
        job: that of the workers.
        num_workers: how many there are.
        worker: the arguments of their Worker, but for job and task.
        resources: what each needs of Ray, such as ``{"CPU": 1, "GPU": 1}``.
        strategy: how Ray places them on its nodes.
        runtime_env: of the actors.
        max_restarts: how often Ray starts each again; -1 for always.
        start_timeout_s: how long Ray may take to start one.
    """

    def __init__(
        self,
        job: str,
        num_workers: int,
        worker: Mapping[str, object],
        *,
        resources: Mapping[str, float],
        strategy: str,
        runtime_env: Mapping[str, object] | None,
        max_restarts: int,
        start_timeout_s: float,
    ) -> None:
        self._ray: Any = require("ray", extra="ray")
        self._job = job
        self._workers = [{**worker, "job": job, "task": task} for task in range(num_workers)]
        self._resources = dict(resources)
        self._strategy = strategy
        self._options: dict[str, object] = {"max_restarts": max_restarts, "max_task_retries": -1}
        if runtime_env is not None:
            self._options["runtime_env"] = dict(runtime_env)
        self._start_timeout_s = start_timeout_s
        self._group: Any = None
        self._is_ready: Any = None
        self._actors: dict[str, Any] = {}

    async def start(self) -> ClusterSpec:
        starting = asyncio.ensure_future(asyncio.to_thread(self._start))
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            await asyncio.wait([starting])  # close ends what it has started
            raise
        await self._ask(self._is_ready, f"Ray has no room for {len(self._workers)} workers with {self._resources}")
        return ClusterSpec({self._job: await asyncio.gather(*map(self.revive, self._actors))})

    def _start(self) -> None:
        """Reserve what the actors need, and have them started as soon as it is there; Ray may take its time."""
        if not self._ray.is_initialized():
            self._ray.init()
        self._group = self._ray.util.placement_group([self._resources] * len(self._workers), self._strategy)
        self._is_ready = self._group.ready()
        main = {name: told for name, told in describe_program().items() if name.startswith("init_main")}
        options = {_PARAMETERS[name]: amount for name, amount in self._resources.items() if name in _PARAMETERS}
        others = {name: amount for name, amount in self._resources.items() if name not in _PARAMETERS}
        strategies = self._ray.util.scheduling_strategies
        for task, worker in enumerate(self._workers):
            place = strategies.PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=task)
            actor = self._ray.remote(RayWorker).options(
                **{"num_cpus": 0, **options}, resources=others, scheduling_strategy=place, **self._options
            )
            self._actors[worker_name(self._job, task)] = actor.remote(main, worker)

    async def revive(self, worker: str) -> str:
        """Where *worker* listens: Ray answers when it has started the actor again."""
        answer = await asyncio.to_thread(self._actors[worker].listen.remote)
        return str(await self._ask(answer, f"Ray has not started {worker}"))

    async def _ask(self, answer: Any, complaint: str) -> object:
        try:
            async with asyncio.timeout(self._start_timeout_s):
                return await answer
        except TimeoutError:
            raise UnavailableError(f"{complaint} within {self._start_timeout_s:g} s") from None
        except self._ray.exceptions.RayError as error:
            raise UnavailableError(f"{complaint}: {error}") from error

    async def close(self) -> None:
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        actors, self._actors = self._actors, {}
        for actor in actors.values():
            self._ray.kill(actor)
        group, self._group = self._group, None
        if group is not None:
            self._ray.util.remove_placement_group(group)
