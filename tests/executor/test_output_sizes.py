"""A trace tells the dtypes, shapes and bytes of what nodes gave, and holds on to none of it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.kernel import KernelKind
from asyncexec.framework.step_stats import NodeExecStats, NodeOutput
from tests.running import raw_op

each_type = pytest.mark.parametrize("executor_type", ["DEFAULT", "TAGGED_TOKEN"])


async def traced(
    graph: ax.Graph, fetches: Any, feeds: Any = None, executor_type: str = "DEFAULT"
) -> dict[str, NodeExecStats]:
    """The last execution of each node, by name."""
    metadata = ax.RunMetadata()
    async with ax.Session(graph, ax.SessionConfig(executor_type=executor_type)) as session:
        await session.run(fetches, feeds or {}, options=ax.RunOptions(trace=True), metadata=metadata)
    return {stats.node_name: stats for device in metadata.step_stats.dev_stats for stats in device.node_stats}


def told(output: NodeOutput) -> tuple[int, int, list[int], int | None]:
    """Slot, dtype, shape and bytes."""
    described = output.tensor_description
    allocated = described.allocation_description
    if allocated is not None:
        assert allocated.requested_bytes == allocated.allocated_bytes
    dims = [dim.size for dim in described.shape.dim]
    return output.slot, described.dtype, dims, None if allocated is None else allocated.allocated_bytes


def gave(stats: NodeExecStats) -> list[tuple[int, int, list[int], int | None]]:
    return [told(output) for output in stats.output]


FLOAT, STRING = ax.float32.enum, ax.string.enum


@each_type
async def test_arrays_scalars_and_strings(executor_type: str) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, 3], name="x")
        ax.negative(x, name="array")
        ax.reduce_sum(x, name="scalar")
        ax.split(x, 2, name="parts")
        ax.string_join([ax.placeholder(ax.string, [], name="s"), "def"], name="text")
    fetches = ["array", "scalar", "parts:0", "text"]
    nodes = await traced(graph, fetches, {"x:0": np.ones([2, 3], np.float32), "s:0": b"abc"}, executor_type)
    assert gave(nodes["array"]) == [(0, FLOAT, [2, 3], 24)]
    assert gave(nodes["scalar"]) == [(0, FLOAT, [], 4)]
    assert gave(nodes["parts"]) == [(0, FLOAT, [1, 3], 12), (1, FLOAT, [1, 3], 12)]
    assert gave(nodes["text"]) == [(0, STRING, [], 6)]
    (memory,) = nodes["parts"].memory
    assert (memory.total_bytes, memory.peak_bytes, memory.live_bytes) == (24, 24, 24)


async def test_constants_were_there_before_the_step() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [2], name="x")
        ax.add(x, ax.constant([1.0, 2.0], name="c"), name="y")
        ax.identity(ax.constant(["a", "b"], name="words"), name="z")
    nodes = await traced(graph, ["y", "z"], {"x:0": [1.0, 2.0]})
    assert gave(nodes["c"]) == [(0, FLOAT, [2], 8)]
    assert nodes["c"].memory == []
    assert "words" not in nodes or gave(nodes["words"]) == [(0, STRING, [2], 16)]


async def test_python_objects_have_no_bytes() -> None:
    with ax.Graph() as graph:
        give = raw_op("GiveObject", lambda x: {"a": x})
        give(ax.placeholder(ax.float32, [], name="x"), name="made")
    nodes = await traced(graph, "made", {"x:0": 1.0})
    assert gave(nodes["made"]) == [(0, ax.object.enum, [], None)]
    assert nodes["made"].memory == []


@pytest.mark.parametrize("expensive", [False, True])
async def test_what_failed_gave_nothing(expensive: bool) -> None:
    def fail(x: float) -> float:
        raise ValueError("failed")

    metadata = ax.RunMetadata()
    with ax.Graph() as graph:
        ax.op(fail, outputs=[ax.float32], expensive=expensive)(ax.placeholder(ax.float32, [], name="x"), name="broken")
    async with ax.Session(graph) as session:
        with pytest.raises(ValueError, match="failed"):
            await session.run("broken", {"x:0": 1.0}, options=ax.RunOptions(trace=True), metadata=metadata)
    ((stats,),) = (device.node_stats for device in metadata.step_stats.dev_stats)
    assert (stats.failure, stats.output, stats.memory) == ("ValueError: failed", [], [])


@ax.op(outputs=[ax.float32])
async def awaited(x: Any) -> Any:
    return np.concatenate([x, x])


@ax.op(outputs=[ax.float32], expensive=True)
def worked(x: Any) -> Any:
    return np.concatenate([x, x])


@ax.op(outputs=[ax.float32])
def inline(x: Any) -> Any:
    return np.concatenate([x, x])


@each_type
@pytest.mark.parametrize("double", [awaited, worked, inline], ids=lambda op: op.__name__)
async def test_wherever_kernels_run(double: Callable[..., Any], executor_type: str) -> None:
    """On worker threads a chain of them hands values on that the loop never sees."""
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [2], name="x")
        double(double(double(x, name="a"), name="b"), name="c")
    nodes = await traced(graph, "c", {"x:0": np.ones(2, np.float32)}, executor_type)
    assert [gave(nodes[name])[0][2] for name in "abc"] == [[4], [8], [16]]
    assert [nodes[name].memory[0].total_bytes for name in "abc"] == [16, 32, 64]


async def test_between_devices() -> None:
    with ax.Graph() as graph:
        with ax.device("/CPU:0"):
            x = ax.negative(ax.placeholder(ax.float32, [2], name="x"), name="a")
        with ax.device("/CPU:1"):
            ax.negative(x, name="b")
    metadata = ax.RunMetadata()
    async with ax.Session(graph, ax.SessionConfig(device_count={"CPU": 2})) as session:
        feeds = {"x:0": np.ones(2, np.float32)}
        await session.run("b:0", feeds, options=ax.RunOptions(trace=True), metadata=metadata)
    stats = [each for device in metadata.step_stats.dev_stats for each in device.node_stats]
    received = [each for each in stats if "= _Recv" in each.timeline_label]
    assert received
    assert [gave(each) for each in received] == [[(0, FLOAT, [2], 8)]] * len(received)
    assert all(each.output == [] for each in stats if "= _Send" in each.timeline_label)


async def test_in_loops_the_live_outputs_alone() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        ax.while_loop(lambda y: y < 10.0, lambda y: ax.multiply(y, 2.0, name="body"), x, name="loop")
        y = ax.cond(x < 0.0, lambda: ax.negative(x, name="untaken"), lambda: ax.square(x, name="taken"))
        ax.identity(y, name="out")
    nodes = await traced(graph, [graph.operations[-1].name], {"x:0": 3.0})
    assert "untaken" not in {name.rpartition("/")[2] for name in nodes}
    (taken,) = (stats for name, stats in nodes.items() if name.endswith("taken"))
    assert gave(taken) == [(0, FLOAT, [], 4)]


@pytest.mark.parametrize("is_async", [False, True])
async def test_outputs_that_are_not_what_the_op_promises_fail_the_step_as_ever(is_async: bool) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")

        async def later(x: Any) -> Any:
            return wrong(x)

        def wrong(x: Any) -> Any:
            return (1.0, 2.0, 3.0)

        kind = KernelKind.ASYNC if is_async else KernelKind.CHEAP
        raw_op("Wrong", later if is_async else wrong, outputs=2, dtype=ax.float32, kind=kind)(x, name="wrong")
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.InternalError, match="gave 3 outputs"):
            await session.run("wrong:0", {"x:0": 1.0}, options=ax.RunOptions(trace=True), metadata=ax.RunMetadata())


async def test_no_output_is_kept() -> None:
    made: list[weakref.ref[Any]] = []

    def make(x: Any) -> Any:
        array = x + np.float32(1)
        made.append(weakref.ref(array))
        return array

    def make_two(x: Any) -> Sequence[Any]:
        return make(x), make(x)

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [2], name="x")
        one = raw_op("MakeOne", make, dtype=ax.float32)(x)
        two = raw_op("MakeTwo", make_two, outputs=2, dtype=ax.float32)(one)
        total = ax.reduce_sum(ax.add_n([one, *two]), name="total")
    metadata = ax.RunMetadata()
    async with ax.Session(graph) as session:
        feeds = {"x:0": np.ones(2, np.float32)}
        await session.run(total, feeds, options=ax.RunOptions(trace=True), metadata=metadata)
        gc.collect()
        assert [each() for each in made] == [None] * 3
        assert len(metadata.step_stats.dev_stats[0].node_stats) >= 4
