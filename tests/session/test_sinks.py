"""Stream.run: graphs that are run for what their ops do, from sources to sinks, with nobody taking results."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest

import asyncexec as ax
from tests.running import settle, started

pytestmark = pytest.mark.virtual_clock


class Store:
    """Where a sink writes; it takes its time, and refuses what is *bad*."""

    def __init__(self, *bad: int) -> None:
        self.bad = bad
        self.values: list[int] = []
        self.under_way = 0

    async def put(self, value: int) -> None:
        self.under_way += 1
        try:
            await asyncio.sleep(1)
            if value in self.bad:
                raise ValueError(f"{value} is refused")
            self.values.append(int(value))
        finally:
            self.under_way -= 1


class Feed:
    """Numbers from 0 on, one in a tenth of a second; it notes when it is left."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.drawn = 0
        self.has_ended = False

    async def __aiter__(self) -> AsyncGenerator[int, None]:
        try:
            for number in range(self.count):
                await asyncio.sleep(0.1)
                self.drawn += 1
                yield number
        finally:
            await asyncio.sleep(0.1)
            self.has_ended = True


def graph_of(feed: Any, store: Store) -> tuple[ax.Graph, ax.Operation]:
    with ax.Graph() as graph:
        sink = ax.op(store.put)(ax.source(feed, ax.int64, [], name="feed"))
    return graph, getattr(sink, "op", sink)


async def test_run_lasts_until_the_source_ends() -> None:
    feed, store = Feed(100), Store()
    graph, sink = graph_of(feed, store)
    async with ax.Session(graph) as session:
        assert await session.stream(sink, window=8).run() == 100
        assert store.values == [*range(100)]
        assert await session.stream(sink, ordered=False).run() == 100
        assert len(store.values) == 200


async def test_sinks_give_none() -> None:
    graph, sink = graph_of(range(3), Store())
    async with ax.Session(graph) as session, session.stream([sink, "feed:0"]) as stream:
        assert [out async for out in stream] == [[None, 0], [None, 1], [None, 2]]


async def test_days_of_ticks() -> None:
    counts: list[int] = []

    @ax.op
    async def count(recent: Any) -> None:
        counts.append(len(recent))

    async def three_days() -> AsyncIterator[int]:
        async for tick in ax.ticks(60.0):
            if tick == 3 * 24 * 60:
                return
            yield tick

    with ax.Graph() as graph:
        count(ax.window(ax.source(three_days, ax.int64, []), seconds=3600.0), name="count")
    start = asyncio.get_running_loop().time()
    async with ax.Session(graph) as session:
        assert await session.stream("count").run() == 4320
    assert counts == [*range(1, 61), *[60] * 4260]
    assert asyncio.get_running_loop().time() - start == 3 * 24 * 3600


async def test_first_failure_ends_the_run() -> None:
    feed, store = Feed(100), Store(5)
    graph, sink = graph_of(feed, store)
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.InvalidArgumentError, match="item 5: ValueError: 5 is refused"):
            await session.stream(sink).run()
    assert store.values == [0, 1, 2, 3, 4]
    assert store.under_way == 0
    assert feed.has_ended


async def test_failures_are_told_where_the_stream_goes_on() -> None:
    store, failures = Store(2, 5), []
    graph, sink = graph_of(range(7), store)
    async with ax.Session(graph) as session:
        assert await session.stream(sink, on_error="yield").run(lambda error: failures.append(error.message)) == 5
        assert failures == ["item 2: ValueError: 2 is refused", "item 5: ValueError: 5 is refused"]

        def give_up(error: ax.errors.OpError) -> None:
            raise error

        with pytest.raises(ax.errors.InvalidArgumentError, match="item 2"):
            await session.stream(sink, on_error="yield").run(give_up)
        assert store.under_way == 0
        with pytest.raises(ax.errors.InvalidArgumentError, match="on_failure"):
            await session.stream(sink, on_error="yield").run()
        with pytest.raises(ax.errors.InvalidArgumentError, match="on_failure"):
            await session.stream(sink).run(give_up)


async def test_close_ends_a_run_with_what_is_under_way() -> None:
    feed, store = Feed(1000), Store()
    graph, sink = graph_of(feed, store)
    async with ax.Session(graph) as session, session.stream(sink, window=8) as stream:
        running = asyncio.create_task(stream.run())
        await asyncio.sleep(10.05)
        await stream.close()
        assert store.under_way == 0
        assert await running == len(store.values)
    assert feed.drawn - len(store.values) in (0, 1)  # one may have been drawn that there was no room for
    assert feed.has_ended


async def test_cancelled_run() -> None:
    feed, store = Feed(1000), Store()
    graph, sink = graph_of(feed, store)
    async with ax.Session(graph) as session:
        running = asyncio.create_task(session.stream(sink, window=8).run())
        await asyncio.sleep(10.05)
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()
        assert store.under_way == 0
        assert feed.has_ended
        assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_run_of_what_others_send() -> None:
    store = Store()
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [], name="x")
        ax.op(store.put)(x, name="sink")
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.FailedPreconditionError, match="no sources"):
            await session.stream("sink").run()
        async with session.stream("sink", window=2) as stream:
            running = await started(stream.run())
            for number in range(5):
                await stream.send({x: number})
            await stream.close()
            assert await running == 5
    assert store.values == [*range(5)]


@pytest.mark.parametrize("window", [1, 3])
async def test_sources_are_closed_wherever_the_stream_ends(window: int) -> None:
    """Also while one waits for room, and the others have given their value already."""
    feeds = [Feed(1000), Feed(1000)]
    with ax.Graph() as graph:
        first, second = (ax.source(feed, ax.int64, []) for feed in feeds)
        both = first + second
    async with ax.Session(graph) as session:
        async with session.stream(both, window=window) as stream:
            assert await anext(stream) == 0
            await asyncio.sleep(100)
        assert [feed.has_ended for feed in feeds] == [True, True]


async def test_all_sources_are_closed_when_the_first_ends() -> None:
    feeds = [Feed(3), Feed(1000)]
    with ax.Graph() as graph:
        first, second = (ax.source(feed, ax.int64, []) for feed in feeds)
        both = first + second
    async with ax.Session(graph) as session:
        assert await session.stream(both).run() == 3
        assert [feed.has_ended for feed in feeds] == [True, True]


async def test_map_closes_what_it_has_opened_and_nothing_else() -> None:
    feed = Feed(1000)
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [], name="x")
        y = x + 1

    class Items:
        async def __aiter__(self) -> AsyncIterator[dict[ax.Tensor, int]]:
            async for number in given:
                yield {x: number}

    given = feed.__aiter__()
    async with ax.Session(graph) as session:
        async with session.map(y, Items(), window=2) as values:
            assert await anext(values) == 1
            await asyncio.sleep(100)
        assert not feed.has_ended  # it was given from outside
        assert await anext(given) > 1
    await given.aclose()
    assert feed.has_ended


async def test_windows_in_a_stream_that_is_left() -> None:
    feed = Feed(1000)
    with ax.Graph() as graph:
        total = ax.reduce_sum(ax.source(ax.windows(feed, 2), ax.int64, [None]))
    async with ax.Session(graph) as session:
        async with session.stream(total, window=1) as stream:
            assert await anext(stream) == 1
            await asyncio.sleep(100)
        assert feed.has_ended
        assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_error_of_a_source_names_it() -> None:
    async def broken() -> AsyncIterator[int]:
        yield 1
        raise OSError("the feed is gone")

    graph, sink = graph_of(broken, Store())
    async with ax.Session(graph) as session:
        with pytest.raises(OSError, match="gone") as caught:
            await session.stream(sink).run()
    assert caught.value.__notes__ == ["raised by what source 'feed' draws from"]
    await settle()
