"""Items of streams with large feeds: they are converted in slices, before they are queued."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

import asyncexec as ax
from asyncexec.session.large_feeds import MAX_ITEMS
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

    async def by_source(self, session: ax.Session, values: Any) -> list[Any]:
        async def given() -> AsyncIterator[Any]:
            yield values

        with self.graph:
            x = ax.source(given, ax.float32, [None])
            y = ax.reduce_sum(x)
        async with session.stream(y, on_error="yield") as stream:
            return [out async for out in stream]


WAYS = [Sum.by_send, Sum.by_map, Sum.by_source]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_others_get_their_turns(way: Callable[..., Any]) -> None:
    summed = Sum()
    async with ax.Session(summed.graph) as session:
        await way(summed, session, [1.0])
        few, _ = await turns_during(way(summed, session, [1.0]))
        many, sums = await turns_during(way(summed, session, MANY))
        assert sums == [len(MANY)]
        assert many >= few + 2 * 5


@pytest.mark.parametrize("way", WAYS[:2], ids=lambda way: way.__name__)
async def test_what_cannot_be_fed_is_told_where_the_result_is_taken(way: Callable[..., Any]) -> None:
    summed = Sum()
    async with ax.Session(summed.graph) as session:
        (error,) = await way(summed, session, [[1.0]] * (MAX_ITEMS + 1))
    assert error.message.startswith("item 0: cannot feed a value of shape [8193, 1] for 'x:0'")


async def test_large_feed_under_a_key_that_means_nothing() -> None:
    summed = Sum()
    async with ax.Session(summed.graph) as session, session.stream(summed.y) as stream:
        with pytest.raises(ax.errors.InvalidArgumentError, match="no operation 'z'"):
            await stream.send({"z:0": MANY})
