"""What a process holds, sampled while it works; and whether that stays the same.

``sys.getallocatedblocks`` counts the objects of Python exactly and at no cost; what numpy and the C library hold shows
in the resident memory, which is coarse.  Tracing every allocation would make a soak ten times as long.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple

from benchmarks.memory_probe import resident_bytes

MORE_BLOCKS = 1000
MORE_BYTES = 32 << 20


class Sample(NamedTuple):
    blocks: int
    resident: int


class FlatMemory:
    """Samples of what is held after garbage was collected."""

    def __init__(self) -> None:
        self._samples: list[Sample] = []

    def sample(self) -> None:
        gc.collect()
        self._samples.append(Sample(sys.getallocatedblocks(), resident_bytes()))

    def check(self) -> None:
        """Of the samples after the first fifth, those at the end show no more than those at the beginning."""
        samples = self._samples[len(self._samples) // 5 :]
        third = len(samples) // 3
        before, after = _middle(samples[:third]), _middle(samples[-third:])
        assert after.blocks - before.blocks < MORE_BLOCKS, self._samples
        assert after.resident - before.resident < MORE_BYTES, self._samples


def _middle(samples: Sequence[Sample]) -> Sample:
    return Sample(*(int(median(values)) for values in zip(*samples, strict=True)))


class LiveArrays:
    """Counts the arrays given to ``keep`` that are alive."""

    def __init__(self) -> None:
        self.most = 0
        self._references: dict[int, weakref.ref[Any]] = {}  # by id: they hash as the arrays, which do not

    def keep(self, array: Any) -> Any:
        reference = weakref.ref(array, self._forget)
        self._references[id(reference)] = reference
        self.most = max(self.most, len(self._references))
        return array

    def _forget(self, reference: weakref.ref[Any]) -> None:
        del self._references[id(reference)]

    @property
    def alive(self) -> int:
        return len(self._references)
