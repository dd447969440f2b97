"""The source of time for measuring: a monotonic clock in nanoseconds.

Waiting is always the event loop's business (``loop.call_later``).  Measuring is not: uvloop's ``loop.time()`` stands
still
while a callback runs, so it cannot tell how long one takes.
"""

from __future__ import annotations

import time
from typing import Final

monotonic_ns = time.perf_counter_ns
NS_PER_S: Final = 1_000_000_000
NS_PER_MS: Final = 1_000_000
NS_PER_US: Final = 1_000


def epoch_offset_ns() -> int:
    """What to add to ``monotonic_ns()`` to get nanoseconds since 1970."""
    return time.time_ns() - monotonic_ns()
