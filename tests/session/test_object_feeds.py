"""Python objects as values: lists are so many of them, and records need no declaration."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel

import asyncexec as ax
from asyncexec.framework.errors import InternalError, InvalidArgumentError, InvalidTypeError, ResourceExhaustedError
from tests.session.turns import turns_during


@dataclasses.dataclass
class Point:
    x: int = 1


class Model(BaseModel):
    y: int = 2


@ax.op
def size(members: list[Any]) -> int:
    return len(members)


def objects(shape: Any) -> tuple[ax.Graph, ax.Tensor, list[ax.Tensor]]:
    with ax.Graph() as graph:
        fed = ax.placeholder(ax.object, shape, name="fed")
        return graph, fed, [ax.identity(fed), ax.shape(fed)]


@pytest.mark.parametrize(
    ("shape", "value", "expected_shape"),
    [
        ([None], ["a", {"b": 1}, [1, 2]], [3]),
        ([None], (1, None), [2]),
        ([None], [], [0]),
        ([None], [[1, 2], [3, 4]], [2]),
        ([2, None], [["a", 1], ["b", [2]]], [2, 2]),
        ([2, 0], [[], []], [2, 0]),
    ],
)
async def test_list_is_so_many_objects_where_the_rank_is_known(
    shape: list[int | None], value: Any, expected_shape: list[int]
) -> None:
    graph, fed, fetches = objects(shape)
    async with ax.Session(graph) as session:
        for _ in range(4):
            got, got_shape = await session.run(fetches, {fed: value})
            assert (got.dtype, list(got.shape), list(got_shape)) == (np.dtype(object), expected_shape, expected_shape)
            flat = [leaf for row in value for leaf in row] if len(expected_shape) == 2 else list(value)
            assert list(got.ravel()) == flat


@pytest.mark.parametrize("shape", [[], None])
async def test_list_is_one_object_elsewhere(shape: Any) -> None:
    graph, fed, (same, _) = objects(shape)
    async with ax.Session(graph) as session:
        assert await session.run(same, {fed: ["a", 2]}) == ["a", 2]


@pytest.mark.parametrize(
    ("shape", "value", "said"),
    [
        ([None, None], [[1, 2], [3]], "rows of different lengths"),
        ([None, None], [[1, 2], 3], "rows of different lengths"),
        ([None, None], [1, 2], "rows of different lengths"),
        ([2], ["a"], "cannot feed a value of shape [1]"),
    ],
)
async def test_lists_of_other_shapes_are_refused(shape: list[int | None], value: Any, said: str) -> None:
    graph, fed, (same, _) = objects(shape)
    async with ax.Session(graph) as session:
        with pytest.raises(InvalidArgumentError) as caught:
            await session.run(same, {fed: value})
        assert said in str(caught.value)
        assert caught.value.node == "fed"


def nested(kind: str) -> tuple[int, Any]:
    """A rank, and a list that is not to be made an array of it."""
    if kind == "large":
        rows: Any = [0] * 1000
        for _ in range(3):
            rows = [rows] * 1000
        return 4, rows
    endless: Any = []
    endless += [endless] if kind == "deep" else [endless, endless]
    return (65, endless) if kind == "deep" else (30, endless)


@pytest.mark.parametrize(
    ("kind", "error"),
    [("large", ResourceExhaustedError), ("deep", InvalidArgumentError), ("wide", ResourceExhaustedError)],
)
async def test_lists_that_are_too_large_are_refused(kind: str, error: type[Exception]) -> None:
    rank, value = nested(kind)
    graph, fed, (same, _) = objects([None] * rank)
    async with ax.Session(graph) as session:
        with pytest.raises(error, match="cannot feed 'fed:0'"):
            await session.run(same, {fed: value})
        (found,) = [item async for item in session.map(same, [{fed: value}], on_error="yield")]
        assert isinstance(found, error)


@pytest.mark.one_of("loop")
async def test_rows_of_a_long_list_leave_the_loop_its_turns() -> None:
    graph, fed, (same, _) = objects([None, None])
    rows = [[i] for i in range(400_000)]
    async with ax.Session(graph) as session:
        await session.run(same, {fed: [[1]]})
        few, _ = await turns_during(session.run(same, {fed: [[1]]}))
        turns, got = await turns_during(session.run(same, {fed: rows}))
    assert (got.shape, got[-1, 0], turns > few + 10) == ((400_000, 1), 399_999, True)


async def test_elements_of_a_list_are_mapped_one_by_one() -> None:
    with ax.Graph() as graph:
        fed = ax.placeholder(ax.object, [None], name="fed")
        sizes = ax.map_fn(lambda members: size(members), fed)
    async with ax.Session(graph) as session:
        got = await session.run(sizes, {fed: [[1, 2], [], [3]]})
        np.testing.assert_array_equal(got, np.array([2, 0, 1], np.int64), strict=True)
        np.testing.assert_array_equal(await session.run(sizes, {fed: []}), np.array([], np.int64), strict=True)


async def test_long_lists_leave_the_loop_its_turns() -> None:
    graph, fed, (same, _) = objects([None])
    many = [None] * 4_000_000
    async with ax.Session(graph) as session:
        await session.run(same, {fed: [1]})
        few, _ = await turns_during(session.run(same, {fed: [1]}))
        turns, got = await turns_during(session.run(same, {fed: many}))
        assert (got.shape, turns > few + 3) == ((4_000_000,), True)
        sent, items = await turns_during(anext(aiter(session.map(same, [{fed: many}]))))
        assert (items.shape, sent > few + 3) == ((4_000_000,), True)


async def test_list_that_an_op_gives_under_a_declared_rank() -> None:
    @ax.op(outputs=[ax.object], shapes=[[None]])
    def split(text: str) -> Any:
        return text.split()

    @ax.op(outputs=[ax.object], shapes=[[2]])
    def two(text: str) -> Any:
        return text.split()

    with ax.Graph() as graph:
        text = ax.placeholder(ax.string, [], name="text")
        words, exactly = split(text), two(text)
        count = ax.shape(words)
    async with ax.Session(graph) as session:
        got, shape = await session.run([words, count], {text: "a b c"})
        assert (list(got), list(shape)) == (["a", "b", "c"], [3])
        with pytest.raises(InternalError, match=r"op 'two' gave shape \[3\], but \[2\] is declared"):
            await session.run(exactly, {text: "a b c"})


@pytest.mark.parametrize("value", [{"a": 1}, Point(3), Model(y=4)], ids=["dict", "dataclass", "pydantic"])
async def test_records_are_objects(value: Any) -> None:
    with ax.Graph() as graph:
        fetches = [ax.constant(value), ax.identity(value)]
    async with ax.Session(graph) as session:
        first, second = await session.run(fetches)
    assert first is value
    assert second is value


def test_other_objects_say_how_to_declare_them() -> None:
    with ax.Graph(), pytest.raises(InvalidTypeError, match=r"dtype=ax\.object"):
        ax.constant([{"a": 1}])


async def test_constant_list_of_objects() -> None:
    with ax.Graph() as graph:
        rows = ax.constant([[1], [2, 3]], dtype=ax.object, shape=[2])
    async with ax.Session(graph) as session:
        assert list(await session.run(rows)) == [[1], [2, 3]]
