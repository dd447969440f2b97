"""Waiters: coroutines that wait for a condition, first come, first served.

Each looks again at its condition when it is woken.  One that is cancelled after it was woken wakes the next: a wake-up
is never lost with who got it (``asyncio.Condition`` and ``asyncio.Queue`` do the same).
"""

from __future__ import annotations

import asyncio
from collections import deque


class Waiters:
    """A line of coroutines.

    Attributes:
        line: who waits; whoever wakes them may ask first whether there is anybody.
        num_waking: how many have been woken, and have not run since.
    """

    __slots__ = ("_loop", "line", "num_waking")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.line: deque[asyncio.Future[None]] = deque()
        self.num_waking: int = 0

    async def wait(self) -> None:
        """Wait until it is this coroutine's turn."""
        future = self._loop.create_future()
        self.line.append(future)
        try:
            await future
        except BaseException:
            if future.done() and not future.cancelled():
                self.num_waking -= 1
                if not self._loop.is_closed():
                    self.wake_one()
            elif future in self.line:
                self.line.remove(future)
            raise
        self.num_waking -= 1

    def wake_one(self) -> None:
        """Let the first in the queue go on."""
        while self.line:
            future = self.line.popleft()
            if not future.done():
                future.set_result(None)
                self.num_waking += 1
                return

    def wake_all(self) -> None:
        """Let everybody go on."""
        while self.line:
            self.wake_one()
