"""Philox4x32-10, the counter-based generator of TensorFlow's random ops, vectorised.

J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.  A 64-bit key and a 128-bit counter give four
uint32; the next four come from the counter plus one.  Sampling is by block, so any block can be had without those
before it.  The 64-bit halves of a counter are uint64 arrays here; sums of counters carry from the low to the high half.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from asyncexec.framework.arrays import Array

_M0: Final = 0xD2511F53
_M1: Final = 0xCD9E8D57
_W0: Final = 0x9E3779B9
_W1: Final = 0xBB67AE85
_MASK32: Final = 0xFFFFFFFF
_MASK64: Final = 0xFFFFFFFFFFFFFFFF
_MASK128: Final = (1 << 128) - 1
_CHUNK: Final = 1 << 14  # blocks at a time: the temporaries stay in the cache
_FEW: Final = 3  # below this plain integers beat arrays


class Philox(NamedTuple):
    """Where in which stream: a 64-bit key and the 128-bit counter of the next block."""

    key: int
    counter: int

    def skip(self, blocks: int) -> Philox:
        """The generator *blocks* blocks further on."""
        return Philox(self.key, (self.counter + blocks) & _MASK128)


def from_seeds(seed: int, seed2: int) -> Philox:
    """The generator of a stateful op with these seeds."""
    return Philox(seed & _MASK64, (seed2 & _MASK64) << 64)


def from_stateless_seed(seed: Any) -> Philox:
    """The generator that a stateless op makes of its two seeds, scrambled so that either may vary."""
    first, second = (int(value) & _MASK64 for value in seed)
    mixed = block(Philox(0x02461E293EC8F720, first | second << 64))
    return Philox(mixed[0] | mixed[1] << 32, (mixed[2] | mixed[3] << 32) << 64)


def block(generator: Philox) -> tuple[int, int, int, int]:
    """The next four uint32."""
    k0, k1 = generator.key & _MASK32, generator.key >> 32
    counter = generator.counter
    c0, c1, c2, c3 = (counter >> shift & _MASK32 for shift in (0, 32, 64, 96))
    for _ in range(10):
        p0, p1 = c0 * _M0, c2 * _M1
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & _MASK32, (p0 >> 32) ^ c3 ^ k1, p0 & _MASK32
        k0, k1 = (k0 + _W0) & _MASK32, (k1 + _W1) & _MASK32
    return c0, c1, c2, c3


def blocks(generator: Philox, count: int) -> Any:
    """The next *count* blocks: uint32 of shape [count, 4]."""
    if count <= _FEW:
        return np.array([block(generator.skip(index)) for index in range(count)], np.uint32).reshape(count, 4)
    return blocks_at(generator, np.arange(count, dtype=np.uint64))


def blocks_at(generator: Philox, offsets: Array) -> Any:
    """The blocks that lie *offsets* (uint64 vector) further on: uint32 of shape [len(offsets), 4]."""
    result = np.empty((len(offsets), 4), np.uint32)
    low, high = np.uint64(generator.counter & _MASK64), np.uint64(generator.counter >> 64)
    for start in range(0, len(offsets), _CHUNK):
        lows = offsets[start : start + _CHUNK] + low
        _fill(result[start : start + _CHUNK], generator.key, lows, (lows < low) + high)
    return result


def _fill(result: Array, key: int, lows: Array, highs: Array) -> None:
    """The ten rounds; every word is kept in the low half of a uint64, so that products do not overflow."""
    mask, half = np.uint64(_MASK32), np.uint64(32)
    c0, c1, c2, c3 = lows & mask, lows >> half, highs & mask, highs >> half
    k0, k1 = key & _MASK32, key >> 32
    for _ in range(10):
        c0 *= np.uint64(_M0)
        c2 *= np.uint64(_M1)
        p0, p1 = c0, c2
        c0, c2 = p1 >> half, p0 >> half
        c0 ^= c1
        c0 ^= np.uint64(k0)
        c2 ^= c3
        c2 ^= np.uint64(k1)
        p0 &= mask
        p1 &= mask
        c1, c3 = p1, p0
        k0, k1 = (k0 + _W0) & _MASK32, (k1 + _W1) & _MASK32
    for column, word in enumerate((c0, c1, c2, c3)):
        result[:, column] = word
