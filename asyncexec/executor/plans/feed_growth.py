"""FeedGrowth: how large the feeds of a compiled step may be.

A product of matrices ten times as long takes a hundred to a thousand times as long; a compiled step calls its nodes one
after the other in the event loop, and looks at none of them before.  So it is for feeds that are not much larger than
those of a step in which none of these nodes had to leave the loop.  What is computed of a number that is fed may be the
size of an array.  Where sums and products alone lie between, it is for numbers up to a little more than those of such
a step; else how large that is for another number is not known, and it is for the very same.  All others go to the
general executor, which looks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from asyncexec.compilation.size_inputs import Role
from asyncexec.executor.diagnostics.kernel_stats import GROWTH, LITTLE, KernelStats, num_bytes
from asyncexec.framework.types import string
from asyncexec.graph.node import Tensor

Key: TypeAlias = tuple[Any, ...]

_MOST_KEYS: Final = 4096
_LONGEST: Final = 1024  # bytes of numbers that are compared
# Times the product of numbers of before, up to which what is as large as some of them is likely to be quick.
_SIZE_GROWTH: Final = 1.25
_MOST_FACTORS: Final = 4  # of a feed: more are compared, as all of them may grow
_NONE: Final[Mapping[int, Role]] = MappingProxyType({})


class BegunStep(NamedTuple):
    """What is known of a general executor's step when it begins.

    Attributes:
        sizes: of the feeds that have limits.
        key: the numbers that may tell of sizes, if it is not known how; product: of the others.
        num_away: how many calls had left the loop, and epoch: since when that is counted.
    """

    sizes: Mapping[int, int]
    key: Key | None
    product: float
    num_away: int
    epoch: int


class FeedGrowth:
    """What is known of *feeds*, which are those of one signature.

    Args:
        stats: of the general executor's partitions.
        of_sizes: by position, the feeds whose values may tell how large an array is.

    Attributes:
        of_sizes: the same.
    """

    __slots__ = (
        *("_epoch", "_factors", "_ignored", "_keys", "_largest", "_limit", "_most", "_most_product", "_others"),
        *("_stats", "of_sizes"),
    )

    def __init__(
        self, feeds: Sequence[Tensor], stats: Sequence[KernelStats], *, of_sizes: Mapping[int, Role] = _NONE
    ) -> None:
        self._most: dict[int, int] = {
            position: LITTLE
            for position, tensor in enumerate(feeds)
            if tensor.shape.num_elements is None or tensor.dtype.base_dtype is string
        }
        self.of_sizes: Mapping[int, Role] = of_sizes
        self._largest = [position for position, role in of_sizes.items() if role is Role.LARGEST]
        self._factors = [position for position, role in of_sizes.items() if role is Role.FACTORS]
        self._others = [position for position, role in of_sizes.items() if role is Role.ANY]
        self._most_product = 0.0
        self._keys: set[Key] = set()
        self._stats = stats
        self._ignored: Mapping[KernelStats, Collection[int]] = {}
        self._limit: Callable[[Mapping[int, int]], None] | None = None
        self._epoch = 0

    def __bool__(self) -> bool:
        return bool(self._most or self.of_sizes)

    def ignore(self, nodes: Mapping[KernelStats, Collection[int]]) -> None:
        """There is a plan with *nodes*, by their ids, on worker threads: that these leave the loop is no matter."""
        if nodes != self._ignored:
            self._ignored = nodes
            self.forget()
        self._epoch += 1  # of steps that are under way it is not known any more whether nodes have left

    def limit_by(self, limit: Callable[[Mapping[int, int]], None]) -> None:
        """Let *limit* know how many bytes the feed at each position may have, now and when that changes."""
        self._limit = limit
        limit(self._most)

    def admits(self, feeds: Sequence[Any]) -> bool:
        """Whether a compiled step may have *feeds*."""
        for position, most in self._most.items():
            if num_bytes((feeds[position],)) > most:
                return False
        if not self.of_sizes:
            return True
        key, product = self._numbers(feeds)
        return key in self._keys and product <= self._most_product

    def begin(self, feeds: Sequence[Any]) -> BegunStep:
        """What a general executor's step with *feeds* is to bring to its end."""
        sizes = {position: num_bytes((feeds[position],)) for position in self._most}
        return BegunStep(sizes, *self._numbers(feeds), self._count(), self._epoch)

    def note_end(self, step: BegunStep) -> None:
        """Take note that *step* has ended well: its feeds are fine if no node has left the loop meanwhile."""
        if step.epoch != self._epoch or step.num_away != self._count():
            return
        for position, size in step.sizes.items():
            self._most[position] = max(self._most[position], GROWTH * size)
        if step.key is not None:
            if len(self._keys) >= _MOST_KEYS:
                self._keys.clear()
            self._keys.add(step.key)
            if math.isfinite(step.product):
                self._most_product = max(self._most_product, _SIZE_GROWTH * step.product)
        self._tell()

    def forget(self) -> None:
        """Begin anew: a compiled step was slow, or is another one."""
        self._most = dict.fromkeys(self._most, LITTLE)
        self._keys.clear()
        self._most_product = 0.0
        self._epoch += 1
        self._tell()

    def _numbers(self, feeds: Sequence[Any]) -> tuple[Key | None, float]:
        """What is compared of *feeds*, None if that is too long, and the product of what is not."""
        product = 1.0
        for position in self._largest:
            product *= max(1.0, _largest(feeds[position]))
        compared = [feeds[position] for position in self._others]
        for position in self._factors:
            value = feeds[position]
            if getattr(value, "size", 1) > _MOST_FACTORS or _is_text(value):
                compared.append(value)
            else:
                product *= _product(value)
        if num_bytes(compared) > _LONGEST:
            return None, product
        return tuple(map(_key_of, compared)), product

    def _tell(self) -> None:
        if self._limit is not None:
            self._limit(self._most)

    def _count(self) -> int:
        total = 0
        for stats in self._stats:
            ignored = self._ignored.get(stats, ())
            total += sum(count for item_id, count in stats.num_away.items() if item_id not in ignored)
        return total


def _key_of(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype.hasobject:
        return value.shape, *value.reshape(-1).tolist()
    if isinstance(value, (np.ndarray, np.generic)):
        return value.shape, value.tobytes()
    return value if isinstance(value, bytes) else None  # a state that is not there yet, say


def _is_text(value: Any) -> bool:
    return not isinstance(value, (np.ndarray, np.generic)) or value.dtype.hasobject


def _largest(value: Any) -> float:
    """The largest number, whatever its sign."""
    return math.inf if _is_text(value) else float(np.max(np.abs(value.astype(np.float64)), initial=0))


def _product(value: Any) -> float:
    product = 1.0
    for number in value.reshape(-1).tolist():
        product *= max(1.0, abs(number))
    return product
