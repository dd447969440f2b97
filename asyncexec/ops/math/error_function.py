"""The error function and its complement.

Large arrays of float32 are computed as in Eigen, which TensorFlow uses: by quotients of polynomials, which
are off by a few units in the last place and take a third of the time of scipy's functions.  They are computed a tile at
a time, whose intermediate values stay in the cache.  Everything else goes to scipy, which is quicker for few numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.extras import require
from asyncexec.framework.kernel import Kernel

Polynomial: TypeAlias = Sequence[np.float32]

_MANY: Final = 2**12
_TILE: Final = 2**14


def _polynomial(*coefficients: float) -> Polynomial:
    """The coefficient of the highest power comes first."""
    return tuple(np.float32(value) for value in coefficients)


_ONE: Final = np.float32(1)
_TWO: Final = np.float32(2)
_BOUND: Final = np.float32(3.83250690)  # from where on the function is 1 in float32
# erf(x) = x P(x^2) / Q(x^2)
_P: Final = _polynomial(2.1237322e-06, 0.000286197959, 0.00365804834, 0.0524330214, 0.187416077, 1.12837911)
_Q: Final = _polynomial(3.89185734e-05, 0.00114329602, 0.0147520881, 0.112945676, 0.499425799, 1)
# erfc(x) = 1 + x S(x^2) where |x| < 1, and exp(-x^2) / |x| U(1 / x^2) / V(1 / x^2) above
_S: Final = _polynomial(0.000561802299, -0.00491381669, 0.0267075151, -0.112800106, 0.376122952, -1.12837911)
_U: Final = _polynomial(0.102081165, 0.429206669, 0.323790789, 0.053971976)
_V: Final = _polynomial(0.0172516778, 0.391371638, 1, 0.621732414, 0.0956628621)
_HIGH_BITS: Final = np.int32(-4096)  # twelve bits of the significand, whose square is exact


def erf_function() -> Kernel:
    """The error function of arrays and scalars."""
    return _by_tiles(_erf_tile, require("scipy.special", extra="ops").erf)


def erfc_function() -> Kernel:
    """The complement of the error function of arrays and scalars."""
    return _by_tiles(_erfc_tile, require("scipy.special", extra="ops").erfc)


def _by_tiles(tile: Callable[[Array], Array], otherwise: Kernel) -> Kernel:

    def kernel(x: ArrayOrScalar) -> ArrayOrScalar:
        if x.size < _MANY or x.dtype != np.float32:
            return otherwise(x)
        out = np.empty(x.shape, np.float32)
        flat, cells = out.reshape(-1), np.ascontiguousarray(x).reshape(-1)
        for start in range(0, cells.size, _TILE):
            where = slice(start, start + _TILE)
            flat[where] = tile(cells[where])
        return out

    return kernel


def _value(polynomial: Polynomial, x: Array) -> Array:
    first, second, *others = polynomial
    value = x * first
    value += second
    for coefficient in others:
        value *= x
        value += coefficient
    return value


def _erf_tile(x: Array) -> Array:
    x = np.maximum(x, -_BOUND)
    np.minimum(x, _BOUND, out=x)
    square = x * x
    value = _value(_P, square)
    value *= x
    value /= _value(_Q, square)
    return value


def _erfc_tile(x: Array) -> Array:
    square = x * x
    value = _value(_S, square)
    value *= x
    value += _ONE
    far = np.flatnonzero(square >= _ONE)
    if far.size:
        value[far] = _far(x[far])
    return value


def _far(x: Array) -> Array:
    distance = np.abs(x)
    square = distance * distance
    high = (distance.view(np.int32) & _HIGH_BITS).view(np.float32)
    low = distance - high
    rest = high * high - square  # what is lost of the square by rounding, negative
    rest += (high + high) * low
    rest += low * low
    power = np.exp(-square)
    power -= power * np.where(np.isfinite(rest), rest, 0)
    inverse = _ONE / square
    value = _value(_U, inverse)
    value *= power
    value /= distance * _value(_V, inverse)
    return np.where(x < 0, _TWO - value, value)
