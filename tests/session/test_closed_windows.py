"""What windows hold when their stream is closed: it is sent as the last items."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import asyncexec as ax
from asyncexec.testing.virtual_clock import VirtualClockLoop
from tests.running import settle

pytestmark = pytest.mark.virtual_clock


def summed(values: Any, **options: Any) -> tuple[ax.Graph, ax.Tensor]:
    """The windows of *values*, each doubled."""
    with ax.Graph() as graph:
        return graph, ax.source(ax.windows(values, **options), ax.float64, [None]) * 2.0


def flat(results: list[Any]) -> list[float]:
    return [float(value) / 2 for result in results for value in result]


def filled(count: int) -> asyncio.Queue[float]:
    queue: asyncio.Queue[float] = asyncio.Queue()
    for number in range(count):
        queue.put_nowait(float(number))
    return queue


async def test_window_that_is_not_full() -> None:
    graph, y = summed(filled(51), size=100)
    async with ax.Session(graph) as session, session.stream(y) as stream:
        await asyncio.sleep(1)
        await stream.close()
        assert flat([out async for out in stream]) == list(range(51))


async def test_last_of_many_windows() -> None:
    graph, y = summed(filled(25), size=10)
    async with ax.Session(graph) as session, session.stream(y) as stream:
        first = [await anext(stream), await anext(stream)]
        await asyncio.sleep(1)  # on a slow machine the loop gets a turn while the third is gathered
        await stream.close()
        rest = [out async for out in stream]
    assert [len(out) for out in [*first, *rest]] == [10, 10, 5]
    assert flat([*first, *rest]) == list(range(25))


async def test_windows_that_wait_because_nobody_takes_results() -> None:
    graph, y = summed(filled(50), size=2)
    async with ax.Session(graph) as session, session.stream(y, window=1) as stream:
        await settle(20)
        await stream.close()
        results = [out async for out in stream]
    assert flat(results) == list(range(len(flat(results))))  # nothing that was drawn is lost, and in order
    assert len(flat(results)) == 5  # one is sent, one is full, and one value waits for the next


async def test_nothing_is_held() -> None:
    graph, y = summed(filled(20), size=10)
    async with ax.Session(graph) as session, session.stream(y) as stream:
        await asyncio.sleep(1)
        await stream.close()
        assert [len(out) async for out in stream] == [10, 10]


async def test_several_sources_give_what_all_have() -> None:
    with ax.Graph() as graph:
        values = ax.source(ax.windows(filled(7), size=5), ax.float64, [None])
        others = ax.source(ax.windows(filled(6), size=3), ax.float64, [None])
        sizes = ax.stack([ax.size(values), ax.size(others)])
    async with ax.Session(graph) as session, session.stream(sizes) as stream:
        await asyncio.sleep(1)
        await stream.close()
        assert [out.tolist() async for out in stream] == [[5, 3], [2, 3]]
    with ax.Graph() as graph:
        values = ax.source(ax.windows(filled(7), size=5), ax.float64, [None])
        tick = ax.source(ax.ticks(10.0), ax.int64, [])
        pair = ax.stack([ax.size(values, ax.int64), tick])
    async with ax.Session(graph) as session, session.stream(pair) as stream:
        await asyncio.sleep(1)
        await stream.close()
        assert [out.tolist() async for out in stream] == [[5, 0]]  # there is no tick for the other


async def test_leaving_the_stream_drops_them() -> None:
    graph, y = summed(filled(5), size=10)
    async with ax.Session(graph) as session:
        async with session.stream(y) as stream:
            await settle()
        with pytest.raises(ax.errors.CancelledError, match="the stream has ended"):
            await anext(stream)
        assert session.statistics().completed_steps == 0


async def test_session_that_drains() -> None:
    graph, y = summed(filled(5), size=10)
    session = ax.Session(graph, ax.SessionConfig(drain_timeout_s=5))
    stream = session.stream(y)
    async with stream:
        await settle()
        closing = asyncio.create_task(session.close())
        assert flat([await anext(stream)]) == list(range(5))
        with pytest.raises(ax.errors.CancelledError):
            await anext(stream)
        await closing


def summed_once_open(values: Any, opened: Callable[[], Awaitable[float]]) -> tuple[ax.Graph, ax.Tensor]:
    """The sum of all windows of *values* so far; the first item opens the stream, which takes as long as *opened*."""
    with ax.Graph() as graph:
        window = ax.source(ax.windows(values, size=2), ax.float64, [None])
        total = ax.stream_state(ax.op(opened, outputs=[ax.float64])(), shape=[])
        return graph, total.update(total.value + ax.reduce_sum(window))


async def test_windows_that_are_held_while_the_first_item_opens_the_stream() -> None:
    may_open = asyncio.Event()

    async def opened() -> float:
        await may_open.wait()
        return 0.0

    queue = filled(9)
    graph, total = summed_once_open(queue, opened)
    async with ax.Session(graph) as session, session.stream(total) as stream:
        await settle(20)
        closing = asyncio.create_task(stream.close())
        await settle()
        may_open.set()
        await closing
        assert queue.qsize() == 4  # one window is sent, one is full, and one value waits for the next
        assert [out async for out in stream] == [0.0 + 1.0, 1.0 + 2.0 + 3.0, 6.0 + 4.0]


async def test_window_that_does_not_fit_is_the_error_of_its_item() -> None:
    with ax.Graph() as graph:
        y = ax.source(ax.windows(filled(5), size=10), ax.float64, [3])
    async with ax.Session(graph) as session, session.stream(y) as stream:
        await settle()
        await stream.close()
        with pytest.raises(ax.errors.OpError, match=r"shape"):
            await anext(stream)


async def test_values_that_their_source_still_draws_are_asked_for_no_more() -> None:
    ended: list[bool] = []

    async def readings() -> AsyncIterator[float]:
        try:
            for number in range(1_000):
                await asyncio.sleep(1)
                yield float(number)
        finally:
            ended.append(True)

    graph, y = summed(readings, size=100)
    async with ax.Session(graph) as session, session.stream(y) as stream:
        await asyncio.sleep(3.5)
        await stream.close()
        assert ended == [True]
        assert flat([out async for out in stream]) == [0.0, 1.0, 2.0]


@given(
    st.integers(1, 7),
    st.one_of(st.none(), st.floats(0.1, 3)),
    st.integers(1, 4),
    st.floats(0, 30),
    st.lists(st.floats(0, 2), max_size=25),
    st.booleans(),
)
def test_whatever_is_drawn_comes_out(
    size: int, seconds: float | None, window: int, close_after_s: float, pauses: list[float], takes: bool
) -> None:
    drawn: list[float] = []

    async def readings() -> AsyncIterator[float]:
        for number, pause in enumerate(pauses):
            await asyncio.sleep(pause)
            drawn.append(float(number))
            yield float(number)

    graph, y = summed(readings, size=size, seconds=seconds)

    async def run() -> list[Any]:
        results: list[Any] = []

        async def take(stream: ax.Stream) -> None:
            async for out in stream:
                results.append(out)

        async with ax.Session(graph) as session, session.stream(y, window=window) as stream:
            taker = asyncio.create_task(take(stream)) if takes else None
            await asyncio.sleep(close_after_s)
            await stream.close()
            await (take(stream) if taker is None else taker)
        return results

    with asyncio.Runner(loop_factory=VirtualClockLoop) as runner:
        results = runner.run(run())
    assert flat(results) == drawn
    assert all(0 < len(out) <= size for out in results)
