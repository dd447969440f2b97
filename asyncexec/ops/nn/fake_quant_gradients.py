"""Gradients of FakeQuantWithMinMax*: they pass within the range, and what is outside goes to its ends
(``tensorflow/core/ops/array_ops.cc``, ``core/kernels/fake_quant_ops_functor.h``).
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
from asyncexec.framework.shape_inference import InferenceContext, merged
from asyncexec.framework.tensor_shape import SCALAR, TensorShape
from asyncexec.ops.math.elementwise import shape_text
from asyncexec.ops.nn.fake_quant import integer_steps, nudged

_RANGE_ATTRS: Final = "num_bits: int = 8; narrow_range: bool = False"


def _check_same(gradients: Any, inputs: Any) -> None:
    if np.shape(gradients) != np.shape(inputs):
        raise InvalidArgumentError(
            f"gradient and input must be the same size: {shape_text(gradients)}, {shape_text(inputs)}"
        )


def _split(
    gradients: Array, inputs: Array, low: ArrayOrScalar, high: ArrayOrScalar, steps: tuple[Any, Any]
) -> tuple[Array, Array, Array]:
    """The gradients of inputs within the range, below it and above it; 0 for the others."""
    start, stop, _ = nudged(low, high, *steps)
    is_unset = (low == 0) & (high == 0)  # a range that was never set: everything is within
    is_below, is_above = (inputs < start) & ~is_unset, (inputs > stop) & ~is_unset
    zero = np.float32(0)
    return tuple(np.where(chosen, gradients, zero) for chosen in (~(is_below | is_above), is_below, is_above))  # type: ignore[return-value]


@register_kernel("FakeQuantWithMinMaxArgsGradient")
def _args_gradient(c: OpKernelConstruction) -> Kernel:
    low, high = np.float32(c.attr("min")), np.float32(c.attr("max"))
    start, stop, _ = nudged(low, high, *integer_steps(c))
    if not low < high:
        raise InvalidArgumentError(f"min has to be smaller than max, was: {low} >= {high}")

    def kernel(gradients: object, inputs: object) -> Any:
        _check_same(gradients, inputs)
        return (gradients * ((inputs >= start) & (inputs <= stop)).astype(np.float32))[()]

    return kernel


@register_kernel("FakeQuantWithMinMaxVarsGradient")
def _vars_gradient(c: OpKernelConstruction) -> Kernel:
    steps = integer_steps(c)

    def kernel(
        gradients: Any, inputs: Any, low: np.generic, high: np.generic
    ) -> tuple[ArrayOrScalar, ArrayOrScalar, ArrayOrScalar]:
        _check_same(gradients, inputs)
        for name, value in (("min", low), ("max", high)):
            if np.ndim(value):
                raise InvalidArgumentError(f"`{name}` must be rank 0 but is rank {np.ndim(value)}")
        within, below, above = _split(gradients, inputs, low, high, steps)
        return within[()], below.sum(dtype=np.float32), above.sum(dtype=np.float32)

    return kernel


@register_kernel("FakeQuantWithMinMaxVarsPerChannelGradient")
def _channels_gradient(c: OpKernelConstruction) -> Kernel:
    steps = integer_steps(c)

    def kernel(gradients: Any, inputs: Array, low: ArrayOrScalar, high: ArrayOrScalar) -> tuple[object, object, Any]:
        _check_same(gradients, inputs)
        if np.ndim(inputs) < 1:
            raise InvalidArgumentError("`inputs` must be at least rank 1 but is a scalar")
        for name, value in (("min", low), ("max", high)):
            if np.shape(value) != (inputs.shape[-1],):
                raise InvalidArgumentError(
                    f"{name} has incorrect size, expected {inputs.shape[-1]} was {shape_text(value)}"
                )
        within, below, above = _split(gradients, inputs, low, high, steps)
        others = tuple(range(inputs.ndim - 1))
        return within, below.sum(others, dtype=np.float32), above.sum(others, dtype=np.float32)

    return kernel


def _vars_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.scalar(2)
    c.scalar(3)
    return [c.input(0).merge_with(c.input(1)), SCALAR, SCALAR]


def _channels_shape(c: InferenceContext) -> Sequence[TensorShape]:
    inputs = c.input(0).merge_with(c.input(1)).with_rank_at_least(1)
    ends = inputs[-1:].merge_with(c.vector(2)).merge_with(c.vector(3))
    return [inputs, ends, ends]


register_op(
    "FakeQuantWithMinMaxArgsGradient",
    "gradients: float32, inputs: float32 -> backprops: float32",
    f"min: float = -6.0; max: float = 6.0; {_RANGE_ATTRS}",
    shape=merged,
)
for _op, _shape in (
    ("FakeQuantWithMinMaxVarsGradient", _vars_shape),
    ("FakeQuantWithMinMaxVarsPerChannelGradient", _channels_shape),
):
    register_op(
        _op,
        "gradients: float32, inputs: float32, min: float32, max: float32 -> backprops_wrt_input: float32,"
        " backprop_wrt_min: float32, backprop_wrt_max: float32",
        _RANGE_ATTRS,
        shape=_shape,
    )
