"""LoopLag: how late the event loop is with what is due."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable
from typing import Final

from asyncexec.framework.clock import NS_PER_MS, NS_PER_S, monotonic_ns

BOUNDS_MS: Final = (1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500)  # upper bounds of the histogram
_BOUNDS_NS: Final = tuple(round(bound * NS_PER_MS) for bound in BOUNDS_MS)
_EVERY_S: Final = 0.1
_TICK_S: Final = 0.02


class LoopLag:
    """What was measured, by a clock in nanoseconds: ten times a second from start() to stop(), and by measure().

    A timer has a grain of a millisecond.

    Attributes:
        last_ns: how late the loop was when it was looked at last, after start().
        total_ns: how late it was, all these looks together.
        counts: these looks by how late it was: one for each of BOUNDS_MS, and one for those beyond.
        mean_ms, most_ms: how late wake-ups were in the last measure().
    """

    def __init__(self, now_ns: Callable[[], int] = monotonic_ns) -> None:
        self._now_ns = now_ns
        self.last_ns: int = 0
        self.total_ns: int = 0
        self.counts: list[int] = [0] * (len(BOUNDS_MS) + 1)
        self.mean_ms: float = 0.0
        self.most_ms: float = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Look at the running loop from now on."""
        if self._timer is None:
            self._look_later(asyncio.get_running_loop())

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def note(self, late_ns: int) -> None:
        """The loop was so late."""
        self.last_ns = late_ns = max(0, late_ns)
        self.total_ns += late_ns
        self.counts[bisect_left(_BOUNDS_NS, late_ns)] += 1

    def _look_later(self, loop: asyncio.AbstractEventLoop) -> None:
        due_ns = self._now_ns() + round(_EVERY_S * NS_PER_S)
        self._timer = loop.call_later(_EVERY_S, self._look, loop, due_ns)

    def _look(self, loop: asyncio.AbstractEventLoop, due_ns: int) -> None:
        self.note(self._now_ns() - due_ns)
        self._look_later(loop)

    async def measure(self, seconds: float) -> None:
        """Measure for that long, more often: for somebody who looks."""
        now_ns = self._now_ns()
        end_ns = now_ns + round(seconds * NS_PER_S)
        late_ns: list[int] = []
        while now_ns < end_ns:
            due_ns = min(end_ns, now_ns + round(_TICK_S * NS_PER_S))
            await asyncio.sleep((due_ns - now_ns) / NS_PER_S)
            now_ns = self._now_ns()
            late_ns.append(max(0, now_ns - due_ns))
        self.mean_ms, self.most_ms = (
            sum(late_ns) / max(1, len(late_ns)) / NS_PER_MS,
            max(late_ns, default=0) / NS_PER_MS,
        )
