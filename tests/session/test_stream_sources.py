"""ax.windows gathers values, ax.ticks counts time: what sources of streams are made of."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import AsyncIterator
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import asyncexec as ax
from asyncexec.testing import VirtualClockLoop
from tests.running import settle, started

virtual = pytest.mark.virtual_clock


def now() -> float:
    return asyncio.get_running_loop().time()


async def after(*gaps: float) -> AsyncIterator[float]:
    """The time after each of *gaps*."""
    for gap in gaps:
        await asyncio.sleep(gap)
        yield now()


async def all_of(values: Any) -> list[Any]:
    return [value async for value in values]


# Windows.


async def one_by_one(values: Any) -> AsyncIterator[Any]:
    for value in values:
        yield value


@pytest.mark.parametrize(
    "give", [list, iter, one_by_one, lambda values: lambda: values], ids=["list", "iterator", "async", "function"]
)
@pytest.mark.parametrize(
    ("size", "windows"), [(3, [[0, 1, 2], [3, 4, 5], [6]]), (7, [[*range(7)]]), (50, [[*range(7)]])]
)
async def test_windows_of_a_size(give: Any, size: int, windows: list[list[int]]) -> None:
    assert await all_of(ax.windows(give(range(7)), size)) == windows


async def test_no_values_make_no_window() -> None:
    assert await all_of(ax.windows([], 3)) == []
    assert await all_of(ax.windows([], seconds=3.0)) == []
    assert await all_of(ax.windows(range(6), 3)) == [[0, 1, 2], [3, 4, 5]]


@virtual
async def test_window_ends_after_its_seconds_or_at_its_size() -> None:
    found = [(now(), window) async for window in ax.windows(after(1, 1, 0.5, 1, 0, 0, 5), 3, seconds=2)]
    # One begins at 1 and has three at 2.5; one begins at 3.5, and has three at once; one ends with the values.
    assert found == [(2.5, [1, 2, 2.5]), (3.5, [3.5, 3.5, 3.5]), (8.5, [8.5])]
    start = now()
    lengths = [(now() - start, len(window)) async for window in ax.windows(after(1, 1, 0.5, 1, 0, 0, 5), seconds=2)]
    assert lengths == [(3, 3), (5.5, 3), (8.5, 1)]


GAPS = st.lists(st.integers(0, 10).map(lambda n: n / 4), max_size=20)


@settings(max_examples=200, deadline=None)
@given(GAPS, st.integers(1, 5), st.integers(1, 8).map(lambda n: n / 4))
def test_every_value_is_in_one_window_that_is_as_long_as_it_may_be(
    gaps: list[float], size: int, seconds: float
) -> None:
    async def main() -> list[tuple[float, list[float]]]:
        return [(now(), window) async for window in ax.windows(after(*gaps), size, seconds)]

    with asyncio.Runner(loop_factory=VirtualClockLoop) as runner:
        found = runner.run(main())
    times = np.cumsum([0.0, *gaps])[1:].tolist()
    windows = [window for _, window in found]
    assert [time for window in windows for time in window] == times
    assert all(1 <= len(window) <= size and window[-1] <= window[0] + seconds for window in windows)
    for (time, window), behind in itertools.zip_longest(found, windows[1:]):
        if len(window) == size or (behind is None and times[-1] < window[0] + seconds):
            assert time == window[-1]
        else:
            assert time == window[0] + seconds
            assert behind is None or behind[0] >= time


@virtual
@pytest.mark.parametrize("timer_is_first", [True, False])
async def test_value_that_comes_in_the_turn_in_which_the_window_ends(timer_is_first: bool) -> None:
    loop, queue = asyncio.get_running_loop(), asyncio.Queue[int]()
    windows = aiter(ax.windows(queue, seconds=1.0))
    taking = await started(anext(windows))
    if not timer_is_first:
        loop.call_at(now() + 1.0, queue.put_nowait, 1)
    queue.put_nowait(0)
    await settle()  # the window has its timer now
    if timer_is_first:
        loop.call_at(now() + 1.0, queue.put_nowait, 1)
    first = await taking
    assert first in ([0], [0, 1])
    queue.put_nowait(2)
    rest = await anext(windows)
    assert first + rest == [0, 1, 2]
    await windows.aclose()


@virtual
async def test_nothing_is_drawn_while_a_window_waits() -> None:
    drawn: list[int] = []

    async def numbers() -> AsyncIterator[int]:
        for number in range(10):
            await asyncio.sleep(1)
            drawn.append(number)
            yield number

    windows = aiter(ax.windows(numbers, 2, seconds=1.5))
    assert await anext(windows) == [0, 1]
    await asyncio.sleep(100)
    assert drawn == [0, 1, 2, 3, 4]
    assert await anext(windows) == [2, 3]
    await asyncio.sleep(100)
    assert await anext(windows) == [4, 5]
    await windows.aclose()


async def test_error_comes_after_the_windows_before_it() -> None:
    async def broken() -> AsyncIterator[int]:
        for number in range(5):
            yield number
        raise OSError("the feed is gone")

    windows = aiter(ax.windows(broken, 2))
    assert [await anext(windows) for _ in range(3)] == [[0, 1], [2, 3], [4]]
    with pytest.raises(OSError, match="gone"):
        await anext(windows)


@pytest.mark.parametrize("error", [asyncio.CancelledError, KeyboardInterrupt, ax.errors.AbortedError, MemoryError])
async def test_any_error_goes_to_who_takes_the_windows(error: type[BaseException]) -> None:
    async def broken() -> AsyncIterator[int]:
        yield 1
        raise error("no")

    windows = aiter(ax.windows(broken, 2))
    assert await anext(windows) == [1]
    with pytest.raises(error):
        await anext(windows)


class Feed:
    """Numbers without end, or as many as a queue is given; it notes when it is left."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[int] = asyncio.Queue()
        self.has_ended = False

    async def __aiter__(self) -> AsyncIterator[int]:
        try:
            while True:
                yield await self.queue.get()
        finally:
            await asyncio.sleep(0)
            self.has_ended = True


async def test_windows_that_are_left_leave_what_they_draw_from() -> None:
    feed = Feed()
    windows = aiter(ax.windows(feed, 2))
    for number in range(3):
        feed.queue.put_nowait(number)
    assert await anext(windows) == [0, 1]
    await windows.aclose()
    assert feed.has_ended
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("is_full", [False, True])
async def test_cancelled_while_a_window_is_waited_for(is_full: bool) -> None:
    feed = Feed()

    async def take() -> None:
        async for _ in ax.windows(feed, 2):
            await asyncio.Event().wait()

    taking = await started(take())
    for number in range(7 if is_full else 1):
        feed.queue.put_nowait(number)
    await settle()
    taking.cancel()
    await asyncio.wait([taking])
    assert taking.cancelled()
    await settle(10)  # where it is left at a yield, the loop closes an async generator
    assert feed.has_ended
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_source_that_never_waits_holds_nobody_up() -> None:
    turns = 0

    async def tick() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    ticking = asyncio.create_task(tick())
    windows = aiter(ax.windows(itertools.count(), seconds=3600))
    assert await anext(windows) == [*range(2**16)]
    await windows.aclose()
    ticking.cancel()
    await asyncio.wait([ticking])
    assert turns > 2


@virtual
async def test_source_of_windows() -> None:
    with ax.Graph() as graph:
        x = ax.source(ax.windows(lambda: after(*[0.25] * 7), 3, seconds=10.0), ax.float32, [None], name="x")
        fetches = [ax.size(x), ax.reduce_max(x) - ax.reduce_min(x)]
    async with ax.Session(graph) as session:
        for _ in range(2):  # each stream draws anew
            async with session.stream(fetches) as stream:
                assert [tuple(map(float, out)) async for out in stream] == [(3, 0.5), (3, 0.5), (1, 0)]


async def test_value_of_a_window_that_does_not_fit_names_item_and_source() -> None:
    with ax.Graph() as graph:
        values = ax.windows([1.0, 2.0, 3.0, [4.0], 5.0, 6.0], 2)
        total = ax.reduce_sum(ax.source(values, ax.float32, [None], name="readings"))
    async with ax.Session(graph) as session, session.stream(total, on_error="yield") as stream:
        found = [out async for out in stream]
    assert [found[0], found[2]] == [3, 11]
    assert isinstance(found[1], ax.errors.InvalidArgumentError)
    assert found[1].message.startswith("item 1: ")
    assert "readings" in str(found[1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "a size, or a number of seconds"),
        ({"size": 0}, "not 0"),
        ({"size": 1.5}, "not 1.5"),
        ({"seconds": 0}, "not 0"),
        ({"seconds": math.nan}, "not nan"),
        ({"size": 3, "seconds": -1}, "not -1"),
    ],
    ids=str,
)
def test_what_are_no_windows(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ax.errors.InvalidArgumentError, match=message):
        ax.windows([1], **arguments)


def test_nothing_to_draw_from() -> None:
    with pytest.raises(ax.errors.InvalidTypeError, match=r"a window takes an iterable, .* not 7"):
        ax.windows(7, 3)  # type: ignore[arg-type]
    assert repr(ax.windows([], 3, 2.5)) == "<ax.windows size=3, seconds=2.5>"
    assert repr(ax.ticks(2)) == "<ax.ticks seconds=2>"


# Ticks.


@virtual
async def test_ticks_do_not_drift() -> None:
    start, found = now(), []
    async for tick in ax.ticks(0.1):
        found.append((tick, now() - start))
        await asyncio.sleep(0.03)
        if tick == 99:
            break
    assert [tick for tick, _ in found] == [*range(100)]
    assert all(time == pytest.approx(tick * 0.1, abs=1e-9) for tick, time in found)


@virtual
async def test_ticks_that_were_missed_are_skipped() -> None:
    start, found = now(), []
    async for tick in ax.ticks(1.0):
        found.append((tick, now() - start))
        await asyncio.sleep({1: 3.5, 4: 2.0}.get(tick, 0))
        if tick == 8:
            break
    # That of 4 comes at 4.5, and that of 6 where it is due.
    assert found == [(0, 0), (1, 1), (4, 4.5), (6, 6.5), (7, 7), (8, 8)]


async def test_ticks_that_are_always_due_give_others_their_turn() -> None:
    others = await started(asyncio.sleep(0))
    async for _ in ax.ticks(1e-6):
        if others.done():
            break


@virtual
async def test_stream_of_ticks() -> None:
    with ax.Graph() as graph:
        tick = ax.source(ax.ticks(60.0), ax.int64, [])
        recent = ax.window(tick, seconds=150.0)
    async with ax.Session(graph) as session:
        for _ in range(2):
            start = now()
            async with session.stream(recent) as stream:
                found = [(await anext(stream)).tolist() for _ in range(4)]
            assert found == [[0], [0, 1], [0, 1, 2], [1, 2, 3]]
            assert now() - start == 180.0


@pytest.mark.parametrize("seconds", [0, -1, math.inf, "1", None, True])
def test_what_are_no_ticks(seconds: Any) -> None:
    with pytest.raises(ax.errors.InvalidArgumentError, match="the seconds between ticks are a number"):
        ax.ticks(seconds)
