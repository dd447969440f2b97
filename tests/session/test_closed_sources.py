"""What a stream has drawn from a source when it is closed is not lost: closed at every turn of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import copy_context
from typing import Any, Final, TypeAlias

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.session.large_feeds import MAX_ITEMS
from tests.fake_time import in_single_steps
from tests.running import settle
from tests.session.injection import before_callbacks

COUNT: Final = 4


class Source:
    """Values, and those of them that somebody has drawn."""

    def __init__(self, size: int) -> None:
        self.drawn: list[int] = []
        self._size = size

    def __iter__(self) -> Iterator[Any]:
        for number in range(COUNT):
            self.drawn.append(number)
            yield [number] * self._size

    async def one_by_one(self) -> AsyncIterator[Any]:
        for values in self:
            yield values
            await settle(1)


def by_source(source: Source, session: ax.Session, x: Any) -> Any:
    with session.graph:
        drawn = ax.source(source.one_by_one, ax.int64, [None])
        taken = ax.reduce_max(drawn)
    return session.stream(taken, window=2)


def by_plain_source(source: Source, session: ax.Session, x: Any) -> Any:
    with session.graph:
        taken = ax.reduce_max(ax.source(source, ax.int64, [None]))
    return session.stream(taken, window=2)


def by_map(source: Source, session: ax.Session, x: Any) -> Any:
    return session.map(ax.reduce_max(x), ({x: values} for values in source), window=2)


def by_async_map(source: Source, session: ax.Session, x: Any) -> Any:
    async def items() -> AsyncIterator[Any]:
        async for values in source.one_by_one():
            yield {x: values}

    return session.map(ax.reduce_max(x), items(), window=2)


STREAMS: Final = (by_source, by_plain_source)
MAPS: Final = (by_map, by_async_map)
Way: TypeAlias = Callable[[Source, ax.Session, Any], Any]


@pytest.mark.one_of("loop")
@pytest.mark.parametrize("size", [1, MAX_ITEMS + 1], ids=["small", "large"])
@pytest.mark.parametrize("way", STREAMS)
async def test_a_stream_that_is_closed(way: Way, size: int) -> None:
    point = 0
    while await _close_before(point, way, size):
        point += 1
    assert point > 10


@pytest.mark.one_of("loop")
@pytest.mark.parametrize("size", [1, MAX_ITEMS + 1], ids=["small", "large"])
@pytest.mark.parametrize("way", MAPS)
async def test_a_map_whose_session_is_closed(way: Way, size: int) -> None:
    """It has time to end, once its graph has been built."""
    point = 0
    while await _close_before(point, way, size):
        point += 1
    assert point > 10


async def _close_before(point: int, way: Way, size: int) -> bool:
    """Close before the callback of that number; whether something was under way."""
    source, found, closing = Source(size), list[int](), list[asyncio.Task[None]]()
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [None])
        session = ax.Session(graph, **in_single_steps(ax.SessionConfig(drain_timeout_s=60)))
        outputs = way(source, session, x)

    async def take_all() -> None:
        async for out in outputs:
            found.append(int(out))

    loop, context = asyncio.get_running_loop(), copy_context()  # not that of the callback, which may be the stream's

    def close() -> None:
        closing.append(loop.create_task((outputs if way in STREAMS else session).close(), context=context))

    async with session, outputs:
        with before_callbacks({point: close}):
            (outcome,) = await asyncio.gather(take_all(), return_exceptions=True)
        was_in_time = bool(closing)
        await asyncio.gather(*closing)
    if way in STREAMS:
        assert outcome is None, outcome
    else:
        assert outcome is None or (was_in_time and isinstance(outcome, ax.errors.CancelledError)), outcome
    if not (way in MAPS and outcome is not None and source.drawn == [0]):
        assert found == source.drawn, point
    return was_in_time


async def test_a_queue_keeps_what_no_stream_has_drawn() -> None:
    for point in range(60):
        queue: asyncio.Queue[Any] = asyncio.Queue()
        for number in range(COUNT):
            queue.put_nowait(np.int64(number))
        with ax.Graph() as graph:
            x = ax.source(queue, ax.int64, [])
        found, closing = list[int](), list[asyncio.Task[None]]()
        async with ax.Session(graph, **in_single_steps()) as session, session.stream(x + 0 * x, window=2) as stream:

            async def take_all(stream: Any = stream, found: list[int] = found) -> None:
                async for out in stream:
                    found.append(int(out))

            close = lambda closing=closing, stream=stream: closing.append(asyncio.ensure_future(stream.close()))  # noqa: E731
            with before_callbacks({point: close}):
                taking = asyncio.ensure_future(take_all())
                await settle(80)
                await asyncio.gather(*closing)
            await stream.close()
            await taking
        assert [*found, *(int(queue.get_nowait()) for _ in range(queue.qsize()))] == list(range(COUNT)), point
