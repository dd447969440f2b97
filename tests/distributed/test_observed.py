"""What a session and its cluster tell of the workers: statistics, and traces with the times of one clock."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.distributed import worker_session
from asyncexec.distributed.traced_steps import pack_stats, unpack_stats
from asyncexec.executor.diagnostics.step_stats_collector import StepStatsCollector
from asyncexec.framework.clock import Clock
from asyncexec.framework.step_stats import DeviceStepStats, NodeExecStats, StepStats
from tests.distributed.clusters import small_cluster, until
from tests.distributed.test_cluster import CLIENT_CPU, FIRST, FIRST_CPU, SECOND_CPU, relay

FIRST_NAME, SECOND_NAME = "/job:worker/replica:0/task:0", "/job:worker/replica:0/task:1"
HOUR_NS: Final = 3_600_000_000_000


async def traced(graph: ax.Graph, fetch: Any, feeds: Any) -> ax.RunMetadata:
    metadata = ax.RunMetadata()
    async with small_cluster() as small, ax.Session(graph, cluster=small.cluster) as session:
        await session.run(fetch, feeds, options=ax.RunOptions(trace=True), metadata=metadata)
    return metadata


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
        assert (first.tensors_from_workers, first.bytes_from_workers) == (0, 0)
        assert (second.tensors_from_workers, second.bytes_from_workers) == (1, 12)
        await session.run(total, {x: np.ones(100_000, np.float32)})  # large ones go in pieces; y comes here, too
        first, second = session.statistics().workers
        assert (first.tensors_sent, first.bytes_sent) == (2, 400_012)
        assert (first.tensors_received, first.bytes_received) == (1, 400_000)
        assert (second.tensors_received, second.bytes_received) == (2, 400_012)
        assert (first.tensors_from_workers, second.tensors_from_workers) == (0, 2)
        assert second.bytes_from_workers == 400_012


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
        assert small.cluster.connected() == {FIRST_NAME: False, SECOND_NAME: True}
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


def test_times_of_a_worker_become_those_of_this_process() -> None:
    """Its wall clock is an hour ahead; its other clock began a day later, and is a day behind."""
    day_ns, now_ns = 24 * HOUR_NS, 1_700_000_000_000_000_000
    here_offset_ns = now_ns - 5 * day_ns  # the clock of this process has run for five days
    there_offset_ns = now_ns + HOUR_NS - 4 * day_ns
    node = NodeExecStats(
        node_name="y",
        all_start_micros=(now_ns + HOUR_NS) // 1000,
        all_start_nanos=now_ns + HOUR_NS,
        scheduled_nanos=now_ns + HOUR_NS - 250,
    )
    told = pack_stats(StepStats(dev_stats=[DeviceStepStats(device=FIRST_CPU, node_stats=[node])]), there_offset_ns)
    (found,) = unpack_stats(told, -day_ns, here_offset_ns).dev_stats[0].node_stats
    assert (found.all_start_nanos, found.scheduled_nanos) == (now_ns, now_ns - 250)
    assert (found.all_start_micros, found.scheduled_micros) == (now_ns // 1000, (now_ns - 250) // 1000)
    assert node.all_start_nanos == now_ns + HOUR_NS  # others may have it, too


class HourAhead(Clock):
    """The clock of a machine whose wall clock is an hour ahead."""

    def epoch_offset_ns(self) -> int:
        return super().epoch_offset_ns() + HOUR_NS


async def test_a_trace_has_one_clock_though_wall_clocks_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_session, "StepStatsCollector", lambda _: StepStatsCollector(HourAhead()))
    graph, x, _, total = relay()
    metadata = await traced(graph, total, {x: [1]})
    started = [node.all_start_nanos for device in metadata.step_stats.dev_stats for node in device.node_stats]
    assert max(started) - min(started) < HOUR_NS / 2


async def test_processes_and_threads_of_a_trace_are_named_and_arrows_lead_to_where_values_go(tmp_path: Path) -> None:
    graph, x, _, total = relay()
    metadata = await traced(graph, total, {x: [1]})
    assert [device.device for device in metadata.step_stats.dev_stats] == [CLIENT_CPU, FIRST_CPU, SECOND_CPU]
    for device in metadata.step_stats.dev_stats:
        assert set(device.thread_names.values()) == {"event loop"}
    events = await asyncio.to_thread(_saved, metadata, tmp_path / "trace.json")
    processes = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    begun = {event["id"]: processes[event["pid"]] for event in events if event["ph"] == "s"}
    ended = {event["id"]: processes[event["pid"]] for event in events if event["ph"] == "f"}
    crossings = sorted((begun[each], ended[each]) for each in begun)
    assert crossings == [(FIRST_CPU, CLIENT_CPU), (FIRST_CPU, SECOND_CPU), (SECOND_CPU, CLIENT_CPU)]


def _saved(metadata: ax.RunMetadata, path: Path) -> list[dict[str, Any]]:
    metadata.save_trace(path)
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    return found


async def test_a_trace_for_tensorboard_has_the_devices_of_workers() -> None:
    pytest.importorskip("google.protobuf")
    graph, x, _, total = relay()
    metadata = await traced(graph, total, {x: [1]})
    message = ax.run_metadata_to_proto(metadata)
    assert [device.device for device in message.step_stats.dev_stats] == [CLIENT_CPU, FIRST_CPU, SECOND_CPU]
    assert [set(device.thread_names.values()) for device in message.step_stats.dev_stats] == 3 * [{"event loop"}]
