"""Inverses, determinants and solutions of linear equations (``tensorflow/core/ops/linalg_ops.cc``).

Everything works on the last two dimensions; what stands before them is the batch.  A matrix that has no solution is an
InvalidArgumentError or gives NaN, whichever TensorFlow's CPU kernel of the op does.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.extras import require
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction, as_value, as_values
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.types import complex64, complex128, float16, float32, float64
from asyncexec.ops.linalg.linalg_shapes import (
    determinant_shape,
    solve_ls_shape,
    solve_shape,
    square_matrices,
    triangular_solve_shape,
)

_T: Final = "T: {float64, float32, float16, complex64, complex128}"
DTYPES: Final = (float32, float64, complex64, complex128)

register_op("Cholesky", "input: T -> output: T", _T, shape=square_matrices)
register_op("MatrixInverse", "input: T -> output: T", f"adjoint: bool = False; {_T}", shape=square_matrices)
register_op("MatrixDeterminant", "input: T -> output: T", _T, shape=determinant_shape)
register_op("LogMatrixDeterminant", "input: T -> sign: T, log_abs_determinant: T", _T, shape=determinant_shape)
register_op("MatrixSolve", "matrix: T, rhs: T -> output: T", f"adjoint: bool = False; {_T}", shape=solve_shape)
register_op(
    "MatrixTriangularSolve",
    "matrix: T, rhs: T -> output: T",
    "lower: bool = True; adjoint: bool = False; T: {bfloat16, float64, float32, float16, complex64, complex128}",
    shape=triangular_solve_shape,
)
register_op(
    "MatrixSolveLs",
    "matrix: T, rhs: T, l2_regularizer: float64 -> output: T",
    f"{_T}; fast: bool = True",
    shape=solve_ls_shape,
)


def check_square(matrix: Array) -> None:
    """InvalidArgumentError unless *matrix* is a batch of square matrices."""
    shape = np.shape(matrix)
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise InvalidArgumentError(f"Input matrix must be square, but is of shape {list(shape)}")


def adjoint(matrix: Array) -> Array:
    """The conjugate transpose of each matrix."""
    return matrix.swapaxes(-1, -2).conj()


def in_batches(function: Kernel, matrix: Array, rhs: Array, shape: tuple[int, ...]) -> Array:
    """*function* of each matrix with its right-hand sides, the batches broadcast; the results are of *shape*."""
    batch = shape[:-2]
    result = np.empty(shape, matrix.dtype)
    matrices = np.broadcast_to(matrix, batch + matrix.shape[-2:])
    sides = np.broadcast_to(rhs, batch + rhs.shape[-2:])
    for index in np.ndindex(batch):
        result[index] = function(matrices[index], sides[index])
    return result


def broadcast_batch(matrix: Array, rhs: Array) -> tuple[int, ...]:
    """The batch shape that both broadcast to."""
    try:
        return np.broadcast_shapes(matrix.shape[:-2], rhs.shape[:-2])
    except ValueError:
        raise InvalidArgumentError(
            f"The batch dimensions do not broadcast: {list(matrix.shape)} vs. {list(rhs.shape)}"
        ) from None


@register_kernel("Cholesky", kind=KernelKind.EXPENSIVE, dtypes={"T": DTYPES})
def cholesky(_: OpKernelConstruction) -> Kernel:
    """The lower factor, NaN for a matrix that has none; only the lower triangle of the input is read."""

    def kernel(matrix: Array) -> ArrayOrScalar:
        check_square(matrix)
        try:
            return np.linalg.cholesky(matrix)
        except np.linalg.LinAlgError:
            return _cholesky_or_nan(matrix)

    return kernel


def _cholesky_or_nan(matrix: Any) -> ArrayOrScalar:
    result = np.empty(matrix.shape, matrix.dtype)
    for index in np.ndindex(matrix.shape[:-2]):
        try:
            result[index] = np.linalg.cholesky(matrix[index])
        except np.linalg.LinAlgError:
            result[index] = np.tril(np.full(matrix.shape[-2:], np.nan, matrix.dtype))
    return result


@register_kernel("MatrixInverse", kind=KernelKind.EXPENSIVE, dtypes={"T": (*DTYPES, float16)})
def matrix_inverse(construction: OpKernelConstruction) -> Kernel:
    """The inverse of each matrix, or of its adjoint."""
    is_adjoint, dtype = construction.attr("adjoint"), construction.np_dtype("T")
    work = np.dtype(np.float32) if dtype == np.float16 else dtype

    def kernel(matrix: Array) -> Array:
        check_square(matrix)
        matrix = matrix.astype(work, copy=False)
        try:
            result = np.linalg.inv(adjoint(matrix) if is_adjoint else matrix)
        except np.linalg.LinAlgError:
            raise InvalidArgumentError("Input is not invertible.") from None
        return result.astype(dtype, copy=False)

    return kernel


@register_kernel("MatrixDeterminant", kind=KernelKind.EXPENSIVE, dtypes={"T": DTYPES})
def matrix_determinant(_: OpKernelConstruction) -> Kernel:
    """The determinant of each matrix."""

    def kernel(matrix: Array) -> ArrayOrScalar:
        check_square(matrix)
        return as_value(np.linalg.det(matrix))

    return kernel


@register_kernel("LogMatrixDeterminant", kind=KernelKind.EXPENSIVE, dtypes={"T": DTYPES})
def log_matrix_determinant(construction: OpKernelConstruction) -> Kernel:
    """The sign (or phase) of each determinant and the logarithm of its magnitude."""
    dtype = construction.np_dtype("T")

    def kernel(matrix: Array) -> Any:
        check_square(matrix)
        sign, magnitude = np.linalg.slogdet(matrix)
        return as_values((sign, magnitude.astype(dtype, copy=False)))

    return kernel


@register_kernel("MatrixSolve", kind=KernelKind.EXPENSIVE, dtypes={"T": DTYPES})
def matrix_solve(construction: OpKernelConstruction) -> Kernel:
    """The solution of ``matrix @ x = rhs``, or of ``adjoint(matrix) @ x = rhs``."""
    is_adjoint = construction.attr("adjoint")

    def kernel(matrix: Array, rhs: Array) -> Array:
        check_square(matrix)
        check_rhs(matrix, rhs)
        try:
            return np.linalg.solve(adjoint(matrix) if is_adjoint else matrix, rhs)
        except np.linalg.LinAlgError:
            raise InvalidArgumentError("Input matrix is not invertible.") from None

    return kernel


def check_rhs(matrix: Array, rhs: Array) -> None:
    """InvalidArgumentError unless *rhs* has the batch and the rows of *matrix*."""
    if matrix.ndim < 2 or rhs.shape[:-1] != matrix.shape[:-1]:
        raise InvalidArgumentError(
            f"Input matrix and rhs are incompatible: {list(matrix.shape)} vs. {list(np.shape(rhs))}"
        )


def triangular_solver(construction: OpKernelConstruction) -> Kernel:
    """BLAS's solver of one triangular matrix, by the attrs ``lower`` and ``adjoint``."""
    find = require("scipy.linalg.blas", extra="ops").get_blas_funcs
    (trsm,) = find(("trsm",), dtype=construction.np_dtype("T"))
    is_lower, transposition = construction.attr("lower"), 2 if construction.attr("adjoint") else 0
    return lambda matrix, rhs: trsm(1, matrix, rhs, lower=is_lower, trans_a=transposition)


@register_kernel(
    "MatrixTriangularSolve", kind=KernelKind.EXPENSIVE, dtypes={"T": DTYPES}, libraries=("scipy.linalg.blas",)
)
def matrix_triangular_solve(construction: OpKernelConstruction) -> Kernel:
    """The solution where only one triangle of the matrix counts; a zero on its diagonal gives inf or NaN."""
    solve = triangular_solver(construction)

    def kernel(matrix: Array, rhs: Array) -> Array:
        check_square(matrix)
        if rhs.ndim < 2 or rhs.shape[-2] != matrix.shape[-1]:
            raise InvalidArgumentError(f"Incompatible sizes: {list(matrix.shape)} vs. {list(rhs.shape)}")
        shape = broadcast_batch(matrix, rhs) + rhs.shape[-2:]
        if 0 in shape:
            return np.empty(shape, rhs.dtype)
        return in_batches(solve, matrix, rhs, shape)

    return kernel


@register_kernel("MatrixSolveLs", kind=KernelKind.EXPENSIVE, dtypes={"T": DTYPES})
def matrix_solve_ls(construction: OpKernelConstruction) -> Kernel:
    """Least-squares solutions: by the regularized normal equations when ``fast``, else those of least norm."""
    is_fast = construction.attr("fast")

    def kernel(matrix: Array, rhs: Array, l2_regularizer: Any) -> Array:
        if np.ndim(l2_regularizer) != 0:
            raise InvalidArgumentError(f"l2_regularizer must be scalar, not of shape {list(l2_regularizer.shape)}")
        if not l2_regularizer >= 0:
            raise InvalidArgumentError(f"l2_regularizer must be >= 0, not {l2_regularizer}")
        check_rhs(matrix, rhs)
        shape = (*matrix.shape[:-2], matrix.shape[-1], rhs.shape[-1])
        if matrix.size == 0 or rhs.shape[-1] == 0:
            return np.zeros(shape, matrix.dtype)
        if is_fast:
            return _normal_equations(matrix, rhs, l2_regularizer)
        return in_batches(_least_norm, matrix, rhs, shape)

    return kernel


def _least_norm(matrix: Array, rhs: Array) -> Array:
    if not (np.isfinite(matrix).all() and np.isfinite(rhs).all()):  # LAPACK may never come to an end with it
        return np.full((matrix.shape[1], rhs.shape[1]), np.nan, matrix.dtype)
    return np.linalg.lstsq(matrix, rhs)[0]


def _normal_equations(matrix: Array, rhs: Array, l2_regularizer: np.generic) -> Array:
    rows, columns = matrix.shape[-2:]
    transposed = adjoint(matrix)
    is_tall = rows >= columns
    gram = transposed @ matrix if is_tall else matrix @ transposed
    gram = gram + np.eye(min(rows, columns), dtype=matrix.dtype) * matrix.dtype.type(l2_regularizer)
    try:
        np.linalg.cholesky(gram)
        return np.linalg.solve(gram, transposed @ rhs) if is_tall else transposed @ np.linalg.solve(gram, rhs)
    except np.linalg.LinAlgError:
        raise InvalidArgumentError(
            "Input matrix was rank deficient or ill-conditioned.",
            hint="set fast=False or give a larger l2_regularizer > 0",
        ) from None
