"""``ax.event_windows``: values in windows of their own times, by key: tumbling, sliding, and sessions.

A window begins at its start, and ends before its end.  It is given as soon as the watermark has come to its end.  A
value is late if all windows that it would be in have been given by then.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from heapq import heappop, heappush
from math import floor
from typing import Any, Final, NamedTuple

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.frontend.event_iterator import EventSource, Late
from asyncexec.frontend.event_time import (
    Clock,
    EventOperator,
    Number,
    Row,
    check_functions,
    checked_key,
    checked_span,
    checked_time,
)
from asyncexec.frontend.stream_functions import Values, check_values
from asyncexec.frontend.stream_windows import check_count, check_seconds

MAX_VALUES: Final = 1_000_000
_MAX_OVERLAP: Final = 10_000  # windows that a value is in
_MAX_INDEX: Final = 2**52  # of a window: beyond, floats cannot tell one from the next


class Window(NamedTuple):
    """An item of ``ax.event_windows``: the values of one key from *start* on, and before *end*, as they came.

    A session begins with its first time, and ends a gap behind its last one.

    >>> ax.Window("ann", 0, 60, ["a click", "another"]).end
    60
    """

    key: Any
    start: Number
    end: Number
    values: list[Any]


class _Open:
    """A window that is not given yet.

    Attributes:
        index: its place among the windows of its key, where they are regular.
        number: of its first value.
        entries: numbers and values.
        queued: under which end and number it is in the queue; None once it is gone.
    """

    __slots__ = ("end", "entries", "index", "key", "number", "queued", "start")

    def __init__(self, key: object, start: Number, end: Number, number: int, index: int = 0) -> None:
        self.key = key
        self.index = index
        self.start = start
        self.end = end
        self.number = number
        self.entries: list[tuple[int, Any]] = []
        self.queued: tuple[Number, int] | None = None

    def __lt__(self, _: _Open) -> bool:
        return False  # the queue goes by ends and numbers


class _Windowing(EventOperator):
    """What all kinds of windows have in common."""

    def __init__(
        self,
        time: Callable[[Any], Any],
        key: Callable[[Any], object] | None,
        lateness: Number,
        max_values: int,
        **options: object,
    ) -> None:
        super().__init__(1, lateness, max_values, **options, has_key=key is not None)
        self._time = time
        self._key = key
        self._held: dict[_Open, None] = {}
        self._queue: list[tuple[Number, int, _Open]] = []  # a heap; sessions may end later than it says

    @abstractmethod
    def _place(self, number: int, key: object, time: Number, value: object) -> bool:
        """Put *value* into its windows, but for those behind the watermark; whether there are any."""

    @abstractmethod
    def _forget(self, window: _Open) -> None:
        """Take note that *window* is gone."""

    def _key_and_time(self, value: object) -> tuple[object, Number]:
        try:
            time = self._time(value)
            key = None if self._key is None else self._key(value)
        except Exception as error:
            error.add_note(f"raised by time= or key= of windows, for the value {value!r:.200}")
            raise
        return checked_key(key, value), checked_time(time, value)

    def add(self, number: int, side: int, value: object) -> bool:
        key, time = self._key_and_time(value)
        is_in_time = self._place(number, key, time, value)
        self.see(side, time)
        return is_in_time

    def restore(self, row: Row, clock: Clock) -> None:
        self._place(row.number, *self._key_and_time(row.value), row.value)

    def _enqueue(self, window: _Open) -> None:
        window.queued = window.end, window.number
        heappush(self._queue, (window.end, window.number, window))

    @property
    def is_due(self) -> bool:
        queue, watermark = self._queue, self.watermark
        return bool(queue) and (self.is_at_end or (watermark is not None and queue[0][0] <= watermark))

    def due(self) -> Iterator[Window]:
        queue = self._queue
        while self.is_due:
            end, number, window = heappop(queue)
            if window.queued != (end, number):
                continue
            if window.end != end:
                self._enqueue(window)
                continue
            window.queued = None
            del self._held[window]
            self._forget(window)
            self.removed.append(window)
            self.num_held -= len(window.entries)
            window.entries.sort()
            yield Window(window.key, window.start, window.end, [value for _, value in window.entries])

    def all_held(self) -> list[_Open]:
        return list(self._held)

    def rows(self, holder: _Open, end: int) -> Iterable[Row]:
        return (Row(number, 0, False, value) for number, value in holder.entries if number < end)

    def wait_s(self) -> float | None:
        return None if not self._queue or self.watermark is None else self._queue[0][0] - self.watermark

    def idle_time(self, side: int) -> Number | None:
        return self._queue[0][0]


class _Regular(_Windowing):
    """Windows of one size, one every so often."""

    def __init__(self, size: Number, every: Number, *args: Any) -> None:
        super().__init__(*args, size=size, every=every)
        self._size = size
        self._every = every
        self._open: dict[tuple[object, int], _Open] = {}

    def restore(self, row: Row, clock: Clock) -> None:
        self.clock = clock  # those of its windows that have been given are not held again
        super().restore(row, clock)

    def _end(self, index: int) -> Number:
        # Where they tumble, each ends exactly where the next begins.
        return (index + 1) * self._every if self._size == self._every else index * self._every + self._size

    def _place(self, number: int, key: object, time: Number, value: object) -> bool:
        every = self._every
        index = self._last_index(time, value)
        watermark = self.watermark
        is_in_time = False
        while True:
            end = self._end(index)
            if end <= time or (watermark is not None and end <= watermark):
                return is_in_time
            window = self._open.get((key, index))
            self.hold(1)
            if window is None:
                window = self._open[key, index] = _Open(key, index * every, end, number, index)
                self._held[window] = None
                self._enqueue(window)
            window.entries.append((number, value))
            is_in_time = True
            index -= 1

    def _last_index(self, time: Number, value: object) -> int:
        """The number of the last window that begins no later than *time*."""
        every = self._every
        found = time // every
        if not -_MAX_INDEX < found < _MAX_INDEX:
            raise InvalidArgumentError(f"the time of {value!r:.200} is {time!r}, too far from 0 for windows of {every}")
        index = floor(found)
        while index * every > time:
            index -= 1
        while (index + 1) * every <= time:
            index += 1
        return index

    def _forget(self, window: _Open) -> None:
        del self._open[window.key, window.index]


class _Sessions(_Windowing):
    """Windows that end when no value of their key comes for *gap*."""

    def __init__(self, gap: Number, *args: Any) -> None:
        super().__init__(*args, gap=gap)
        self._gap = gap
        self._open: dict[object, list[_Open]] = {}  # by key, in the order of their starts

    def _place(self, number: int, key: object, time: Number, value: object) -> bool:
        end = time + self._gap
        if not time < end < float("inf"):
            raise InvalidArgumentError(
                f"the time of {value!r:.200} is {time!r}, too far from 0 for gaps of {self._gap}"
            )
        found = self._open.get(key)
        if found is None:
            first = behind = 0
        elif found[-1].end <= time:  # behind all others, as most are
            first = behind = len(found)
        else:
            first = bisect_right(found, time, key=_end_of)
            behind = bisect_left(found, end, lo=first, key=_start_of)
        if first == behind and self.watermark is not None and end <= self.watermark:
            return False
        self.hold(1)
        if found is None:
            found = self._open[key] = []
        if first == behind:
            session = _Open(key, time, end, number)
            self._held[session] = None
            found.insert(first, session)
            self._enqueue(session)
        else:
            session = found[first] if behind - first == 1 else self._merged(found, first, behind)
            session.start = min(session.start, time)
            session.end = max(session.end, end)
        session.entries.append((number, value))
        return True

    def _merged(self, sessions: list[_Open], first: int, behind: int) -> _Open:
        """One of several sessions: the largest takes the values of the others."""
        merged = sessions[first:behind]
        session = max(merged, key=lambda each: len(each.entries))
        session.start, session.end = merged[0].start, merged[-1].end
        for each in merged:
            if each is not session:
                session.entries += each.entries
                each.queued = None
                del self._held[each]
        number = min(each.number for each in merged)
        if number != session.number:  # the order of sessions that end together
            session.number = number
            self._enqueue(session)
        sessions[first:behind] = [session]
        return session

    def _forget(self, window: _Open) -> None:
        sessions = self._open[window.key]
        if len(sessions) == 1:
            del self._open[window.key]
        else:
            sessions.remove(window)  # the first: they end in the order in which they start


def _start_of(window: _Open) -> Number:
    return window.start


def _end_of(window: _Open) -> Number:
    return window.end


class EventWindows(EventSource):
    """Windows by event time; made by ``ax.event_windows``.  Each ``async for`` begins again::

        position = iterator.position  # behind the last window that was given
        async for window in windows.seek(position): ...

    Raises:
        InvalidArgumentError: ``seek`` gets a position of something else.

    >>> ax.event_windows([3, 12], time=float, gap=5).num_late
    0

    Attributes:
        num_late: the values that came too late, in all iterations.
        is_seekable: whether what the values come from can seek.
    """

    def __init__(
        self, values: object, make: Callable[[], _Windowing], late: Late | None, idle: float | None, shown: str
    ) -> None:
        super().__init__([values], late, idle)
        self._make = make
        self._shown = shown

    def _operator(self) -> _Windowing:
        return self._make()

    def __repr__(self) -> str:
        return f"<ax.event_windows {self._shown}>"


def event_windows(
    values: Values[object] | Callable[[], Values[object]],
    *,
    time: Callable[[Any], object],
    key: Callable[[Any], object] | None = None,
    size: Number | None = None,
    every: Number | None = None,
    gap: Number | None = None,
    lateness: Number = 0,
    late: Late | None = None,
    idle: float | None = None,
    max_values: int = MAX_VALUES,
) -> EventWindows:
    """Windows of *values* by their own times and by key, each an ``ax.Window``, for an ``async for`` or a source::

        minutes = ax.event_windows(clicks, time=lambda click: click["at"], key=lambda click: click["user"], size=60)

    With *size* windows tumble: each value is in one, and they begin at multiples of *size*.  With *size* and *every*
    they slide: one begins at each multiple of *every*, and a value is in several.  With *gap* they are sessions: one
    ends when no value of its key comes for *gap*.  A window has the values from its start on, and before its end.

    The watermark is the largest time that was seen, less *lateness*.  A window is given when the watermark has come to
    its end; windows come in the order of their ends, and then of their first values.  A value is late if its windows
    have been given.  At the end of *values* all windows are given.  An exception of *values* comes behind the windows
    that were given, and those that are open are not.

    >>> clicks = [{"user": "ann", "at": 3.0}, {"user": "bob", "at": 7.0}, {"user": "ann", "at": 12.0}]
    >>> ax.event_windows(clicks, time=lambda click: click["at"], key=lambda click: click["user"], size=10.0)
    <ax.event_windows size=10.0>

    Args:
        values: an async or a plain iterable, an ``asyncio.Queue``, or a function that returns a new one for each
            ``async for``, and so for each stream.
        time: gives the time of a value, a number in any unit; *size*, *every*, *gap* and *lateness* are in the same.
        key: gives the key of a value, which is hashable; without it all values have the key None.
        size: of each window.
        every: from the start of one window to that of the next, at most *size*.
        gap: how long a session goes on without a value.
        lateness: how far the watermark stays behind the largest time.
        late: called with each value that is late; if it gives an awaitable, that is awaited.  ``num_late`` counts
            them in any case.
        idle: seconds, by the clock of the event loop.  If no value comes for so long, open windows end as if time had
            gone on with the clock since then: times are in seconds.
        max_values: how many values may be in open windows; with one more, ResourceExhaustedError is raised.

    Raises:
        InvalidArgumentError: not one of *size* and *gap* is given, or a number is out of range; or a time is no finite
            number.
        InvalidTypeError: *values* is nothing to draw from, *time*, *key* or *late* is no function, or a key is not
            hashable.
        ResourceExhaustedError: too many values are in open windows.
    """
    check_values(values, "a window")
    functions = {"time": time, "key": key, "late": late}
    check_functions(**{name: each for name, each in functions.items() if each is not None or name == "time"})
    if (size is None) == (gap is None):
        raise InvalidArgumentError(
            "windows by event time have a size, or sessions a gap", hint="ax.event_windows(values, time=..., size=60)"
        )
    spans = {"size": size, "every": every, "gap": gap}
    found = {name: checked_span(span, name) for name, span in spans.items() if span is not None}
    options = (time, key, checked_span(lateness, "lateness", zero=True), check_count(max_values, "max_values"))
    if gap is not None:
        if every is not None:
            raise InvalidArgumentError("every is for windows of a size, and sessions have a gap")
        make: Callable[[], _Windowing] = partial(_Sessions, found["gap"], *options)
    else:
        step = found.setdefault("every", found["size"])
        if not step <= found["size"] <= step * _MAX_OVERLAP:
            raise InvalidArgumentError(
                f"every is at most the size, {size!r}, and at least 1/{_MAX_OVERLAP} of it, not {every!r}"
            )
        make = partial(_Regular, found["size"], step, *options)
    shown = " ".join(f"{name}={span!r}" for name, span in spans.items() if span is not None)
    return EventWindows(values, make, late, None if idle is None else check_seconds(idle, "idle"), shown)
