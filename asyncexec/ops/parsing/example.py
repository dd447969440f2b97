"""Examples and SequenceExamples: the values of their features (``example.proto``, ``feature.proto``)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.types import DType
from asyncexec.ops.parsing.wire import DELIMITED, FIXED32, VARINT, fields, packed_varints

FEATURE_DTYPES: Final = (types.string, types.float32, types.int64)
_SHOWN: Final = 50

# The bytes of each feature (of each list of features) by name; of several with one name the last counts.
Features = dict[bytes, bytes]
# What a list has on the wire: the wire type and the value of each field.
Items = list[tuple[int, Any]]
_WIRE_TYPES: Final = {
    types.string: {DELIMITED},
    types.float32: {DELIMITED, FIXED32},
    types.int64: {DELIMITED, VARINT},
}


def _entries(data: bytes) -> Features:
    """``map<string, Message>`` as field 1 of *data*."""
    found: Features = {}
    for number, kind, entry in fields(data):
        if number != 1 or kind != DELIMITED:
            continue
        key = value = b""
        for part, part_kind, content in fields(entry):
            if part_kind == DELIMITED and part == 1:
                key = content
            elif part_kind == DELIMITED and part == 2:
                value = content
        found[key] = value
    return found


def _merged(data: bytes, wanted: int) -> Features:
    found: Features = {}
    for number, kind, content in fields(data):
        if number == wanted and kind == DELIMITED:
            found.update(_entries(content))
    return found


def read_example(data: bytes, name: str) -> Features:
    """The features of a serialized Example; InvalidArgumentError, with *name*, where it is none."""
    try:
        return _merged(data, 1)
    except ValueError as error:
        raise _no_example(data, name, error) from None


def read_sequence_example(data: bytes, name: str) -> tuple[Features, Features]:
    """The features of the context, and the lists of features, of a serialized SequenceExample."""
    try:
        return _merged(data, 1), _merged(data, 2)
    except ValueError as error:
        raise _no_example(data, name, error) from None


def _no_example(data: bytes, name: str, error: ValueError) -> InvalidArgumentError:
    shown = data[:_SHOWN].decode("utf-8", "backslashreplace")
    return InvalidArgumentError(f"{name}Could not parse example input, value: '{shown}': {error}")


def read_feature(data: bytes, dtype: DType, where: str) -> Items | None:
    """The items of a feature of *dtype*; None where it has no list of any kind.

    Raises:
        InvalidArgumentError: the feature is of another dtype, or no feature; the message begins with *where*.
    """
    try:
        parts = fields(data)
        if not parts:
            return None
        number, kind, content = parts[0]
        if kind != DELIMITED or not 1 <= number <= len(FEATURE_DTYPES):
            raise ValueError(f"a feature has the unknown field {number}")
        found = FEATURE_DTYPES[number - 1]
        if found is dtype:
            items = [(kind, item) for number, kind, item in fields(content) if number == 1]
            _check(items, dtype)
            return items
    except ValueError as error:
        raise InvalidArgumentError(f"{where}Can't parse serialized Example: {error}") from None
    raise InvalidArgumentError(f"{where}Data types don't match. Expected type: {dtype.name}, Data type: {found.name}")


def _check(items: Items, dtype: DType) -> None:
    """ValueError where *items* are not of a list of *dtype*."""
    kinds = _WIRE_TYPES[dtype]
    for kind, item in items:
        if kind not in kinds:
            raise ValueError(f"a list of {dtype.name} has a field of wire type {kind}")
        if dtype is types.float32 and len(item) % 4:
            raise ValueError(f"{len(item)} bytes are no list of floats")
        if dtype is types.int64 and kind == DELIMITED and item and item[-1] >= 128:
            raise ValueError("the last varint does not end")


def decoded(features: Sequence[Items | None], dtype: DType) -> list[Array | None]:
    """A vector of each feature, all of *dtype*; numbers are read at once."""
    if dtype is types.string:
        return [None if items is None else _strings([item for _, item in items]) for items in features]
    if any(items is not None and len(items) > 1 for items in features):
        return [None if items is None else _joined(items, dtype) for items in features]
    chunks = [items[0] if items else (DELIMITED, b"") for items in features]
    if any(kind != DELIMITED for kind, _ in chunks):
        return [None if items is None else _joined(items, dtype) for items in features]
    found = _cut([chunk for _, chunk in chunks], dtype)
    return [None if items is None else value for items, value in zip(features, found, strict=True)]


def _strings(items: Sequence[bytes]) -> Array:
    array = np.empty(len(items), object)
    array[:] = items
    return array


def _cut(chunks: Sequence[bytes], dtype: DType) -> list[Array]:
    """The numbers of each chunk."""
    data = b"".join(chunks)
    ends = np.cumsum([0, *map(len, chunks)])
    if dtype is types.float32:
        values, bounds = _numbers(DELIMITED, data, dtype), (ends // 4).tolist()
    else:
        values = packed_varints(data)
        counts = np.concatenate(([0], np.cumsum(np.frombuffer(data, np.uint8) < 128)))
        bounds = counts[ends].tolist()
    return [values[begin:end] for begin, end in pairwise(bounds)]


def _joined(items: Items, dtype: DType) -> Array:
    parts = [_numbers(kind, content, dtype) for kind, content in items]
    return np.concatenate(parts) if parts else np.zeros(0, dtype.as_numpy_dtype)


def _numbers(kind: int, content: Any, dtype: DType) -> Array:
    if dtype is types.float32:
        return np.frombuffer(content, "<f4").astype(np.float32, copy=False)
    if kind == DELIMITED:
        return packed_varints(content)
    return np.array([content], np.uint64).astype(np.int64)


def read_feature_list(data: bytes, where: str) -> list[bytes]:
    """The features of a FeatureList."""
    try:
        return [content for number, kind, content in fields(data) if number == 1 and kind == DELIMITED]
    except ValueError as error:
        raise InvalidArgumentError(f"{where}Can't parse serialized FeatureList: {error}") from None
