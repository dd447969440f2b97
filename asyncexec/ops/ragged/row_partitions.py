"""Row splits: checks of them, and what follows from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import TensorShape


def check_splits(splits: Array, count: int, what: str = "row_splits") -> None:
    """InvalidArgumentError unless *splits* cut *count* values into rows."""
    if splits.ndim != 1:
        raise InvalidArgumentError(f"{what} must be 1-D, got shape {list(splits.shape)}")
    if not splits.size:
        raise InvalidArgumentError(f"Invalid ragged tensor: {what} must not be empty")
    if splits[0] != 0:
        raise InvalidArgumentError(f"Invalid ragged tensor: {what} must start with 0, got {int(splits[0])}")
    if (np.diff(splits) < 0).any():
        raise InvalidArgumentError(f"Invalid ragged tensor: {what} must be sorted in ascending order")
    if splits[-1] != count:
        raise InvalidArgumentError(f"Invalid ragged tensor: {what} must end with {count}, got {int(splits[-1])}")


def check_nested(nested: Sequence[Any], values: Any) -> None:
    """InvalidArgumentError unless each of *nested* cuts what comes after it, the last one *values*."""
    if not np.ndim(values):
        raise InvalidArgumentError("Values of a ragged tensor must have rank at least 1; got a scalar")
    for splits, inner in zip(nested, [*nested[1:], values], strict=True):
        is_last = inner is values
        if not is_last and not inner.size:
            raise InvalidArgumentError("Invalid ragged tensor: row_splits must not be empty")
        check_splits(splits, len(inner) - (0 if is_last else 1))


def ranges(starts: Array, lengths: Array) -> Array:
    """``start, start + 1, ...`` of each length, one after the other."""
    before = np.cumsum(lengths) - lengths
    found: Array = np.arange(int(lengths.sum()), dtype=np.int64) + np.repeat(starts - before, lengths)
    return found


def splits_of(lengths: Any, dtype: Any) -> Array:
    """Where rows of these lengths begin, and the last ends."""
    found = np.zeros(len(lengths) + 1, dtype)
    np.cumsum(lengths, out=found[1:])
    return found


def vectors(c: InferenceContext, argument: str) -> None:
    """InvalidArgumentError where a tensor of *argument* cannot be a vector."""
    for shape in c.arg(argument):
        shape.with_rank(1)


def unknown_rows(shape: TensorShape, rank: int = 1) -> TensorShape:
    """*shape* with the first size unknown, behind *rank* - 1 more of those."""
    return TensorShape([*[None] * rank, *shape.dims[1:]]) if shape.dims else TensorShape(None)
