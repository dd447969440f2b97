"""Samplers of the gamma, Poisson and binomial distributions, each output from its own stream of numbers.

They are those of TensorFlow's CPU kernels, number for number:

* gamma: G. Marsaglia and W. Tsang, "A simple method for generating gamma variables", TOMS 26(3), 2000; in doubles;
* Poisson: D. Knuth's products of uniform numbers where the rate is below 10, else W. Hörmann's transformed rejection
  (PTRS), "The transformed rejection method for generating Poisson random variables", 1993; in doubles;
* binomial: sums of geometric numbers where the mean is below 10, else Hörmann's transformed rejection (BTRS), "The
  generation of binomial random variates", 1993; in doubles.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.ops.random.philox import Philox
from asyncexec.ops.random.random_distributions import each_of
from asyncexec.ops.random.streams import Buffer, Streams, normal_doubles, uniform_doubles

RESERVED: Final = 256  # blocks of an output's stream
_RESERVED_FEW: Final = 42  # where the sum of geometric numbers is short
_MAX_ROUNDS: Final = 500  # far more than any distribution takes that has parameters to draw by
_FEW: Final = 10  # the mean below which numbers are counted one by one

# Of Stirling's formula for the logarithm of k!, what is left over for small k.
_STIRLING_TAILS: Final = np.array(
    [
        *(0.0810614667953272, 0.0413406959554092, 0.0276779256849983, 0.02079067210376509, 0.0166446911898211),
        *(0.0138761288230707, 0.0118967099458917, 0.0104112652619720, 0.00925546218271273, 0.00833056343336287),
    ]
)

# Of the rows that are open: which are done, and the values of all of them (those of the others do not count).
Round = Callable[[Any], tuple[Any, Any]]


def _until_done(count: int, draw: Round, what: str) -> Array:
    """Draw for *count* rows, again for those that are not done; InvalidArgumentError where that has no end."""
    result = np.empty(count)
    rows = np.arange(count)
    for _ in range(_MAX_ROUNDS):
        if not len(rows):
            return result
        is_done, values = draw(rows)
        result[rows[is_done]] = values[is_done]
        rows = rows[~is_done]
    raise InvalidArgumentError(f"no number of the {what} distribution has been found in {_MAX_ROUNDS} draws")


def gamma(generator: Philox, outputs: Any, alpha: Array) -> Array:
    """The doubles with the numbers *outputs*, of the shape parameters *alpha*."""
    result = np.empty(len(outputs))
    is_one = alpha == 1
    if is_one.any():
        last = uniform_doubles(Streams(generator, outputs[is_one], RESERVED).take(np.arange(is_one.sum())))[:, -1]
        result[is_one] = -each_of(math.log1p, -last)
    result[~is_one] = _gamma_by_rejection(generator, outputs[~is_one], alpha[~is_one])
    return result


def _gamma_by_rejection(generator: Philox, outputs: Array, alpha: Array) -> Array:
    is_small = alpha < 1
    d = alpha + np.where(is_small, 2.0 / 3, -1.0 / 3)
    c = 1.0 / 3 / np.sqrt(d)
    streams, count = Streams(generator, outputs, RESERVED), len(outputs)
    normals = Buffer(streams, count, normal_doubles, 2)
    uniforms = Buffer(streams, count, uniform_doubles, 2)

    def draw(rows: Array) -> tuple[Any, object]:
        x = normals.next(rows)
        root = 1 + c[rows] * x
        is_done, values = np.zeros(len(rows), np.bool_), np.empty(len(rows))
        tried = np.flatnonzero(~(root <= 0))
        x, v, mine = x[tried], root[tried] ** 2 * root[tried], rows[tried]
        u = uniforms.next(mine)
        is_done[tried] = (u < 1 - 0.0331 * (x * x) * (x * x)) | (
            np.log(u) < 0.5 * x * x + d[mine] * (1 - v + np.log(v))
        )
        values[tried] = d[mine] * v
        return is_done, values

    result = _until_done(count, draw, "gamma")
    small = np.flatnonzero(is_small)
    result[small] *= each_of(_power, uniforms.next(small), 1 / alpha[small])
    return result


def _power(base: float, exponent: float) -> float:
    try:
        return math.pow(base, exponent)
    except (OverflowError, ValueError):  # of no positive parameter
        return float(np.power(base, exponent))


def poisson(generator: Philox, outputs: Array, rate: Array, highest: float) -> Array:
    """The doubles with the numbers *outputs*, of *rate*, none of them above *highest*."""
    result = np.full(len(outputs), np.inf)
    is_few, is_many = rate < _FEW, ~(rate < _FEW) & (rate != np.inf)
    for rows, sampler in ((is_few, _poisson_by_products), (is_many, _poisson_by_rejection)):
        result[rows] = sampler(generator, outputs[rows], rate[rows], highest)
    return result


def _poisson_by_products(generator: Philox, outputs: Array, rate: Array, highest: float) -> Array:
    limit = np.exp(-rate)
    uniforms = Buffer(Streams(generator, outputs, RESERVED), len(outputs), uniform_doubles, 2)
    product, drawn = np.ones(len(outputs)), np.zeros(len(outputs))

    def draw(rows: Array) -> tuple[Any, object]:
        product[rows] *= uniforms.next(rows)
        values = drawn[rows].copy()
        drawn[rows] += 1
        return (product[rows] <= limit[rows]) & (values <= highest), values

    return _until_done(len(outputs), draw, "Poisson")


def _poisson_by_rejection(generator: Philox, outputs: Array, rate: Array, highest: float) -> Array:
    log_rate = np.log(rate)
    b = 0.931 + 2.53 * np.sqrt(rate)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    tight = 0.9277 - 3.6224 / (b - 2)
    uniforms = Buffer(Streams(generator, outputs, RESERVED), len(outputs), uniform_doubles, 2)

    def draw(rows: Array) -> tuple[Any, object]:
        u = uniforms.next(rows) - 0.5
        v = uniforms.next(rows)
        shifted = 0.5 - np.abs(u)
        k = np.floor((2 * a[rows] / shifted + b[rows]) * u + rate[rows] + 0.43)
        is_done = (shifted >= 0.07) & (v <= tight[rows])
        unsure = np.flatnonzero(~is_done & ~((k < 0) | ((shifted < 0.013) & (v > shifted)) | np.isnan(k)))
        is_done[unsure] = is_below(rows[unsure], v[unsure], shifted[unsure], k[unsure])
        return is_done & ~(k > highest), k

    def is_below(rows: Array, v: Array, shifted: Array, k: Array) -> ArrayOrScalar:
        height = np.log(v * inverse_alpha[rows] / (a[rows] / (shifted * shifted) + b[rows]))
        return height <= -rate[rows] + k * log_rate[rows] - each_of(math.lgamma, k + 1)

    return _until_done(len(outputs), draw, "Poisson")


def binomial(generator: Philox, outputs: Array, counts: Array, probs: Array) -> Array:
    """The doubles with the numbers *outputs*: how many of *counts* trials succeed; in the dtype that *probs* has."""
    one, half = probs.dtype.type(1), probs.dtype.type(0.5)
    result = np.full(len(outputs), np.nan)
    wide = counts.astype(np.float64)
    is_none = (wide <= 0) | (probs <= 0)
    is_all = ~is_none & (probs >= one)
    result[is_none], result[is_all] = 0, wide[is_all]
    is_rare = probs <= half
    chance = np.where(is_rare, probs, one - probs)
    is_drawn = ~is_none & ~is_all & ~np.isnan(probs)
    is_many = counts * chance >= probs.dtype.type(_FEW)
    for rows, sampler in ((is_drawn & is_many, _binomial_by_rejection), (is_drawn & ~is_many, _binomial_by_sums)):
        found = sampler(generator, outputs[rows], wide[rows], chance[rows].astype(np.float64))
        result[rows] = np.where(is_rare[rows], found, wide[rows] - found)
    return result


def _binomial_by_sums(generator: Philox, outputs: Array, counts: Array, probs: Array) -> Array:
    uniforms = Buffer(Streams(generator, outputs, _RESERVED_FEW), len(outputs), uniform_doubles, 2)
    scale = np.log1p(-probs)
    sums, drawn = np.zeros(len(outputs)), np.zeros(len(outputs))

    def draw(rows: Array) -> tuple[Any, object]:
        sums[rows] += np.ceil(np.log(uniforms.next(rows)) / scale[rows])
        values = drawn[rows].copy()
        drawn[rows] += 1
        return sums[rows] > counts[rows], values

    return _until_done(len(outputs), draw, "binomial")


def _binomial_by_rejection(generator: Philox, outputs: Array, counts: Array, probs: Array) -> Array:
    deviation = np.sqrt(counts * probs * (1 - probs))
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * probs
    c = counts * probs + 0.5
    tight = 0.92 - 4.2 / b
    ratio = probs / (1 - probs)
    alpha = (2.83 + 5.1 / b) * deviation
    mode = np.floor((counts + 1) * probs)
    uniforms = Buffer(Streams(generator, outputs, RESERVED), len(outputs), uniform_doubles, 2)

    def log_bound(rows: Array, k: Array) -> ArrayOrScalar:
        n, m, r = counts[rows], mode[rows], ratio[rows]
        return (
            (m + 0.5) * np.log((m + 1) / (r * (n - m + 1)))
            + (n + 1) * np.log((n - m + 1) / (n - k + 1))
            + (k + 0.5) * np.log(r * (n - k + 1) / (k + 1))
            + (_stirling_tail(m) + _stirling_tail(n - m) - _stirling_tail(k) - _stirling_tail(n - k))
        )

    def draw(rows: Array) -> tuple[Any, object]:
        u = uniforms.next(rows) - 0.5
        v = uniforms.next(rows)
        shifted = 0.5 - np.abs(u)
        k = np.floor((2 * a[rows] / shifted + b[rows]) * u + c[rows])
        is_done = (shifted >= 0.07) & (v <= tight[rows])
        unsure = np.flatnonzero(~is_done & ~((k < 0) | (k > counts[rows])))
        mine, wide = rows[unsure], shifted[unsure]
        height = np.log(v[unsure] * alpha[mine] / (a[mine] / (wide * wide) + b[mine]))
        is_done[unsure] = height <= log_bound(mine, k[unsure])
        return is_done, k

    return _until_done(len(outputs), draw, "binomial")


def _stirling_tail(k: Array) -> Array:
    is_small = k <= len(_STIRLING_TAILS) - 1
    square = (k + 1) * (k + 1)
    series = (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1)
    return np.where(is_small, _STIRLING_TAILS[np.where(is_small, k, 0).astype(np.intp)], series)
