"""RequantizationRangePerChannel and RequantizePerChannel: int32 numbers with a range for each channel.

Rules from ``tensorflow/core/kernels/mkl/mkl_requantization_range_per_channel_op.cc`` and
``mkl_requantize_per_channel_op.cc``.  Channels are the last of four dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import SCALAR, TensorShape
from asyncexec.ops.nn.quantization import QUANTIZED_ATTR, scalar

_HALF: Final = np.float32(2**31)  # int32 numbers go up to this


def _range_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.with_rank(0, 4)
    c.vector(1)
    c.vector(2)
    return [SCALAR, SCALAR]


def _requantized_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.vector(1)
    c.vector(2)
    c.scalar(3)
    c.scalar(4)
    return [c.with_rank(0, 4), SCALAR, SCALAR]


register_op(
    "RequantizationRangePerChannel",
    "input: T, input_min: float32, input_max: float32 -> output_min: float32, output_max: float32",
    f"T: {QUANTIZED_ATTR} = qint32; clip_value_max: float",
    shape=_range_shape,
)
register_op(
    "RequantizePerChannel",
    "input: T, input_min: float32, input_max: float32, requested_output_min: float32, requested_output_max: float32"
    " -> output: out_type, output_min: float32, output_max: float32",
    f"T: {QUANTIZED_ATTR} = qint32; out_type: {QUANTIZED_ATTR} = quint8",
    shape=_requantized_shape,
)


def _reaches(x: Array, low: Array, high: Array) -> Array:
    """How far the range of each channel goes from 0."""
    if np.ndim(x) != 4:
        raise InvalidArgumentError(f"input must have 4 dimensions, not {np.ndim(x)}")
    for name, given in (("input_min", low), ("input_max", high)):
        if np.shape(given) != x.shape[-1:]:
            raise InvalidArgumentError(f"{name} has incorrect size, expected {x.shape[-1]} was {np.size(given)}")
    return np.maximum(np.abs(low), np.abs(high))


@register_kernel("RequantizationRangePerChannel", dtypes={"T": {types.qint32}})
def _range_per_channel(c: OpKernelConstruction) -> Kernel:
    """The range that the numbers of all channels take, symmetrical about 0 unless none is negative."""
    most = np.float32(c.attr("clip_value_max"))

    def range_per_channel(x: Array, low: Any, high: Any) -> tuple[np.generic, np.generic]:
        reaches, rows = _reaches(x, low, high), x.reshape(-1, x.shape[-1]).astype(np.int64)
        if not x.size:
            raise InvalidArgumentError("input must not be empty")
        used: Any = reaches * np.abs(rows).max(axis=0).astype(np.float32) / _HALF
        end = min(most, max(np.finfo(np.float32).tiny, used.max()))
        return (np.float32(0) if (rows >= 0).all() else -end), end

    return range_per_channel


@register_kernel("RequantizePerChannel", dtypes={"T": {types.qint32}, "out_type": {types.qint8, types.quint8}})
def _requantize_per_channel(c: OpKernelConstruction) -> Kernel:
    """The numbers of each channel as 8-bit ones of one range, symmetrical about 0."""
    dtype = c.np_dtype("out_type")
    limits = np.iinfo(dtype)

    def requantize(x: Any, low: Any, high: Any, new_low: Any, new_high: Any) -> tuple[object, object, object]:
        new_low, new_high = scalar(new_low, "requested_output_min"), scalar(new_high, "requested_output_max")
        if limits.min < 0 and not new_low < 0:
            raise InvalidArgumentError(f"requested_output_min must be negative for qint8, not {new_low}")
        scales = np.float32(limits.max) * (_reaches(x, low, high) / max(abs(new_low), abs(new_high)) / _HALF)
        found = np.rint(x.astype(np.float32) * scales)
        return found.clip(limits.min, limits.max).astype(dtype), new_low, new_high

    return requantize
