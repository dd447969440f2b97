"""Special functions, by scipy (``tensorflow/core/ops/special_math_ops.cc`` and ``math_ops.cc``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.extras import require
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext, broadcast, unchanged
from asyncexec.framework.tensor_shape import SCALAR, UNKNOWN_SHAPE, TensorShape
from asyncexec.framework.types import bfloat16, float16, float32, float64
from asyncexec.ops.math.elementwise import FLOAT_ATTR, FLOATS, WIDE_FLOATS, checked, shape_text
from asyncexec.ops.math.error_function import erf_function, erfc_function

_SPECIAL: Final = ("scipy.special",)
_HALF_AND_WIDER: Final = frozenset({float16, float32, float64})

# op -> (name in scipy.special, dtypes)
_UNARY: Final = {
    "Erfinv": ("erfinv", WIDE_FLOATS),
    "Ndtri": ("ndtri", WIDE_FLOATS),
    "Dawsn": ("dawsn", WIDE_FLOATS),
    "Spence": ("spence", WIDE_FLOATS),
    "BesselI0": ("i0", _HALF_AND_WIDER),
    "BesselI0e": ("i0e", _HALF_AND_WIDER),
    "BesselI1": ("i1", _HALF_AND_WIDER),
    "BesselI1e": ("i1e", _HALF_AND_WIDER),
    "BesselJ0": ("j0", _HALF_AND_WIDER),
    "BesselJ1": ("j1", _HALF_AND_WIDER),
}
# op -> (name in scipy.special, value below zero)
_SECOND_KIND: Final = {
    "BesselK0": ("k0", np.inf),
    "BesselK0e": ("k0e", np.inf),
    "BesselK1": ("k1", np.inf),
    "BesselK1e": ("k1e", np.inf),
    "BesselY0": ("y0", -np.inf),
    "BesselY1": ("y1", -np.inf),
}
_BINARY_ATTR: Final = "T: {float32, float64}"


def _special() -> Any:
    return require(*_SPECIAL, extra="ops")


def _for_dtype(c: OpKernelConstruction, function: Kernel) -> Kernel:
    """*function* in the dtype of the op: the small floats are computed in float32."""
    if c.attr("T") not in (float16, bfloat16):
        return function
    small = c.np_dtype("T")
    return lambda x: function(x.astype(np.float32)).astype(small)


def _scipy_function(name: str) -> Callable[[OpKernelConstruction], Kernel]:
    return lambda c: _for_dtype(c, getattr(_special(), name))


for _op, (_name, _dtypes) in _UNARY.items():
    register_op(_op, "x: T -> y: T", FLOAT_ATTR, shape=unchanged)
    register_kernel(_op, dtypes={"T": _dtypes}, libraries=_SPECIAL)(_scipy_function(_name))


@register_kernel("Erf", "Erfc", dtypes={"T": FLOATS}, libraries=_SPECIAL)
def _error_function(c: OpKernelConstruction) -> Kernel:
    return _for_dtype(c, erf_function() if c.op == "Erf" else erfc_function())


@register_kernel("Expint", dtypes={"T": WIDE_FLOATS}, libraries=_SPECIAL)
def _expint(c: OpKernelConstruction) -> Kernel:
    return replacing(_special().expi, lambda x: x < 0, np.nan)


def _second_kind(name: str, below_zero: float) -> Callable[[OpKernelConstruction], Kernel]:
    def make(c: OpKernelConstruction) -> Kernel:
        return _for_dtype(c, replacing(getattr(_special(), name), lambda x: x < 0, below_zero))

    return make


for _op, (_name, _value) in _SECOND_KIND.items():
    register_op(_op, "x: T -> y: T", FLOAT_ATTR, shape=unchanged)
    register_kernel(_op, dtypes={"T": _HALF_AND_WIDER}, libraries=_SPECIAL)(_second_kind(_name, _value))


def replacing(function: Kernel, where: Kernel, value: float) -> Kernel:
    """*function*, but *value* wherever *where* holds of its first argument."""

    def kernel(x: object, *others: object) -> ArrayOrScalar:
        result, replaced = function(x, *others), where(x)
        return np.where(replaced, result.dtype.type(value), result)[()] if np.any(replaced) else result

    return kernel


@register_kernel("Digamma", dtypes={"T": _HALF_AND_WIDER}, libraries=_SPECIAL)
def _digamma(c: OpKernelConstruction) -> Kernel:
    return _for_dtype(c, digamma_function())


def digamma_function() -> Kernel:
    """The digamma function, NaN at its poles."""
    return replacing(_special().psi, lambda x: x == 0, np.nan)


@register_kernel("Lgamma", dtypes={"T": _HALF_AND_WIDER}, libraries=_SPECIAL)
def _lgamma(c: OpKernelConstruction) -> Kernel:
    return _for_dtype(c, lgamma_function())


def lgamma_function() -> Kernel:
    """The logarithm of the gamma function's size: infinite at both infinities, as in C."""
    return replacing(_special().gammaln, np.isneginf, np.inf)


def _fresnel_part(which: int) -> Kernel:
    """Fresnel's sine (0) or cosine (1); of numbers whose square overflows, their limits."""
    fresnel = _special().fresnel

    def kernel(x: Any) -> ArrayOrScalar:
        return fresnel(np.where(np.isinf(x * x), np.copysign(np.inf, x), x))[which]

    return kernel


@register_kernel("FresnelCos", dtypes={"T": WIDE_FLOATS}, libraries=_SPECIAL)
def _fresnel_cos(c: OpKernelConstruction) -> Kernel:
    return _fresnel_part(1)


@register_kernel("FresnelSin", dtypes={"T": WIDE_FLOATS}, libraries=_SPECIAL)
def _fresnel_sin(c: OpKernelConstruction) -> Kernel:
    return _fresnel_part(0)


for _op in ("Digamma", "Erf", "Erfc", "Expint", "FresnelCos", "FresnelSin", "Lgamma"):
    register_op(_op, "x: T -> y: T", FLOAT_ATTR, shape=unchanged)


def _incomplete_gamma(function: Kernel, of_large: float) -> Kernel:
    """*function* of a and x, but *of_large* where a is too large for it."""

    def kernel(a: Any, x: Any) -> ArrayOrScalar:
        value = function(a, x)
        value = np.where(np.isnan(value) & (a > x) & (x > 0), of_large, value)
        return np.where(a <= 0, np.nan, value).astype(np.result_type(x))[()]

    return kernel


@register_kernel("Igamma", dtypes={"T": WIDE_FLOATS}, libraries=_SPECIAL)
def _igamma(c: OpKernelConstruction) -> Kernel:
    function = _incomplete_gamma(_special().gammainc, 0)
    return checked(lambda a, x: np.where(np.equal(x, 0), x.dtype.type(0), function(a, x))[()])


@register_kernel("Igammac", dtypes={"T": WIDE_FLOATS}, libraries=_SPECIAL)
def _igammac(c: OpKernelConstruction) -> Kernel:
    return checked(_incomplete_gamma(_special().gammaincc, 1))


@register_kernel("Zeta", dtypes={"T": WIDE_FLOATS}, libraries=_SPECIAL)
def _zeta(c: OpKernelConstruction) -> Kernel:
    return checked(_zeta_function())


def _zeta_function() -> Kernel:
    """Hurwitz's zeta function; at and below q = 0 where TensorFlow has it."""
    zeta = _special().zeta

    def kernel(x: Any, q: Any) -> ArrayOrScalar:
        value, below = zeta(x, q), np.less_equal(q, 0)
        value = np.where(np.isnan(value) & (x > 1) & (q > 1), np.result_type(x).type(0), value)[()]
        if not np.any(below):
            return value
        whole = x == np.floor(x)
        is_pole = below & (q == np.floor(q))
        poles = np.where(whole & ((np.fmod(x, 2) == 0) | np.isinf(x)), np.inf, np.nan)
        value = np.where(is_pole, poles, np.where(below & ~whole, np.nan, value))
        return np.where(x == 1, np.inf, np.where(x < 1, np.nan, value)).astype(np.result_type(x))[()]

    return kernel


@register_kernel("Polygamma", dtypes={"T": WIDE_FLOATS}, libraries=_SPECIAL)
def _polygamma(c: OpKernelConstruction) -> Kernel:
    special, digamma, dtype, zeta = _special(), digamma_function(), c.np_dtype("T"), _zeta_function()

    def polygamma(a: object, x: object) -> ArrayOrScalar:
        order = np.asarray(a, np.float64)
        sign = np.where(order % 2 == 0, -1.0, 1.0)
        value = sign * special.gamma(order + 1) * zeta(order + 1, np.asarray(x, np.float64))
        value = np.where(order == 0, digamma(x), value)
        return np.where((order < 0) | (order != np.floor(order)), np.nan, value).astype(dtype)[()]

    return checked(polygamma)


register_op("Igamma", "a: T, x: T -> z: T", FLOAT_ATTR, shape=broadcast)
register_op("Igammac", "a: T, x: T -> z: T", FLOAT_ATTR, shape=broadcast)
register_op("Zeta", "x: T, q: T -> z: T", _BINARY_ATTR, shape=broadcast)
register_op("Polygamma", "a: T, x: T -> z: T", _BINARY_ATTR, shape=broadcast)


def _betainc_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """Scalars aside, all inputs have one shape."""
    shape = UNKNOWN_SHAPE
    for given in c.input_shapes:
        if given.rank != 0:
            shape = shape.merge_with(given)
    return [SCALAR if all(given.rank == 0 for given in c.input_shapes) else shape]


@register_kernel("Betainc", dtypes={"T": WIDE_FLOATS}, libraries=_SPECIAL)
def _betainc(c: OpKernelConstruction) -> Kernel:
    betainc = _special().betainc

    def kernel(a: ArrayOrScalar, b: ArrayOrScalar, x: ArrayOrScalar) -> ArrayOrScalar:
        if len({np.shape(value) for value in (a, b, x)} - {()}) > 1:
            raise InvalidArgumentError(
                f"Shapes of a, b and x must be equal unless scalar: {shape_text(a)}, {shape_text(b)}, {shape_text(x)}"
            )
        outside = ~(np.greater(a, 0) & np.greater(b, 0) & np.isfinite(a) & np.isfinite(b))
        value = betainc(a, b, x)
        return np.where(outside, value.dtype.type(np.nan), value)[()] if np.any(outside) else value

    return kernel


register_op("Betainc", "a: T, b: T, x: T -> z: T", _BINARY_ATTR, shape=_betainc_shape)
