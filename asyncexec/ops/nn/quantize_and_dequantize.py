"""QuantizeAndDequantize: floats rounded to what a signed or unsigned integer of a few bits can tell apart
(``tensorflow/core/ops/array_ops.cc``, ``core/kernels/quantize_and_dequantize_op.h``).

With ``axis`` each slice has a range of its own, taken from its values; a range that is given has to be one for all,
as TensorFlow's kernel demands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, SupportsFloat

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext, unchanged
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.ops.math.elementwise import FLOAT_ATTR, WIDE_FLOATS, shape_text


def _integer_range(number: type, num_bits: int, *, is_signed: bool, is_narrow: bool) -> tuple[np.generic, np.generic]:
    """The least and the greatest integer of *num_bits* bits."""
    if not 0 < num_bits < (62 if is_signed else 63):
        raise InvalidArgumentError(f"num_bits is out of range: {num_bits} with signed_input {is_signed}")
    if not is_signed:
        return number(0), number(2**num_bits - 1)
    half = 2 ** (num_bits - 1)
    return number(1 - half if is_narrow else -half), number(half - 1)


def _scales(low: Any, high: Any, least: ArrayOrScalar, greatest: SupportsFloat) -> tuple[ArrayOrScalar, Any]:
    """What floats are multiplied by to become integers, and integers to become floats."""
    widest = np.finfo(least.dtype).max
    from_low = np.where(least * low > 0, least / low, widest)
    from_high = np.where(greatest * high > 0, greatest / high, widest)
    return np.minimum(from_low, from_high), np.where(from_low < from_high, low / least, high / greatest)


def _check_range(low: Any, high: Any) -> None:
    for name, value in (("input_min", low), ("input_max", high)):
        if np.ndim(value):
            raise InvalidArgumentError(f"{name} must be a scalar, not of shape {shape_text(value)}")
    if not low <= high:
        raise InvalidArgumentError(f"Invalid range: input_min {low} > input_max {high}")


def _half_up(x: Any) -> ArrayOrScalar:
    return np.floor(x + x.dtype.type(0.5))


def _rounding(c: OpKernelConstruction) -> Kernel:
    """A function of the input, its range, and the least and the greatest integer."""
    range_given, axis = c.attr("range_given"), c.attrs.get("axis", -1)
    rounded: Kernel = _half_up if c.attrs.get("round_mode") == b"HALF_UP" else np.rint
    if axis < -1:
        raise InvalidArgumentError(f"Axis must be at least -1. Found {axis}")

    def round_to_integers(
        x: Any, low: ArrayOrScalar, high: ArrayOrScalar, least: np.generic, greatest: np.generic
    ) -> ArrayOrScalar:
        if axis >= np.ndim(x) and axis != -1:
            raise InvalidArgumentError(f"Axis should be less than the rank of {shape_text(x)}, not {axis}")
        if np.size(x) == 0 and not range_given:
            return x
        if range_given:
            _check_range(low, high)
        else:
            others = tuple(other for other in range(np.ndim(x)) if other != axis)
            low, high = (bound(x, others, keepdims=axis != -1) for bound in (np.min, np.max))
        scale, inverse = _scales(low, high, least, greatest)
        if range_given:
            x = np.clip(x, least * inverse, greatest * inverse)
        return (rounded(x * scale) * inverse).astype(least.dtype)[()]

    return round_to_integers


@register_kernel("QuantizeAndDequantizeV2", "QuantizeAndDequantizeV4", dtypes={"T": WIDE_FLOATS})
def _quantize_and_dequantize(c: OpKernelConstruction) -> Kernel:
    least, greatest = _integer_range(
        c.np_dtype("T").type, c.attr("num_bits"), is_signed=c.attr("signed_input"), is_narrow=c.attr("narrow_range")
    )
    round_to_integers = _rounding(c)
    return lambda x, low, high: round_to_integers(x, low, high, least, greatest)


@register_kernel("QuantizeAndDequantize", dtypes={"T": WIDE_FLOATS})
def _quantize_and_dequantize_v1(c: OpKernelConstruction) -> Kernel:
    number, round_to_integers = c.np_dtype("T").type, _rounding(c)
    least, greatest = _integer_range(number, c.attr("num_bits"), is_signed=c.attr("signed_input"), is_narrow=False)
    low, high = number(c.attr("input_min")), number(c.attr("input_max"))
    return lambda x: round_to_integers(x, low, high, least, greatest)


@register_kernel("QuantizeAndDequantizeV3", dtypes={"T": WIDE_FLOATS})
def _quantize_and_dequantize_v3(c: OpKernelConstruction) -> Kernel:
    number, round_to_integers = c.np_dtype("T").type, _rounding(c)
    is_signed, is_narrow = c.attr("signed_input"), c.attr("narrow_range")

    def kernel(x: Array, low: ArrayOrScalar, high: ArrayOrScalar, num_bits: np.generic) -> Array:
        if np.ndim(num_bits):
            raise InvalidArgumentError(f"num_bits should be a scalar, got tensor with shape {shape_text(num_bits)}")
        least, greatest = _integer_range(number, int(num_bits), is_signed=is_signed, is_narrow=is_narrow)
        return round_to_integers(x, low, high, least, greatest)

    return kernel


@register_kernel("QuantizeAndDequantizeV4Grad", dtypes={"T": WIDE_FLOATS})
def _quantize_and_dequantize_grad(c: OpKernelConstruction) -> Kernel:
    axis = c.attr("axis")

    def kernel(
        gradients: Any, x: Array, low: ArrayOrScalar, high: ArrayOrScalar
    ) -> tuple[ArrayOrScalar, ArrayOrScalar, ArrayOrScalar]:
        if np.shape(x) != np.shape(gradients):
            raise InvalidArgumentError("gradient and input must be the same size")
        if axis >= np.ndim(x):
            raise InvalidArgumentError(
                f"Axis should be -1 or 0 or a positive value less than {np.ndim(x)}but given {axis}"
            )
        wanted = () if axis < 0 else (x.shape[axis],)
        for name, value in (("input_min_tensor", low), ("input_max_tensor", high)):
            if np.shape(value) != wanted:
                raise InvalidArgumentError(f"{name} must be of shape {list(wanted)}, not {shape_text(value)}")
        spread = (-1, *(1,) * (np.ndim(x) - axis - 1)) if axis >= 0 else ()
        is_within = (x >= np.reshape(low, spread)) & (x <= np.reshape(high, spread))
        return (gradients * is_within)[()], np.zeros_like(low)[()], np.zeros_like(high)[()]

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


def _shape_v1(c: InferenceContext) -> Sequence[TensorShape]:
    if c.attr("range_given") and c.attr("input_min") > c.attr("input_max"):
        raise InvalidArgumentError(f"Invalid range: input_min {c.attr('input_min')} > input_max {c.attr('input_max')}")
    return unchanged(c)


def _shape_v3(c: InferenceContext) -> Sequence[TensorShape]:
    c.scalar(3)
    return _shape(c)


def _shape_of_gradients(c: InferenceContext) -> Sequence[TensorShape]:
    x, axis = c.input(0).merge_with(c.input(1)), c.attr("axis")
    if axis < -1:
        raise InvalidArgumentError(f"axis should be at least -1, got {axis}")
    ends = c.input(2).merge_with(c.input(3)).with_rank(0 if axis == -1 else 1)
    return [x, ends, ends]


for _op in ("QuantizeAndDequantizeV2", "QuantizeAndDequantizeV4"):
    register_op(
        _op,
        "input: T, input_min: T, input_max: T -> output: T",
        "signed_input: bool = True; num_bits: int = 8; range_given: bool = False; "
        f"{FLOAT_ATTR}; round_mode: {{'HALF_TO_EVEN', 'HALF_UP'}} = 'HALF_TO_EVEN'; "
        "narrow_range: bool = False; axis: int = -1",
        shape=_shape,
    )
register_op(
    "QuantizeAndDequantize",
    "input: T -> output: T",
    "signed_input: bool = True; num_bits: int = 8; range_given: bool = False; input_min: float = 0.0; "
    f"input_max: float = 0.0; {FLOAT_ATTR}",
    shape=_shape_v1,
)
register_op(
    "QuantizeAndDequantizeV3",
    "input: T, input_min: T, input_max: T, num_bits: int32 -> output: T",
    f"signed_input: bool = True; range_given: bool = True; {FLOAT_ATTR}; narrow_range: bool = False; axis: int = -1",
    shape=_shape_v3,
)
register_op(
    "QuantizeAndDequantizeV4Grad",
    "gradients: T, input: T, input_min: T, input_max: T -> input_backprop: T, input_min_backprop: T,"
    " input_max_backprop: T",
    f"{FLOAT_ATTR}; axis: int = -1",
    shape=_shape_of_gradients,
)
