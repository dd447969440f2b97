"""Sparse tensors as (indices, values, dense shape): to dense, times dense, reshaped, reordered, filled up, sliced.

Rules: tensorflow/core/ops/sparse_ops.cc, sparse_to_dense_op.cc, sparse_tensor_dense_matmul_op.cc, reshape_util.cc,
sparse_reorder_op.cc, sparse_fill_empty_rows_op.cc, sparse_slice_op.cc.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction, as_value
from asyncexec.framework.kernel_registry import register_function, register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, TensorShape
from asyncexec.ops.array.array_common import POD_STRING, boxing, by_function, check_memory, int_vector, merge_dim, zeros
from asyncexec.ops.sparse.sparse_tensor import MOVABLE, check_sparse

_QUANTIZED = {types.qint8, types.quint8, types.qint16, types.quint16}
_MULTIPLIED = frozenset(
    {types.bfloat16, types.float16, types.float32, types.float64, types.int32, types.complex64, types.complex128}
)

register_op(
    "SparseToDense",
    "sparse_indices: Tindices, output_shape: Tindices, sparse_values: T, default_value: T -> dense: T",
    "validate_indices: bool = True; T: type; Tindices: {int32, int64}",
    shape=lambda c: [c.value_as_shape(1)],
)


def _check_order(indices: Array, shape: Sequence[int]) -> None:
    """InvalidArgumentError unless *indices*, rows that lie in *shape*, are in order without repeats."""
    flat = np.ravel_multi_index(tuple(indices.T), tuple(shape)) if len(indices) else np.zeros(0, np.int64)
    wrong = np.flatnonzero(flat[1:] <= flat[:-1])
    if wrong.size:
        row = int(wrong[0]) + 1
        what = "is repeated" if flat[row] == flat[row - 1] else "is out of order"
        raise InvalidArgumentError(f"indices[{row}] = {indices[row].tolist()} {what}")


def _check_bounds(indices: Array, shape: Sequence[int]) -> None:
    bad = ((indices < 0) | (indices >= np.array(shape, np.int64))).any(axis=1)
    if bad.any():
        row = int(np.argmax(bad))
        raise InvalidArgumentError(f"indices[{row}] = {indices[row].tolist()} is out of bounds: {list(shape)}")


@register_kernel("SparseToDense", dtypes={"T": POD_STRING | _QUANTIZED})
def _sparse_to_dense(c: OpKernelConstruction) -> Kernel:
    np_dtype, validates = c.np_dtype("T"), c.attr("validate_indices")

    def sparse_to_dense(
        indices: ArrayOrScalar, output_shape: Array, values: ArrayOrScalar, default: ArrayOrScalar
    ) -> Array:
        shape = int_vector(output_shape, "output_shape")
        rows = _index_rows(indices, shape)
        if values.ndim and values.shape != (len(rows),):
            raise InvalidArgumentError(
                f"sparse_values has incorrect shape {list(values.shape)}, not [] or [{len(rows)}]"
            )
        if default.ndim:
            raise InvalidArgumentError("default_value should be a scalar.")
        check_memory(shape, np_dtype)
        _check_bounds(rows, shape)
        if validates:
            _check_order(rows, shape)
        dense = np.empty(shape, np_dtype)
        dense[...] = default
        dense[tuple(rows.T)] = values
        return as_value(dense)

    return boxing(c, sparse_to_dense)


def _index_rows(indices: Any, shape: Sequence[int]) -> Array:
    if indices.ndim > 2:
        raise InvalidArgumentError(f"sparse_indices should be a scalar, vector, or matrix, got {list(indices.shape)}")
    rows = np.asarray(indices).reshape(-1, 1) if indices.ndim < 2 else indices
    if rows.shape[1] != len(shape):
        raise InvalidArgumentError(f"output_shape has {len(shape)} elements, should have {rows.shape[1]}")
    return rows


def _sparse_matmul_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.with_rank(0, 2)
    c.vector(1)
    a, b = c.value_as_shape(2).with_rank(2), c.with_rank(3, 2)
    inner, left = (0, 1) if c.attr("adjoint_a") else (1, 0)
    right, inner_b = (0, 1) if c.attr("adjoint_b") else (1, 0)
    merge_dim(a[inner], b[inner_b], "inner dimensions")
    return [TensorShape([a[left], b[right]])]


register_op(
    "SparseTensorDenseMatMul",
    "a_indices: Tindices, a_values: T, a_shape: int64, b: T -> product: T",
    "T: type; Tindices: {int32, int64} = int64; adjoint_a: bool = False; adjoint_b: bool = False",
    shape=_sparse_matmul_shape,
)


@register_kernel("SparseTensorDenseMatMul", dtypes={"T": _MULTIPLIED})
def _sparse_matmul(c: OpKernelConstruction) -> Kernel:
    adjoint_a, adjoint_b = c.attr("adjoint_a"), c.attr("adjoint_b")

    def sparse_matmul(a_indices: Array, a_values: Array, a_shape: Array, b: Array) -> Array:
        _check_sparse_matrix(a_indices, a_values, a_shape, b)
        rows, columns = a_indices.T[::-1] if adjoint_a else a_indices.T
        left, inner = a_shape.tolist()[::-1] if adjoint_a else a_shape.tolist()
        values = a_values.conj() if adjoint_a else a_values
        dense = b.conj().T if adjoint_b else b
        if dense.shape[0] != inner:
            raise InvalidArgumentError(
                f"Cannot multiply A and B because inner dimension does not match: {inner} vs. {dense.shape[0]}"
            )
        product = zeros((left, dense.shape[1]), b.dtype)
        if product.size and values.size and dense.size:
            _check_bounds(np.stack((rows, columns), axis=1), (left, inner))
            np.add.at(product, rows, values[:, None] * dense[columns])
        return product

    return sparse_matmul


def _check_sparse_matrix(a_indices: Array, a_values: Array, a_shape: Array, b: Array) -> None:
    if b.ndim != 2 or a_shape.shape != (2,) or a_indices.shape != (a_values.size, 2) or a_values.ndim != 1:
        raise InvalidArgumentError(
            f"a sparse matrix and a dense one are needed, not indices {list(a_indices.shape)}, "
            f"values {list(a_values.shape)}, shape {list(a_shape.shape)} and b {list(b.shape)}"
        )


def _sparse_reshape_shape(c: InferenceContext) -> Sequence[TensorShape]:
    indices, new_shape = c.with_rank(0, 2), c.vector(2)
    c.vector(1)
    return [TensorShape([indices[0], new_shape[0]]), new_shape]


register_op(
    "SparseReshape",
    "input_indices: int64, input_shape: int64, new_shape: int64 -> output_indices: int64, output_shape: int64",
    shape=_sparse_reshape_shape,
)


def sparse_reshape(indices: Array, input_shape: Array, new_shape: Array) -> tuple[object, object]:
    """The indices that the elements have once the tensor is reshaped, and that shape."""
    old, new = int_vector(input_shape, "Input shape"), int_vector(new_shape, "Target shape")
    if indices.ndim != 2 or indices.shape[1] != len(old):
        raise InvalidArgumentError(f"Input indices should be a matrix of {len(old)} columns, not {list(indices.shape)}")
    new = _inferred_size(math.prod(old), new)
    if min((*old, *new), default=0) < 0 or math.prod(new) != math.prod(old):
        raise InvalidArgumentError(f"Input to reshape is a sparse tensor of shape {old}, the requested shape is {new}")
    if old == new:
        return indices, input_shape
    if len(indices) and not math.prod(old):
        raise InvalidArgumentError(f"Input tensor has {len(indices)} non zero elements but shape {old} is empty")
    flat = np.zeros(len(indices), np.int64)
    for axis, size in enumerate(old):
        flat = flat * size + indices[:, axis]
    output = np.empty((len(indices), len(new)), np.int64)
    for axis in range(len(new)):
        stride = math.prod(new[axis + 1 :]) or 1
        output[:, axis], flat = flat // stride, flat % stride
    return output, np.array(new, np.int64)


def _inferred_size(elements: int, new: list[int]) -> list[int]:
    """*new* with the size that is -1 worked out."""
    if new.count(-1) > 1 or min(new, default=0) < -1:
        raise InvalidArgumentError(f"only one output dimension may be -1, the others must be non-negative: {new}")
    if -1 not in new:
        return new
    known = math.prod(size for size in new if size != -1)
    if not known or elements % known:
        raise InvalidArgumentError(
            f"a SparseTensor with {elements} dense values does not fit the requested shape {new}"
        )
    return [elements // known if size == -1 else size for size in new]


register_function("SparseReshape", function=sparse_reshape)


def _sparse_reorder_shape(c: InferenceContext) -> Sequence[TensorShape]:
    indices, values = c.with_rank(0, 2), c.vector(1)
    c.vector(2)
    return [indices, values]


register_op(
    "SparseReorder",
    "input_indices: int64, input_values: T, input_shape: int64 -> output_indices: int64, output_values: T",
    "T: type",
    shape=_sparse_reorder_shape,
)


def sparse_reorder(indices: Array, values: Array, shape: ArrayOrScalar) -> tuple[Array, Array]:
    """The elements in the order of their indices."""
    check_sparse(indices, values, shape)
    order = np.lexsort(indices.T[::-1]) if indices.shape[1] else np.arange(len(indices))
    return indices[order], values[order]


register_kernel("SparseReorder", dtypes={"T": MOVABLE})(by_function(sparse_reorder))


def _fill_empty_rows_shape(c: InferenceContext) -> Sequence[TensorShape]:
    indices, values = c.with_rank(0, 2), c.vector(1)
    dense_shape = c.value_as_shape(2)
    c.vector(2)
    c.scalar(3)
    count = merge_dim(indices[0], values[0], "the lengths of indices and values")
    columns = merge_dim(indices[1], c.input(2)[0] if c.input(2).dims is not None else None, "the rank of indices")
    rows = dense_shape[0] if dense_shape.rank else None
    return [TensorShape([None, columns]), TensorShape([None]), TensorShape([rows]), TensorShape([count])]


register_op(
    "SparseFillEmptyRows",
    "indices: int64, values: T, dense_shape: int64, default_value: T -> output_indices: int64, output_values: T,"
    " empty_row_indicator: bool, reverse_index_map: int64",
    "T: type",
    shape=_fill_empty_rows_shape,
)


def sparse_fill_empty_rows(
    indices: Array, values: Array, dense_shape: Array, default: ArrayOrScalar
) -> tuple[Array, ...]:
    """The tensor with *default* at the start of each row that had nothing, and what was done."""
    if indices.ndim != 2 or values.shape != (len(indices),) or dense_shape.ndim != 1 or default.ndim:
        raise InvalidArgumentError(f"a sparse tensor is needed, not {list(indices.shape)}, {list(values.shape)}")
    if not dense_shape.size:
        raise InvalidArgumentError("Dense shape cannot be empty.")
    rows = int(dense_shape[0])
    check_memory([rows], np.dtype(np.int64))
    given = indices[:, 0]
    if given.size and (given.min() < 0 or given.max() >= rows):
        raise InvalidArgumentError(f"indices name rows outside [0, {rows}): {given.tolist()[:8]}")
    missing = np.bincount(given, minlength=rows) == 0
    extra = np.zeros((int(missing.sum()), indices.shape[1]), np.int64)
    extra[:, 0] = np.flatnonzero(missing)
    order = np.argsort(np.concatenate((given, extra[:, 0])), kind="stable")
    place = np.empty(order.size, np.int64)
    place[order] = np.arange(order.size)
    fill = np.empty(len(extra), values.dtype)
    fill[...] = default
    return np.concatenate((indices, extra))[order], np.concatenate((values, fill))[order], missing, place[: given.size]


register_kernel("SparseFillEmptyRows", dtypes={"T": MOVABLE})(by_function(sparse_fill_empty_rows))


def _sparse_slice_shape(c: InferenceContext) -> Sequence[TensorShape]:
    shape = c.vector(2).merge_with(c.vector(3)).merge_with(c.vector(4))
    c.with_rank(0, 2)
    c.vector(1)
    rank = shape[0] if shape.dims is not None else None
    return [TensorShape([None, rank]), TensorShape([None]), shape if shape.dims is not None else UNKNOWN_SHAPE]


register_op(
    "SparseSlice",
    "indices: int64, values: T, shape: int64, start: int64, size: int64 -> output_indices: int64, output_values: T,"
    " output_shape: int64",
    "T: type",
    shape=_sparse_slice_shape,
)


def sparse_slice(indices: Array, values: Array, shape: Array, start: Array, size: Array) -> tuple[Array, Array, Array]:
    """The part of a sparse tensor that begins at *start* and is of *size*, or what there is of it."""
    check_sparse(indices, values, shape)
    if start.shape != shape.shape or size.shape != shape.shape:
        raise InvalidArgumentError(f"start and size must be of length {shape.size}: {start.tolist()}, {size.tolist()}")
    if (size < 0).any():
        raise InvalidArgumentError(f"size must be non-negative: {size.tolist()}")
    inside = ((indices >= start) & (indices - start < size)).all(axis=1)
    kept = np.maximum(np.minimum(size, shape - start), 0)
    return indices[inside] - start, values[inside], kept


register_kernel("SparseSlice", dtypes={"T": MOVABLE})(by_function(sparse_slice))
