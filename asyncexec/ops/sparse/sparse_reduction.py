"""SparseReduceSum and SparseReduceMax, with dense and with sparse results (``sparse_reduce_op.cc``), SparseSoftmax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InternalError, InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction, as_value
from asyncexec.framework.kernel_registry import register_function, register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, TensorShape
from asyncexec.ops.array.array_common import NUMBER, REAL, zeros
from asyncexec.ops.sparse.sparse_tensor import check_sparse, row_order, run_starts

_REDUCTIONS: Final = {"Sum": np.add, "Max": np.maximum}
_INPUTS: Final = "input_indices: int64, input_values: T, input_shape: int64, reduction_axes: int32"


def _reduced_shape(c: InferenceContext) -> Sequence[TensorShape]:
    shape = c.value_as_shape(2)
    axes = c.value(3)
    if axes is None or shape.dims is None:
        return [UNKNOWN_SHAPE]
    reduced = _canonical_axes(axes, len(shape.dims))
    if c.attr("keep_dims"):
        return [TensorShape([1 if axis in reduced else size for axis, size in enumerate(shape.dims)])]
    return [TensorShape([size for axis, size in enumerate(shape.dims) if axis not in reduced])]


def _sparse_shapes(c: InferenceContext) -> Sequence[TensorShape]:
    return [UNKNOWN_SHAPE] * 3


for _name in _REDUCTIONS:
    _attrs = f"keep_dims: bool = False; T: {'numbertype' if _name == 'Sum' else 'realnumbertype'}"
    register_op(f"SparseReduce{_name}", f"{_INPUTS} -> output: T", _attrs, shape=_reduced_shape)
    register_op(
        f"SparseReduce{_name}Sparse",
        f"{_INPUTS} -> output_indices: int64, output_values: T, output_shape: int64",
        _attrs,
        shape=_sparse_shapes,
    )


def _canonical_axes(axes: ArrayOrScalar, rank: int) -> set[int]:
    if np.ndim(axes) > 1:
        raise InvalidArgumentError(
            f"Expected reduction_axes to be a scalar or a vector; got shape: {list(np.shape(axes))}"
        )
    given: list[int] = np.atleast_1d(axes).tolist()
    for axis in given:
        if not -rank <= axis < rank:
            raise InvalidArgumentError(f"Invalid reduction dimension {axis}, for input with {rank} dimensions.")
    return {axis % rank for axis in given}


def _reduce(ufunc: Any, indices: Any, values: Array, shape: Any, axes: ArrayOrScalar) -> tuple[list[int], Any, Any]:
    """The axes that are left, their indices where there are values, and the reduced values."""
    check_sparse(indices, values, shape)
    reduced = _canonical_axes(axes, len(shape))
    left = [axis for axis in range(len(shape)) if axis not in reduced]
    rows = indices[:, left]
    order = row_order(rows)
    starts = run_starts(rows[order])
    if not starts.size:
        return left, rows[:0], values[:0]
    found = ufunc.reduceat(values[order], starts, dtype=values.dtype)
    return left, rows[order][starts], found


@register_kernel("SparseReduceSum", dtypes={"T": NUMBER})
@register_kernel("SparseReduceMax", dtypes={"T": REAL})
def sparse_reduce(c: OpKernelConstruction) -> Kernel:
    """A dense tensor, 0 where nothing is."""
    ufunc, keeps = _REDUCTIONS[c.op.removeprefix("SparseReduce")], c.attr("keep_dims")

    def kernel(indices: Array, values: Array, shape: Array, axes: ArrayOrScalar) -> ArrayOrScalar:
        left, rows, found = _reduce(ufunc, indices, values, shape, axes)
        sizes = [int(shape[axis]) for axis in left]
        dense = zeros(sizes, values.dtype)
        outside = ((rows < 0) | (rows >= np.array(sizes, np.int64))).any(axis=1)
        if outside.any():
            row = rows[outside.argmax()].tolist()
            raise InternalError(f"Obtained a write index of {row} which is outside of bounds of {sizes}")
        if found.size:
            dense[tuple(rows.T)] = found if left else found[0]
        if keeps:
            dense = dense.reshape([int(size) if axis in left else 1 for axis, size in enumerate(shape)])
        return as_value(dense)

    return kernel


@register_kernel("SparseReduceSumSparse", dtypes={"T": NUMBER})
@register_kernel("SparseReduceMaxSparse", dtypes={"T": REAL})
def sparse_reduce_sparse(c: OpKernelConstruction) -> Kernel:
    """A sparse tensor in order."""
    ufunc, keeps = _REDUCTIONS[c.op.removeprefix("SparseReduce").removesuffix("Sparse")], c.attr("keep_dims")

    def kernel(indices: ArrayOrScalar, values: Array, shape: Any, axes: ArrayOrScalar) -> tuple[Array, Array, Array]:
        left, rows, found = _reduce(ufunc, indices, values, shape, axes)
        if not keeps:
            return rows, found, shape[left]
        spread = np.zeros((len(rows), len(shape)), np.int64)
        spread[:, left] = rows
        sizes = np.ones(len(shape), np.int64)
        sizes[left] = shape[left]
        return spread, found, sizes

    return kernel


def _softmax_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.with_rank(0, 2)
    values = c.vector(1)
    c.vector(2)
    return [values]


register_op(
    "SparseSoftmax",
    "sp_indices: int64, sp_values: T, sp_shape: int64 -> output: T",
    "T: {float16, float32, float64}",
    shape=_softmax_shape,
)


def sparse_softmax(indices: Array, values: Array, shape: Array) -> ArrayOrScalar:
    """The softmax of the values of each row of the last dimension, among themselves."""
    check_sparse(indices, values, shape)
    if len(shape) < 2:
        raise InvalidArgumentError(f"Input should have rank >= 2, but received shape: {shape.tolist()}")
    starts = run_starts(indices[:, :-1])
    if not starts.size:
        return values
    lengths = np.diff(np.append(starts, len(values)))
    powers = np.exp(values - np.repeat(np.maximum.reduceat(values, starts), lengths))
    return powers / np.repeat(np.add.reduceat(powers, starts), lengths)


register_function("SparseSoftmax", function=sparse_softmax, dtypes={"T": {types.float16, types.float32, types.float64}})
