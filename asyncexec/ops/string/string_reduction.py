"""Strings joined along dimensions and by segment (``tensorflow/core/ops/string_ops.cc``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError, OutOfRangeError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, TensorShape, unknown_shape
from asyncexec.ops.array.array_common import empty
from asyncexec.ops.string.string_elements import as_strings
from asyncexec.process.free_memory import check_array


def _reduce_join_shape(c: InferenceContext) -> Sequence[TensorShape]:
    shape, given = c.input(0), c.value(1)
    if given is None or shape.rank is None:
        if shape.rank is not None and c.attr("keep_dims"):
            return [unknown_shape(shape.rank)]
        return [UNKNOWN_SHAPE]
    axes = _axes(given, shape.rank)
    dims = shape.as_list()
    if c.attr("keep_dims"):
        return [TensorShape(1 if axis in axes else dim for axis, dim in enumerate(dims))]
    return [TensorShape(dim for axis, dim in enumerate(dims) if axis not in axes)]


def _axes(given: ArrayOrScalar, rank: int) -> list[int]:
    """The axes to reduce, the first of them the one that varies fastest."""
    if np.ndim(given) > 1:
        raise InvalidArgumentError(f"reduction_indices must be at most a vector, not of rank {np.ndim(given)}")
    axes = [int(axis) for axis in np.ravel(given)]
    for axis in axes:
        if not -rank <= axis < rank:
            raise OutOfRangeError(f"Invalid reduction dimension {axis} for input with {rank} dimensions")
    axes = [axis % rank for axis in axes]
    if len(set(axes)) != len(axes):
        raise InvalidArgumentError(f"Duplicate reduction dimension in {axes}")
    return axes


def _segment_join_shape(c: InferenceContext) -> Sequence[TensorShape]:
    data, ids, count = c.input(0), c.input(1), c.int_value(2)
    c.scalar(2)
    if ids.dims is None or data.dims is None:
        return [UNKNOWN_SHAPE]
    data.with_rank_at_least(len(ids.dims))[: len(ids.dims)].merge_with(ids)
    if count is not None and count < 0:
        raise InvalidArgumentError(f"num_segments must not be negative, but is {count}")
    return [TensorShape([count]).concatenate(data[len(ids.dims) :])]


register_op(
    "ReduceJoin",
    "inputs: string, reduction_indices: int32 -> output: string",
    "keep_dims: bool = False; separator: string = ''",
    shape=_reduce_join_shape,
)
register_op(
    "UnsortedSegmentJoin",
    "inputs: string, segment_ids: Tindices, num_segments: Tnumsegments -> output: string",
    "separator: string = ''; Tindices: {int32, int64}; Tnumsegments: {int32, int64} = int32",
    shape=_segment_join_shape,
)


@register_kernel("ReduceJoin")
def reduce_join(construction: OpKernelConstruction) -> Kernel:
    """The strings along some axes joined; the axes are taken in the order given."""
    separator, keeps_dims = construction.attr("separator"), construction.attr("keep_dims")

    def kernel(value: Array | bytes, reduction_indices: ArrayOrScalar) -> Array | bytes:
        if isinstance(value, bytes):
            _axes(reduction_indices, 0)
            return value
        axes = _axes(reduction_indices, value.ndim)
        kept = [axis for axis in range(value.ndim) if axis not in axes]
        shape = tuple(value.shape[axis] for axis in kept)
        width = int(np.prod([value.shape[axis] for axis in axes]))
        rows = value.transpose([*kept, *reversed(axes)]).reshape(int(np.prod(shape)), width)
        if keeps_dims:
            shape = tuple(1 if axis in axes else size for axis, size in enumerate(value.shape))
        return as_strings((separator.join(row) for row in rows), shape)

    return kernel


@register_kernel("UnsortedSegmentJoin")
def unsorted_segment_join(construction: OpKernelConstruction) -> Kernel:
    """The strings of each segment joined."""
    separator = construction.attr("separator")

    def kernel(value: Array, segment_ids: ArrayOrScalar, num_segments: np.generic) -> ArrayOrScalar:
        count = _check_segments(value, segment_ids, num_segments)
        rank = np.ndim(segment_ids)
        rest = np.shape(value)[rank:]
        rows = np.asarray(value, object).reshape(np.size(segment_ids), int(np.prod(rest)))
        joined = empty((count, rows.shape[1]), np.dtype(object))
        parts: dict[tuple[int, int], list[bytes]] = {}
        for segment, row in zip(np.ravel(segment_ids).tolist(), rows, strict=True):
            for column, text in enumerate(row):
                parts.setdefault((segment, column), []).append(text)
        for place, texts in parts.items():
            joined[place] = separator.join(texts)
        return joined.reshape((count, *rest))

    return kernel


def _check_segments(value: Array, segment_ids: Any, num_segments: np.generic) -> int:
    shape, ids_shape = np.shape(value), np.shape(segment_ids)
    if not ids_shape:
        raise InvalidArgumentError("segment_ids must not be a scalar")
    if shape[: len(ids_shape)] != ids_shape:
        raise InvalidArgumentError(f"segment_ids of {list(ids_shape)} is no prefix of the inputs, {list(shape)}")
    if np.ndim(num_segments) != 0:
        raise InvalidArgumentError(f"num_segments must be a scalar, not of shape {list(num_segments.shape)}")
    count = int(num_segments)
    if count < 0:
        raise InvalidArgumentError(f"num_segments must not be negative, but is {count}")
    if np.size(segment_ids) and not 0 <= np.min(segment_ids) <= np.max(segment_ids) < count:
        raise InvalidArgumentError(f"segment_ids must be in [0, {count}), not {np.min(segment_ids)} or more")
    check_array((count, *shape[len(ids_shape) :]), np.dtype(object))
    return count
