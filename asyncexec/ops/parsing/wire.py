"""The wire format of protocol buffers, as far as records of data need it: fields of a message, packed numbers."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array

VARINT: Final = 0
FIXED64: Final = 1
DELIMITED: Final = 2
FIXED32: Final = 5
_MOST_BYTES: Final = 10  # of one varint


def varint_at(data: bytes, place: int) -> tuple[int, int]:
    """The varint at *place*, and where it ends; ValueError where it does not."""
    value = shift = 0
    for end in range(place, min(place + _MOST_BYTES, len(data))):
        byte = data[end]
        value |= (byte & 127) << shift
        if byte < 128:
            return value & (2**64 - 1), end + 1
        shift += 7
    raise ValueError(f"a varint at byte {place} does not end")


def fields(data: bytes) -> list[tuple[int, int, Any]]:
    """Number, wire type and value (of a varint an int, else bytes) of each field; ValueError where it is no message."""
    found: list[tuple[int, int, object]] = []
    place, end = 0, len(data)
    while place < end:
        tag, place = (data[place], place + 1) if data[place] < 128 else varint_at(data, place)
        kind = tag & 7
        if not tag >> 3:
            raise ValueError(f"a field has the number 0, before byte {place}")
        if kind == DELIMITED:
            is_short = place < end and data[place] < 128
            size, place = (data[place], place + 1) if is_short else varint_at(data, place)
        elif kind == VARINT:
            value, place = varint_at(data, place)
            found.append((tag >> 3, kind, value))
            continue
        elif kind in (FIXED32, FIXED64):
            size = 4 if kind == FIXED32 else 8
        else:
            raise ValueError(f"a field is of the unknown wire type {kind}, before byte {place}")
        stop = place + size
        if stop > end:
            raise ValueError(f"a field of {size} bytes at byte {place} is cut off")
        found.append((tag >> 3, kind, data[place:stop]))
        place = stop
    return found


def packed_varints(data: bytes) -> Array:
    """Varints one after the other, as int64; ValueError where one does not end."""
    octets = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(octets < 128)
    if octets.size and (not ends.size or ends[-1] != octets.size - 1):
        raise ValueError("the last varint does not end")
    starts = np.concatenate((np.zeros(min(1, ends.size), np.int64), ends[:-1] + 1))
    lengths = ends - starts + 1
    longest = int(np.max(lengths, initial=0))
    if longest > _MOST_BYTES:
        raise ValueError(f"a varint is {longest} bytes long")
    values = np.zeros(ends.size, np.uint64)
    for index in range(longest):
        has_more = lengths > index
        parts = (octets[starts[has_more] + index] & 127).astype(np.uint64)
        values[has_more] |= parts << np.uint64(7 * index)
    return values.astype(np.int64)


def as_varint(value: int) -> bytes:
    """*value*, not negative, on the wire."""
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def delimited(number: int, data: bytes) -> bytes:
    """The field *number* with *data*."""
    return as_varint(number << 3 | DELIMITED) + as_varint(len(data)) + data
