"""Dense-, Sparse- and RaggedCountSparseOutput: counts as sparse tensors (``count_ops.cc``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.ops.array.array_common import unique_rows

_OUTPUTS: Final = "-> output_indices: int64, output_values: output_type, output_dense_shape: int64"
_ATTRS: Final = (
    "T: {int32, int64}; minlength: int >= -1 = -1; maxlength: int >= -1 = -1; binary_output: bool;"
    " output_type: {float32, float64, int32, int64}"
)


def _shapes(rank: int | None) -> Sequence[TensorShape]:
    return [TensorShape([None, rank]), TensorShape([None]), TensorShape([rank])]


def _sparse_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.with_rank(0, 2)
    rank = c.vector(2)[0]
    return _shapes(None if rank is None else min(rank, 2))


register_op(
    "DenseCountSparseOutput",
    f"values: T, weights: output_type {_OUTPUTS}",
    _ATTRS,
    shape=lambda c: _shapes(c.input(0).with_rank_at_most(2).rank),
)
register_op(
    "SparseCountSparseOutput",
    f"indices: int64, values: T, dense_shape: int64, weights: output_type {_OUTPUTS}",
    _ATTRS,
    shape=_sparse_shape,
)
register_op(
    "RaggedCountSparseOutput",
    f"splits: int64, values: T, weights: output_type {_OUTPUTS}",
    _ATTRS,
    shape=lambda _: _shapes(2),
)

# The batch that each value belongs to, the values, and how many batches there are; None where there is only one row.
_Batches = tuple[Any, Any, int | None]


def _dense_batches(values: Array) -> _Batches:
    if values.ndim not in (1, 2):
        raise InvalidArgumentError(f"Input must be a 1 or 2-dimensional tensor. Got: {list(values.shape)}")
    if values.ndim == 1:
        return np.zeros(len(values), np.int64), values, None
    if not len(values):
        raise InvalidArgumentError("Invalid input: Shapes dimension cannot be 0.")
    return np.repeat(np.arange(len(values)), values.shape[1]), values.ravel(), len(values)


def _sparse_batches(indices: Array, values: Array, shape: Array) -> _Batches:
    if indices.ndim != 2 or values.shape != (len(indices),) or shape.shape != (indices.shape[1],) or not shape.size:
        raise InvalidArgumentError(
            f"indices must be a matrix, values and dense_shape vectors that fit it, not {list(indices.shape)}, "
            f"{list(values.shape)}, {list(shape.shape)}"
        )
    wrong = np.flatnonzero(((indices < 0) | (indices >= shape)).any(axis=1))
    if wrong.size:
        raise InvalidArgumentError(
            f"Invalid index value at {wrong[0]}: {indices[wrong[0]].tolist()} is not in {shape.tolist()}"
        )
    if len(shape) == 1:
        return np.zeros(len(values), np.int64), values, None
    if not 0 < shape[0] < np.iinfo(np.int32).max or (shape < 0).any():
        raise InvalidArgumentError(f"dense_shape must have batches and no negative sizes: {shape.tolist()}")
    return indices[:, 0], values, int(shape[0])


def _ragged_batches(splits: Array, values: Array) -> _Batches:
    if splits.ndim != 1 or values.ndim != 1 or len(splits) < 2:
        raise InvalidArgumentError("Must provide at least 2 elements for the splits argument, and a vector of values")
    if splits[0] != 0 or splits[-1] != len(values) or (np.diff(splits) < 0).any():
        raise InvalidArgumentError(f"Splits must rise from 0 to {len(values)}")
    return np.repeat(np.arange(len(splits) - 1), np.diff(splits)), values, len(splits) - 1


_BATCHES: Final[dict[str, Callable[..., _Batches]]] = {
    "DenseCountSparseOutput": _dense_batches,
    "SparseCountSparseOutput": _sparse_batches,
    "RaggedCountSparseOutput": _ragged_batches,
}


@register_kernel(*_BATCHES, kind=KernelKind.EXPENSIVE)
def count_sparse_output(c: OpKernelConstruction) -> Kernel:
    """How often each value stands in each batch, or the sum of its weights, or 1."""
    batches_of, dtype, is_binary = _BATCHES[c.op], c.np_dtype("output_type"), c.attr("binary_output")
    least, most = c.attr("minlength"), c.attr("maxlength")

    def kernel(*inputs: ArrayOrScalar) -> tuple[Array, Array, Array]:
        *given, weights = inputs
        batches, values, rows = batches_of(*given)
        if np.size(weights) and weights.shape != given[len(given) > 1].shape:
            raise InvalidArgumentError(f"Weights and values must have the same shape, not {list(weights.shape)}")
        if (values < 0).any():
            raise InvalidArgumentError("Input values must all be non-negative")
        kept = values < most if most >= 0 else np.ones(values.shape, np.bool_)
        cells, place = unique_rows(np.stack((batches[kept], values[kept]), axis=1))
        cells = cells.astype(np.int64)
        counts = np.ones(len(cells), dtype)
        if not is_binary:
            counts[:] = 0
            np.add.at(counts, place, weights.ravel()[kept] if np.size(weights) else dtype.type(1))
        largest = int(cells[:, 1].max(initial=0))
        if largest == np.iinfo(np.int64).max:
            raise InvalidArgumentError(f"Input values must be less than {largest}")
        size = most if most >= 0 else max(largest + 1, least)
        return (cells[:, 1:], counts, np.array([size])) if rows is None else (cells, counts, np.array([rows, size]))

    return kernel
