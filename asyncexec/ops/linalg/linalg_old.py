"""Matrix ops that graphs of old producers have: those named Batch*, gradients of Cholesky factors, exponentials.

They do what the ops of today do for batches of matrices (``tensorflow/core/ops/linalg_ops.cc``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.extras import require
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_function, register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import float32, float64
from asyncexec.ops.linalg.linalg import (
    DTYPES,
    adjoint,
    check_square,
    cholesky,
    matrix_determinant,
    matrix_inverse,
    matrix_solve,
    matrix_solve_ls,
    matrix_triangular_solve,
)
from asyncexec.ops.linalg.linalg_decompositions import self_adjoint_eig, svd
from asyncexec.ops.linalg.linalg_shapes import (
    determinant_shape,
    eig_shape,
    solve_ls_shape,
    solve_shape,
    square,
    square_matrices,
    svd_shape,
    triangular_solve_shape,
)

_EXPENSIVE: Final = KernelKind.EXPENSIVE
_REAL: Final = (float32, float64)
_WIDE: Final = "T: {float32, float64}"
_ANY: Final = "T: {complex128, complex64, float32, float64}"

register_op("BatchCholesky", "input: T -> output: T", _WIDE, shape=square_matrices)
register_kernel("BatchCholesky", kind=_EXPENSIVE, dtypes={"T": _REAL})(cholesky)
register_op("BatchMatrixDeterminant", "input: T -> output: T", _ANY, shape=determinant_shape)
register_kernel("BatchMatrixDeterminant", kind=_EXPENSIVE, dtypes={"T": DTYPES})(matrix_determinant)
register_op("BatchMatrixInverse", "input: T -> output: T", f"adjoint: bool = False; {_WIDE}", shape=square_matrices)
register_kernel("BatchMatrixInverse", kind=_EXPENSIVE, dtypes={"T": _REAL})(matrix_inverse)
register_op("BatchMatrixSolve", "matrix: T, rhs: T -> output: T", f"adjoint: bool = False; {_WIDE}", shape=solve_shape)
register_kernel("BatchMatrixSolve", kind=_EXPENSIVE, dtypes={"T": _REAL})(matrix_solve)
register_op(
    "BatchMatrixSolveLs",
    "matrix: T, rhs: T, l2_regularizer: float64 -> output: T",
    f"{_WIDE}; fast: bool = True",
    shape=solve_ls_shape,
)
register_kernel("BatchMatrixSolveLs", kind=_EXPENSIVE, dtypes={"T": _REAL})(matrix_solve_ls)
register_op(
    "BatchMatrixTriangularSolve",
    "matrix: T, rhs: T -> output: T",
    f"lower: bool = True; adjoint: bool = False; {_WIDE}",
    shape=triangular_solve_shape,
)
register_kernel("BatchMatrixTriangularSolve", kind=_EXPENSIVE, dtypes={"T": _REAL}, libraries=("scipy.linalg.blas",))(
    matrix_triangular_solve
)
register_op("BatchSelfAdjointEigV2", "input: T -> e: T, v: T", f"compute_v: bool = True; {_WIDE}", shape=eig_shape)
register_kernel("BatchSelfAdjointEigV2", kind=_EXPENSIVE, dtypes={"T": _REAL})(self_adjoint_eig)
register_op(
    "BatchSvd",
    "input: T -> s: T, u: T, v: T",
    f"compute_uv: bool = True; full_matrices: bool = False; {_ANY}",
    shape=svd_shape,
)
register_kernel("BatchSvd", kind=_EXPENSIVE, dtypes={"T": DTYPES})(svd)


def _eig_rows_shape(c: InferenceContext) -> Sequence[TensorShape]:
    shape = square(c.input(0))
    if shape.dims is None:
        return [shape]
    size = shape.dims[-1]
    return [TensorShape([*shape.dims[:-2], None if size is None else size + 1, size])]


register_op("SelfAdjointEig", "input: T -> output: T", "T: {float16, float32, float64}", shape=_eig_rows_shape)
register_op("BatchSelfAdjointEig", "input: T -> output: T", _WIDE, shape=_eig_rows_shape)


def self_adjoint_eig_rows(matrix: Any) -> ArrayOrScalar:
    """The eigenvalues as a row, and below it the eigenvectors as columns."""
    check_square(matrix)
    try:
        values, vectors = np.linalg.eigh(matrix)
    except np.linalg.LinAlgError:
        raise InvalidArgumentError("Eigendecomposition was not successful. The input might not be valid.") from None
    return np.concatenate((values[..., None, :], vectors), axis=-2)


register_function(
    "SelfAdjointEig", "BatchSelfAdjointEig", function=self_adjoint_eig_rows, kind=_EXPENSIVE, dtypes={"T": _REAL}
)


def _gradient_shape(c: InferenceContext) -> Sequence[TensorShape]:
    return [square(c.input(0)).merge_with(square(c.input(1)))]


register_op("CholeskyGrad", "l: T, grad: T -> output: T", "T: {float16, float32, float64}", shape=_gradient_shape)
register_op("BatchCholeskyGrad", "l: T, grad: T -> output: T", _WIDE, shape=_gradient_shape)


def cholesky_grad(factor: Array, gradient: ArrayOrScalar) -> ArrayOrScalar:
    """The gradient of matrices, symmetric ones, given that of their lower factors (I. Murray, 2016)."""
    check_square(factor)
    if factor.shape != gradient.shape:
        raise InvalidArgumentError(f"l and grad must be of one shape: {list(factor.shape)}, {list(gradient.shape)}")
    lower = np.tril(factor)
    inner = np.tril(adjoint(lower) @ np.tril(gradient))
    diagonal = np.arange(factor.shape[-1])
    inner[..., diagonal, diagonal] /= 2
    try:
        half = np.linalg.solve(adjoint(lower), inner)
        found = adjoint(np.linalg.solve(adjoint(lower), adjoint(half)))
    except np.linalg.LinAlgError:
        return np.full_like(factor, np.nan)
    return (found + adjoint(found)) / 2


register_function("CholeskyGrad", "BatchCholeskyGrad", function=cholesky_grad, kind=_EXPENSIVE, dtypes={"T": _REAL})

register_op(
    "MatrixExponential",
    "input: T -> output: T",
    "T: {complex128, complex64, float16, float32, float64}",
    shape=square_matrices,
)


@register_kernel("MatrixExponential", kind=_EXPENSIVE, dtypes={"T": DTYPES}, libraries=("scipy.linalg",))
def matrix_exponential(_: OpKernelConstruction) -> Kernel:
    """The exponential of each matrix."""
    expm = require("scipy.linalg", extra="ops").expm

    def kernel(matrix: Any) -> ArrayOrScalar:
        check_square(matrix)
        if not matrix.size:
            return matrix
        bad = ~np.isfinite(matrix).all(axis=(-1, -2))
        found = expm(np.where(bad[..., None, None], 0, matrix)).astype(matrix.dtype, copy=False)
        found[bad] = np.nan
        return found

    return kernel
