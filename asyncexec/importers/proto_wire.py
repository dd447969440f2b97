"""How protobuf writes fields, as far as messages are cut in parts before they are parsed."""

from __future__ import annotations

from typing import Final, NamedTuple

WIRE_BITS: Final = 3
LENGTH_DELIMITED: Final = 2
NODE: Final = 1 << WIRE_BITS | LENGTH_DELIMITED  # the tag of GraphDef.node
_VARINT: Final = 0
_SIZES: Final = {1: 8, 5: 4}  # bytes, by wire type
_MORE: Final = 0x80  # of a varint
_VARINT_BITS: Final = 7
_LAST_SHIFT: Final = 63  # of ten bytes: protobuf refuses longer varints


class Field(NamedTuple):
    """A field, from *start* to *stop*; its value begins at *value*."""

    tag: int
    start: int
    value: int
    stop: int


def fields(data: bytes, position: int, stop: int) -> list[Field] | None:
    """Those of the message from *position* to *stop*; None where it has groups, or is none."""
    found: list[Field] = []
    while position < stop:
        start = position
        tag, position = varint(data, position)
        wire_type = tag & ((1 << WIRE_BITS) - 1)
        value = position
        if wire_type == LENGTH_DELIMITED:
            length, value = varint(data, position)
            position = value + length
        elif wire_type == _VARINT:
            _, position = varint(data, position)
        elif wire_type in _SIZES:
            position += _SIZES[wire_type]
        else:
            return None
        found.append(Field(tag, start, value, position))
    return found if position == stop else None


def varint(data: bytes, position: int) -> tuple[int, int]:
    """The number at *position*, and the position behind it; behind the end, or in what is none, some number."""
    byte = data[position] if position < len(data) else 0
    position += 1
    if byte < _MORE:
        return byte, position
    value, shift = byte & ~_MORE, 0
    while byte >= _MORE and shift < _LAST_SHIFT and position < len(data):
        byte = data[position]
        position += 1
        shift += _VARINT_BITS
        value |= (byte & ~_MORE) << shift
    return value, position


def written(number: int, value: bytes) -> bytes:
    """The field *number* with a *value* that has a length."""
    tag, size = number << WIRE_BITS | LENGTH_DELIMITED, len(value)
    head = bytearray()
    for each in (tag, size):
        left = each
        while left >= _MORE:
            head.append(left & ~_MORE & 0xFF | _MORE)
            left >>= _VARINT_BITS
        head.append(left)
    return bytes(head) + value
