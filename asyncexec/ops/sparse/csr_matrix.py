"""Sparse matrices by rows, and batches of them, as values of dtype variant (``sparse/sparse_matrix.h``)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.extras import require
from asyncexec.framework.types import DType, as_dtype
from asyncexec.framework.variant_ops import register_variant_ops
from asyncexec.ops.array.array_common import check_memory, zeros
from asyncexec.ops.sparse.sparse_tensor import merge_rows, values_at

_MOST_INT32 = 2**31 - 1


@dataclass(frozen=True, slots=True, eq=False)
class CSRMatrix:
    """A matrix, or a batch of matrices of one shape.

    The elements of a row are in the order in which they were given.

    Attributes:
        shape: of two dimensions, or of three with the batch first.
        row_pointers: for each matrix where its rows begin among its elements, and how many these are.
        columns: of all elements, matrix by matrix.
        values: of all elements.
    """

    shape: tuple[int, ...]
    row_pointers: Any
    columns: Any
    values: Any

    @property
    def batch(self) -> int:
        """How many matrices there are."""
        return len(self.row_pointers)

    @property
    def rows(self) -> int:
        """The rows of one of them."""
        return self.shape[-2]

    @property
    def dtype(self) -> DType:
        """The dtype of the values."""
        return as_dtype(self.values.dtype)

    @property
    def counts(self) -> Any:
        """How many elements each matrix has."""
        return self.row_pointers[:, -1]

    def part(self, index: int) -> tuple[Any, Any, Any]:
        """Row pointers, columns and values of one matrix."""
        begin = int(self.counts[:index].sum(dtype=np.int64))
        place = slice(begin, begin + int(self.counts[index]))
        return self.row_pointers[index], self.columns[place], self.values[place]

    def flat_rows(self) -> Array:
        """The row of each element, counted through all matrices."""
        return np.repeat(np.arange(self.batch * self.rows), np.diff(self.row_pointers, axis=1).ravel())

    def indices(self) -> Any:
        """The indices of the elements."""
        rows = self.flat_rows()
        batch, row = np.divmod(rows, max(1, self.rows))
        lead = (batch,) if len(self.shape) == 3 else ()
        return np.column_stack((*lead, row, self.columns)).astype(np.int64)

    def with_values(self, values: object) -> CSRMatrix:
        """Other values at the same places."""
        return replace(self, values=values)


def csr_of_indices(indices: Array, values: Array, shape: Sequence[int]) -> CSRMatrix:
    """The matrix, or batch of matrices, of elements anywhere in *shape*; the elements of a row stay in their order.

    Raises:
        ResourceExhaustedError: there are more rows than memory for their pointers.
    """
    sizes = tuple(int(size) for size in shape)
    batch, rows = (sizes[0] if len(sizes) == 3 else 1), sizes[-2]
    check_memory([batch, rows + 1], np.dtype(np.int32))
    if len(values) > _MOST_INT32 or sizes[-1] > _MOST_INT32 + 1:
        raise InvalidArgumentError(f"a matrix of shape {list(sizes)} with {len(values)} elements has no 32-bit indices")
    flat = indices[:, -2] + (indices[:, 0] * rows if len(sizes) == 3 else 0)
    order = np.argsort(flat, kind="stable")
    counts = np.bincount(flat, minlength=batch * rows).reshape(batch, rows)
    pointers = np.zeros((batch, rows + 1), np.int32)
    np.cumsum(counts, axis=1, out=pointers[:, 1:])
    return CSRMatrix(sizes, pointers, indices[order, -1].astype(np.int32), values[order])


def csr_of_parts(parts: Sequence[Any], rank: int, dtype: Any) -> CSRMatrix:
    """The matrices of scipy *parts*, one or more, as one of *rank* dimensions."""
    for part in parts:
        part.sort_indices()
    lead = (len(parts),) if rank == 3 else ()
    return CSRMatrix(
        (*lead, *(int(size) for size in parts[0].shape)),
        np.stack([part.indptr for part in parts]).astype(np.int32),
        np.concatenate([part.indices for part in parts]).astype(np.int32),
        np.concatenate([part.data for part in parts]).astype(dtype, copy=False),
    )


def scipy_parts(matrix: CSRMatrix) -> list[object]:
    """Each matrix as one of scipy's."""
    csr_array = require("scipy.sparse", extra="ops").csr_array
    shape = matrix.shape[-2:]
    ends = np.concatenate(([0], np.cumsum(matrix.counts, dtype=np.int64))).tolist()
    return [
        csr_array((matrix.values[begin:end], matrix.columns[begin:end], pointers), shape=shape)
        for (begin, end), pointers in zip(pairwise(ends), matrix.row_pointers, strict=True)
    ]


def map_parts(matrix: CSRMatrix, function: Callable[[int, Any], object], shape: Sequence[int]) -> CSRMatrix:
    """What *function* gives for the number and the scipy form of each matrix; of *shape* where there is none."""
    parts = [function(number, part) for number, part in enumerate(scipy_parts(matrix))]
    if not parts:
        return csr_zeros((0, *shape), matrix.values.dtype)
    return csr_of_parts(parts, len(matrix.shape), matrix.values.dtype)


def csr_zeros(shape: Sequence[int], dtype: Any) -> CSRMatrix:
    """No elements."""
    return csr_of_indices(np.zeros((0, len(shape)), np.int64), np.zeros(0, dtype), shape)


def csr_to_dense(matrix: CSRMatrix) -> Array:
    """The dense tensor; of elements at one place it has the last."""
    dense = zeros(matrix.shape, matrix.values.dtype)
    dense.reshape(-1, matrix.shape[-1])[matrix.flat_rows(), matrix.columns] = matrix.values
    return dense


def csr_add(a: CSRMatrix, b: CSRMatrix, alpha: object = 1, beta: object = 1) -> CSRMatrix:
    """``alpha * a + beta * b``, with an element wherever either has one."""
    if a.shape != b.shape or a.values.dtype != b.values.dtype:
        raise InvalidArgumentError(
            f"Cannot add matrices of {a.dtype.name} {list(a.shape)} and {b.dtype.name} {list(b.shape)}"
        )
    rows, in_a, in_b = merge_rows(a.indices(), b.indices())
    dtype = a.values.dtype
    values = values_at(a.values, in_a) * dtype.type(alpha) + values_at(b.values, in_b) * dtype.type(beta)
    return csr_of_indices(rows, values, a.shape)


def require_csr(value: object, what: str, dtype: DType | None = None) -> CSRMatrix:
    """*value*, which a graph may have taken from any op; InvalidArgumentError unless it is such a matrix of *dtype*."""
    if not isinstance(value, CSRMatrix):
        raise InvalidArgumentError(f"{what} must be a CSRSparseMatrix, not a {type(value).__name__}")
    if dtype is not None and value.dtype is not dtype:
        raise InvalidArgumentError(
            f"Asked for a CSRSparseMatrix of type {dtype.name} but saw dtype: {value.dtype.name}"
        )
    return value


def check_size(shape: Sequence[int]) -> None:
    """InvalidArgumentError unless *shape* is that of a matrix or of a batch of matrices."""
    if len(shape) not in (2, 3) or min(shape) < 0 or math.prod(max(1, size) for size in shape) > 2**62:
        raise InvalidArgumentError(f"Invalid shape: {list(shape)}.  Expected a matrix or a batch of matrices.")


register_variant_ops(
    CSRMatrix,
    zeros_like=lambda matrix: csr_zeros(matrix.shape, matrix.values.dtype),
    add=lambda a, b: csr_add(a, b),
    conjugate=lambda matrix: matrix.with_values(matrix.values.conj()),
)
