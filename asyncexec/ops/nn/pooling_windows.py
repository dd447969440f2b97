"""Reductions over sliding windows, for any number of spatial axes; channels-last.

Maxima and sums of a window are those of its rows' maxima and sums, so the axes are taken one after the other: a
window of 3 x 3 costs 3 + 3 passes over the data.  Cells outside of the input count for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from asyncexec.framework.arrays import Array, NumpyDType
from asyncexec.ops.array.windows import Axis, pad_spatial, pieces
from asyncexec.ops.nn.depthwise import taps
from asyncexec.process.free_memory import check_array
from asyncexec.process.shards import share

_PIECE_BYTES: Final = 2**20  # of the images that are taken at a time


def lowest(dtype: NumpyDType) -> object:
    """The least finite number of a real type."""
    if dtype.kind in "iu":
        return np.iinfo(dtype).min
    return np.finfo(dtype).min if dtype.kind == "f" else dtype.type("-3.3895e38")


def _combined(x: Array, axes: Sequence[Axis], start: object, combine: np.ufunc) -> Array:
    """*start* and the cells of each window, combined; a new array."""
    out = _of_windows(x, axes, start, combine)
    # Last, where there is least left of it: in which order makes no difference.
    combined: Array = combine(out, x.dtype.type(start), out=None if out is x else out)
    return combined


def _of_windows(x: Array, axes: Sequence[Axis], start: object, combine: np.ufunc) -> Array:
    """The cells of each window, combined, and *start* where windows reach over the edge."""
    for i, axis in enumerate(axes):
        x = _along(x, axis, i + 1, start, combine)
    return x


def _along(x: Array, axis: Axis, position: int, start: object, combine: np.ufunc) -> Array:
    if axis.is_plain:
        return x
    shape = (*x.shape[:position], axis.out, *x.shape[position + 1 :])
    check_array(shape, x.dtype)
    before = (slice(None),) * position
    parts = [axis.tap(k) for k in axis.taps]
    if [to for to, _ in parts[:2]] == [slice(0, axis.out)] * 2:
        (_, first), (_, second), *parts = parts
        out: Array = combine(x[(*before, first)], x[(*before, second)])
    else:
        out = np.full(shape, start, x.dtype)
    for to, cells in parts:
        part = out[(*before, to)]
        combine(part, x[(*before, cells)], out=part)
    return out


def max_pool(x: Array, axes: Sequence[Axis]) -> Array:
    """The largest of each window; NaN is passed over, and nothing is below the lowest finite number."""
    return _combined(x, axes, lowest(x.dtype), np.fmax)


def max_pool_of_volumes(x: Array, axes: Sequence[Axis]) -> Array:
    """The same of three spatial axes, where NaN gives way only to what comes after it in its window."""
    if x.dtype.kind not in "fV" or not np.isnan(x).any():
        return max_pool(x, axes)
    start = lowest(x.dtype)
    padded = pad_spatial(x, axes, start)
    inside = [replace(axis, size=axis.before + axis.size + axis.after, before=0, after=0) for axis in axes]
    out: Array = np.full((x.shape[0], *(axis.out for axis in axes), x.shape[-1]), start, x.dtype)
    for _, to, cells in taps(inside):
        largest, cell = out[(slice(None), *to)], padded[(slice(None), *cells)]
        np.copyto(largest, cell, where=~(largest > cell))
    return out


def average_pool(x: Array, axes: Sequence[Axis]) -> Array:
    """The mean of the cells of each window that lie inside the input."""
    total = _combined(x, axes, 0, np.add)
    total /= cell_counts(axes, x.dtype)
    return total


def cell_counts(axes: Sequence[Axis], dtype: NumpyDType) -> Array:
    """How many cells of each window lie inside the input, in a shape that goes with [out..., 1]."""
    if not any(axis.before or axis.after for axis in axes):
        return np.full((1,) * (len(axes) + 1), math.prod(axis.kernel for axis in axes), dtype)
    total = np.ones((1,) * len(axes) + (1,), dtype)
    for i, axis in enumerate(axes):
        counts = np.zeros(axis.out, dtype)
        for k in axis.taps:
            counts[axis.tap(k)[0]] += 1
        total = total * counts.reshape(-1, *(1,) * (len(axes) - i))
    return total


def average_pool_grad(grad: Array, axes: Sequence[Axis]) -> Array:
    """What the gradient of each mean gives to the cells it was made of."""
    shape = (len(grad), *(axis.size for axis in axes), grad.shape[-1])
    check_array(shape, grad.dtype)
    out, counts = np.empty(shape, grad.dtype), cell_counts(axes, grad.dtype)

    def spread(images: slice) -> None:
        total = grad[images] / counts
        for i, axis in enumerate(axes[:-1]):
            total = _spread(total, axis, i + 1)
        out[images] = _spread(total, axes[-1], len(axes))

    share(spread, list(pieces(out, _PIECE_BYTES)), out.nbytes)
    return out


def _spread(grad: Array, axis: Axis, position: int) -> Array:
    shape = (*grad.shape[:position], axis.size, *grad.shape[position + 1 :])
    check_array(shape, grad.dtype)
    out = np.zeros(shape, grad.dtype)
    before = (slice(None),) * position
    for k in axis.taps:
        to, cells = axis.tap(k)
        out[(*before, cells)] += grad[(*before, to)]
    return out


def first_maxima(x: Array, axes: Sequence[Axis]) -> tuple[Array, Array]:
    """The largest of each window, and the number (row by row) of the first of its cells that has it."""
    shape = (x.shape[0], *(axis.out for axis in axes), x.shape[-1])
    check_array(shape, x.dtype)
    largest = np.full(shape, lowest(x.dtype), x.dtype)
    winner = np.full(shape, -1, np.int64)
    for number, (_, to, cells) in enumerate(taps(axes)):
        where = (slice(None), *to)
        seen = x[(slice(None), *cells)]
        better = (seen > largest[where]) | (winner[where] < 0)
        np.copyto(largest[where], seen, where=better)
        np.copyto(winner[where], number, where=better)
    return largest, winner


def flat_indices(winner: Array, x_shape: Sequence[int], axes: Sequence[Axis]) -> Array:
    """The place of each winning cell in its image, flattened with its channels."""
    numbers = np.arange(int(np.prod(x_shape[1:], dtype=np.int64)), dtype=np.int64).reshape(x_shape[1:])
    indices = np.zeros(winner.shape, np.int64)
    for number, (_, to, cells) in enumerate(taps(axes)):
        where = (slice(None), *to)
        np.copyto(indices[where], numbers[cells], where=winner[where] == number)
    return indices


def max_pool_grad(x: Array, grad: Array, axes: Sequence[Axis]) -> Array:
    """The gradient of each window's maximum, given to the first cell that has it."""
    total = np.zeros(x.shape, grad.dtype)
    places = list(taps(axes))

    def add(images: slice) -> None:
        part, out = grad[images].view(f"i{grad.itemsize}"), total[images]
        # The last place comes first: so each cell is given the gradients of its windows in their order.
        for (_, to, cells), wins in zip(reversed(places), reversed(_winners(x[images], axes)), strict=True):
            bits = np.negative(wins.view(np.int8)).astype(part.dtype)
            bits &= part[(slice(None), *to)]
            out[(slice(None), *cells)] += bits.view(grad.dtype)

    share(add, list(pieces(x, _PIECE_BYTES)), total.nbytes)
    return total


def _winners(x: Array, axes: Sequence[Axis]) -> list[Array]:
    """For each place in the windows, in which of the windows that have it the first maximum is there."""
    is_float = x.dtype.kind == "f"
    largest = _of_windows(x, axes, -np.inf if is_float else lowest(x.dtype), np.maximum)
    if is_float and np.isnan(largest).any():
        _, winner = first_maxima(x, axes)
        return [winner[(slice(None), *to)] == number for number, (_, to, _) in enumerate(taps(axes))]
    winners, is_left = [], np.ones(largest.shape, np.bool_)
    for _, to, cells in taps(axes):
        wins = x[(slice(None), *cells)] == largest[(slice(None), *to)]
        left = is_left[(slice(None), *to)]
        wins &= left
        left ^= wins
        winners.append(wins)
    return winners


def max_pool_grad_all(x: Array, y: Array, grad: Array, axes: Sequence[Axis]) -> Array:
    """The gradient of each window's maximum, given to every cell that has it (as TensorFlow does in 3-D)."""
    total = np.zeros(x.shape, grad.dtype)
    for _, to, cells in taps(axes):
        where, seen = (slice(None), *to), (slice(None), *cells)
        total[seen] += np.where(x[seen] == y[where], grad[where], grad.dtype.type(0))
    return total
