"""MaxPool, AveragePool, LpPool, their global forms, and MaxUnpool: axis by axis, channels-first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from asyncexec.framework.arrays import Array, NumpyDType
from asyncexec.framework.kernel import Kernel, KernelKind
from asyncexec.ops.array.array_common import mean_of
from asyncexec.ops.array.windows import Axis
from asyncexec.ops.onnx.arrays import empty, inner, need, wide, zeros
from asyncexec.ops.onnx.onnx_kernels import OnnxNode, onnx_kernel
from asyncexec.ops.onnx.onnx_windows import OnnxWindows, make_onnx_windows
from asyncexec.process.free_memory import check_array


def _axes(windows: OnnxWindows, x: Array) -> tuple[Axis, ...]:
    need(np.ndim(x) > 2, f"the input must have batch, channels and spatial axes, not shape {list(np.shape(x))}")
    return windows.axes(x.shape[2:], windows.kernel)


def _pool(x: Array, axes: Sequence[Axis], combine: np.ufunc, start: object) -> Array:
    """The cells of each window, combined along one axis after the other."""
    check_array((*(max(1, n) for n in x.shape[:2]), *(axis.out for axis in axes)), x.dtype)
    out = x
    for i, axis in enumerate(axes):
        if not axis.is_plain:
            out = _along(out, axis, (slice(None),) * (i + 2), combine, start)
    return out


def _along(x: Array, axis: Axis, before: tuple[slice, ...], combine: np.ufunc, start: object) -> Array:
    position = len(before)
    out = empty((*x.shape[:position], axis.out, *x.shape[position + 1 :]), x.dtype)
    parts = [axis.tap(k) for k in axis.taps]
    whole = [to for to, _ in parts[:2]] == [slice(0, axis.out)] * 2
    if whole:
        combine(x[(*before, parts[0][1])], x[(*before, parts[1][1])], out=out)
    else:
        out.fill(start)
    for to, cells in parts[2:] if whole else parts:
        part = out[(*before, to)]
        combine(part, x[(*before, cells)], out=part)
    return out


def _lowest(dtype: NumpyDType) -> object:
    return np.iinfo(dtype).min if dtype.kind in "iu" else -np.inf


@onnx_kernel("MaxPool", kind=KernelKind.EXPENSIVE)
def make_max_pool(node: OnnxNode) -> Kernel:
    """The kernel of MaxPool, with the places of the maxima where the node asks for them."""
    windows, by_column = make_onnx_windows(node), bool(node.attr("storage_order", 0))
    need(bool(windows.kernel), "kernel_shape is missing")
    has_indices = node.num_outputs > 1 and node.outputs[1]

    def kernel(x: Array) -> tuple[Any, ...]:
        axes, cells = _axes(windows, x), wide(x)
        if has_indices:
            largest, indices = _maxima(cells, axes, by_column)
            return largest.astype(x.dtype, copy=False), indices
        out = _pool(cells, axes, np.maximum, _lowest(cells.dtype)).astype(x.dtype, copy=False)
        return (out,) * node.num_outputs

    return kernel


def _maxima(x: Array, axes: Sequence[Axis], by_column: bool) -> tuple[Array, Array]:
    """The largest of each window, and where the first of them is in the flattened input."""
    shape = (*x.shape[:2], *(axis.out for axis in axes))
    largest, indices = empty(shape, x.dtype), zeros(shape, np.int64)
    largest.fill(_lowest(x.dtype))
    sizes = x.shape[2:]
    numbers = np.arange(math.prod(sizes), dtype=np.int64).reshape(sizes[::-1] if by_column else sizes)
    numbers = numbers.T if by_column else numbers
    for place in product(*(axis.taps for axis in axes)):
        ranges = [axis.tap(k) for k, axis in zip(place, axes, strict=True)]
        to, cells = inner(out for out, _ in ranges), tuple(seen for _, seen in ranges)
        seen = x[inner(cells)]
        better = seen > largest[to]
        np.copyto(largest[to], seen, where=better)
        np.copyto(indices[to], numbers[cells], where=better)
    images = np.arange(math.prod(x.shape[:2]), dtype=np.int64) * math.prod(sizes)
    indices += images.reshape(*x.shape[:2], *(1,) * len(axes))
    return largest, indices


@onnx_kernel("AveragePool", kind=KernelKind.EXPENSIVE)
def make_average_pool(node: OnnxNode) -> Kernel:
    """The kernel of AveragePool; cells of the pads count as zeros where ``count_include_pad`` says so."""
    windows, with_pads = make_onnx_windows(node), bool(node.attr("count_include_pad", 0))
    need(bool(windows.kernel), "kernel_shape is missing")

    def kernel(x: Array) -> tuple[Array]:
        axes, cells = _axes(windows, x), wide(x)
        sums = _pool(cells, axes, np.add, 0)
        counts = np.ones((1,) * len(axes), cells.dtype)
        for i, axis in enumerate(axes):
            counts = counts * _counts(axis, with_pads).reshape(-1, *(1,) * (len(axes) - i - 1)).astype(cells.dtype)
        return ((sums / counts).astype(x.dtype, copy=False),)

    return kernel


def _counts(axis: Axis, with_pads: bool) -> Array:
    """How many cells each window has inside the input, or inside the input and its pads."""
    first = np.arange(axis.out) * axis.stride - axis.before
    end = axis.size + axis.after if with_pads else axis.size
    before_end = np.clip(-((first - end) // axis.dilation), 0, axis.kernel)
    return before_end if with_pads else before_end - np.clip(-(first // axis.dilation), 0, axis.kernel)


def _root(sums: Array, p: float) -> Array:
    if p == 1:
        return sums
    return np.sqrt(sums) if p == 2 else np.asarray(np.power(sums, sums.dtype.type(1 / p)))


def _power(x: Array, p: float) -> Array:
    if p == 2:
        return x * x
    return np.abs(x) if p == 1 else np.asarray(np.power(np.abs(x), x.dtype.type(p)))


@onnx_kernel("LpPool", since=2, kind=KernelKind.EXPENSIVE)
def make_lp_pool(node: OnnxNode) -> Kernel:
    """The kernel of LpPool."""
    windows, p = make_onnx_windows(node), node.attr("p", 2)
    need(bool(windows.kernel), "kernel_shape is missing")

    def kernel(x: Array) -> tuple[Array]:
        sums = _pool(_power(wide(x), p), _axes(windows, x), np.add, 0)
        return (_root(sums, p).astype(x.dtype, copy=False),)

    return kernel


def _spatial(x: Array) -> tuple[int, ...]:
    need(np.ndim(x) > 2, f"the input must have batch, channels and spatial axes, not shape {list(np.shape(x))}")
    return tuple(range(2, x.ndim))


@onnx_kernel("GlobalAveragePool")
def make_global_average_pool(node: OnnxNode) -> Kernel:
    """The kernel of GlobalAveragePool."""
    return lambda x: (mean_of(wide(x), _spatial(x), keepdims=True).astype(x.dtype, copy=False),)


@onnx_kernel("GlobalMaxPool")
def make_global_max_pool(node: OnnxNode) -> Kernel:
    """The kernel of GlobalMaxPool."""
    return lambda x: (wide(x).max(axis=_spatial(x), keepdims=True).astype(x.dtype, copy=False),)


@onnx_kernel("GlobalLpPool", since=2)
def make_global_lp_pool(node: OnnxNode) -> Kernel:
    """The kernel of GlobalLpPool."""
    p = node.attr("p", 2)

    def kernel(x: Array) -> tuple[Array]:
        sums = _power(wide(x), p).sum(axis=_spatial(x), keepdims=True)
        return (_root(sums, p).astype(x.dtype, copy=False),)

    return kernel


@onnx_kernel("MaxUnpool", since=9)
def make_max_unpool(node: OnnxNode) -> Kernel:
    """The kernel of MaxUnpool: values go back to where MaxPool found them, zeros elsewhere."""
    windows = make_onnx_windows(node)
    rank = len(windows.kernel)
    strides, pads = windows.numbers("strides", rank), windows.pads or (0,) * 2 * rank
    need(rank > 0 and len(pads) == 2 * rank, "kernel_shape or pads do not fit each other")

    def kernel(x: Array, indices: Array, output_shape: Any = None) -> tuple[Array]:
        need(x.ndim == rank + 2, f"X must have {rank + 2} axes, not shape {list(x.shape)}")
        need(indices.shape == x.shape, f"I must have X's shape {list(x.shape)}, not {list(indices.shape)}")
        sizes = [
            (n - 1) * stride - before - after + cells
            for n, stride, before, after, cells in zip(
                x.shape[2:], strides, pads[:rank], pads[rank:], windows.kernel, strict=True
            )
        ]
        shape = (*x.shape[:2], *sizes)
        need(all(n >= 0 for n in shape), f"the output would have shape {list(shape)}")
        flat = zeros((math.prod(shape),), x.dtype)
        need(not x.size or (indices.min() >= 0 and indices.max() < flat.size), "an index of I is out of range")
        flat[indices.reshape(-1)] = x.reshape(-1)
        if output_shape is None:
            return (flat.reshape(shape),)
        wanted = tuple(int(n) for n in output_shape)
        need(
            len(wanted) == len(shape) and all(n <= w for n, w in zip(shape, wanted, strict=True)),
            f"output_shape {list(wanted)} must be at least {list(shape)}",
        )
        out = zeros(wanted, x.dtype)
        out[tuple(slice(0, n) for n in shape)] = flat.reshape(shape)
        return (out,)

    return kernel
