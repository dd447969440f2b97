"""FakeQuantWithMinMax*: floats rounded to what an integer of a few bits can tell apart
(``tensorflow/core/ops/array_ops.cc``, ``core/kernels/fake_quant_ops_functor.h``).

The range is moved a little, so that zero is one of the values, before anything is rounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext, unchanged
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.ops.math.elementwise import shape_text

_RANGE_ATTRS: Final = "num_bits: int = 8; narrow_range: bool = False"


def integer_steps(c: OpKernelConstruction) -> tuple[np.float32, np.float32]:
    """The least and the greatest integer to tell apart."""
    num_bits = c.attr("num_bits")
    if not 2 <= num_bits <= 16:
        raise InvalidArgumentError(f"num_bits must be between 2 and 16, inclusive, not {num_bits}")
    return np.float32(1 if c.attr("narrow_range") else 0), np.float32(2**num_bits - 1)


def nudged(low: Any, high: Any, least: np.float32, greatest: np.float32) -> tuple[Any, Any, Any]:
    """The range moved so that 0 is a value, and the distance of two values."""
    scale = (high - low) / (greatest - least)
    zero = least - low / scale
    # Half away from zero, as std::round.
    rounded = np.copysign(np.floor(np.abs(zero) + np.float32(0.5)), zero)
    zero = np.where(zero < least, least, np.where(zero > greatest, greatest, rounded))
    return (least - zero) * scale, (greatest - zero) * scale, scale


def fake_quant(inputs: Any, low: object, high: object, least: np.float32, greatest: np.float32) -> Any:
    """*inputs* rounded to one of the values between *low* and *high*; zeros where both are 0."""
    start, stop, scale = nudged(low, high, least, greatest)
    clamped = np.maximum(np.minimum(inputs, stop), start)
    inverse, half = 1 / scale, np.float32(0.5)
    zero = np.floor(-start * inverse + half)
    steps = np.floor((clamped - start) * inverse - zero + half)
    result = np.where((low == 0) & (high == 0), np.float32(0), steps * scale)
    return result.astype(np.float32)[()]


@register_kernel("FakeQuantWithMinMaxArgs")
def _fake_quant_args(c: OpKernelConstruction) -> Kernel:
    low, high = np.float32(c.attr("min")), np.float32(c.attr("max"))
    least, greatest = integer_steps(c)
    if not low < high:
        raise InvalidArgumentError(f"min has to be smaller than max, was: {low} >= {high}")
    return lambda inputs: fake_quant(inputs, low, high, least, greatest)


@register_kernel("FakeQuantWithMinMaxVars")
def _fake_quant_vars(c: OpKernelConstruction) -> Kernel:
    least, greatest = integer_steps(c)

    def kernel(inputs: ArrayOrScalar, low: np.generic, high: np.generic) -> ArrayOrScalar:
        for name, value in (("min", low), ("max", high)):
            if np.ndim(value):
                raise InvalidArgumentError(f"`{name}` must be rank 0 but is rank {np.ndim(value)}")
        return fake_quant(inputs, low, high, least, greatest)

    return kernel


@register_kernel("FakeQuantWithMinMaxVarsPerChannel")
def _fake_quant_channels(c: OpKernelConstruction) -> Kernel:
    least, greatest = integer_steps(c)

    def kernel(inputs: Array, low: ArrayOrScalar, high: ArrayOrScalar) -> ArrayOrScalar:
        if np.ndim(inputs) < 1:
            raise InvalidArgumentError("`inputs` must be at least rank 1 but is a scalar")
        for name, value in (("min", low), ("max", high)):
            if np.shape(value) != (inputs.shape[-1],):
                raise InvalidArgumentError(
                    f"{name} has incorrect size, expected {inputs.shape[-1]} was {shape_text(value)}"
                )
        return fake_quant(inputs, low, high, least, greatest)

    return kernel


def _vars_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.scalar(1)
    c.scalar(2)
    return [c.input(0)]


def _channels_shape(c: InferenceContext) -> Sequence[TensorShape]:
    inputs = c.input(0).with_rank_at_least(1)
    channels = inputs[-1:].merge_with(c.vector(1)).merge_with(c.vector(2))
    return [inputs if inputs.dims is None else inputs[:-1].concatenate(channels)]


register_op(
    "FakeQuantWithMinMaxArgs",
    "inputs: float32 -> outputs: float32",
    f"min: float = -6.0; max: float = 6.0; {_RANGE_ATTRS}",
    shape=unchanged,
)
register_op(
    "FakeQuantWithMinMaxVars",
    "inputs: float32, min: float32, max: float32 -> outputs: float32",
    _RANGE_ATTRS,
    shape=_vars_shape,
)
register_op(
    "FakeQuantWithMinMaxVarsPerChannel",
    "inputs: float32, min: float32, max: float32 -> outputs: float32",
    _RANGE_ATTRS,
    shape=_channels_shape,
)
