"""Streams: what is drawn ahead, what a source's own cancellation is, and what senders hear of a failure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import asyncexec as ax
from tests.running import settle
from tests.session.stream_graphs import Stages

pytestmark = pytest.mark.virtual_clock


async def test_map_draws_only_what_there_is_room_for_from_an_async_iterable() -> None:
    stages, drawn = Stages(), []

    async def items() -> AsyncIterator[dict[ax.Tensor, int]]:
        for x in range(100):
            drawn.append(x)
            yield {stages.x: x}

    async with ax.Session(stages.graph) as session, session.map(stages.y, items(), window=4) as outputs:
        assert await anext(outputs) == 1
        await asyncio.sleep(100)
        assert len(drawn) == 5


class Cancelled:
    """A source that awaits a task which somebody has cancelled."""

    def __init__(self, x: ax.Tensor) -> None:
        self._x = x
        self._number = 0

    def __next__(self) -> Any:
        self._number += 1
        if self._number > 2:
            raise asyncio.CancelledError
        return {self._x: self._number}


class PlainCancelled(Cancelled):
    def __iter__(self) -> Iterator[Any]:
        return self


class AsyncCancelled(Cancelled):
    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        return self.__next__()


@pytest.mark.parametrize("kind", [PlainCancelled, AsyncCancelled])
async def test_a_cancellation_that_a_source_raises_is_no_cancellation_of_the_consumer(kind: Any) -> None:
    stages = Stages()
    async with ax.Session(stages.graph) as session, session.map(stages.y, kind(stages.x)) as outputs:
        assert [await anext(outputs) for _ in range(2)] == [3, 5]
        with pytest.raises(ax.errors.CancelledError, match="the source of the stream was cancelled"):
            await anext(outputs)


async def test_send_after_a_failure_that_has_been_taken() -> None:
    """Whether the consumer has seen it or not, the sender hears why the stream has ended."""
    stages = Stages(failing={0})
    async with ax.Session(stages.graph) as session, session.stream(stages.y) as stream:
        await stream.send({stages.x: 0})
        with pytest.raises(ax.errors.InvalidArgumentError, match="item 0"):
            await anext(stream)
        await settle()
        for _ in range(2):
            with pytest.raises(ax.errors.AbortedError, match="the stream has ended: item 0: ValueError: 0 is bad"):
                await stream.send({stages.x: 1})
