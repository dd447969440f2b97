"""BiasAdd, BiasAddV1 and BiasAddGrad: one number a channel (``tensorflow/core/kernels/bias_op.cc``)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import Dim, TensorShape
from asyncexec.ops.array.windows import compute_dtype, is_channels_first

_MANY: Final = 2**14  # elements from which on it pays to look for longer loops
_SHORT: Final = 64  # channels that make a short one
_PIXELS: Final = 16
_ATTRS = "T: numbertype; data_format: {'NHWC', 'NCHW'} = 'NHWC'"


def bias_add_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """The shape of the value, whose channels are as many as the bias is long."""
    first = is_channels_first(c.attrs)
    value, bias = c.input(0).with_rank_at_least(3 if first else 2), c.vector(1)
    if value.dims is None:
        return [value]
    dims: list[Dim] = value.as_list()
    where = 1 if first else -1
    dims[where] = TensorShape([dims[where]]).merge_with([bias[0]])[0]
    return [TensorShape(dims)]


def bias_grad_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """One number a channel."""
    first = is_channels_first(c.attrs)
    value = c.input(0).with_rank_at_least(3 if first else 2)
    return [TensorShape([value[1 if first else -1]])]


def checked_bias(value: Any, bias: Any, channels_first: bool) -> None:
    """InvalidArgumentError unless *bias* has one number for each channel of *value*."""
    if value.ndim < (3 if channels_first else 2):
        raise InvalidArgumentError(f"Input tensor must be at least 2D, not of shape {list(value.shape)}")
    if bias.ndim != 1:
        raise InvalidArgumentError(f"Biases must be 1D, not of shape {list(bias.shape)}")
    channels = value.shape[1 if channels_first else -1]
    if bias.shape[0] != channels:
        raise InvalidArgumentError(
            f"Must provide as many biases as the channel dimension of the input tensor: {bias.shape[0]} vs. {channels}"
        )


def bias_add_last(value: Array, bias: Array) -> Array:
    """*value*, channels last, plus *bias*."""
    if bias.ndim != 1 or value.ndim < 2 or value.shape[-1] != bias.shape[0]:
        checked_bias(value, bias, False)
    if value.ndim == 2:
        return value + bias
    lines, tiled = by_lines(value, bias)
    return (lines + tiled).reshape(value.shape)


def by_lines(value: Array, *vectors: Array) -> tuple[Array, ...]:
    """*value*, channels last, and *vectors* of a number a channel; of many pixels with few channels several make a row.

    So inner loops are longer.
    """
    channels = value.shape[-1]
    if value.size <= _MANY or channels >= _SHORT or not value.flags.c_contiguous:
        return (value, *vectors)
    pixels = math.gcd(value.size // channels, _PIXELS)
    return (value.reshape(-1, pixels * channels), *(np.tile(vector, pixels) for vector in vectors))


def bias_add_first(value: Any, bias: Any) -> ArrayOrScalar:
    """*value*, channels right after the batch, plus *bias*."""
    checked_bias(value, bias, True)
    return value + bias.reshape(-1, *(1,) * (value.ndim - 2))


register_op("BiasAdd", "value: T, bias: T -> output: T", _ATTRS, shape=bias_add_shape)
register_op("BiasAddV1", "value: T, bias: T -> output: T", "T: numbertype", shape=bias_add_shape)
register_op("BiasAddGrad", "out_backprop: T -> output: T", _ATTRS, shape=bias_grad_shape)


@register_kernel("BiasAdd", "BiasAddV1")
def make_bias_add(op: OpKernelConstruction) -> Kernel:
    """The kernel of BiasAdd and BiasAddV1."""
    return bias_add_first if is_channels_first(op.attrs) else bias_add_last


@register_kernel("BiasAddGrad")
def make_bias_add_grad(op: OpKernelConstruction) -> Kernel:
    """The kernel of BiasAddGrad."""
    first = is_channels_first(op.attrs)
    dtype = op.np_dtype("T")
    wide = compute_dtype(dtype)

    def kernel(grad: ArrayOrScalar) -> ArrayOrScalar:
        if grad.ndim < (3 if first else 2):
            raise InvalidArgumentError(f"Input tensor must be at least 2D, not of shape {list(grad.shape)}")
        axes = (0, *range(2, grad.ndim)) if first else tuple(range(grad.ndim - 1))
        return grad.sum(axes, dtype=wide).astype(dtype, copy=False)

    return kernel
