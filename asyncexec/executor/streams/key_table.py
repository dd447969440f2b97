"""KeyTable: what the items of a stream have left of a state by key.

An item tells its key when it has computed it.  Items wait in the queue of the table in their order, so one whose key is
not known yet holds up those behind it; but not for longer: each finds the cell behind the last item of its key, leaves
its own there, and reads its value as soon as that cell is filled.  So items of different keys overlap.

A key that no item has had for *expiry* is forgotten.  Time is that of the items, as far as the queue has come, or that
of the event loop.  Forgotten keys are removed a few at a time, as items come.

A snapshot is what the table was behind the items before it.  It is read in slices, and what items behind it replace
meanwhile is kept for it.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, Final, NamedTuple
from weakref import WeakSet

import numpy as np

from asyncexec.compilation.graph_view import NOTHING
from asyncexec.executor.streams.stream_item import StateCell, StateSlot, StreamItem
from asyncexec.framework.cooperative import STRIDE, Stage
from asyncexec.framework.dict_keys import as_key
from asyncexec.framework.errors import InvalidArgumentError, InvalidTypeError, OpError, ResourceExhaustedError
from asyncexec.framework.held_content import Content, Held, HeldContent, in_chunks, packed, unpacked

_NUM_SHARDS: Final = 1024  # each is looked at in one go
_AT_ONCE: Final = 4  # forgotten keys that are removed as an item comes


@dataclass(frozen=True, slots=True)
class KeyedSlot(StateSlot):
    """Where a state by key comes in and goes out of the items' steps.

    Attributes:
        key: the position among the fetches of the key.
        time: the same of the time; None where the clock of the loop counts.
        expiry: after how long without an item a key is forgotten; None for never.
        max_keys: how many there may be.
        held: what the table has at first.
        name: of the state.
    """

    key: int
    time: int | None
    expiry: float | None
    max_keys: int
    held: Held | None
    name: str


class _Entry:
    """What there is of a key: the cell behind its last item, and when that was."""

    __slots__ = ("cell", "touched")

    def __init__(self, cell: StateCell, touched: float) -> None:
        self.cell = cell
        self.touched = touched


class _Queued(NamedTuple):
    """A key that may be forgotten from a time on."""

    touched: float
    number: int
    key: Any


class Visit:
    """An item in the queue of a table.

    Attributes:
        before, behind: the cells that the item reads and writes.
        key: NOTHING as long as it is not known.
        is_over: whether the item has ended, or failed, without a key.
    """

    __slots__ = ("before", "behind", "is_over", "item", "key", "table", "time")

    def __init__(self, table: KeyTable, item: StreamItem) -> None:
        self.table = table
        self.item = item
        self.before = StateCell()
        self.behind = StateCell()
        self.key: Any = NOTHING
        self.time = 0.0
        self.is_over = False


class KeyTable:
    """See the head of this module.

    Args:
        slot: what is known of the state.
        now_s: the clock of the event loop.
    """

    def __init__(self, slot: KeyedSlot, now_s: Callable[[], float]) -> None:
        self.slot = slot
        self._now_s = now_s
        self._shards: list[dict[object, _Entry]] = [{} for _ in range(_NUM_SHARDS)]
        self._count = 0
        self._time = -math.inf  # of items: the largest so far
        self._waiting: deque[Visit | _Snapshot] = deque()
        self._snapshots: WeakSet[_Snapshot] = WeakSet()  # that are being read, or may be
        self._queue: list[_Queued] = []  # a heap: an entry for each key, where keys are forgotten
        self._number = 0

    def __len__(self) -> int:
        return self._count

    def visit(self, item: StreamItem) -> Visit:
        """Let *item* wait in the queue."""
        visit = Visit(self, item)
        self._waiting.append(visit)
        return visit

    def at_cut(self) -> StateCell:
        """A snapshot behind the items in the queue, in the place of a value."""
        snapshot = _Snapshot(self)
        self._waiting.append(snapshot)
        self._go_on()
        return StateCell(snapshot)

    def tell(self, visit: Visit, key: object, time: Any) -> None:
        """Take the *key* of an item, and its *time*, if it has one.

        Raises:
            InvalidArgumentError, InvalidTypeError: they are none.
        """
        if isinstance(key, (np.generic, np.ndarray)):
            key = key.item()
        try:
            key = as_key(key)
        except TypeError:
            raise InvalidTypeError(
                f"the key of state {self.slot.name!r} is {key!r:.100}: a {type(key).__name__} cannot be a key"
            ) from None
        if time is not None:
            time = float(time)
            if not math.isfinite(time):
                raise InvalidArgumentError(f"the time of state {self.slot.name!r} is {time!r}, and not finite")
            visit.time = time
        visit.key = key
        self._go_on()

    def skip(self, visit: Visit) -> None:
        """Take note that an item has ended without a key."""
        visit.is_over = True
        self._go_on()

    def _go_on(self) -> None:
        """Let those at the head of the queue in."""
        waiting = self._waiting
        while waiting:
            first = waiting[0]
            if isinstance(first, _Snapshot):
                first.time = self.time
                self._snapshots.add(first)
            elif first.key is not NOTHING:
                try:
                    self._let_in(first)
                except OpError as error:
                    first.item.fail(error)
            elif not first.is_over:
                return
            waiting.popleft()

    @property
    def time(self) -> float:
        """That by which keys are forgotten."""
        return self._now_s() if self.slot.time is None else self._time

    def _let_in(self, visit: Visit) -> None:
        slot, key = self.slot, visit.key
        touched = now = 0.0
        if slot.expiry is not None:
            if slot.time is not None:
                self._time = max(self._time, visit.time)
            now = self.time
            touched = now if slot.time is None else visit.time
        number = hash(key) % _NUM_SHARDS
        shard = self._shards[number]
        entry = shard.get(key)
        if self._snapshots:
            self._keep_for_snapshots(number, key, entry)
        if entry is None:
            if self._count >= slot.max_keys:
                raise ResourceExhaustedError(
                    f"state {slot.name!r} has {self._count} keys, and {key!r:.100} would be another",
                    hint="expiry= forgets keys that no item has; max_keys= is how many there may be",
                )
            self._count += 1
            shard[key] = _Entry(visit.behind, touched)
            self._enqueue(touched, key)
            visit.before.fill(slot.initial)
        elif self.is_forgotten(entry.touched, now):
            shard[key] = _Entry(visit.behind, touched)
            visit.before.fill(slot.initial)
        else:
            cell = entry.cell
            shard[key] = _Entry(visit.behind, max(entry.touched, touched))
            cell.pass_to(visit.before)
        if slot.expiry is not None:
            self._remove_forgotten(now)

    def shard(self, number: int) -> dict[object, _Entry | None]:
        """Some of the keys."""
        return self._shards[number]  # type: ignore[return-value]

    def forget(self, snapshot: _Snapshot) -> None:
        """Keep nothing for *snapshot* any more."""
        self._snapshots.discard(snapshot)

    def is_forgotten(self, touched: float, now: float) -> bool:
        """Whether a key whose last item was at *touched* is forgotten at *now*."""
        return self.slot.expiry is not None and touched + self.slot.expiry <= now

    def _enqueue(self, touched: float, key: object) -> None:
        if self.slot.expiry is not None:
            self._number += 1
            heappush(self._queue, _Queued(touched, self._number, key))

    def _remove_forgotten(self, now: float) -> None:
        for _ in range(_AT_ONCE):
            if not self._queue or not self.is_forgotten(self._queue[0].touched, now):
                return
            key = heappop(self._queue).key
            number = hash(key) % _NUM_SHARDS
            entry = self._shards[number][key]
            if self.is_forgotten(entry.touched, now):
                if self._snapshots:
                    self._keep_for_snapshots(number, key, entry)
                del self._shards[number][key]
                self._count -= 1
            else:
                self._enqueue(entry.touched, key)

    def _keep_for_snapshots(self, number: int, key: object, entry: _Entry | None) -> None:
        for snapshot in self._snapshots:
            snapshot.keep(number, key, entry)

    def restore(self, held: Held) -> Stage[None]:
        """Have what a snapshot has had, as a stage.

        Raises:
            ValueError, TypeError, LookupError: it is of something else.
        """
        about, values = held.about, held.values
        count = about["chunks"]
        shift = 0.0 if self.slot.time is not None else self._now_s()
        self._time = -math.inf if about["time"] is None else float(about["time"])
        keys, states = unpacked(values[1 : count + 1]), unpacked(values[count + 1 :])
        for i, (key, state, touched) in enumerate(zip(keys, states, values[0], strict=True)):
            key = as_key(key.item() if isinstance(key, np.generic) else key)
            shard = self._shards[hash(key) % _NUM_SHARDS]
            self._count += key not in shard
            shard[key] = _Entry(StateCell(state), float(touched) + shift)
            self._enqueue(float(touched) + shift, key)
            if not i % STRIDE:
                yield


class _Snapshot(HeldContent):
    """A table as it was.

    Attributes:
        time: by which keys are forgotten, when it was behind the items before it.
    """

    __slots__ = ("__weakref__", "_kept", "_keys", "_next", "_states", "_table", "_touched", "time")

    def __init__(self, table: KeyTable) -> None:
        self.time = -math.inf
        self._table = table
        self._next = 0  # the shard that is read next
        self._kept: dict[int, dict[object, _Entry | None]] = {}  # by shard: what has been replaced since
        self._keys: list[object] = []
        self._states: list[object] = []
        self._touched = array("d")

    def keep(self, number: int, key: object, entry: _Entry | None) -> None:
        """Keep the *entry* of *key*, which is about to be replaced; None where there is none."""
        if number >= self._next:
            self._kept.setdefault(number, {}).setdefault(key, entry)

    def content(self) -> Stage[Content]:
        table = self._table
        is_by_items = table.slot.time is not None
        while self._next < _NUM_SHARDS:  # who was cancelled goes on where it was
            self._read(self._next, 0.0 if is_by_items else self.time)
            self._next += 1
            yield
        table.forget(self)
        keys = yield from in_chunks(self._keys, _as_array)
        states = yield from in_chunks(self._states)
        time = self.time if is_by_items and math.isfinite(self.time) else None
        return {"chunks": len(keys), "time": time}, [np.frombuffer(self._touched), *keys, *states]

    def _read(self, number: int, begin: float) -> None:
        table = self._table
        found = {**table.shard(number), **self._kept.pop(number, {})}
        for key, entry in found.items():
            if entry is not None and not table.is_forgotten(entry.touched, self.time):
                self._keys.append(key)
                self._states.append(entry.cell.value)
                self._touched.append(entry.touched - begin)


def _as_array(keys: list[object]) -> object:
    """*keys* packed, as an array where all are integers of 64 bits: it takes less time than JSON."""
    if all(type(key) is int for key in keys):
        with suppress(OverflowError):
            return np.array(keys, np.int64)
    return packed(keys)
