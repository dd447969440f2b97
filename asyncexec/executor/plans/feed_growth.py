"""FeedGrowth: how large the feeds of a compiled step may be.

A product of matrices ten times as long takes a hundred to a thousand times as long; a compiled step calls its nodes one
after the other in the event loop, and looks at none of them before.  So it is for feeds that are not much larger than
those of a step in which none of these nodes had to leave the loop.  What is computed of a number that is fed may be the
size of an array.  Where sums and products alone lie between, it is for numbers each of which is a little more at most
than that of one such step; else how large that is for another number is not known, and it is for the very same.  All
others go to the general executor, which looks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from asyncexec.compilation.size_inputs import Role, Sizes
from asyncexec.executor.diagnostics.kernel_stats import GROWTH, LITTLE, KernelStats, num_bytes
from asyncexec.framework.types import string
from asyncexec.graph.node import Tensor

Key: TypeAlias = tuple[Any, ...]
Numbers: TypeAlias = tuple[float, ...]

_MOST_KEYS: Final = 4096
_LONGEST: Final = 1024  # bytes of numbers that are compared
_MOST_LOOKED_AT: Final = 2**16  # bytes of numbers, of which the largest is looked for
_MOST: Final = 2.0**31  # what is more may be something else as an integer
_SIZE_GROWTH: Final = 1.25  # times a number of before, up to which what grows with it is likely to be quick
_MOST_FACTORS: Final = 4  # of a feed: more are compared, as all of them may grow
_MOST_STEPS: Final = 16  # whose numbers are known for equal keys
_NONE: Final = Sizes(MappingProxyType({}), frozenset())


class BegunStep(NamedTuple):
    """What is known of a general executor's step when it begins.

    Attributes:
        sizes: of the feeds that have limits.
        key: the numbers that may tell of sizes, if it is not known how; numbers: the others.
        num_away: how many calls had left the loop, and epoch: since when that is counted.
    """

    sizes: Mapping[int, int]
    key: Key | None
    numbers: Numbers
    num_away: int
    epoch: int


class FeedGrowth:
    """What is known of *feeds*, which are those of one signature.

    Args:
        stats: of the general executor's partitions.
        sizes: what the sizes of arrays are computed of.

    Attributes:
        of_sizes: by position, the feeds whose values may tell how large an array is.
        unknown: the names of nodes that no compiled step is to have, as something else tells them sizes.
    """

    __slots__ = (
        *(
            "_epoch",
            "_factors",
            "_ignored",
            "_largest",
            "_limit",
            "_most",
            "_others",
            "_seen",
            "_stats",
            "of_sizes",
            "unknown",
        ),
    )

    def __init__(self, feeds: Sequence[Tensor], stats: Sequence[KernelStats], *, sizes: Sizes = _NONE) -> None:
        self._most: dict[int, int] = {
            position: LITTLE
            for position, tensor in enumerate(feeds)
            if tensor.shape.num_elements is None or tensor.dtype.base_dtype is string
        }
        self.of_sizes: Mapping[int, Role] = sizes.feeds
        self.unknown: frozenset[str] = sizes.unknown
        self._largest = [position for position, role in sizes.feeds.items() if role is Role.LARGEST]
        self._factors = [position for position, role in sizes.feeds.items() if role is Role.FACTORS]
        self._others = [position for position, role in sizes.feeds.items() if role is Role.ANY]
        self._seen: dict[Key, list[Numbers]] = {}
        self._stats = stats
        self._ignored: Mapping[KernelStats, Collection[int]] = {}
        self._limit: Callable[[Mapping[int, int]], None] | None = None
        self._epoch = 0

    def __bool__(self) -> bool:
        return bool(self._most or self.of_sizes or self.unknown)

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

    def admits(self, feeds: Sequence[object]) -> bool:
        """Whether a compiled step may have *feeds*."""
        for position, most in self._most.items():
            if num_bytes((feeds[position],)) > most:
                return False
        if not self.of_sizes:
            return True
        key, numbers = self._numbers(feeds)
        return key is not None and any(_is_within(numbers, most) for most in self._seen.get(key, ()))

    def begin(self, feeds: Sequence[object]) -> BegunStep:
        """What a general executor's step with *feeds* is to bring to its end."""
        sizes = {position: num_bytes((feeds[position],)) for position in self._most}
        return BegunStep(sizes, *self._numbers(feeds), self._count(), self._epoch)

    def note_end(self, step: BegunStep) -> None:
        """Take note that *step* has ended well: its feeds are fine if no node has left the loop meanwhile."""
        if step.epoch != self._epoch or step.num_away != self._count():
            return
        for position, size in step.sizes.items():
            self._most[position] = max(self._most[position], GROWTH * size)
        if self.of_sizes and step.key is not None:
            if len(self._seen) >= _MOST_KEYS:
                self._seen.clear()
            most = tuple([_SIZE_GROWTH * number for number in step.numbers])
            others = [each for each in self._seen.get(step.key, ()) if not _is_within(each, most)]
            self._seen[step.key] = [*others[1 - _MOST_STEPS :], most]
        self._tell()

    def forget(self) -> None:
        """Begin anew: a compiled step was slow, or is another one."""
        self._most = dict.fromkeys(self._most, LITTLE)
        self._seen.clear()
        self._epoch += 1
        self._tell()

    def _numbers(self, feeds: Sequence[Any]) -> tuple[Key | None, Numbers]:
        """What is compared of *feeds*, None if that is too long, and the numbers that may be a little less."""
        numbers: list[float] = []
        compared = [feeds[position] for position in self._others]
        with np.errstate(invalid="ignore"):  # comparing a NaN of bfloat16 warns
            for position in self._largest:
                value = feeds[position]
                if _is_text(value) or value.nbytes > _MOST_LOOKED_AT:
                    return None, ()
                numbers += (float(np.max(value, initial=0)), -float(np.min(value, initial=0)))
            for position in self._factors:
                value = feeds[position]
                if _is_text(value) or value.size > _MOST_FACTORS or (value < 0).any():
                    compared.append(value)
                else:
                    numbers += value.reshape(-1).tolist()
        if num_bytes(compared) > _LONGEST or any(not abs(number) < _MOST for number in numbers):
            return None, ()
        return (len(numbers), *map(_key_of, compared)), tuple(numbers)

    def _tell(self) -> None:
        if self._limit is not None:
            self._limit(self._most)

    def _count(self) -> int:
        total = 0
        for stats in self._stats:
            ignored = self._ignored.get(stats, ())
            total += sum(count for item_id, count in stats.num_away.items() if item_id not in ignored)
        return total


def _key_of(value: object) -> Any:
    if isinstance(value, np.ndarray) and value.dtype.hasobject:
        return value.shape, *value.reshape(-1).tolist()
    if isinstance(value, (np.ndarray, np.generic)):
        return value.shape, value.tobytes()
    return value if isinstance(value, bytes) else None  # a state that is not there yet, say


def _is_text(value: object) -> bool:
    return not isinstance(value, (np.ndarray, np.generic)) or value.dtype.hasobject


def _is_within(numbers: Numbers, most: Numbers) -> bool:
    return all(number <= limit for number, limit in zip(numbers, most, strict=True))
