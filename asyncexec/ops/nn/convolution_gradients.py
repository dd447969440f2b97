"""Gradients of Conv2D and Conv3D (``tensorflow/core/ops/nn_ops.cc``, ``conv_grad_shape_utils.cc``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.ops.array.windows import Axis, Windows, as_channels_first, channels_last, make_windows, widened
from asyncexec.ops.nn.convolution import CONV2D_ATTRS, CONV3D_ATTRS, rounded
from asyncexec.ops.nn.convolution_matmul import convolve_backprop_filter, convolve_backprop_input
from asyncexec.process.free_memory import check_array

FLOATS: Final = "T: {float16, bfloat16, float32, float64}; "
InputGradient = Callable[[Array, Array, int, Sequence[Axis]], Array]
FilterGradient = Callable[[Array, Array, Sequence[int], Sequence[Axis]], Array]


def input_gradient_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """The shape that input_sizes spells; of two numbers, the spatial part of it."""
    rank = 3 if "3D" in c.op_def.name else 2
    sizes = c.value_as_shape(0)
    if sizes.rank == rank and rank == 2:
        filters, grads = c.with_rank(1, 4), c.with_rank(2, 4)
        first = c.attr("data_format").startswith(b"NC")
        batch, depth = grads[0], filters[2]
        return [TensorShape([batch, depth, *sizes] if first else [batch, *sizes, depth])]
    return [sizes.with_rank(rank + 2)]


def filter_gradient_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """The shape that filter_sizes spells."""
    rank = 3 if "3D" in c.op_def.name else 2
    return [c.value_as_shape(1).with_rank(rank + 2)]


def sizes_vector(sizes: object, rank: int, what: str) -> tuple[int, ...]:
    """The shape that a vector of *rank* integers spells."""
    array = np.asarray(sizes)
    if array.ndim != 1:
        raise InvalidArgumentError(f"{what} must be a vector, not of rank {array.ndim}")
    if len(array) != rank:
        raise InvalidArgumentError(f"{what} must have {rank} numbers, not {len(array)}")
    if (array < 0).any():
        raise InvalidArgumentError(f"{what} must not be negative: {array.tolist()}")
    return tuple(array.tolist())


def input_shape(sizes: Any, filters: Array, dy: Array, windows: Windows) -> tuple[int, ...]:
    """The channels-last shape of the input whose gradient is asked."""
    rank = windows.rank
    if rank == 2 and np.size(sizes) == 2:
        height, width = sizes_vector(sizes, 2, "input_sizes")
        return (dy.shape[0], height, width, filters.shape[2])
    shape = sizes_vector(sizes, rank + 2, "input_sizes")
    return (shape[0], *shape[2:], shape[1]) if windows.channels_first else shape


def check_gradient(x_shape: Sequence[int], filter_shape: Sequence[int], dy: Array, axes: Sequence[Axis]) -> None:
    """InvalidArgumentError unless input, filter and output gradient belong to one convolution."""
    if not filter_shape[-2] or x_shape[-1] % filter_shape[-2]:
        raise InvalidArgumentError(
            f"input depth {x_shape[-1]} must be evenly divisible by filter depth {filter_shape[-2]}"
        )
    if (x_shape[-1] // filter_shape[-2]) and filter_shape[-1] % (x_shape[-1] // filter_shape[-2]):
        raise InvalidArgumentError(f"output depth {filter_shape[-1]} does not divide into the groups of the input")
    expected = (x_shape[0], *(axis.out for axis in axes), filter_shape[-1])
    if dy.shape != expected:
        raise InvalidArgumentError(f"out_backprop must be of shape {list(expected)}, not {list(dy.shape)}")


def make_input_gradient(
    op: OpKernelConstruction, rank: int, gradient: InputGradient = convolve_backprop_input
) -> Kernel:
    """A kernel of (input sizes, filters, dy)."""
    windows = make_windows(op.attrs, rank)
    first = windows.channels_first

    def kernel(sizes: object, filters: Array, dy: Array) -> Array:
        check_ranks(rank, filter=filters, out_backprop=dy)
        filters, dy = widened(filters), widened(channels_last(dy) if first else dy)
        shape = input_shape(sizes, filters, dy, windows)
        check_array(shape, dy.dtype)
        axes = windows.axes(shape[1:-1], filters.shape[:rank])
        check_gradient(shape, filters.shape, dy, axes)
        out = gradient(dy, filters, shape[-1], axes)
        return as_channels_first(out) if first else out

    return rounded(kernel, op)


def make_filter_gradient(
    op: OpKernelConstruction, rank: int, gradient: FilterGradient = convolve_backprop_filter
) -> Kernel:
    """A kernel of (input, filter sizes, dy)."""
    windows = make_windows(op.attrs, rank)
    first = windows.channels_first

    def kernel(x: Array, sizes: object, dy: Array) -> Array:
        check_ranks(rank, input=x, out_backprop=dy)
        shape = sizes_vector(sizes, rank + 2, "filter_sizes")
        if first:
            x, dy = channels_last(x), channels_last(dy)
        x, dy = widened(x), widened(dy)
        check_array(shape, dy.dtype)
        axes = windows.axes(x.shape[1:-1], shape[:rank])
        check_gradient(x.shape, shape, dy, axes)
        return gradient(x, dy, shape, axes)

    return rounded(kernel, op)


def make_first_gradient(op: OpKernelConstruction) -> Kernel:
    """A kernel of (input, filters, dy), of which those of the first version take the shape only."""
    to_input = op.op == "Conv3DBackpropInput"
    gradient = (make_input_gradient if to_input else make_filter_gradient)(op, 3)

    def kernel(x: Array, filters: Array, dy: Array) -> Array:
        check_ranks(3, input=x, filter=filters)
        if to_input:
            return gradient(np.array(x.shape), filters, dy)
        return gradient(x, np.array(filters.shape), dy)

    return kernel


def _like_input(c: InferenceContext) -> Sequence[TensorShape]:
    return [c.with_rank(0, 5)]


def _like_filters(c: InferenceContext) -> Sequence[TensorShape]:
    return [c.with_rank(1, 5)]


def check_ranks(rank: int, **arrays: Array) -> None:
    """InvalidArgumentError unless every array has batch, *rank* spatial axes and channels."""
    for name, array in arrays.items():
        if array.ndim != rank + 2:
            raise InvalidArgumentError(f"{name} must be {rank + 2}-dimensional, not of shape {list(array.shape)}")


register_op(
    "Conv2DBackpropInput",
    "input_sizes: int32, filter: T, out_backprop: T -> output: T",
    "T: {float16, bfloat16, float32, float64, int32}; " + CONV2D_ATTRS,
    shape=input_gradient_shape,
)
register_op(
    "Conv2DBackpropFilter",
    "input: T, filter_sizes: int32, out_backprop: T -> output: T",
    FLOATS + CONV2D_ATTRS,
    shape=filter_gradient_shape,
)
register_op(
    "Conv3DBackpropInputV2",
    "input_sizes: Tshape, filter: T, out_backprop: T -> output: T",
    FLOATS + CONV3D_ATTRS + "; Tshape: {int32, int64} = int32",
    shape=input_gradient_shape,
)
register_op(
    "Conv3DBackpropFilterV2",
    "input: T, filter_sizes: int32, out_backprop: T -> output: T",
    FLOATS + CONV3D_ATTRS,
    shape=filter_gradient_shape,
)
for _op in ("Conv3DBackpropInput", "Conv3DBackpropFilter"):
    register_op(
        _op,
        "input: T, filter: T, out_backprop: T -> output: T",
        "T: {float16, float32, float64}; strides: list(int) >= 5; padding: {'SAME', 'VALID'}; "
        "dilations: list(int) = [1, 1, 1, 1, 1]",
        shape=_like_input if _op.endswith("Input") else _like_filters,
    )
    register_kernel(_op, kind=KernelKind.EXPENSIVE)(make_first_gradient)

register_kernel("Conv2DBackpropInput", kind=KernelKind.EXPENSIVE)(lambda op: make_input_gradient(op, 2))
register_kernel("Conv2DBackpropFilter", kind=KernelKind.EXPENSIVE)(lambda op: make_filter_gradient(op, 2))
register_kernel("Conv3DBackpropInputV2", kind=KernelKind.EXPENSIVE)(lambda op: make_input_gradient(op, 3))
register_kernel("Conv3DBackpropFilterV2", kind=KernelKind.EXPENSIVE)(lambda op: make_filter_gradient(op, 3))
