"""Feeds that are converted in pieces: what comes out is what comes out in one go, and others get their turns."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import asyncexec as ax
from asyncexec.framework.cooperative import run_at_once
from asyncexec.session import large_feeds
from asyncexec.session.function_call_frame import SlowConverter, feed_converter
from asyncexec.session.large_feeds import MAX_BYTES, MAX_ITEMS, LargeFeedError, convert_in_pieces, is_large
from tests.running import settle
from tests.session.turns import slow_session, turns_during

DTYPES = [
    ax.float32,
    ax.float64,
    ax.bfloat16,
    ax.int8,
    ax.uint8,
    ax.int32,
    ax.int64,
    ax.uint64,
    ax.bool,
    ax.complex64,
    ax.string,
]
NUMBERS = st.one_of(
    st.booleans(),
    st.integers(-3, 300),
    st.integers(-(2**70), 2**70),
    st.floats(width=32),
    st.sampled_from(
        [2**53 + 1, 2**63, -(2**63), 16_777_217.0, 1e300, 1 + 2j, np.float32(0.1), np.int8(7), np.uint64(2**63)]
    ),
)
TEXTS = st.one_of(st.text(max_size=3), st.binary(max_size=3), st.just("\ud800"))
LEAVES = st.one_of(NUMBERS, TEXTS, st.none())


def nests(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Lists and tuples of the same length, of leaves or of such lists; now and then of any lengths."""

    def of(shape: list[int]) -> st.SearchStrategy[Any]:
        nest = leaves
        for size in reversed(shape):
            nest = st.lists(nest, min_size=size, max_size=size) | st.lists(nest, min_size=size, max_size=size).map(
                tuple
            )
        return nest

    even = st.lists(st.integers(0, 5), min_size=1, max_size=3).flatmap(of)
    return even | st.recursive(leaves, lambda inner: st.lists(inner, max_size=4), max_leaves=12)


def arrays() -> st.SearchStrategy[Any]:
    """Arrays of many dtypes and layouts, and lists of them."""
    made = st.builds(
        lambda numbers, shape, dtype, fortran: np.resize(np.array(numbers), shape).astype(
            dtype, "F" if fortran else "C"
        ),
        st.lists(st.integers(-300, 300), min_size=1, max_size=9),
        st.lists(st.integers(0, 5), min_size=1, max_size=3),
        st.sampled_from(["f4", "f8", "f2", "i4", "i8", "u1", "?", "c8", ">f8", "U3", "S2", "O"]),
        st.booleans(),
    )
    return made | made.map(lambda array: array[::2]) | st.lists(made, min_size=1, max_size=3)


def tensor_of(dtype: Any) -> ax.Tensor:
    with ax.Graph():
        return ax.placeholder(dtype, None, name="x")


TENSORS = {dtype.name: tensor_of(dtype) for dtype in DTYPES}


def outcome(call: Any) -> Any:
    """What *call* gives, or raises, in a form that tells all."""
    try:
        value = call()
    except Exception as error:
        return type(error), str(error)
    array = np.asarray(value)
    order = array.flags.f_contiguous and not array.flags.c_contiguous and array.dtype.kind != "O"
    shown = array.tolist() if array.dtype.kind == "O" else array.tobytes()
    return type(value), array.dtype, array.shape, order, shown


def check_same(value: Any, dtype: str) -> None:
    """What is larger than a tiny piece is converted in pieces as in one go."""
    converter = SlowConverter(TENSORS[dtype])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(large_feeds, "MAX_ITEMS", 3)
        patch.setattr(large_feeds, "MAX_BYTES", 8)
        assume(is_large(value, converter.dtype))
        in_pieces = outcome(lambda: run_at_once(convert_in_pieces(value, converter)))
    assert in_pieces == outcome(lambda: converter(value))


@given(nests(NUMBERS).filter(lambda nest: isinstance(nest, (list, tuple))), st.sampled_from(sorted(TENSORS)))
def test_pieces_of_nests_of_numbers(nest: Any, dtype: str) -> None:
    check_same(nest, dtype)


@given(nests(LEAVES).filter(lambda nest: isinstance(nest, (list, tuple))), st.sampled_from(sorted(TENSORS)))
def test_pieces_of_nests_of_anything(nest: Any, dtype: str) -> None:
    check_same(nest, dtype)


@given(nests(TEXTS).filter(lambda nest: isinstance(nest, (list, tuple))))
def test_pieces_of_nests_of_text(nest: Any) -> None:
    check_same(nest, "string")


@given(arrays(), st.sampled_from(sorted(TENSORS)))
def test_pieces_of_arrays(value: Any, dtype: str) -> None:
    check_same(value, dtype)


@pytest.mark.deep
@settings(max_examples=5_000, deadline=None)
@given(nests(LEAVES).filter(lambda nest: isinstance(nest, (list, tuple))) | arrays(), st.sampled_from(sorted(TENSORS)))
def test_pieces_of_very_many_values(value: Any, dtype: str) -> None:
    check_same(value, dtype)


LARGE: dict[str, Any] = {
    "list": [1.0] * (MAX_ITEMS + 1),
    "list of lists": [[1.0] * MAX_ITEMS] * 2,
    "tuple of arrays": (np.zeros(MAX_ITEMS, np.float32),) * 2,
    "array of another dtype": np.zeros(MAX_BYTES // 8 + 1),
    "array of bytes": np.zeros(MAX_ITEMS + 1, "S1"),
}
SMALL: dict[str, Any] = {
    "list": [1.0] * MAX_ITEMS,
    "empty list": [],
    "list of empty lists": [[]] * (2 * MAX_ITEMS),
    "array of the dtype": np.zeros(MAX_BYTES, np.float32),
    "array of another dtype": np.zeros(MAX_BYTES // 8),
    "array of objects": np.zeros(MAX_ITEMS, object),
    "text": "a" * MAX_BYTES,
    "number": 1.0,
}


@pytest.mark.parametrize("name", LARGE)
def test_what_is_large(name: str) -> None:
    assert is_large(LARGE[name], ax.float32)


@pytest.mark.parametrize("name", SMALL)
def test_what_is_not_large(name: str) -> None:
    assert not is_large(SMALL[name], ax.float32)


def test_lists_that_hold_themselves() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert not is_large(endless, ax.float32)
    endless.append(endless)
    assert is_large(endless, ax.float32)


def test_list_that_shrinks_meanwhile() -> None:
    """What is converted is what is there at the end: nobody is to change what he feeds."""
    value = [1.0] * (3 * MAX_ITEMS)
    stage = convert_in_pieces(value, SlowConverter(TENSORS["float32"]))
    next(stage)
    del value[-5:]
    assert run_at_once(stage).tolist() == value


def test_guarded_converter_leaves_large_values_alone() -> None:
    tensor = TENSORS["float32"]
    guarded = feed_converter(tensor, is_guarded=True)
    small, fitting = np.zeros(MAX_BYTES // 4, np.float32), np.zeros(MAX_BYTES, np.float32)
    assert guarded(small) is small
    assert guarded([1, 2]).tolist() == [1, 2]
    for large in (np.zeros(MAX_BYTES), fitting):  # the shape of the tensor is not known
        with pytest.raises(LargeFeedError):
            guarded(large)
    assert feed_converter(tensor)(np.zeros(MAX_BYTES)).dtype == np.float32
    assert feed_converter(tensor)(fitting) is fitting
    with ax.Graph():
        sized = ax.placeholder(ax.float32, fitting.shape)
    assert feed_converter(sized, is_guarded=True)(fitting) is fitting


@pytest.mark.parametrize("way", ["run", "make_callable"])
async def test_others_get_their_turns(way: str) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None], name="x")
        y = ax.reduce_sum(x)
    async with slow_session(graph) as session:
        call = session.make_callable(y, [x])

        async def total_of(values: list[float]) -> Any:
            return await (call(values) if way == "make_callable" else session.run(y, {x: values}))

        await total_of([1.0])
        few, _ = await turns_during(total_of([1.0]))
        many, total = await turns_during(total_of([1.0] * (5 * MAX_ITEMS)))
        assert total == 5 * MAX_ITEMS
        assert many >= few + 2 * 5


async def test_error_of_a_large_feed() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int32, [None, 2], name="x")
    async with slow_session(graph) as session:
        with pytest.raises(ax.errors.InvalidTypeError, match=r"cannot feed 'x:0': .* without loss"):
            await session.run(x, {x: [[1, 2.5]] * MAX_ITEMS})
        with pytest.raises(ax.errors.InvalidArgumentError, match=r"shape \[8192, 3\] for 'x:0'"):
            await session.run(x, {x: [[1, 2, 3]] * MAX_ITEMS})
        assert (await session.run(x, {x: [[1, 2]] * MAX_ITEMS})).shape == (MAX_ITEMS, 2)


async def test_close_while_a_feed_is_converted() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None], name="x")
        y = ax.identity(x)
    session = slow_session(graph)
    await session.run(y, {x: [1.0]})
    run = asyncio.ensure_future(session.run(y, {x: [1.0] * (5 * MAX_ITEMS)}))
    await settle(5)
    await session.close()
    with pytest.raises(ax.errors.CancelledError, match="closed"):
        await run


async def test_cancelled_while_a_feed_is_converted() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None], name="x")
        y = ax.identity(x)
    async with slow_session(graph) as session:
        await session.run(y, {x: [1.0]})
        run = asyncio.ensure_future(session.run(y, {x: [1.0] * (5 * MAX_ITEMS)}))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert (await session.run(y, {x: [2.0]})).tolist() == [2]


class Sums:
    """The sums of x and of z, of any size."""

    def __init__(self) -> None:
        with ax.Graph() as self.graph:
            self.x, self.z = (ax.placeholder(ax.float32, [None], name=name) for name in "xz")
            self.sums = [ax.reduce_sum(self.x), ax.reduce_sum(self.z)]


MANY = [1.0] * (5 * MAX_ITEMS)


async def test_others_get_their_turns_while_a_partial_run_is_fed() -> None:
    sums = Sums()
    async with slow_session(sums.graph) as session, session.partial_run(sums.sums, [sums.x, sums.z]) as step:
        few, _ = await turns_during(step.feed({sums.x: [1.0]}))
        many, _ = await turns_during(step.feed({sums.z: MANY}))
        assert many >= few + 2 * 5
        assert await step.fetch(sums.sums) == [1, 5 * MAX_ITEMS]


async def test_large_feed_of_a_partial_run_that_is_fed_by_another_meanwhile() -> None:
    sums = Sums()
    async with slow_session(sums.graph) as session, session.partial_run(sums.sums, [sums.x, sums.z]) as step:
        feed = asyncio.ensure_future(step.feed({sums.z: MANY, sums.x: MANY}))
        await asyncio.sleep(0)
        await step.feed({sums.x: [2.0]})
        with pytest.raises(ax.errors.InvalidArgumentError, match="'x:0' has already been fed"):
            await feed
        with pytest.raises(ax.errors.InvalidArgumentError, match="it needs 'z:0'"):
            await step.fetch(sums.sums)
        await step.feed({sums.z: [3.0]})
        assert await step.fetch(sums.sums) == [2, 3]


@pytest.mark.parametrize("end", ["cancel", "leave", "close"])
async def test_end_of_a_partial_run_while_a_feed_is_converted(end: str) -> None:
    sums = Sums()
    async with slow_session(sums.graph) as session:
        async with session.partial_run(sums.sums, [sums.x, sums.z]) as step:
            feed = asyncio.ensure_future(step.feed({sums.x: MANY}))
            await asyncio.sleep(0)
            if end == "cancel":
                feed.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await feed
                await step.feed({sums.x: [1.0], sums.z: [2.0]})
                assert await step.fetch(sums.sums) == [1, 2]
            if end == "close":
                await session.close()
                with pytest.raises(ax.errors.CancelledError, match="closed"):
                    await feed
        if end == "leave":
            with pytest.raises(ax.errors.FailedPreconditionError, match="not under way"):
                await feed


async def test_error_of_a_large_feed_of_a_partial_run() -> None:
    sums = Sums()
    async with slow_session(sums.graph) as session, session.partial_run(sums.sums, [sums.x, sums.z]) as step:
        with pytest.raises(ax.errors.InvalidArgumentError, match=r"shape \[8193, 1\] for 'z:0'"):
            await step.feed({sums.x: [1.0], sums.z: [[1.0]] * (MAX_ITEMS + 1)})
        await step.feed({sums.x: [1.0], sums.z: [2.0]})
        assert await step.fetch(sums.sums) == [1, 2]
