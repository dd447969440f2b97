"""Philox blocks to numbers of a distribution, as TensorFlow's CPU kernels do it.

The ways from bits to numbers are those of ``tensorflow/core/lib/random/random_distributions.h``: uniform numbers have
random mantissa bits under the exponent of [1, 2), less one; normal ones come in pairs by Box-Muller.  Uniform numbers
are
TensorFlow's to the bit.  For normal ones TensorFlow takes log, sin and cos from the C library, whose float versions may
be off by one unit in the last place; here they are correctly rounded, so a normal float32 may differ in its last bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array, NumpyDType
from asyncexec.framework.types import DType, bfloat16, float16, float32, float64
from asyncexec.ops.random.philox import Philox, blocks, blocks_at

Sampler = Callable[[Philox, int], Any]
_SAMPLES_RESERVED: Final = 256  # of each output of a truncated distribution; the outputs' streams never overlap
_TRUNCATE: Final = 2.0
_ROUND_BLOCKS: Final = 4  # drawn for each group of a truncated distribution in the first round

_LEAST: Final = 1e-7  # no smaller number goes into a logarithm


def unit_floats_of(words: Array) -> Array:
    """Words to floats in [0, 1)."""
    return ((words & np.uint32(0x7FFFFF)) | np.uint32(0x3F800000)).view(np.float32) - np.float32(1)


def unit_doubles_of(words: Array) -> Array:
    """Pairs of words (the last dimension) to doubles in [0, 1)."""
    high = (words[..., 0] & np.uint32(0xFFFFF)).astype(np.uint64)
    bits = (high << np.uint64(32)) | words[..., 1] | np.uint64(1023 << 52)
    return bits.view(np.float64) - 1.0


def unit_doubles(generator: Philox, count: int) -> Array:
    """*count* doubles in [0, 1)."""
    words = blocks(generator, (count + 1) // 2)
    return unit_doubles_of(words.reshape(-1, 2))[:count]


def _float_pairs(words: Array) -> Array:
    """Pairs of words (the last dimension) to pairs of normal float32."""
    uniform_floats = np.maximum(unit_floats_of(words[..., 0]), np.float32(_LEAST)).astype(np.float64)
    radius = np.sqrt(np.float32(-2) * np.log(uniform_floats).astype(np.float32))
    angle = (2.0 * math.pi * unit_floats_of(words[..., 1]).astype(np.float64)).astype(np.float32).astype(np.float64)
    return np.stack([np.sin(angle).astype(np.float32) * radius, np.cos(angle).astype(np.float32) * radius], axis=-1)


def double_pairs(words: Any) -> Array:
    """Blocks to pairs of normal float64."""
    pairs = words.reshape(*words.shape[:-1], 2, 2)
    radius = np.sqrt(-2.0 * each_of(math.log, np.maximum(unit_doubles_of(pairs[..., 0, :]), _LEAST)))
    angle = 2.0 * math.pi * unit_doubles_of(pairs[..., 1, :])
    return np.stack([each_of(math.sin, angle) * radius, each_of(math.cos, angle) * radius], axis=-1)


def each_of(function: Callable[..., float], values: Array, *others: Array) -> Array:
    """*function* of each double by the C library, as in TensorFlow; numpy's own may differ in the last bit."""
    lists = (array.ravel().tolist() for array in (values, *others))
    return np.fromiter(map(function, *lists), np.float64, values.size).reshape(values.shape)


def uniform(dtype: DType) -> Sampler:
    """Numbers in [0, 1)."""
    if dtype is float64:
        return unit_doubles
    if dtype is float32:
        return lambda generator, count: unit_floats_of(_words(generator, count))
    mantissa, one = (0x3FF, 15 << 10) if dtype is float16 else (0x7F, 127 << 7)
    np_dtype = dtype.as_numpy_dtype

    def narrow(generator: Philox, count: int) -> Array:
        bits = (_words(generator, count) & np.uint32(mantissa)) | np.uint32(one)
        return bits.astype(np.uint16).view(np_dtype) - np_dtype.type(1)

    return narrow


def _words(generator: Philox, count: int) -> Array:
    return blocks(generator, -(-count // 4)).reshape(-1)[:count]


def full_range(dtype: NumpyDType) -> Sampler:
    """Integers of the whole range of *dtype*."""
    if dtype.itemsize == 4:
        return lambda generator, count: _words(generator, count).view(dtype)
    return lambda generator, count: _long_words(generator, count).view(dtype)


def _long_words(generator: Philox, count: int) -> Array:
    pairs = blocks(generator, (count + 1) // 2).reshape(-1, 2)[:count]
    return pairs[:, 0] | (pairs[:, 1].astype(np.uint64) << np.uint64(32))


def uniform_int(dtype: NumpyDType, low: int, high: int) -> Sampler:
    """Integers in [low, high), nearly uniform: the remainder of random bits."""
    draw = _words if dtype.itemsize == 4 else _long_words
    unsigned = np.dtype(f"u{dtype.itemsize}")
    span = unsigned.type(high - low)
    shift = unsigned.type(low % (1 << 8 * dtype.itemsize))
    return lambda generator, count: (draw(generator, count) % span + shift).view(dtype)


def normal(dtype: DType) -> Sampler:
    """Numbers of mean 0 and deviation 1."""
    if dtype is float64:
        return lambda generator, count: double_pairs(blocks(generator, (count + 1) // 2)).reshape(-1)[:count]
    np_dtype = dtype.as_numpy_dtype

    def sample(generator: Philox, count: int) -> Array:
        words = blocks(generator, -(-count // 4)).reshape(-1, 2)
        return _float_pairs(words).reshape(-1)[:count].astype(np_dtype, copy=False)

    return sample


def truncated_normal(dtype: DType) -> Sampler:
    """Normal numbers, those beyond two deviations drawn again; each group of outputs has a stream of its own."""
    group = 2 if dtype is float64 else 4
    stride = group * _SAMPLES_RESERVED // 4
    np_dtype = np.dtype(np.float64 if dtype is float64 else np.float32)

    def sample(generator: Philox, count: int) -> Array:
        groups = -(-count // group)
        result = np.empty((groups, group), np_dtype)
        pending = np.arange(groups, dtype=np.uint64) * np.uint64(stride)
        rows, length = np.arange(groups), _ROUND_BLOCKS
        while len(rows):
            drawn = _candidates(generator, pending, length, dtype)
            fits = np.abs(drawn) < _TRUNCATE
            place = np.cumsum(fits, axis=1)
            is_done = place[:, -1] >= group
            taken = drawn[is_done][fits[is_done] & (place[is_done] <= group)]
            result[rows[is_done]] = taken.reshape(-1, group)
            rows, pending, length = rows[~is_done], pending[~is_done], 2 * length
        return result.reshape(-1)[:count].astype(dtype.as_numpy_dtype, copy=False)

    return sample


def _candidates(generator: Philox, starts: Array, length: int, dtype: DType) -> Array:
    """The normal numbers of *length* blocks from each of *starts*: one row each."""
    offsets = (starts[:, None] + np.arange(length, dtype=np.uint64)).reshape(-1)
    words = blocks_at(generator, offsets)
    pairs = double_pairs(words) if dtype is float64 else _float_pairs(words.reshape(-1, 2))
    return pairs.reshape(len(starts), -1)


FLOATS: Final = (float16, bfloat16, float32, float64)
