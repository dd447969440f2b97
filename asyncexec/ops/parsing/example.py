"""Examples and SequenceExamples: the values of their features (``example.proto``, ``feature.proto``)."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.types import DType
from asyncexec.ops.parsing.wire import DELIMITED, FIXED32, VARINT, fields, packed_varints

FEATURE_DTYPES: Final = (types.string, types.float32, types.int64)
_SHOWN: Final = 50

# The bytes of each feature (of each list of features) by name; of several with one name the last counts.
Features = dict[bytes, bytes]


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


def read_feature(data: bytes, dtype: DType, where: str) -> np.ndarray[Any, Any] | None:
    """The values of a feature, a vector of *dtype*; None where it has no list of any kind.

    Raises:
        InvalidArgumentError: the feature is of another dtype, or no feature; the message begins with *where*.
    """
    try:
        first = next(iter(fields(data)), None)
        if first is None:
            return None
        number, kind, content = first
        if kind != DELIMITED or not 1 <= number <= len(FEATURE_DTYPES):
            raise ValueError(f"a feature has the unknown field {number}")
        found = FEATURE_DTYPES[number - 1]
        if found is dtype:
            return _values(content, dtype)
    except ValueError as error:
        raise InvalidArgumentError(f"{where}Can't parse serialized Example: {error}") from None
    raise InvalidArgumentError(f"{where}Data types don't match. Expected type: {dtype.name}, Data type: {found.name}")


def _values(data: bytes, dtype: DType) -> np.ndarray[Any, Any]:
    """The elements of a BytesList, FloatList or Int64List."""
    items = [(kind, content) for number, kind, content in fields(data) if number == 1]
    if dtype is types.string:
        strings = [content for kind, content in items if kind == DELIMITED]
        array = np.empty(len(strings), object)
        array[:] = strings
        return array
    parts = [_numbers(kind, content, dtype) for kind, content in items]
    return np.concatenate(parts) if parts else np.zeros(0, dtype.as_numpy_dtype)


def _numbers(kind: int, content: Any, dtype: DType) -> np.ndarray[Any, Any]:
    if dtype is types.float32 and kind in (DELIMITED, FIXED32):
        if len(content) % 4:
            raise ValueError(f"{len(content)} bytes are no list of floats")
        return np.frombuffer(content, "<f4").astype(np.float32, copy=False)
    if dtype is types.int64 and kind == DELIMITED:
        return packed_varints(content)
    if dtype is types.int64 and kind == VARINT:
        return np.array([content], np.uint64).astype(np.int64)
    raise ValueError(f"a list of {dtype.name} has a field of wire type {kind}")


def read_feature_list(data: bytes, where: str) -> list[bytes]:
    """The features of a FeatureList."""
    try:
        return [content for number, kind, content in fields(data) if number == 1 and kind == DELIMITED]
    except ValueError as error:
        raise InvalidArgumentError(f"{where}Can't parse serialized FeatureList: {error}") from None
