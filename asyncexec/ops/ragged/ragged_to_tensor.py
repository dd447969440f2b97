"""RaggedTensorToTensor (``ragged_tensor_to_tensor_op.cc``): rows padded to one length.

The rows of a level are told by a *row partition*: their number and the row of each value (FIRST_DIM_SIZE, then
VALUE_ROWIDS), or their splits (ROW_SPLITS).  Level by level each value gets its place in the dense result; what lies
beyond the shape that is asked for has none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.ops.array.array_common import boxing, empty

_FIRST_DIM_SIZE: Final = b"FIRST_DIM_SIZE"
_VALUE_ROWIDS: Final = b"VALUE_ROWIDS"
_ROW_SPLITS: Final = b"ROW_SPLITS"
_NOWHERE: Final = -1


def _shape(c: InferenceContext) -> Sequence[TensorShape]:
    types = _checked_types(c.attr("row_partition_types"), c.attr("num_row_partition_tensors"))
    wanted, values = c.value_as_shape(0), c.input(1)
    ragged_rank = len(types) - (types[0] == _FIRST_DIM_SIZE)
    if values.dims is None:
        return [wanted]
    shape = TensorShape([None] * (ragged_rank + 1) + list(values.dims[1:]))
    return [shape if wanted.dims is None else shape.merge_with(wanted)]


register_op(
    "RaggedTensorToTensor",
    "shape: Tshape, values: T, default_value: T, row_partition_tensors: num_row_partition_tensors*Tindex -> result: T",
    "T: type; Tindex: {int32, int64}; Tshape: {int32, int64}; num_row_partition_tensors: int >= 1;"
    " row_partition_types: list(string)",
    shape=_shape,
)


def _checked_types(types: Sequence[bytes], count: int) -> Sequence[bytes]:
    for index, kind in enumerate(types):
        if kind not in (_FIRST_DIM_SIZE, _VALUE_ROWIDS, _ROW_SPLITS):
            raise InvalidArgumentError(f"Unknown row partition type: {kind!r}")
        if (kind == _FIRST_DIM_SIZE) != (index == 0 and types[0] == _FIRST_DIM_SIZE):
            raise InvalidArgumentError("FIRST_DIM_SIZE must be first in row_partition_types")
    if len(types) != count or not types:
        raise InvalidArgumentError(f"{len(types)} row_partition_types for {count} row_partition_tensors")
    if types[0] == _VALUE_ROWIDS:
        raise InvalidArgumentError("Cannot handle VALUE_ROWIDS in first dimension.")
    if types[0] == _FIRST_DIM_SIZE and _VALUE_ROWIDS not in types[1:2]:
        raise InvalidArgumentError("FIRST_DIM_SIZE must be followed by VALUE_ROWIDS")
    return types


@register_kernel("RaggedTensorToTensor")
def ragged_tensor_to_tensor(c: OpKernelConstruction) -> Kernel:
    """The values where their rows and columns are, the default elsewhere."""
    types = _checked_types(c.attr("row_partition_types"), c.attr("num_row_partition_tensors"))

    def kernel(shape: ArrayOrScalar, values: Array, default: ArrayOrScalar, *partitions: ArrayOrScalar) -> Array:
        if not values.ndim:
            raise InvalidArgumentError("values must have rank 1 or more")
        count, levels = _levels(types, partitions, len(values))
        longest = [count, *(_longest(rows) for rows in levels)]
        sizes = _sizes(shape, longest, values.shape[1:])
        outer, inner = sizes[: len(longest)], tuple(sizes[len(longest) :])
        if inner != values.shape[1:]:
            raise InvalidArgumentError(f"values of shape {list(values.shape)} do not fit the output shape {sizes}")
        result = empty(sizes, values.dtype)
        try:
            result[...] = np.broadcast_to(default, inner)
        except ValueError:
            raise InvalidArgumentError(
                f"default_value of shape {list(default.shape)} cannot be broadcast to {list(inner)}"
            ) from None
        places = np.arange(count)
        places[outer[0] :] = _NOWHERE
        for rows, size in zip(levels, outer[1:], strict=True):
            columns = _columns(rows)
            parents = places[rows]
            is_inside = (columns < size) & (parents != _NOWHERE)
            places = np.where(is_inside, parents * size + columns, _NOWHERE)
        is_inside = places != _NOWHERE
        if is_inside.any():
            flat = result.reshape(math.prod(outer), *inner)
            flat[places[is_inside]] = values[: places.size][is_inside]
        return result

    return boxing(c, kernel)


def _levels(types: Sequence[bytes], partitions: Sequence[Any], num_values: int) -> tuple[int, list[Any]]:
    """The number of rows of the first level, and for each level the row of each value."""
    if types[0] == _FIRST_DIM_SIZE:
        if partitions[0].ndim:
            raise InvalidArgumentError(f"FIRST_DIM_SIZE must be a scalar, got shape {list(partitions[0].shape)}")
        first, rest = int(partitions[0]), list(zip(types[1:], partitions[1:], strict=True))
    else:
        first, rest = max(partitions[0].size - 1, 0), list(zip(types, partitions, strict=True))
    if first < 0:
        raise InvalidArgumentError(f"there cannot be {first} rows")
    found: list[object] = []
    count = first
    for kind, tensor in rest:
        if tensor.ndim != 1:
            raise InvalidArgumentError(f"a row partition must be a vector, got shape {list(tensor.shape)}")
        rows = _rows_of_splits(tensor, count) if kind == _ROW_SPLITS else _checked_rowids(tensor, count)
        found.append(rows)
        count = rows.size
    if count > num_values:
        raise InvalidArgumentError(f"the row partitions are of {count} values, but there are {num_values}")
    return first, found


def _rows_of_splits(splits: Array, count: int) -> Array:
    if splits.size != count + 1:
        raise InvalidArgumentError(f"row_splits of {splits.size} elements do not cut {count} rows")
    if splits[0] != 0:
        raise InvalidArgumentError(f"row_splits must start with 0, got {int(splits[0])}")
    lengths = np.diff(splits)
    if (lengths < 0).any():
        raise InvalidArgumentError("row_splits must be sorted in ascending order")
    return np.repeat(np.arange(count), lengths)


def _checked_rowids(rowids: Array, count: int) -> ArrayOrScalar:
    if rowids.size and (rowids[0] < 0 or rowids[-1] >= count or (np.diff(rowids) < 0).any()):
        raise InvalidArgumentError(f"value_rowids must be sorted, and in [0, {count})")
    return rowids.astype(np.int64)


def _longest(rows: Array) -> int:
    return int(np.max(np.bincount(rows))) if rows.size else 0


def _columns(rows: Array) -> Array:
    """The place of each value in its row."""
    places = np.arange(rows.size)
    is_first = np.ones(rows.size, bool)
    is_first[1:] = rows[1:] != rows[:-1]
    return places - np.maximum.accumulate(np.where(is_first, places, 0)) if rows.size else places


def _sizes(shape: Any, longest: Sequence[int], inner: Sequence[int]) -> list[int]:
    """The shape that is asked for, -1 as large as needed."""
    needed = [*longest, *inner]
    if not shape.ndim:
        if int(shape) != -1:
            raise InvalidArgumentError("The only valid scalar shape tensor is the fully unknown shape specified as -1.")
        return needed
    if shape.ndim != 1:
        raise InvalidArgumentError(f"shape must be a scalar or vector, got shape {list(shape.shape)}")
    if shape.size != len(needed):
        raise InvalidArgumentError(f"the shape {shape.tolist()} has not the rank of the ragged tensor, {len(needed)}")
    if (shape < -1).any():
        raise InvalidArgumentError(f"a shape has sizes of -1 or more, not {shape.tolist()}")
    return [size if asked < 0 else asked for asked, size in zip(shape.tolist(), needed, strict=True)]
