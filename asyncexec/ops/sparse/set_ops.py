"""Sets along the last dimension of tensors: differences, intersections, unions, sizes (``set_kernels.cc``).

A set is what has the same indices in all dimensions but the last, its *group*.  Groups and values become small
integers, a pair of them one number, so that sets are sorted arrays of numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InternalError, InvalidArgumentError
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, TensorShape
from asyncexec.ops.array.array_common import check_memory, unique_rows
from asyncexec.ops.sparse.sparse_tensor import check_bounds, check_order, check_sparse, run_starts

_ATTRS: Final = (
    "set_operation: string; validate_indices: bool = True; T: {int16, int32, int64, int8, string, uint16, uint8}"
)
_OUTPUTS: Final = "-> result_indices: int64, result_values: T, result_shape: int64"
_DTYPES: Final = frozenset({types.int8, types.int16, types.int32, types.int64, types.uint8, types.uint16, types.string})
_MOST_ELEMENTS: Final = 2**62
_MOST_NUMBERS: Final = 2**31

# A tensor of sets: the shape of the groups, and group and value of each element.
_Sets = tuple[list[int], Any, Any]


def _distinct(numbers: Array) -> Array:
    """The numbers in order, each once; ``np.unique`` takes 50 times as long for it."""
    ordered = np.sort(numbers)
    return ordered[run_starts(ordered)]


_OPERATIONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "a-b": lambda a, b: np.setdiff1d(a, b, assume_unique=True),
    "b-a": lambda a, b: np.setdiff1d(b, a, assume_unique=True),
    "intersection": lambda a, b: np.intersect1d(a, b, assume_unique=True),
    "union": lambda a, b: _distinct(np.concatenate((a, b))),
}


def _dense_rank(c: InferenceContext, place: int) -> TensorShape:
    return c.input(place).with_rank_at_least(2)


def _sparse_shape(c: InferenceContext, place: int) -> TensorShape:
    c.with_rank(place, 2)
    c.vector(place + 1)
    c.vector(place + 2)
    return c.value_as_shape(place + 2).with_rank_at_least(2)


def _result_shape(one: TensorShape, other: TensorShape) -> Sequence[TensorShape]:
    rank = one.rank if one.rank is not None else other.rank
    if one.dims is not None and other.dims is not None:
        TensorShape(one.dims[:-1]).merge_with(TensorShape(other.dims[:-1]))
    return [TensorShape([None, rank]), TensorShape([None]), TensorShape([rank])]


register_op(
    "DenseToDenseSetOperation",
    f"set1: T, set2: T {_OUTPUTS}",
    _ATTRS,
    shape=lambda c: _result_shape(_dense_rank(c, 0), _dense_rank(c, 1)),
)
register_op(
    "DenseToSparseSetOperation",
    f"set1: T, set2_indices: int64, set2_values: T, set2_shape: int64 {_OUTPUTS}",
    _ATTRS,
    shape=lambda c: _result_shape(_dense_rank(c, 0), _sparse_shape(c, 1)),
)
register_op(
    "SparseToSparseSetOperation",
    "set1_indices: int64, set1_values: T, set1_shape: int64,"
    f" set2_indices: int64, set2_values: T, set2_shape: int64 {_OUTPUTS}",
    _ATTRS,
    shape=lambda c: _result_shape(_sparse_shape(c, 0), _sparse_shape(c, 3)),
)


def _size_shape(c: InferenceContext) -> Sequence[TensorShape]:
    shape = _sparse_shape(c, 0)
    return [UNKNOWN_SHAPE if shape.dims is None else TensorShape(shape.dims[:-1])]


register_op(
    "SetSize",
    "set_indices: int64, set_values: T, set_shape: int64 -> size: int32",
    _ATTRS.removeprefix("set_operation: string; "),
    shape=_size_shape,
)


def _check_rank(shape: Sequence[int]) -> list[int]:
    """The shape of the groups."""
    if len(shape) < 2:
        raise InvalidArgumentError(f"Shape {list(shape)} has rank {len(shape)} < 2")
    if math.prod(shape[:-1]) > _MOST_ELEMENTS:
        raise InvalidArgumentError(f"there are more sets than numbers for them: {list(shape)}")
    return list(shape[:-1])


def _of_dense(values: Any) -> _Sets:
    shape = _check_rank(np.shape(values))
    return shape, np.repeat(np.arange(math.prod(shape)), values.shape[-1]), values.reshape(-1)


def _of_sparse(indices: Any, values: Any, shape: Any, *, validates: bool) -> _Sets:
    check_sparse(indices, values, shape)
    groups = _check_rank(shape.tolist())
    if validates:
        check_bounds(indices, shape)
        check_order(indices)
    elif ((indices < 0) | (indices >= shape)).any():
        raise InternalError(f"indices are not in a tensor of shape {shape.tolist()}")
    return groups, _flat(indices[:, :-1], groups), values


def _flat(rows: Array, sizes: Sequence[int]) -> Array:
    found = np.zeros(len(rows), np.int64)
    for axis, size in enumerate(sizes):
        found = found * size + rows[:, axis]
    return found


@register_kernel(
    "DenseToDenseSetOperation",
    "DenseToSparseSetOperation",
    "SparseToSparseSetOperation",
    dtypes={"T": _DTYPES},
    kind=KernelKind.EXPENSIVE,
)
def set_operation(c: OpKernelConstruction) -> Kernel:
    """The sets that the operation gives of each pair, in order, as a sparse tensor."""
    asked: bytes = c.attr("set_operation")
    operation = _OPERATIONS.get(asked.decode("utf-8", "replace").lower())
    if operation is None:
        raise InvalidArgumentError(f"Invalid set_operation {asked!r}; it is one of {', '.join(_OPERATIONS)}.")
    validates = c.attr("validate_indices")
    first_is_dense, second_is_dense = c.op.startswith("Dense"), c.op.startswith("DenseToDense")

    def kernel(*inputs: object) -> tuple[Any, object, object]:
        second = inputs[1 if first_is_dense else 3 :]
        shape, *one = _of_dense(inputs[0]) if first_is_dense else _of_sparse(*inputs[:3], validates=validates)
        other_shape, *other = _of_dense(*second) if second_is_dense else _of_sparse(*second, validates=validates)
        if shape != other_shape:
            raise InvalidArgumentError(f"Mismatched shapes {shape} vs {other_shape}")
        group_of, group_at = _numbered(np.concatenate((one[0], other[0])))
        value_of, value_at = _numbered(np.concatenate((one[1], other[1])))
        values = int(value_of.max(initial=0)) + 1
        pairs = group_of * values + value_of
        count = len(one[0])
        found = operation(_distinct(pairs[:count]), _distinct(pairs[count:]))
        group, value = np.divmod(found, values)
        return _as_sparse(shape, group_at(group), value_at(value))

    return kernel


def _numbered(items: Array) -> tuple[Any, Callable[[Any], Any]]:
    """Numbers below 2**31 for *items*, in their order, and what gives the items of such numbers."""
    if items.size and items.dtype.kind in "iu":
        low = int(items.min())
        if int(items.max()) - low < _MOST_NUMBERS:
            return items.astype(np.int64) - low, lambda numbers: (numbers + low).astype(items.dtype)
    known, numbers = np.unique(items, return_inverse=True)
    return numbers.ravel(), known.__getitem__


def _as_sparse(shape: Sequence[int], groups: Array, values: Array) -> tuple[Array, Array, Array]:
    starts = run_starts(groups)
    lengths = np.diff(np.append(starts, len(groups)))
    places = np.arange(len(groups)) - np.repeat(starts, lengths)
    columns = []
    for size in reversed(shape):
        columns.append(groups % max(1, size))
        groups = groups // max(1, size)
    indices = np.column_stack((*reversed(columns), places)).astype(np.int64)
    return indices, values, np.array([*shape, lengths.max(initial=0)], np.int64)


@register_kernel("SetSize", dtypes={"T": _DTYPES})
def set_size(c: OpKernelConstruction) -> Kernel:
    """How many different values each group has."""
    validates = c.attr("validate_indices")

    def kernel(indices: object, values: Any, shape: object) -> Array:
        sizes, groups, _ = _of_sparse(indices, values, shape, validates=validates)
        check_memory(sizes, np.dtype(np.int32))
        _, value_of = np.unique(values, return_inverse=True)
        pairs, _ = unique_rows(np.column_stack((groups, value_of.ravel())))
        found = np.zeros(math.prod(sizes), np.int32)
        np.add.at(found, pairs[:, 0], 1)
        return found.reshape(sizes)

    return kernel
