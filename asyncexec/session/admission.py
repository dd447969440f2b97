"""AdmissionControl: how many steps of a session may be under way, and the queue of those that wait for their turn.

What a step runs within itself (a kernel that calls ``session.run``, the body of a ``partial_run``) is a part of that
step: it does not queue behind it, which would be to wait for itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context, ContextVar, copy_context
from typing import Final, TypeVar

from asyncexec.framework.callers import callers_around
from asyncexec.framework.clock import CLOCK
from asyncexec.framework.errors import CancelledError, ResourceExhaustedError
from asyncexec.framework.limiter import WaitQueue
from asyncexec.framework.queue_policy import QueuePolicy
from asyncexec.framework.under_way import tells

T = TypeVar("T")


class _Visitors:
    """Those who are inside, or wait in the queue.

    Attributes:
        wait_queue: in which they wait for their turn, if places are limited.
        count: how many there are.
        all_have_left: set when there are none any more, if somebody waits for that.
    """

    __slots__ = ("all_have_left", "count", "wait_queue")

    def __init__(self, max_inside: int | None) -> None:
        self.wait_queue: WaitQueue | None = None if max_inside is None else WaitQueue(max_inside, knows_waiters=False)
        self.count: int = 0
        self.all_have_left: asyncio.Event | None = None

    def depart(self) -> None:
        """One of them leaves."""
        self.count -= 1
        if not self.count and self.all_have_left is not None:
            self.all_have_left.set()


class Admission:
    """That someone was let in, as one of *visitors*, after *waited_ns*; good until given back."""

    __slots__ = ("has_slot", "is_over", "visitors", "waited_ns")

    def __init__(self, visitors: _Visitors, *, has_slot: bool, waited_ns: int = 0) -> None:
        self.visitors: _Visitors = visitors
        self.has_slot: bool = has_slot
        self.waited_ns: int = waited_ns
        self.is_over: bool = False


# Of the steps that the running code is a part of; they may be over.
_admissions: Final[ContextVar[tuple[Admission, ...]]] = ContextVar("asyncexec_admissions", default=())


def last_wait_ns() -> int:
    """How long the last call of a session by the running code, which may have ended, waited for its turn."""
    admissions = _admissions.get()
    return admissions[-1].waited_ns if admissions else 0


class StreamAdmission:
    """One who is inside: a stream, from its first item on; its items take places of *wait_queue*, if any, like steps.

    An item waits for its place as a call does, but is never refused: the window of its stream bounds how many wait.
    What runs within the items is a part of the stream, and so does not queue.
    """

    __slots__ = ("_admission", "_control", "_visitors", "wait_queue")

    def __init__(self, control: AdmissionControl, visitors: _Visitors, wait_queue: WaitQueue | None) -> None:
        self._control = control
        self.wait_queue: WaitQueue | None = wait_queue
        self._visitors = visitors
        self._admission = Admission(visitors, has_slot=False)

    def is_inside(self) -> bool:
        """Whether the running code is a part of the stream."""
        return self._admission in _admissions.get()

    def context(self) -> Context:
        """A copy of the current context, for what is a part of the stream."""
        context = copy_context()
        context.run(_note, self._admission)
        return context

    async def run(self, step: Callable[[], Awaitable[T]]) -> T:
        """What *step*, a part of the stream, gives; it takes a place like an item.

        It is one who is inside itself: where the stream ends before it, what runs in it does not queue behind it.
        """
        visitors, wait_queue = self._visitors, self.wait_queue
        visitors.count += 1
        try:
            if wait_queue is not None:
                await wait_queue.acquire()
        except BaseException:
            visitors.depart()
            raise
        admission = Admission(visitors, has_slot=wait_queue is not None)
        token = _admissions.set((*_admissions.get(), self._admission, admission))
        try:
            return await step()
        finally:
            _admissions.reset(token)
            self._control.leave(admission)

    def end(self) -> None:
        """The stream has ended."""
        self._control.leave(self._admission)


def _note(admission: Admission) -> None:
    """Let the running code be a part of *admission*."""
    _admissions.set((*[known for known in _admissions.get() if not known.is_over], admission))


class AdmissionControl:
    """Lets so many in at a time, first come, first served, but for those whose QueuePolicy says else.

    Args:
        max_inside: how many; None for any number.
        max_waiting: how many may wait in the queue; None for any number.
    """

    def __init__(self, max_inside: int | None = None, max_waiting: int | None = None) -> None:
        self._max_inside = max_inside
        self._max_waiting = max_waiting
        self._visitors = _Visitors(max_inside)
        self._is_closed = False
        self._is_locked = False

    @property
    def is_closed(self) -> bool:
        """Whether nobody from outside is let in any more."""
        return self._is_closed

    @property
    def waiting(self) -> int:
        """How many wait in the queue."""
        wait_queue = self._visitors.wait_queue
        return 0 if wait_queue is None else wait_queue.waiting

    @property
    def is_inside(self) -> bool:
        """Whether the running code is a part of a step that was let in."""
        return self._parent() is not None

    @property
    def is_in_use(self) -> bool:
        """Whether anybody is inside or in the queue."""
        return self._visitors.count > 0

    def drop_loop(self) -> None:
        """Let others have the places of those inside and in the queue: their loop is closed."""
        self._visitors = _Visitors(self._max_inside)

    def close(self) -> None:
        """Refuse all who come from now on, but for those who come from a step that is under way."""
        self._is_closed = True

    def lock(self) -> None:
        """Refuse those in the queue, too."""
        self._is_closed = self._is_locked = True

    def check_open(self) -> None:
        """Raise CancelledError if nobody is let in any more."""
        if self._is_locked or (self._is_closed and not self.is_inside):
            raise CancelledError("Session has been closed.", hint="call it inside of the session's 'async with' block")

    @tells(lambda _: "it waited to be let in: max_concurrent_steps were under way")
    async def enter(self, policy: QueuePolicy | None = None) -> Admission:
        """Wait for one's turn, by *policy*; who is let in calls ``leave`` with what this gives.

        Raises:
            ResourceExhaustedError: the queue is full.
            UnavailableError: it is full by the policy, or the policy lets nobody wait so long.
            CancelledError: the session has been closed.
        """
        self.check_open()
        visitors = self._visitors
        wait_queue = None if self.is_inside else visitors.wait_queue
        if wait_queue is not None:
            self._check_queue(wait_queue, policy)
        visitors.count += 1
        waited_ns = 0
        try:
            if wait_queue is not None and not wait_queue.try_acquire():
                begin_ns = CLOCK.now_ns()
                await wait_queue.acquire(policy)
                waited_ns = CLOCK.now_ns() - begin_ns
        except BaseException:
            visitors.depart()
            raise
        admission = Admission(visitors, has_slot=wait_queue is not None, waited_ns=waited_ns)
        if self._is_locked:  # while this waited
            self.leave(admission)
            raise CancelledError("Session has been closed.")
        _note(admission)
        return admission

    def enter_at_once(self) -> Admission:
        """Let in what those inside wait for: it takes no place, and what runs in it does not queue.

        Raises:
            CancelledError: the session has been closed.
        """
        if self._is_locked:
            self.check_open()
        self._visitors.count += 1
        admission = Admission(self._visitors, has_slot=False)
        _note(admission)
        return admission

    def admit_stream(self) -> StreamAdmission:
        """Let a stream in, whose items are to wait for their turn; CancelledError if the session has been closed."""
        self.check_open()
        visitors = self._visitors
        visitors.count += 1
        return StreamAdmission(self, visitors, None if self.is_inside else visitors.wait_queue)

    def leave(self, admission: Admission) -> None:
        """Let the next one in."""
        admission.is_over = True
        visitors = admission.visitors
        if admission.has_slot and visitors.wait_queue is not None:
            visitors.wait_queue.release()
        visitors.depart()

    async def wait_until_all_have_left(self) -> None:
        """Returns when nobody is inside or in the queue."""
        visitors = self._visitors
        if visitors.count:
            if visitors.all_have_left is None or visitors.all_have_left.is_set():
                visitors.all_have_left = asyncio.Event()  # one for all who wait
            await visitors.all_have_left.wait()

    def _parent(self) -> Admission | None:
        own = (known for known in _admissions.get() if self._is_here(known))
        theirs = (known for caller in callers_around() for known in caller.context.get(_admissions, ()))
        return next(own, None) or next(filter(self._is_here, theirs), None)

    def _is_here(self, admission: Admission) -> bool:
        return admission.visitors is self._visitors and not admission.is_over

    def _check_queue(self, wait_queue: WaitQueue, policy: QueuePolicy | None) -> None:
        if self._max_waiting is not None and not wait_queue.free and wait_queue.waiting >= self._max_waiting:
            raise ResourceExhaustedError(
                f"{self._max_inside} steps are under way and {wait_queue.waiting} wait for their turn",
                hint="call later, or raise max_concurrent_steps or max_queued_steps of the SessionConfig",
            )
        if policy is not None and not wait_queue.free:
            policy.check_room(wait_queue.waiting_of(policy.priority))
