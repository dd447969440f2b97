"""DepthwiseConv2dNative and its gradients (``tensorflow/core/ops/nn_ops.cc``): every channel has filters of its own.

A sum over the window's cells of input times weight.  Output channel ``c * multiplier + m`` belongs to input channel
``c``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Final

import numpy as np
from numpy.lib.stride_tricks import as_strided

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.ops.array.windows import (
    Axis,
    Windows,
    as_channels_first,
    channels_last,
    join_shape,
    make_windows,
    split_shape,
    widened,
)
from asyncexec.ops.nn.convolution import CONV2D_ATTRS, ConvolutionKernel, rounded, with_rule
from asyncexec.ops.nn.convolution_gradients import (
    FLOATS,
    check_gradient,
    check_ranks,
    filter_gradient_shape,
    input_gradient_shape,
    input_shape,
    sizes_vector,
)
from asyncexec.ops.nn.native_convolution import NativeConvolution
from asyncexec.process.free_memory import check_array
from asyncexec.process.shards import share, spare

_PIECE_BYTES: Final = 2**20  # of padded images at a time
_ROW: Final = 1024  # numbers that make a long inner loop


def taps(axes: Sequence[Axis]) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...], tuple[slice, ...]]]:
    """For each cell of the window: its place, the outputs it counts for, and the inputs it sees there."""
    for place in product(*(axis.taps for axis in axes)):
        ranges = [axis.tap(k) for k, axis in zip(place, axes, strict=True)]
        yield place, tuple(out for out, _ in ranges), tuple(cells for _, cells in ranges)


def depthwise(x: Array, filters: Array, axes: Sequence[Axis]) -> Array:
    """*x* [batch, height, width, in] with *filters* [height, width, in, multiplier]."""
    *_, depth, multiplier = filters.shape
    out_shape = (x.shape[0], *(axis.out for axis in axes), depth * multiplier)
    check_array(out_shape, x.dtype)
    out = np.empty(out_shape, x.dtype)
    first, window = zip(*((axis.taps.start, len(axis.taps)) for axis in axes), strict=True)
    if not out.size or not x.size or 0 in window:
        out.fill(0)
        return out
    weights = filters[tuple(slice(axis.taps.start, axis.taps.stop) for axis in axes)].reshape(*window, -1)
    starts = [k * axis.dilation - axis.before for k, axis in zip(first, axes, strict=True)]
    sizes = [
        (axis.out - 1) * axis.stride + (count - 1) * axis.dilation + 1 for count, axis in zip(window, axes, strict=True)
    ]
    seen = tuple(slice(max(0, start), max(0, start + size)) for start, size in zip(starts, sizes, strict=True))
    is_inside = all(
        start >= 0 and start + size <= axis.size for start, size, axis in zip(starts, sizes, axes, strict=True)
    )
    if is_inside and multiplier == 1 and x.flags.c_contiguous:
        _sum_windows(x[(slice(None), *seen)], weights, axes, out)
        return out
    shape = (*sizes, depth * multiplier)
    check_array(shape, x.dtype)
    images = max(1, min(len(x), _PIECE_BYTES // (math.prod(shape) * x.itemsize)))
    inner = tuple(slice(max(0, -start), axis.size - start) for start, axis in zip(starts, axes, strict=True))
    padded: list[Array] = []  # images that nobody works with just now

    def sum_images(start: int) -> None:
        cells = spare(padded, lambda: np.zeros((images, *shape), x.dtype))
        part = x[(slice(start, start + images), *seen)]
        np.copyto(cells[(slice(len(part)), *inner)], part if multiplier == 1 else np.repeat(part, multiplier, axis=-1))
        _sum_windows(cells[: len(part)], weights, axes, out[start : start + len(part)])
        padded.append(cells)

    share(sum_images, range(0, len(x), images), out.nbytes)
    return out


def _sum_windows(cells: Array, weights: Array, axes: Sequence[Axis], out: Array) -> None:
    """Write the sum over each window of its *cells* times *weights*.

    Where windows are a cell apart, several pixels with their channels make a row, so that the inner loops are long.
    """
    rows, columns = axes
    depth = weights.shape[-1]
    pixels = max(1, min(columns.out, _ROW // depth)) if columns.stride == 1 else 1
    image, line, pixel, item = cells.strides
    for first, count in ((0, columns.out // pixels), (columns.out // pixels * pixels, 1)):
        length = min(pixels, columns.out - first)
        if not length:
            continue
        shape = (len(cells), rows.out, count, *weights.shape[:2], length * depth)
        steps = (image, line * rows.stride, pixel * pixels * columns.stride)
        strides = (*steps, line * rows.dilation, pixel * columns.dilation, item)
        under = as_strided(cells[:, :, first * columns.stride :], shape, strides, writeable=False)
        total = out[:, :, first : first + count * length].reshape(*shape[:3], -1, copy=False)
        np.einsum("nrcijx,ijx->nrcx", under, np.tile(weights, length), out=total)


def depthwise_backprop_input(dy: Array, filters: Array, depth: int, axes: Sequence[Axis]) -> Array:
    """The gradient with respect to the input."""
    multiplier = filters.shape[-1]
    total = np.zeros((dy.shape[0], *(axis.size for axis in axes), depth), dy.dtype)
    grads = dy.reshape(*dy.shape[:-1], depth, multiplier)
    for place, to, cells in taps(axes):
        total[(slice(None), *cells)] += (grads[(slice(None), *to)] * filters[place]).sum(-1)
    return total


def depthwise_backprop_filter(x: Array, dy: Array, filter_shape: Sequence[int], axes: Sequence[Axis]) -> Array:
    """The gradient with respect to the filters."""
    depth, multiplier = filter_shape[-2:]
    total = np.zeros(filter_shape, x.dtype)
    grads = dy.reshape(*dy.shape[:-1], depth, multiplier)
    for place, to, cells in taps(axes):
        seen, grad = x[(slice(None), *cells)], grads[(slice(None), *to)]
        total[place] = np.einsum("bhwc,bhwcm->cm", seen, grad)
    return total


def depthwise_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """One cell a window; as many channels as the filter's last two axes hold."""
    windows = make_windows(c.attrs, 2)
    batch, sizes, depth = split_shape(c.input(0), windows.channels_first, 2)
    height, width, filter_depth, multiplier = c.with_rank(1, 4).as_list()
    if depth is not None and filter_depth is not None and depth != filter_depth:
        raise InvalidArgumentError(f"Dimensions must be equal, but are {depth} and {filter_depth}")
    out = [
        windows.output_dim(i, size, kernel) for i, (size, kernel) in enumerate(zip(sizes, (height, width), strict=True))
    ]
    depth = depth if depth is not None else filter_depth
    channels = None if depth is None or multiplier is None else depth * multiplier
    return [join_shape(batch, out, channels, windows.channels_first)]


def depthwise_windows(op: OpKernelConstruction) -> Windows:
    """The node's windows; InvalidArgumentError when rows and columns do not have the same stride."""
    windows = make_windows(op.attrs, 2)
    if windows.strides[0] != windows.strides[1]:
        raise InvalidArgumentError(f"only equal strides of rows and columns are supported, not {windows.strides}")
    return windows


def gradient_windows(op: OpKernelConstruction) -> Windows:
    """The windows of a gradient, which TensorFlow's kernels take without dilations, whatever the attr says."""
    return replace(depthwise_windows(op), dilations=(1, 1))


def check_filter(depth: int, filters_shape: Sequence[int]) -> None:
    """InvalidArgumentError unless the filter is for that many input channels."""
    if depth != filters_shape[2]:
        raise InvalidArgumentError(f"input and filter must have the same depth: {depth} vs {filters_shape[2]}")


def grouped(shape: Sequence[int]) -> tuple[int, ...]:
    """The shape of a depthwise filter as that of a convolution in as many groups as there are channels."""
    return (*shape[:2], 1, shape[2] * shape[3])


@register_kernel("DepthwiseConv2dNative", kind=KernelKind.EXPENSIVE)
def make_depthwise(op: OpKernelConstruction) -> Kernel:
    """The kernel of DepthwiseConv2dNative."""
    convolution = depthwise_kernel(op)
    return with_rule(rounded(convolution, op), convolution)


def depthwise_kernel(op: OpKernelConstruction) -> ConvolutionKernel:
    """What convolves each channel by itself for the node of *op*."""

    def check(x: Array, filters: Array) -> None:
        check_filter(x.shape[-1], filters.shape)

    return ConvolutionKernel(depthwise_windows(op), check, depthwise, NativeConvolution(is_depthwise=True))


@register_kernel("DepthwiseConv2dNativeBackpropInput", kind=KernelKind.EXPENSIVE)
def make_depthwise_backprop_input(op: OpKernelConstruction) -> Kernel:
    """The kernel of DepthwiseConv2dNativeBackpropInput."""
    windows = gradient_windows(op)
    first = windows.channels_first

    def kernel(sizes: Array, filters: Array, dy: Array) -> Array:
        check_ranks(2, filter=filters, out_backprop=dy)
        sizes_vector(sizes, 4, "input_sizes")
        filters, dy = widened(filters), widened(channels_last(dy) if first else dy)
        shape = input_shape(sizes, filters, dy, windows)
        check_array(shape, dy.dtype)
        check_filter(shape[-1], filters.shape)
        axes = windows.axes(shape[1:-1], filters.shape[:2])
        check_gradient(shape, grouped(filters.shape), dy, axes)
        out = depthwise_backprop_input(dy, filters, shape[-1], axes)
        return as_channels_first(out) if first else out

    return rounded(kernel, op)


@register_kernel("DepthwiseConv2dNativeBackpropFilter", kind=KernelKind.EXPENSIVE)
def make_depthwise_backprop_filter(op: OpKernelConstruction) -> Kernel:
    """The kernel of DepthwiseConv2dNativeBackpropFilter."""
    windows = gradient_windows(op)
    first = windows.channels_first

    def kernel(x: Array, sizes: Array, dy: Array) -> Array:
        check_ranks(2, input=x, out_backprop=dy)
        shape = sizes_vector(sizes, 4, "filter_sizes")
        if first:
            x, dy = channels_last(x), channels_last(dy)
        x, dy = widened(x), widened(dy)
        check_array(shape, dy.dtype)
        check_filter(x.shape[-1], shape)
        axes = windows.axes(x.shape[1:-1], shape[:2])
        check_gradient(x.shape, grouped(shape), dy, axes)
        return depthwise_backprop_filter(x, dy, shape, axes)

    return rounded(kernel, op)


_ATTRS = CONV2D_ATTRS.replace("use_cudnn_on_gpu: bool = True; ", "")
register_op("DepthwiseConv2dNative", "input: T, filter: T -> output: T", FLOATS + _ATTRS, shape=depthwise_shape)
register_op(
    "DepthwiseConv2dNativeBackpropInput",
    "input_sizes: int32, filter: T, out_backprop: T -> output: T",
    FLOATS + _ATTRS,
    shape=input_gradient_shape,
)
register_op(
    "DepthwiseConv2dNativeBackpropFilter",
    "input: T, filter_sizes: int32, out_backprop: T -> output: T",
    FLOATS + _ATTRS,
    shape=filter_gradient_shape,
)
