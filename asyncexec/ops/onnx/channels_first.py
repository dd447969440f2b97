"""Convolution of channels-first arrays, for any number of spatial axes, in one dtype.

* A window of one cell is one product of the filters with the input as it lies.
* The padded input may be flattened: each cell of the window is a shift of it then, and the weighted shifts are summed.
  A stride takes the input apart into phases, in each of which neighbours are one step apart. With a channel a group
  (depthwise) a shift is multiplied by numbers, with few channels by a matrix, as it lies. Small images have their
  channels last for depthwise filters: rows are too short otherwise.
* Otherwise the cells under the windows are laid out as columns, a piece at a time that stays in the cache, and
  multiplied with the filters by BLAS. Small images share a product.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.ops.array.windows import Axis
from asyncexec.ops.nn.depthwise import depthwise
from asyncexec.ops.onnx.arrays import empty, inner, zeros
from asyncexec.process.free_memory import check_array

_PIECE_BYTES: Final = 2**20
_SMALL: Final = 1024  # outputs of a depthwise filter that are sooner summed with channels last
_WIDE: Final = 512  # columns of a product that is large enough
_SHIFTED_CELLS: Final = 2**16  # of scratch when shifts are summed
_SHIFTED_COLUMNS: Final = 1024  # of a product when the products of shifts are
_SHIFTED_DEPTHS: Final = range(8, 128)  # channels of which a shift is multiplied sooner than columns are laid out


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
    check_array(shape, x.dtype)
    if all(axis.kernel == 1 and not axis.before and not axis.after for axis in axes):
        return _by_one_cell(x, filters, axes, groups).reshape(shape)
    if filters.shape[1] == 1 and groups > 1:
        if len(axes) == 2 and math.prod(shape[2:]) <= _SMALL:
            return _with_channels_last(x, filters, axes)
        return _depthwise(x, filters, axes, empty(shape, x.dtype))
    if groups == 1 and x.shape[1] in _SHIFTED_DEPTHS and math.prod(shape[2:]) >= _WIDE:
        return _by_shifts(x, filters, axes, empty(shape, x.dtype))
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


@dataclass(frozen=True, slots=True)
class _Flat:
    """A padded input with its spatial axes in one, so that each cell of the window is a shift of it.

    Rows of the output are as wide as those of the input until the end; what is beyond the output in them is nothing.

    Attributes:
        cells: [batch, in, phase..., place]; neighbours in a phase are a stride apart in the input.
        shifts: the phase and the place of the first window's cell, for each cell of the window.
        lengths: the spatial sizes of a phase.
        row: the places from one row of the output to the next.
    """

    cells: Array
    shifts: list[tuple[tuple[int, ...], int]]
    lengths: tuple[int, ...]
    row: int

    def seen(self, image: Array, shift: int, start: int, length: int) -> Array:
        """What the windows at *length* places from *start* on see in their cell number *shift*: [in, place]."""
        phase, offset = self.shifts[shift]
        part: Array = image[inner((slice(None),), phase, (slice(start + offset, start + offset + length),))]
        return part

    def crop(self, rows: Array, axes: Sequence[Axis]) -> Array:
        """The outputs in *rows* [out, place]."""
        shaped = rows.reshape(len(rows), rows.shape[1] // self.row, *self.lengths[1:])
        part: Array = shaped[inner((slice(None),), (slice(0, axis.out) for axis in axes[1:]))]
        return part


def _flatten(x: Array, axes: Sequence[Axis]) -> _Flat:
    lengths = tuple(axis.out + (axis.kernel - 1) * axis.dilation // axis.stride for axis in axes)
    lengths = (lengths[0] + 1, *lengths[1:])  # the last rows run over their end
    out = zeros((*x.shape[:2], *(n * axis.stride for n, axis in zip(lengths, axes, strict=True))), x.dtype)
    room = [max(0, min(axis.size, size - axis.before)) for axis, size in zip(axes, out.shape[2:], strict=True)]
    inside = (slice(axis.before, axis.before + n) for axis, n in zip(axes, room, strict=True))
    out[inner(inside)] = x[inner(slice(0, n) for n in room)]
    if any(axis.stride > 1 for axis in axes):
        pairs = ((n, axis.stride) for n, axis in zip(lengths, axes, strict=True))
        split = out.reshape(*x.shape[:2], *(n for pair in pairs for n in pair))
        out = np.ascontiguousarray(split.transpose(0, 1, *range(3, split.ndim, 2), *range(2, split.ndim, 2)))
    steps = [math.prod(lengths[i + 1 :]) for i in range(len(axes))]
    shifts = []
    for place in product(*(range(axis.kernel) for axis in axes)):
        reach = [divmod(k * axis.dilation, axis.stride) for k, axis in zip(place, axes, strict=True)]
        shifts.append((tuple(r for _, r in reach), sum(q * step for (q, _), step in zip(reach, steps, strict=True))))
    return _Flat(out.reshape(*x.shape[:2], *(axis.stride for axis in axes), -1), shifts, lengths, steps[0])


def _by_shifts(x: Array, filters: Array, axes: Sequence[Axis], out: Array) -> Array:
    flat = _flatten(x, axes)
    depth = len(filters)
    weights = np.ascontiguousarray(filters.reshape(depth, x.shape[1], -1).transpose(2, 0, 1))
    rows = min(axes[0].out, max(1, _SHIFTED_COLUMNS // flat.row))
    buffers = np.empty((2, depth * rows * flat.row), x.dtype)
    for image, result in zip(flat.cells, out, strict=True):
        for first in range(0, axes[0].out, rows):
            start, length = first * flat.row, min(rows, axes[0].out - first) * flat.row
            total, term = (buffer[: depth * length].reshape(depth, length) for buffer in buffers)
            np.matmul(weights[0], flat.seen(image, 0, start, length), out=total)
            for shift in range(1, len(weights)):
                np.matmul(weights[shift], flat.seen(image, shift, start, length), out=term)
                total += term
            result[:, first : first + rows] = flat.crop(total, axes)
    return out


def _depthwise(x: Array, filters: Array, axes: Sequence[Axis], out: Array) -> Array:
    flat, depth, multiplier = _flatten(x, axes), x.shape[1], len(filters) // x.shape[1]
    weights = filters.reshape(depth, multiplier, -1, 1)
    length = axes[0].out * flat.row
    channels = max(1, min(depth, _SHIFTED_CELLS // length))
    total, term = np.empty((2, channels, length), x.dtype)
    for image, result in zip(flat.cells, out.reshape(len(x), depth, multiplier, *out.shape[2:]), strict=True):
        for start, m in product(range(0, depth, channels), range(multiplier)):
            part = slice(start, min(depth, start + channels))
            count = part.stop - start
            for shift in range(weights.shape[2]):
                seen = flat.seen(image[part], shift, 0, length)
                np.multiply(seen, weights[part, m, shift], out=term[:count] if shift else total[:count])
                if shift:
                    total[:count] += term[:count]
            result[part, m] = flat.crop(total[:count], axes)
    return out


def _with_channels_last(x: Array, filters: Array, axes: Sequence[Axis]) -> Array:
    depth = x.shape[1]
    weights = filters.reshape(depth, len(filters) // depth, *filters.shape[2:]).transpose(2, 3, 0, 1)
    cells = np.ascontiguousarray(np.moveaxis(x, 1, -1))
    return np.ascontiguousarray(np.moveaxis(depthwise(cells, np.ascontiguousarray(weights), axes), -1, 1))


def add_columns(columns: Array, axes: Sequence[Axis], total: Array) -> Array:
    """Add *columns* [batch, channels, window..., windows...] to the cells of *total* [batch, channels, spatial...]."""
    for place in product(*(axis.taps for axis in axes)):
        ranges = [axis.tap(k) for k, axis in zip(place, axes, strict=True)]
        to, cells = tuple(out for out, _ in ranges), tuple(seen for _, seen in ranges)
        total[inner(cells)] += columns[inner(place, to)]
    return total
