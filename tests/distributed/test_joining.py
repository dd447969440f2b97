"""Workers that join a cluster, and that leave it, while sessions are open."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import asyncexec as ax
from asyncexec.distributed.worker import Worker
from tests.distributed.clusters import SmallCluster, small_cluster, until
from tests.distributed.worker_process import process_of

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


async def test_maps_under_way_use_it(small: SmallCluster, third: tuple[Worker, str]) -> None:
    """A worker that joins gets items of a map that has begun; when it has left, it gets no more."""
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int32, [], name="x")
        y = x + 1
    found: list[int] = []
    left_with = 0
    async with ax.Session(graph, cluster=small.cluster) as session:
        metadata = ax.RunMetadata()
        items = ({x: i} for i in range(100_000))
        async with session.map(y, items, workers="/job:worker", window=6, metadata=metadata) as results:
            async for each in results:
                found.append(int(each))
                if len(found) == 10:
                    await small.cluster.add_worker("worker", 2, third[1])
                if not left_with and _num_results(small.cluster) > 2:  # it has at most two items at a time
                    await small.cluster.remove_worker(THIRD)
                    left_with = len(found)
                if left_with and len(found) == left_with + 50:
                    break
        assert found == list(range(1, len(found) + 1))
        await until(lambda: not third[0].num_sessions)
        assert {each.device for each in metadata.step_stats.dev_stats} >= {
            f"/job:worker/replica:0/task:{task}/device:CPU:0" for task in range(3)
        }


@pytest.mark.one_of("loop")
async def test_a_map_whose_workers_have_all_been_replaced(small: SmallCluster, third: tuple[Worker, str]) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int32, [], name="x")
        y = x + 1
    async with ax.Session(graph, cluster=small.cluster) as session:
        found = []
        async for each in session.map(y, ({x: i} for i in range(2000)), workers="/job:worker", window=4, retries=5):
            found.append(int(each))
            if len(found) == 5:
                await small.cluster.add_worker("worker", 2, third[1])
            if len(small.cluster.workers) == 3 and _num_graphs(third[0]):
                for task in range(2):
                    await small.cluster.remove_worker(f"/job:worker/replica:0/task:{task}")
        assert found == list(range(1, 2001))
        assert small.cluster.workers == [THIRD]


def _num_results(cluster: ax.Cluster) -> int:
    """How many results have come from the third worker."""
    return sum(each.tensors_received for each in cluster.statistics() if each.name == THIRD)


def _num_graphs(worker: Worker) -> int:
    """How many graphs sessions have on it."""
    return sum(len(each._graphs) for each in worker._sessions.values())


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


@pytest.mark.allow_blocking  # a process is started
@pytest.mark.one_of("loop")
async def test_a_process_that_joins_takes_items_of_a_map_until_it_is_killed(small: SmallCluster) -> None:
    """It is another process: the ids that the items tell are of both."""
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [], name="x")
        y = process_of(x)
    folder = tempfile.TemporaryDirectory()
    address = f"unix:{folder.name}/joins"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.distributed.worker_process", "2", address), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        found: list[tuple[int, int]] = []
        num_theirs = 0
        async with ax.Session(graph, cluster=small.cluster) as session:
            items = ({x: i} for i in range(1_000_000))
            async with session.map(y, items, workers="/job:worker", window=6) as results:
                async for number, process_id in results:
                    found.append((int(number), int(process_id)))
                    num_theirs += process_id == process.pid
                    if len(found) == 20:
                        await small.cluster.add_worker("worker", 2, address)
                    if num_theirs == 10 and process.returncode is None:
                        process.kill()
                        await process.wait()
                        await small.cluster.remove_worker(THIRD)
                    if process.returncode is not None and found[-100:] == [(i, os.getpid()) for i, _ in found[-100:]]:
                        break
        assert [number for number, _ in found] == list(range(len(found)))
        assert {each for _, each in found} == {os.getpid(), process.pid}
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        folder.cleanup()


async def test_a_map_goes_on_without_a_worker_that_it_cannot_prepare(
    small: SmallCluster, third: tuple[Worker, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int32, [], name="x")
        y = x + 1
    async with ax.Session(graph, cluster=small.cluster) as session:
        prepare = session._prepare

        def refuse(*args: Any, worker: str | None = None, **kwargs: Any) -> Any:
            if worker == THIRD:
                raise ax.errors.InvalidArgumentError("no such device")
            return prepare(*args, worker=worker, **kwargs)

        monkeypatch.setattr(session, "_prepare", refuse)
        found = []
        async for each in session.map(y, ({x: i} for i in range(200)), workers="/job:worker", window=4):
            found.append(int(each))
            if len(found) == 5:
                await small.cluster.add_worker("worker", 2, third[1])
        assert found == list(range(1, 201))
        assert [record.getMessage() for record in caplog.records if record.name == "asyncexec.cluster"] == [
            f"a map does not use {THIRD}, which has joined: no such device"
        ]
