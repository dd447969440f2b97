"""Elementwise math of two or more inputs (``tensorflow/core/ops/math_ops.cc``, ``core/kernels/cwise_op_*.cc``)."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import reduce
from typing import Any, Final

import numpy as np

from asyncexec.framework import variant_ops
from asyncexec.framework.arrays import ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction, as_value
from asyncexec.framework.kernel_registry import register_function, register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext, merged, unchanged
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import complex64, complex128, int32, int64, string, uint8, uint16, variant
from asyncexec.ops.math.elementwise import (
    COMPLEXES,
    FLOAT_ATTR,
    FLOAT_COMPLEX_ATTR,
    FLOATS,
    NUMBERS,
    SIGNED,
    gives_scalar,
    register_binary,
    register_binary_kernel,
    shape_text,
)

ARITHMETIC_ATTR: Final = (
    "T: {bfloat16, float16, float32, float64, uint8, int8, uint16, int16, int32, uint32, uint64, int64, "
    "complex64, complex128}"
)
_ADD_ATTR: Final = (
    "T: {bfloat16, float16, float32, float64, uint8, int8, int16, int32, int64, complex64, complex128, string}"
)
_POW_ATTR: Final = "T: {bfloat16, float32, float16, float64, int8, int16, int32, int64, complex64, complex128}"
_SQUARED_DIFFERENCE_ATTR: Final = "T: {bfloat16, float16, float32, float64, int32, int64, complex64, complex128}"
_ADD_N_ATTR: Final = (
    "N: int >= 1; T: {float32, float64, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, "
    "bfloat16, qint16, quint16, uint16, complex128, float16, uint32, uint64, variant}"
)


_FIRST_GROUPS: Final = (8, 9, 2, 3, 4, 5, 6, 7)  # of a sum of many, by the rest that their number leaves


def zero_where_zero(selector: ArrayOrScalar, result: ArrayOrScalar) -> ArrayOrScalar:
    """*result*, but 0 wherever *selector* is 0 (NaN and infinity included)."""
    return as_value(np.where(selector == 0, np.zeros((), np.asarray(result).dtype), result))


def mul_no_nan(x: Any, y: Any) -> ArrayOrScalar:
    """x * y, and 0 where y is 0."""
    return zero_where_zero(y, x * y)


def div_no_nan(x: Any, y: Any) -> ArrayOrScalar:
    """x / y, and 0 where y is 0."""
    return zero_where_zero(y, x / y)


def xdivy(x: Any, y: object) -> ArrayOrScalar:
    """x / y, and 0 where x is 0."""
    return zero_where_zero(x, x / y)


def xlogy(x: ArrayOrScalar, y: ArrayOrScalar) -> ArrayOrScalar:
    """x * log(y), and 0 where x is 0."""
    return zero_where_zero(x, x * np.log(y))


def xlog1py(x: ArrayOrScalar, y: ArrayOrScalar) -> ArrayOrScalar:
    """x * log(1 + y), and 0 where x is 0."""
    return zero_where_zero(x, x * np.log1p(y))


def squared_difference(x: Any, y: Any) -> ArrayOrScalar:
    """(x - y) ** 2"""
    difference = x - y
    return difference * difference


def complex_squared_difference(x: Any, y: Any) -> ArrayOrScalar:
    """|x - y| ** 2, still complex."""
    difference = x - y
    return (difference.real * difference.real + difference.imag * difference.imag).astype(difference.dtype)


def integer_power(x: ArrayOrScalar, y: Any) -> ArrayOrScalar:
    """x ** y with wrap-around; InvalidArgumentError for a negative exponent."""
    if np.size(x) and np.any(y < 0):
        raise InvalidArgumentError("Integers to negative integer powers are not allowed")
    return np.power(x, np.maximum(y, 0))


def maximum_of_scalars(x: Any, y: Any) -> np.generic:
    """The larger of two scalars, NaN if either is."""
    return x if x > y or x != x else y


def minimum_of_scalars(x: Any, y: Any) -> np.generic:
    """The smaller of two scalars, NaN if either is."""
    return x if x < y or x != x else y


register_binary("AddV2", operator.add, ARITHMETIC_ATTR, is_commutative=True)
register_binary("Sub", operator.sub, ARITHMETIC_ATTR)
register_binary("Mul", operator.mul, ARITHMETIC_ATTR, is_commutative=True)
register_binary("Add", operator.add, _ADD_ATTR, (SIGNED | FLOATS | COMPLEXES | {uint8, string}))
register_binary("Maximum", np.maximum, "T: realnumbertype", scalar_function=maximum_of_scalars)
register_binary("Minimum", np.minimum, "T: realnumbertype", scalar_function=minimum_of_scalars)
register_binary("Atan2", np.arctan2, FLOAT_ATTR, signature="y: T, x: T -> z: T")
register_binary("NextAfter", np.nextafter, "T: {float64, float32} = float32", signature="x1: T, x2: T -> output: T")
register_binary("Pow", operator.pow, _POW_ATTR, FLOATS | COMPLEXES)
register_binary_kernel("Pow", integer_power, SIGNED)
register_binary(
    "SquaredDifference", squared_difference, _SQUARED_DIFFERENCE_ATTR, FLOATS | {int32, int64}, is_commutative=True
)
register_binary_kernel("SquaredDifference", complex_squared_difference, {complex64, complex128})

_ZERO_FUNCTIONS: Final[dict[str, Kernel]] = {
    "MulNoNan": mul_no_nan,
    "DivNoNan": div_no_nan,
    "Xdivy": xdivy,
    "Xlogy": xlogy,
    "Xlog1py": xlog1py,
}
for _name, _function in _ZERO_FUNCTIONS.items():
    # x * log(y) is log(y) * x where numpy takes the array of the logarithm, a large one, for the product.
    register_binary(_name, _function, FLOAT_COMPLEX_ATTR, is_elementwise=not _name.startswith("Xlog"))


def add_n(*inputs: ArrayOrScalar) -> ArrayOrScalar:
    """The sum of tensors of one shape, added up in groups of eight (``tensorflow/core/kernels/aggregate_ops.h``)."""
    if len({each.shape for each in inputs}) > 1:
        shape = np.shape(inputs[0])
        other = next(each for each in inputs if each.shape != shape)
        raise InvalidArgumentError(
            "Inputs to operation of type AddN must have the same size and shape: "
            f"input 0: {shape_text(inputs[0])} != {shape_text(other)}"
        )
    return add_in_groups(*inputs)


def add_in_groups(*inputs: Any) -> Any:
    """The same for what is known to be of one shape."""
    count = len(inputs)
    end = _FIRST_GROUPS[count % 8]
    total = inputs[0]
    for other in inputs[1:end]:
        total = total + other
    for start in range(end, count, 8):  # written out: it takes half as long
        a, b, c, d, e, f, g, h = inputs[start : start + 8]
        total = total + (a + b + c + d + e + f + g + h)
    return total


def groups_of(count: int) -> list[slice]:
    """The groups in which *count* summands are added: what does not make up a group of eight comes with the first."""
    end = _FIRST_GROUPS[count % 8]
    return [slice(0, end), *[slice(start, start + 8) for start in range(end, count, 8)]]


def add_up(total: Any, *others: object) -> Any:
    """The sum of a group."""
    for other in others:
        total = total + other
    return total


def add_group(total: object, *summands: object) -> object:
    """*total*, and the sum of another group."""
    return total + add_up(*summands)


def _make_add_n(c: OpKernelConstruction) -> Kernel:
    return add_in_groups if gives_scalar(c) and c.op == "AddN" else add_n


def _accumulate_n_shape(c: InferenceContext) -> Sequence[TensorShape]:
    declared: TensorShape = c.attr("shape")
    return [declared]


register_op("AddN", "inputs: N*T -> sum: T", _ADD_N_ATTR, shape=merged, is_commutative=True)
register_op(
    "AccumulateNV2",
    "inputs: N*T -> sum: T",
    "N: int >= 1; T: numbertype; shape: shape",
    shape=_accumulate_n_shape,
    is_commutative=True,
)
for _name in ("AddN", "AccumulateNV2"):
    register_kernel(_name, dtypes={"T": NUMBERS}, is_elementwise=True)(_make_add_n)


def _add_variants(*inputs: object) -> object:
    if any(isinstance(value, np.ndarray) for value in inputs):
        raise InvalidArgumentError("AddN of non-scalar Tensor with dtype=DT_VARIANT is not supported")
    return reduce(variant_ops.add, inputs)


register_function("AddN", function=_add_variants, dtypes={"T": {variant}})


def clip_by_value(t: ArrayOrScalar, low: ArrayOrScalar, high: ArrayOrScalar) -> ArrayOrScalar:
    """*t*, not below *low* nor above *high*, each a scalar or of the shape of *t*."""
    if np.shape(low) not in ((), np.shape(t)) or np.shape(high) not in ((), np.shape(t)):
        raise InvalidArgumentError(
            "clip_value_min and clip_value_max must be either of the same shape as input, or a scalar. "
            f"input shape: {shape_text(t)}, clip_value_min shape: {shape_text(low)}, "
            f"clip_value_max shape: {shape_text(high)}"
        )
    return np.maximum(np.minimum(t, high), low)


register_op(
    "ClipByValue",
    "t: T, clip_value_min: T, clip_value_max: T -> output: T",
    "T: numbertype",
    shape=unchanged,
)
register_function(
    "ClipByValue", function=clip_by_value, dtypes={"T": SIGNED | FLOATS | {uint8, uint16}}, is_elementwise=True
)


def clip_parts_by_value(t: ArrayOrScalar, low: np.generic, high: np.generic) -> ArrayOrScalar:
    """The same of complex numbers: real and imaginary parts each by themselves."""
    found = np.empty(np.shape(t), t.dtype)
    found.real, found.imag = clip_by_value(t.real, low.real, high.real), clip_by_value(t.imag, low.imag, high.imag)
    return as_value(found)


register_function("ClipByValue", function=clip_parts_by_value, dtypes={"T": COMPLEXES})
