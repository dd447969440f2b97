"""A message of protobuf in parts.

Protobuf holds the GIL while it parses: 50 to 200 ms for a file of 100 MB, during which no event loop in any other
thread goes on.  A message that is merged from its fields, some at a time, is the same one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

PART_BYTES: Final = 1 << 20  # parsed within a millisecond or two
_WIRE_BITS: Final = 3
_LENGTH_DELIMITED: Final = 2
_MORE: Final = 0x80  # of a varint
_VARINT_BITS: Final = 7
_LAST_SHIFT: Final = 63  # of ten bytes: protobuf refuses longer varints


def parsed(message_class: Any, data: bytes, part_bytes: int = PART_BYTES) -> Any:
    """*data* as a message, parsed in parts of *part_bytes* or little more, as long as single fields are not larger."""
    if len(data) <= part_bytes:
        return message_class.FromString(data)
    message = message_class()
    for part in _parts(data, part_bytes):
        message.MergeFromString(part)
    return message


def _parts(data: bytes, part_bytes: int) -> Iterator[bytes]:
    """*data*, cut between fields; what is behind a field that has no length, or none that can be, is one part."""
    start = position = 0
    size = len(data)
    while position < size:
        tag, position = _varint(data, position)
        length, position = _varint(data, position)
        if tag & ((1 << _WIRE_BITS) - 1) != _LENGTH_DELIMITED:
            break
        position += length
        if position - start >= part_bytes and position <= size:
            yield data[start:position]
            start = position
    if start < size:
        yield data[start:]


def _varint(data: bytes, position: int) -> tuple[int, int]:
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
