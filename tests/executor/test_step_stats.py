"""StepStats: TensorFlow's fields, one entry for each execution, and nothing without ``RunOptions.trace``."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import asyncexec as ax
from tests.running import raw_op, settle


@pytest.fixture
def graph() -> ax.Graph:
    @ax.op
    async def awaited(x: float) -> None:
        await asyncio.sleep(0)

    @ax.op(expensive=True)
    def worked(x: float) -> None:
        return None

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        y = ax.add(x, ax.constant(1.0, name="c"), name="y")
        awaited(y, name="awaited")
        worked(y, name="worked")
        ax.negative(y, name="unneeded")
    return graph


TRACE = {"x:0": 1.0}, ("awaited", "worked")


async def stats_of(graph: ax.Graph) -> tuple[list[ax.StepStats], dict[str, object]]:
    metadata = ax.RunMetadata()
    async with ax.Session(graph) as session:
        feeds, targets = TRACE
        await session.run("y:0", feeds, targets=targets, options=ax.RunOptions(trace=True), metadata=metadata)
    (device,) = metadata.step_stats.dev_stats
    assert len({stats.node_name for stats in device.node_stats}) == len(device.node_stats)
    return [metadata.step_stats], {stats.node_name: stats for stats in device.node_stats}


async def test_one_entry_for_each_execution(graph: ax.Graph) -> None:
    (step_stats,), nodes = await stats_of(graph)
    assert set(nodes) == {"y", "c", "awaited", "worked"}  # what is fed does not run
    assert [device.device for device in step_stats.dev_stats] == ["/job:localhost/replica:0/task:0/device:CPU:0"]


async def test_times_are_in_order(graph: ax.Graph) -> None:
    begin = time.time_ns()
    _, nodes = await stats_of(graph)
    end = time.time_ns()
    slack = 50_000_000  # the wall clock may be set meanwhile, a little
    for stats in nodes.values():
        assert stats.scheduled_nanos <= stats.all_start_nanos
        assert 0 == stats.op_start_rel_nanos <= stats.op_end_rel_nanos <= stats.all_end_rel_nanos
        assert begin - slack <= stats.all_start_nanos <= stats.all_start_nanos + stats.all_end_rel_nanos <= end + slack
        assert stats.all_start_micros == stats.all_start_nanos // 1000
        assert stats.scheduled_micros == stats.scheduled_nanos // 1000
        assert stats.op_end_rel_micros == stats.op_end_rel_nanos // 1000
        assert stats.all_end_rel_micros == stats.all_end_rel_nanos // 1000
    ends = nodes["y"].all_start_nanos + nodes["y"].all_end_rel_nanos
    assert ends <= nodes["awaited"].all_start_nanos
    assert ends <= nodes["worked"].all_start_nanos


async def test_labels_and_threads(graph: ax.Graph) -> None:
    (step_stats,), nodes = await stats_of(graph)
    assert nodes["y"].timeline_label == "y = AddV2(x:0, c:0)"
    assert nodes["worked"].timeline_label == "worked = worked(y:0)"
    assert nodes["y"].thread_id == nodes["awaited"].thread_id == threading.get_native_id()
    assert nodes["worked"].thread_id != threading.get_native_id()
    assert all(0 < stats.thread_id < 2**32 for stats in nodes.values())  # what TensorFlow's proto has room for
    (device,) = step_stats.dev_stats
    assert device.thread_names == {nodes["y"].thread_id: "event loop", nodes["worked"].thread_id: "worker thread 1"}


async def test_nothing_without_trace(graph: ax.Graph) -> None:
    metadata = ax.RunMetadata()
    async with ax.Session(graph) as session:
        feeds, targets = TRACE
        await session.run("y:0", feeds, targets=targets, metadata=metadata)
        await session.run("y:0", feeds, targets=targets, metadata=metadata, options=ax.RunOptions())
        assert metadata.model_copy(update={"passes": []}) == ax.RunMetadata()
        await session.run("y:0", feeds, options=ax.RunOptions(trace=True))  # and nobody to look at it


async def test_metadata_is_filled_anew_by_each_run(graph: ax.Graph) -> None:
    metadata, options = ax.RunMetadata(), ax.RunOptions(trace=True)
    async with ax.Session(graph) as session:
        await session.run("awaited", {"x:0": 1.0}, options=options, metadata=metadata)
        await session.run("y:0", {"x:0": 1.0}, options=options, metadata=metadata)
    assert [stats.node_name for stats in metadata.step_stats.dev_stats[0].node_stats] == ["c", "y"]


async def test_what_ran_before_a_failure_is_told() -> None:
    def fail(x: float) -> float:
        raise ValueError("failed")

    metadata = ax.RunMetadata()
    with ax.Graph() as graph:
        y = ax.negative(ax.placeholder(ax.float32, [], name="x"), name="y")
        broken = raw_op("Broken", fail)(y, name="broken")
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.InvalidArgumentError):
            await session.run(broken, {"x:0": 1.0}, options=ax.RunOptions(trace=True), metadata=metadata)
    stats = metadata.step_stats.dev_stats[0].node_stats
    assert [(each.node_name, each.failure) for each in stats] == [("y", ""), ("broken", "ValueError: failed")]


async def test_what_had_not_ended_is_told() -> None:
    @ax.op
    async def wait_long(x: float) -> float:
        await asyncio.Event().wait()
        return x

    @ax.op
    async def fail_later(x: float) -> float:
        await settle(5)
        raise ValueError("failed")

    @ax.op(expensive=True)
    def fail_on_a_thread(x: float) -> float:
        raise OSError("gone")

    metadata, options = ax.RunMetadata(), ax.RunOptions(trace=True)
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        fetches, worked = [wait_long(x), wait_long(x), fail_later(x)], fail_on_a_thread(x)
    async with ax.Session(graph) as session:
        with pytest.raises(ValueError, match="failed"):
            await session.run(fetches, {x: 1.0}, options=options, metadata=metadata)
        stats = {each.node_name: each.failure for each in metadata.step_stats.dev_stats[0].node_stats}
        assert stats == {"wait_long": "cancelled", "wait_long_1": "cancelled", "fail_later": "ValueError: failed"}
        with pytest.raises(OSError, match="gone"):
            await session.run(worked, {x: 1.0}, options=options, metadata=metadata)
        assert [each.failure for each in metadata.step_stats.dev_stats[0].node_stats] == ["OSError: gone"]


@pytest.mark.allow_blocking
async def test_saved_trace(graph: ax.Graph, tmp_path: Path) -> None:
    metadata = ax.RunMetadata()
    async with ax.Session(graph) as session:
        feeds, targets = TRACE
        await session.run("y:0", feeds, targets=targets, options=ax.RunOptions(trace=True), metadata=metadata)
    metadata.save_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {event["args"]["name"] for event in events if event["ph"] == "X"} == {"y", "c", "awaited", "worked"}


async def test_partition_graphs(graph: ax.Graph) -> None:
    metadata = ax.RunMetadata()
    async with ax.Session(graph) as session:
        options = ax.RunOptions(output_partition_graphs=True)
        await session.run("y:0", {"x:0": 1.0}, options=options, metadata=metadata)
    (partition,) = metadata.partition_graphs
    assert {"y", "c"} <= {node.name for node in partition.node}
    assert "unneeded" not in {node.name for node in partition.node}


async def test_trace_with_a_timeout(graph: ax.Graph) -> None:
    metadata = ax.RunMetadata()
    async with ax.Session(graph) as session:
        options = ax.RunOptions(trace=True, timeout=100)
        assert await session.run("y:0", {"x:0": 1.0}, options=options, metadata=metadata) == 2.0
    assert len(metadata.step_stats.dev_stats[0].node_stats) == 2


async def traced(graph: ax.Graph) -> ax.RunMetadata:
    metadata = ax.RunMetadata()
    async with ax.Session(graph) as session:
        await session.run("y:0", {"x:0": 1.0}, options=ax.RunOptions(trace=True), metadata=metadata)
    return metadata


def names_in(metadata: ax.RunMetadata) -> list[str]:
    return [stats.node_name for device in metadata.step_stats.dev_stats for stats in device.node_stats]


COPIES: list[Callable[[ax.RunMetadata], ax.RunMetadata]] = [
    ax.RunMetadata.model_copy,
    copy.deepcopy,
    lambda metadata: pickle.loads(pickle.dumps(metadata)),
    lambda metadata: ax.RunMetadata.model_validate_json(metadata.model_dump_json()),
]


@pytest.mark.parametrize("copied", COPIES)
async def test_copies_have_what_nobody_has_asked_for_yet(
    graph: ax.Graph, copied: Callable[[ax.RunMetadata], ax.RunMetadata]
) -> None:
    metadata = await traced(graph)
    made = copied(metadata)
    assert names_in(made) == ["c", "y"]
    assert made.step_stats == metadata.step_stats


async def test_what_metadata_does_not_have() -> None:
    with pytest.raises(AttributeError, match="nothing"):
        _ = ax.RunMetadata().nothing  # type: ignore[attr-defined]


@pytest.mark.one_of("loop")
async def test_trace_of_many_nodes() -> None:
    """Made before the run returns, in slices: later it would be made at once."""
    with ax.Graph() as graph:
        y = ax.placeholder(ax.float32, [], name="x")
        for _ in range(5_000):
            y = -y
        ax.identity(y, name="y")
    metadata = await traced(graph)
    assert "step_stats" in vars(metadata)
    assert len(names_in(metadata)) == 5_001
