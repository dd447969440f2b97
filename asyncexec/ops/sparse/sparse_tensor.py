"""What the ops on sparse tensors share: checks of (indices, values, dense shape), and the order of index rows.

A sparse tensor is a matrix of indices, a row for each value, a vector of values, and the sizes of the dense tensor
(``tensorflow/core/util/sparse/sparse_tensor.h``).
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.ops.array.array_common import POD_STRING

MOVABLE: Final = POD_STRING | {types.resource, types.variant}
UNKNOWN_MATRIX: Final = TensorShape([None, None])
UNKNOWN_VECTOR: Final = TensorShape([None])
_MOST_KEYS: Final = 2**62


def check_sparse(indices: Any, values: Array, shape: Any, what: str = "a sparse tensor") -> None:
    """InvalidArgumentError unless indices, values and dense shape are those of one sparse tensor."""
    if indices.ndim != 2 or values.shape != (len(indices),) or shape.shape != (indices.shape[1],):
        raise InvalidArgumentError(
            f"{what} has indices as a matrix, and values and shape as vectors that fit it, not of shapes "
            f"{list(indices.shape)}, {list(values.shape)}, {list(shape.shape)}"
        )
    if (shape < 0).any():
        raise InvalidArgumentError(f"{what} has a shape of sizes of 0 or more, not {shape.tolist()}")


def check_bounds(indices: Array, shape: object, what: str = "indices") -> None:
    """InvalidArgumentError unless all rows of *indices* are in *shape*."""
    outside = ((indices < 0) | (indices >= np.asarray(shape, np.int64))).any(axis=1)
    if outside.any():
        row = int(np.argmax(outside))
        raise InvalidArgumentError(
            f"{what}[{row}] = {indices[row].tolist()} is out of bounds: need 0 <= index < {np.asarray(shape).tolist()}"
        )


def check_order(indices: Array, *, allow_repeats: bool = False) -> None:
    """InvalidArgumentError unless the rows of *indices* rise."""
    relation = compare_neighbours(indices)
    wrong = np.flatnonzero(relation > 0 if allow_repeats else relation >= 0)
    if wrong.size:
        row = int(wrong[0]) + 1
        what = "is out of order. Many sparse ops require sorted indices" if relation[wrong[0]] > 0 else "is repeated"
        raise InvalidArgumentError(f"indices[{row}] = {indices[row].tolist()} {what}")


def compare_neighbours(rows: Array) -> Array:
    """-1, 0 or 1 of each row but the last: whether it is less than, equal to or greater than the next one."""
    steps = np.sign(rows[:-1] - rows[1:])
    if not rows.shape[1]:
        return np.zeros(len(steps), np.int64)
    first = (steps != 0).argmax(axis=1)
    return np.take_along_axis(steps, first[:, None], axis=1)[:, 0]


def row_keys(rows: Any) -> Array:
    """A number for each row: those of equal rows are equal, and they are ordered as the rows are."""
    if not rows.size:
        return np.zeros(len(rows), np.int64)
    low = rows.min(axis=0)
    spans = [int(high) - int(least) + 1 for high, least in zip(rows.max(axis=0), low, strict=True)]
    if math.prod(spans) <= _MOST_KEYS:
        keys = np.zeros(len(rows), np.int64)
        for axis, span in enumerate(spans):
            keys = keys * span + (rows[:, axis] - low[axis])
        return keys
    order = np.lexsort(rows.T[::-1])
    keys = np.empty(len(rows), np.int64)
    keys[order] = np.cumsum(np.concatenate(([False], (rows[order[1:]] != rows[order[:-1]]).any(axis=1))))
    return keys


def row_order(rows: object) -> Any:
    """The positions of *rows* in their order, equal ones as they come."""
    return np.argsort(row_keys(rows), kind="stable")


def run_starts(rows: Array) -> Array:
    """Where each run of equal neighbours begins."""
    if not len(rows):
        return np.zeros(0, np.int64)
    differs = rows[1:] != rows[:-1]
    return np.flatnonzero(np.concatenate(([True], differs.any(axis=1) if rows.ndim > 1 else differs)))


def occurrences(keys: Array) -> Array:
    """Of each of the numbers, how many equal ones are before it."""
    if (keys[1:] > keys[:-1]).all():
        return np.zeros(len(keys), np.int64)
    order = np.argsort(keys, kind="stable")
    starts = run_starts(keys[order])
    found = np.empty(len(keys), np.int64)
    found[order] = np.arange(len(keys)) - np.repeat(starts, np.diff(np.append(starts, len(keys))))
    return found


def merge_rows(a: Array, b: Array) -> tuple[Array, Array, Array]:
    """The rows of *a* and *b* in order, equal ones as one; and where each is in *a* and in *b*, -1 where it is not.

    Of rows that repeat in one of them, the first is equal to the first of the other, and so on.
    """
    rows = np.concatenate((a, b))
    keys = row_keys(rows)
    turns = np.concatenate((occurrences(keys[: len(a)]), occurrences(keys[len(a) :])))
    if turns.any():
        order = np.lexsort((turns, keys))
        starts = run_starts(np.column_stack((keys, turns))[order])
    else:
        order = np.argsort(keys, kind="stable")  # quick for what is sorted already
        starts = run_starts(keys[order])
    first, last = order[starts], order[np.append(starts, len(rows))[1:] - 1]
    in_a = np.where(first < len(a), first, -1)
    in_b = np.where(last >= len(a), last - len(a), -1)
    return rows[first], in_a, in_b


def values_at(values: Array, places: Array) -> Array:
    """The values at *places*; 0 where a place is -1."""
    found = np.zeros(len(places), values.dtype)
    there = places >= 0
    found[there] = values[places[there]]
    return found
