"""Contents of tensors that are left out of a GraphDef before protobuf parses it.

Protobuf copies them, holding the GIL: one of 10 MB on its way through two messages for 6 to 8 ms.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from asyncexec.importers.proto_wire import LENGTH_DELIMITED, NODE, WIRE_BITS, Field, fields, written

LARGE: Final = 2**16  # bytes of a node from which on it is looked at
_PIECE: Final = 2**20  # bytes that are copied at a time with the GIL
# By the number of the node: which attr is the tensor, and where its content is.
Contents: TypeAlias = dict[int, tuple[str, slice]]

# The numbers of fields: GraphDef.node, NodeDef.attr, the key and the value of its entries, AttrValue.tensor,
# TensorProto.tensor_content.
_NODE: Final = NODE >> WIRE_BITS
_ATTR, _KEY, _VALUE, _TENSOR, _CONTENT = 5, 1, 2, 8, 4


def without_content(data: bytes, start: int, stop: int, number: int, contents: Contents) -> bytes | None:
    """The node of that *number*, from *start* to *stop*, without the large content of its tensor, and noted so.

    None where there is none, or what there is may mean something else: protobuf has the last of fields told twice.
    """
    if stop - start < LARGE:
        return None
    attrs = _all(fields(data, start, stop), _ATTR)
    entries = [fields(data, attr.value, attr.stop) for attr in attrs]
    keys = [_text_of(data, _sole(entry, _KEY)) for entry in entries]
    if None in keys or len(set(keys)) < len(keys):
        return None
    for attr, entry, key in zip(attrs, entries, keys, strict=True):
        value = _sole(entry, _VALUE)
        if value is None or key is None or attr.stop - attr.value < LARGE:
            continue
        kinds = fields(data, value.value, value.stop)
        tensor = _sole(kinds, _TENSOR)
        if kinds is None or tensor is None or len(kinds) > 1:  # of several kinds the last counts
            return None
        content = _sole(fields(data, tensor.value, tensor.stop), _CONTENT)
        if content is None or content.stop - content.value < LARGE:
            return None
        contents[number] = key, slice(content.value, content.stop)
        inner = data[tensor.value : content.start] + data[content.stop : tensor.stop]
        inner = written(_TENSOR, inner)
        inner = data[attr.value : value.start] + written(_VALUE, inner) + data[value.stop : attr.stop]
        inner = data[start : attr.start] + written(_ATTR, inner) + data[attr.stop : stop]
        return written(_NODE, inner)
    return None


def sliced(data: bytes, place: slice) -> bytes:
    """The bytes at that *place*; what is long is put together without the GIL, which a slice would hold for long."""
    pieces = [data[at : min(at + _PIECE, place.stop)] for at in range(place.start, place.stop, _PIECE)]
    return b"".join(pieces)


def _all(found: list[Field] | None, number: int) -> list[Field]:
    tag = number << WIRE_BITS | LENGTH_DELIMITED
    return [field for field in found or () if field.tag == tag]


def _sole(found: list[Field] | None, number: int) -> Field | None:
    """The one field of that *number*; None where there is none, or several."""
    same = _all(found, number)
    return same[0] if len(same) == 1 else None


def _text_of(data: bytes, field: Field | None) -> str | None:
    if field is None:
        return None
    try:
        return data[field.value : field.stop].decode()
    except UnicodeDecodeError:
        return None
