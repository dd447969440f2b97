"""LocalRendezvous: a table of values and waiters, for one event loop.

After ``tensorflow/core/framework/local_rendezvous.cc``.  A key has values, or waiters, or neither; never both.  Nearly
always it has one of them, once, so the table holds the item itself, and a queue only where a second comes: a pair of
send and receive is two operations on a dict.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable, Iterable
from typing import TypeAlias, TypeVar

from anyio import WouldBlock

from asyncexec.framework.derived import make_derived
from asyncexec.framework.errors import CancelledError, OpError
from asyncexec.framework.rendezvous import (
    NO_ARGS,
    DoneCallback,
    Received,
    RendezvousArgs,
    RendezvousStatistics,
    RendezvousWaiter,
)
from asyncexec.framework.under_way import tells

T = TypeVar("T")
# One item, or a queue of two and more.
_Table: TypeAlias = dict[Hashable, T | deque[T]]


def recv_is_cancelled() -> CancelledError:
    """What a waiter gets that was cancelled."""
    return make_derived(CancelledError("RecvAsync is cancelled."))


class Waiter:
    """A Recv in the table, which ends by a call of *done*."""

    __slots__ = ("_done", "_rendezvous", "key")

    def __init__(self, rendezvous: LocalRendezvous, key: Hashable, done: DoneCallback) -> None:
        self._done = done
        self._rendezvous = rendezvous
        self.key: Hashable = key

    def cancel(self) -> bool:
        """Take it out of the table and call back; False when it is no longer there."""
        was_waiting = self._rendezvous._remove_waiter(self)
        if was_waiting:
            self.fail(recv_is_cancelled())
        return was_waiting

    def offer(self, item: Received) -> bool:
        """Whether it takes *item*."""
        self._done(None, item)
        return True

    def fail(self, error: OpError) -> None:
        """End with *error*."""
        self._done(error, None)


class AwaitedWaiter:
    """A Recv in the table that a task awaits; the task may be cancelled, and not yet have run to hear of it."""

    __slots__ = ("future", "key")

    def __init__(self, key: Hashable) -> None:
        self.key: Hashable = key
        self.future: asyncio.Future[Received] = asyncio.get_running_loop().create_future()

    def offer(self, item: Received) -> bool:
        if self.future.cancelled():
            return False
        self.future.set_result(item)
        return True

    def fail(self, error: OpError) -> None:
        if not self.future.cancelled():
            self.future.set_exception(error)


AnyWaiter: TypeAlias = Waiter | AwaitedWaiter


class LocalRendezvous:
    """A rendezvous whose both sides are in one event loop, in one memory."""

    __slots__ = ("_error", "_sent", "_waiting")

    def __init__(self) -> None:
        self._sent: _Table[Received] = {}
        self._waiting: _Table[AnyWaiter] = {}
        self._error: OpError | None = None

    @property
    def error(self) -> OpError | None:
        return self._error

    @property
    def has_in_flight(self) -> bool:
        """Whether something may still come although nobody here does anything."""
        return False

    def send(self, key: Hashable, value: object, is_dead: bool = False, args: RendezvousArgs = NO_ARGS) -> None:
        """Give *value* to the first who waits for *key*, or keep it; raises the abort's error after one."""
        if self._error is not None:
            raise make_derived(self._error)
        item = (value, is_dead, args)
        if self._waiting and self._offer(key, item):
            return
        if self._sent.setdefault(key, item) is not item:
            _queue(self._sent, key).append(item)

    def recv_nowait(self, key: Hashable, args: RendezvousArgs = NO_ARGS) -> Received:
        """The next value sent on *key*; ``anyio.WouldBlock`` when there is none yet."""
        if self._error is not None:
            raise make_derived(self._error)
        if key not in self._sent:
            raise WouldBlock
        return _take_first(self._sent, key)

    def recv_async(self, key: Hashable, args: RendezvousArgs, done: DoneCallback) -> RendezvousWaiter | None:
        """Have *done* called with the next value sent on *key*; None when it has been called already."""
        if self._error is not None:
            done(make_derived(self._error), None)
        elif key in self._sent:
            done(None, _take_first(self._sent, key))
        else:
            waiter = Waiter(self, key, done)
            self._add_waiter(waiter)
            return waiter
        return None

    @tells(lambda _: "waited for a value of another device")
    async def recv(self, key: Hashable, args: RendezvousArgs = NO_ARGS) -> Received:
        """The next value sent on *key*."""
        if self._error is not None:
            raise make_derived(self._error)
        if key in self._sent:
            return _take_first(self._sent, key)
        waiter = AwaitedWaiter(key)
        self._add_waiter(waiter)
        try:
            return await waiter.future
        except asyncio.CancelledError:
            future = waiter.future
            # The value may have come in the same turn of the loop: then it is as if this one had never waited.
            if not self._remove_waiter(waiter) and not future.cancelled() and future.exception() is None:
                self.put_back(key, future.result())
            raise
        finally:
            del waiter  # it holds the error, whose traceback holds this frame

    def put_back(self, key: Hashable, item: Received) -> None:
        """Undo a receive: *item* goes to the first who waits, or is the next value on *key* again."""
        if self._error is not None or self._offer(key, item):
            return
        if self._sent.setdefault(key, item) is not item:
            _queue(self._sent, key).appendleft(item)

    def peek(self, key: Hashable) -> Received | None:
        """The value that the next receive on *key* will get, if it is there."""
        found = self._sent.get(key)
        return found[0] if isinstance(found, deque) else found

    def start_abort(self, error: OpError) -> None:
        """Drop every value and wake every waiter with *error*; calls that come later get it too."""
        if self._error is not None:
            return
        self._error = error
        waiters = list(_all_of(self._waiting))
        self._waiting.clear()
        self._sent.clear()
        for waiter in waiters:
            waiter.fail(make_derived(error))

    def statistics(self) -> RendezvousStatistics:
        """How many values wait to be received, and how many wait for one."""
        return RendezvousStatistics(sum(map(_count, self._sent.values())), sum(map(_count, self._waiting.values())))

    def unreceived(self) -> list[str]:
        """The keys of the values that nobody has received."""
        return [str(key) for key, found in self._sent.items() for _ in range(_count(found))]

    def _offer(self, key: Hashable, item: Received) -> bool:
        """Whether somebody who waits for *key* has taken *item*."""
        while key in self._waiting:
            if _take_first(self._waiting, key).offer(item):
                return True
        return False

    def _add_waiter(self, waiter: AnyWaiter) -> None:
        if self._waiting.setdefault(waiter.key, waiter) is not waiter:
            _queue(self._waiting, waiter.key).append(waiter)

    def _remove_waiter(self, waiter: AnyWaiter) -> bool:
        found = self._waiting.get(waiter.key)
        if found is waiter:
            del self._waiting[waiter.key]
        elif isinstance(found, deque) and waiter in found:
            found.remove(waiter)
            if not found:
                del self._waiting[waiter.key]
        else:
            return False
        return True


def _take_first(table: _Table[T], key: Hashable) -> T:
    found = table.pop(key)
    if not isinstance(found, deque):
        return found
    first = found.popleft()
    if found:
        table[key] = found
    return first


def _queue(table: _Table[T], key: Hashable) -> deque[T]:
    """What the table has under *key*, as a queue that stays there."""
    found = table[key]
    if not isinstance(found, deque):
        found = table[key] = deque((found,))
    return found


def _count(found: object) -> int:
    return len(found) if isinstance(found, deque) else 1


def _all_of(table: _Table[T]) -> Iterable[T]:
    for found in table.values():
        if isinstance(found, deque):
            yield from found
        else:
            yield found
