"""About how much memory a message takes once it is read, before it is.

What the data of tensors takes is what it has in the message.  All else grows: an empty message in a list of them has 2
bytes, and takes 90.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from google.protobuf.descriptor import FieldDescriptor

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.service.held_bytes import SMALL_BYTES, HeldBytes
from asyncexec.service.http.codec import MAX_JSON_BYTES
from asyncexec.service.off_loop import off_loop

_LARGE: Final = 256  # bytes of a field that is worth a look
_MOST_FIELDS: Final = 2**14  # that are looked at; what is behind them is taken for no data of tensors
_FEW_FIELDS: Final = 100  # which takes no longer than giving the work to a thread
_GROWTH: Final = 40  # of what is no data of tensors
_GROWTH_OF_VARINTS: Final = 8
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types
_AS_THEY_ARE: Final = (  # packed or not, they take what they have in the message
    FieldDescriptor.TYPE_BYTES,
    FieldDescriptor.TYPE_STRING,
    FieldDescriptor.TYPE_DOUBLE,
    FieldDescriptor.TYPE_FLOAT,
    FieldDescriptor.TYPE_FIXED32,
    FieldDescriptor.TYPE_FIXED64,
    FieldDescriptor.TYPE_SFIXED32,
    FieldDescriptor.TYPE_SFIXED64,
)


async def hold_parsed(held: HeldBytes, data: bytes, descriptor: object, most: int = MAX_JSON_BYTES) -> None:
    """Let *held* count what *data*, a message of *descriptor*, takes once it is read, if it is large.

    Raises:
        InvalidArgumentError: it has more than *most* bytes that are no data of tensors.
        UnavailableError: all requests together hold too many bytes.
    """
    if len(data) > SMALL_BYTES:
        held.grow_to(len(data))
        found = _of_tensors(data, descriptor, _FEW_FIELDS)
        if found.num_fields == _FEW_FIELDS:  # there may be more
            found = await off_loop(len(data), _of_tensors, data, descriptor, _MOST_FIELDS)
        held.grow_to(_grown(len(data), found, most))


def parsed_bytes(data: bytes, descriptor: object) -> int:
    """What *data*, a message of *descriptor*, takes; InvalidArgumentError as of hold_parsed()."""
    return _grown(len(data), _of_tensors(data, descriptor, _MOST_FIELDS), MAX_JSON_BYTES)


class _Found(NamedTuple):
    """The bytes of large fields that are no messages, those of lists of varints, and how many fields were looked at."""

    plain: int
    varints: int
    num_fields: int


def _grown(num_bytes: int, found: _Found, most: int) -> int:
    rest = num_bytes - found.plain - found.varints
    if rest > most:
        raise InvalidArgumentError(
            f"the request has {rest} bytes beside the data of tensors, and at most {most} are taken",
            hint="send strings and numbers as raw data",
        )
    return found.plain + _GROWTH_OF_VARINTS * found.varints + _GROWTH * rest


def _of_tensors(data: bytes, descriptor: Any, most_fields: int) -> _Found:
    """What is found in *data*; nothing in what is no message."""
    plain = varints = num_fields = 0
    within = [(descriptor, 0, len(data))]
    try:
        while within:
            message, at, end = within.pop()
            while at < end and num_fields < most_fields:
                num_fields += 1
                tag, at = _varint(data, at)
                kind = tag & 7
                if kind == _VARINT:
                    _, at = _varint(data, at)
                elif kind != _BYTES:
                    at += {_FIXED64: 8, _FIXED32: 4}[kind]
                else:
                    size, at = _varint(data, at)
                    field = message.fields_by_number.get(tag >> 3) if _LARGE <= size <= end - at else None
                    if field is not None and field.message_type is not None:
                        within.append((field.message_type, at, at + size))
                    elif field is not None and field.type in _AS_THEY_ARE:
                        plain += size
                    elif field is not None:
                        varints += size
                    at += size
    except (IndexError, KeyError):  # it is no message, or has groups
        pass
    return _Found(plain, varints, num_fields)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at *at* in *data*, and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
