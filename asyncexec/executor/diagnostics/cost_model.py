"""CostModel: from which cost on a kernel is worth a worker thread, and what its runs say of its cost."""

from __future__ import annotations

from typing import Final

from asyncexec.framework.clock import NS_PER_S, ns_of_ms
from asyncexec.framework.errors import InvalidArgumentError

# One sample counts for a quarter, and never for more than so many times the limit: what was slow is soon forgotten.
_SAMPLE_CAP: Final = 8
# A sample alone counts for less than the limit, so that it takes two: it may have been a pause of the machine, or what
# a kernel does in its first call only.
_LONE_SAMPLE_CAP: Final = 3
_LONE_SHARE: Final = 4  # a sample is alone where the average before it is less than this part of the limit
# Inline, only runs that were not cheap are samples: to note the others would cost more than they do.  What those would
# have done to the average, time does; else pauses of the machine, hours apart, would add up.
_HALF_LIFE_NS: Final = NS_PER_S
_STAY: Final = 1.5


class CostModel:
    """Measures sync kernels, and decides which are cheap enough for the event loop.  Worker threads run the others.

    A kernel that was never measured runs in the loop, unless its inputs or outputs are so large that it is likely to
    take longer than *expensive_ms*.  It moves to a worker thread after two runs, not far apart, that took longer, and
    back to the loop when its runs on the thread have become cheap.  An expensive one, or a whole plan, that was cheap
    in the loop leaves it once it takes half as long again.

    >>> session = ax.Session(ax.Graph(), cost_model=ax.CostModel(expensive_ms=2.0))

    Args:
        expensive_ms: how long a cheap kernel may take; with ``math.inf`` no kernel moves to a thread.

    Raises:
        InvalidArgumentError: *expensive_ms* is not above 0.
    """

    __slots__ = ("expensive_ns", "leave_ns")

    def __init__(self, expensive_ms: float = 0.5) -> None:
        if not expensive_ms > 0:
            raise InvalidArgumentError(f"expensive_ms is above 0, not {expensive_ms!r}")
        self.expensive_ns: Final = ns_of_ms(expensive_ms)
        # From which on what is in the loop leaves it: what is at the limit would go to and fro, which costs more.
        self.leave_ns: Final = _STAY * self.expensive_ns

    def average(self, cost_ns: int, elapsed_ns: int, since_ns: int, *, is_certain: bool = False) -> int:
        """*cost_ns*, a moving average, after another sample so long after the last one.

        Args:
            is_certain: whether the kernel, and no pause of the machine, took that time.
        """
        cost_ns = int(cost_ns * 0.5 ** (since_ns / _HALF_LIFE_NS))
        is_alone = not is_certain and _LONE_SHARE * cost_ns < self.expensive_ns
        cap_ns = (_LONE_SAMPLE_CAP if is_alone else _SAMPLE_CAP) * self.expensive_ns
        return cost_ns + (min(elapsed_ns, cap_ns) - cost_ns) // 4
