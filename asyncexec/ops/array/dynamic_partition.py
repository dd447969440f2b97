"""DynamicPartition, DynamicStitch and OneHot: rows dealt out by number, put together again, and numbers as rows.

Rules: tensorflow/core/ops/data_flow_ops.cc, dynamic_partition_op.cc, dynamic_stitch_op.cc, one_hot_op.cc.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction, as_value
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, TensorShape, unknown_shape
from asyncexec.framework.types import qint8, qint32, quint8, resource, variant
from asyncexec.ops.array.array_common import POD_STRING, boxing, check_memory, scalar_int, scalar_value, zeros

_QUANTIZED = {qint8, quint8, qint32}

_MOVABLE = POD_STRING | {resource, variant}


def _dynamic_partition_shape(c: InferenceContext) -> Sequence[TensorShape]:
    data, partitions = c.input(0), c.input(1)
    if partitions.dims is None:
        return [UNKNOWN_SHAPE] * c.num_outputs
    rank = len(partitions.dims)
    data.with_rank_at_least(rank)[:rank].merge_with(partitions)
    rest = data[rank:] if data.dims is not None else UNKNOWN_SHAPE
    return [TensorShape([None]).concatenate(rest)] * c.num_outputs


register_op(
    "DynamicPartition",
    "data: T, partitions: int32 -> outputs: num_partitions*T",
    "num_partitions: int >= 1; T: type",
    shape=_dynamic_partition_shape,
)


@register_kernel("DynamicPartition", dtypes={"T": _MOVABLE})
def _dynamic_partition(c: OpKernelConstruction) -> Kernel:
    count: int = c.attr("num_partitions")

    def dynamic_partition(data: Array, partitions: ArrayOrScalar) -> object:
        if data.shape[: partitions.ndim] != partitions.shape:
            raise InvalidArgumentError(
                f"data.shape must start with partitions.shape, got {list(data.shape)} and {list(partitions.shape)}"
            )
        if partitions.size and (partitions.min() < 0 or partitions.max() >= count):
            raise InvalidArgumentError(f"partitions = {np.ravel(partitions).tolist()[:8]} is not in [0, {count})")
        rows = data.reshape((partitions.size, *data.shape[partitions.ndim :]))
        numbers = np.ravel(partitions)
        return tuple(rows[numbers == number] for number in range(count))

    return boxing(c, dynamic_partition)


def _dynamic_stitch_shape(c: InferenceContext) -> Sequence[TensorShape]:
    count = c.attr("N")
    rest = UNKNOWN_SHAPE
    largest: int | None = -1
    for position in range(count):
        indices, data = c.input(position), c.input(position + count)
        value = c.value(position)
        if value is None:
            largest = None
        elif largest is not None and np.size(value):
            largest = max(largest, int(np.max(value)))
        if indices.dims is None:
            continue
        rank = len(indices.dims)
        data.with_rank_at_least(rank)[:rank].merge_with(indices)
        if data.dims is not None:
            rest = rest.merge_with(data[rank:])
    return [TensorShape([None if largest is None else largest + 1]).concatenate(rest)]


for _op in ("DynamicStitch", "ParallelDynamicStitch"):
    register_op(
        _op,
        "indices: N*int32, data: N*T -> merged: T",
        "N: int >= 1; T: type",
        shape=_dynamic_stitch_shape,
    )


@register_kernel("DynamicStitch", "ParallelDynamicStitch", dtypes={"T": POD_STRING | _QUANTIZED | {variant}})
def _dynamic_stitch(c: OpKernelConstruction) -> Kernel:
    count, np_dtype = c.attr("N"), c.np_dtype("T")

    def dynamic_stitch(*inputs: Any) -> Array:
        indices, data = inputs[:count], inputs[count:]
        rest = data[0].shape[indices[0].ndim :]
        for index, part in zip(indices, data, strict=True):
            if part.shape != index.shape + rest:
                raise InvalidArgumentError(
                    f"data.shape = {list(part.shape)} must be indices.shape {list(index.shape)} then {list(rest)}"
                )
            if index.size and index.min() < 0:
                raise InvalidArgumentError(f"indices = {np.ravel(index).tolist()[:8]} is out of range")
        size = 1 + max((int(index.max()) for index in indices if index.size), default=-1)
        merged = zeros((size, *rest), np_dtype)
        for index, part in zip(indices, data, strict=True):
            merged[index] = as_value(part)
        return merged

    return boxing(c, dynamic_stitch)


def _one_hot_shape(c: InferenceContext) -> Sequence[TensorShape]:
    indices, depth, axis = c.input(0), scalar_value(c, 1), c.attr("axis")
    if depth is not None and depth < 0:
        raise InvalidArgumentError(f"depth must be non-negative, got: {depth}")
    if axis < -1:
        raise InvalidArgumentError(f"axis must be >= -1, got {axis}")
    if indices.dims is None:
        return [UNKNOWN_SHAPE]
    if axis > len(indices.dims):
        return [unknown_shape(len(indices.dims) + 1)]
    where = len(indices.dims) if axis == -1 else axis
    return [TensorShape((*indices.dims[:where], depth, *indices.dims[where:]))]


register_op(
    "OneHot",
    "indices: TI, depth: int32, on_value: T, off_value: T -> output: T",
    "axis: int = -1; T: type; TI: {uint8, int8, int32, int64} = int64",
    shape=_one_hot_shape,
)


@register_kernel("OneHot", dtypes={"T": _MOVABLE})
def _one_hot(c: OpKernelConstruction) -> Kernel:
    axis, np_dtype = c.attr("axis"), c.np_dtype("T")

    def one_hot(
        indices: ArrayOrScalar, depth: ArrayOrScalar, on_value: ArrayOrScalar, off_value: ArrayOrScalar
    ) -> Array:
        width = scalar_int(depth, "depth")
        if width < 0 or on_value.ndim or off_value.ndim:
            raise InvalidArgumentError(f"depth ({width}) must be non-negative, and on_value and off_value scalars")
        if not -1 <= axis <= indices.ndim:
            raise InvalidArgumentError(f"Expected axis to be -1 or between [0, {indices.ndim}], but received: {axis}")
        where = indices.ndim if axis == -1 else axis
        outer, inner = indices.shape[:where], indices.shape[where:]
        shape = (*outer, width, *inner)
        check_memory(shape, np_dtype)
        output = np.empty((math.prod(outer), width, math.prod(inner)), np_dtype)
        output[...] = off_value
        numbers = indices.reshape(output.shape[0], output.shape[2]).astype(np.int64)
        rows, columns = np.nonzero((numbers >= 0) & (numbers < width))
        output[rows, numbers[rows, columns], columns] = on_value
        return output.reshape(shape)

    return boxing(c, one_hot)
