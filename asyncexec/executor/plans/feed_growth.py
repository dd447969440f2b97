"""FeedGrowth: how large the feeds of a compiled step may be.

A product of matrices ten times as long takes a hundred to a thousand times as long; a compiled step calls its nodes one
after the other in the event loop, and looks at none of them before.  So it is for feeds that are not much larger than
those of a step in which none of these nodes had to leave the loop.  All others go to the general executor, which looks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np

from asyncexec.executor.diagnostics.kernel_stats import GROWTH, LITTLE, KernelStats
from asyncexec.graph.node import Tensor

MOST_SIZES: Final = 8  # elements up to which a feed may be meant as sizes, as that of Fill and Range
_MOST: Final = 2**62


class FeedGrowth:
    """What is known of *feeds*, which are those of one signature.

    Args:
        stats: of the general executor's partitions.
        has_sizes: whether nodes make much of little, so that what feeds of few numbers tell may be sizes.

    Attributes:
        sized: the positions of feeds of few numbers that may be sizes, so that their values are to be looked at.
        unsized: of those that may be such, if they turn out to have few.
    """

    __slots__ = ("_begun", "_ignored", "_limit", "_most", "_num_away", "_stats", "sized", "unsized")

    def __init__(self, feeds: Sequence[Tensor], stats: Sequence[KernelStats], *, has_sizes: bool) -> None:
        self._most: dict[int, int] = {}  # by position, of all that are looked at
        self.sized: list[int] = []
        self.unsized: list[int] = []
        for position, tensor in enumerate(feeds):
            num_elements, dtype = tensor.shape.num_elements, tensor.dtype
            may_be_size = has_sizes and (dtype.is_integer or (dtype.is_floating and num_elements == 1))
            if num_elements is None:
                self._most[position] = LITTLE
                self.unsized += [position] * may_be_size
            elif may_be_size and num_elements <= MOST_SIZES:
                self._most[position] = LITTLE
                self.sized.append(position)
        self._stats = stats
        self._ignored: Mapping[KernelStats, Collection[int]] = {}
        self._limit: Callable[[Mapping[int, int]], None] | None = None
        self._begun: dict[int, int] = {}  # the most of the general executor's steps since one of them has ended
        self._num_away = 0

    def __bool__(self) -> bool:
        return bool(self._most)

    def ignore(self, nodes: Mapping[KernelStats, Collection[int]]) -> None:
        """There is a plan with *nodes*, by their ids, on worker threads: that these leave the loop is no matter."""
        if nodes != self._ignored:
            self._ignored = nodes
            self.forget()
        self._num_away = self._count()
        self._begun.clear()  # of steps that are under way it is not known any more whether nodes have left

    def limit_by(self, limit: Callable[[Mapping[int, int]], None]) -> None:
        """Let *limit* know how many bytes the feed at each position may have, now and when that changes."""
        self._limit = limit
        limit(self._most)

    def admits(self, feeds: Sequence[Any]) -> bool:
        """Whether a compiled step may have *feeds*; if not, they are taken for those of a general executor's step."""
        sizes = [(position, self._size(position, feeds[position])) for position in self._most]
        if all(size <= self._most[position] for position, size in sizes):
            return True
        for position, size in sizes:
            self._begun[position] = max(self._begun.get(position, 0), size)
        return False

    def _size(self, position: int, value: Any) -> int:
        """The bytes of *value*, or what it may be meant for if that is more."""
        if not isinstance(value, (np.ndarray, np.generic)):
            return 0
        if position in self.sized or (position in self.unsized and value.size <= MOST_SIZES):
            return max(value.nbytes, _product(value))
        return value.nbytes

    def note_end(self) -> None:
        """Take note of the end of a general executor's step: its feeds are fine if no node has left the loop."""
        num_away = self._count()
        if num_away == self._num_away and self._begun:
            for position, size in self._begun.items():
                self._most[position] = max(self._most[position], min(GROWTH * size, _MOST))
            self._tell()
        self._num_away = num_away
        self._begun.clear()

    def forget(self) -> None:
        """Begin anew: a compiled step was slow, or is another one."""
        self._most = dict.fromkeys(self._most, LITTLE)
        self._begun.clear()
        self._tell()

    def _tell(self) -> None:
        if self._limit is not None:
            self._limit(self._most)

    def _count(self) -> int:
        total = 0
        for stats in self._stats:
            ignored = self._ignored.get(stats, ())
            total += sum(count for item_id, count in stats.num_away.items() if item_id not in ignored)
        return total


def _product(value: Any) -> int:
    """How many elements *value*, of few numbers, stands for if these are sizes."""
    numbers = [int(min(max(each, 1), _MOST)) for each in value.reshape(-1).tolist() if not math.isnan(each)]
    return min(math.prod(numbers), _MOST)
