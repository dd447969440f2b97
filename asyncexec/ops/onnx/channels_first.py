"""Convolution of channels-first arrays, for any number of spatial axes, in one dtype.

* A window of one cell is one product of the filters with the input as it lies.
* With a channel a group (depthwise), the padded input is flattened, each cell of the window is a shift of it, and the
  weighted shifts are summed; the rows of the output are as wide as those of the padded input until the end. A stride
  takes the input apart into phases, in each of which neighbours are one step apart.
* Otherwise the cells under the windows are laid out as columns, a piece at a time that stays in the cache, and
  multiplied with the filters by BLAS. Small images share a product.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, Final

import numpy as np

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.ops.array.windows import Axis
from asyncexec.ops.onnx.arrays import Array, empty, inner, zeros

_PIECE_BYTES: Final = 2**20
_WIDE: Final = 512  # columns of a product that is large enough
_SHIFT_CELLS: Final = 2**15  # of scratch when shifts are summed


def check_filters(x: Array, filters: Array, groups: int) -> None:
    """InvalidArgumentError unless the channels of input and filters divide into *groups*."""
    if x.ndim < 3 or x.ndim != filters.ndim:
        raise InvalidArgumentError(
            f"input and filter must have one rank above 2, not shapes {list(x.shape)} and {list(filters.shape)}"
        )
    if groups < 1 or x.shape[1] != filters.shape[1] * groups or filters.shape[0] % groups:
        raise InvalidArgumentError(
            f"input of shape {list(x.shape)} and filter of shape {list(filters.shape)} do not fit {groups} groups"
        )


def convolve(x: Array, filters: Array, axes: Sequence[Axis], groups: int) -> Array:
    """*x* [batch, in, spatial...] convolved with *filters* [out, in / groups, window...]."""
    shape = (x.shape[0], filters.shape[0], *(axis.out for axis in axes))
    if not x.size or not filters.size or not math.prod(shape):
        return zeros(shape, x.dtype)
    if all(axis.kernel == 1 and not axis.before and not axis.after for axis in axes):
        return _by_one_cell(x, filters, axes, groups).reshape(shape)
    if filters.shape[1] == 1 and groups > 1:
        return _depthwise(x, filters, axes, empty(shape, x.dtype))
    return _by_columns(x, filters, axes, groups, empty(shape, x.dtype))


def _by_one_cell(x: Array, filters: Array, axes: Sequence[Axis], groups: int) -> Array:
    seen = x[inner(slice(0, (axis.out - 1) * axis.stride + 1, axis.stride) for axis in axes)]
    batch, depth = x.shape[:2]
    if groups == 1:
        return np.asarray(np.matmul(filters.reshape(len(filters), depth), seen.reshape(batch, depth, -1)))
    weights = filters.reshape(groups, len(filters) // groups, depth // groups)
    return np.asarray(np.matmul(weights, seen.reshape(batch, groups, depth // groups, -1)))


def padded(x: Array, axes: Sequence[Axis]) -> Array:
    """*x* with its windows' pads around it; more at the end where windows reach further."""
    sizes = [max(axis.before + axis.size, _reach(axis)) for axis in axes]
    if all(size == axis.size for size, axis in zip(sizes, axes, strict=True)):
        return x
    out = zeros((*x.shape[:2], *sizes), x.dtype)
    out[inner(slice(axis.before, axis.before + axis.size) for axis in axes)] = x
    return out


def _reach(axis: Axis) -> int:
    return (axis.out - 1) * axis.stride + (axis.kernel - 1) * axis.dilation + 1


def _by_columns(x: Array, filters: Array, axes: Sequence[Axis], groups: int, out: Array) -> Array:
    cells = padded(x, axes)
    depth, out_depth = x.shape[1], len(filters)
    taps = math.prod(axis.kernel for axis in axes)
    weights = filters.reshape(groups, out_depth // groups, -1)
    across = math.prod(axis.out for axis in axes[1:])
    for images, rows in _pieces(len(x), axes[0].out, across, depth * taps * x.itemsize):
        count, length = images.stop - images.start, (rows.stop - rows.start) * across
        columns = _columns(cells[images], axes, rows).reshape(groups, -1, count * length)
        part = out[images, :, rows]
        if count == 1:
            np.matmul(weights, columns, out=part.reshape(groups, out_depth // groups, length, copy=False))
        else:
            products = np.matmul(weights, columns).reshape(out_depth, count, *part.shape[2:])
            part[...] = products.swapaxes(0, 1)
    return out


def _columns(cells: Array, axes: Sequence[Axis], rows: slice) -> Array:
    """The cells under windows as [in, window..., images, windows...]; those of *rows* along the first axis."""
    counts = (rows.stop - rows.start, *(axis.out for axis in axes[1:]))
    kernel = [axis.kernel for axis in axes]
    columns = np.empty((cells.shape[1], *kernel, len(cells), *counts), cells.dtype)
    by_channel = cells.swapaxes(0, 1)
    firsts = (rows.start, *(0,) * (len(axes) - 1))
    for place in product(*map(range, kernel)):
        seen = tuple(
            slice(start, start + (count - 1) * axis.stride + 1, axis.stride)
            for axis, count, start in zip(
                axes,
                counts,
                (f * a.stride + k * a.dilation for f, a, k in zip(firsts, axes, place, strict=True)),
                strict=True,
            )
        )
        columns[inner(place, (slice(None),) * (len(axes) + 1))] = by_channel[inner(seen)]
    return columns


def _pieces(batch: int, rows: int, across: int, cell_bytes: int) -> Iterator[tuple[slice, slice]]:
    """Images and rows of the output that make products of a good size."""
    if rows * across < _WIDE:
        step = max(1, min(_WIDE // max(1, rows * across), 4 * _PIECE_BYTES // max(1, rows * across * cell_bytes)))
        for start in range(0, batch, step):
            yield slice(start, min(batch, start + step)), slice(0, rows)
        return
    step = max(-(-_WIDE // across), _PIECE_BYTES // (across * cell_bytes))
    pieces = -(-rows // step)
    for image in range(batch):
        for i in range(pieces):
            yield slice(image, image + 1), slice(rows * i // pieces, rows * (i + 1) // pieces)


def _phases(x: Array, axes: Sequence[Axis]) -> Array:
    """The padded input as [batch, in, phase..., place...], with a phase for each remainder by the stride."""
    lengths = [axis.out + (axis.kernel - 1) * axis.dilation // axis.stride for axis in axes]
    out = zeros((*x.shape[:2], *(n * axis.stride for n, axis in zip(lengths, axes, strict=True))), x.dtype)
    room = [min(axis.size, size - axis.before) for axis, size in zip(axes, out.shape[2:], strict=True)]
    inside = tuple(slice(axis.before, axis.before + n) for axis, n in zip(axes, room, strict=True))
    out[inner(inside)] = x[inner(slice(0, max(0, n)) for n in room)]
    if all(axis.stride == 1 for axis in axes):
        return out.reshape(*x.shape[:2], *(1,) * len(axes), *lengths)
    split = out.reshape(
        *x.shape[:2], *(n for pair in zip(lengths, (a.stride for a in axes), strict=True) for n in pair)
    )
    order = (0, 1, *range(3, split.ndim, 2), *range(2, split.ndim, 2))
    return np.ascontiguousarray(split.transpose(order))


def _depthwise(x: Array, filters: Array, axes: Sequence[Axis], out: Array) -> Array:
    multiplier = len(filters) // x.shape[1]
    phases = _phases(x, axes)
    lengths = phases.shape[-len(axes) :]
    flat = phases.reshape(*phases.shape[: -len(axes)], -1)
    steps = [math.prod(lengths[i + 1 :]) for i in range(len(axes))]
    span = sum((axis.out - 1) * step for axis, step in zip(axes, steps, strict=True)) + 1
    shifts: list[tuple[tuple[Any, ...], int]] = []
    for place in product(*(range(axis.kernel) for axis in axes)):
        reach = [divmod(k * axis.dilation, axis.stride) for k, axis in zip(place, axes, strict=True)]
        shifts.append((tuple(r for _, r in reach), sum(q * step for (q, _), step in zip(reach, steps, strict=True))))
    weights = filters.reshape(len(filters), -1, 1)
    room = axes[0].out * steps[0]
    channels = max(1, min(x.shape[1], _SHIFT_CELLS // room))
    total, scratch = np.empty((2, channels, room), x.dtype)
    crop = tuple(slice(0, axis.out) for axis in axes)
    for image, result in zip(flat, out.reshape(len(x), x.shape[1], multiplier, *out.shape[2:]), strict=True):
        for start in range(0, x.shape[1], channels):
            part = image[start : start + channels]
            for m in range(multiplier):
                factors = weights[start * multiplier + m : (start + len(part)) * multiplier : multiplier]
                _sum_shifts(part, factors, shifts, total[: len(part), :span], scratch[: len(part), :span])
                rows = total[: len(part)].reshape(len(part), axes[0].out, *lengths[1:])
                result[start : start + len(part), m] = rows[(slice(None), *crop)]
    return out


def _sum_shifts(
    part: Array, factors: Array, shifts: Sequence[tuple[tuple[Any, ...], int]], total: Array, scratch: Array
) -> None:
    span = total.shape[1]
    for i, (phase, offset) in enumerate(shifts):
        seen = part[(slice(None), *phase, slice(offset, offset + span))]
        if not i:
            np.multiply(seen, factors[:, i], out=total)
        else:
            np.multiply(seen, factors[:, i], out=scratch)
            np.add(total, scratch, out=total)


def add_columns(columns: Array, axes: Sequence[Axis], total: Array) -> Array:
    """Add *columns* [batch, channels, window..., windows...] to the cells of *total* [batch, channels, spatial...]."""
    for place in product(*(axis.taps for axis in axes)):
        ranges = [axis.tap(k) for k, axis in zip(place, axes, strict=True)]
        to, cells = tuple(out for out, _ in ranges), tuple(seen for _, seen in ranges)
        total[inner(cells)] += columns[inner(place, to)]
    return total
