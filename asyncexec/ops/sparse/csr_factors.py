"""Decompositions of sparse matrices by rows (``sparse_cholesky_op.cc``, ``sparse_ordering_amd_op.cc``).

They are SuperLU's, without pivots.  Its minimum degree ordering is another one than TensorFlow's, with as little
fill-in.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.extras import require
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction, as_value
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import scalars, unknown
from asyncexec.ops.sparse.csr_matrix import CSRMatrix, map_parts, require_csr, scipy_parts

_TYPES: Final = "{complex128, complex64, float32, float64}"
_FLOATS: Final = frozenset({types.float32, types.float64, types.complex64, types.complex128})

register_op("SparseMatrixOrderingAMD", "input: variant -> output: int32", shape=unknown)
register_op(
    "SparseMatrixSparseCholesky",
    "input: variant, permutation: int32 -> output: variant",
    f"type: {_TYPES}",
    shape=scalars,
)


def _check_square(matrix: CSRMatrix) -> int:
    if matrix.shape[-1] != matrix.shape[-2]:
        raise InvalidArgumentError(f"sparse matrix must be square; got: {matrix.shape[-2]} != {matrix.shape[-1]}")
    return matrix.rows


def _factors(matrix: Any, ordering: str) -> Any:
    """SuperLU's decomposition of a matrix that is symmetric, or Hermitian, and needs no pivots."""
    splu = require("scipy.sparse.linalg", extra="ops").splu
    return splu(matrix.tocsc(), permc_spec=ordering, diag_pivot_thresh=0.0, options={"SymmetricMode": True})


@register_kernel("SparseMatrixOrderingAMD", kind=KernelKind.EXPENSIVE, libraries=("scipy.sparse",))
def csr_ordering(c: OpKernelConstruction) -> Kernel:
    """For each matrix, the order of its rows that a decomposition fills in least."""
    sparse = require("scipy.sparse", extra="ops")

    def order_of(part: Any) -> ArrayOrScalar:
        pattern = sparse.csr_array((np.ones(len(part.data)), part.indices, part.indptr), shape=part.shape)
        links = pattern + pattern.T
        links.data[:] = -1
        dominant = links + sparse.diags_array(np.diff(links.indptr) + 2.0)
        return np.argsort(_factors(dominant, "MMD_AT_PLUS_A").perm_c)

    def kernel(value: object) -> ArrayOrScalar:
        matrix = require_csr(value, "input")
        size = _check_square(matrix)
        orders = [order_of(part) for part in scipy_parts(matrix)] if size else []
        return as_value(np.array(orders, np.int32).reshape(*matrix.shape[:-2], size))

    return kernel


@register_kernel(
    "SparseMatrixSparseCholesky", kind=KernelKind.EXPENSIVE, dtypes={"type": _FLOATS}, libraries=("scipy.sparse",)
)
def csr_cholesky(c: OpKernelConstruction) -> Kernel:
    """The lower factor of each matrix, of which the lower half is read, with rows and columns in another order."""
    dtype = c.attr("type")
    sparse = require("scipy.sparse", extra="ops")

    def factor(number: int, part: object, order: Array) -> Any:
        lower = sparse.tril(part, format="csr")
        whole = lower + sparse.tril(part, -1, format="csr").conj().T
        failed = f"Sparse Cholesky factorization failed for batch index {number}. The input might not be valid."
        if sorted(order.tolist()) != list(range(len(order))):
            raise InvalidArgumentError(f"{failed} permutation is none: {order.tolist()[:16]}")
        try:
            found = _factors(whole[order][:, order], "NATURAL")
        except RuntimeError as error:  # a factor is exactly singular
            raise InvalidArgumentError(failed) from error
        pivots = found.U.diagonal()
        if (found.perm_r != np.arange(len(order))).any() or not (pivots.real > 0).all():
            raise InvalidArgumentError(failed)
        scaled = (found.L @ sparse.diags_array(np.sqrt(pivots.real))).tocsr()
        scaled.eliminate_zeros()
        return scaled

    def kernel(value: object, permutation: Array) -> CSRMatrix:
        matrix = require_csr(value, "input", dtype)
        size = _check_square(matrix)
        if np.shape(permutation) != matrix.shape[:-1]:
            raise InvalidArgumentError(
                "permutation must have the same number of elements in each batch as the number of rows in sparse "
                f"matrix; got: {list(np.shape(permutation))} for {list(matrix.shape)}"
            )
        if not size:
            return matrix
        orders = permutation.reshape(-1, size)
        return map_parts(matrix, lambda number, part: factor(number, part, orders[number]), (size, size))

    return kernel
