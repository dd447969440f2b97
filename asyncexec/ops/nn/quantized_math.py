"""Arithmetic of quantized tensors: QuantizedAdd, QuantizedMul, QuantizedMatMul, QuantizedBiasAdd, Requantize and so on.

Rules from ``tensorflow/core/ops/math_ops.cc`` and ``core/kernels/quantized_*_op.cc``, ``requantize.cc``,
``quantize_down_and_shrink_range.cc``.  Products of integers are exact: they are summed up in float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.arrays import Array, ArrayOrScalar, NumpyDType
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction, as_value
from asyncexec.framework.kernel_registry import register_function, register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext, broadcast_shapes
from asyncexec.framework.tensor_shape import SCALAR, TensorShape
from asyncexec.ops.array.array_common import merge_dim
from asyncexec.ops.math.elementwise import check_broadcast, shape_text
from asyncexec.ops.nn.quantization import (
    QUANTIZED_ATTR,
    check_ordered,
    clipped_integer,
    one_level,
    range_shape,
    scalar,
    to_exact_floats,
    to_exact_integers,
    to_floats,
    to_integer,
    to_integers,
)

_INT32: Final = np.dtype(np.int32)
_UINT8: Final = np.dtype(np.uint8)
_BITS: Final = 16  # after the point, of what qint32 becomes on its way to quint8


def product_range(a: NumpyDType, b: NumpyDType, ranges: Sequence[object]) -> tuple[Any, Any]:
    """The range of int32 products of integers of the types *a* and *b*, which have those ranges."""
    low_a, high_a, low_b, high_b = ranges
    level = one_level(a, low_a, high_a) * one_level(b, low_b, high_b)
    return level * np.float32(-(2**31)), level * np.float32(2**31 - 1)


def as_int32(exact: object) -> Array:
    """Sums of products, which float64 holds exactly, as int32 numbers."""
    return as_value(np.asarray(exact).astype(np.int64).astype(np.int32))


def centered(x: ArrayOrScalar, low: np.generic, high: np.generic) -> Any:
    """Integers as float64 numbers, less the one that stands for 0."""
    return x.astype(np.float64) - to_integer(x.dtype, 0.0, low, high)


def requantized(x: Any, low: Any, high: Any, dtype: NumpyDType, new_low: np.generic, new_high: Any) -> Any:
    """The int32 numbers *x* of one range as integers of *dtype* of another."""
    if dtype == _UINT8:
        return _to_uint8(x, float(low), float(high), float(new_low), float(new_high))
    return to_integers(to_floats(x, low, high), dtype, new_low, new_high)


def _to_uint8(x: Array, low: float, high: float, new_low: float, new_high: float) -> Array:
    """With integers only, as TensorFlow does it."""
    width, new_width = np.float32(high) - np.float32(low), np.float32(new_high) - np.float32(new_low)
    if not new_width:
        scale = offset = new_offset = 0
    else:
        middle = np.float32((np.float32(low) + np.float32(high)) / 2.0)
        scale = int(255.0 * (1 << _BITS) * float(width) / float(new_width))
        offset = int(middle * np.float32(255.0 / float(new_width)) * np.float32(1 << _BITS))
        new_offset = int((1 << _BITS) * (new_low * 255.0) / float(new_width))
    fixed = ((x.astype(np.int64) * scale) >> 32) + (offset - new_offset + (1 << (_BITS - 1)))
    return np.clip(fixed >> _BITS, 0, 255).astype(np.uint8)


def _binary_shape(c: InferenceContext) -> Sequence[TensorShape]:
    for index in range(2, 6):
        c.scalar(index)
    return [broadcast_shapes(c.input(0), c.input(1)), SCALAR, SCALAR]


for _op in ("QuantizedAdd", "QuantizedMul"):
    register_op(
        _op,
        "x: T1, y: T2, min_x: float32, max_x: float32, min_y: float32, max_y: float32 -> z: Toutput, min_z: float32,"
        " max_z: float32",
        f"T1: {QUANTIZED_ATTR}; T2: {QUANTIZED_ATTR}; Toutput: {QUANTIZED_ATTR} = qint32",
        shape=_binary_shape,
    )
_QUINT8: Final = {"T1": {types.quint8}, "T2": {types.quint8}, "Toutput": {types.qint32}}


def _range_of(name: str, low: object, high: object) -> tuple[Any, Any]:
    low, high = scalar(low, f"min_{name}"), scalar(high, f"max_{name}")
    check_ordered(name, low, high)
    return low, high


def _sum_range(ranges: Sequence[Any], bits: int) -> tuple[np.generic, np.generic]:
    """A range with *bits* of room for sums, symmetrical about 0."""
    low_a, high_a, low_b, high_b = ranges
    high = max(high_a, -low_a, high_b, -low_b) * np.float32(1 << bits)
    return -high, high


def quantized_add(x: Any, y: ArrayOrScalar, *ranges: np.generic) -> tuple[ArrayOrScalar, ArrayOrScalar, ArrayOrScalar]:
    """The sum as int32 numbers, and their range."""
    check_broadcast(x, y)
    range_x, range_y = _range_of("x", *ranges[:2]), _range_of("y", *ranges[2:])
    low, high = _sum_range((*range_x, *range_y), 14)
    is_vector = max(np.ndim(x), np.ndim(y)) <= 1 or 1 in (np.size(x), np.size(y))
    terms = [_summand(v, r, low, high, is_vector and np.size(v) == 1) for v, r in ((x, range_x), (y, range_y))]
    return as_value(np.add(*terms)), low, high


def _summand(x: ArrayOrScalar, of_x: Sequence[np.generic], low: np.generic, high: np.generic, is_alone: bool) -> Any:
    """The quint8 numbers *x* as int32 ones of another range: multiples of what 1 is, unless one is alone."""
    if is_alone:
        return to_exact_integers(to_exact_floats(x, *of_x), _INT32, low, high)
    zero, one = to_exact_floats(np.array([0, 1], x.dtype), *of_x).tolist()
    start, end = (to_integer(_INT32, value, low, high) for value in (zero, one))
    return (start + x.astype(np.int64) * (end - start)).clip(-(2**31), 2**31 - 1).astype(np.int32)


def quantized_mul(x: Any, y: ArrayOrScalar, *ranges: object) -> tuple[ArrayOrScalar, ArrayOrScalar, ArrayOrScalar]:
    """The product as int32 numbers, and their range."""
    check_broadcast(x, y)
    range_x, range_y = _range_of("x", *ranges[:2]), _range_of("y", *ranges[2:])
    product = centered(x, *range_x) * centered(y, *range_y)
    return as_int32(product), *product_range(x.dtype, y.dtype, (*range_x, *range_y))


register_function("QuantizedAdd", function=quantized_add, dtypes=_QUINT8)
register_function("QuantizedMul", function=quantized_mul, dtypes=_QUINT8)


def _matmul_shape(c: InferenceContext) -> Sequence[TensorShape]:
    a, b = c.with_rank(0, 2), c.with_rank(1, 2)
    for index in range(2, 6):
        c.scalar(index)
    rows, inner = (1, 0) if c.attr("transpose_a") else (0, 1)
    inner_b, columns = (1, 0) if c.attr("transpose_b") else (0, 1)
    merge_dim(a[inner], b[inner_b], "inner dimensions")
    return [TensorShape([a[rows], b[columns]]), SCALAR, SCALAR]


register_op(
    "QuantizedMatMul",
    "a: T1, b: T2, min_a: float32, max_a: float32, min_b: float32, max_b: float32 -> out: Toutput, min_out: float32,"
    " max_out: float32",
    f"T1: {QUANTIZED_ATTR}; T2: {QUANTIZED_ATTR}; Toutput: {QUANTIZED_ATTR} = qint32; transpose_a: bool = False; "
    f"transpose_b: bool = False; Tactivation: {QUANTIZED_ATTR} = quint8",
    shape=_matmul_shape,
)


@register_kernel("QuantizedMatMul", kind=KernelKind.EXPENSIVE, dtypes=_QUINT8)
def _quantized_matmul(c: OpKernelConstruction) -> Kernel:
    transposes_a, transposes_b = c.attr("transpose_a"), c.attr("transpose_b")

    def quantized_matmul(
        a: Any, b: ArrayOrScalar, *given: np.generic
    ) -> tuple[ArrayOrScalar, ArrayOrScalar, ArrayOrScalar]:
        ranges = [scalar(value, name) for value, name in zip(given, ("min_a", "max_a", "min_b", "max_b"), strict=True)]
        check_ordered("a", *ranges[:2])
        check_ordered("b", *ranges[2:])
        for name, value in (("In[0]", a), ("In[1]", b)):
            if np.ndim(value) != 2:
                raise InvalidArgumentError(f"{name} is not a matrix. Instead it has shape {shape_text(value)}")
        left = centered(a.T if transposes_a else a, *ranges[:2])
        right = centered(b.T if transposes_b else b, *ranges[2:])
        if left.shape[1] != right.shape[0]:
            raise InvalidArgumentError(f"Matrix size-incompatible: In[0]: {shape_text(a)}, In[1]: {shape_text(b)}")
        return as_int32(left @ right), *product_range(a.dtype, b.dtype, ranges)

    return quantized_matmul


def _bias_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.vector(1)
    for index in range(2, 6):
        c.scalar(index)
    return [c.input(0).with_rank_at_least(1), SCALAR, SCALAR]


register_op(
    "QuantizedBiasAdd",
    "input: T1, bias: T2, min_input: float32, max_input: float32, min_bias: float32, max_bias: float32 ->"
    " output: out_type, min_out: float32, max_out: float32",
    f"T1: {QUANTIZED_ATTR}; T2: {QUANTIZED_ATTR}; out_type: {QUANTIZED_ATTR}",
    shape=_bias_shape,
)


def quantized_bias_add(x: Array, bias: Array, *given: np.generic) -> tuple[ArrayOrScalar, ArrayOrScalar, ArrayOrScalar]:
    """The sum as int32 numbers, and their range."""
    names = ("min_input", "max_input", "min_bias", "max_bias")
    ranges = [scalar(value, name) for value, name in zip(given, names, strict=True)]
    if not np.ndim(x):
        raise InvalidArgumentError(f"Input tensor must be at least 2D: {shape_text(x)}")
    if np.ndim(bias) != 1:
        raise InvalidArgumentError(f"Biases must be 1D: {shape_text(bias)}")
    if x.shape[-1] != len(bias):
        raise InvalidArgumentError(
            "Must provide as many biases as the last dimension of the input tensor: "
            f"{shape_text(bias)} vs. {shape_text(x)}"
        )
    low, high = _sum_range(ranges, 17)
    zero = clipped_integer(_INT32, 0.0, low, high)
    terms = (to_integers(to_floats(v, *r), _INT32, low, high) for v, r in ((x, ranges[:2]), (bias, ranges[2:])))
    return np.add(*terms) + np.int32(zero), low, high


register_function("QuantizedBiasAdd", function=quantized_bias_add, dtypes={"out_type": {types.qint32}})

register_op(
    "QuantizeDownAndShrinkRange",
    "input: Tinput, input_min: float32, input_max: float32 -> output: out_type, output_min: float32,"
    " output_max: float32",
    f"Tinput: {QUANTIZED_ATTR}; out_type: {QUANTIZED_ATTR}",
    shape=range_shape,
)
register_op(
    "RequantizationRange",
    "input: Tinput, input_min: float32, input_max: float32 -> output_min: float32, output_max: float32",
    f"Tinput: {QUANTIZED_ATTR}",
    shape=lambda c: range_shape(c)[1:],
)
register_op(
    "Requantize",
    "input: Tinput, input_min: float32, input_max: float32, requested_output_min: float32,"
    " requested_output_max: float32 -> output: out_type, output_min: float32, output_max: float32",
    f"Tinput: {QUANTIZED_ATTR}; out_type: {QUANTIZED_ATTR}",
    shape=range_shape,
)


def used_range(x: Any, low: Any, high: Any) -> tuple[np.generic, object]:
    """What the least and the greatest of *x* stand for; the least at most 0."""
    low, high = scalar(low, "input_min"), scalar(high, "input_max")
    least, greatest = (x.min(), x.max()) if x.size else (np.int32(2**31 - 1), np.int32(-(2**31)))
    bounds = to_exact_floats(np.array([least, greatest]), low, high)
    return np.minimum(np.float32(0), bounds[0]), bounds[1]


def quantize_down(x: object, low: object, high: object) -> tuple[object, object, object]:
    """*x* as quint8 numbers of the range that is used."""
    low, high = scalar(low, "input_min"), scalar(high, "input_max")
    new_low, new_high = used_range(x, low, high)
    return as_value(requantized(x, low, high, _UINT8, new_low, new_high)), new_low, new_high


register_function("RequantizationRange", function=used_range, dtypes={"Tinput": {types.qint32}})
register_function(
    "QuantizeDownAndShrinkRange",
    function=quantize_down,
    dtypes={"Tinput": {types.qint32}, "out_type": {types.quint8}},
)


@register_kernel("Requantize", dtypes={"Tinput": {types.qint32}, "out_type": {types.qint8, types.quint8}})
def _requantize(c: OpKernelConstruction) -> Kernel:
    dtype = c.np_dtype("out_type")

    def requantize(
        x: object, low: object, high: object, new_low: Any, new_high: object
    ) -> tuple[object, ArrayOrScalar, Any]:
        low, high = scalar(low, "input_min"), scalar(high, "input_max")
        new_low, new_high = scalar(new_low, "requested_output_min"), scalar(new_high, "requested_output_max")
        if new_low > 0:
            raise InvalidArgumentError(f"requested_output_min must be <= 0, but got {new_low}")
        if new_high < new_low:
            raise InvalidArgumentError(
                f"requested_output_max must be >= requested_output_min, but got {new_high} and {new_low}"
            )
        return as_value(requantized(x, low, high, dtype, new_low, new_high)), new_low, new_high

    return requantize
