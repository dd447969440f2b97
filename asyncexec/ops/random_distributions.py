"""Philox blocks to numbers of a distribution, to the bit as TensorFlow's CPU kernels do it.

The ways from bits to numbers are those of ``tensorflow/core/lib/random/random_distributions.h``: uniform numbers have
random mantissa bits under the exponent of [1, 2), less one; normal ones come in pairs by Box-Muller.  TensorFlow takes
log, sin and cos from the C library, whose float versions are not the correctly rounded ones; ``_logf`` and
``_sincosf`` evaluate what glibc evaluates (the tables and polynomials published by Arm in "optimized-routines"), and
for doubles Python's ``math``, which is the C library, is asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from asyncexec.framework.types import DType, bfloat16, float16, float32, float64
from asyncexec.ops.philox import Philox, blocks, blocks_at

Sampler = Callable[[Philox, int], Any]
_SAMPLES_RESERVED: Final = 256  # of each output of a truncated distribution; the outputs' streams never overlap
_TRUNCATE: Final = 2.0
_ROUND_BLOCKS: Final = 4  # drawn for each group of a truncated distribution in the first round

_LOG_INVERSES: Final = [
    float.fromhex(text)
    for text in (
        "0x1.661ec79f8f3bep+0 0x1.571ed4aaf883dp+0 0x1.49539f0f010bp+0 0x1.3c995b0b80385p+0 0x1.30d190c8864a5p+0"
        " 0x1.25e227b0b8eap+0 0x1.1bb4a4a1a343fp+0 0x1.12358f08ae5bap+0 0x1.0953f419900a7p+0 0x1p+0"
        " 0x1.e608cfd9a47acp-1 0x1.ca4b31f026aap-1 0x1.b2036576afce6p-1 0x1.9c2d163a1aa2dp-1 0x1.886e6037841edp-1"
        " 0x1.767dcf5534862p-1"
    ).split()
]
_LOGS: Final = [
    float.fromhex(text)
    for text in (
        "-0x1.57bf7808caadep-2 -0x1.2bef0a7c06ddbp-2 -0x1.01eae7f513a67p-2 -0x1.b31d8a68224e9p-3"
        " -0x1.6574f0ac07758p-3 -0x1.1aa2bc79c81p-3 -0x1.a4e76ce8c0e5ep-4 -0x1.1973c5a611cccp-4 -0x1.252f438e10c1ep-5"
        " 0x0p+0 0x1.aa5aa5df25984p-5 0x1.c5e53aa362eb4p-4 0x1.526e57720db08p-3 0x1.bc2860d22477p-3"
        " 0x1.1058bc8a07ee1p-2 0x1.4043057b6ee09p-2"
    ).split()
]
_LN2: Final = float.fromhex("0x1.62e42fefa39efp-1")
_A0, _A1, _A2 = map(float.fromhex, ("-0x1.00ea348b88334p-2", "0x1.5575b0be00b6ap-2", "-0x1.ffffef20a4123p-2"))
_C1, _C2 = map(float.fromhex, ("-0x1.ffffffd0c621cp-2", "0x1.55553e1068f19p-5"))
_C3, _C4 = map(float.fromhex, ("-0x1.6c087e89a359dp-10", "0x1.99343027bf8c3p-16"))
_S1, _S2, _S3 = map(float.fromhex, ("-0x1.555545995a603p-3", "0x1.1107605230bc4p-7", "-0x1.994eb3774cf24p-13"))
_LEAST: Final = 1e-7  # no smaller number goes into a logarithm


def _logf(x: Any) -> Any:
    """The C library's ``logf`` of normal positive float32."""
    bits = x.view(np.int32)
    offset = bits - np.int32(0x3F330000)
    entry = (offset >> 19) & 15
    exponent = offset >> 23
    mantissa = (bits - (exponent << 23)).view(np.float32).astype(np.float64)
    r = mantissa * np.array(_LOG_INVERSES)[entry] - 1.0
    whole = np.array(_LOGS)[entry] + exponent * _LN2
    r2 = r * r
    y = (_A0 * r2 + (_A1 * r + _A2)) * r2 + (whole + r)
    return y.astype(np.float32)


def _sincosf(angle: Any) -> tuple[Any, Any]:
    """The C library's ``sincosf`` of float32 in [0, 2 pi]."""
    x = angle.astype(np.float64)
    quadrant = ((x * float.fromhex("0x1.45F306DC9C883p+23")).astype(np.int64) + 0x800000) >> 24
    x -= quadrant * (math.pi / 2)
    x2 = x * x
    x4 = x2 * x2
    cosine = ((1.0 + x2 * _C1) + x4 * _C2) + (x4 * x2) * (_C3 + x2 * _C4)
    x3 = x2 * x
    sine = (x + x3 * _S1) + (x3 * x2) * (_S2 + x2 * _S3)
    is_odd = (quadrant & 1).astype(np.bool_)
    sin_value = np.where(is_odd, cosine, sine) * np.where(quadrant & 2, -1.0, 1.0)
    cos_value = np.where(is_odd, sine, cosine) * np.where((quadrant + 1) & 2, -1.0, 1.0)
    return sin_value.astype(np.float32), cos_value.astype(np.float32)


def _unit_float(words: Any) -> Any:
    return ((words & np.uint32(0x7FFFFF)) | np.uint32(0x3F800000)).view(np.float32) - np.float32(1)


def _unit_double(words: Any) -> Any:
    """Pairs of words (the last dimension) to doubles in [0, 1)."""
    high = (words[..., 0] & np.uint32(0xFFFFF)).astype(np.uint64)
    bits = (high << np.uint64(32)) | words[..., 1] | np.uint64(1023 << 52)
    return bits.view(np.float64) - 1.0


def unit_doubles(generator: Philox, count: int) -> Any:
    """*count* doubles in [0, 1)."""
    words = blocks(generator, (count + 1) // 2)
    return _unit_double(words.reshape(-1, 2))[:count]


def _float_pairs(words: Any) -> Any:
    """Pairs of words (the last dimension) to pairs of normal float32."""
    radius = np.sqrt(np.float32(-2) * _logf(np.maximum(_unit_float(words[..., 0]), np.float32(_LEAST))))
    angle = (2.0 * math.pi * _unit_float(words[..., 1]).astype(np.float64)).astype(np.float32)
    sine, cosine = _sincosf(angle)
    return np.stack([sine * radius, cosine * radius], axis=-1)


def _double_pairs(words: Any) -> Any:
    """Blocks to pairs of normal float64."""
    pairs = words.reshape(*words.shape[:-1], 2, 2)
    radius = np.sqrt(-2.0 * _each(math.log, np.maximum(_unit_double(pairs[..., 0, :]), _LEAST)))
    angle = 2.0 * math.pi * _unit_double(pairs[..., 1, :])
    return np.stack([_each(math.sin, angle) * radius, _each(math.cos, angle) * radius], axis=-1)


def _each(function: Callable[[float], float], values: Any) -> Any:
    return np.fromiter(map(function, values.ravel().tolist()), np.float64, values.size).reshape(values.shape)


def uniform(dtype: DType) -> Sampler:
    """Numbers in [0, 1)."""
    if dtype is float64:
        return unit_doubles
    if dtype is float32:
        return lambda generator, count: _unit_float(_words(generator, count))
    mantissa, one = (0x3FF, 15 << 10) if dtype is float16 else (0x7F, 127 << 7)
    np_dtype = dtype.as_numpy_dtype

    def narrow(generator: Philox, count: int) -> Any:
        bits = (_words(generator, count) & np.uint32(mantissa)) | np.uint32(one)
        return bits.astype(np.uint16).view(np_dtype) - np_dtype.type(1)

    return narrow


def _words(generator: Philox, count: int) -> Any:
    return blocks(generator, -(-count // 4)).reshape(-1)[:count]


def full_range(dtype: np.dtype[Any]) -> Sampler:
    """Integers of the whole range of *dtype*."""
    if dtype.itemsize == 4:
        return lambda generator, count: _words(generator, count).view(dtype)
    return lambda generator, count: _long_words(generator, count).view(dtype)


def _long_words(generator: Philox, count: int) -> Any:
    pairs = blocks(generator, (count + 1) // 2).reshape(-1, 2)[:count]
    return pairs[:, 0] | (pairs[:, 1].astype(np.uint64) << np.uint64(32))


def uniform_int(dtype: np.dtype[Any], low: int, high: int) -> Sampler:
    """Integers in [low, high), nearly uniform: the remainder of random bits."""
    draw = _words if dtype.itemsize == 4 else _long_words
    unsigned = np.dtype(f"u{dtype.itemsize}")
    span = unsigned.type(high - low)
    shift = unsigned.type(low % (1 << 8 * dtype.itemsize))
    return lambda generator, count: (draw(generator, count) % span + shift).view(dtype)


def normal(dtype: DType) -> Sampler:
    """Numbers of mean 0 and deviation 1."""
    if dtype is float64:
        return lambda generator, count: _double_pairs(blocks(generator, (count + 1) // 2)).reshape(-1)[:count]
    np_dtype = dtype.as_numpy_dtype

    def sample(generator: Philox, count: int) -> Any:
        words = blocks(generator, -(-count // 4)).reshape(-1, 2)
        return _float_pairs(words).reshape(-1)[:count].astype(np_dtype, copy=False)

    return sample


def truncated_normal(dtype: DType) -> Sampler:
    """Normal numbers, those beyond two deviations drawn again; each group of outputs has a stream of its own."""
    group = 2 if dtype is float64 else 4
    stride = group * _SAMPLES_RESERVED // 4
    np_dtype = np.dtype(np.float64 if dtype is float64 else np.float32)

    def sample(generator: Philox, count: int) -> Any:
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


def _candidates(generator: Philox, starts: Any, length: int, dtype: DType) -> Any:
    """The normal numbers of *length* blocks from each of *starts*: one row each."""
    offsets = (starts[:, None] + np.arange(length, dtype=np.uint64)).reshape(-1)
    words = blocks_at(generator, offsets)
    pairs = _double_pairs(words) if dtype is float64 else _float_pairs(words.reshape(-1, 2))
    return pairs.reshape(len(starts), -1)


FLOATS: Final = (float16, bfloat16, float32, float64)
