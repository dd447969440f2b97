"""An event loop whose clock jumps: an hour of timeouts, retries and back-off passes in a millisecond.

The idea is that of trio's ``MockClock`` with ``autojump_threshold``.  The loop is an ordinary asyncio selector loop,
except for two things:

- ``loop.time()`` is a number that the loop owns.  It stands still while callbacks run, however long they take.
- When nothing is ready and the loop would sleep until its next timer, it sets the clock to that timer instead.

So the order of timers is exact and the same in every run, and a test that sleeps an hour is as fast as one that does
not.  Whatever comes from outside (a socket, a worker thread) takes real time, in which the clock should not jump past
a timeout that guards it.  Hence:

- while a call of ``loop.run_in_executor`` or of a session's worker thread is out, or the work of a device, or the
  threads of the former are joined at the end, the loop waits for that and does not jump (kernels that were slow before
  go to worker threads, and a machine that pauses makes any kernel slow);
- ``autojump_threshold_s`` is the real time the loop listens for other outside events before it jumps: zero, unless told
  otherwise, which is right for tests without sockets and without threads of their own;
- with no timer at all the loop sleeps in the selector like any other, so threads can still wake it.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

from asyncexec.devices.device_events import device_events
from asyncexec.executor.workers.offload import is_awaiting_workers

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class VirtualClockLoop(asyncio.SelectorEventLoop):
    """An asyncio event loop in virtual time; ``asyncio.Runner(loop_factory=VirtualClockLoop)`` runs on it.

    Args:
        start_s: the value of ``time()`` at first.
        autojump_threshold_s: real seconds to listen for outside events before the clock jumps.
        waits_for_workers: whether the clock stands still while a call runs on a worker thread of a session.  False is
            for tests of calls that do not come back in time.

    It raises no errors of its own.  A program that waits for something that never happens, with no timer set, waits
    without end, as on any loop: give such tests a timeout in real time.
    """

    def __init__(
        self, *, start_s: float = 0.0, autojump_threshold_s: float = 0.0, waits_for_workers: bool = True
    ) -> None:
        self._now_s = start_s
        self._autojump_threshold_s = autojump_threshold_s
        self._waits_for_workers = waits_for_workers
        self._executor_calls = 0
        super().__init__(_JumpingSelector(self))

    def time(self) -> float:
        """Virtual seconds."""
        return self._now_s

    def run_in_executor(self, executor: Any, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """Call *func* on a thread of *executor*; the clock stands still until it is done."""
        future = super().run_in_executor(executor, func, *args)
        self._executor_calls += 1
        future.add_done_callback(self._end_executor_call)
        return future

    async def shutdown_default_executor(self, *timeout: object, **timeout_by_name: object) -> None:
        """Join the threads of ``run_in_executor``; since Python 3.12 there is a timeout, and the clock stands still."""
        self._executor_calls += 1
        try:
            await super().shutdown_default_executor(*timeout, **timeout_by_name)
        finally:
            self._executor_calls -= 1

    def _end_executor_call(self, _: asyncio.Future[Any]) -> None:
        self._executor_calls -= 1

    def _select_timeout_s(self, timeout_s: float | None) -> float | None:
        """Real seconds to wait for outside events when the next timer is *timeout_s* away; None is for ever."""
        if timeout_s is None or (timeout_s > 0 and self._is_awaiting_threads()):
            return None
        return min(timeout_s, self._autojump_threshold_s)

    def _is_awaiting_threads(self) -> bool:
        if self._executor_calls or device_events.is_awaited_in(self):
            return True
        return self._waits_for_workers and is_awaiting_workers(self)

    def _jump(self, duration_s: float) -> None:
        self._now_s += duration_s


class _JumpingSelector(selectors.BaseSelector):
    """The platform's selector, but for sleeping: where it would, it moves the loop's clock."""

    def __init__(self, loop: VirtualClockLoop) -> None:
        self._loop = loop
        self._selector = selectors.DefaultSelector()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = self._selector.select(self._loop._select_timeout_s(timeout))
        if not events and timeout:
            self._loop._jump(timeout)
        return events

    def register(self, fileobj: FileDescriptorLike, events: int, data: object = None) -> selectors.SelectorKey:
        return self._selector.register(fileobj, events, data)

    def unregister(self, fileobj: FileDescriptorLike) -> selectors.SelectorKey:
        return self._selector.unregister(fileobj)

    def modify(self, fileobj: FileDescriptorLike, events: int, data: object = None) -> selectors.SelectorKey:
        return self._selector.modify(fileobj, events, data)

    def get_map(self) -> Mapping[FileDescriptorLike, selectors.SelectorKey]:
        return self._selector.get_map()

    def close(self) -> None:
        self._selector.close()
