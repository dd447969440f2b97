"""Convolution and pooling by torch.nn.functional, with TensorFlow's windows.

The standard has no such functions.  TensorFlow's tensors are channels-last; torch takes them as they lie, seen
channels-first.  What pads and windows mean is told in asyncexec.ops (windows.py, pooling.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from asyncexec.devices.array_library import ArrayLibrary
from asyncexec.devices.kernel_table import HALVES, KernelTable, check_size, shape_list
from asyncexec.framework.errors import InvalidArgumentError, UnimplementedError
from asyncexec.framework.extras import require
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.ops.array.windows import Axis, make_windows, padded_shape
from asyncexec.ops.math.elementwise import FLOATS
from asyncexec.ops.nn.convolution import check_depths
from asyncexec.ops.nn.pooling import Pooling


def register_windows(table: KernelTable) -> None:
    """Add the kernels of this module."""
    table.add("Conv2D", _conv2d, FLOATS, kind=KernelKind.EXPENSIVE)
    table.add("MaxPool", _max_pool, FLOATS, kind=KernelKind.EXPENSIVE)
    table.add("AvgPool", _average_pool, FLOATS, kind=KernelKind.EXPENSIVE)


def _conv2d(library: ArrayLibrary, op: OpKernelConstruction) -> Kernel:
    torch, windows = require("torch", extra="torch"), make_windows(op.attrs, 2)
    first = windows.channels_first

    def conv2d(x: Any, filters: Any) -> Any:
        _check_convolution(x, filters)
        x = x if first else x.permute(0, 3, 1, 2)
        check_depths(x.shape[1], filters.shape[-2], filters.shape[-1])
        axes = windows.axes(x.shape[2:], filters.shape[:2])
        shape = (x.shape[0], filters.shape[-1], *(axis.out for axis in axes))
        if 0 in shape or 0 in x.shape:
            out = torch.zeros(shape, dtype=x.dtype, device=x.device)
        else:
            out = torch.nn.functional.conv2d(
                _padded(torch, x, axes, 0.0),
                filters.permute(3, 2, 0, 1),
                stride=windows.strides,
                dilation=windows.dilations,
                groups=x.shape[1] // filters.shape[-2],
            )
        return out if first else out.permute(0, 2, 3, 1)

    return _widened(torch, op, conv2d)


def _check_convolution(x: Any, filters: Any) -> None:
    for what, array in (("input", x), ("filter", filters)):
        if array.ndim != 4:
            raise InvalidArgumentError(f"{what} must be 4-dimensional, not of shape {shape_list(array)}")
    if 0 in filters.shape[:-1] and 0 not in x.shape:
        raise InvalidArgumentError(f"filter must not have zero elements: its shape is {shape_list(filters)}")


def _padded(torch: Any, x: Any, axes: Sequence[Axis], value: float) -> Any:
    """*x*, channels-first, with its windows' pads around it."""
    if not any(axis.before or axis.after for axis in axes):
        return x
    check_size(padded_shape(x.shape[0], axes, x.shape[1]), np.dtype(np.float64))
    high, wide = axes
    return torch.nn.functional.pad(x, (wide.before, wide.after, high.before, high.after), value=value)


def _widened(torch: Any, op: OpKernelConstruction, function: Kernel) -> Kernel:
    """*function*, computed in float32 on the CPU where the node's type is a half-size float, and rounded once."""
    if op.attr("T") not in HALVES:
        return function

    def kernel(*inputs: Any) -> Any:
        first = inputs[0]
        if first.device.type != "cpu":
            return function(*inputs)
        return function(*(x.to(torch.float32) for x in inputs)).to(first.dtype)

    return kernel


def _pooling_kernel(torch: Any, pooling: Pooling, pool: Any) -> Kernel:
    first = pooling.windows.channels_first

    def kernel(x: Any) -> Any:
        if x.ndim != 4:
            raise InvalidArgumentError(f"tensor_in must be 4-dimensional, not of shape {shape_list(x)}")
        x = x if first else x.permute(0, 3, 1, 2)
        if pooling.depth > 1:
            out = _pool_depth(x, pooling.depth)
        else:
            axes = pooling.axes(x.shape[2:])
            shape = (x.shape[0], x.shape[1], *(axis.out for axis in axes))
            out = torch.zeros(shape, dtype=x.dtype, device=x.device) if 0 in shape else pool(x, axes)
        return out if first else out.permute(0, 2, 3, 1)

    return kernel


def _pool_depth(x: Any, depth: int) -> Any:
    if x.shape[1] % depth:
        raise UnimplementedError(f"Depthwise max pooling requires the depth window {depth} to divide {x.shape[1]}")
    return x.unflatten(1, (x.shape[1] // depth, depth)).amax(2)


def _max_pool(library: ArrayLibrary, op: OpKernelConstruction) -> Kernel:
    torch, pooling = require("torch", extra="torch"), Pooling(op.attrs, 2)

    def pool(x: Any, axes: Sequence[Axis]) -> Any:
        # NaN is passed over, and nothing is below the lowest finite number.
        least = torch.finfo(x.dtype).min
        x = _padded(torch, torch.where(x > least, x, least), axes, least)
        return torch.nn.functional.max_pool2d(x, pooling.ksize, pooling.windows.strides)

    return _widened(torch, op, _pooling_kernel(torch, pooling, pool))


def _average_pool(library: ArrayLibrary, op: OpKernelConstruction) -> Kernel:
    torch, pooling = require("torch", extra="torch"), Pooling(op.attrs, 2, average=True)

    def pool(x: Any, axes: Sequence[Axis]) -> Any:
        average = torch.nn.functional.avg_pool2d
        if not any(axis.before or axis.after for axis in axes):
            return average(x, pooling.ksize, pooling.windows.strides)
        padded = _padded(torch, x, axes, 0.0)
        total = average(padded, pooling.ksize, pooling.windows.strides, divisor_override=1)
        counts = np.multiply.outer(*(_cells_inside(axis) for axis in axes)).astype(np.float32)
        return total / torch.asarray(counts, dtype=x.dtype, device=x.device)

    return _widened(torch, op, _pooling_kernel(torch, pooling, pool))


def _cells_inside(axis: Axis) -> list[int]:
    """How many cells of each window along *axis* lie inside the input."""
    starts = range(-axis.before, -axis.before + axis.out * axis.stride, axis.stride)
    return [min(start + axis.kernel, axis.size) - max(start, 0) for start in starts]
