"""Ragged tensors as values of dtype variant (``ragged_tensor_to_variant_op.cc``, ``ragged_tensor_from_variant_op.cc``).

So a map over the rows of a ragged tensor gets them one by one, each with its own row splits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar, NumpyDType
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import SCALAR, UNKNOWN_SHAPE, TensorShape
from asyncexec.framework.types import DType
from asyncexec.framework.variant_ops import add, register_variant_ops, zeros_like
from asyncexec.ops.array.array_common import boxed, zeros
from asyncexec.ops.ragged.row_partitions import check_nested, splits_of, vectors


@dataclass(frozen=True, slots=True, eq=False)
class Ragged:
    """A value of dtype variant: row splits from the outermost dimension to the innermost, and the flat values."""

    nested: tuple[Any, ...]
    values: Any
    dtype: DType

    @property
    def num_rows(self) -> int:
        """The size of the outermost dimension."""
        return len(self.nested[0]) - 1 if self.nested else len(boxed(self.values))


def _add(a: Ragged, b: Ragged) -> Ragged:
    if a.dtype is not b.dtype:
        raise InvalidArgumentError("Can't add RaggedTensorVariants of different dtypes")
    if len(a.nested) != len(b.nested):
        raise InvalidArgumentError("Can't add RaggedTensorVariants of different ragged rank")
    if not all(map(np.array_equal, a.nested, b.nested)):
        raise InvalidArgumentError("Can't add RaggedTensorVariants with different row_splits")
    return replace(a, values=add(a.values, b.values))


register_variant_ops(Ragged, zeros_like=lambda value: replace(value, values=zeros_like(value.values)), add=_add)


def _to_shape(c: InferenceContext) -> Sequence[TensorShape]:
    vectors(c, "rt_nested_splits")
    if not c.attr("batched_input"):
        return [SCALAR]
    rows = c.input(0)
    if c.attr("RAGGED_RANK"):
        count = rows[0] - 1 if rows.dims and rows[0] else None
        return [TensorShape([count])]
    return [TensorShape([rows[0]]) if rows.dims else UNKNOWN_SHAPE]


register_op(
    "RaggedTensorToVariant",
    "rt_nested_splits: RAGGED_RANK*Tsplits, rt_dense_values: Tvalues -> encoded_ragged: variant",
    "RAGGED_RANK: int >= 0; Tvalues: type; Tsplits: {int32, int64} = int64; batched_input: bool",
    shape=_to_shape,
)


@register_kernel("RaggedTensorToVariant")
def ragged_tensor_to_variant(c: OpKernelConstruction) -> Kernel:
    """One value, or one for each row."""
    is_batched, dtype = c.attr("batched_input"), c.attr("Tvalues")

    def kernel(*inputs: object) -> Any:
        *nested, values = map(boxed, inputs)
        if nested:
            check_nested(nested, values)
        if not is_batched:
            return Ragged(tuple(nested), values[()] if not values.ndim else values, dtype)
        if not nested:
            if not values.ndim:
                raise InvalidArgumentError("the rows of a scalar cannot be told apart")
            return _vector([Ragged((), row, dtype) for row in values])
        return _vector([_row(nested, values, row, dtype) for row in range(len(nested[0]) - 1)])

    return kernel


def _row(nested: Sequence[Array], values: Array, row: int, dtype: DType) -> Ragged:
    begin, end = int(nested[0][row]), int(nested[0][row + 1])
    inner = []
    for splits in nested[1:]:
        part = splits[begin : end + 1]
        inner.append(part - part[0])
        begin, end = int(part[0]), int(part[-1])
    return Ragged(tuple(inner), values[begin:end], dtype)


def _vector(items: Sequence[object]) -> ArrayOrScalar:
    found = np.empty(len(items), object)
    found[:] = items
    return found


def _from_shape(c: InferenceContext) -> Sequence[TensorShape]:
    return [*[TensorShape([None])] * c.attr("output_ragged_rank"), UNKNOWN_SHAPE]


register_op(
    "RaggedTensorFromVariant",
    "encoded_ragged: variant -> output_nested_splits: output_ragged_rank*Tsplits, output_dense_values: Tvalues",
    "input_ragged_rank: int >= -1; output_ragged_rank: int >= 0; Tvalues: type; Tsplits: {int32, int64} = int64",
    shape=_from_shape,
)


@register_kernel("RaggedTensorFromVariant")
def ragged_tensor_from_variant(c: OpKernelConstruction) -> Kernel:
    """The ragged tensor whose rows, or rows of rows, are the values of the input."""
    given, wanted, dtype = c.attr("input_ragged_rank"), c.attr("output_ragged_rank"), c.attr("Tvalues")
    splits_dtype = c.np_dtype("Tsplits")

    def kernel(encoded: Any) -> tuple[object, ...]:
        items, shape = (list(encoded.flat), encoded.shape) if isinstance(encoded, np.ndarray) else ([encoded], ())
        rank = wanted - len(shape) if given == -1 else given
        if rank < 0 or wanted != rank + len(shape):
            raise InvalidArgumentError(
                f"output_ragged_rank must be equal to input_ragged_rank + encoded_ragged.dims(); "
                f"output_ragged_rank: {wanted}, input_ragged_rank: {given}, encoded_ragged.dims(): {len(shape)}"
            )
        for item in items:
            _check(item, rank, dtype, splits_dtype)
        if not shape:
            return (*items[0].nested, items[0].values)
        outer = [
            splits_of(np.full(math.prod(shape[:axis]), size, np.int64), splits_dtype)
            for axis, size in enumerate(shape)
            if axis
        ]
        outer.append(splits_of([item.num_rows for item in items], splits_dtype))
        inner = [_joined_splits([item.nested[level] for item in items], splits_dtype) for level in range(rank)]
        return (*outer, *inner, _joined_values([item.values for item in items], dtype))

    return kernel


def _check(item: object, rank: int, dtype: DType, splits_dtype: NumpyDType) -> None:
    if not isinstance(item, Ragged):
        raise InvalidArgumentError(f"Input Variant element does not hold a ragged tensor, but {type(item).__name__}")
    if len(item.nested) != rank:
        raise InvalidArgumentError(f"An encoded ragged tensor has ragged_rank={len(item.nested)}. Expected: {rank}.")
    if item.dtype is not dtype:
        raise InvalidArgumentError(f"Expected values Tensor dtype: {dtype.name}, found: {item.dtype.name}")
    if any(splits.dtype != splits_dtype for splits in item.nested):
        raise InvalidArgumentError(f"Expected row_splits Tensor dtype: {splits_dtype.name}")
    if rank and not np.ndim(item.values):
        raise InvalidArgumentError("Ragged values must have rank >= 1")


def _joined_splits(parts: Sequence[Any], splits_dtype: object) -> object:
    lengths = [np.diff(part) for part in parts]
    return splits_of(np.concatenate(lengths) if lengths else np.zeros(0, np.int64), splits_dtype)


def _joined_values(parts: Sequence[Array], dtype: DType) -> ArrayOrScalar:
    if not parts:
        return zeros((0,), dtype.as_numpy_dtype)
    if len({np.shape(part)[1:] for part in parts}) > 1 or not np.ndim(parts[0]):
        raise InvalidArgumentError(
            f"All flat_values must have compatible shapes, not {sorted({np.shape(part) for part in parts})[:4]}"
        )
    return np.concatenate(parts)


def _gradient_shape(c: InferenceContext) -> Sequence[TensorShape]:
    return [c.value_as_shape(2)]


register_op(
    "RaggedTensorToVariantGradient",
    "encoded_ragged_grad: variant, row_splits: Tsplits, dense_values_shape: int32 -> dense_values_grad: Tvalues",
    "Tvalues: type; Tsplits: {int32, int64} = int64",
    shape=_gradient_shape,
)


@register_kernel("RaggedTensorToVariantGradient")
def ragged_tensor_to_variant_gradient(c: OpKernelConstruction) -> Kernel:
    """What came for the values of each row, zeros for rows that nothing came for."""
    dtype = c.attr("Tvalues")

    def kernel(encoded: object, row_splits: Any, values_shape: Any) -> Any:
        shape = values_shape.tolist()
        if not isinstance(encoded, np.ndarray):
            if not isinstance(encoded, Ragged):
                raise InvalidArgumentError(f"a ragged tensor is needed, not {type(encoded).__name__}")
            return np.reshape(encoded.values, shape)
        rows = list(encoded.flat)
        if row_splits.ndim != 1 or (row_splits.size and row_splits.size != len(rows) + 1):
            raise InvalidArgumentError(f"{row_splits.size} row splits do not cut {len(rows)} rows")
        result = zeros(shape, dtype.as_numpy_dtype)
        for index, row in enumerate(rows):
            if not isinstance(row, Ragged):
                continue
            place = slice(int(row_splits[index]), int(row_splits[index + 1])) if row_splits.size else index
            if np.shape(result[place]) != np.shape(row.values):
                raise InvalidArgumentError(f"row {index} is of shape {list(np.shape(row.values))}")
            result[place] = row.values
        return result

    return kernel
