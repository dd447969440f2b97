"""A message of protobuf in parts.

Protobuf holds the GIL while it parses: 50 to 200 ms for a file of 100 MB, during which no event loop in any other
thread goes on.  A message that is merged from its fields, some at a time, is the same one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from asyncexec.importers.proto_contents import Contents, without_content
from asyncexec.importers.proto_wire import LENGTH_DELIMITED, MOST_BYTES, NODE, WIRE_BITS, size_of, varint

PART_BYTES: Final = 1 << 20  # parsed within a millisecond or two


def parsed(message_class: Any, data: bytes, part_bytes: int = PART_BYTES, contents: Contents | None = None) -> object:
    """*data* as a message, parsed in parts of *part_bytes* or little more, as long as single fields are not larger.

    Of a GraphDef, large contents of tensors may be left out of the message: *contents* are told where they are.
    """
    if len(data) <= part_bytes:
        return message_class.FromString(data)
    message = message_class()
    for part in _parts(data, part_bytes, contents):
        message.MergeFromString(part)
    return message


def _parts(data: bytes, part_bytes: int, contents: Contents | None) -> Iterator[bytes]:
    """*data*, cut between fields; what is behind a field that has no length, or none that can be, is one part."""
    start = position = num_nodes = 0
    size = len(data)
    contents = contents if type(data) is bytes else None  # of others somebody may change the slices
    while position < size:
        begin = position
        tag, position = varint(data, position)
        length, position = varint(data, position)
        if tag & ((1 << WIRE_BITS) - 1) != LENGTH_DELIMITED:
            break
        position += length
        if contents is not None and tag == NODE and position <= size:
            is_usual = position - length - begin == 1 + size_of(length) and length < MOST_BYTES
            part = without_content(data, position - length, position, num_nodes, contents) if is_usual else None
            num_nodes += 1
            if part is not None:
                if start < begin:
                    yield data[start:begin]
                yield part
                start = position
        if position - start >= part_bytes and position <= size:
            yield data[start:position]
            start = position
    if start < size:
        yield data[start:]
