"""QuantizeAndDequantizeV2: floats rounded to what a signed or unsigned integer of a few bits can tell apart
(``tensorflow/core/ops/array_ops.cc``, ``core/kernels/quantize_and_dequantize_op.h``).

With ``axis`` each slice has a range of its own, taken from its values; a range that is given has to be one for all,
as TensorFlow's kernel demands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.ops.math.elementwise import WIDE_FLOATS, shape_text


def _integer_range(c: OpKernelConstruction) -> tuple[Any, Any]:
    """The least and the greatest integer of ``num_bits`` bits."""
    number, num_bits, is_signed = c.np_dtype("T").type, c.attr("num_bits"), c.attr("signed_input")
    if not 0 < num_bits < (62 if is_signed else 63):
        raise InvalidArgumentError(f"num_bits is out of range: {num_bits} with signed_input {is_signed}")
    if not is_signed:
        return number(0), number(2**num_bits - 1)
    half = 2 ** (num_bits - 1)
    return number(1 - half if c.attr("narrow_range") else -half), number(half - 1)


def _scales(low: Any, high: Any, least: Any, greatest: Any) -> tuple[Any, Any]:
    """What floats are multiplied by to become integers, and integers to become floats."""
    widest = np.finfo(least.dtype).max
    from_low = np.where(least * low > 0, least / low, widest)
    from_high = np.where(greatest * high > 0, greatest / high, widest)
    return np.minimum(from_low, from_high), np.where(from_low < from_high, low / least, high / greatest)


def _check_range(low: Any, high: Any) -> None:
    for name, value in (("input_min", low), ("input_max", high)):
        if np.ndim(value):
            raise InvalidArgumentError(f"{name} must be a scalar, not of shape {shape_text(value)}")
    if low > high:
        raise InvalidArgumentError(f"Invalid range: input_min {low} > input_max {high}")


@register_kernel("QuantizeAndDequantizeV2", dtypes={"T": WIDE_FLOATS})
def _quantize_and_dequantize(c: OpKernelConstruction) -> Kernel:
    least, greatest = _integer_range(c)
    range_given, axis, half = c.attr("range_given"), c.attr("axis"), least.dtype.type(0.5)
    rounded: Kernel = np.rint if c.attr("round_mode") == b"HALF_TO_EVEN" else lambda x: np.floor(x + half)
    if axis < -1:
        raise InvalidArgumentError(f"Axis must be at least -1. Found {axis}")

    def kernel(x: Any, low: Any, high: Any) -> Any:
        if axis >= np.ndim(x) and axis != -1:
            raise InvalidArgumentError(f"Axis should be less than the rank of {shape_text(x)}, not {axis}")
        if range_given:
            _check_range(low, high)
        else:
            others = tuple(other for other in range(np.ndim(x)) if other != axis)
            low, high = (bound(x, others, keepdims=axis != -1) for bound in (np.min, np.max))
        scale, inverse = _scales(low, high, least, greatest)
        if range_given:
            x = np.clip(x, least * inverse, greatest * inverse)
        return (rounded(x * scale) * inverse).astype(least.dtype)[()]

    return kernel


def _shape(c: InferenceContext) -> Sequence[TensorShape]:
    x, axis = c.input(0), c.attr("axis")
    if axis < -1:
        raise InvalidArgumentError(f"axis should be at least -1, got {axis}")
    if axis == -1:
        c.scalar(1)
        c.scalar(2)
        return [x]
    size = x.with_rank_at_least(axis + 1)[axis : axis + 1]
    size.merge_with(c.vector(1)).merge_with(c.vector(2))
    return [x]


register_op(
    "QuantizeAndDequantizeV2",
    "input: T, input_min: T, input_max: T -> output: T",
    "signed_input: bool = True; num_bits: int = 8; range_given: bool = False; "
    "T: {bfloat16, float16, float32, float64}; round_mode: {'HALF_TO_EVEN', 'HALF_UP'} = 'HALF_TO_EVEN'; "
    "narrow_range: bool = False; axis: int = -1",
    shape=_shape,
)
