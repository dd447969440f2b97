"""Clock: what a session measures time by.

Waiting is always the event loop's business (``loop.call_later``).  Measuring is not: uvloop's ``loop.time()`` stands
still while a callback runs, so it cannot tell how long one takes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

monotonic_ns = time.perf_counter_ns
NS_PER_S: Final = 1_000_000_000
NS_PER_MS: Final = 1_000_000
NS_PER_US: Final = 1_000


@dataclass(frozen=True, slots=True)
class Clock:
    """What a session measures by how long kernels run, and when a slice is spent.  What waits, waits by the loop.

    Attributes:
        now_ns: gives the time, in nanoseconds since some moment; it never goes back.
        cpu_ns: gives the processor time that the thread which asks has used, in nanoseconds.
    """

    now_ns: Callable[[], int] = monotonic_ns
    cpu_ns: Callable[[], int] = time.thread_time_ns

    def epoch_offset_ns(self) -> int:
        """What to add to ``now_ns()`` to get nanoseconds since 1970."""
        return time.time_ns() - self.now_ns()


CLOCK: Final = Clock()
