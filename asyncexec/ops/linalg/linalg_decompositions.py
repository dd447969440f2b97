"""Decompositions and functions of matrices (``tensorflow/core/ops/linalg_ops.cc``).

Signs and phases of singular and eigenvectors, and the order of the eigenvalues of ``Eig``, are LAPACK's: mathematics
leaves them free.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar, NumpyDType
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.extras import require
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.types import complex64, complex128, float16
from asyncexec.ops.linalg.linalg import DTYPES, check_square
from asyncexec.ops.linalg.linalg_shapes import eig_shape, lu_shape, qr_shape, square_matrices, svd_shape

_T: Final = "T: {float64, float32, float16, complex64, complex128}"
_EXPENSIVE: Final = KernelKind.EXPENSIVE
_NEAR_ONE: Final = 0.25  # how far from the identity the approximant of a logarithm is good
_POINTS: Final = 8
_MAX_ROOTS: Final = 100
_ROUNDING: Final = 1e-7

register_op("Qr", "input: T -> q: T, r: T", f"full_matrices: bool = False; {_T}", shape=qr_shape)
register_op(
    "Svd",
    "input: T -> s: T, u: T, v: T",
    f"compute_uv: bool = True; full_matrices: bool = False; {_T}",
    shape=svd_shape,
)
register_op("SelfAdjointEigV2", "input: T -> e: T, v: T", f"compute_v: bool = True; {_T}", shape=eig_shape)
register_op(
    "Eig",
    "input: T -> e: Tout, v: Tout",
    "compute_v: bool = True; T: {float32, float64, complex64, complex128}; Tout: {complex64, complex128}",
    shape=eig_shape,
)
register_op(
    "Lu",
    "input: T -> lu: T, p: output_idx_type",
    f"{_T}; output_idx_type: {{int32, int64}} = int32",
    shape=lu_shape,
)
register_op("MatrixSquareRoot", "input: T -> output: T", _T, shape=square_matrices)
register_op("MatrixLogarithm", "input: T -> output: T", "T: {complex64, complex128}", shape=square_matrices)


def _check_matrix(matrix: Array) -> None:
    if matrix.ndim < 2:
        raise InvalidArgumentError(f"Input must be at least of rank 2, but is of shape {list(matrix.shape)}")


@register_kernel("Qr", kind=_EXPENSIVE, dtypes={"T": (*DTYPES, float16)})
def qr(construction: OpKernelConstruction) -> Kernel:
    """Q and R of each matrix."""
    mode: Literal["complete", "reduced"] = "complete" if construction.attr("full_matrices") else "reduced"
    dtype = construction.np_dtype("T")
    work = np.dtype(np.float32) if dtype == np.float16 else dtype

    def kernel(matrix: Array) -> Any:
        _check_matrix(matrix)
        q, r = np.linalg.qr(matrix.astype(work, copy=False), mode=mode)
        return q.astype(dtype, copy=False), r.astype(dtype, copy=False)

    return kernel


@register_kernel("Svd", kind=_EXPENSIVE, dtypes={"T": DTYPES})
def svd(construction: OpKernelConstruction) -> Kernel:
    """Singular values from the largest down, and the singular vectors as columns of U and V."""
    has_vectors, is_full = construction.attr("compute_uv"), construction.attr("full_matrices")
    dtype = construction.np_dtype("T")

    def kernel(matrix: Any) -> object:
        _check_matrix(matrix)
        # Of what is not finite TensorFlow gives NaNs; LAPACK may never come to an end with it.
        is_bad = ~np.isfinite(matrix).all(axis=(-2, -1))
        finite = np.where(is_bad[..., None, None], matrix.dtype.type(0), matrix) if is_bad.any() else matrix
        try:
            if not has_vectors:
                none = np.empty(0, dtype)
                return _spoilt(np.linalg.svd(finite, compute_uv=False).astype(dtype, copy=False), is_bad), none, none
            u, s, vh = np.linalg.svd(finite, full_matrices=is_full)
        except np.linalg.LinAlgError:
            raise InvalidArgumentError("The singular value decomposition did not converge.") from None
        v = vh.swapaxes(-1, -2).conj()
        return _spoilt(s.astype(dtype, copy=False), is_bad), _spoilt(u, is_bad), _spoilt(v, is_bad)

    return kernel


def _spoilt(values: Array, is_bad: Any) -> Array:
    """*values*, of a batch of matrices, with NaNs for those that are bad."""
    if is_bad.any():
        values = values.copy()
        values[is_bad] = np.nan
    return values


@register_kernel("SelfAdjointEigV2", kind=_EXPENSIVE, dtypes={"T": DTYPES})
def self_adjoint_eig(construction: OpKernelConstruction) -> Kernel:
    """Eigenvalues from the smallest up, and eigenvectors; only the lower triangle is read."""
    both, values_only = _of_finite(np.linalg.eigh), _of_finite(np.linalg.eigvalsh)
    return _eig(construction, both, values_only, construction.np_dtype("T"))


def _of_finite(function: Kernel) -> Kernel:
    """*function* of matrices whose lower triangles are finite; LinAlgError of others."""

    def kernel(matrix: Array) -> Any:
        if not np.isfinite(np.tril(matrix)).all():
            raise np.linalg.LinAlgError
        return function(matrix)

    return kernel


@register_kernel("Eig", kind=_EXPENSIVE, dtypes={"T": DTYPES})
def eig(construction: OpKernelConstruction) -> Kernel:
    """Complex eigenvalues and eigenvectors, in as many bits as the input has."""
    dtype, found = construction.np_dtype("Tout"), construction.np_dtype("T")
    if dtype != np.result_type(found, np.complex64):
        raise InvalidArgumentError(f"Tout of Eig must be the complex type of T, {found}, and not {dtype}")
    return _eig(construction, np.linalg.eig, np.linalg.eigvals, dtype)


def _eig(construction: OpKernelConstruction, both: Any, values_only: Any, dtype: NumpyDType) -> Kernel:
    has_vectors = construction.attr("compute_v")

    def kernel(matrix: Array) -> Any:
        check_square(matrix)
        try:
            if not has_vectors:
                return values_only(matrix).astype(dtype, copy=False), np.empty(0, dtype)
            values, vectors = both(matrix)
        except np.linalg.LinAlgError:
            raise InvalidArgumentError("Eigendecomposition was not successful. The input might not be valid.") from None
        return values.astype(dtype, copy=False), vectors.astype(dtype, copy=False)

    return kernel


@register_kernel("Lu", kind=_EXPENSIVE, dtypes={"T": DTYPES}, libraries=("scipy.linalg.lapack",))
def lu(construction: OpKernelConstruction) -> Kernel:
    """Both factors packed into one matrix, and the row that each row of the product comes from."""
    index_dtype = construction.np_dtype("output_idx_type")
    factor = _eliminate if construction.attr("T").is_complex else _lapack_lu(construction.np_dtype("T"))

    def kernel(matrix: Array) -> Any:
        check_square(matrix)
        packed = np.empty_like(matrix)
        rows = np.empty(matrix.shape[:-1], index_dtype)
        if matrix.size:
            for index in np.ndindex(matrix.shape[:-2]):
                packed[index], rows[index] = factor(matrix[index])
        if not np.diagonal(packed, axis1=-2, axis2=-1).all():
            raise InvalidArgumentError("Input is not invertible.")
        return packed, rows

    return kernel


def _lapack_lu(dtype: NumpyDType) -> Kernel:
    (getrf,) = require("scipy.linalg.lapack", extra="ops").get_lapack_funcs(("getrf",), dtype=dtype)

    def factor(matrix: object) -> Any:
        packed, swaps, _ = getrf(matrix)
        return packed, _permutation(swaps)

    return factor


def _eliminate(matrix: Array) -> tuple[object, object]:
    """The factors of a complex matrix: pivots are largest in magnitude (LAPACK takes |re| + |im| instead)."""
    packed, order = matrix.copy(), np.arange(len(matrix))
    for column in range(len(matrix)):
        pivot = column + int(np.argmax(np.abs(packed[column:, column])))
        packed[[column, pivot]], order[[column, pivot]] = packed[[pivot, column]], order[[pivot, column]]
        if packed[column, column] != 0:
            packed[column + 1 :, column] /= packed[column, column]
        below = packed[column + 1 :, column, None]
        packed[column + 1 :, column + 1 :] -= below * packed[column, column + 1 :]
    return packed, order


def _permutation(swaps: Array) -> list[int]:
    """The order of the rows after LAPACK's *swaps*, made one after the other."""
    order = list(range(len(swaps)))
    for row, other in enumerate(swaps):
        order[row], order[other] = order[other], order[row]
    return order


@register_kernel("MatrixSquareRoot", kind=_EXPENSIVE, dtypes={"T": DTYPES})
def matrix_square_root(construction: OpKernelConstruction) -> Kernel:
    """The principal square root of each matrix."""
    return _function_of_matrices(construction, _square_root)


@register_kernel("MatrixLogarithm", kind=_EXPENSIVE, dtypes={"T": (complex64, complex128)})
def matrix_logarithm(construction: OpKernelConstruction) -> Kernel:
    """The principal logarithm of each matrix."""
    return _function_of_matrices(construction, _logarithm)


def _square_root(upper: Array) -> Array:
    """The square root of an upper triangular matrix, column by column; LinAlgError where there is none.

    Björck and Hammarling (1983): of ``R R = T``, column j of R above the diagonal solves a triangular system.
    """
    solve = require("scipy.linalg", extra="ops").solve_triangular
    root = np.zeros_like(upper)
    for j, corner in enumerate(np.sqrt(np.diag(upper))):
        if j:
            root[:j, j] = solve(root[:j, :j] + corner * np.eye(j), upper[:j, j])
        root[j, j] = corner
    return root


def _logarithm(upper: Array) -> Array:
    """The logarithm of an upper triangular matrix; LinAlgError or ValueError where there is none.

    Kenney and Laub (1989): square roots are taken until what is left is near the identity, where the Padé approximant
    is good, here as partial fractions by Gauss and Legendre's rule.  It ends also where scipy's ``logm`` does not.
    """
    solve = require("scipy.linalg", extra="ops").solve_triangular
    one = np.eye(len(upper))
    root, halvings = upper, 0
    while np.abs(root - one).sum(0).max() > _NEAR_ONE:
        if halvings == _MAX_ROOTS:
            raise np.linalg.LinAlgError
        root, halvings = _square_root(root), halvings + 1
    rest = root - one
    points, weights = np.polynomial.legendre.leggauss(_POINTS)
    parts = [
        weight / 2 * solve(one + (point + 1) / 2 * rest, rest) for point, weight in zip(points, weights, strict=True)
    ]
    total: Any = np.sum(parts, axis=0) * 2.0**halvings
    np.fill_diagonal(total, np.log(np.diag(upper)))
    return total


def _of_matrix(function: Callable[[Any], object], matrix: object) -> Array | float:
    """*function*, of upper triangular matrices, of *matrix*: not a number where it has none."""
    try:
        upper, basis = require("scipy.linalg", extra="ops").schur(matrix, output="complex")
        return basis @ function(upper) @ basis.conj().T
    except (ValueError, np.linalg.LinAlgError):
        return np.nan


def _real(value: ArrayOrScalar | float) -> Array | float:
    """*value* as a real matrix: not a number, where it is none but for rounding."""
    is_real = np.abs(np.imag(value)).max() <= _ROUNDING * np.abs(value).max()
    return np.real(value) if is_real else np.nan


def _function_of_matrices(construction: OpKernelConstruction, function: Callable[[Any], object]) -> Kernel:
    dtype = construction.np_dtype("T")
    wide = np.result_type(dtype, np.float64)

    def kernel(matrix: Array) -> Array:
        check_square(matrix)
        result = np.empty(matrix.shape, dtype)
        for index in np.ndindex(matrix.shape[:-2] if matrix.size else (0,)):
            value = _of_matrix(function, matrix[index].astype(wide))
            result[index] = value if dtype.kind == "c" else _real(value)
        return result

    return kernel
