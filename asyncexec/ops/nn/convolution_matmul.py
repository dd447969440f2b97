"""Convolution as matrix products, for any number of spatial axes; channels-last, in one dtype.

The patches under the windows are laid out as rows (im2col), a bounded piece at a time, and multiplied with the filter
by BLAS; the gradients are the two products that belong to it.  Where a window is narrow and has one channel or two, the
patches are laid out as columns: what is copied in one go is longer then.  Where the output has few channels, a product
is over sooner than its patches are copied: then there is one product for each row of the window, of the input as it
lies.  With a filter for a part of the input channels only, the channels are in groups, each convolved by itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import as_strided

from asyncexec.framework.arrays import Array, NumpyDType
from asyncexec.ops.array.windows import CHUNK_BYTES, Axis, chunks, inner_slices, pad_spatial, padded_shape
from asyncexec.ops.math.shared_product import multiply
from asyncexec.process.free_memory import check_array
from asyncexec.process.shards import share, spare

_WIDE: Final = 24  # windows in a row: with fewer, too many run over its end
_FEW: Final = 8  # channels of the input: rows of windows with fewer are too short for a product
_MANY: Final = 48  # channels of the output: with more, sums take longer than copies
_NARROW: Final = 8  # numbers in a row of a window: fewer are sooner copied as columns, each from all windows
_MUCH: Final = 2**14  # cells of patches: fewer are copied sooner than it takes to find out where they are
_SHORT: Final = 32  # of which it is worth while to make items
_PATCH_BYTES: Final = 2**20  # of patches that stay in the cache
_Piece: TypeAlias = tuple[slice, slice]  # images, and rows of the output
_SHIFTED_BYTES: Final = 2**17  # of sums that stay in the cache


def convolve(x: Array, filters: Array, axes: Sequence[Axis]) -> Array:
    """*x* [batch, spatial..., in] convolved with *filters* [window..., in / groups, out]."""
    out_shape = (x.shape[0], *(axis.out for axis in axes), filters.shape[-1])
    check_array(out_shape, x.dtype)
    groups = group_count(x.shape[-1], filters.shape[-2])
    if groups == 1:
        return _convolve_group(x, filters, axes, np.empty(out_shape, x.dtype))
    parts = [
        _convolve_group(
            np.ascontiguousarray(part), weights, axes, np.empty((*out_shape[:-1], weights.shape[-1]), x.dtype)
        )
        for part, weights in zip(np.split(x, groups, -1), np.split(filters, groups, -1), strict=True)
    ]
    return np.concatenate(parts, -1)


def group_count(depth: int, filter_depth: int) -> int:
    """How many groups the input channels are in."""
    return depth // filter_depth if filter_depth else 1


def _convolve_group(x: Array, filters: Array, axes: Sequence[Axis], out: Array) -> Array:
    weights = filters.reshape(math.prod(filters.shape[:-1]), filters.shape[-1])
    if not out.size or not weights.size:
        out.fill(0)
        return out
    if all(axis.is_plain for axis in axes) or all(axis.is_whole for axis in axes):
        multiply(x.reshape(-1, len(weights)), weights, out.reshape(-1, weights.shape[1]))
        return out
    if _is_better_by_shifts(x, filters, axes):
        _convolve_by_shifts(x, filters, axes, out)
        return out
    is_narrow = axes[-1].kernel * x.shape[-1] < _NARROW and out.size // out.shape[-1] * len(weights) >= _MUCH
    lay_out = _patch_columns if is_narrow else _patch_rows
    # A product lays out the filters anew, so that wide ones want more patches at a time than the cache holds.
    chunk_bytes = min(CHUNK_BYTES, max(_PATCH_BYTES, 2 * weights.nbytes))
    padded, scratch = pad_spatial(x, axes), list[Array]()

    def convolve_piece(piece: _Piece) -> None:
        rows = lay_out(padded, axes, piece, scratch)
        multiply(rows, weights, out[piece].reshape(len(rows), -1))
        scratch.append(rows.reshape(-1) if rows.flags.c_contiguous else rows.T.reshape(-1))

    share(convolve_piece, list(_pieces(padded, axes, len(weights), chunk_bytes)), out.nbytes)
    return out


def _is_better_by_shifts(x: Array, filters: Array, axes: Sequence[Axis]) -> bool:
    """Whether to add a product for each row of the window costs less than to copy each cell into all its windows."""
    if len(axes) != 2 or any(axis.stride > 1 for axis in axes) or axes[1].dilation > 1:
        return False
    return axes[1].out >= _WIDE and x.shape[-1] >= _FEW and filters.shape[-1] <= _MANY


def _convolve_by_shifts(x: Array, filters: Array, axes: Sequence[Axis], out: Array) -> None:
    """Sum the products of the rows of the window, image by image.

    In a padded image whose rows follow each other, each window's row is as many numbers in succession, and the one of
    the next window starts a cell later. Windows that do not overlap are a matrix, so there are as many matrices as a
    row has cells. The pad behind a row is the one before the next; windows that run over the end of a row are nothing.
    """
    rows, columns = axes
    depth, out_depth = filters.shape[-2:]
    weights = filters.reshape(rows.kernel, columns.kernel * depth, out_depth)
    line = max(columns.before + columns.size, columns.out + columns.kernel - 1 - columns.before, columns.out)
    height = rows.out + (rows.kernel - 1) * rows.dilation
    check_array((height + 1, line + 2 * columns.kernel, depth), x.dtype)
    step = min(rows.out, max(1, _SHIFTED_BYTES // (line * out_depth * x.itemsize)))
    size = 2, -(-step * line // columns.kernel), columns.kernel, out_depth
    strides = (depth * x.itemsize, columns.kernel * depth * x.itemsize, x.itemsize)
    lines, sums = list[Array](), list[Array]()  # what nobody works with just now

    def convolve_image(index: int) -> None:
        flat = spare(lines, lambda: np.zeros((height * line + line + 2 * columns.kernel) * depth, x.dtype))
        inside = flat[: height * line * depth].reshape(height, line, depth)[rows.before :, columns.before :]
        inside = inside[: rows.size, : columns.size]
        inside[...] = x[index, : inside.shape[0], : inside.shape[1]]
        result = out[index]

        def add_up(first: int) -> None:
            count = min(step, rows.out - first)
            buffers = spare(sums, lambda: np.empty(size, x.dtype))
            total, term = buffers[:, : -(-count * line // columns.kernel)]
            shape = (columns.kernel, len(total), columns.kernel * depth)
            for row, matrix in enumerate(weights):
                start = (first + row * rows.dilation) * line * depth
                seen = as_strided(flat[start:], shape, strides, writeable=False)
                np.matmul(seen, matrix, out=(term if row else total).swapaxes(0, 1))
                if row:
                    total += term
            cells = total.reshape(-1, out_depth)[: count * line].reshape(count, line, out_depth)
            result[first : first + count] = cells[:, : columns.out]
            sums.append(buffers)

        share(add_up, range(0, rows.out, step), result.nbytes)
        lines.append(flat)

    share(convolve_image, range(len(x)), out.nbytes)


def convolve_backprop_filter(x: Array, dy: Array, filter_shape: Sequence[int], axes: Sequence[Axis]) -> Array:
    """The gradient of a convolution of *x* with respect to its filters, given that of its output."""
    if 0 in filter_shape:
        return np.zeros(filter_shape, x.dtype)
    groups = group_count(x.shape[-1], filter_shape[-2])
    parts = [
        _filter_gradient(np.ascontiguousarray(part), grad, axes)
        for part, grad in zip(np.split(x, groups, -1), np.split(dy, groups, -1), strict=True)
    ]
    return np.concatenate(parts, -1).reshape(filter_shape)


def _filter_gradient(x: Array, dy: Array, axes: Sequence[Axis]) -> Array:
    taps = math.prod(axis.kernel for axis in axes)
    total = np.zeros((taps * x.shape[-1], dy.shape[-1]), x.dtype)
    if x.size and dy.size:
        padded, scratch = pad_spatial(x, axes), list[Array]()
        for piece in _pieces(padded, axes, len(total)):
            rows = _patch_rows(padded, axes, piece, scratch)
            total += multiply(rows.T, dy[piece].reshape(len(rows), -1))
            scratch.append(rows.reshape(-1))
    return total


def convolve_backprop_input(dy: Array, filters: Array, depth: int, axes: Sequence[Axis]) -> Array:
    """The gradient of a convolution with respect to its input of *depth* channels, given that of its output."""
    groups = group_count(depth, filters.shape[-2])
    parts = [
        _input_gradient(np.ascontiguousarray(grad), weights, axes)
        for grad, weights in zip(np.split(dy, groups, -1), np.split(filters, groups, -1), strict=True)
    ]
    return np.ascontiguousarray(parts[0] if groups == 1 else np.concatenate(parts, -1))


def _input_gradient(dy: Array, filters: Array, axes: Sequence[Axis]) -> Array:
    *kernel, depth, out_depth = filters.shape
    shape = padded_shape(dy.shape[0], axes, depth)
    check_array(shape, dy.dtype)
    weights = np.ascontiguousarray(filters.reshape(math.prod(filters.shape[:-1]), out_depth).T)
    if all(axis.is_plain for axis in axes):
        gradient: Array = multiply(dy.reshape(-1, out_depth), weights).reshape(shape)
        return gradient
    if dy.size and weights.size and all(map(_is_apart, axes)):
        return _input_gradient_of_tiles(dy, weights, kernel)
    total = np.zeros(shape, dy.dtype)
    if dy.size and weights.size:
        for where in _pieces(dy, axes, weights.shape[1]):
            grad = dy[where]
            rows = multiply(grad.reshape(-1, out_depth), weights)
            _add_patches(total[where[0]], rows.reshape(*grad.shape[:-1], *kernel, depth), axes, where[1].start)
    return total[(slice(None), *inner_slices(axes))]


def _is_apart(axis: Axis) -> bool:
    """Whether the windows lie side by side, and cover the axis."""
    return axis.kernel == axis.stride and axis.dilation == 1 and axis.out * axis.stride == axis.size and not axis.before


def _input_gradient_of_tiles(dy: Array, weights: Array, kernel: Sequence[int]) -> Array:
    """The gradient where each cell is in one window: no sums."""
    batch, *outs, out_depth = dy.shape
    rank = len(kernel)
    terms = multiply(dy.reshape(-1, out_depth), weights).reshape(batch, *outs, *kernel, -1)
    order = [0, *(axis for i in range(rank) for axis in (1 + i, 1 + rank + i)), 2 * rank + 1]
    seen = terms.transpose(order)
    total = np.add(seen, dy.dtype.type(0), out=np.empty(seen.shape, dy.dtype))  # as sums are: no negative zeros
    sizes = (out * size for out, size in zip(outs, kernel, strict=True))
    gradient: Array = total.reshape(batch, *sizes, terms.shape[-1])
    return gradient


def _add_patches(total: Array, patches: Array, axes: Sequence[Axis], first_row: int) -> None:
    """Add each window's gradient to the cells of the padded input under it."""
    middle: tuple[Any, ...] = (slice(None),) * len(axes)
    counts = patches.shape[1 : len(axes) + 1]
    places = product(*(range(axis.kernel) for axis in axes))
    for place, cells in zip(places, _cells(axes, first_row, counts), strict=True):
        terms: Array = patches[(slice(None), *middle, *place)]
        total[(slice(None), *cells)] += terms


def _cells(axes: Sequence[Axis], first_row: int, counts: Sequence[int]) -> Iterator[tuple[slice, ...]]:
    """For each place in the window, the cells of the padded input that are there in so many windows.

    The windows are those from *first_row* on along the first axis, and from the start along the others.
    """
    firsts = (first_row, *(0,) * (len(axes) - 1))
    return product(*(_along(axis, first, count) for axis, first, count in zip(axes, firsts, counts, strict=True)))


def _along(axis: Axis, first: int, count: int) -> list[slice]:
    stride = axis.stride
    starts = (first * stride + k * axis.dilation for k in range(axis.kernel))
    return [slice(start, start + (count - 1) * stride + 1, stride) for start in starts]


def _pieces(
    array: Array, axes: Sequence[Axis], columns: int, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[tuple[slice, slice]]:
    across = math.prod(axis.out for axis in axes[1:])
    return chunks(array.shape[0], axes[0].out, across * columns * array.itemsize, chunk_bytes)


def _patch_rows(padded: Array, axes: Sequence[Axis], piece: _Piece, scratch: list[Array]) -> Array:
    """The patches of the input as matrix rows, of the batch and row range *piece* of the output.

    They are in the last array of *scratch*, where that is large enough, or in a new one: whoever is through with them
    may put it there for the next piece.
    """
    view = patch_view(padded, axes)
    columns = math.prod(view.shape[len(axes) + 1 :])
    if padded.flags.c_contiguous and axes[-1].dilation == 1 and math.prod(view.shape[-2:]) <= _SHORT:
        # The cells in a row of a window are side by side: as one item they are copied sooner than one by one.
        item = np.dtype((np.void, math.prod(view.shape[-2:]) * view.itemsize))
        view = np.ndarray(view.shape[:-2], item, padded, 0, view.strides[:-2])
    cells = view[piece]
    rows = _room(math.prod(cells.shape[: len(axes) + 1]) * columns, padded.dtype, scratch)
    np.copyto(rows.view(cells.dtype).reshape(cells.shape), cells)
    return rows.reshape(-1, columns)


def _patch_columns(padded: Array, axes: Sequence[Axis], piece: _Piece, scratch: list[Array]) -> Array:
    """The same rows as those of ``_patch_rows``, seen through the transpose of a buffer that has them as columns."""
    num_places = math.prod(axis.kernel for axis in axes)
    channels, across = padded.shape[-1], [axis.out for axis in axes[1:]]
    channels_first = np.moveaxis(padded, -1, 0)
    images, out_rows = piece
    counts = (out_rows.stop - out_rows.start, *across)
    shape = (num_places, channels, images.stop - images.start, *counts)
    patches = _room(math.prod(shape), padded.dtype, scratch).reshape(shape)
    for column, cells in zip(patches, _cells(axes, out_rows.start, counts), strict=True):
        column[...] = channels_first[(slice(None), images, *cells)]
    return patches.reshape(num_places * channels, -1).T


def _room(size: int, dtype: NumpyDType, scratch: list[Array]) -> Array:
    """An array of *size* numbers, in what *scratch* has, if it has enough."""
    room = spare(scratch, lambda: np.empty(size, dtype))
    return room[:size] if len(room) >= size else np.empty(size, dtype)


def patch_view(padded: Array, axes: Sequence[Axis]) -> Array:
    """A read-only view [batch, out..., window..., channels] of the cells under each window."""
    steps = padded.strides[1:-1]
    shape: tuple[Any, ...] = (
        padded.shape[0],
        *(axis.out for axis in axes),
        *(axis.kernel for axis in axes),
        padded.shape[-1],
    )
    strides = (
        padded.strides[0],
        *(step * axis.stride for step, axis in zip(steps, axes, strict=True)),
        *(step * axis.dilation for step, axis in zip(steps, axes, strict=True)),
        padded.strides[-1],
    )
    return as_strided(padded, shape, strides, writeable=False)
