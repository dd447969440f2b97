"""Layers of quantized networks: convolution, pooling, activations, concatenation, reshaping, instance normalization.

Rules from ``tensorflow/core/ops/nn_ops.cc``, ``array_ops.cc`` and ``core/kernels/quantized_*_op(s).cc``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction, as_value
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import SCALAR, TensorShape
from asyncexec.ops.array.array import reshape, reshaped
from asyncexec.ops.array.array_common import mean_of
from asyncexec.ops.array.concat_split import concat, concat_shape
from asyncexec.ops.nn.convolution import conv_shape, convolution_kernel
from asyncexec.ops.nn.pooling import Pooling, pool_shape
from asyncexec.ops.nn.pooling_windows import average_pool, max_pool
from asyncexec.ops.nn.quantization import (
    QUANTIZED_ATTR,
    check_ordered,
    check_rank,
    clipped_integer,
    range_shape,
    scalar,
    to_floats,
    to_integers,
)
from asyncexec.ops.nn.quantized_math import as_int32, centered, product_range

_BYTES: Final = {"T": {types.qint8, types.quint8}}
_CONV_ATTRS: Final = (
    f"Tinput: {QUANTIZED_ATTR}; Tfilter: {QUANTIZED_ATTR}; out_type: {QUANTIZED_ATTR} = qint32; strides: list(int); "
    "padding: {'SAME', 'VALID'}; dilations: list(int) = [1, 1, 1, 1]"
)


def _with_range(shape: Sequence[TensorShape], c: InferenceContext, start: int) -> list[TensorShape]:
    """What an output is, and its range; the inputs from *start* on are ranges."""
    for index in range(start, c.num_inputs):
        c.scalar(index)
    return [*shape, SCALAR, SCALAR]


register_op(
    "QuantizedConv2D",
    "input: Tinput, filter: Tfilter, min_input: float32, max_input: float32, min_filter: float32, max_filter: float32"
    " -> output: out_type, min_output: float32, max_output: float32",
    _CONV_ATTRS,
    shape=lambda c: _with_range(conv_shape(c)[:1], c, 2),
)


@register_kernel(
    "QuantizedConv2D",
    kind=KernelKind.EXPENSIVE,
    dtypes={"Tinput": {types.quint8}, "Tfilter": {types.quint8}, "out_type": {types.qint32}},
)
def _quantized_conv2d(c: OpKernelConstruction) -> Kernel:
    strides, dilations = c.attr("strides"), c.attr("dilations")
    if len(strides) == 4 and strides[1] != strides[2]:
        raise InvalidArgumentError(
            "Current implementation only supports equal length strides in the row and column dimensions."
        )
    if list(dilations) != [1, 1, 1, 1]:
        raise InvalidArgumentError("Current implementation only supports dilated rate as 1 in the row and column.")
    convolve = convolution_kernel(c, 2)
    names = ("min_input", "max_input", "min_filter", "max_filter")

    def quantized_conv2d(x: Any, filters: ArrayOrScalar, *given: object) -> tuple[ArrayOrScalar, ArrayOrScalar, object]:
        ranges = [scalar(value, name) for value, name in zip(given, names, strict=True)]
        product = convolve(centered(x, *ranges[:2]), centered(filters, *ranges[2:]))
        return as_int32(product), *product_range(x.dtype, filters.dtype, ranges)

    return quantized_conv2d


_POOL_ATTRS: Final = f"T: {QUANTIZED_ATTR}; ksize: list(int); strides: list(int); padding: {{'SAME', 'VALID'}}"
for _op in ("QuantizedMaxPool", "QuantizedAvgPool"):
    register_op(
        _op,
        "input: T, min_input: float32, max_input: float32 -> output: T, min_output: float32, max_output: float32",
        _POOL_ATTRS,
        shape=lambda c: _with_range(pool_shape(c)[:1], c, 1),
    )


@register_kernel("QuantizedMaxPool", dtypes=_BYTES)
def _quantized_max_pool(c: OpKernelConstruction) -> Kernel:
    pooling = Pooling(c.attrs, 2)

    def quantized_max_pool(
        x: Array, low: np.generic, high: np.generic
    ) -> tuple[ArrayOrScalar, ArrayOrScalar, ArrayOrScalar]:
        return pooling.pool(x, max_pool), scalar(low, "min_input"), scalar(high, "max_input")

    return quantized_max_pool


@register_kernel("QuantizedAvgPool", dtypes=_BYTES)
def _quantized_average_pool(c: OpKernelConstruction) -> Kernel:
    pooling = Pooling(c.attrs, 2, average=True)

    def quantized_average_pool(
        x: Array, low: np.generic, high: np.generic
    ) -> tuple[ArrayOrScalar, ArrayOrScalar, ArrayOrScalar]:
        check_rank("tensor_in", x, 4)
        mean = pooling.pool(x.astype(np.float64), average_pool)
        return np.trunc(mean).astype(x.dtype), scalar(low, "min_input"), scalar(high, "max_input")

    return quantized_average_pool


for _op, _value in (("QuantizedRelu", ""), ("QuantizedRelu6", ""), ("QuantizedReluX", " max_value: float32,")):
    register_op(
        _op,
        f"features: Tinput,{_value} min_features: float32, max_features: float32 -> activations: out_type,"
        " min_activations: float32, max_activations: float32",
        f"Tinput: {QUANTIZED_ATTR}; out_type: {QUANTIZED_ATTR} = quint8",
        shape=range_shape,
    )


def _register_relu(op: str, limit: float | None) -> None:
    for dtype in (types.quint8, types.qint32):

        @register_kernel(op, dtypes={"Tinput": {dtype}, "out_type": {dtype}})
        def make(c: OpKernelConstruction) -> Kernel:
            np_dtype = c.np_dtype("Tinput")

            def relu(x: Any, *given: object) -> tuple[ArrayOrScalar, ArrayOrScalar, ArrayOrScalar]:
                *top, low, high = given
                low, high = scalar(low, "min_features"), scalar(high, "max_features")
                least = np_dtype.type(clipped_integer(np_dtype, 0.0, low, high))
                clamped = np.maximum(x, least)
                upper = float(scalar(top[0], "max_value")) if top else limit
                if upper is not None:
                    clamped = np.minimum(clamped, np_dtype.type(clipped_integer(np_dtype, upper, low, high)))
                return as_value(clamped), low, high

            return relu


_register_relu("QuantizedRelu", None)
_register_relu("QuantizedRelu6", 6.0)
_register_relu("QuantizedReluX", None)


def _concat_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.scalar(0)
    for name in ("input_mins", "input_maxes"):
        for shape in c.arg(name):
            shape.with_rank(0)
    return [concat_shape(c.arg("values"), c.int_value(0)), SCALAR, SCALAR]


register_op(
    "QuantizedConcat",
    "concat_dim: int32, values: N*T, input_mins: N*float32, input_maxes: N*float32 -> output: T, output_min: float32,"
    " output_max: float32",
    "N: int >= 2; T: type",
    shape=_concat_shape,
)


@register_kernel("QuantizedConcat", dtypes={"T": {types.quint8, types.qint32}})
def _quantized_concat(c: OpKernelConstruction) -> Kernel:
    count, dtype = c.attr("N"), c.np_dtype("T")

    def quantized_concat(axis: Any, *inputs: object) -> tuple[ArrayOrScalar, ArrayOrScalar, ArrayOrScalar]:
        if np.less(axis, 0).any():
            raise InvalidArgumentError(f"concat_dim must not be negative, but is {axis}")
        lows = [scalar(value, "input_mins") for value in inputs[count : 2 * count]]
        highs = [scalar(value, "input_maxes") for value in inputs[2 * count :]]
        low, high = min(np.float32(0), *lows), max(highs)
        if dtype.kind == "i":
            high = max(abs(low), abs(high))
            low = -high
        parts = [
            x if (from_low, from_high) == (low, high) else _moved(x, from_low, from_high, low, high)
            for x, from_low, from_high in zip(inputs[:count], lows, highs, strict=True)
        ]
        return concat(parts, axis), low, high

    return quantized_concat


def _moved(x: Any, low: np.generic, high: np.generic, new_low: np.generic, new_high: Any) -> object:
    """*x* as integers of another range."""
    return to_integers(to_floats(x, low, high), x.dtype, new_low, new_high)


def _reshape_shape(c: InferenceContext) -> Sequence[TensorShape]:
    return _with_range([reshaped(c.input(0), c.value_as_shape(1))], c, 2)


register_op(
    "QuantizedReshape",
    "tensor: T, shape: Tshape, input_min: float32, input_max: float32 -> output: T, output_min: float32,"
    " output_max: float32",
    "T: type; Tshape: {int32, int64} = int32",
    shape=_reshape_shape,
)


@register_kernel("QuantizedReshape", dtypes={"T": {types.quint8, types.qint32}})
def _quantized_reshape(c: OpKernelConstruction) -> Kernel:
    return lambda x, shape, low, high: (reshape(x, shape), low, high)


register_op(
    "QuantizedInstanceNorm",
    "x: T, x_min: float32, x_max: float32 -> y: T, y_min: float32, y_max: float32",
    f"T: {QUANTIZED_ATTR}; output_range_given: bool = False; given_y_min: float = 0.0; given_y_max: float = 0.0; "
    "variance_epsilon: float = 1e-05; min_separation: float = 0.001",
    shape=lambda c: _with_range([c.with_rank(0, 4)], c, 1),
)


@register_kernel("QuantizedInstanceNorm", dtypes={"T": {types.quint8}})
def _quantized_instance_norm(c: OpKernelConstruction) -> Kernel:
    epsilon, separation = np.float32(c.attr("variance_epsilon")), np.float32(c.attr("min_separation"))
    given = (np.float32(c.attr("given_y_min")), np.float32(c.attr("given_y_max")))
    has_range = c.attr("output_range_given")
    if has_range and not given[0] < given[1]:
        raise InvalidArgumentError(f"given_y_min must be less than given_y_max : {given[0]} >= {given[1]}")

    def instance_norm(x: Any, low: Any, high: Any) -> tuple[ArrayOrScalar, ArrayOrScalar, ArrayOrScalar]:
        check_rank("x", x, 4)
        low, high = scalar(low, "x_min"), scalar(high, "x_max")
        check_ordered("input", low, high)
        scale, floats = (high - low) / np.float32(255), x.astype(np.float32)
        distance = scale * (floats - mean_of(floats, (1, 2), keepdims=True))
        variance = mean_of(np.square(distance), (1, 2), keepdims=True)
        normed = distance / np.sqrt(variance + epsilon)
        new_low, new_high = given if has_range else (normed.min(), normed.max())
        if new_high - new_low < separation:
            new_high = new_low + separation
        return to_integers(normed, x.dtype, new_low, new_high), new_low, new_high

    return instance_norm
