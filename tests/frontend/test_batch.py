"""``ax.batch``: what it adds to a graph, what it refuses, and what its function may use."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from tests.fake_time import FakeTime
from tests.running import import_all_names


@pytest.fixture(scope="module", autouse=True)
def all_names() -> None:
    import_all_names()


@ax.batch(max_size=8, timeout_s=0.0)
def doubled(rows: Any) -> Any:
    return rows * 2.0


@ax.batch(max_size=8, timeout_s=0.0)
def with_count(rows: Any) -> Any:
    """Each row, and how many there are in the batch."""
    return {"rows": rows, "count": ax.zeros_like(rows, ax.int32) + ax.shape(rows)[0]}


def placeholder(*shape: int | None, dtype: ax.DType = ax.float32) -> Any:
    return ax.placeholder(dtype, list(shape))


def test_a_call_adds_one_node() -> None:
    with ax.Graph() as graph:
        fed = placeholder(2, 3)
        result = doubled(fed)
    assert [node.op for node in graph] == ["Placeholder", "BatchFunction"]
    node = result.op
    assert (node.attrs["max_batch_size"], node.attrs["batch_timeout_micros"]) == (8, 0)
    assert result.shape.dims == (2, 3)


def test_the_body_is_traced_for_any_number_of_rows() -> None:
    with ax.Graph() as graph:
        doubled(placeholder(1, 3))
        doubled(placeholder(2, 3))
        doubled(placeholder(None, 3))
        doubled(placeholder(None, 4))
    assert len({name.rstrip("_0123456789") for name in graph.functions}) == 1  # others may have the name alone
    assert len(graph.functions) == 2


def test_with_plain_values_it_is_the_python_function() -> None:
    assert doubled(np.ones(2)).tolist() == [2.0, 2.0]


async def test_calls_in_one_graph_are_batched_together() -> None:
    with ax.Graph() as graph:
        first, second = placeholder(None), placeholder(None)
        results = [with_count(first), with_count(second)]
    async with ax.Session(graph, clock=FakeTime().clock) as session:  # no slice ends between the two
        ones, others = await session.run(results, {first: [1.0], second: [2.0, 3.0]})
    assert (ones["rows"].tolist(), ones["count"].tolist()) == ([1.0], [3])
    assert (others["rows"].tolist(), others["count"].tolist()) == ([2.0, 3.0], [3, 3])


async def test_rows_of_different_shapes_are_batched_apart() -> None:
    with ax.Graph() as graph:
        fed = placeholder(None, None)
        result = with_count(fed)
    async with ax.Session(graph) as session:
        calls = [session.run(result, {fed: np.full((1, width), width, np.float32)}) for width in (2, 3, 2, 3, 3)]
        results = await asyncio.gather(*calls)
    assert [each["count"][0, 0] for each in results] == [2, 3, 2, 3, 3]
    assert [each["rows"].tolist() for each in results] == [[[width] * width] for width in (2, 3, 2, 3, 3)]


async def test_what_is_captured_is_each_callers_own() -> None:
    with ax.Graph() as graph:
        fed, factor = placeholder(None), placeholder()
        result = ax.batch(max_size=8, timeout_s=0.0)(lambda rows: rows * (factor + 1.0))(fed)
    async with ax.Session(graph) as session:
        calls = [session.run(result, {fed: [1.0], factor: value}) for value in (1.0, 2.0, 1.0, 2.0)]
        assert np.concatenate(await asyncio.gather(*calls)).tolist() == [2.0, 3.0, 2.0, 3.0]


@pytest.mark.parametrize("medium", ["call_frame", "rendezvous"])
async def test_variables_can_be_used(medium: Any) -> None:
    with ax.Graph() as graph:
        with ax.device("/CPU:1"):
            weights = ax.Variable([1.0, 2.0], name="weights")
        init = weights.initializer
        fed = placeholder(None, 2)
        result = ax.batch(max_size=8, timeout_s=0.0)(lambda rows: rows * weights)(fed)
    config = ax.SessionConfig(feed_fetch_medium=medium, device_count={"CPU": 2}, debug=True)
    async with ax.Session(graph, config) as session:
        await session.run(init)
        results = await asyncio.gather(*(session.run(result, {fed: [[i, i]]}) for i in (1.0, 2.0)))
    assert [each.tolist() for each in results] == [[[1.0, 2.0]], [[2.0, 4.0]]]


async def test_iterations_of_a_loop_are_calls_of_their_own() -> None:
    with ax.Graph() as graph:
        fed = placeholder(1)
        _, result = ax.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, doubled(x)), (0, fed))
    async with ax.Session(graph) as session:
        results = await asyncio.gather(*(session.run(result, {fed: [value]}) for value in (1.0, 2.0)))
    assert [each.tolist() for each in results] == [[8.0], [16.0]]


async def test_items_of_a_stream_are_batched() -> None:
    with ax.Graph() as graph:
        fed = placeholder(1)
        result = with_count(fed)
    async with ax.Session(graph, ax.SessionConfig(slice_ms=10_000)) as session:  # all begin in one turn of the loop
        found = [each async for each in session.map(result, [{fed: [float(i)]} for i in range(20)], window=8)]
    assert [each["rows"].tolist() for each in found] == [[float(i)] for i in range(20)]
    assert max(each["count"][0] for each in found) == 8


async def test_it_works_in_a_function_and_in_a_branch() -> None:
    @ax.function
    def outer(x: Any) -> Any:
        return ax.cond(ax.reduce_sum(x) > 0.0, lambda: doubled(x), lambda: x)

    with ax.Graph() as graph:
        fed = placeholder(None)
        result = outer(fed)
    async with ax.Session(graph) as session:
        results = await asyncio.gather(*(session.run(result, {fed: [value]}) for value in (1.0, -1.0)))
    assert [each.tolist() for each in results] == [[2.0], [-1.0]]


async def test_strings_and_several_devices() -> None:
    with ax.Graph() as graph:
        fed = placeholder(None, dtype=ax.string)
        with ax.device("/CPU:1"):
            result = ax.batch(max_size=8, timeout_s=0.0)(lambda rows: ax.string_join([rows, "!"]))(fed)
    async with ax.Session(graph, ax.SessionConfig(device_count={"CPU": 2}, debug=True)) as session:
        results = await asyncio.gather(*(session.run(result, {fed: [text]}) for text in (b"a", b"b")))
    assert [each.tolist() for each in results] == [[b"a!"], [b"b!"]]


async def test_a_graph_that_was_saved_runs_the_same() -> None:
    with ax.Graph() as graph:
        fed = ax.placeholder(ax.float32, [None], name="fed")
        doubled(fed)
    with ax.Graph() as loaded:
        ax.import_graph_def(graph.as_graph_def())
    config = ax.SessionConfig(feed_fetch_medium="rendezvous")
    async with ax.Session(loaded, config) as session:
        results = await asyncio.gather(*(session.run("doubled:0", {"fed:0": [float(i)]}) for i in range(20)))
    assert [each.tolist() for each in results] == [[2.0 * i] for i in range(20)]


async def test_a_call_without_rows_gets_none() -> None:
    with ax.Graph() as graph:
        fed = placeholder(None, 3)
        result = doubled(fed)
    async with ax.Session(graph) as session:
        assert (await session.run(result, {fed: np.zeros((0, 3))})).shape == (0, 3)


@pytest.mark.parametrize("body", [ax.reduce_sum, lambda rows: ax.concat([rows, rows], 0)], ids=["scalar", "twice"])
async def test_a_function_that_does_not_give_a_row_for_each_is_refused(body: Any) -> None:
    with ax.Graph() as graph:
        fed = placeholder(None)
        result = ax.batch(timeout_s=0.0, name="wrong")(body)(fed)
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.FailedPreconditionError, match="Batched output tensor") as caught:
            await session.run(result, {fed: [1.0]})
    assert caught.value.node == "wrong"


async def test_scalars_and_unequal_numbers_of_rows_are_refused_when_it_runs() -> None:
    with ax.Graph() as graph:
        first, second = ax.placeholder(ax.float32), ax.placeholder(ax.float32)
        result = ax.batch(timeout_s=0.0)(lambda one, other: one)(first, second)
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.InvalidArgumentError, match="must have at least one dimension"):
            await session.run(result, {first: 1.0, second: 1.0})
        with pytest.raises(ax.errors.InvalidArgumentError, match=r"equal 0th-dimension size.*\[1\], \[2\]"):
            await session.run(result, {first: [1.0], second: [1.0, 2.0]})


def test_what_has_no_rows_is_refused() -> None:
    with ax.Graph():
        with pytest.raises(ax.errors.InvalidArgumentError, match="an argument of function 'doubled', is a scalar"):
            doubled(placeholder())
        with pytest.raises(ax.errors.InvalidArgumentError, match="is of dtype object"):
            doubled(ax.placeholder(ax.object, [None]))
        with pytest.raises(ax.errors.InvalidArgumentError, match="same number of rows"):
            ax.batch()(lambda one, other: one)(placeholder(1), placeholder(2))
        with pytest.raises(ax.errors.InvalidArgumentError, match="without tensors"):
            ax.batch()(lambda: placeholder(1))()
        with pytest.raises(ax.errors.InvalidArgumentError, match="returns no tensor"):
            ax.batch()(lambda rows: None)(placeholder(1))


@pytest.mark.parametrize(
    "options",
    [
        {"max_size": 0},
        {"max_size": 2**31},
        {"max_size": 1.5},
        {"timeout_s": -1},
        {"timeout_s": float("nan")},
        {"timeout_s": "1"},
        {"max_queued": 0},
        {"max_running": 0},
        {"allowed_sizes": [4, 2]},
        {"allowed_sizes": [2, 2]},
        {"allowed_sizes": [0, 2]},
        {"max_size": 4, "allowed_sizes": [8]},
    ],
    ids=str,
)
def test_options_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ax.errors.InvalidArgumentError, match=next(reversed(options)).partition("_")[0]):
        ax.batch(**options)


def test_it_takes_a_plain_function() -> None:
    async def coroutine(rows: Any) -> Any:
        return rows

    with pytest.raises(ax.errors.InvalidTypeError):
        ax.batch()(coroutine)
