"""LoopLag: how late the event loop wakes those who sleep, for as long as somebody measures it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from asyncexec.framework.clock import NS_PER_MS, NS_PER_S, monotonic_ns

_TICK_S: Final = 0.02


class LoopLag:
    """What was measured, by a clock in nanoseconds.

    Attributes:
        mean_ms, most_ms: how late wake-ups were in the last time that was measured.
    """

    def __init__(self, now_ns: Callable[[], int] = monotonic_ns) -> None:
        self._now_ns = now_ns
        self.mean_ms: float = 0.0
        self.most_ms: float = 0.0

    async def measure(self, seconds: float) -> None:
        """Measure for that long."""
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
