"""Sparse tensors as three strings or three variants, one by one and by rows (``serialize_sparse_op.cc``,
``deserialize_sparse_string_op.cc``, ``deserialize_sparse_variant_op.cc``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, Final

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import DType
from asyncexec.framework.variant_ops import add, register_variant_ops, zeros_like
from asyncexec.ops.array.array_common import PLAIN, boxed, check_memory
from asyncexec.ops.parsing.tensor_records import tensor_from_bytes, tensor_to_bytes
from asyncexec.ops.sparse.sparse_tensor import (
    MOVABLE,
    UNKNOWN_MATRIX,
    UNKNOWN_VECTOR,
    check_bounds,
    check_order,
    check_sparse,
)


@dataclass(frozen=True, slots=True, eq=False)
class BoxedTensor:
    """A value of dtype variant that is a tensor of another dtype."""

    value: Any
    dtype: DType


def boxed_parts(indices: object, values: object, shape: object, dtype: DType) -> object:
    """A sparse tensor with values of *dtype* as a vector of three values of dtype variant."""
    return _as_objects([BoxedTensor(indices, types.int64), BoxedTensor(values, dtype), BoxedTensor(shape, types.int64)])


def _add(a: BoxedTensor, b: BoxedTensor) -> BoxedTensor:
    if a.dtype is not b.dtype:
        raise InvalidArgumentError(f"Cannot add tensors of {a.dtype.name} and {b.dtype.name}")
    return replace(a, value=add(a.value, b.value))


register_variant_ops(BoxedTensor, zeros_like=lambda boxed: replace(boxed, value=zeros_like(boxed.value)), add=_add)

# What makes one of the three parts of a serialized tensor, and what reads it.
Writer = Callable[[Any, DType], Any]
Reader = Callable[[Any, DType, str], Any]


def _unbox(element: object, wanted: DType, what: str) -> Array:
    if not isinstance(element, BoxedTensor):
        raise InvalidArgumentError(f"Could not get a tensor from {what}, which is a {type(element).__name__}")
    if element.dtype is not wanted:
        raise InvalidArgumentError(f"Requested {what} of type {wanted.name}, but it is of {element.dtype.name}")
    return element.value


_WRITERS: Final[dict[DType, Writer]] = {
    types.string: partial(tensor_to_bytes, packs_strings=True),
    types.variant: BoxedTensor,
}
_READERS: Final[dict[DType, Reader]] = {types.string: tensor_from_bytes, types.variant: _unbox}

_PARTS: Final = "sparse_indices: int64, sparse_values: T, sparse_shape: int64"
_ATTRS: Final = "T: type; out_type: {string, variant} = string"


def _check_parts(c: InferenceContext) -> None:
    c.with_rank(0, 2)
    c.vector(1)
    c.vector(2)


def _one_shape(c: InferenceContext) -> Sequence[TensorShape]:
    _check_parts(c)
    return [TensorShape([3])]


def _many_shape(c: InferenceContext) -> Sequence[TensorShape]:
    _check_parts(c)
    return [TensorShape([None, 3])]


register_op("SerializeSparse", f"{_PARTS} -> serialized_sparse: out_type", _ATTRS, shape=_one_shape)
register_op("SerializeManySparse", f"{_PARTS} -> serialized_sparse: out_type", _ATTRS, shape=_many_shape)


@register_kernel("SerializeSparse", dtypes={"T": PLAIN, "out_type": {types.string}})
@register_kernel("SerializeSparse", dtypes={"out_type": {types.variant}})
def serialize_sparse(c: OpKernelConstruction) -> Kernel:
    """Indices, values and shape, as a vector of three."""
    write, dtype = _WRITERS[c.attr("out_type")], c.attr("T")

    def kernel(indices: Array, values: Array, shape: Array) -> Array:
        if indices.ndim != 2 or np.ndim(values) != 1 or shape.ndim != 1:
            raise InvalidArgumentError(
                "Input indices should be a matrix, values and shape vectors, not of shapes "
                f"{list(indices.shape)}, {list(np.shape(values))}, {list(shape.shape)}"
            )
        return _as_objects([write(indices, types.int64), write(values, dtype), write(shape, types.int64)])

    return kernel


def _as_objects(parts: list[BoxedTensor | bytes]) -> Array:
    found = np.empty(len(parts), object)
    found[:] = parts
    return found


def rows_of(indices: Any, values: Any, shape: Any) -> tuple[object, list[tuple[object, object]]]:
    """The shape of a row of the first dimension, and indices and values of each row.

    Raises:
        InvalidArgumentError: they are no sparse tensor of two dimensions or more, or not in order without repeats.
        ResourceExhaustedError: there are more rows than a machine can hold.
    """
    check_sparse(indices, boxed(values), shape)
    if len(shape) < 2:
        raise InvalidArgumentError(f"Rank of input SparseTensor should be > 1, but saw rank: {len(shape)}")
    check_memory([int(shape[0]), 3], np.dtype(object))
    check_bounds(indices, shape)
    check_order(indices)
    ends = np.searchsorted(indices[:, 0], np.arange(int(shape[0]) + 1)).tolist()
    parts = [(indices[begin:end, 1:], values[begin:end]) for begin, end in pairwise(ends)]
    return shape[1:], parts


@register_kernel("SerializeManySparse", dtypes={"T": PLAIN, "out_type": {types.string}})
@register_kernel("SerializeManySparse", dtypes={"T": MOVABLE, "out_type": {types.variant}})
def serialize_many_sparse(c: OpKernelConstruction) -> Kernel:
    """A row of three for each row of the tensor."""
    write, dtype = _WRITERS[c.attr("out_type")], c.attr("T")

    def kernel(indices: object, values: object, shape: object) -> Any:
        row_shape, rows = rows_of(indices, values, shape)
        third = write(row_shape, types.int64)
        found = np.empty((len(rows), 3), object)
        for place, (row_indices, row_values) in enumerate(rows):
            found[place, 0] = write(row_indices, types.int64)
            found[place, 1] = write(row_values, dtype)
            found[place, 2] = third
        return found

    return kernel


def _deserialized_shape(c: InferenceContext) -> Sequence[TensorShape]:
    given = c.input(0).with_rank_at_least(1)
    if given.dims is not None and given[-1] not in (None, 3):
        raise InvalidArgumentError(f"Serialized sparse should have 3 as the last dimension, not {given}")
    return [UNKNOWN_MATRIX, UNKNOWN_VECTOR, UNKNOWN_VECTOR]


def _many_deserialized_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.with_rank(0, 2)
    return _deserialized_shape(c)


_OUTPUTS: Final = "sparse_indices: int64, sparse_values: dtype, sparse_shape: int64"
register_op(
    "DeserializeSparse",
    f"serialized_sparse: Tserialized -> {_OUTPUTS}",
    "dtype: type; Tserialized: {string, variant} = string",
    shape=_deserialized_shape,
)
register_op(
    "DeserializeManySparse",
    f"serialized_sparse: string -> {_OUTPUTS}",
    "dtype: type",
    shape=_many_deserialized_shape,
)


@register_kernel("DeserializeManySparse", dtypes={"dtype": PLAIN})
@register_kernel("DeserializeSparse", dtypes={"dtype": PLAIN, "Tserialized": {types.string}})
@register_kernel("DeserializeSparse", dtypes={"Tserialized": {types.variant}})
def deserialize_sparse(c: OpKernelConstruction) -> Kernel:
    """One tensor of all: where each stands in the input comes before its own indices."""
    read, dtype = _READERS[c.input_dtypes[0]], c.attr("dtype")
    is_many = c.op == "DeserializeManySparse"

    def kernel(serialized: Array) -> tuple[Array, Array, Array]:
        given = np.shape(serialized)
        if not given or given[-1] != 3 or (is_many and len(given) != 2):
            raise InvalidArgumentError(f"Serialized sparse should have 3 as the last dimension: {list(given)}")
        lead = given[:-1]
        if not math.prod(lead):
            raise InvalidArgumentError(
                f"Serialized sparse should have at least 1 serialized tensor, but has a zero dimension: {list(given)}"
            )
        tensors = [_read_one(row, index, read, dtype) for index, row in enumerate(serialized.reshape(-1, 3))]
        return stack_sparse(tensors, lead) if lead else tensors[0]

    return kernel


def _read_one(row: Array, index: int, read: Reader, dtype: DType) -> tuple[Array, Array, Array]:
    what = f"serialized_sparse[{index}, %d]"
    parts = [
        boxed(read(part, wanted, what % place))
        for place, (part, wanted) in enumerate(zip(row, (types.int64, dtype, types.int64), strict=True))
    ]
    check_sparse(parts[0], parts[1], parts[2], what=f"serialized_sparse[{index}]")
    return parts[0], parts[1], parts[2]


def stack_sparse(tensors: Sequence[tuple[Array, Array, Array]], lead: Sequence[int]) -> tuple[Array, Array, Array]:
    """The sparse tensors as the elements of a tensor of shape *lead*, as large as the largest in each dimension."""
    rank = len(tensors[0][2])
    for index, (_, _, shape) in enumerate(tensors):
        if len(shape) != rank:
            raise InvalidArgumentError(
                f"Inconsistent shape across SparseTensors: rank prior to SparseTensor[{index}] was: {rank} but rank of "
                f"SparseTensor[{index}] is: {len(shape)}"
            )
    counts = [len(indices) for indices, _, _ in tensors]
    places = np.stack(np.unravel_index(np.repeat(np.arange(len(tensors)), counts), tuple(lead)), axis=1)
    indices = np.column_stack((places.astype(np.int64), np.concatenate([indices for indices, _, _ in tensors])))
    values = np.concatenate([values for _, values, _ in tensors])
    largest = np.max([shape for _, _, shape in tensors], axis=0).astype(np.int64)
    return indices, values, np.concatenate((np.array(lead, np.int64), largest))
