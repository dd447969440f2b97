"""What a session and its cluster tell of the workers."""

from __future__ import annotations

import asyncio

import numpy as np

import asyncexec as ax
from tests.distributed.clusters import small_cluster, until
from tests.distributed.test_cluster import FIRST, relay

FIRST_NAME, SECOND_NAME = "/job:worker/replica:0/task:0", "/job:worker/replica:0/task:1"


async def test_what_was_sent_and_received_is_counted() -> None:
    graph, x, z, total = relay()
    async with small_cluster() as small, ax.Session(graph, cluster=small.cluster) as session:
        assert small.cluster.statistics() == session.statistics().workers
        await session.run(z, {x: np.ones(3, np.float32)})
        first, second = session.statistics().workers
        assert (first.name, second.name) == (FIRST_NAME, SECOND_NAME)
        # x goes to the first worker, y from there to the second, z comes back: 12 bytes each.
        assert (first.tensors_sent, first.bytes_sent, first.tensors_received) == (1, 12, 0)
        assert (second.tensors_sent, second.tensors_received, second.bytes_received) == (0, 1, 12)
        await session.run(total, {x: np.ones(100_000, np.float32)})  # large ones go in pieces; y comes here, too
        first, second = session.statistics().workers
        assert (first.tensors_sent, first.bytes_sent) == (2, 400_012)
        assert (first.tensors_received, first.bytes_received) == (1, 400_000)
        assert (second.tensors_received, second.bytes_received) == (2, 400_012)


async def test_pings_tell_the_lag() -> None:
    graph, *_ = relay()
    async with small_cluster() as small, ax.Session(graph, cluster=small.cluster) as session:
        for worker in session.statistics().workers:
            assert worker.is_connected
            assert worker.shortest_round_trip_ms is not None
            assert worker.round_trip_ms is not None
            assert 0 < worker.shortest_round_trip_ms <= worker.round_trip_ms


_is_open: list[asyncio.Event] = []


@ax.op
async def gated(x: int) -> int:
    await _is_open[-1].wait()
    return x


async def test_steps_under_way_are_those_of_the_session_or_of_all() -> None:
    with ax.Graph() as graph, ax.device(FIRST):
        y = gated(ax.constant(1))
    _is_open.append(asyncio.Event())
    async with (
        small_cluster(objects=True) as small,
        ax.Session(graph, cluster=small.cluster) as one,
        ax.Session(graph, cluster=small.cluster) as other,
    ):
        steps = [asyncio.create_task(session.run(y)) for session in (one, one, other)]
        await until(lambda: sum(worker.num_steps for worker in small.workers) == 3)
        assert [worker.running_steps for worker in one.statistics().workers] == [2, 0]
        assert [worker.running_steps for worker in other.statistics().workers] == [1, 0]
        assert [worker.running_steps for worker in small.cluster.statistics()] == [3, 0]
        assert "2 workers" in repr(one)
        _is_open[-1].set()
        assert await asyncio.gather(*steps) == [1, 1, 1]
        assert [worker.running_steps for worker in small.cluster.statistics()] == [0, 0]


async def test_a_worker_that_is_lost_is_told_of_and_its_counts_stay() -> None:
    graph, x, _, total = relay()
    async with small_cluster() as small, ax.Session(graph, cluster=small.cluster) as session:
        assert repr(small.cluster) == "<ax.Cluster: 2 of 2 workers connected>"
        await session.run(total, {x: [1]})
        before = session.statistics().workers[0]
        link = small.cluster.link(FIRST_NAME)
        assert link is not None
        assert link.connection is not None
        link.connection.lose("the test has cut it")
        lost = session.statistics().workers[0]
        assert (lost.is_connected, lost.times_lost, lost.round_trip_ms, lost.queued_bytes) == (False, 1, None, 0)
        assert (lost.tensors_sent, lost.bytes_received) == (before.tensors_sent, before.bytes_received) == (1, 4)
        assert "2 workers (1 not connected)" in repr(session)
        assert f"{FIRST_NAME} (not connected)" in session._repr_html_()
        assert repr(small.cluster) == "<ax.Cluster: 1 of 2 workers connected>"
        await until(lambda: session.statistics().workers[0].is_connected)
        await session.run(total, {x: [1]})
        again = session.statistics().workers[0]
        assert (again.times_lost, again.tensors_sent, again.bytes_received) == (1, 2, 8)
    assert repr(small.cluster) == "<ax.Cluster: 0 of 2 workers connected, closed>"


async def test_a_session_without_a_cluster_has_no_workers() -> None:
    async with ax.Session(ax.Graph()) as session:
        assert session.statistics().workers == ()
        assert "worker" not in repr(session)
