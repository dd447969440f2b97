"""Pooling over windows, and over as many parts as the output has cells (adaptive)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError, UnimplementedError
from asyncexec.framework.kernel import Kernel
from asyncexec.ops.pnnx.pnnx_kernels import PnnxNode, pnnx_kernel
from asyncexec.ops.pnnx.windows import Pads, num_windows, padded, taps, with_batch
from asyncexec.process.free_memory import check_array


def _pads(sizes: Sequence[int], window: Sequence[int], stride: Sequence[int], pad: Sequence[int], ceil: bool) -> Pads:
    """The borders, with as much more at the ends as the last windows need in ceil mode."""
    found = []
    for size, k, s, p in zip(sizes, window, stride, pad, strict=True):
        if 2 * p > k or min(k, s) < 1 or p < 0:
            raise InvalidArgumentError(f"a border of {p} is more than half of a window of {k} cells (stride {s})")
        more = 0
        if ceil:
            count = -(-(size + 2 * p - k) // s) + 1
            count -= (count - 1) * s >= size + p  # a window must not begin in the border
            more = max(0, (count - 1) * s + k - size - 2 * p)
        found.append((p, p + more))
    return found


def max_pool(x: Array, window: Sequence[int], stride: Sequence[int], pads: Pads, dilation: Sequence[int]) -> Array:
    """The greatest value of each window; NaN where there is one."""
    lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    dims = x.shape[x.ndim - len(window) :]
    sizes = [num_windows(*each) for each in zip(dims, window, stride, dilation, pads, strict=True)]
    x = padded(x, pads, value=lowest)
    out: Array | None = None
    for _, cells in taps(x, window, stride, dilation, sizes):
        out = cells.copy() if out is None else np.maximum(out, cells, out=out)
    assert out is not None
    return out


def avg_pool(x: Array, window: Sequence[int], stride: Sequence[int], pads: Pads, divisor: object) -> Array:
    """The sum of each window by *divisor*, which may be an array."""
    ones = (1,) * len(window)
    dims = x.shape[x.ndim - len(window) :]
    sizes = [num_windows(*each) for each in zip(dims, window, stride, ones, pads, strict=True)]
    x = padded(x, pads)
    out: Array | None = None
    for _, cells in taps(x, window, stride, ones, sizes):
        out = cells.copy() if out is None else np.add(out, cells, out=out)
    assert out is not None
    out /= divisor
    return out


def _divisor(
    dims: Sequence[int], window: Sequence[int], stride: Sequence[int], pads: Pads, pad: Sequence[int], counts_pad: bool
) -> Array:
    """How many cells each window counts: those past the border in ceil mode never count."""
    total = np.ones((), np.float32)
    for size, k, s, p, pair in zip(dims, window, stride, pad, pads, strict=True):
        starts = np.arange(num_windows(size, k, s, 1, pair)) * s - pair[0]
        first, last = (-p, size + p) if counts_pad else (0, size)
        cells = np.minimum(starts + k, last) - np.maximum(starts, first)
        total = np.multiply.outer(total, cells.astype(np.float32))
    return total


@pnnx_kernel("nn.MaxPool1d", "nn.MaxPool2d", "nn.MaxPool3d", "F.max_pool1d", "F.max_pool2d", "F.max_pool3d")
def _max_pool(node: PnnxNode) -> Kernel:
    if node.param("return_indices") and node.num_outputs != 1:
        raise UnimplementedError(f"{node.type}: return_indices", node=node.construction.name)
    dims = int(node.type[-2])
    window = node.integers("kernel_size", None, dims)
    stride, dilation = node.integers("stride", window, dims), node.integers("dilation", 1, dims)
    pad, ceil = node.integers("padding", 0, dims), bool(node.param("ceil_mode"))
    reach = [d * (k - 1) + 1 for k, d in zip(window, dilation, strict=True)]

    def pool(x: Array) -> Array:
        x, is_single = with_batch(x, dims)
        out = max_pool(x, window, stride, _pads(x.shape[2:], reach, stride, pad, ceil), dilation)
        return out[0] if is_single else out

    return pool


@pnnx_kernel("nn.AvgPool1d", "nn.AvgPool2d", "nn.AvgPool3d", "F.avg_pool1d", "F.avg_pool2d", "F.avg_pool3d")
def _avg_pool(node: PnnxNode) -> Kernel:
    dims = int(node.type[-2])
    window = node.integers("kernel_size", None, dims)
    stride, pad = node.integers("stride", window, dims), node.integers("padding", 0, dims)
    ceil, counts_pad = bool(node.param("ceil_mode")), bool(node.param("count_include_pad", True))
    override = node.param("divisor_override")

    def pool(x: Array) -> Array:
        x, is_single = with_batch(x, dims)
        sizes = x.shape[2:]
        pads = _pads(sizes, window, stride, pad, ceil)
        divisor = override or _divisor(sizes, window, stride, pads, pad, counts_pad).astype(x.dtype)
        out = avg_pool(x, window, stride, pads, divisor)
        return out[0] if is_single else out

    return pool


def _adaptive(x: Array, sizes: Sequence[int | None], reduce: Callable[..., Any]) -> Array:
    """*x* whose last dimensions have *sizes*, each cell from its part of the input."""
    for axis, size in zip(range(-len(sizes), 0), sizes, strict=True):
        length = x.shape[axis]
        if size is None or size == length:
            continue
        if size < 1 or length < 1:
            raise InvalidArgumentError(f"{length} cells cannot be pooled to {size}")
        if length % size == 0:
            whole = axis % x.ndim
            x = reduce(x.reshape(*x.shape[:whole], size, length // size, *x.shape[whole + 1 :]), axis=whole + 1)
            continue
        check_array((*x.shape[:axis], size), x.dtype)
        parts = [(k * length // size, -(-(k + 1) * length // size)) for k in range(size)]
        moved = np.moveaxis(x, axis, -1)
        x = np.moveaxis(np.stack([reduce(moved[..., low:high], axis=-1) for low, high in parts], -1), -1, axis)
    return np.ascontiguousarray(x)


def _output_size(node: PnnxNode, dims: int) -> list[int | None]:
    value = node.param("output_size")
    values = value if isinstance(value, tuple) else (value,) * dims
    if len(values) != dims or not all(each in (None, "None") or isinstance(each, int) for each in values):
        raise node.error(f"parameter 'output_size' is {value!r}, not {dims} integers")
    # PNNX writes 0 where torch has None, which keeps the size.
    return [each if isinstance(each, int) and each else None for each in values]


def _adaptive_kernel(node: PnnxNode, reduce: Callable[..., object]) -> Kernel:
    dims = int(node.type[-2])
    sizes = _output_size(node, dims)

    def pool(x: Array) -> Array:
        with_batch(x, dims)
        return _adaptive(x, sizes, reduce)

    return pool


@pnnx_kernel(
    *(f"nn.AdaptiveAvgPool{dims}d" for dims in (1, 2, 3)), *(f"F.adaptive_avg_pool{dims}d" for dims in (1, 2, 3))
)
def _adaptive_avg_pool(node: PnnxNode) -> Kernel:
    return _adaptive_kernel(node, np.mean)


@pnnx_kernel(
    *(f"nn.AdaptiveMaxPool{dims}d" for dims in (1, 2, 3)), *(f"F.adaptive_max_pool{dims}d" for dims in (1, 2, 3))
)
def _adaptive_max_pool(node: PnnxNode) -> Kernel:
    if node.num_outputs != 1:
        raise UnimplementedError(f"{node.type}: return_indices", node=node.construction.name)
    return _adaptive_kernel(node, np.max)
