"""``ax.join``: pairs of values of two sides that have one key and times close to one another.

A value waits for others until the watermark is more than *within* beyond its time: no value that comes then could meet
it.  A pair is given as soon as the second of the two comes, and a value that has met none when it stops waiting.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from heapq import heappop, heappush
from operator import itemgetter
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

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
from asyncexec.frontend.event_windows import MAX_VALUES
from asyncexec.frontend.stream_functions import Values, check_values
from asyncexec.frontend.stream_windows import check_count, check_seconds

How: TypeAlias = Literal["inner", "left", "outer"]
Function: TypeAlias = Callable[[Any], Any]
_LEFT, _RIGHT = range(2)
# Sides of which a value is given alone if it meets none.
_ALONE: Final[dict[str, tuple[bool, bool]]] = {"inner": (False, False), "left": (True, False), "outer": (True, True)}
_FEW: Final = 32


class Joined(NamedTuple):
    """An item of ``ax.join``: a key, and a value of each side, or None for one where the other has met none.

    >>> ax.Joined("ann", "an order", None).left
    'an order'
    """

    key: Any
    left: Any
    right: Any


class _Waiting:
    """A value that waits for others.

    Attributes:
        matched: the number of the first that it has met; None where there is none.
    """

    __slots__ = ("key", "matched", "number", "side", "time", "value")

    def __init__(self, number: int, side: int, key: object, time: Number, value: object) -> None:
        self.number = number
        self.side = side
        self.key = key
        self.time = time
        self.value = value
        self.matched: int | None = None


def _order(waiting: _Waiting) -> Number:
    return waiting.time


class _Line:
    """The values of one key and side, in the order of their times; the first leaves first."""

    __slots__ = ("_first", "_values")

    def __init__(self) -> None:
        self._values: list[_Waiting] = []
        self._first = 0

    def insert(self, waiting: _Waiting) -> None:
        values = self._values
        if not values or values[-1].time <= waiting.time:
            values.append(waiting)
        else:
            values.insert(bisect_right(values, waiting.time, lo=self._first, key=_order), waiting)

    def between(self, first: Number, last: Number) -> list[_Waiting]:
        """Those with times from *first* to *last*."""
        start = bisect_left(self._values, first, lo=self._first, key=_order)
        return self._values[start : bisect_right(self._values, last, lo=start, key=_order)]

    def drop_first(self) -> bool:
        """Forget the first; whether there are no more."""
        self._first += 1
        if self._first > _FEW and self._first * 2 > len(self._values):
            del self._values[: self._first]
            self._first = 0
        return self._first == len(self._values)

    def all(self) -> list[_Waiting]:
        return self._values[self._first :]


class _Joining(EventOperator):
    """The pairs of two sides."""

    def __init__(
        self,
        keys: tuple[Function, Function],
        times: tuple[Function, Function],
        within: Number,
        how: How,
        lateness: Number,
        max_values: int,
    ) -> None:
        super().__init__(2, lateness, max_values, within=within, how=how)
        self._key_of = keys
        self._time_of = times
        self._within = within
        self._alone = _ALONE[how]
        self._lines: tuple[dict[Any, _Line], dict[object, _Line]] = ({}, {})
        self._queue: list[tuple[Number, int, _Waiting]] = []  # a heap: who stops waiting when
        self._met: list[_Waiting] = []  # the others of the last value, that are not given yet, last one first
        self._last: _Waiting | None = None

    def _made(self, number: int, side: int, value: object) -> _Waiting:
        try:
            time = self._time_of[side](value)
            key = self._key_of[side](value)
        except Exception as error:
            error.add_note(f"raised by time= or key= of a join, for the value {value!r:.200}")
            raise
        return _Waiting(number, side, checked_key(key, value), checked_time(time, value), value)

    def add(self, number: int, side: int, value: object) -> bool:
        waiting = self._made(number, side, value)
        if self.watermark is not None and waiting.time < self.watermark:
            return False
        self._insert(waiting)
        others = self._lines[1 - side].get(waiting.key)
        if others is not None:
            self._last = waiting
            self._met = others.between(waiting.time - self._within, waiting.time + self._within)
            self._met.reverse()
            for other in self._met:
                other.matched = number if other.matched is None else other.matched
                waiting.matched = number
        self.see(side, waiting.time)
        return True

    def _insert(self, waiting: _Waiting) -> None:
        self.hold(1)
        line = self._lines[waiting.side].get(waiting.key)
        if line is None:
            line = self._lines[waiting.side][waiting.key] = _Line()
        line.insert(waiting)
        heappush(self._queue, (waiting.time, waiting.number, waiting))

    def restore(self, row: Row, clock: Clock) -> None:
        waiting = self._made(row.number, row.side, row.value)
        waiting.matched = -1 if row.is_matched else None
        self._insert(waiting)

    @property
    def is_due(self) -> bool:
        return bool(self._met) or self._has_waited()

    def _has_waited(self) -> bool:
        """Whether the first in the queue waits no more."""
        queue, watermark = self._queue, self.watermark
        return bool(queue) and (self.is_at_end or (watermark is not None and queue[0][0] + self._within < watermark))

    def due(self) -> Iterator[Joined]:
        last = self._last
        while self._met:
            assert last is not None
            yield _pair(last, self._met.pop().value)
        self._last = None
        while self._has_waited():
            waiting = heappop(self._queue)[2]
            lines = self._lines[waiting.side]
            if lines[waiting.key].drop_first():
                del lines[waiting.key]
            self.num_held -= 1
            self.removed.append(waiting)
            if waiting.matched is None and self._alone[waiting.side]:
                yield _pair(waiting, None)

    def all_held(self) -> Iterable[_Waiting]:
        return map(itemgetter(2), list(self._queue))

    def rows(self, holder: _Waiting, end: int) -> Iterable[Row]:
        if holder.number < end:
            is_matched = holder.matched is not None and holder.matched < end
            yield Row(holder.number, holder.side, is_matched, holder.value)

    def wait_s(self) -> float | None:
        return 0.0

    def idle_time(self, side: int) -> Number | None:
        self.set_idle(side, True)
        return self.least()


def _pair(waiting: _Waiting, other: object) -> Joined:
    if waiting.side == _LEFT:
        return Joined(waiting.key, waiting.value, other)
    return Joined(waiting.key, other, waiting.value)


class Join(EventSource):
    """Pairs of values of two sides; made by ``ax.join``.  Each ``async for`` begins again::

        position = iterator.position  # behind the last pair that was given
        async for key, left, right in join.seek(position): ...

    Attributes:
        num_late: the values that came too late, in all iterations.
        is_seekable: whether what both sides come from can seek.

    Raises:
        InvalidArgumentError: ``seek`` gets a position of something else.

    >>> ax.join([], [], key=str, time=float, within=5).num_late
    0
    """

    def __init__(
        self, sides: list[Any], make: Callable[[], _Joining], late: Late | None, idle: float | None, shown: str
    ) -> None:
        super().__init__(sides, late, idle)
        self._make = make
        self._shown = shown

    def _operator(self) -> _Joining:
        return self._make()

    def __repr__(self) -> str:
        return f"<ax.join {self._shown}>"


def join(
    left: Values[object] | Callable[[], Values[object]],
    right: Values[object] | Callable[[], Values[object]],
    *,
    key: Function | tuple[Function, Function],
    time: Function | tuple[Function, Function],
    within: Number,
    how: How = "inner",
    lateness: Number = 0,
    late: Late | None = None,
    idle: float | None = None,
    max_values: int = MAX_VALUES,
) -> Join:
    """The pairs of values of *left* and *right* with one key, and times at most *within* apart, each an ``ax.Joined``::

        paid = ax.join(orders, payments, key=lambda value: value["order"], time=lambda value: value["at"], within=60)

    A pair is given as soon as both are there.  With ``how="left"`` a left value that meets none is given with None,
    and with ``how="outer"`` a right one, too: as soon as none can come that it would meet.

    The watermark of a side is the largest time that was seen, less *lateness*.  The watermark of the join is the
    smaller of both, and a value behind it is late.  The next value is drawn from the side that is behind, so the items
    depend on the values alone.  At the end of both sides all values that have met none are given.  An exception of a
    side comes behind the items that were given.

    >>> orders = [{"order": 1, "at": 3.0}, {"order": 2, "at": 5.0}]
    >>> payments = [{"order": 1, "at": 40.0}]
    >>> ax.join(orders, payments, key=lambda value: value["order"], time=lambda value: value["at"], within=60.0)
    <ax.join within=60.0 how='inner'>

    Args:
        left: an async or a plain iterable, an ``asyncio.Queue``, or a function that returns a new one for each
            ``async for``, and so for each stream.
        right: the same.
        key: gives the key of a value, which is hashable; or two functions, for the left and the right values.
        time: gives the time of a value, a number in any unit; or two functions.  *within* and *lateness* are in it.
        within: how far the times of a pair are apart, at most.
        how: ``"inner"``, ``"left"`` or ``"outer"``.
        lateness: how far the watermark of a side stays behind its largest time.
        late: called with each value that is late; if it gives an awaitable, that is awaited.
        idle: seconds, by the clock of the event loop.  A side that gives no value for so long does not hold the other
            one up, until it gives one.
        max_values: how many values may wait; with one more, ResourceExhaustedError is raised.

    Raises:
        InvalidArgumentError: a number is out of range, or *how* is none of the three; or a time is no finite number.
        InvalidTypeError: a side is nothing to draw from, *key*, *time* or *late* is no function, or a key is not
            hashable.
        ResourceExhaustedError: too many values wait.
    """
    check_values(left, "a join")
    check_values(right, "a join")
    keys, times = _both("key", key), _both("time", time)
    if late is not None:
        check_functions(late=late)
    if how not in _ALONE:
        raise InvalidArgumentError(f"how is {', '.join(map(repr, get_args(How)))}, not {how!r:.100}")
    make = partial(
        _Joining,
        keys,
        times,
        checked_span(within, "within", zero=True),
        how,
        checked_span(lateness, "lateness", zero=True),
        check_count(max_values, "max_values"),
    )
    waits = None if idle is None else check_seconds(idle, "idle")
    return Join([left, right], make, late, waits, f"within={within!r} how={how!r}")


def _both(name: str, function: object) -> tuple[Function, Function]:
    """The functions of the left and the right side."""
    both = function if isinstance(function, tuple) and len(function) == len(_ALONE["inner"]) else (function, function)
    for each in both:
        check_functions(**{name: each})
    return both
