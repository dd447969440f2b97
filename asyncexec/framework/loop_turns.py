"""LoopTurns: work in many short parts, of which no more begin in one turn of the event loop than fit in a slice.

Each part is a task that holds the loop for a moment, but all that are ready run in one turn: ten thousand of them hold
it for seconds.  So a part asks first.  As long as the turn has time left it begins at once; else it waits, and in each
of the next turns as many begin as the turns before had time for.

Of one group, who came last begins first: recursion that branches goes deep before it goes wide, and so has few calls
under way at a time.  Groups take turns.
"""

from __future__ import annotations

import asyncio
from typing import Final

from asyncexec.framework.clock import Clock
from asyncexec.framework.cooperative import SLICE_NS

_MOST: Final = 64  # parts in one turn


class LoopTurns:
    """The turns of one event loop at a time; what waits in a loop that is closed is forgotten.

    Args:
        clock: measures the turns.
        slice_ns: how long the parts of one turn may take in all.
    """

    __slots__ = ("_began_ns", "_clock", "_loop", "_num_next", "_slice_ns", "_waiting")

    def __init__(self, clock: Clock, slice_ns: int = SLICE_NS) -> None:
        self._clock = clock
        self._slice_ns = slice_ns
        self._loop: asyncio.AbstractEventLoop | None = None  # in which there is a next turn to come
        self._began_ns = 0
        self._num_next = 1
        self._waiting: dict[object, list[asyncio.Future[None]]] = {}

    async def enter(self, group: object) -> None:
        """Wait until there is time for another part, of *group*."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._waiting.clear()
            self._num_next = 1
            self._begin(loop)
        elif self._clock.now_ns() - self._began_ns > self._slice_ns:
            waiter = loop.create_future()
            self._waiting.setdefault(group, []).append(waiter)
            await waiter

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._began_ns = self._clock.now_ns()
        loop.call_soon(self._go_on, loop)

    def _go_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let others begin, behind those of the last turn."""
        if loop is not self._loop:
            return
        elapsed_ns = self._clock.now_ns() - self._began_ns
        if elapsed_ns > self._slice_ns:
            self._num_next = max(1, self._num_next * self._slice_ns // elapsed_ns)
        else:
            self._num_next = min(_MOST, 2 * self._num_next)
        num_left = self._num_next
        while num_left and self._waiting:
            num_left -= self._wake_one()
        if num_left == self._num_next:
            self._loop = None
        else:
            self._begin(loop)  # called after those that were woken

    def _wake_one(self) -> bool:
        """Wake who came last of the first group, which goes behind the others; False if he has been cancelled."""
        group = next(iter(self._waiting))
        waiters = self._waiting.pop(group)
        waiter = waiters.pop()
        if waiters:
            self._waiting[group] = waiters
        if waiter.done():
            return False
        waiter.set_result(None)
        return True
