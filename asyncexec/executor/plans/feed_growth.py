"""FeedGrowth: how large the feeds of a compiled step may be.

A product of matrices ten times as long takes a hundred to a thousand times as long; a compiled step calls its nodes one
after the other in the event loop, and looks at none of them before.  So it is for feeds that are not much larger than
those of a step in which none of these nodes had to leave the loop.  All others go to the general executor, which looks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np

from asyncexec.executor.diagnostics.kernel_stats import GROWTH, LITTLE, KernelStats
from asyncexec.graph.node import Tensor

_MOST_SIZES: Final = 16  # elements up to which a feed of integers may be meant as sizes, as that of Fill and Range


class FeedGrowth:
    """What is known of *feeds*, which are those of one signature.

    Args:
        stats: of the general executor's partitions.
        has_sizes: whether nodes make much of little, so that what feeds of few integers tell may be sizes.

    Attributes:
        has_sizes: whether there are such feeds, so that values are to be looked at.
    """

    __slots__ = (
        "_begun",
        "_ignored",
        "_limit",
        "_most",
        "_num_away",
        "_positions",
        "_seen",
        "_sizes",
        "_stats",
        "has_sizes",
    )

    def __init__(self, feeds: Sequence[Tensor], stats: Sequence[KernelStats], *, has_sizes: bool) -> None:
        self._positions: list[int] = []  # of feeds whose size differs from run to run
        self._sizes: list[int] = []  # of feeds that may be sizes
        for position, tensor in enumerate(feeds):
            num_elements = tensor.shape.num_elements
            if num_elements is None:
                self._positions.append(position)
            elif has_sizes and num_elements <= _MOST_SIZES and tensor.dtype.is_integer:
                self._sizes.append(position)
        self.has_sizes = bool(self._sizes)
        self._stats = stats
        self._ignored: Mapping[KernelStats, Collection[int]] = {}
        self._limit: Callable[[int], None] | None = None
        self._most = LITTLE
        self._begun = 0  # the most bytes of the general executor's steps since one of them has ended
        self._seen = 0  # the most bytes of all these steps
        self._num_away = 0

    def __bool__(self) -> bool:
        return bool(self._positions or self._sizes)

    def ignore(self, nodes: Mapping[KernelStats, Collection[int]]) -> None:
        """From now on *nodes*, by their ids, do not matter: a compiled step does not call them in the event loop."""
        self._ignored = nodes
        self._num_away = self._count()
        if not self._num_away:
            self._set_most(max(self._most, GROWTH * self._seen))

    def limit_by(self, limit: Callable[[int], None]) -> None:
        """Let *limit* know how many bytes each feed may have, now and when that changes."""
        self._limit = limit
        self._set_most(self._most)

    def admits(self, feeds: Sequence[Any]) -> bool:
        """Whether a compiled step may have *feeds*; if not, they are taken for those of a general executor's step."""
        total = 0
        for position in self._positions:
            value = feeds[position]
            if isinstance(value, np.ndarray):
                total += value.nbytes
        for position in self._sizes:
            value = feeds[position]
            if isinstance(value, np.generic):
                total += max(0, int(value))
            elif isinstance(value, np.ndarray):
                total += max(0, int(value.max(initial=0)))
        if total <= self._most:
            return True
        self._begun = max(self._begun, total)
        return False

    def note_end(self) -> None:
        """Take note of the end of a general executor's step: its feeds are fine if no node has left the loop."""
        num_away = self._count()
        if num_away == self._num_away:
            self._set_most(max(self._most, GROWTH * self._begun))
        self._seen = max(self._seen, self._begun)
        self._num_away, self._begun = num_away, 0

    def forget(self) -> None:
        """Begin anew: a compiled step was slow."""
        self._set_most(LITTLE)
        self._begun = self._seen = 0

    def _set_most(self, num_bytes: int) -> None:
        self._most = num_bytes
        if self._limit is not None:
            self._limit(num_bytes // max(1, len(self._positions)))

    def _count(self) -> int:
        total = 0
        for stats in self._stats:
            ignored = self._ignored.get(stats, ())
            total += sum(count for item_id, count in stats.num_away.items() if item_id not in ignored)
        return total
