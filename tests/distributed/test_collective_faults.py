"""Collectives over workers that fail, are cancelled, are lost, or whose members never come: one error, nothing left."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.distributed.collective_executor import ClusterCollectiveExecutor
from asyncexec.distributed.collective_leader import CollectiveLeader
from tests.distributed.clusters import SmallCluster, small_cluster
from tests.distributed.test_collectives import CLIENT, LARGE, SMALL, WORKERS, on_each, reduced
from tests.running import import_all_names, raw_op, settle, without_collector


@pytest.fixture(scope="module", autouse=True)
def op_modules() -> None:
    """Import what is used here: a test that runs in a loop must not read files."""
    import_all_names()


@pytest.fixture
def graph() -> Iterator[ax.Graph]:
    """The graph that the test builds."""
    with ax.Graph() as graph:
        yield graph


@dataclass
class Gate:
    """Where a node of a worker waits until the test lets it go on, or fail."""

    begun: asyncio.Event = field(default_factory=asyncio.Event)
    goes_on: asyncio.Event = field(default_factory=asyncio.Event)


gates: list[Gate] = []


@ax.op(outputs=[ax.float32])
async def gated(value: Any) -> Any:
    gate = gates[-1]
    gate.begun.set()
    await gate.goes_on.wait()
    raise ax.errors.AbortedError("falling sky")


@contextlib.asynccontextmanager
async def waiting(graph: ax.Graph, shape: list[int]) -> AsyncIterator[tuple[SmallCluster, ax.Session, Any]]:
    """A cluster, and a run in it of three members, of which the last waits at the gate."""
    x = ax.placeholder(ax.float32, shape)
    nodes = on_each(WORKERS, lambda rank: reduced(gated(x) if rank == 2 else x, 3, name=f"r{rank}"))
    gates.append(Gate())
    async with (
        small_cluster(3, objects=True) as small,
        ax.Session(graph, cluster=small.cluster) as session,
    ):
        task = asyncio.ensure_future(session.run(nodes, {x: np.ones(shape, np.float32)}))
        try:
            async with asyncio.timeout(30):
                await gates[-1].begun.wait()
            yield small, session, task
        finally:
            task.cancel()
            await asyncio.wait([task])
    gates.pop()


SHAPES: Final = pytest.mark.parametrize("shape", [SMALL, LARGE], ids=["small", "large"])


@SHAPES
async def test_a_member_that_fails(graph: ax.Graph, shape: list[int]) -> None:
    async with waiting(graph, shape) as (_, _, task):
        gates[-1].goes_on.set()
        with pytest.raises(ax.errors.AbortedError, match="falling sky") as caught:
            await task
        assert caught.value.op == "gated"


@SHAPES
async def test_a_run_that_is_cancelled(graph: ax.Graph, shape: list[int]) -> None:
    async with waiting(graph, shape) as (_, _, task):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


@SHAPES
@pytest.mark.parametrize("lost", [0, 2], ids=["waits", "is waited for"])
async def test_a_worker_that_is_lost(graph: ax.Graph, shape: list[int], lost: int) -> None:
    async with waiting(graph, shape) as (small, _, task):
        await small.workers[lost].close()
        with pytest.raises(ax.errors.UnavailableError, match=f"task:{lost}"):
            await task


async def test_the_next_step_is_right(graph: ax.Graph) -> None:
    y = ax.placeholder(ax.float32, [2])
    good = on_each(WORKERS, lambda _: reduced(y, 3))
    async with waiting(graph, SMALL) as (_, session, task):
        gates[-1].goes_on.set()
        with pytest.raises(ax.errors.AbortedError):
            await task
        assert [value.tolist() for value in await session.run(good, {y: [1, 2]})] == [[3, 6]] * 3


async def test_a_timeout_of_a_member(graph: ax.Graph) -> None:
    nodes = on_each(WORKERS[:2], lambda rank: reduced(ax.constant([1.0]), 3, timeout_seconds=0.05 if rank else 0.0))
    async with small_cluster(2) as small, ax.Session(graph, cluster=small.cluster) as session:
        with pytest.raises(ax.errors.DeadlineExceededError, match="timed out waiting for other workers"):
            await session.run(nodes)


async def test_a_timeout_of_the_run(graph: ax.Graph) -> None:
    nodes = on_each(WORKERS[:2], lambda _: reduced(ax.constant([1.0]), 3))
    async with small_cluster(2) as small, ax.Session(graph, cluster=small.cluster) as session:
        with pytest.raises(ax.errors.DeadlineExceededError, match="its timeout of"):
            await session.run(nodes, options=ax.RunOptions(timeout=0.05))


async def test_a_member_that_waits_alone(graph: ax.Graph) -> None:
    """When the workers have ended their parts, nobody can come any more."""
    with ax.device(CLIENT):
        alone = reduced(ax.constant([1.0]), 2, name="alone")
    with ax.device(WORKERS[0]):
        other = ax.constant([1.0]) + 1
    async with small_cluster(1) as small, ax.Session(graph, cluster=small.cluster) as session:
        with pytest.raises(ax.errors.InternalError, match=r"alone \(group 1, instance 1\).*will never be met"):
            await session.run([alone, other])


@SHAPES
@pytest.mark.parametrize("merge_op", ["Add", "Mul"], ids=["good", "failed"])
async def test_a_step_keeps_nothing(graph: ax.Graph, shape: list[int], merge_op: str) -> None:
    made: list[weakref.ref[Any]] = []

    def make() -> Any:
        value = np.ones(shape, np.float32)
        made.append(weakref.ref(value))
        return value

    with ax.device(CLIENT):
        own = reduced(raw_op("Make", make, dtype=ax.float32)(), 2)
    with ax.device(WORKERS[0]):
        other = reduced(ax.constant(np.ones(shape, np.float32)), 2, merge_op=merge_op)
    async with small_cluster(1) as small, ax.Session(graph, cluster=small.cluster) as session:
        await asyncio.gather(session.run([own, other]), return_exceptions=True)  # compiled, and registered
        with without_collector():
            (outcome,) = await asyncio.gather(session.run([own, other]), return_exceptions=True)
            assert isinstance(outcome, list) is (merge_op == "Add")
            del outcome
            await settle(20)
            assert made[-1]() is None
            left = [
                each for each in gc.get_objects() if isinstance(each, (CollectiveLeader, ClusterCollectiveExecutor))
            ]
            assert left == []
