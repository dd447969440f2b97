"""What changes the shape alone, or tells it: Reshape, Squeeze, Transpose, Expand, Tile, Shape and their kin."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel
from asyncexec.ops.onnx.common import as_array, axes_of, axis_of, check_shape, integers, refusing
from asyncexec.ops.onnx.onnx_kernels import OnnxNode, onnx_kernel


@onnx_kernel("Identity")
def make_identity(node: OnnxNode) -> Kernel:
    """The kernel of Identity, also of sequences and optionals."""
    return lambda x: (x,)


@onnx_kernel("Shape")
@refusing
def make_shape(node: OnnxNode) -> Kernel:
    """The kernel of Shape: the sizes, from axis ``start`` to before axis ``end``."""
    part = slice(node.attr("start", 0), node.attr("end"))
    return lambda x: (np.array(as_array(x).shape[part], np.int64),)


@onnx_kernel("Size")
@refusing
def make_size(node: OnnxNode) -> Kernel:
    """The kernel of Size: how many elements there are."""
    return lambda x: (np.int64(as_array(x).size),)


@onnx_kernel("Reshape", since=5)
@refusing
def make_reshape(node: OnnxNode) -> Kernel:
    """The kernel of Reshape; a 0 copies the size that is there unless ``allowzero``."""
    copies_zero = not node.attr("allowzero", 0)

    def reshape(x: Any, shape: ArrayOrScalar) -> tuple[Array]:
        x, wanted = as_array(x), integers(shape, "shape")
        dims = wanted
        if 0 in wanted:
            dims = with_copied_sizes(x.shape, wanted) if copies_zero else without_open_size(wanted)
        if min(dims, default=0) < -1:
            raise InvalidArgumentError(f"shape {wanted} has a negative size")
        try:
            return (x.reshape(dims),)
        except ValueError as error:
            raise InvalidArgumentError(f"an input of shape {list(x.shape)} cannot have shape {wanted}") from error

    return reshape


def with_copied_sizes(shape: Sequence[int], wanted: list[int]) -> list[int]:
    """*wanted* with each 0 replaced by the size that *shape* has there."""
    if any(dim == 0 for dim in wanted[len(shape) :]):
        raise InvalidArgumentError(f"shape {wanted} copies a size that the input of shape {list(shape)} does not have")
    return [dim or shape[place] for place, dim in enumerate(wanted)]


def without_open_size(wanted: list[int]) -> list[int]:
    """*wanted*, which has a 0, so that an open size could be any."""
    if -1 in wanted:
        raise InvalidArgumentError(f"shape {wanted} leaves a size open beside a size of 0")
    return wanted


@onnx_kernel("Flatten")
@refusing
def make_flatten(node: OnnxNode) -> Kernel:
    """The kernel of Flatten: a matrix with the axes before ``axis`` as rows."""
    axis = node.attr("axis", 1)

    def flatten(x: ArrayOrScalar) -> tuple[object]:
        x = as_array(x)
        if not -x.ndim <= axis <= x.ndim:
            raise InvalidArgumentError(f"axis {axis} is outside of [{-x.ndim}, {x.ndim}]")
        first = axis + x.ndim if axis < 0 else axis
        return (x.reshape(math.prod(x.shape[:first]), math.prod(x.shape[first:])),)

    return flatten


def squeezed(x: Any, axes: Sequence[int] | None) -> ArrayOrScalar:
    """*x* without those of *axes*, or without all that have size 1."""
    x = as_array(x)
    if axes is None:
        return x.reshape([dim for dim in x.shape if dim != 1])
    try:
        return x.squeeze(tuple(axes))
    except ValueError as error:
        raise InvalidArgumentError(f"axes {list(axes)} of shape {list(x.shape)} are not all of size 1") from error


def unsqueezed(x: Any, axes: Sequence[int] | None) -> Array:
    """*x* with axes of size 1 that stand at *axes* of the result."""
    x = as_array(x)
    if axes is None:
        raise InvalidArgumentError("Unsqueeze needs axes")
    dims = list(x.shape)
    for axis in sorted(axes_of(axes, x.ndim + len(axes))):
        dims.insert(axis, 1)
    return x.reshape(dims)


def _by_axes(function: Callable[[Any, Sequence[int] | None], object]) -> tuple[Callable[[OnnxNode], Kernel], ...]:
    """Factories of kernels whose axes are an input, and an attribute."""

    def by_input(node: OnnxNode) -> Kernel:
        return lambda x, axes=None: (function(x, None if axes is None else integers(np.atleast_1d(axes), "axes")),)

    def by_attr(node: OnnxNode) -> Kernel:
        axes = node.attr("axes")
        return lambda x: (function(x, axes),)

    return by_input, by_attr


for _op, _function in {"Squeeze": squeezed, "Unsqueeze": unsqueezed}.items():
    _by_input, _by_attr = _by_axes(_function)
    onnx_kernel(_op, since=13)(_by_input)
    onnx_kernel(_op)(_by_attr)


@onnx_kernel("Transpose")
@refusing
def make_transpose(node: OnnxNode) -> Kernel:
    """The kernel of Transpose: axes in another order, backwards if none is given."""
    perm = node.attr("perm")

    def transpose(x: ArrayOrScalar) -> tuple[Any]:
        x = as_array(x)
        if perm is None:
            return (x.transpose(),)
        if sorted(perm) != list(range(x.ndim)):
            raise InvalidArgumentError(f"perm {perm} is no order of the axes of shape {list(x.shape)}")
        return (x.transpose(perm),)

    return transpose


@onnx_kernel("Expand", since=8)
@refusing
def make_expand(node: OnnxNode) -> Kernel:
    """The kernel of Expand: broadcast to a shape, to which the input's own sizes broadcast as well."""

    def expand(x: Any, shape: Array) -> tuple[object]:
        x, wanted = as_array(x), integers(shape, "shape")
        if tuple(wanted) == x.shape:
            return (x,)
        return (broadcast_copy(x, broadcast_sizes(x.shape, wanted)),)

    return expand


def broadcast_sizes(shape: Sequence[int], wanted: Sequence[int]) -> list[int]:
    """The shape that both broadcast to; InvalidArgumentError where there is none."""
    rank = max(len(shape), len(wanted))
    pairs = zip([1] * (rank - len(shape)) + [*shape], [1] * (rank - len(wanted)) + [*wanted], strict=True)
    dims = [b if a == 1 else a if b in (1, a) else -1 for a, b in pairs]
    if min(dims, default=0) < 0:
        raise InvalidArgumentError(f"shapes {list(shape)} and {list(wanted)} do not broadcast")
    return dims


def broadcast_copy(x: ArrayOrScalar, dims: Sequence[int]) -> Array:
    """*x* written out to shape *dims*, the memory checked before it is taken."""
    check_shape(dims, x.dtype)
    result = np.empty(dims, x.dtype)
    result[...] = x
    return result


@onnx_kernel("Tile", since=6)
@refusing
def make_tile(node: OnnxNode) -> Kernel:
    """The kernel of Tile: the tensor repeated along each axis."""

    def tile(x: ArrayOrScalar, repeats: Array) -> tuple[Any]:
        x, times = as_array(x), integers(repeats, "repeats")
        if len(times) != x.ndim or min(times, default=0) < 0:
            raise InvalidArgumentError(f"repeats {times} do not fit shape {list(x.shape)}")
        result_shape = [dim * count for dim, count in zip(x.shape, times, strict=True)]
        if all(count == 1 for count in times):
            return (x,)
        interleaved = [size for dim, count in zip(x.shape, times, strict=True) for size in (count, dim)]
        parted = x.reshape([size for dim in x.shape for size in (1, dim)])
        check_shape(result_shape, x.dtype)
        return (broadcast_copy(parted, interleaved).reshape(result_shape),)

    return tile


def _block_order(mode: str) -> tuple[int, ...]:
    orders = {"DCR": (0, 3, 4, 1, 5, 2), "CRD": (0, 1, 4, 2, 5, 3)}
    if mode not in orders:
        raise InvalidArgumentError(f"mode must be DCR or CRD, not {mode!r}")
    return orders[mode]


@onnx_kernel("DepthToSpace")
@refusing
def make_depth_to_space(node: OnnxNode) -> Kernel:
    """The kernel of DepthToSpace: blocks of the depth spread over height and width."""
    size, mode = _blocksize(node), node.text("mode", "DCR")
    order = _block_order(mode)

    def depth_to_space(x: Any) -> tuple[object]:
        if x.ndim != 4 or x.shape[1] % (size * size):
            raise InvalidArgumentError(f"the depth of shape {list(x.shape)} has no blocks of {size} by {size}")
        batch, depth, height, width = x.shape
        depth //= size * size
        parts = (size, size, depth) if mode == "DCR" else (depth, size, size)
        parted = x.reshape(batch, *parts, height, width).transpose(order)
        return (parted.reshape(batch, depth, height * size, width * size),)

    return depth_to_space


@onnx_kernel("SpaceToDepth")
@refusing
def make_space_to_depth(node: OnnxNode) -> Kernel:
    """The kernel of SpaceToDepth: blocks of height and width stacked in the depth."""
    size, mode = _blocksize(node), node.text("mode", "DCR")
    order = np.argsort(_block_order(mode))

    def space_to_depth(x: Any) -> tuple[object]:
        if x.ndim != 4 or x.shape[2] % size or x.shape[3] % size:
            raise InvalidArgumentError(f"shape {list(x.shape)} has no blocks of {size} by {size}")
        batch, depth, height, width = x.shape
        parted = x.reshape(batch, depth, height // size, size, width // size, size).transpose(order)
        return (parted.reshape(batch, depth * size * size, height // size, width // size),)

    return space_to_depth


def _blocksize(node: OnnxNode) -> int:
    size = int(node.attr("blocksize", 0))
    if size < 1:
        raise InvalidArgumentError(f"blocksize must be positive, not {size}")
    return size


@onnx_kernel("Concat", since=4)
@refusing
def make_concat(node: OnnxNode) -> Kernel:
    """The kernel of Concat."""
    axis = node.attr("axis")

    def concat(*values: Array) -> tuple[Array]:
        return (np.concatenate(values, axis, dtype=values[0].dtype, casting="no"),)

    return concat


def _split_at(x: Array, axis: int, sizes: Sequence[int]) -> tuple[Array, ...]:
    """*x* in parts of *sizes* along *axis*."""
    if min(sizes, default=0) < 0 or sum(sizes) != x.shape[axis]:
        raise InvalidArgumentError(f"sizes {list(sizes)} do not sum to size {x.shape[axis]} of axis {axis}")
    before, parts, start = (slice(None),) * axis, [], 0
    for size in sizes:
        parts.append(x[(*before, slice(start, start + size))])
        start += size
    return tuple(parts)


@onnx_kernel("Split", since=2)
@refusing
def make_split(node: OnnxNode) -> Kernel:
    """The kernel of Split: by sizes, or into parts of one size, of which the last may be smaller from 18 on."""
    axis, count = node.attr("axis", 0), node.attr("num_outputs", node.num_outputs)
    sizes = node.attr("split")
    if count != node.num_outputs:
        raise InvalidArgumentError(f"num_outputs is {count}, but there are {node.num_outputs}")

    def split(x: Any, given: object = None) -> tuple[Array, ...]:
        along = axis_of(axis, x.ndim)
        wanted = sizes if given is None else integers(given, "split")
        if wanted is None:
            wanted = even_sizes(x.shape[along], count, may_be_smaller=node.opset >= 18)
        if len(wanted) != node.num_outputs:
            raise InvalidArgumentError(f"sizes {list(wanted)} do not fit {node.num_outputs} outputs")
        return _split_at(x, along, wanted)

    return split


def even_sizes(total: int, count: int, *, may_be_smaller: bool) -> list[int]:
    """*total* in *count* parts of one size; the last ones may be smaller."""
    if total % count and not may_be_smaller:
        raise InvalidArgumentError(f"size {total} has no {count} equal parts")
    size = -(-total // count)
    return [max(0, min(size, total - place * size)) for place in range(count)]
