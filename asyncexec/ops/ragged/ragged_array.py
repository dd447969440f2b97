"""Ragged tensors made, gathered, filled up, and made dense or sparse.

Rules from ``ragged_range_op.cc``, ``ragged_gather_op.cc``, ``ragged_tensor_to_sparse_kernel.cc``,
``ragged_fill_empty_rows_op.cc`` and ``bincount_op.cc``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.arrays import Array, ArrayOrScalar, NumpyDType
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction, as_value
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import SCALAR, TensorShape
from asyncexec.ops.array.array_common import NUMBER, PLAIN, boxing, check_memory, zeros
from asyncexec.ops.ragged.row_partitions import check_nested, check_splits, ranges, splits_of, unknown_rows, vectors

_VECTOR = TensorShape([None])


def _range_shape(c: InferenceContext) -> Sequence[TensorShape]:
    rows = TensorShape(None)
    for index in range(3):
        given = c.input(index).with_rank_at_most(1)
        if given.rank == 1:
            rows = rows.merge_with(given)
    count = rows[0] if rows.dims is not None else None
    is_scalar = all(c.input(index).rank == 0 for index in range(3))
    return [TensorShape([2 if is_scalar else None if count is None else count + 1]), _VECTOR]


register_op(
    "RaggedRange",
    "starts: T, limits: T, deltas: T -> rt_nested_splits: Tsplits, rt_dense_values: T",
    "T: {bfloat16, float32, float64, int32, int64} = int32; Tsplits: {int32, int64} = int64",
    shape=_range_shape,
)


@register_kernel("RaggedRange")
def ragged_range(c: OpKernelConstruction) -> Kernel:
    """Rows of numbers from a start to a limit by a delta."""
    np_dtype, splits_dtype = c.np_dtype("T"), c.np_dtype("Tsplits")

    def kernel(starts: ArrayOrScalar, limits: ArrayOrScalar, deltas: ArrayOrScalar) -> tuple[Any, Array]:
        given = {"starts": starts, "limits": limits, "deltas": deltas}
        for name, value in given.items():
            if value.ndim > 1:
                raise InvalidArgumentError(f"{name} must be a scalar or vector")
        counts = {value.size for value in given.values() if value.ndim}
        if len(counts) > 1:
            raise InvalidArgumentError("starts, limits, and deltas must have the same shape")
        rows = counts.pop() if counts else 1
        first, last, step = (np.broadcast_to(value, rows) for value in given.values())
        if (step == 0).any():
            raise InvalidArgumentError("Requires delta != 0")
        sizes = _range_sizes(first, last, step, int(np.iinfo(splits_dtype).max))
        if np_dtype.kind == "i":
            values = np.repeat(first, sizes) + ranges(np.zeros(rows, np.int64), sizes) * np.repeat(step, sizes)
        else:
            values = _sums(first, step, sizes, np_dtype)
        return splits_of(sizes, splits_dtype), values.astype(np_dtype, copy=False)

    return kernel


def _range_sizes(first: Array, last: Array, step: Array, most: int) -> Array:
    """How many numbers each row has; InvalidArgumentError where these are more than *most*."""
    sizes = []
    for start, limit, delta in zip(first.tolist(), last.tolist(), step.tolist(), strict=True):
        if (delta > 0 and start >= limit) or (delta < 0 and start <= limit):
            sizes.append(0)
            continue
        if isinstance(start, int):
            size = (abs(limit - start) + abs(delta) - 1) // abs(delta)
        else:
            exact = np.ceil(np.abs((first.dtype.type(limit) - first.dtype.type(start)) / first.dtype.type(delta)))
            if not np.isfinite(exact):
                raise InvalidArgumentError("Requires finite starts, limits and deltas")
            size = int(exact)
        sizes.append(size)
    if sum(sizes) > most:
        raise InvalidArgumentError(f"The total range size overflowed: {sum(sizes)} is more than {most}")
    check_memory([sum(sizes)], first.dtype)
    return np.array(sizes, np.int64)


def _sums(first: Array, step: Array, sizes: ArrayOrScalar, np_dtype: NumpyDType) -> ArrayOrScalar:
    """Each number is the one before and the delta, as floats add up."""
    rows = []
    for start, delta, size in zip(first, step, sizes.tolist(), strict=True):
        row = np.full(size, delta, np_dtype)
        row[:1] = start
        rows.append(np.add.accumulate(row))
    return np.concatenate(rows) if rows else np.zeros(0, np_dtype)


def _gather_shape(c: InferenceContext) -> Sequence[TensorShape]:
    vectors(c, "params_nested_splits")
    (values,), (indices,) = c.arg("params_dense_values"), c.arg("indices")
    rank, wanted = c.attr("PARAMS_RAGGED_RANK"), c.attr("OUTPUT_RAGGED_RANK")
    if indices.rank is not None and wanted != rank + indices.rank - 1:
        raise InvalidArgumentError(
            f"OUTPUT_RAGGED_RANK is {wanted}, but must be {rank + indices.rank - 1}: the ragged rank of params, and "
            "the rank of indices less one"
        )
    return [*[_VECTOR] * wanted, unknown_rows(values)]


register_op(
    "RaggedGather",
    "params_nested_splits: PARAMS_RAGGED_RANK*Tsplits, params_dense_values: Tvalues, indices: Tindices ->"
    " output_nested_splits: OUTPUT_RAGGED_RANK*Tsplits, output_dense_values: Tvalues",
    "Tvalues: type; Tindices: {int32, int64}; Tsplits: {int32, int64} = int64; PARAMS_RAGGED_RANK: int >= 1;"
    " OUTPUT_RAGGED_RANK: int >= 0",
    shape=_gather_shape,
)


@register_kernel("RaggedGather")
def ragged_gather(c: OpKernelConstruction) -> Kernel:
    """The rows that indices name, one after the other."""
    splits_dtype, wanted = c.np_dtype("Tsplits"), c.attr("OUTPUT_RAGGED_RANK")

    def kernel(*inputs: Any) -> tuple[Array, ...]:
        *nested, values, indices = inputs
        check_nested(nested, values)
        if wanted != len(nested) + indices.ndim - 1:
            raise InvalidArgumentError(f"indices of rank {indices.ndim} do not fit OUTPUT_RAGGED_RANK {wanted}")
        count = len(nested[0]) - 1
        flat = np.ravel(indices).astype(np.int64)
        wrong = np.flatnonzero((flat < 0) | (flat >= count))
        if wrong.size:
            raise InvalidArgumentError(f"indices[{int(wrong[0])}] = {int(flat[wrong[0]])} is not in [0, {count})")
        outer = [
            np.arange(int(np.prod(indices.shape[:axis])) * size + 1, step=max(size, 1)).astype(splits_dtype)
            if size
            else np.zeros(int(np.prod(indices.shape[:axis])) + 1, splits_dtype)
            for axis, size in enumerate(indices.shape)
            if axis
        ]
        rows, found = flat, []
        for splits in nested:
            begins = splits[rows].astype(np.int64)
            lengths = splits[rows + 1] - begins
            found.append(splits_of(lengths, splits_dtype))
            check_memory([int(lengths.sum())], np.dtype(np.int64))
            rows = ranges(begins, lengths)
        # A scalar names one row, which is not a row of the result but all of it.
        return (*outer, *(found if indices.ndim else found[1:]), values[rows])

    return boxing(c, kernel)


def _to_sparse_shape(c: InferenceContext) -> Sequence[TensorShape]:
    vectors(c, "rt_nested_splits")
    (values,) = c.arg("rt_dense_values")
    rank = None if values.rank is None else values.rank + c.attr("RAGGED_RANK")
    return [TensorShape([None, rank]), _VECTOR, TensorShape([rank])]


register_op(
    "RaggedTensorToSparse",
    "rt_nested_splits: RAGGED_RANK*Tsplits, rt_dense_values: T -> sparse_indices: int64, sparse_values: T,"
    " sparse_dense_shape: int64",
    "RAGGED_RANK: int >= 1; T: type; Tsplits: {int32, int64} = int64",
    shape=_to_sparse_shape,
)


@register_kernel("RaggedTensorToSparse")
def ragged_tensor_to_sparse(c: OpKernelConstruction) -> Kernel:
    """An index for each value."""

    def kernel(*inputs: Any) -> tuple[Array, ...]:
        *nested, values = inputs
        check_nested(nested, values)
        columns = [np.arange(len(nested[0]) - 1)]
        shape = [len(nested[0]) - 1]
        for splits in nested:
            lengths = np.diff(splits).astype(np.int64)
            columns = [np.repeat(column, lengths) for column in columns]
            columns.append(ranges(np.zeros(lengths.size, np.int64), lengths))
            shape.append(int(lengths.max(initial=0)))
        for axis in range(1, values.ndim):
            size = values.shape[axis]
            each = int(np.prod(values.shape[1:axis]))
            columns = [np.repeat(column, size) for column in columns]
            columns.append(np.tile(np.arange(size), len(values) * each))
            shape.append(size)
        return np.stack(columns, axis=1).astype(np.int64), np.ravel(values), np.array(shape, np.int64)

    return boxing(c, kernel)


def _fill_shape(c: InferenceContext) -> Sequence[TensorShape]:
    rowids, values = c.vector(0), c.vector(1)
    c.scalar(2)
    c.scalar(3)
    return [_VECTOR, _VECTOR, TensorShape([c.int_value(2)]), rowids.merge_with(values)]


register_op(
    "RaggedFillEmptyRows",
    "value_rowids: int64, values: T, nrows: int64, default_value: T -> output_value_rowids: int64, output_values: T,"
    " empty_row_indicator: bool, reverse_index_map: int64",
    "T: type",
    shape=_fill_shape,
)


@register_kernel("RaggedFillEmptyRows", dtypes={"T": PLAIN | {types.resource, types.variant}})
def ragged_fill_empty_rows(c: OpKernelConstruction) -> Kernel:
    """Rows with *default_value* where there was nothing, and what was done."""

    def kernel(rowids: Array, values: Array, nrows: ArrayOrScalar, default: ArrayOrScalar) -> tuple[Array, ...]:
        if rowids.ndim != 1 or values.shape != rowids.shape or nrows.ndim or default.ndim:
            raise InvalidArgumentError(
                f"vectors of one length and scalars are needed, not {list(rowids.shape)}, {list(values.shape)}, "
                f"{list(nrows.shape)} and {list(default.shape)}"
            )
        rows = int(nrows)
        check_memory([rows], np.dtype(np.int64))
        if rowids.size and (rowids.min() < 0 or rowids.max() >= rows):
            raise InvalidArgumentError(f"value_rowids are not all in [0, {rows}): {rowids.tolist()[:8]}")
        missing = np.bincount(rowids, minlength=rows) == 0
        extra = np.flatnonzero(missing)
        order = np.argsort(np.concatenate((rowids, extra)), kind="stable")
        place = np.empty(order.size, np.int64)
        place[order] = np.arange(order.size)
        fill = np.empty(extra.size, values.dtype)
        fill[...] = default
        full = np.concatenate((values, fill))[order]
        return np.concatenate((rowids, extra))[order].astype(np.int64), full, missing, place[: rowids.size]

    return boxing(c, kernel)


_FILL_GRAD = "reverse_index_map: int64, grad_values: T -> d_values: T, d_default_value: T"


def _fill_grad_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.vector(1)
    return [c.vector(0), SCALAR]


register_op("SparseFillEmptyRowsGrad", _FILL_GRAD, "T: type", shape=_fill_grad_shape)
register_op("RaggedFillEmptyRowsGrad", _FILL_GRAD, "T: type", shape=_fill_grad_shape)


@register_kernel("SparseFillEmptyRowsGrad", "RaggedFillEmptyRowsGrad", dtypes={"T": NUMBER | {types.bfloat16}})
def fill_empty_rows_grad(c: OpKernelConstruction) -> Kernel:
    """What came for the values that there were, and the sum of what came for the defaults."""

    def kernel(reverse: Array, grad: Array) -> tuple[ArrayOrScalar, ArrayOrScalar]:
        if reverse.ndim != 1 or grad.ndim != 1:
            raise InvalidArgumentError("reverse_index_map and grad_values must be vectors")
        wrong = (reverse < 0) | (reverse >= grad.size)
        if wrong.any():
            raise InvalidArgumentError(
                f"Elements in reverse index must be in [0, {grad.size}) but got {int(reverse[wrong][0])}"
            )
        is_default = np.ones(grad.size, bool)
        is_default[reverse] = False
        total = np.add.accumulate(grad[is_default], dtype=grad.dtype)
        return grad[reverse], total[-1] if total.size else grad.dtype.type(0)

    return kernel


def _bincount_shape(c: InferenceContext) -> Sequence[TensorShape]:
    splits = c.vector(0)
    c.scalar(2)
    size = c.int_value(2)
    if size is not None and size < 0:
        raise InvalidArgumentError(f"size ({size}) must be non-negative")
    rows = splits[0] if splits.dims is not None else None
    return [TensorShape([None if rows is None else max(rows - 1, 0), size])]


register_op(
    "RaggedBincount",
    "splits: int64, values: Tidx, size: Tidx, weights: T -> output: T",
    "Tidx: {int32, int64}; T: {float32, float64, int32, int64}; binary_output: bool = False",
    shape=_bincount_shape,
)


@register_kernel("RaggedBincount")
def ragged_bincount(c: OpKernelConstruction) -> Kernel:
    """How often each number is in each row, or the sum of its weights, or whether it is."""
    np_dtype, is_binary = c.np_dtype("T"), c.attr("binary_output")

    def kernel(splits: Array, values: Array, size: Any, weights: Array) -> Array:
        if size.ndim:
            raise InvalidArgumentError(f"Shape must be rank 0 but is rank {size.ndim}")
        if size < 0:
            raise InvalidArgumentError(f"size ({int(size)}) must be non-negative")
        check_splits(splits, np.size(values), "splits")
        if weights.size and weights.shape != values.shape:
            raise InvalidArgumentError(
                f"weights of shape {list(weights.shape)} do not fit values of shape {list(values.shape)}"
            )
        flat = np.ravel(values)
        if (flat < 0).any():
            raise InvalidArgumentError("Input must be non-negative")
        result = zeros((len(splits) - 1, int(size)), np_dtype)
        rows = np.repeat(np.arange(len(splits) - 1), np.diff(splits))
        is_counted = flat < size
        where = rows[is_counted], flat[is_counted]
        if is_binary:
            result[where] = 1
        else:
            np.add.at(result, where, np.ravel(weights)[is_counted] if weights.size else np_dtype.type(1))
        return as_value(result)

    return kernel
