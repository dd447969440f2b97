"""How protobuf writes fields, as far as messages are cut in parts before they are parsed."""

from __future__ import annotations

from typing import Final, NamedTuple

WIRE_BITS: Final = 3
LENGTH_DELIMITED: Final = 2
NODE: Final = 1 << WIRE_BITS | LENGTH_DELIMITED  # the tag of GraphDef.node
_VARINT: Final = 0
_SIZES: Final = {1: 8, 5: 4}  # bytes, by wire type
_MOST_FIELDS: Final = 256
_MOST_NUMBERS: Final = 2**29
MOST_BYTES: Final = 2**31
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
    """Those of the message from *position* to *stop*.

    None where it has groups, very many fields, or some that are not told as every writer tells them, or is none.
    """
    found: list[Field] = []
    while position < stop:
        start = position
        tag, position = varint(data, position)
        if position - start != size_of(tag) or not 0 < tag >> WIRE_BITS < _MOST_NUMBERS or len(found) >= _MOST_FIELDS:
            return None
        wire_type = tag & ((1 << WIRE_BITS) - 1)
        value = position
        if wire_type == LENGTH_DELIMITED:
            length, value = varint(data, position)
            if value - position != size_of(length) or length >= MOST_BYTES:
                return None
            position = value + length
        elif wire_type == _VARINT:
            _, position = varint(data, position)
        elif wire_type in _SIZES:
            position += _SIZES[wire_type]
        else:
            return None
        found.append(Field(tag, start, value, position))
    return found if position == stop else None


def size_of(number: int) -> int:
    """The bytes of *number* as a varint that is no longer than it need be."""
    return max(1, -(-number.bit_length() // _VARINT_BITS))


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
