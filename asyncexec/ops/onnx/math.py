"""Arithmetic and elementary functions.  Results have the dtype of the inputs; integers are divided towards zero."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel
from asyncexec.ops.math.binary_math import integer_power
from asyncexec.ops.math.division import truncating_quotient
from asyncexec.ops.math.error_function import erf_function
from asyncexec.ops.onnx.common import axis_of, check_broadcast, in_single, integer, of_one, of_two, refusing
from asyncexec.ops.onnx.onnx_kernels import OnnxNode, onnx_kernel

_UNARY: Final[dict[str, np.ufunc]] = {
    "Abs": np.absolute,
    "Acos": np.arccos,
    "Acosh": np.arccosh,
    "Asin": np.arcsin,
    "Asinh": np.arcsinh,
    "Atan": np.arctan,
    "Atanh": np.arctanh,
    "Ceil": np.ceil,
    "Cos": np.cos,
    "Cosh": np.cosh,
    "Exp": np.exp,
    "Floor": np.floor,
    "Log": np.log,
    "Neg": np.negative,
    "Reciprocal": np.reciprocal,
    "Round": np.rint,
    "Sign": np.sign,
    "Sin": np.sin,
    "Sinh": np.sinh,
    "Sqrt": np.sqrt,
    "Tan": np.tan,
    "Tanh": np.tanh,
}

for _op, _ufunc in _UNARY.items():
    onnx_kernel(_op)(of_one(_ufunc))
for _op, _ufunc in {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}.items():
    onnx_kernel(_op, since=7)(of_two(_ufunc))


@onnx_kernel("Erf")
def make_erf(node: OnnxNode) -> Kernel:
    """The kernel of Erf, which takes integers too."""
    erf = in_single(erf_function())
    return of_one(lambda x: erf(x).astype(x.dtype, copy=False))(node)


def divide(x: ArrayOrScalar, y: ArrayOrScalar) -> ArrayOrScalar:
    """x / y; that of integers is rounded towards zero."""
    if x.dtype.kind not in "iu":
        return np.divide(x, y)
    _refuse_zero(x, y)
    return np.floor_divide(x, y) if x.dtype.kind == "u" else truncating_quotient(x, y)


def _refuse_zero(x: ArrayOrScalar, y: ArrayOrScalar) -> None:
    if y.dtype.kind in "iu" and not np.all(y) and x.size:
        raise InvalidArgumentError("an integer is divided by zero")


onnx_kernel("Div", since=7)(of_two(divide))


@onnx_kernel("Mod", since=7)
def make_mod(node: OnnxNode) -> Kernel:
    """The kernel of Mod: the sign is that of the divisor, or of the dividend with ``fmod``."""
    remainder = np.fmod if node.attr("fmod", 0) else np.remainder

    def mod(x: Array, y: ArrayOrScalar) -> Array:
        _refuse_zero(x, y)
        return remainder(x, y)

    return of_two(mod)(node)


def power(x: ArrayOrScalar, y: ArrayOrScalar) -> ArrayOrScalar:
    """x to the power of y, in the dtype of x, whatever that of y is."""
    if x.dtype.kind in "iu":
        if y.dtype.kind in "iu":
            return integer_power(x, y.astype(x.dtype, copy=False))
        return np.power(x.astype(np.float64), y.astype(np.float64)).astype(x.dtype)
    if y.ndim == 0 and y == 2:
        return np.multiply(x, x)
    return np.power(x, y.astype(x.dtype, copy=False))


onnx_kernel("Pow", since=7)(of_two(power))


def _folded(ufunc: np.ufunc) -> Callable[[OnnxNode], Kernel]:
    """The factory of a kernel of any number of inputs that combines them one after the other."""

    def make(node: OnnxNode) -> Kernel:
        return of_two(ufunc)(node) if len(node.inputs) == 2 else of_many(node)

    @refusing
    def of_many(node: OnnxNode) -> Kernel:
        def combine(*inputs: object) -> tuple[Any]:
            check_broadcast(*inputs)
            return (functools.reduce(ufunc, inputs),)

        return combine

    return make


onnx_kernel("Max")(_folded(np.maximum))
onnx_kernel("Min")(_folded(np.minimum))
onnx_kernel("Sum")(_folded(np.add))


@onnx_kernel("Mean")
@refusing
def make_mean(node: OnnxNode) -> Kernel:
    """The kernel of Mean: that of several tensors, element by element."""

    def mean(first: Array, *others: ArrayOrScalar) -> tuple[Any]:
        check_broadcast(first, *others)
        total = functools.reduce(np.add, others, first)
        return (np.divide(total, total.dtype.type(len(others) + 1)),)

    return mean


@onnx_kernel("Clip", since=11)
@refusing
def make_clip(node: OnnxNode) -> Kernel:
    """The kernel of Clip: the limits are inputs; where they cross all is the upper one."""

    def clip(x: Any, low: Any = None, high: Any = None) -> tuple[Array]:
        if low is not None:
            x = np.maximum(x, _scalar(low, "min"))
        if high is not None:
            x = np.minimum(x, _scalar(high, "max"))
        return (x,)

    return clip


def _scalar(value: ArrayOrScalar, what: str) -> Any:
    if value.size != 1:
        raise InvalidArgumentError(f"{what} must be a scalar, not of shape {list(value.shape)}")
    return value if value.ndim == 0 else value.reshape(())


@onnx_kernel("Clip")
def make_clip_by_attrs(node: OnnxNode) -> Kernel:
    """The kernel of Clip before 11: the limits are attributes."""
    low, high = node.attr("min"), node.attr("max")

    def clip(x: Any) -> object:
        if low is not None:
            x = np.maximum(x, x.dtype.type(low))
        return x if high is None else np.minimum(x, x.dtype.type(high))

    return of_one(clip)(node)


def _accumulating(ufunc: np.ufunc, initial: int) -> Callable[[OnnxNode], Kernel]:
    def make(node: OnnxNode) -> Kernel:
        direction = slice(None, None, -1) if node.attr("reverse", 0) else slice(None)
        is_exclusive = node.attr("exclusive", 0)

        def accumulate(x: Array, axis: ArrayOrScalar) -> tuple[Array]:
            along = axis_of(integer(axis, "axis"), x.ndim)
            if not x.size:
                return (x,)
            before = (slice(None),) * along
            x = x[(*before, direction)]
            if is_exclusive:
                first = np.full_like(x[(*before, slice(0, 1))], initial)
                x = np.concatenate([first, x[(*before, slice(0, -1))]], along)
            return (np.ascontiguousarray(ufunc.accumulate(x, along, x.dtype)[(*before, direction)]),)

        return accumulate

    return refusing(make)


onnx_kernel("CumSum")(_accumulating(np.add, 0))
onnx_kernel("CumProd")(_accumulating(np.multiply, 1))
