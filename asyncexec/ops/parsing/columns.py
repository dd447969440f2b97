"""What parsing makes of the values of one feature over a batch: dense, sparse and ragged columns.

After ``example_proto_fast_parsing.cc``.  A value is a vector, or None where a record lacks the feature.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar, NumpyDType
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import as_value
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import DType
from asyncexec.ops.array.array_common import boxed, zeros

Values: TypeAlias = Sequence["Array | None"]


@dataclass(frozen=True, slots=True)
class DenseColumn:
    """A feature that each record has *shape* values of; its first size may be unknown, and differ between records."""

    key: bytes
    dtype: DType
    shape: TensorShape
    default: Any

    @property
    def is_variable(self) -> bool:
        """Whether the number of values is for the record to say."""
        return self.shape.rank != 0 and self.shape.dims is not None and self.shape[0] is None

    @property
    def row(self) -> tuple[int, ...]:
        """The sizes that are known."""
        return tuple(size for size in self.shape.dims or () if size is not None)

    def check(self) -> None:
        """InvalidArgumentError unless shape and default fit each other."""
        dims = self.shape.dims
        if dims is None or None in dims[1:]:
            raise InvalidArgumentError(
                f"dense_shapes of {_name(self.key)} is {self.shape}; only the first size may vary"
            )
        if self.is_variable:
            if np.size(self.default) != 1:
                raise InvalidArgumentError(
                    f"dense_shape of {_name(self.key)} is a variable length shape: {self.shape}, therefore def_value "
                    f"must contain a single element (the padding element). But its shape is: {np.shape(self.default)}"
                )
        elif np.size(self.default) and np.shape(self.default) != self.row:
            raise InvalidArgumentError(
                f"def_value of {_name(self.key)} has shape {list(np.shape(self.default))} != dense_shape {self.shape}"
            )

    def batch(self, values: Values, names: Sequence[str]) -> ArrayOrScalar:
        """The column of all records."""
        return self._padded(values, names) if self.is_variable else self._stacked(values, names)

    def one(self, value: Array | None, name: str) -> Any:
        """The column of a record that stands alone."""
        if not self.is_variable:
            return as_value(self._stacked([value], [name])[0])
        found = zeros((0,), self.dtype.as_numpy_dtype) if value is None else value
        self._check_stride(found, name)
        return found.reshape(found.size // max(1, math.prod(self.row)), *self.row)

    def _stacked(self, values: Values, names: Sequence[str]) -> Array:
        shape, count = self.row, math.prod(self.row)
        result = zeros((len(values), *shape), self.dtype.as_numpy_dtype)
        for index, value in enumerate(values):
            if value is None:
                if not np.size(self.default) and count:
                    raise InvalidArgumentError(
                        f"{names[index]}Feature: {_name(self.key)} (data type: {self.dtype.name}) is required but "
                        "could not be found."
                    )
                if count:
                    result[index] = self.default
                continue
            if value.size != count:
                raise InvalidArgumentError(
                    f"{names[index]}Key: {_name(self.key)}.  Number of {self.dtype.name} values != expected.  Values "
                    f"size: {value.size} but output shape: {list(shape)}"
                )
            result[index] = value.reshape(shape)
        return result

    def _check_stride(self, value: Array, name: str) -> None:
        stride = math.prod(self.row)
        if value.size % stride if stride else value.size:
            raise InvalidArgumentError(
                f"{name}Key: {_name(self.key)}.  Number of {self.dtype.name} values is not a multiple of the stride. "
                f"Saw {value.size} values but output shape is: {self.shape}"
            )

    def _padded(self, values: Values, names: Sequence[str]) -> ArrayOrScalar:
        stride = max(1, math.prod(self.row))
        for value, name in zip(values, names, strict=True):
            if value is not None:
                self._check_stride(value, name)
        longest = max((0 if value is None else value.size // stride for value in values), default=0)
        result = zeros((len(values), longest * stride), self.dtype.as_numpy_dtype)
        result[...] = np.reshape(boxed(self.default), ())
        for index, value in enumerate(values):
            if value is not None:
                result[index, : value.size] = value
        return result.reshape(len(values), longest, *self.row)


def joined(values: Sequence[Array], dtype: DType) -> Array:
    """All values one after the other."""
    return np.concatenate(values) if len(values) else zeros((0,), dtype.as_numpy_dtype)


def lengths_of(values: Values) -> Array:
    """How many values each record has."""
    return np.array([0 if value is None else value.size for value in values], np.int64)


def sparse_column(values: Values, dtype: DType) -> tuple[Array, Array, Array]:
    """Indices, values and shape of a matrix with a row for each record."""
    lengths = lengths_of(values)
    indices = np.stack((np.repeat(np.arange(len(lengths)), lengths), positions(lengths)), axis=1)
    found = joined([value for value in values if value is not None], dtype)
    return indices.astype(np.int64), found, np.array([len(lengths), lengths.max(initial=0)], np.int64)


def sparse_vector(value: Array | None, dtype: DType) -> tuple[Array, Array, Array]:
    """The same of a record that stands alone: a vector."""
    found = zeros((0,), dtype.as_numpy_dtype) if value is None else value
    return np.arange(found.size, dtype=np.int64)[:, None], found, np.array([found.size], np.int64)


def row_splits(lengths: Array, dtype: NumpyDType) -> Array:
    """Where rows of these lengths begin, and the last ends."""
    return np.concatenate(([0], np.cumsum(lengths))).astype(dtype)


def positions(lengths: Array) -> Array:
    """The place of each element in its row, for rows of these lengths."""
    starts = np.cumsum(lengths) - lengths
    found: Array = np.arange(int(lengths.sum())) - np.repeat(starts, lengths)
    return found


def _name(key: bytes) -> str:
    return key.decode("utf-8", "backslashreplace")
