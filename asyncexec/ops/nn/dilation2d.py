"""Dilation2D, grey-scale morphology, and its gradients (``tensorflow/core/kernels/dilation_ops.cc``).

An output is the largest ``input + filter`` over the window's cells that lie inside the input; a gradient goes to the
first cell, in row-major order, that has the largest.  Where none is above the least number of the type, that of the
input goes to the first cell inside it, that of the filter to the filter's first cell.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.ops.array.windows import Axis, make_windows, widened
from asyncexec.ops.nn.depthwise import taps
from asyncexec.ops.nn.pooling_windows import lowest
from asyncexec.process.free_memory import check_array

_ATTRS = "T: realnumbertype; strides: list(int) >= 4; rates: list(int) >= 4; padding: {'SAME', 'VALID'}"


def dilate(x: Array, filters: Array, axes: Sequence[Axis]) -> tuple[Array, Array]:
    """The dilation of *x*, and which cell of the window (numbered row by row) each output came from; -1 where
    none is above the least number of the type."""
    shape = (x.shape[0], *(axis.out for axis in axes), x.shape[-1])
    check_array(shape, x.dtype)
    out = np.full(shape, lowest(x.dtype), x.dtype)
    winner = np.full(shape, -1, np.int32)
    for number, (place, to, cells) in enumerate(taps(axes)):
        where = (slice(None), *to)
        term = x[(slice(None), *cells)] + filters[place]
        better = term > out[where]
        np.copyto(out[where], term, where=better)
        np.copyto(winner[where], number, where=better)
    return out, winner


def dilation_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """One cell a window; the channels stay."""
    windows = make_windows(c.attrs, 2, "rates")
    batch, height, width, depth = c.with_rank(0, 4).as_list()
    filter_height, filter_width, filter_depth = c.with_rank(1, 3).as_list()
    if depth is not None and filter_depth is not None and depth != filter_depth:
        raise InvalidArgumentError(f"Dimensions must be equal, but are {depth} and {filter_depth}")
    rows, columns = windows.window_count(0, height, filter_height), windows.window_count(1, width, filter_width)
    return [TensorShape([batch, rows, columns, depth if depth is not None else filter_depth])]


def check_inputs(x: Array, filters: Array) -> None:
    """InvalidArgumentError unless input and filter are what a dilation takes."""
    if x.ndim != 4 or filters.ndim != 3:
        raise InvalidArgumentError(
            f"input and filter must be of rank 4 and 3, not of shapes {list(x.shape)} and {list(filters.shape)}"
        )
    if x.shape[3] != filters.shape[2]:
        raise InvalidArgumentError(f"input and filter must have the same depth: {x.shape[3]} vs {filters.shape[2]}")


@register_kernel("Dilation2D", kind=KernelKind.EXPENSIVE)
def make_dilation(op: OpKernelConstruction) -> Kernel:
    """The kernel of Dilation2D."""
    windows = make_windows(op.attrs, 2, "rates")
    dtype = op.np_dtype("T")

    def kernel(x: Array, filters: Array) -> Array:
        check_inputs(x, filters)
        axes = windows.axes(x.shape[1:3], filters.shape[:2])
        return dilate(widened(x), widened(filters), axes)[0].astype(dtype, copy=False)

    return kernel


@register_kernel("Dilation2DBackpropInput", "Dilation2DBackpropFilter", kind=KernelKind.EXPENSIVE)
def make_dilation_gradient(op: OpKernelConstruction) -> Kernel:
    """The kernel of Dilation2DBackpropInput and Dilation2DBackpropFilter."""
    windows = make_windows(op.attrs, 2, "rates")
    dtype = op.np_dtype("T")
    to_input = op.op.endswith("Input")

    def kernel(x: Array, filters: Array, dy: Array) -> Array:
        check_inputs(x, filters)
        axes = windows.axes(x.shape[1:3], filters.shape[:2])
        expected = (x.shape[0], axes[0].out, axes[1].out, x.shape[3])
        if dy.shape != expected:
            raise InvalidArgumentError(f"out_backprop must be of shape {list(expected)}, not {list(dy.shape)}")
        _, winner = dilate(widened(x), widened(filters), axes)
        total = np.zeros(x.shape if to_input else filters.shape, dtype)
        if not to_input:
            np.maximum(winner, 0, out=winner)
        for number, (place, to, cells) in enumerate(taps(axes)):
            if to_input:
                where = (slice(None), *to)
                won = winner[where]
                won[won < 0] = number
                total[(slice(None), *cells)] += np.where(won == number, dy[where], dtype.type(0))
            else:
                total[place] += np.where(winner == number, dy, dtype.type(0)).sum((0, 1, 2), dtype=dtype)
        return total

    return kernel


register_op("Dilation2D", "input: T, filter: T -> output: T", _ATTRS, shape=dilation_shape)
register_op(
    "Dilation2DBackpropInput",
    "input: T, filter: T, out_backprop: T -> in_backprop: T",
    _ATTRS,
    shape=lambda c: [c.input(0)],
)
register_op(
    "Dilation2DBackpropFilter",
    "input: T, filter: T, out_backprop: T -> filter_backprop: T",
    _ATTRS,
    shape=lambda c: [c.input(1)],
)
