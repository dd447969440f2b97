"""Clock: what a session measures time by.

Waiting is always the event loop's business (``loop.call_later``).  Measuring is not: uvloop's ``loop.time()`` stands
still while a callback runs, so it cannot tell how long one takes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

monotonic_ns: Final[Callable[[], int]] = time.perf_counter_ns
NS_PER_S: Final = 1_000_000_000
NS_PER_MS: Final = 1_000_000
NS_PER_US: Final = 1_000
_NEVER_NS: Final = 1 << 62


def ns_of_ms(ms: float) -> int:
    """*ms* in nanoseconds; of what is longer than a clock goes, infinity too, the longest."""
    return int(min(ms * NS_PER_MS, _NEVER_NS))


@dataclass(frozen=True, slots=True)
class Clock:
    """Measures how long kernels run, and when a slice is spent.  Timeouts use the time of the event loop instead.

    >>> clock = ax.Clock(now_ns=lambda: 0)
    >>> session = ax.Session(ax.Graph(), clock=clock)

    Attributes:
        now_ns: returns the time in nanoseconds since some moment; it never goes back.
        cpu_ns: returns the processor time that the calling thread has used, in nanoseconds.
    """

    now_ns: Callable[[], int] = monotonic_ns
    cpu_ns: Callable[[], int] = time.thread_time_ns

    def epoch_offset_ns(self) -> int:
        """What to add to ``now_ns()`` to get nanoseconds since 1970."""
        return time.time_ns() - self.now_ns()


CLOCK: Final = Clock()
