"""Clusters with a proxy before each worker, a graph over two of them, and what may be left of its steps."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import tempfile
import weakref
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import asyncexec as ax
from asyncexec.distributed.cluster import Cluster
from asyncexec.distributed.cluster_spec import ClusterSpec
from asyncexec.distributed.launcher import NoLauncher
from asyncexec.distributed.transport.options import TransportOptions
from asyncexec.distributed.worker import Worker
from tests.distributed.clusters import until
from tests.distributed.proxies import Proxy, proxy

CLIENT = "/job:localhost"
FAST = TransportOptions(objects=True, heartbeat_s=0.05, silence_s=0.5, close_grace_s=0.5)


def task(number: int) -> str:
    """The name of a worker."""
    return f"/job:worker/replica:0/task:{number}"


class Gate:
    """Where steps wait in a kernel of a worker until the test lets them go on."""

    def __init__(self) -> None:
        self.arrived = asyncio.Event()
        self.opened = asyncio.Event()
        self.num_cancelled = 0
        self.arrays: list[weakref.ref[Any]] = []

    def keep(self, array: Any) -> Any:
        self.arrays.append(weakref.ref(array))
        return array

    async def wait(self) -> None:
        self.arrived.set()
        try:
            await self.opened.wait()
        except asyncio.CancelledError:
            self.num_cancelled += 1
            raise


gates: dict[str, Gate] = {}


@ax.op(outputs=[ax.float32], shapes=[[None]])
async def through_gate(value: Any, gate_name: bytes) -> Any:
    gate = gates[gate_name.decode()]
    gate.keep(value)
    await gate.wait()
    return gate.keep(value + np.float32(1))


@dataclass
class Faulty:
    """The cluster with all that may fail."""

    cluster: Cluster
    workers: list[Worker]
    proxies: list[Proxy]
    folder: Path
    stack: contextlib.AsyncExitStack

    def another_cluster(self) -> Cluster:
        """One of the same workers, which is yet to be opened."""
        spec = ClusterSpec({"worker": [f"unix:{self.folder}/proxy-{number}" for number in range(len(self.workers))]})
        return Cluster(NoLauncher(spec), options=FAST)

    def gate(self, name: str) -> Gate:
        return gates[name]

    def alive(self) -> int:
        """How many of the arrays of steps there are still."""
        return sum(ref() is not None for gate in gates.values() for ref in gate.arrays)

    async def nothing_is_left(self) -> None:
        """Returns when nothing of any step is there, on any side."""
        sessions = list(self.cluster._sessions.values())
        await until(lambda: not any(worker.num_steps for worker in self.workers))
        assert not any(session.num_steps for session in sessions)
        for worker in self.workers:
            assert not any(link._pending for link in worker._peers.values())
            for session in worker._sessions.values():
                assert (session._early, session._early_bytes, session._late) == ({}, 0, set())
        assert not any(link._pending for link in self.cluster.links())
        await until(lambda: gc.collect() >= 0 and self.alive() == 0)

    async def restart(self, number: int) -> Worker:
        """Another incarnation of a worker, at the address of the old one, which is closed if it was not."""
        old = self.workers[number]
        await old.close()
        worker = self.workers[number] = await self.stack.enter_async_context(_worker(number))
        await worker.listen(f"unix:{self.folder}/worker-{number}")
        return worker


def _worker(number: int) -> Worker:
    config = ax.SessionConfig(worker_grace_s=0.2)
    return Worker("worker", number, config=config, objects=True, options=FAST)


@contextlib.asynccontextmanager
async def faulty_cluster(num_workers: int = 2, *, reconnect_timeout_s: float = 10.0) -> AsyncIterator[Faulty]:
    """A cluster whose client and workers reach each worker by way of a proxy."""
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.callback(gates.clear)
        workers, proxies = [], []
        for number in range(num_workers):
            workers.append(worker := await stack.enter_async_context(_worker(number)))
            await worker.listen(f"unix:{folder}/worker-{number}")
            proxies.append(
                await stack.enter_async_context(proxy(f"{folder}/worker-{number}", folder / f"proxy-{number}"))
            )
        spec = ClusterSpec({"worker": [f"unix:{folder}/proxy-{number}" for number in range(num_workers)]})
        cluster = Cluster(NoLauncher(spec), options=FAST, reconnect_timeout_s=reconnect_timeout_s)
        await stack.enter_async_context(cluster)
        yield Faulty(cluster, workers, proxies, folder, stack)


@dataclass
class Chain:
    """A graph that goes from the client to worker 0, to worker 1, and back; each waits at a gate."""

    graph: ax.Graph
    feed: Any
    fetch: Any


def chain() -> Chain:
    gates.update({name: Gate() for name in ("first", "second")})
    with ax.Graph() as graph:
        feed = ax.placeholder(ax.float32, [None], name="x")
        with ax.device("/job:worker/task:0"):
            first = through_gate(feed, ax.constant(b"first"), name="first")
        with ax.device("/job:worker/task:1"):
            second = through_gate(first, ax.constant(b"second"), name="second")
            last = ax.negative(second, name="last")
    return Chain(graph, feed, last)


SIZE = 100_000  # elements: tensors that travel in pieces


def ones() -> Any:
    array = np.ones(SIZE, np.float32)
    gates["first"].arrays.append(weakref.ref(array))
    return array


def open_gates() -> None:
    for gate in gates.values():
        gate.opened.set()


def close_gates() -> None:
    for gate in gates.values():
        gate.opened.clear()
        gate.arrived.clear()


async def run_right(session: ax.Session, steps: Chain, retries: int = 0) -> None:
    """A run with all gates open gives what it should, after so many *retries* at most."""
    open_gates()
    result = await session.run(steps.fetch, {steps.feed: ones()}, options=ax.RunOptions(retries=retries))
    assert np.array_equal(result, np.full(SIZE, -3, np.float32))
