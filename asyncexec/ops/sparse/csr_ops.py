"""Sparse matrices by rows: made, taken apart and multiplied (``sparse_csr_matrix_ops.cc``, ``core/kernels/sparse/``).

Products and transposition are scipy's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError, UnimplementedError
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_function, register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext, scalars, unknown
from asyncexec.framework.tensor_shape import SCALAR, TensorShape
from asyncexec.ops.array.array_common import check_memory, scalar_int
from asyncexec.ops.sparse.csr_matrix import (
    CSRMatrix,
    check_size,
    csr_add,
    csr_of_indices,
    csr_to_dense,
    csr_zeros,
    map_parts,
    require_csr,
    scipy_parts,
)
from asyncexec.ops.sparse.sparse_tensor import UNKNOWN_MATRIX, UNKNOWN_VECTOR, check_bounds, check_sparse, run_starts
from asyncexec.process.free_memory import check_room

_TYPES: Final = "{complex128, complex64, float32, float64}"
_FLOATS: Final = frozenset({types.float32, types.float64, types.complex64, types.complex128})


def _made_of_tensor(c: InferenceContext) -> Sequence[TensorShape]:
    c.with_rank(0, 2)
    c.vector(1)
    c.vector(2)
    return [SCALAR]


def _made_of_dense(c: InferenceContext) -> Sequence[TensorShape]:
    dense = c.input(0).with_rank_at_least(2).with_rank_at_most(3)
    indices = c.with_rank(1, 2)
    if None not in (dense.rank, indices[1]) and dense.rank != indices[1]:
        raise InvalidArgumentError(f"indices.shape[1] must match rank of dense; saw: {indices[1]} vs. {dense.rank}")
    return [SCALAR]


register_op(
    "SparseTensorToCSRSparseMatrix",
    "indices: int64, values: T, dense_shape: int64 -> sparse_matrix: variant",
    f"T: {_TYPES}",
    shape=_made_of_tensor,
)
register_op(
    "DenseToCSRSparseMatrix",
    "dense_input: T, indices: int64 -> sparse_output: variant",
    f"T: {_TYPES}",
    shape=_made_of_dense,
)
register_op(
    "CSRSparseMatrixToDense",
    "sparse_input: variant -> dense_output: type",
    f"type: {_TYPES}",
    shape=unknown,
)
register_op(
    "CSRSparseMatrixToSparseTensor",
    "sparse_matrix: variant -> indices: int64, values: type, dense_shape: int64",
    f"type: {_TYPES}",
    shape=lambda _: [UNKNOWN_MATRIX, UNKNOWN_VECTOR, UNKNOWN_VECTOR],
)
register_op(
    "CSRSparseMatrixComponents",
    "csr_sparse_matrix: variant, index: int32 -> row_ptrs: int32, col_inds: int32, values: type",
    f"type: {_TYPES}",
    shape=lambda _: [UNKNOWN_VECTOR] * 3,
)
register_op("SparseMatrixNNZ", "sparse_matrix: variant -> nnz: int32", shape=unknown)
register_op("SparseMatrixZeros", "dense_shape: int64 -> sparse_matrix: variant", f"type: {_TYPES}", shape=scalars)
register_op(
    "SparseMatrixAdd",
    "a: variant, b: variant, alpha: T, beta: T -> c: variant",
    f"T: {_TYPES}",
    shape=scalars,
)
register_op("SparseMatrixMul", "a: variant, b: T -> output: variant", "T: type", shape=scalars)
_TRANSPOSES: Final = (
    "transpose_a: bool = False; transpose_b: bool = False; adjoint_a: bool = False; adjoint_b: bool = False"
)
register_op(
    "SparseMatrixMatMul",
    "a: variant, b: T -> output: T",
    f"T: type; {_TRANSPOSES}; transpose_output: bool = False; conjugate_output: bool = False",
    shape=unknown,
)
register_op(
    "SparseMatrixSparseMatMul",
    "a: variant, b: variant -> c: variant",
    f"type: {_TYPES}; {_TRANSPOSES}",
    shape=scalars,
)
register_op(
    "SparseMatrixTranspose",
    "input: variant -> output: variant",
    f"conjugate: bool = False; type: {_TYPES}",
    shape=scalars,
)
register_op("SparseMatrixSoftmax", "logits: variant -> softmax: variant", "type: {float32, float64}", shape=scalars)
register_op(
    "SparseMatrixSoftmaxGrad",
    "softmax: variant, grad_softmax: variant -> gradient: variant",
    "type: {float32, float64}",
    shape=scalars,
)


def sparse_tensor_to_csr(indices: Array, values: Array, shape: Any) -> CSRMatrix:
    """The matrix of a sparse tensor."""
    check_sparse(indices, values, shape)
    check_size(shape.tolist())
    check_bounds(indices, shape)
    return csr_of_indices(indices, values, shape)


register_function("SparseTensorToCSRSparseMatrix", function=sparse_tensor_to_csr, dtypes={"T": _FLOATS})


def dense_to_csr(dense: Array, indices: Array) -> CSRMatrix:
    """The matrix of what a dense tensor has at *indices*."""
    check_size(np.shape(dense))
    if indices.ndim != 2 or indices.shape[1] != dense.ndim:
        raise InvalidArgumentError(
            f"indices must be a matrix of {dense.ndim} columns, not of shape {list(indices.shape)}"
        )
    check_bounds(indices, dense.shape)
    return csr_of_indices(indices, dense[tuple(indices.T)], dense.shape)


register_function("DenseToCSRSparseMatrix", function=dense_to_csr, dtypes={"T": _FLOATS})


@register_kernel("CSRSparseMatrixToDense", dtypes={"type": _FLOATS})
def csr_to_dense_kernel(c: OpKernelConstruction) -> Kernel:
    """The dense tensor."""
    dtype = c.attr("type")
    return lambda matrix: csr_to_dense(require_csr(matrix, "sparse_input", dtype))


@register_kernel("CSRSparseMatrixToSparseTensor", dtypes={"type": _FLOATS})
def csr_to_sparse_tensor(c: OpKernelConstruction) -> Kernel:
    """Indices, values and shape."""
    dtype = c.attr("type")

    def kernel(value: object) -> tuple[Any, object, object]:
        matrix = require_csr(value, "sparse_matrix", dtype)
        return matrix.indices(), matrix.values, np.array(matrix.shape, np.int64)

    return kernel


@register_kernel("CSRSparseMatrixComponents", dtypes={"type": _FLOATS})
def csr_components(c: OpKernelConstruction) -> Kernel:
    """Row pointers, columns and values of one matrix of a batch."""
    dtype = c.attr("type")

    def kernel(value: object, index: object) -> tuple[Any, object, object]:
        matrix = require_csr(value, "csr_sparse_matrix", dtype)
        place = scalar_int(index, "index")
        if not 0 <= place < matrix.batch:
            raise InvalidArgumentError(f"index ({place}) not in [0, {matrix.batch})")
        return matrix.part(place)

    return kernel


def csr_nnz(value: object) -> ArrayOrScalar:
    """How many elements there are, of each matrix of a batch."""
    matrix = require_csr(value, "sparse_matrix")
    return matrix.counts if len(matrix.shape) == 3 else np.int32(matrix.counts[0])


register_function("SparseMatrixNNZ", function=csr_nnz)


@register_kernel("SparseMatrixZeros", dtypes={"type": _FLOATS})
def csr_zeros_kernel(c: OpKernelConstruction) -> Kernel:
    """A matrix without elements."""
    np_dtype = c.np_dtype("type")

    def kernel(shape: ArrayOrScalar) -> CSRMatrix:
        sizes = np.atleast_1d(shape).tolist()
        check_size(sizes)
        return csr_zeros(sizes, np_dtype)

    return kernel


@register_kernel("SparseMatrixAdd", dtypes={"T": _FLOATS})
def csr_add_kernel(c: OpKernelConstruction) -> Kernel:
    """A weighted sum."""
    dtype = c.attr("T")

    def kernel(a: object, b: object, alpha: ArrayOrScalar, beta: ArrayOrScalar) -> CSRMatrix:
        if np.ndim(alpha) or np.ndim(beta):
            raise InvalidArgumentError(f"alpha and beta must be scalars: {np.shape(alpha)}, {np.shape(beta)}")
        return csr_add(require_csr(a, "a", dtype), require_csr(b, "b", dtype), alpha, beta)

    return kernel


@register_kernel("SparseMatrixMul", dtypes={"T": _FLOATS})
def csr_mul(c: OpKernelConstruction) -> Kernel:
    """The matrix times a number, or each of a batch times its own."""
    dtype = c.attr("T")

    def kernel(value: CSRMatrix, factor: ArrayOrScalar) -> CSRMatrix:
        matrix = require_csr(value, "a", dtype)
        if not np.ndim(factor):
            return matrix.with_values(matrix.values * factor)
        if len(matrix.shape) != 3 or np.shape(factor) != (matrix.batch, 1, 1):
            raise UnimplementedError(
                f"b must be a scalar or shaped [batch_size, 1, 1], not of shape {list(np.shape(factor))}"
            )
        return matrix.with_values(matrix.values * np.repeat(factor.ravel(), matrix.counts))

    return kernel


class _Sides:
    """How the two factors of a product are turned, as the attrs of a node say."""

    def __init__(self, c: OpKernelConstruction) -> None:
        self.turns: list[tuple[bool, bool]] = []
        for side in ("a", "b"):
            transpose, adjoint = c.attr(f"transpose_{side}"), c.attr(f"adjoint_{side}")
            if transpose and adjoint:
                raise InvalidArgumentError(f"Only one of adjoint_{side} and transpose_{side} may be true.")
            self.turns.append((transpose or adjoint, adjoint))

    def shape_of(self, side: int, shape: Sequence[int]) -> tuple[int, int]:
        """Rows and columns of a factor once it is turned."""
        rows, columns = shape[-2:]
        return (columns, rows) if self.turns[side][0] else (rows, columns)

    def turned(self, side: int, matrix: Any) -> Any:
        """The factor, a scipy matrix or an array, turned."""
        transpose, conjugate = self.turns[side]
        found = matrix.T if transpose else matrix
        return found.conj() if conjugate else found


def _check_product(a: CSRMatrix, shape: Sequence[int], sides: _Sides) -> tuple[int, int]:
    """Rows and columns of the product of *a* and of what is of *shape*."""
    if len(a.shape) != len(shape) or a.shape[:-2] != tuple(shape[:-2]):
        raise InvalidArgumentError(
            f"Ranks and batch sizes of a and b must match, saw: {list(a.shape)} vs. {list(shape)}"
        )
    (rows, inner), (other, columns) = sides.shape_of(0, a.shape), sides.shape_of(1, shape)
    if inner != other:
        raise InvalidArgumentError(
            f"Inner product dimensions of A and B do not agree.  Shapes are: {list(a.shape)} vs. {list(shape)}"
        )
    return rows, columns


@register_kernel("SparseMatrixMatMul", kind=KernelKind.EXPENSIVE, dtypes={"T": _FLOATS})
def csr_matmul(c: OpKernelConstruction) -> Kernel:
    """The product with a dense matrix."""
    sides, dtype = _Sides(c), c.attr("T")
    transpose, conjugate = c.attr("transpose_output"), c.attr("conjugate_output")

    def kernel(value: CSRMatrix, dense: Array) -> Array:
        matrix = require_csr(value, "a", dtype)
        rows, columns = _check_product(matrix, np.shape(dense), sides)
        check_memory([matrix.batch, rows, columns], dense.dtype)
        others = dense.reshape(matrix.batch, *dense.shape[-2:])
        products = [
            sides.turned(0, part) @ sides.turned(1, other)
            for part, other in zip(scipy_parts(matrix), others, strict=True)
        ]
        found = np.array(products, dense.dtype).reshape(*matrix.shape[:-2], rows, columns)
        found = found.swapaxes(-1, -2) if transpose else found
        return np.ascontiguousarray(found.conj() if conjugate else found)

    return kernel


@register_kernel("SparseMatrixSparseMatMul", kind=KernelKind.EXPENSIVE, dtypes={"type": _FLOATS})
def csr_sparse_matmul(c: OpKernelConstruction) -> Kernel:
    """The product of two sparse matrices."""
    sides, dtype = _Sides(c), c.attr("type")

    def kernel(a: object, b: object) -> CSRMatrix:
        one, other = require_csr(a, "a", dtype), require_csr(b, "b", dtype)
        shape = _check_product(one, other.shape, sides)
        others = scipy_parts(other)
        return map_parts(
            one, lambda number, part: _product(sides.turned(0, part), sides.turned(1, others[number])), shape
        )

    return kernel


def _product(a: Any, b: Any) -> object:
    """``a @ b``, with an element wherever products were added up, which scipy leaves out where they come to zero."""
    num_products = int(np.bincount(a.indices, minlength=a.shape[1]) @ np.diff(b.indptr).astype(np.int64))
    check_room(min(num_products, a.shape[0] * b.shape[1]) * (a.dtype.itemsize + a.indices.itemsize))
    found = (a @ b).tocsr()
    places = (_pattern(a) @ _pattern(b)).tocsr()
    if places.nnz == found.nnz:
        return found
    zero = places.astype(found.dtype)
    zero.data[:] = 0
    zero.sort_indices()
    found.sort_indices()
    zero.data[np.searchsorted(_flat_places(zero), _flat_places(found))] = found.data
    return zero


def _pattern(matrix: Any) -> Any:
    ones = abs(matrix)
    ones.data[:] = 1
    return ones


def _flat_places(matrix: Any) -> ArrayOrScalar:
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    return rows * matrix.shape[1] + matrix.indices


@register_kernel("SparseMatrixTranspose", dtypes={"type": _FLOATS})
def csr_transpose(c: OpKernelConstruction) -> Kernel:
    """Each matrix transposed."""
    dtype, conjugate = c.attr("type"), c.attr("conjugate")

    def kernel(value: object) -> CSRMatrix:
        matrix = require_csr(value, "input", dtype)
        found = map_parts(matrix, lambda _, part: part.T.tocsr(), matrix.shape[:-3:-1])
        return found.with_values(found.values.conj()) if conjugate else found

    return kernel


def _row_runs(matrix: CSRMatrix) -> tuple[Any, Any]:
    """Where the elements of each row that has some begin, and how many they are."""
    starts = run_starts(matrix.flat_rows())
    return starts, np.diff(np.append(starts, len(matrix.values)))


@register_kernel("SparseMatrixSoftmax", dtypes={"type": {types.float32, types.float64}})
def csr_softmax(c: OpKernelConstruction) -> Kernel:
    """The softmax of the elements of each row, among themselves."""
    dtype = c.attr("type")

    def kernel(value: object) -> CSRMatrix:
        matrix = require_csr(value, "logits", dtype)
        if not len(matrix.values):
            return matrix
        starts, lengths = _row_runs(matrix)
        powers = np.exp(matrix.values - np.repeat(np.maximum.reduceat(matrix.values, starts), lengths))
        return matrix.with_values(powers / np.repeat(np.add.reduceat(powers, starts), lengths))

    return kernel


@register_kernel("SparseMatrixSoftmaxGrad", dtypes={"type": {types.float32, types.float64}})
def csr_softmax_grad(c: OpKernelConstruction) -> Kernel:
    """The gradient of the logits, at the elements of the softmax."""
    dtype = c.attr("type")

    def kernel(softmax: object, gradient: object) -> CSRMatrix:
        matrix, given = require_csr(softmax, "softmax", dtype), require_csr(gradient, "grad_softmax", dtype)
        if matrix.shape != given.shape:
            raise InvalidArgumentError(f"softmax and grad_softmax differ: {list(matrix.shape)}, {list(given.shape)}")
        spread = csr_add(matrix.with_values(np.zeros_like(matrix.values)), given)
        if len(spread.values) != len(matrix.values):
            raise InvalidArgumentError("grad_softmax has elements where softmax has none")
        if not len(matrix.values):
            return matrix
        ordered = csr_of_indices(*_in_order(matrix), matrix.shape)
        starts, lengths = _row_runs(ordered)
        products = np.add.reduceat(ordered.values * spread.values, starts)
        return ordered.with_values((spread.values - np.repeat(products, lengths)) * ordered.values)

    return kernel


def _in_order(matrix: CSRMatrix) -> tuple[Any, Any]:
    indices = matrix.indices()
    order = np.lexsort(indices.T[::-1])
    return indices[order], matrix.values[order]
