"""Windows by event time, against a plain model of them; and going on from any place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import asyncexec as ax
from tests.frontend.event_models import (
    Event,
    as_json,
    key_of,
    model_of_sessions,
    model_of_windows,
    stored,
    time_of,
)
from tests.running import settle

pytestmark = pytest.mark.virtual_clock

TIMES = st.one_of(st.integers(-20, 60), st.integers(-40, 120).map(lambda halves: halves / 2))
EVENTS = st.lists(st.tuples(st.sampled_from("abc"), TIMES), max_size=25).map(
    lambda pairs: [Event(key, time, name) for name, (key, time) in enumerate(pairs)]
)
LATENESS = st.sampled_from([0, 0.5, 3, 10, 1000])
KINDS = st.sampled_from([{"size": 10}, {"size": 2.5}, {"size": 10, "every": 5}, {"size": 7, "every": 2}, {"gap": 4}])


def windows_of(events: Any, **options: Any) -> ax.EventWindows:
    return ax.event_windows(events, time=time_of, key=key_of, **options)


async def gather(windows: ax.EventWindows, found: list[Any]) -> None:
    """Let *found* have all windows that come, whatever comes behind them."""
    async for window in windows:
        found.append(window)


def plain(windows: list[ax.Window]) -> list[tuple[Any, ...]]:
    return [(each.key, each.start, each.end, [value[2] for value in each.values]) for each in windows]


def model(events: list[Event], lateness: float, size: float = 0, every: float = 0, gap: float = 0) -> Any:
    if gap:
        return model_of_sessions(events, gap, lateness)
    return model_of_windows(events, size, every or size, lateness)


@settings(max_examples=100)
@given(events=EVENTS, kind=KINDS, lateness=LATENESS)
@example([Event("a", 0, 0), Event("a", 4, 1), Event("a", 3, 2)], {"gap": 4}, 10)  # one that joins two sessions
@example([Event("a", 0, 0), Event("a", 10, 1), Event("a", 9, 2)], {"size": 10}, 0)  # at an end, and late
def test_windows_are_those_of_the_model(events: list[Event], kind: dict[str, float], lateness: float) -> None:
    async def main() -> None:
        late: list[Any] = []
        windows = windows_of(events, lateness=lateness, late=late.append, **kind)
        expected, expected_late = model(events, lateness, **kind)
        assert plain([window async for window in windows]) == expected
        assert [event[2] for event in late] == expected_late
        assert windows.num_late == len(expected_late)

    asyncio.run(main())


@settings(max_examples=40)
@given(events=EVENTS, kind=KINDS, lateness=LATENESS)
def test_every_place_can_be_gone_on_from(events: list[Event], kind: dict[str, float], lateness: float) -> None:
    async def main() -> None:
        windows = windows_of(as_json(events), lateness=lateness, **kind)
        iterator: Any = aiter(windows)
        positions, items = [iterator.position], []
        async for item in iterator:
            items.append(item)
            positions.append(iterator.position)
        for count, position in enumerate(positions):
            if position is not None:
                for place in (position, stored(position)):
                    assert [item async for item in windows.seek(place)] == items[count:]

    asyncio.run(main())


@settings(max_examples=40)
@given(events=EVENTS, kind=KINDS, lateness=LATENESS, counts=st.lists(st.integers(0, 4), max_size=10))
def test_stopping_again_and_again(
    events: list[Event], kind: dict[str, float], lateness: float, counts: list[int]
) -> None:
    async def main() -> None:
        windows = windows_of(as_json(events), lateness=lateness, **kind)
        whole = [item async for item in windows]
        found: list[ax.Window] = []
        position: Any = None
        for count in [*counts, 1000]:
            iterator: Any = aiter(windows if position is None else windows.seek(position))
            for _ in range(count):
                item = await anext(iterator, None)
                if item is None:
                    break
                found.append(item)
            position = stored(iterator.position)
            await iterator.aclose()
        assert found == whole

    asyncio.run(main())


@settings(max_examples=40)
@given(events=EVENTS, kind=KINDS, lateness=LATENESS, count=st.integers(0, 6))
def test_what_is_left_over_is_given_once(
    events: list[Event], kind: dict[str, float], lateness: float, count: int
) -> None:
    async def main() -> None:
        late: list[Any] = []
        windows = windows_of(as_json(events), lateness=lateness, late=late.append, **kind)
        iterator: Any = aiter(windows)
        items = [item for _ in range(count) if (item := await anext(iterator, None)) is not None]
        items += iterator.left_over()
        position = stored(iterator.position)
        await iterator.aclose()
        items += [item async for item in (windows if position is None else windows.seek(position))]
        given = [name for _, _, _, names in plain(items) for name in names]
        if "every" not in kind:
            assert len(given) == len(set(given))
            assert not set(given) & {event[2] for event in late}
        assert set(given) | {event[2] for event in late} == set(range(len(events)))

    asyncio.run(main())


async def test_windows_as_they_close() -> None:
    queue: asyncio.Queue[Event] = asyncio.Queue()
    iterator: Any = aiter(windows_of(queue, size=10, lateness=2))
    waiting = asyncio.ensure_future(anext(iterator))
    for event in [Event("a", 1, 0), Event("b", 9, 1), Event("a", 11, 2)]:
        queue.put_nowait(event)
        await settle()
        assert not waiting.done()
    queue.put_nowait(Event("c", 12, 3))
    assert (await waiting).values == [("a", 1, 0)]
    assert await anext(iterator) == ax.Window("b", 0, 10, [("b", 9, 1)])
    await iterator.aclose()


async def test_without_a_key() -> None:
    windows = ax.event_windows([1, 2, 11], time=lambda value: value, size=10)
    assert [window async for window in windows] == [(None, 0, 10, [1, 2]), (None, 10, 20, [11])]


async def test_floats_that_are_not_exact() -> None:
    times = [i / 10 for i in range(40)]
    windows = [w async for w in ax.event_windows(times, time=float, size=0.1)]
    assert [value for window in windows for value in window.values] == times
    assert all(window.start <= value < window.end for window in windows for value in window.values)
    assert all(before.end <= after.start for before, after in pairwise(windows))


async def test_integers_stay_exact() -> None:
    second, now = 10**9, 1_700_000_000_123_456_789
    events = [now, now + 1, np.int64(now + second)]
    found = [window async for window in ax.event_windows(events, time=lambda time: time, size=second)]
    start = now - now % second
    assert [(window.start, window.end) for window in found] == [
        (start, start + second),
        (start + second, start + 2 * second),
    ]


async def test_late_values_to_a_queue() -> None:
    late: asyncio.Queue[int] = asyncio.Queue()
    windows = ax.event_windows([1, 50, 2, 3], time=lambda value: value, size=10, late=late.put)
    assert [window.values async for window in windows] == [[1], [50]]
    assert [late.get_nowait(), late.get_nowait()] == [2, 3]
    assert windows.num_late == 2


async def test_arrays_may_be_changed_afterwards() -> None:
    async def readings() -> AsyncIterator[Any]:
        array = np.zeros(2)
        for i in range(4):
            array[:] = i
            yield array

    windows = ax.event_windows(readings, time=lambda value: value[0], size=2)
    assert [[value.tolist() for value in w.values] async for w in windows] == [
        [[0.0, 0.0], [1.0, 1.0]],
        [[2.0, 2.0], [3.0, 3.0]],
    ]


async def test_an_error_comes_behind_the_windows_that_were_given() -> None:
    async def readings() -> AsyncIterator[int]:
        yield 1
        yield 11
        raise ConnectionError("the sensor is gone")

    found: list[Any] = []
    windows = ax.event_windows(readings, time=lambda value: value, size=10)
    with pytest.raises(ConnectionError, match="the sensor is gone"):
        await gather(windows, found)
    assert [window.values for window in found] == [[1]]


async def test_idle() -> None:
    loop = asyncio.get_running_loop()

    async def readings() -> AsyncIterator[int]:
        yield 3
        yield 4
        await asyncio.sleep(100)
        yield 21

    windows = ax.event_windows(readings, time=lambda value: value, size=10, idle=5)
    found = [(window.start, window.values, loop.time()) async for window in windows]
    # The watermark is at 4; five seconds without a value later it goes on, and is at 10 after 6 more.
    assert found == [(0, [3, 4], 11.0), (20, [21], 100.0)]


async def test_idle_goes_on_from_window_to_window() -> None:
    loop = asyncio.get_running_loop()

    async def readings() -> AsyncIterator[float]:
        yield 3.0
        yield 5.0
        await asyncio.sleep(8)
        yield 6.0
        yield 13.0
        await asyncio.sleep(1000)

    windows = ax.event_windows(readings, time=lambda value: value, size=4, every=2, idle=2)
    found = [(window.start, window.values, loop.time()) async for window in windows]
    assert found == [
        (0, [3.0], 0.0),  # the watermark is at 5 at first
        (2, [3.0, 5.0], 3.0),
        (4, [5.0], 5.0),
        (6, [6.0], 8.0),
        (10, [13.0], 11.0),
        (12, [13.0], 13.0),
    ]
    assert windows.num_late == 0


async def test_a_slow_consumer_is_not_idle() -> None:
    queue: asyncio.Queue[int] = asyncio.Queue()
    for value in (1, 11, 2, 12, 21):
        queue.put_nowait(value)
    iterator: Any = aiter(ax.event_windows(queue, time=lambda value: value, size=10, lateness=10, idle=1))
    assert (await anext(iterator)).values == [1, 2]  # the value 11 waited for nobody
    await asyncio.sleep(1000)
    queue.put_nowait(13)
    queue.put_nowait(35)
    assert (await anext(iterator)).values == [11, 12, 13]
    await iterator.aclose()


@pytest.mark.parametrize("idle", [None, 5.0])
async def test_cancellation_at_every_point_leaves_nothing_behind(idle: float | None) -> None:
    closed: list[bool] = []

    async def readings() -> AsyncIterator[int]:
        try:
            for value in (1, 12, 23, 34):
                await asyncio.sleep(0)
                yield value
        finally:
            await asyncio.sleep(0)
            closed.append(True)

    async def late(value: int) -> None:
        await asyncio.sleep(0)

    async def take_all() -> list[Any]:
        iterator: Any = aiter(ax.event_windows(readings, time=lambda value: value % 30, size=10, idle=idle, late=late))
        try:
            return [window async for window in iterator]
        finally:
            await iterator.aclose()

    whole = await take_all()
    for turns in range(100):
        closed.clear()
        task = asyncio.ensure_future(take_all())
        await settle(turns)
        if task.done():
            break
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(closed) <= 1
    assert task.result() == whole
    assert turns > 4


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, ax.errors.InvalidArgumentError, "have a size, or sessions a gap"),
        ({"size": 1, "gap": 1}, ax.errors.InvalidArgumentError, "have a size, or sessions a gap"),
        ({"size": 0}, ax.errors.InvalidArgumentError, "size is a finite number above 0, not 0"),
        ({"size": float("nan")}, ax.errors.InvalidArgumentError, "size is a finite number above 0, not nan"),
        ({"size": "1"}, ax.errors.InvalidArgumentError, "size is a finite number above 0, not '1'"),
        ({"size": True}, ax.errors.InvalidArgumentError, "size is a finite number above 0, not True"),
        ({"gap": -1}, ax.errors.InvalidArgumentError, "gap is a finite number above 0, not -1"),
        ({"gap": 1, "every": 1}, ax.errors.InvalidArgumentError, "every is for windows of a size"),
        ({"size": 1, "every": 2}, ax.errors.InvalidArgumentError, "every is at most the size, 1, .* not 2"),
        ({"size": 1e9, "every": 1}, ax.errors.InvalidArgumentError, "at least 1/10000 of it"),
        ({"size": 1, "lateness": -1}, ax.errors.InvalidArgumentError, "lateness is a finite number from 0, not -1"),
        ({"size": 1, "idle": 0}, ax.errors.InvalidArgumentError, "idle are a number from"),
        ({"size": 1, "max_values": 0}, ax.errors.InvalidArgumentError, "max_values is a number of items from 1"),
        ({"size": 1, "time": None}, ax.errors.InvalidTypeError, "time= is a function of a value, not None"),
        ({"size": 1, "key": "user"}, ax.errors.InvalidTypeError, "key= is a function of a value, not 'user'"),
        ({"size": 1, "late": 3}, ax.errors.InvalidTypeError, "late= is a function of a value, not 3"),
        ({"size": 1, "values": 3}, ax.errors.InvalidTypeError, "a window takes an iterable"),
    ],
)
def test_bad_options(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ax.event_windows(**{"values": [], "time": time_of, **options})


@pytest.mark.parametrize(
    ("time", "error", "message"),
    [
        (float("nan"), ax.errors.InvalidArgumentError, r"the time of \('a', nan\) is nan; a time is a finite number"),
        (float("inf"), ax.errors.InvalidArgumentError, "is inf; a time is a finite number"),
        (np.float32("-inf"), ax.errors.InvalidArgumentError, "is -inf; a time is a finite number"),
        (10**30, ax.errors.InvalidArgumentError, "a time is a finite number of 64 bits"),
        (1e300, ax.errors.InvalidArgumentError, "too far from 0"),
        ("noon", ax.errors.InvalidTypeError, "is 'noon', which is no number"),
        (None, ax.errors.InvalidTypeError, "is None, which is no number"),
        (True, ax.errors.InvalidTypeError, "is True, which is no number"),
    ],
)
@pytest.mark.parametrize("kind", [{"size": 1}, {"gap": 1}])
async def test_bad_times(time: Any, error: type[Exception], message: str, kind: dict[str, int]) -> None:
    found: list[Any] = []
    windows = ax.event_windows([("a", 1), ("a", 5), ("a", time)], time=time_of, **kind)
    with pytest.raises(error, match=message):
        await gather(windows, found)
    assert len(found) == 1


async def test_bad_keys() -> None:
    with pytest.raises(ax.errors.InvalidTypeError, match=r"the key of \(\['a'\], 1\) is \['a'\]: a list cannot be"):
        await anext(aiter(windows_of([(["a"], 1)], size=1)))
    with pytest.raises(KeyError, match="user") as raised:
        await anext(aiter(ax.event_windows([{}], time=lambda value: value["user"], size=1)))
    assert "raised by time= or key= of windows, for the value {}" in raised.value.__notes__


async def test_windows_that_have_been_given_do_not_count_when_others_go_on() -> None:
    def windows(most: int) -> ax.EventWindows:
        return ax.event_windows(range(12), time=float, size=4, every=1, max_values=most)

    # Four windows each for the values at 0 to 3, but for the two that have ended at 2.
    with pytest.raises(ax.errors.ResourceExhaustedError, match="more than 13 values"):
        _ = [window async for window in windows(13)]
    wanted = [window async for window in windows(14)]
    iterator: Any = aiter(windows(14))
    for count in range(1, len(wanted)):
        await anext(iterator)
        assert [window async for window in windows(14).seek(iterator.position)] == wanted[count:]
    await iterator.aclose()


async def test_too_many_values() -> None:
    found: list[Any] = []
    windows = ax.event_windows([1, 2, 13, 14, 15, 16], time=lambda value: value, size=10, max_values=3)
    with pytest.raises(ax.errors.ResourceExhaustedError, match="more than 3 values wait for the watermark"):
        await gather(windows, found)
    assert [window.values for window in found] == [[1, 2]]


@pytest.mark.parametrize("position", [3, {"at": 1}])
def test_a_position_of_something_else(position: Any) -> None:
    with pytest.raises(ax.errors.InvalidArgumentError, match=r"is no position of <ax\.event_windows size=1>"):
        ax.event_windows([], time=time_of, size=1).seek(position)


@pytest.mark.parametrize("kind", [{"size": 10}, {"gap": 10}])
async def test_nan_is_one_key(kind: dict[str, float]) -> None:
    values = [(float("nan"), 1), (float("nan"), 2), (("a", float("nan")), 3), (("a", float("nan")), 4)]
    windows = ax.event_windows(values, time=lambda value: value[1], key=lambda value: value[0], **kind)
    found = [[number for _, number in window.values] async for window in windows]
    assert sorted(found) == [[1, 2], [3, 4]]
