"""A stream of random numbers for each output, for samplers that reject some of what they draw.

Output number *n* has the Philox blocks from ``n * reserved`` on, so that its value hangs on no other's.  The samplers
work on all outputs that are still open at once: each round, every one of them takes its next number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.ops.random.philox import Philox, blocks_at
from asyncexec.ops.random.random_distributions import double_pairs, unit_doubles_of

Convert = Callable[[Any], Any]  # blocks, of shape [n, 4], to numbers of shape [n, count]
_CHUNK: Final = 1 << 14  # outputs at a time: what is kept for each stays in the cache


def uniform_doubles(words: Any) -> Array:
    """Blocks to 2 doubles each, in [0, 1)."""
    return unit_doubles_of(words.reshape(-1, 2, 2))


def normal_doubles(words: object) -> object:
    """Blocks to 2 normal doubles each."""
    return double_pairs(words).reshape(-1, 2)


class Streams:
    """One stream for each of *outputs* (their numbers), of *reserved* blocks each."""

    def __init__(self, generator: Philox, outputs: Any, reserved: int) -> None:
        self._generator = generator
        self._places = outputs.astype(np.uint64) * np.uint64(reserved)

    def take(self, rows: object) -> Any:
        """The next block of each stream in *rows*."""
        words = blocks_at(self._generator, self._places[rows])
        self._places[rows] += np.uint64(1)
        return words


class Buffer:
    """Numbers of one distribution from *streams*; those of a block come last first, as in TensorFlow."""

    def __init__(self, streams: Streams, size: int, convert: Convert, per_block: int) -> None:
        self._streams, self._convert, self._per_block = streams, convert, per_block
        self._left = np.zeros(size, np.intp)
        self._values = np.empty((size, per_block))

    def next(self, rows: Any) -> Array:
        """The next number of each stream in *rows*."""
        empty = rows[self._left[rows] == 0]
        if len(empty):
            self._values[empty] = self._convert(self._streams.take(empty))
            self._left[empty] = self._per_block
        self._left[rows] -= 1
        return self._values[rows, self._left[rows]]


def chunks(count: int) -> Iterator[Any]:
    """The numbers of *count* outputs, some thousands at a time."""
    for start in range(0, count, _CHUNK):
        yield np.arange(start, min(start + _CHUNK, count))
