"""Named concurrency limits, shared by all nodes, steps and sessions that use them.

First come, first served: who finds no slot free waits in the queue, and a slot that is given back goes straight to the
first in it, so that no newcomer gets ahead.  Who is cancelled leaves the queue; if a slot had been given to it just
then, the next one has it.

A call that holds a slot, and runs a graph whose nodes want one of the same limiter, might wait for ever for itself, or
for others that do the same.  It is refused where all slots are held by such calls: as long as one is not, that will be
given back.  So is one that waits, among others, for something that wants a slot, such as a batch: the others do not
notice.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass
from typing import ClassVar, Final, TypeVar
from weakref import WeakKeyDictionary

from asyncexec.framework.callers import Group, callers_around, group_of, groups_with
from asyncexec.framework.errors import FailedPreconditionError, InvalidArgumentError
from asyncexec.framework.parking_lot import ParkingLot, Waiter
from asyncexec.framework.queue_policy import NORMAL, QueuePolicy
from asyncexec.framework.under_way import tells

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class LimiterStatistics:
    """How a limiter stands in one event loop."""

    total: int
    inside: int
    waiting: int


class WaitQueue(ParkingLot):
    """The slots of a limiter, or the places of steps that are let in, in one event loop, and who waits for one.

    Args:
        total: how many there are.
        knows_waiters: whether it can tell what those who wait hold, and whom they work for.
    """

    __slots__ = ("_free", "_groups", "_holders", "_knows_waiters", "_total", "num_entered")

    def __init__(self, total: int, *, knows_waiters: bool = True) -> None:
        super().__init__()
        self._knows_waiters = knows_waiters
        self._total = self._free = total
        self.num_entered: int = 0  # who have a slot by ``async with``
        self._holders: Counter[Slot] = Counter()  # the slots that those who wait are a part of the holders of
        self._groups: Counter[Group] = Counter()  # whom they work for

    @property
    def free(self) -> int:
        return self._free

    def waiting_of(self, priority: int) -> int:
        """How many of *priority* wait."""
        return sum(len(queue) for (_, each), queue in self._queues.items() if each == priority)

    @property
    def has_room(self) -> bool:
        """Whether a newcomer need not wait."""
        return bool(self._free) and not self.num_waking and not self.waiting

    def try_acquire(self) -> bool:
        """Take a slot, if nobody has to wait; whether that is so."""
        if not self.has_room:
            return False
        self._free -= 1
        return True

    async def acquire(self, policy: QueuePolicy | None = None) -> None:
        """Take a slot, as soon as those who came before have had theirs, and those who go before by *policy*.

        Raises:
            UnavailableError: the policy says that it has waited too long.
        """
        if self.try_acquire():
            return
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        context = copy_context() if self._knows_waiters else None
        self._add(waiter, NORMAL if policy is None else (False, policy.priority), context)
        if self._free:
            loop.call_soon(self._let_in)  # after those who are waking up
        timer = None
        if policy is not None and policy.timeout is not None:
            timer = loop.call_later(policy.timeout, self._be_late, waiter, policy)
        try:
            await self._wait(waiter)
        finally:
            if timer is not None:
                timer.cancel()

    def release(self) -> None:
        """Give a slot back: to the first in the queue."""
        self._free += 1
        self._let_in()

    def is_awaited_within(self, groups: set[Group]) -> bool:
        """Whether one of *groups* waits for one who waits in the queue."""
        return not groups.isdisjoint(groups_with(*self._groups))

    def is_stuck(self, slots: Iterable[Slot]) -> bool:
        """Whether no slot is given back any more once the holders of *slots* wait for one who waits in the queue."""
        held = {*slots, *self._holders}
        for group in groups_with(*self._groups):
            held.update(slot for caller in group.callers() for slot in _held_in(caller.context))
        return sum(slot.wait_queue is self and not slot.is_over for slot in held) >= self._total

    def _be_late(self, waiter: Waiter, policy: QueuePolicy) -> None:
        """*waiter* has waited as long as *policy* lets it."""
        if waiter.done() or (removed := self._remove(waiter)) is None:
            return
        if policy.timeout_action == "delay":
            self._add(waiter, (True, policy.priority), *removed)
        else:
            waiter.set_exception(policy.expired())

    def _count(self, context: Context | None, by: int) -> None:
        super()._count(context, by)
        if context is None:
            return
        for slot in context.get(_slots, ()):
            _add(self._holders, slot, by)
        if (group := group_of(context)) is not None:
            _add(self._groups, group, by)

    def _pass_on(self) -> None:
        self.release()

    def _let_in(self) -> None:
        while self._free and self.wake_one():
            self._free -= 1


def _add(counter: Counter[_T], key: _T, by: int) -> None:
    """Count *key*, which is dropped at none."""
    counter[key] += by
    if not counter[key]:
        del counter[key]


class Slot:
    """A slot of *limiter* that a call holds until it is released."""

    __slots__ = ("_is_over", "_limiter", "wait_queue")

    def __init__(self, limiter: Limiter, wait_queue: WaitQueue) -> None:
        self.wait_queue: WaitQueue = wait_queue
        self._limiter = limiter
        self._is_over = False

    @property
    def is_over(self) -> bool:
        return self._is_over

    def release(self) -> None:
        self._is_over = True
        self.wait_queue.release()

    def leave(self) -> None:
        """What is called from now on is no part of the call that holds it, which may go on without its caller."""
        _slots.set(tuple(slot for slot in _slots.get() if slot is not self))

    def error(self) -> FailedPreconditionError:
        """Why what runs within the call that holds it is not to wait for another of the limiter."""
        limiter = self._limiter
        return FailedPreconditionError(
            f"this is run by a call that holds one of the {limiter.total} slots of its limiter {limiter.name or ''!r}, "
            "and no other is free: if all wait for such runs, none ever ends",
            hint="give what runs inside another limiter than what runs it",
        )


# Held by the calls that the running code is a part of; they may be over.
_slots: Final[ContextVar[tuple[Slot, ...]]] = ContextVar("asyncexec_limiter_slots", default=())


def hold_none() -> None:
    """What runs in this context from now on is no part of a call that holds slots: those who wait for it may be."""
    _slots.set(())


def check_wait(groups: set[Group]) -> None:
    """Let nobody wait for *groups*, by way of the running code, who holds a slot that one of them waits for.

    Raises:
        FailedPreconditionError: the running code holds one itself.
    """
    held = _held_in(None)
    for wait_queue in {slot.wait_queue for slot in (*held, *_held_by_callers())}:
        if wait_queue.is_awaited_within(groups):
            _refuse_holders(wait_queue, held)


def _held_in(context: Context | None) -> list[Slot]:
    """The slots that what runs in *context*, by default the running code, is a part of the holders of."""
    slots = _slots.get() if context is None else context.get(_slots, ())
    return [slot for slot in slots if not slot.is_over]


class Limiter:
    """Limits calls to *total* at once in each event loop.  Further calls wait, first come, first served.

    ``limiter="api"`` names a ``Limiter(32, name="api")``.  Code outside graphs takes a slot by ``async with limiter:``.
    Each event loop has slots of its own.

    >>> api = ax.Limiter(2, name="docs-api")
    >>> ax.Limiter.get("docs-api") is api
    True

    Raises:
        InvalidArgumentError: *total* is no number of 1 or more, or a limiter of another size has the name.
    """

    total: int
    name: str | None
    _by_name: ClassVar[dict[str, Limiter]] = {}

    def __init__(self, total: int, *, name: str | None = None) -> None:
        if type(total) is not int or total < 1:
            raise InvalidArgumentError(f"a limiter lets at least 1 through, not {total!r}")
        self.total = total
        self.name = name
        self._wait_queues: WeakKeyDictionary[asyncio.AbstractEventLoop, WaitQueue] = WeakKeyDictionary()
        known = self if name is None else self._by_name.setdefault(name, self)
        if known.total != total:
            raise InvalidArgumentError(f"there is already a limiter {name!r}, of {known.total}")
        self._wait_queues = known._wait_queues  # who makes a limiter of a name that is known shares its slots

    @classmethod
    def get(cls, limiter: Limiter | int | str) -> Limiter:
        """The limiter itself, the limiter of that name, or a new limiter of that size.

        Raises:
            InvalidArgumentError: *limiter* is none of these, or no limiter has that name.
        """
        if isinstance(limiter, Limiter):
            return limiter
        if not isinstance(limiter, str):
            return cls(limiter)
        found = cls._by_name.get(limiter)
        if found is None:
            raise InvalidArgumentError(f"there is no limiter {limiter!r}", hint="make one: ax.Limiter(32, name=...)")
        return found

    def wait_queue(self) -> WaitQueue:
        """The slots in the running event loop."""
        loop = asyncio.get_running_loop()
        found = self._wait_queues.get(loop)
        if found is None:
            found = self._wait_queues[loop] = WaitQueue(self.total)
        return found

    def free_slot(self) -> Slot | None:
        """A slot, for the calls made from now on, if nobody has to wait for one."""
        wait_queue = self.wait_queue()
        return self._held(wait_queue, _held_in(None)) if wait_queue.try_acquire() else None

    @tells(lambda variables: f"waited for limiter {variables['self'].name or 'of its own'}")
    async def slot(self) -> Slot:
        """Wait for a slot, first come, first served, and hold it for the calls made from now on.

        Raises:
            FailedPreconditionError: the running code holds a slot already, and none is free.
        """
        wait_queue = self.wait_queue()
        held = _held_in(None)
        if not wait_queue.has_room:
            _refuse_holders(wait_queue, held)
        await wait_queue.acquire()
        return self._held(wait_queue, held)

    def _held(self, wait_queue: WaitQueue, held: Sequence[Slot]) -> Slot:
        """A slot of *wait_queue* that has been taken, besides those that are *held*."""
        slot = Slot(self, wait_queue)
        _slots.set((*held, slot))
        return slot

    def statistics(self) -> LimiterStatistics:
        """How many calls hold a slot, and how many wait, in the running event loop."""
        wait_queue = self.wait_queue()
        return LimiterStatistics(self.total, self.total - wait_queue.free, wait_queue.waiting)

    async def __aenter__(self) -> None:
        wait_queue = self.wait_queue()
        await wait_queue.acquire()
        wait_queue.num_entered += 1

    async def __aexit__(self, *exc_info: object) -> None:
        # What is left of a closed loop ends wherever it is collected: in no loop, or in one where it has no slot.
        with suppress(RuntimeError):
            wait_queue = self.wait_queue()
            if wait_queue.num_entered:
                wait_queue.num_entered -= 1
                wait_queue.release()

    def __repr__(self) -> str:
        return f"<ax.Limiter {self.name or ''} of {self.total}>"


def _held_by_callers() -> Iterator[Slot]:
    """The slots that those who wait for the running code are a part of the holders of."""
    for caller in callers_around():
        yield from _held_in(caller.context)


def _refuse_holders(wait_queue: WaitQueue, held: Iterable[Slot]) -> None:
    """Let one with a slot of *wait_queue* not wait for the running code, which is to wait in it, if all would for ever.

    The running code holds *held*.  One is enough: the slot that it gives back is for the others.

    Raises:
        FailedPreconditionError: it has one itself.
    """
    mine = [slot for slot in held if slot.wait_queue is wait_queue]
    others = [slot for slot in _held_by_callers() if slot.wait_queue is wait_queue]
    if not (mine or others) or not wait_queue.is_stuck((*mine, *others)):
        return
    for slot in mine:
        raise slot.error()
    for caller in callers_around():
        for slot in _held_in(caller.context):
            if slot.wait_queue is wait_queue:
                caller.fail(slot.error())
                return
