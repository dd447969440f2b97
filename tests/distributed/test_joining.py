"""Workers that join a cluster, and that leave it, while sessions are open."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import asyncexec as ax
from asyncexec.distributed.worker import Worker
from tests.distributed.clusters import SmallCluster, small_cluster, until

THIRD = "/job:worker/replica:0/task:2"
_arrived: list[int] = []


@ax.op
async def on_whom(x: int) -> int:
    """What it gets, after all others of the test have come."""
    _arrived.append(x)
    await until(lambda: len(_arrived) % 3 == 0)
    return x


@pytest.fixture
async def third() -> AsyncIterator[tuple[Worker, str]]:
    """A worker that no cluster knows of yet, and where it listens."""
    folder = tempfile.TemporaryDirectory()
    try:
        async with Worker("worker", 2, objects=True) as worker:
            yield worker, await worker.listen(f"unix:{Path(folder.name) / 'third'}")
    finally:
        await asyncio.to_thread(folder.cleanup)


@pytest.fixture
async def small() -> AsyncIterator[SmallCluster]:
    _arrived.clear()
    async with small_cluster(objects=True) as found:
        yield found


async def test_nodes_may_ask_for_a_worker_that_has_joined(small: SmallCluster, third: tuple[Worker, str]) -> None:
    with ax.Graph() as graph:
        with ax.device("/job:worker/task:1"):
            x = ax.constant(20)
        with ax.device("/job:worker/task:2"):
            y = x + 1
        z = y * 2
    async with ax.Session(graph, cluster=small.cluster) as session:
        with pytest.raises(ax.errors.InvalidArgumentError, match="task:2"):
            await session.run(z)
        assert await small.cluster.add_worker("worker", 2, third[1]) == THIRD
        assert await session.run(z) == 42
        assert f"{THIRD}/device:CPU:0" in session.list_devices()
        await until(lambda: not third[0].num_steps)


async def test_maps_that_begin_later_use_it(small: SmallCluster, third: tuple[Worker, str]) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int32, [], name="x")
        y = on_whom(x)
    async with ax.Session(graph, cluster=small.cluster) as session:
        await small.cluster.add_worker("worker", 2, third[1])
        found = [each async for each in session.map(y, ({x: i} for i in range(9)), workers="/job:worker", window=3)]
        assert found == list(range(9))
        assert third[0].num_sessions == 1
        assert sum(len(each._graphs) for each in third[0]._sessions.values()) == 1  # it has had items


async def test_items_of_a_worker_that_leaves_go_to_others(small: SmallCluster) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int32, [], name="x")
        y = x + 1
    async with ax.Session(graph, cluster=small.cluster) as session:
        found = []
        async for each in session.map(y, ({x: i} for i in range(40)), workers="/job:worker", window=4):
            found.append(int(each))
            if len(found) == 10:
                await small.cluster.remove_worker("/job:worker/replica:0/task:0")
        assert found == list(range(1, 41))
        assert small.cluster.workers == ["/job:worker/replica:0/task:1"]


async def test_one_that_has_left_may_come_again(small: SmallCluster, third: tuple[Worker, str]) -> None:
    with ax.Graph() as graph, ax.device("/job:worker/task:2"):
        y = ax.constant(20) + 1
    await small.cluster.add_worker("worker", 2, third[1])
    async with ax.Session(graph, cluster=small.cluster) as session:
        assert await session.run(y) == 21
        await small.cluster.remove_worker(THIRD)
        with pytest.raises(ax.errors.OpError, match="task:2"):
            await session.run(y)
        await small.cluster.add_worker("worker", 2, third[1])
        assert await session.run(y) == 21
        await until(lambda: not third[0].num_steps)


async def test_what_cannot_join_is_refused(small: SmallCluster, tmp_path: Path) -> None:
    cluster = small.cluster
    with pytest.raises(ax.errors.AlreadyExistsError, match="task:0"):
        await cluster.add_worker("worker", 0, "127.0.0.1:7000")
    with pytest.raises(ax.errors.InvalidArgumentError, match="job"):
        await cluster.add_worker("not a job", 0, "127.0.0.1:7000")
    with pytest.raises(ax.errors.InvalidArgumentError, match="no worker '/job:worker/task:9'"):
        await cluster.remove_worker("/job:worker/task:9")
    cluster._reconnect_timeout_s = 0.1
    with pytest.raises(ax.errors.UnavailableError):
        await cluster.add_worker("worker", 2, f"unix:{tmp_path}/nobody")
    assert len(cluster.workers) == 2
