"""Functions that take elements out by position, put them in, find and order them.

Names and arguments are those of TensorFlow's Python API (``tensorflow/python/ops/array_ops.py``, ``sort_ops.py``).
Indices are int32 or int64.

Raises:
    InvalidArgumentError: shapes do not fit; or, when the graph runs, an index is out of range.
"""

from __future__ import annotations

import builtins
from typing import NamedTuple

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.types import as_dtype
from asyncexec.frontend import array_functions as array
from asyncexec.frontend import basic_functions as basic
from asyncexec.frontend.calls import (
    DTypeLike,
    TensorLike,
    composite,
    dtype_of,
    in_graph_of,
    static_rank,
    tensor_op,
    tensors_op,
)
from asyncexec.frontend.create_op import as_tensor, graph_of
from asyncexec.graph.node import Tensor


class TopK(NamedTuple):
    """What top_k gives."""

    values: Tensor
    indices: Tensor


class Unique(NamedTuple):
    """What unique gives."""

    y: Tensor
    idx: Tensor


class UniqueWithCounts(NamedTuple):
    """What unique_with_counts gives."""

    y: Tensor
    idx: Tensor
    count: Tensor  # type: ignore[assignment]  # TensorFlow's name, which hides tuple.count


class ListDiff(NamedTuple):
    """What setdiff1d gives."""

    out: Tensor
    idx: Tensor


def slice(input_: TensorLike, begin: TensorLike, size: TensorLike, name: str | None = None) -> Tensor:  # noqa: A001
    """The part of *input_* that starts at *begin* and has *size*; a size of -1 reaches to the end.

    >>> show(ax.slice([[1, 2, 3], [4, 5, 6]], [0, 1], [2, 2]))
    [[2 3]
     [5 6]]
    """
    return tensor_op("Slice", [input_, begin, size], name)


def strided_slice(
    input_: TensorLike,
    begin: TensorLike,
    end: TensorLike,
    strides: TensorLike | None = None,
    begin_mask: int = 0,
    end_mask: int = 0,
    ellipsis_mask: int = 0,
    new_axis_mask: int = 0,
    shrink_axis_mask: int = 0,
    name: str | None = None,
) -> Tensor:
    """The result of ``input_[begin:end:strides]``.  Bit i of a mask is for entry i of *begin*, *end* and *strides*.

    >>> show(ax.strided_slice([1, 2, 3, 4, 5], [0], [5], [2]))
    [1 3 5]

    Args:
        input_: the tensor.
        begin: where to start in each dimension.
        end: where to stop.
        strides: the steps, by default 1.
        begin_mask: start at the beginning.
        end_mask: go to the end.
        ellipsis_mask: the entry stands for all dimensions without an entry of their own.
        new_axis_mask: the entry adds a dimension of size 1.
        shrink_axis_mask: the entry takes one element and drops the dimension.
    """
    with graph_of((input_, begin, end, strides)):
        first = as_tensor(begin)
        steps = array.ones_like(first) if strides is None else strides
        return tensor_op(
            "StridedSlice",
            [input_, first, end, steps],
            name or "strided_slice",
            begin_mask=begin_mask,
            end_mask=end_mask,
            ellipsis_mask=ellipsis_mask,
            new_axis_mask=new_axis_mask,
            shrink_axis_mask=shrink_axis_mask,
        )


def gather(
    params: TensorLike,
    indices: TensorLike,
    axis: TensorLike | None = None,
    batch_dims: int = 0,
    name: str | None = None,
) -> Tensor:
    """The slices of *params* at *indices* along *axis*, by default the first dimension after *batch_dims* shared ones.

    >>> show(ax.gather([10, 20, 30], [2, 0]))
    [30 10]
    """
    return tensor_op("GatherV2", [params, indices, batch_dims if axis is None else axis], name, batch_dims=batch_dims)


def gather_nd(params: TensorLike, indices: TensorLike, batch_dims: int = 0, name: str | None = None) -> Tensor:
    """The elements or slices of *params* at the coordinates in the last dimension of *indices*.

    *batch_dims* is the number of leading dimensions that both share; their sizes must be known.

    >>> show(ax.gather_nd([[1, 2], [3, 4]], [[0, 1], [1, 0]]))
    [2 3]
    """
    if batch_dims == 0:
        return tensor_op("GatherNd", [params, indices], name)
    with composite(name, "GatherNd", [params, indices]) as scope:
        source, places = in_graph_of([params, indices])
        return tensor_op("GatherNd", [source, _with_batch_indices(places, batch_dims)], scope)


def _with_batch_indices(indices: Tensor, batch_dims: int) -> Tensor:
    dims = indices.shape.dims
    batch = [] if dims is None else [size for size in dims[:batch_dims] if size is not None]
    if dims is None or len(batch) < batch_dims or batch_dims >= len(dims):
        raise InvalidArgumentError(
            f"gather_nd of {indices.name!r}: {batch_dims} leading sizes must be known", node=indices.op
        )
    rest = len(dims) - 1 - batch_dims
    grids = np.indices(batch)
    places = np.moveaxis(grids, 0, -1).reshape(*batch, *[1] * rest, batch_dims)
    sizes = tensor_op("ConcatV2", [[basic.shape(indices)[:-1], [batch_dims]], 0])
    leading = array.broadcast_to(as_tensor(places, dtype_of(indices)), sizes)
    return tensor_op("ConcatV2", [[leading, indices], -1])


def scatter_nd(indices: TensorLike, updates: TensorLike, shape: TensorLike, name: str | None = None) -> Tensor:
    """Zeros of *shape* with *updates* added at *indices*.

    >>> show(ax.scatter_nd([[1], [3]], [9, 8], [4]))
    [0 9 0 8]
    """
    return tensor_op("ScatterNd", [indices, updates, shape], name)


def tensor_scatter_nd_update(
    tensor: TensorLike, indices: TensorLike, updates: TensorLike, name: str | None = None
) -> Tensor:
    """*tensor* with the elements at *indices* replaced by *updates*.

    >>> show(ax.tensor_scatter_nd_update([1, 2, 3], [[0], [2]], [10, 20]))
    [10  2 20]
    """
    return tensor_op("TensorScatterUpdate", [tensor, indices, updates], name)


def tensor_scatter_nd_add(
    tensor: TensorLike, indices: TensorLike, updates: TensorLike, name: str | None = None
) -> Tensor:
    """*tensor* with *updates* added at *indices*.

    >>> show(ax.tensor_scatter_nd_add([1, 2, 3], [[0], [2]], [10, 20]))
    [11  2 23]
    """
    return tensor_op("TensorScatterAdd", [tensor, indices, updates], name)


def tensor_scatter_nd_sub(
    tensor: TensorLike, indices: TensorLike, updates: TensorLike, name: str | None = None
) -> Tensor:
    """*tensor* with *updates* subtracted at *indices*.

    >>> show(ax.tensor_scatter_nd_sub([1, 2, 3], [[0], [2]], [10, 20]))
    [ -9   2 -17]
    """
    return tensor_op("TensorScatterSub", [tensor, indices, updates], name)


def one_hot(
    indices: TensorLike,
    depth: TensorLike,
    on_value: TensorLike | None = None,
    off_value: TensorLike | None = None,
    axis: int | None = None,
    dtype: DTypeLike = None,
    name: str | None = None,
) -> Tensor:
    """For each index a row of *depth* elements: *on_value* (1) at the index and *off_value* (0) elsewhere.

    The new dimension is *axis*, by default the last; the dtype that of the values, else *dtype*, else float32.

    >>> show(ax.one_hot([0, 2], 3))
    [[1. 0. 0.]
     [0. 0. 1.]]
    """
    values = [value for value in (on_value, off_value) if value is not None]
    with graph_of((indices, depth, *values)):
        wanted = as_dtype(dtype) if dtype is not None else (dtype_of(as_tensor(values[0])) if values else types.float32)
        is_bool = wanted is types.bool
        on = as_tensor((True if is_bool else 1) if on_value is None else on_value, wanted)
        off = as_tensor((False if is_bool else 0) if off_value is None else off_value, wanted)
        return tensor_op("OneHot", [indices, depth, on, off], name, axis=-1 if axis is None else axis)


def boolean_mask(tensor: TensorLike, mask: TensorLike, axis: int = 0, name: str | None = None) -> Tensor:
    """The elements of *tensor* where *mask* is true.  The dimensions of the mask, from *axis* on, become one.

    >>> show(ax.boolean_mask([1, 2, 3], [True, False, True]))
    [1 3]

    Raises:
        InvalidArgumentError: the mask is a scalar, its rank is not known, or its shape does not fit.
    """
    with composite(name, "boolean_mask", [tensor, mask]) as scope:
        data, chosen = in_graph_of([tensor, mask])
        rank = static_rank(chosen, "boolean_mask")
        if rank == 0:
            raise InvalidArgumentError(f"the mask {chosen.name!r} is a scalar", node=chosen.op)
        if data.shape.dims is not None:
            data.shape[axis : axis + rank].merge_with(chosen.shape)
        if rank > 1:
            sizes = basic.shape(data)
            data = array.reshape(data, tensor_op("ConcatV2", [[sizes[:axis], [-1], sizes[axis + rank :]], 0]))
        places = array.squeeze(tensor_op("Where", [array.reshape(chosen, [-1])]), [1])
        return gather(data, places, axis, name=scope)


def unique(x: TensorLike, out_idx: DTypeLike = types.int32, name: str | None = None) -> Unique:
    """The different values of the vector *x* in order of appearance, and for each element the index of its value.

    >>> show(*ax.unique([5, 7, 5]))
    [5 7]
    [0 1 0]
    """
    return Unique(*tensors_op("Unique", [x], name, out_idx=out_idx))


def unique_with_counts(x: TensorLike, out_idx: DTypeLike = types.int32, name: str | None = None) -> UniqueWithCounts:
    """The results of unique, and how often each value occurs.

    >>> show(*ax.unique_with_counts([5, 7, 5]))
    [5 7]
    [0 1 0]
    [2 1]
    """
    return UniqueWithCounts(*tensors_op("UniqueWithCounts", [x], name, out_idx=out_idx))


def setdiff1d(x: TensorLike, y: TensorLike, index_dtype: DTypeLike = types.int32, name: str | None = None) -> ListDiff:
    """The values of the vector *x* that are not in *y*, and their indices in *x*.

    >>> show(*ax.setdiff1d([1, 2, 3, 4], [2, 4]))
    [1 3]
    [0 2]
    """
    return ListDiff(*tensors_op("ListDiff", [x, y], name, out_idx=index_dtype))


def invert_permutation(x: TensorLike, name: str | None = None) -> Tensor:
    """The vector y with ``y[x[i]] == i``, for *x* a permutation of 0, 1, ..., n - 1.

    >>> show(ax.invert_permutation([2, 0, 1]))
    [1 2 0]
    """
    return tensor_op("InvertPermutation", [x], name)


def top_k(input: TensorLike, k: TensorLike = 1, sorted: bool = True, name: str | None = None) -> TopK:  # noqa: A002
    """The *k* largest elements along the last dimension, largest first, and their indices (int32).

    >>> show(*ax.top_k([1, 5, 3], 2))
    [5 3]
    [1 2]
    """
    return TopK(*tensors_op("TopKV2", [input, k], name, sorted=sorted))


def sort(values: TensorLike, axis: int = -1, direction: str = "ASCENDING", name: str | None = None) -> Tensor:
    """*values*, real numbers, ordered along *axis*; *direction* is ``ASCENDING`` or ``DESCENDING``.

    >>> show(ax.sort([30, 10, 20], direction="DESCENDING"))
    [30 20 10]
    """
    with composite(name, "sort", [values]) as scope:
        found = _ordered(values, axis, direction)
        return basic.identity(found.values, scope)


def argsort(values: TensorLike, axis: int = -1, direction: str = "ASCENDING", name: str | None = None) -> Tensor:
    """The indices (int32) that sort *values* along *axis*; equal values keep their order.

    >>> show(ax.argsort([30, 10, 20]))
    [1 2 0]
    """
    with composite(name, "argsort", [values]) as scope:
        found = _ordered(values, axis, direction)
        return basic.identity(found.indices, scope)


def _ordered(values: TensorLike, axis: int, direction: str) -> TopK:
    if direction not in ("ASCENDING", "DESCENDING"):
        raise InvalidArgumentError(f"direction is 'ASCENDING' or 'DESCENDING', not {direction!r}")
    (x,) = in_graph_of([values])
    perm = None if axis == -1 else _last_dimension_exchanged(x, axis)
    moved = x if perm is None else array.transpose(x, perm)
    keys = moved if direction == "DESCENDING" else _falling(moved)
    found = top_k(keys, basic.shape(keys)[-1])
    ordered = found.values if direction == "DESCENDING" else _falling(found.values)
    if perm is None:
        return TopK(ordered, found.indices)
    return TopK(array.transpose(ordered, perm), array.transpose(found.indices, perm))


def _last_dimension_exchanged(x: Tensor, axis: int) -> list[int]:
    rank = static_rank(x, "sort")
    if not -rank <= axis < rank:
        raise InvalidArgumentError(f"{x.name!r} of shape {x.shape} has no dimension {axis}", node=x.op)
    perm = list(builtins.range(rank))
    perm[axis], perm[-1] = perm[-1], perm[axis]
    return perm


def _falling(x: Tensor) -> Tensor:
    """An exact image of *x* in reversed order; it is its own inverse."""
    dtype = dtype_of(x)
    if not dtype.is_integer:
        return tensor_op("Neg", [x])
    highest: object = np.iinfo(dtype.as_numpy_dtype).max if dtype.is_unsigned else -1
    return tensor_op("Sub", [as_tensor(np.array(highest, dtype.as_numpy_dtype)), x])
