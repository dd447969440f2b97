"""ax.window: the last values of a stream as one tensor."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from tests.session.stream_graphs import Stages, shown

pytestmark = pytest.mark.virtual_clock

InvalidArgument = ax.errors.InvalidArgumentError


def floats(shape: Any = ()) -> tuple[ax.Graph, ax.Tensor]:
    with ax.Graph() as graph:
        return graph, ax.placeholder(ax.float32, shape, name="x")


async def outputs_of(graph: ax.Graph, fetch: Any, x: Any, values: Any, **options: Any) -> list[Any]:
    async with ax.Session(graph) as session:
        return [out async for out in session.map(fetch, [{x: value} for value in values], **options)]


@pytest.mark.parametrize("size", [1, 2, 3, 7])
async def test_last_values_oldest_first(size: int) -> None:
    graph, x = floats()
    with graph:
        recent = ax.window(x, size)
    found = await outputs_of(graph, recent, x, range(5))
    assert [out.tolist() for out in found] == [[*map(float, range(5))][max(0, i - size + 1) : i + 1] for i in range(5)]
    assert {out.dtype for out in found} == {np.dtype(np.float32)}


@pytest.mark.parametrize(
    ("fill", "missing"), [(-1, [-1, -1]), (np.float32(-1), [-1, -1]), ([5, 6], [5, 6])], ids=["int", "scalar", "array"]
)
async def test_fill_stands_before_what_there_is(fill: Any, missing: list[float]) -> None:
    graph, x = floats([2])
    with graph:
        recent = ax.window(x, 3, fill=fill)
    assert recent.shape == [3, 2]
    found = await outputs_of(graph, recent, x, [[0, 1], [2, 3], [4, 5], [6, 7]])
    assert [out.tolist() for out in found] == [
        [missing, missing, [0, 1]],
        [missing, [0, 1], [2, 3]],
        [[0, 1], [2, 3], [4, 5]],
        [[2, 3], [4, 5], [6, 7]],
    ]


async def test_values_of_the_last_seconds() -> None:
    graph, _ = floats()

    async def readings() -> AsyncIterator[float]:
        for gap in (0, 1, 1, 2, 0, 5):  # at 0, 1, 2, 4, 4 and 9 seconds
            await asyncio.sleep(gap)
            yield asyncio.get_running_loop().time() - start

    with graph:
        x = ax.source(readings, ax.float32, [])
        recent, two = ax.window(x, seconds=2), ax.window(x, size=2, seconds=3)
    start = asyncio.get_running_loop().time()
    async with ax.Session(graph) as session, session.stream([recent, two]) as stream:
        found = [[out.tolist() for out in pair] async for pair in stream]
    assert found == [
        [[0], [0]],
        [[0, 1], [0, 1]],
        [[1, 2], [1, 2]],  # that of 0 is two seconds old
        [[4], [2, 4]],
        [[4, 4], [4, 4]],
        [[9], [9]],
    ]


async def test_time_of_an_item_is_that_of_its_beginning() -> None:
    stages = Stages(delays={0: 10.0, 1: 1.0})
    with stages.graph:
        recent = ax.window(stages.same, seconds=5)
    async with ax.Session(stages.graph) as session:
        found = [out.tolist() async for out in session.map(recent, stages.items(range(3)))]
    assert found == [[0], [0, 1], [0, 1, 2]]


async def test_each_stream_begins_anew_and_a_run_has_its_own_value_only() -> None:
    graph, x = floats()
    with graph:
        fetches = [ax.window(x, 2), ax.window(x, 3, fill=0.0), ax.window(x, seconds=9)]
    async with ax.Session(graph) as session:
        for _ in range(2):
            out = [out async for out in session.map(fetches, [{x: 1.0}, {x: 2.0}])]
            assert [one.tolist() for one in out[-1]] == [[1, 2], [0, 1, 2], [1, 2]]
            assert [one.tolist() for one in await session.run(fetches, {x: 7.0})] == [[7], [0, 0, 7], [7]]


async def test_window_of_a_window_and_of_a_state() -> None:
    graph, x = floats()
    with graph:
        pairs = ax.window(ax.window(x, 2, fill=0.0), 2, fill=0.0)
        total = ax.stream_state(0.0)
        sums = ax.window(total.update(total + x), 2)
    found = await outputs_of(graph, [pairs, sums], x, [1, 2, 3])
    assert [one.tolist() for one in found[-1]] == [[[1, 2], [2, 3]], [3, 6]]


async def test_strings() -> None:
    with ax.Graph() as graph:
        word = ax.placeholder(ax.string, [], name="word")
        both = [ax.string_join([ax.reduce_join(w), "."]) for w in (ax.window(word, 3, fill="-"), ax.window(word, 2))]
        both.append(ax.reduce_join(ax.window(word, seconds=1)))
    found = await outputs_of(graph, both, word, "abcd")
    assert found == [
        [b"--a.", b"a.", b"a"],
        [b"-ab.", b"ab.", b"ab"],
        [b"abc.", b"bc.", b"abc"],
        [b"bcd.", b"cd.", b"abcd"],
    ]


async def test_shapes_that_are_not_known_beforehand() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, None, name="x")
        rows = ax.placeholder(ax.float32, [None, 2], name="rows")
        assert ax.window(x, 3).shape.dims is None
        assert ax.window(x, seconds=3).shape.dims is None
        assert ax.window(rows, 3).shape == [None, None, 2]
        assert ax.window(rows, 3, fill=0.0).shape == [3, None, 2]
        assert ax.window(rows, 3, 1.0).shape == [None, None, 2]
        fetches = [ax.window(x, 2), ax.window(x, 2, 1.0), ax.window(x, 2, fill=0.0)]
    found = await outputs_of(graph, fetches, x, [np.ones((3, 1)), np.zeros((3, 1))])
    assert [[one.shape for one in out] for out in found] == [[(1, 3, 1), (1, 3, 1), (2, 3, 1)], [(2, 3, 1)] * 3]


async def test_value_of_another_shape_fails_its_item_and_stays_outside() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None], name="x")
        fetches = [ax.window(x, 3, name="recent"), ax.window(x, 3, 9.0)]
    found = await outputs_of(graph, fetches, x, [[1], [2, 3], [4]], on_error="yield")
    assert found[1].message == "item 1: the window holds values of shape [1], and the next one is of shape [2]"
    assert found[1].node in ("recent", "window")
    assert isinstance(found[1], InvalidArgument)
    assert [one.tolist() for one in found[2]] == [[[1], [4]]] * 2


async def test_failed_item_leaves_the_window_as_it_was() -> None:
    stages = Stages(delays={0: 2.0, 4: 1.0}, failing={1, 4})
    with stages.graph:
        fetches = [ax.window(stages.same, 3), ax.window(stages.same, seconds=100)]
    async with ax.Session(stages.graph) as session:
        found = [out async for out in session.map(fetches, stages.items(range(6)), on_error="yield")]
    assert shown([found[1], found[4]]) == ["item 1: ValueError: 1 is bad", "item 4: ValueError: 4 is bad"]
    assert [out.tolist() for out in found[5]] == [[2, 3, 5], [0, 2, 3, 5]]


async def test_branch_that_is_not_taken_leaves_the_window_as_it_was() -> None:
    stages = Stages()
    with stages.graph:
        is_odd = ax.equal(stages.same % 2, np.int64(1))
        _, odd = ax.create_op("Switch", [stages.same, is_odd])
        even, _ = ax.create_op("Switch", [np.array([-1]), is_odd])
        recent, _ = ax.create_op("Merge", [[ax.window(odd, 2), even]])
        timed, _ = ax.create_op("Merge", [[ax.window(odd, 2, 60.0), even]])
    async with ax.Session(stages.graph) as session:
        found = [out async for out in session.map([recent, timed], stages.items(range(6)))]
    for column in range(2):
        assert [out[column].tolist() for out in found] == [[-1], [1], [-1], [1, 3], [-1], [3, 5]]


async def test_window_survives_a_file_and_stands_on_another_device() -> None:
    graph, x = floats()
    with graph, ax.device("/cpu:1"):
        ax.identity(ax.window(x, 2), name="recent")
        ax.identity(ax.window(x, 2, 60.0), name="timed")
    with ax.Graph() as loaded:
        ax.import_graph_def(graph.as_graph_def())
    async with ax.Session(loaded, ax.SessionConfig(device_count={"CPU": 2})) as session:
        items = [{"x:0": 1.0}, {"x:0": 2.0}, {"x:0": 3.0}]
        found = [out async for out in session.map(["recent:0", "timed:0"], items)]
    assert [out.tolist() for out in found[-1]] == [[2, 3], [2, 3]]


BAD_ARGUMENTS: list[tuple[dict[str, Any], str]] = [
    ({}, "a size, or a number of seconds"),
    ({"size": 0}, "from 1 to 2147483647, not 0"),
    ({"size": -3}, "not -3"),
    ({"size": 2.0}, "not 2.0"),
    ({"size": True}, "not True"),
    ({"size": 2**40}, "not 1099511627776"),
    ({"seconds": 0}, "seconds of a window .* not 0"),
    ({"seconds": -1.0}, "not -1.0"),
    ({"seconds": float("nan")}, "not nan"),
    ({"seconds": float("inf")}, "not inf"),
    ({"seconds": "1"}, "not '1'"),
    ({"size": 3, "seconds": 1e-9}, "not 1e-09"),
    ({"seconds": 1.0, "fill": 0.0}, "fill is for windows of a size"),
    ({"size": 3, "seconds": 1.0, "fill": 0.0}, "fill is for windows of a size"),
    ({"size": 3, "fill": [0.0] * 5}, "Shapes"),
    ({"size": 3, "fill": "text"}, "float32"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD_ARGUMENTS, ids=str)
async def test_what_is_no_window(arguments: dict[str, Any], message: str) -> None:
    graph, x = floats([2])
    with graph, pytest.raises(InvalidArgument, match=message):
        ax.window(x, **arguments)


async def test_what_cannot_be_in_a_window() -> None:
    with ax.Graph():
        thing = ax.placeholder(ax.object, name="thing")
        with pytest.raises(ax.errors.InvalidTypeError, match="'thing:0' is of dtype object"):
            ax.window(thing, 3)
    with pytest.raises(ax.errors.FailedPreconditionError, match="no graph"):
        ax.window(1.0, 3)


async def test_window_belongs_to_a_graph_at_large() -> None:
    graph, x = floats()
    with graph:
        with pytest.raises(InvalidArgument, match="outside"):
            ax.cond(x > 0, lambda: ax.window(x, 2), lambda: ax.constant([0.0]))
        with pytest.raises(InvalidArgument, match="outside"):
            ax.while_loop(lambda i: i < 3, lambda i: ax.reduce_sum(ax.window(i, 2, 1.0)), [x])
        with pytest.raises(InvalidArgument, match="outside"):
            ax.function(lambda v: ax.window(v, 2))(x)
        recent = ax.window(x, 2)
        top = ax.cond(x > 1, lambda: ax.reduce_max(recent), lambda: ax.reduce_min(recent))
        doubled = ax.function(lambda v: v * ax.reduce_sum(recent))(x)
    found = await outputs_of(graph, [top, doubled], x, [1, 3, 2])
    assert [tuple(map(float, out)) for out in found] == [(1, 1), (3, 12), (3, 10)]


async def test_sizes_of_strange_graphs_are_checked() -> None:
    graph, x = floats()
    with graph:
        window = ax.placeholder(ax.float32, None, name="window")
        times = ax.placeholder(ax.float64, [None], name="times")
        now = ax.placeholder(ax.float64, [], name="now")
        huge = ax.create_op("StreamWindow", [window, x, [x]], {"size": 2**50})
        timed, _ = ax.create_op("StreamTimeWindow", [window, times, x, now], {"micros": 10**9})
        bounded, kept = ax.create_op("StreamTimeWindow", [window, times, x, now], {"micros": 10**9, "size": 3})
        with pytest.raises(InvalidArgument, match="size"):
            ax.create_op("StreamWindow", [window, x, []], {"size": 0})
    many = {window: np.zeros(2**16, np.float32), times: np.zeros(2**16), x: 1.0, now: 1.0}
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.ResourceExhaustedError, match="OOM"):
            await session.run(huge, many)
        with pytest.raises(ax.errors.ResourceExhaustedError, match="more than 65536 values in 1000 seconds"):
            await session.run(timed, many)
        assert [out.tolist() for out in await session.run([bounded, kept], many)] == [[0, 0, 1], [0, 0, 1]]
        with pytest.raises(InvalidArgument, match=r"65536 values in the window, and times of shape \[2\]"):
            await session.run(timed, many | {times: [0.0, 1.0]})
        with pytest.raises(InvalidArgument, match="holds a scalar"):
            await session.run(huge, many | {window: 1.0})
        # A clock that goes back does not: what comes later is not older.
        back = {window: [1.0, 2.0], times: [5.0, 6.0], x: 3.0, now: 4.0}
        assert (await session.run(kept, back)).tolist() == [5, 6, 6]
