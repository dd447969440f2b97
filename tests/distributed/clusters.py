"""Clusters whose workers are in the event loop of the test: all of the protocol, and no processes to wait for."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncexec as ax
from asyncexec.distributed.cluster import Cluster
from asyncexec.distributed.cluster_spec import ClusterSpec
from asyncexec.distributed.launcher import NoLauncher
from asyncexec.distributed.transport.options import TransportOptions
from asyncexec.distributed.transport.security import Security
from asyncexec.distributed.worker import Worker


async def until(holds: Callable[[], bool]) -> None:
    """Returns when *holds* does; TimeoutError after half a minute."""
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)


@dataclass
class SmallCluster:
    """A cluster, and its workers themselves."""

    cluster: Cluster
    workers: list[Worker] = field(default_factory=list)
    start: Callable[[int], Awaitable[Worker]] = field(kw_only=True)

    async def kill(self, task: int) -> None:
        """End a worker as a signal does: all its connections are gone at once."""
        worker = self.workers[task]
        for listener in worker._listeners:
            listener._links.refuse()
            for connection in listener.connections:
                connection.abort()
        await worker.close()

    async def restart(self, task: int) -> None:
        """Start another worker in place of one that has ended."""
        self.workers[task] = await self.start(task)

    def has_nothing_left(self) -> bool:
        """Whether no worker has anything of a step."""
        return not any(worker.num_steps for worker in self.workers)


@contextlib.asynccontextmanager
async def small_cluster(
    num_workers: int = 2,
    *,
    config: ax.SessionConfig | None = None,
    objects: bool = False,
    security: Security | None = None,
    shared: bool = False,
    **settings: Any,
) -> AsyncIterator[SmallCluster]:
    """A cluster of *num_workers*, at unix sockets; at the end it is looked whether anything is left of the steps."""
    options = TransportOptions(objects=objects)
    known = security or Security()
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))

        async def start(task: int) -> Worker:
            worker = Worker(
                "worker", task, config=config, objects=objects, token=known.token, tls=known.tls, shared=shared
            )
            await stack.enter_async_context(worker)
            await worker.listen(addresses[task])
            return worker

        addresses = [f"unix:{folder}/{task}" for task in range(num_workers)]
        workers = [await start(task) for task in range(num_workers)]
        launcher = NoLauncher(ClusterSpec({"worker": addresses}))
        cluster = Cluster(launcher, options=options, security=security, **settings)
        await stack.enter_async_context(cluster)
        found = SmallCluster(cluster, workers, start=start)
        yield found
        await until(found.has_nothing_left)
