"""Event time: what windows and joins by the times of values have in common.  It decides, and awaits nothing.

The *watermark* is a time that only grows: values before it are not expected any more.  It stays *lateness* behind the
largest time that was seen; of several sides, behind the one that is furthest behind.

What moves the watermark, or ends a side, is a *cause*; the items that come out because of it are its *batch*.  So the
place between two items is a batch and the number of its items before that place.  A place can be stored: what was held
before the cause, the cause, and that number.  Whoever goes on from it lets the cause happen again, and skips as many
items.  What leaves the operator is kept with the batch in which it left, and each batch knows the next.  So a place
finds all that was held there, as long as somebody has the place, and no longer.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from asyncexec.framework.cooperative import PART, Stage
from asyncexec.framework.dict_keys import as_key
from asyncexec.framework.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    InvalidTypeError,
    ResourceExhaustedError,
)
from asyncexec.framework.held_content import Content, Held, HeldContent, held, in_chunks, unpacked

Number: TypeAlias = int | float
Clock: TypeAlias = "list[Number | None]"  # the watermark, and that of each side, as JSON has them
_MAX_TIME: Final = 2**63
VALUE, TIME, END = "value", "time", "end"


class Row(NamedTuple):
    """A value that is held: the number of its draw, its side, and whether it has met another."""

    number: int
    side: int
    is_matched: bool
    value: Any


class Cause(NamedTuple):
    """Why items may come out: a value of a side, a time that the watermark has come to, or the end of a side.

    The end of all sides is that of side -1.
    """

    kind: str
    side: int = 0
    value: Any = None


class Batch:
    """The items of one cause.

    Attributes:
        number: that of the cause; what was drawn before has smaller ones.
        cause: what has happened.
        clock: the times before it; clock_after: the times behind it.
        positions: of the sources, behind what has been drawn.
        given: items so far.
        is_over: whether there are no more.
        removed: what has left the operator in this batch; removed_after: the same from then until the next one.
        next: the next one.
    """

    __slots__ = (
        "cause",
        "clock",
        "clock_after",
        "given",
        "is_over",
        "next",
        "number",
        "positions",
        "removed",
        "removed_after",
    )

    def __init__(
        self, number: int, cause: Cause, clocks: tuple[Clock, Clock], positions: list[Any], removed: list[object]
    ) -> None:
        self.number = number
        self.cause = cause
        self.clock, self.clock_after = clocks
        self.positions = positions
        self.given = 0
        self.is_over = False
        self.removed = removed
        self.removed_after: list[Any] = []
        self.next: Batch | None = None


class EventOperator(ABC):
    """Makes items of values, by their times.

    Args:
        num_sides: what it draws from.
        lateness: how far the watermark stays behind the largest time.
        max_values: how many it holds at most.
        options: what the items depend on besides the values, as JSON has it.

    Attributes:
        options: these, and the lateness; a place is for an operator with the same ones.
        watermark: None as long as it is not known.
        times: the watermark of each side.
        number: of the last cause.
        positions: of the sources, behind what has been drawn.
        num_held: values that are held now.
        removed: where what leaves the operator is kept.
    """

    def __init__(self, num_sides: int, lateness: Number, max_values: int, **options: Any) -> None:
        self.options: dict[str, Any] = {**options, "lateness": lateness}
        self.watermark: Number | None = None
        self.times: list[Number | None] = [None] * num_sides
        self.number: int = -1
        self.positions: list[Any] = [None] * num_sides
        self.num_held: int = 0
        self.removed: list[Any] = []
        self._lateness = lateness
        self._max_values = max_values
        self._ended = [False] * num_sides
        self._idle = [False] * num_sides

    @abstractmethod
    def add(self, number: int, side: int, value: Any) -> bool:
        """Hold *value*, and move the watermark; False where it comes too late, and is not held."""

    @abstractmethod
    def restore(self, row: Row, clock: Clock) -> None:
        """Hold a value that was held before, at *clock*; the clock is put back after all of them."""

    @property
    @abstractmethod
    def is_due(self) -> bool:
        """Whether ``due`` has anything to do."""

    @abstractmethod
    def due(self) -> Iterator[Any]:
        """The items that are to come out now; each leaves the operator as it is given."""

    @abstractmethod
    def all_held(self) -> Iterable[Any]:
        """What holds values now, in any order: each has the number of its first one."""

    @abstractmethod
    def rows(self, holder: Any, end: int) -> Iterable[Row]:
        """The values of *holder* with numbers less than *end*, as they were before the cause with that number."""

    @abstractmethod
    def wait_s(self) -> float | None:
        """Seconds that an idle side may go on to hold the watermark back; None for ever."""

    @abstractmethod
    def idle_time(self, side: int) -> Number | None:
        """Where the watermark goes, as *side* is idle; None where it stays."""

    @property
    def clock(self) -> Clock:
        """The times."""
        return [self.watermark, *self.times]

    @clock.setter
    def clock(self, clock: Clock) -> None:
        self.watermark, *self.times = clock

    def see(self, side: int, time: Number) -> None:
        """Move the watermark behind a value of *side* with *time*."""
        before = self.times[side]
        time -= self._lateness
        if before is None or time > before:
            self.times[side] = time
            if len(self.times) > 1:
                self._move()
            elif self.watermark is None or time > self.watermark:
                self.watermark = time

    def _move(self) -> None:
        time = self.least()
        if time is not None:
            self.pass_time(time)

    def least(self) -> Number | None:
        """The least time of the sides that hold the watermark back; None where one has none."""
        found: Number | None = None
        for side, time in enumerate(self.times):
            if not (self._ended[side] or self._idle[side]):
                if time is None:
                    return None
                found = time if found is None else min(found, time)
        return found

    def pass_time(self, time: Number) -> None:
        """Let the watermark be at *time*, unless it is beyond."""
        if self.watermark is None or time > self.watermark:
            self.watermark = time

    def end(self, side: int) -> None:
        """Take note that *side* gives no more, or with -1 all of them: then everything is due."""
        self._ended = [has_ended or side in (-1, each) for each, has_ended in enumerate(self._ended)]
        self._move()

    def begin_again(self) -> None:
        """Take note that there may be more of all sides."""
        self._ended = [False] * len(self._ended)

    @property
    def is_at_end(self) -> bool:
        """Whether all sides have ended."""
        return False not in self._ended

    @property
    def next_side(self) -> int | None:
        """The side that is furthest behind, among those that have not ended and are not idle."""
        found: int | None = None
        for side, time in enumerate(self.times):
            if self._ended[side] or self._idle[side]:
                continue
            if time is None:
                return side
            if found is None or time < self.times[found]:  # type: ignore[operator]
                found = side
        return found

    def set_idle(self, side: int, is_idle: bool) -> None:
        """Let *side* hold the watermark back no more, or again."""
        self._idle[side] = is_idle

    def hold(self, count: int) -> None:
        """Count values that are held.

        Raises:
            ResourceExhaustedError: they are too many.
        """
        if self.num_held + count > self._max_values:
            raise ResourceExhaustedError(
                f"more than {self._max_values} values wait for the watermark, which is at {self.watermark}",
                hint="max_values= is how many may; idle= moves the watermark on when no values come",
            )
        self.num_held += count


class Place(HeldContent):
    """Behind so many items of a batch."""

    __slots__ = ("_batch", "_given", "_operator")

    def __init__(self, operator: EventOperator, batch: Batch) -> None:
        self._operator = operator
        self._batch = batch
        self._given = batch.given

    def content(self) -> Stage[Content]:
        batch, operator = self._batch, self._operator
        is_behind = batch.is_over and self._given == batch.given
        holders = [operator.all_held()]
        if is_behind and batch.next is None:  # what has been drawn since then has made no items
            end, clock, positions = operator.number + 1, operator.clock, list(operator.positions)
        else:
            end = batch.number + 1 if is_behind else batch.number
            clock, positions = batch.clock_after if is_behind else batch.clock, batch.positions
            holders += [[] if is_behind else list(batch.removed), list(batch.removed_after)]
            later = batch.next
            while later is not None:
                holders += [list(later.removed), list(later.removed_after)]
                later = later.next
        about: dict[str, Any] = {
            "number": end - 1 if is_behind else end,
            "clock": clock,
            "clock_after": batch.clock_after,
            "given": self._given,
            "cause": None if is_behind else [batch.cause.kind, batch.cause.side],
            "options": operator.options,
            "sources": [],
        }
        columns = _Columns()
        for holder in chain.from_iterable(holders):
            for row in operator.rows(holder, end):
                if columns.add(row):
                    yield
        values = [np.frombuffer(column, dtype) for column, dtype in columns.arrays]
        values += yield from in_chunks(columns.values if is_behind else [*columns.values, batch.cause.value])
        about["count"] = len(values)
        for position in positions:
            if isinstance(position, HeldContent):
                found = yield from held(position)
                about["sources"].append({"held": found.about, "count": len(found.values)})
                values += found.values
            else:
                about["sources"].append({"at": position})
        return about, values


class _Columns:
    """Rows, each once: a value may be in several windows."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._numbers = array("q")
        self._sides = array("b")
        self._matched = array("b")
        self._seen: set[int] = set()

    def add(self, row: Row) -> bool:
        """Add *row*; whether it is time to let others have the event loop."""
        if row.number not in self._seen:
            self._seen.add(row.number)
            self._numbers.append(row.number)
            self._sides.append(row.side)
            self._matched.append(row.is_matched)
            self.values.append(row.value)
        return not len(self.values) % PART

    @property
    def arrays(self) -> list[tuple[array[int], type[Any]]]:
        return [(self._numbers, np.int64), (self._sides, np.int8), (self._matched, np.bool_)]


class Restored(NamedTuple):
    """What ``Place.content`` has stored."""

    rows: Iterator[Row]
    clock: Clock
    clock_after: Clock
    number: int
    given: int
    cause: Cause | None
    positions: list[Any]


def read_place(content: Held, options: Mapping[str, object], num_sides: int) -> Restored:
    """What is in the content of a Place of an operator with *options*.

    Raises:
        FailedPreconditionError: it is of other options.
        InvalidArgumentError: it is of something else.
    """
    about, values = content.about, content.values
    try:
        count = about["count"]
        found = list(unpacked(values[3:count]))
        cause = None
        if about["cause"] is not None:
            kind, side = about["cause"]
            cause = Cause(kind, side, found[-1])
        positions: list[object] = []
        for source in about["sources"]:
            if "held" in source:
                positions.append(Held(source["held"], values[count : count + source["count"]]))
                count += source["count"]
            else:
                positions.append(source["at"])
        numbers, sides, matched = (column.tolist() for column in values[:3])
        if not len(numbers) == len(sides) == len(matched) == len(found) - (cause is not None):
            raise ValueError("the number of values")
        rows = _rows(numbers, sides, matched, found)
        clocks = about["clock"], about["clock_after"]
        restored = Restored(rows, *clocks, about["number"], about["given"], cause, positions)
    except (TypeError, KeyError, ValueError, IndexError, AttributeError) as error:
        raise _not_a_place(f"{error!r} is wrong") from error
    if len(positions) != num_sides or len(restored.clock) != num_sides + 1:
        raise _not_a_place(f"it has {len(positions)} sources, and there are {num_sides}")
    _check_options(about.get("options"), options)
    return restored


def _check_options(before: object, now: Mapping[str, object]) -> None:
    if not isinstance(before, dict):  # asyncexec has not always stored them
        return
    changed = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    if changed:
        told = (f"{name} was {before.get(name)!r} and is {now.get(name)!r}" for name in changed)
        raise FailedPreconditionError(
            f"the options of windows or a join have changed since the position was stored: {'; '.join(told)}",
            hint="go on with the options of before; or resume=False begins the stream anew",
        )


def _rows(numbers: list[int], sides: list[int], matched: list[bool], values: list[Any]) -> Iterator[Row]:
    for i in np.argsort(np.array(numbers, np.int64), kind="stable").tolist():
        yield Row(numbers[i], sides[i], matched[i], values[i])


def _not_a_place(why: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"the position is none of these windows or this join: {why}", hint="seek takes what the attribute position gave"
    )


def checked_time(time: Any, value: object) -> Number:
    """*time*, that of *value*, as a Python number; an error unless it is one that is finite."""
    if isinstance(time, (np.generic, np.ndarray)) and not time.ndim and time.dtype.kind in "iuf":
        time = time.item()
    kind = type(time)
    if kind is float:
        if math.isfinite(time):
            return time  # type: ignore[no-any-return]
    elif kind is int:
        if -_MAX_TIME <= time < _MAX_TIME:
            return time  # type: ignore[no-any-return]
    else:
        hint = "time=lambda value: value.timestamp()" if hasattr(time, "timestamp") else None
        raise InvalidTypeError(f"the time of {value!r:.200} is {time!r:.100}, which is no number", hint=hint)
    raise InvalidArgumentError(f"the time of {value!r:.200} is {time!r:.100}; a time is a finite number of 64 bits")


def checked_key(key: object, value: object) -> Any:
    """*key*, that of *value*, as ``as_key`` has it; InvalidTypeError unless a dict can have it."""
    try:
        return as_key(key)
    except TypeError:
        raise InvalidTypeError(
            f"the key of {value!r:.200} is {key!r:.100}: a {type(key).__name__} cannot be a key",
            hint="a key is a string, a number or a tuple of these",
        ) from None


def checked_span(span: Any, what: str, *, zero: bool = False) -> Number:
    """*span*, a difference of times; InvalidArgumentError unless it is a finite number above 0, or, with *zero*, 0."""
    if isinstance(span, (np.integer, np.floating)):
        span = span.item()
    if type(span) in (int, float) and math.isfinite(span) and (span > 0 or (zero and span == 0)) and span < _MAX_TIME:
        return span  # type: ignore[no-any-return]
    raise InvalidArgumentError(f"{what} is a finite number {'from' if zero else 'above'} 0, not {span!r:.100}")


def check_functions(**functions: object) -> None:
    """InvalidTypeError unless each is a function, by its name."""
    for name, function in functions.items():
        if not callable(function):
            raise InvalidTypeError(
                f"{name}= is a function of a value, not {function!r:.100}", hint=f"{name}=lambda value: ..."
            )
