"""Derivatives by the shape parameter of the gamma distribution: RandomGammaGrad and IgammaGradA.

P(a, x), the regularized lower incomplete gamma function, is a power series for small *x*, and 1 less a continued
fraction else (Numerical Recipes, 6.2).  Each is differentiated term by term as it is summed; of a sample x of P, whose
value does not change with a, dx/da is -(dP/da) / (dP/dx).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.kernel import Kernel, OpKernelConstruction, as_value
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import broadcast
from asyncexec.framework.types import float32, float64
from asyncexec.ops.math.elementwise import checked
from asyncexec.ops.math.special_math import digamma_function, lgamma_function

_MAX_TERMS: Final = 2000  # enough for parameters up to some ten thousands
_BIG: Final = 2.0**52

for _op, _arguments in (
    ("RandomGammaGrad", "alpha: T, sample: T -> output: T"),
    ("IgammaGradA", "a: T, x: T -> z: T"),
):
    register_op(_op, _arguments, "T: {float32, float64}", shape=broadcast)


def _series(a: Array, x: Array) -> tuple[Array, Array]:
    """Of P(a, x) = x**a exp(-x) / gamma(a + 1) * s the sum s, and ds/da."""
    r, term, term_by_a = a.copy(), np.ones_like(a), np.zeros_like(a)
    total, total_by_a = np.ones_like(a), np.zeros_like(a)
    rows = np.arange(len(a))
    for _ in range(_MAX_TERMS):
        if not len(rows):
            break
        r[rows] += 1
        factor = x[rows] / r[rows]
        term_by_a[rows] = factor * term_by_a[rows] - factor / r[rows] * term[rows]
        term[rows] *= factor
        total[rows] += term[rows]
        total_by_a[rows] += term_by_a[rows]
        small = np.abs(term_by_a[rows]) <= np.finfo(np.float64).eps * np.abs(total_by_a[rows])
        rows = rows[~small]
    return total, total_by_a


def _fraction(a: Array, x: Array) -> tuple[Array, Array]:
    """Of 1 - P(a, x) = x**a exp(-x) / gamma(a) * f the continued fraction f, and df/da."""
    b = x + 1 - a
    # The last two numerators and denominators, with their derivatives.
    p, q = [np.ones_like(a), x + 1], [x.copy(), (b + 1) * x]
    p_by_a, q_by_a = [np.zeros_like(a), np.zeros_like(a)], [np.zeros_like(a), -x]
    value = p[1] / q[1]
    value_by_a = (p_by_a[1] - value * q_by_a[1]) / q[1]
    rows, b = np.arange(len(a)), b + 1
    for count in range(1, _MAX_TERMS):
        if not len(rows):
            break
        z, product = b[rows] + 2 * count, (1 - a[rows] + count) * count
        new_p = p[1][rows] * z - p[0][rows] * product
        new_q = q[1][rows] * z - q[0][rows] * product
        new_p_by_a = p_by_a[1][rows] * z - p[1][rows] - p_by_a[0][rows] * product + p[0][rows] * count
        new_q_by_a = q_by_a[1][rows] * z - q[1][rows] - q_by_a[0][rows] * product + q[0][rows] * count
        scale = np.where(np.abs(new_p) > _BIG, 1 / _BIG, 1.0)
        for pair, new in ((p, new_p), (q, new_q), (p_by_a, new_p_by_a), (q_by_a, new_q_by_a)):
            pair[0][rows], pair[1][rows] = pair[1][rows] * scale, new * scale
        before = value_by_a[rows]
        value[rows] = new_p / new_q
        value_by_a[rows] = (new_p_by_a - value[rows] * new_q_by_a) / new_q
        settled = np.abs(value_by_a[rows] - before) <= np.finfo(np.float64).eps
        rows = rows[~settled]
    return value, value_by_a


def _derivatives(a: Array, x: Array, least: float, *, of_sample: bool) -> Array:
    """dP/da or, for a sample, dx/da, of positive doubles; 0 where the logarithm of dP/dx is below *least*."""
    digamma, lgamma = digamma_function(), lgamma_function()
    result = np.empty_like(a)
    is_upper = (x > 1) & (x > a)
    for rows, parts, shift, sign in ((~is_upper, _series, 1, 1), (is_upper, _fraction, 0, -1)):
        mine, at = a[rows], x[rows]
        value, value_by_a = parts(mine, at)
        by_a = sign * (value_by_a + value * (np.log(at) - digamma(mine + shift)))
        log_density = mine * np.log(at) - at - lgamma(mine + shift)
        found = -by_a * at / (mine if shift else 1) if of_sample else by_a * np.exp(log_density)
        result[rows] = np.where(log_density < least, 0.0, found)
    return result


def _kernel(*, of_sample: bool) -> Kernel:
    def kernel(a: object, x: object) -> Array:
        dtype = np.asarray(a).dtype
        wide_a, wide_x = np.broadcast_arrays(np.asarray(a, np.float64), np.asarray(x, np.float64))
        result = np.full(wide_a.shape, np.nan)
        is_positive = (wide_a > 0) & (wide_x > 0)
        result[(wide_x == 0) | (is_positive & (np.isinf(wide_a) | np.isinf(wide_x)))] = 0
        is_inside = is_positive & np.isfinite(wide_a) & np.isfinite(wide_x)
        least = -np.log(np.finfo(dtype).max)
        result[is_inside] = _derivatives(wide_a[is_inside], wide_x[is_inside], least, of_sample=of_sample)
        return as_value(result.astype(dtype))

    return checked(kernel)


@register_kernel("RandomGammaGrad", dtypes={"T": (float32, float64)})
def random_gamma_grad(construction: OpKernelConstruction) -> Kernel:
    """The derivative of a sample of the gamma distribution by alpha."""
    return _kernel(of_sample=True)


@register_kernel("IgammaGradA", dtypes={"T": (float32, float64)})
def igamma_grad_a(construction: OpKernelConstruction) -> Kernel:
    """The derivative of Igamma by its first argument."""
    return _kernel(of_sample=False)
