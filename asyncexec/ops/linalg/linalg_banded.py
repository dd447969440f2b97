"""Solutions and products with banded and tridiagonal matrices (``tensorflow/core/ops/linalg_ops.cc``)."""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.extras import require
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.ops.linalg.linalg import DTYPES, broadcast_batch, in_batches
from asyncexec.ops.linalg.linalg_shapes import banded_solve_shape, tridiagonal_matmul_shape, tridiagonal_solve_shape

register_op(
    "TridiagonalSolve",
    "diagonals: T, rhs: T -> output: T",
    "partial_pivoting: bool = True; perturb_singular: bool = False; T: {float64, float32, complex64, complex128}",
    shape=tridiagonal_solve_shape,
)
register_op(
    "TridiagonalMatMul",
    "superdiag: T, maindiag: T, subdiag: T, rhs: T -> output: T",
    "T: {float64, float32, complex64, complex128}",
    shape=tridiagonal_matmul_shape,
)
register_op(
    "BandedTriangularSolve",
    "matrix: T, rhs: T -> output: T",
    "lower: bool = True; adjoint: bool = False; T: {float64, float32, float16, complex64, complex128}",
    shape=banded_solve_shape,
)


@register_kernel("TridiagonalSolve", kind=KernelKind.EXPENSIVE, dtypes={"T": DTYPES}, libraries=("scipy.linalg",))
def tridiagonal_solve(construction: OpKernelConstruction) -> Kernel:
    """The solution for diagonals [..., 3, M] (above, on and below the main one); NaN where there is none.

    ``perturb_singular`` counts on GPUs only.
    """
    if construction.attr("perturb_singular") and not construction.attr("partial_pivoting"):
        raise InvalidArgumentError("Setting perturb_singular requires also setting partial_pivoting.")
    solve = _pivoted() if construction.attr("partial_pivoting") else _thomas

    def kernel(diagonals: Array, rhs: Array) -> Array:
        if (
            min(diagonals.ndim, rhs.ndim) < 2
            or diagonals.shape[:-2] != rhs.shape[:-2]
            or diagonals.shape[-2:] != (3, rhs.shape[-2])
        ):
            raise InvalidArgumentError(
                f"Expected diagonals [..., 3, M] and rhs [..., M, K], got {list(diagonals.shape)}, {list(rhs.shape)}"
            )
        return in_batches(solve, diagonals, rhs, rhs.shape) if rhs.size else np.empty(rhs.shape, rhs.dtype)

    return kernel


def _pivoted() -> Kernel:
    solve_banded = require("scipy.linalg", extra="ops").solve_banded

    def solve(diagonals: Array, rhs: Array) -> Array:
        above, main, below = diagonals
        if len(main) == 1:
            return _thomas(diagonals, rhs)
        bands = np.array([np.roll(above, 1), main, np.roll(below, -1)])
        try:
            return solve_banded((1, 1), bands, rhs, overwrite_ab=True, check_finite=False)
        except (np.linalg.LinAlgError, ZeroDivisionError):
            return np.full_like(rhs, np.nan)

    return solve


def _thomas(diagonals: Array, rhs: Array) -> Array:
    """Elimination without pivoting; a pivot of zero gives NaN, though the matrix may be invertible."""
    above, main, below = diagonals
    size = len(main)
    factors, result = np.zeros_like(main), np.empty_like(rhs)
    for row in range(size):
        pivot = main[row] - (below[row] * factors[row - 1] if row else 0)
        if pivot == 0:
            return np.full_like(rhs, np.nan)
        factors[row] = above[row] / pivot
        result[row] = (rhs[row] - (below[row] * result[row - 1] if row else 0)) / pivot
    for row in range(size - 2, -1, -1):
        result[row] -= factors[row] * result[row + 1]
    return result


@register_kernel("TridiagonalMatMul", dtypes={"T": DTYPES})
def tridiagonal_matmul(_: OpKernelConstruction) -> Kernel:
    """The product of a tridiagonal matrix, given by its diagonals [..., 1, M], and rhs [..., M, N]."""

    def kernel(above: Any, main: Any, below: Any, rhs: Array) -> ArrayOrScalar:
        for diagonal in (above, main, below):
            if rhs.ndim < 2 or diagonal.shape != (*rhs.shape[:-2], 1, rhs.shape[-2]):
                raise InvalidArgumentError(
                    f"Expected a diagonal [..., 1, M] for rhs {list(rhs.shape)}, got {list(diagonal.shape)}"
                )
        columns = [diagonal.swapaxes(-1, -2) for diagonal in (above, main, below)]
        result = columns[1] * rhs
        result[..., :-1, :] += columns[0][..., :-1, :] * rhs[..., 1:, :]
        result[..., 1:, :] += columns[2][..., 1:, :] * rhs[..., :-1, :]
        return result

    return kernel


@register_kernel(
    "BandedTriangularSolve", kind=KernelKind.EXPENSIVE, dtypes={"T": DTYPES}, libraries=("scipy.linalg.lapack",)
)
def banded_triangular_solve(construction: OpKernelConstruction) -> Kernel:
    """The solution for a triangular matrix given by its bands [..., K, M]."""
    is_lower, transposition = construction.attr("lower"), "C" if construction.attr("adjoint") else "N"
    find = require("scipy.linalg.lapack", extra="ops").get_lapack_funcs
    (tbtrs,) = find(("tbtrs",), dtype=construction.np_dtype("T"))

    def solve(bands: object, rhs: object) -> object:
        found, _ = tbtrs(_by_columns(bands, is_lower), rhs, uplo="L" if is_lower else "U", trans=transposition)
        return found

    def kernel(matrix: Array, rhs: Array) -> Array:
        _check_bands(matrix, rhs)
        shape = broadcast_batch(matrix, rhs) + rhs.shape[-2:]
        if 0 in shape:
            return np.empty(shape, rhs.dtype)
        if not matrix[..., 0 if is_lower else -1, :].all():
            raise InvalidArgumentError("Input matrix is not invertible.")
        return in_batches(solve, matrix, rhs, shape)

    return kernel


def _check_bands(matrix: Array, rhs: Array) -> None:
    if min(matrix.ndim, rhs.ndim) < 2 or matrix.shape[-1] != rhs.shape[-2]:
        raise InvalidArgumentError(f"Expected [..., K, M] and [..., M, N], got {list(matrix.shape)}, {list(rhs.shape)}")
    if not 1 <= matrix.shape[-2] <= matrix.shape[-1]:
        raise InvalidArgumentError(f"The number of bands must be in [1, {matrix.shape[-1]}], not {matrix.shape[-2]}")


def _by_columns(bands: Any, is_lower: bool) -> Array:
    """*bands*, each cell of which stands at its row of the matrix, with each at its column (as LAPACK has them)."""
    count = len(bands)
    shifts = [-band if is_lower else count - 1 - band for band in range(count)]
    return np.array([np.roll(band, shift) for band, shift in zip(bands, shifts, strict=True)])
