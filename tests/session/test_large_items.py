"""Items of streams with large feeds: they are converted in slices, before they are queued."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.session.large_feeds import MAX_BYTES, MAX_ITEMS
from asyncexec.session.stream_plan import large_items
from tests.session.turns import every_yield_is_a_turn, turns_during

__all__ = ["every_yield_is_a_turn"]  # a fixture

pytestmark = pytest.mark.usefixtures("every_yield_is_a_turn")
MANY = [1.0] * (5 * MAX_ITEMS)


class Sum:
    """The sum of x, of any size; by way of a stream."""

    def __init__(self) -> None:
        with ax.Graph() as self.graph:
            self.x = ax.placeholder(ax.float32, [None], name="x")
            self.y = ax.reduce_sum(self.x)

    async def by_send(self, session: ax.Session, values: Any) -> list[Any]:
        async with session.stream(self.y, on_error="yield") as stream:
            await stream.send({self.x: values})
            await stream.close()
            return [out async for out in stream]

    async def by_map(self, session: ax.Session, values: Any) -> list[Any]:
        async def items() -> AsyncIterator[Any]:
            yield {"x:0": values}

        return [out async for out in session.map(self.y, items(), on_error="yield")]

    async def by_map_of_a_list(self, session: ax.Session, values: Any) -> list[Any]:
        return [out async for out in session.map(self.y, [{"x:0": values}], on_error="yield")]

    async def by_map_behind_others(self, session: ax.Session, values: Any) -> list[Any]:
        items = [{"x:0": [1.0]}, {"x:0": [2.0]}, {"x:0": values}, {"x:0": [3.0]}]
        found = [out async for out in session.map(self.y, items, on_error="yield", window=2)]
        assert [*found[:2], *found[3:]] == [1, 2, 3]
        return found[2:3]

    async def by_source(self, session: ax.Session, values: Any) -> list[Any]:
        async def given() -> AsyncIterator[Any]:
            yield values

        with self.graph:
            x = ax.source(given, ax.float32, [None])
            y = ax.reduce_sum(x)
        async with session.stream(y, on_error="yield") as stream:
            return [out async for out in stream]


WAYS = [Sum.by_send, Sum.by_map, Sum.by_map_of_a_list, Sum.by_map_behind_others, Sum.by_source]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_others_get_their_turns(way: Callable[..., Any]) -> None:
    summed = Sum()
    async with ax.Session(summed.graph) as session:
        await way(summed, session, [1.0])
        few, _ = await turns_during(way(summed, session, [1.0]))
        many, sums = await turns_during(way(summed, session, MANY))
        assert sums == [len(MANY)]
        assert many >= few + 2 * 5


@pytest.mark.parametrize("way", WAYS[:4], ids=lambda way: way.__name__)
async def test_what_cannot_be_fed_is_told_where_the_result_is_taken(way: Callable[..., Any]) -> None:
    summed = Sum()
    async with ax.Session(summed.graph) as session:
        (error,) = await way(summed, session, [[1.0]] * (MAX_ITEMS + 1))
    number = 2 if way is Sum.by_map_behind_others else 0
    assert error.message.startswith(f"item {number}: cannot feed a value of shape [8193, 1] for 'x:0'")


async def test_large_feed_under_a_key_that_means_nothing() -> None:
    summed = Sum()
    async with ax.Session(summed.graph) as session, session.stream(summed.y) as stream:
        with pytest.raises(ax.errors.InvalidArgumentError, match="no operation 'z'"):
            await stream.send({"z:0": MANY})


class Counted:
    """Items for a Sum, every other one large, and how many of them have been drawn."""

    def __init__(self, summed: Sum, number: int, fails_at: int | None = None) -> None:
        self._summed = summed
        self._number = number
        self._fails_at = fails_at
        self.drawn = 0

    def __iter__(self) -> Iterator[dict[ax.Tensor, Any]]:
        for i in range(self._number):
            if i == self._fails_at:
                raise OSError("the source is gone")
            self.drawn += 1
            yield {self._summed.x: [float(i)] + ([0.0] * MAX_ITEMS if i % 2 else [])}


@pytest.mark.parametrize("ordered", [True, False])
async def test_no_more_are_drawn_than_the_window_has_room_for(ordered: bool) -> None:
    summed = Sum()
    items = Counted(summed, 9)
    async with ax.Session(summed.graph) as session:
        found = []
        async with session.map(summed.y, items, window=3, ordered=ordered) as outputs:
            async for out in outputs:
                found.append(int(out))
                await asyncio.sleep(0.001)
                assert items.drawn <= len(found) + 3
    assert (found if ordered else sorted(found)) == [*range(9)]


@pytest.mark.parametrize("fails_at", [0, 1, 2, 3, 4])
async def test_what_the_source_raises_comes_behind_the_items_before(fails_at: int) -> None:
    summed = Sum()
    async with ax.Session(summed.graph) as session:
        outputs = session.map(summed.y, Counted(summed, 9, fails_at), window=3)
        assert [int(await anext(outputs)) for _ in range(fails_at)] == [*range(fails_at)]
        with pytest.raises(OSError, match="the source is gone"):
            await anext(outputs)


@pytest.mark.parametrize("taken", range(4))
async def test_a_map_that_is_left_while_an_item_is_converted(taken: int) -> None:
    summed = Sum()
    items = Counted(summed, 100)
    async with ax.Session(summed.graph) as session:
        async with session.map(summed.y, items, window=3) as outputs:
            for i in range(taken):
                assert await anext(outputs) == i
        drawn = items.drawn
        await asyncio.sleep(0)
        assert (items.drawn, session.statistics().running_steps) == (drawn, 0)


def test_what_takes_long() -> None:
    """Neither an array of the dtype already that nobody can change, nor what can never be large."""
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None], name="x")
        small = ax.placeholder(ax.float32, [10], name="small")
        thing = ax.placeholder(ax.object, [], name="thing")
    assert large_items(graph, {small: [1.0] * 10, thing: MANY}) is None
    is_large = large_items(graph, {x: [1.0], small: [], thing: None})
    assert is_large is not None
    floats = np.zeros(MAX_BYTES, np.float32)
    frozen = floats.copy()
    frozen.flags.writeable = False
    found = [is_large({x: each, thing: MANY}) for each in (MANY, floats, floats.astype(np.float64), [1.0], frozen)]
    assert found == [True, True, True, False, False]
    assert not is_large("no feeds")
    assert not is_large({thing: MANY})
