"""DecodeJSONExample: examples in the JSON form of protocol buffers (``core/kernels/decode_proto_op.cc``)."""

from __future__ import annotations

import base64
import binascii
import json
import struct
from collections.abc import Callable
from typing import Any, Final

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel_registry import register_function
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import unchanged
from asyncexec.ops.parsing.wire import as_varint, delimited
from asyncexec.ops.string.string_elements import elementwise

register_op("DecodeJSONExample", "json_examples: string -> binary_examples: string", shape=unchanged)

_SPECIAL: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_FLOAT_TAG: Final = b"\x0d"
_INT_TAG: Final = b"\x08"
_URL_SAFE: Final = str.maketrans("-_", "+/")


def _object(value: object, what: str) -> list[tuple[str, object]]:
    """The members of an object; those that are null are not there."""
    if not isinstance(value, _Members):
        raise ValueError(f"{what} must be an object")
    return [(name, item) for name, item in value if item is not None]


class _Members(list[tuple[str, Any]]):
    """A JSON object: its members in their order."""


def _example(value: object) -> bytes:
    return b"".join(_field(name, item, {"features": _features}, "an example") for name, item in _object(value, "it"))


def _features(value: object) -> bytes:
    return b"".join(_field(name, item, {"feature": _map}, "features") for name, item in _object(value, "features"))


def _field(name: str, item: object, known: dict[str, Callable[[Any], bytes]], where: str) -> bytes:
    if name not in known:
        raise ValueError(f"{where} has no such field: {name!r}")
    found = known[name](item)
    return found if name == "feature" else delimited(1, found)


def _map(value: object) -> bytes:
    if not isinstance(value, _Members):
        raise ValueError("feature must be an object")
    return b"".join(delimited(1, _entry(name, item)) for name, item in dict(value).items())


def _entry(name: str, item: object) -> bytes:
    key = delimited(1, name.encode())
    return key if item is None else key + delimited(2, _feature(item))


def _feature(value: object) -> bytes:
    found = b""
    for name, item in _object(value, "a feature"):
        if name not in _LISTS:
            raise ValueError(f"a feature has no such field: {name!r}")
        number, write = _LISTS[name]
        values = b""
        for member, content in _object(item, name):
            if member != "value" or not isinstance(content, list) or isinstance(content, _Members):
                raise ValueError(f"{name} has one field, the list 'value', not {member!r}")
            values = b"".join(map(write, content))
        found = delimited(number, values)
    return found


def _bytes(value: object) -> bytes:
    if not isinstance(value, str):
        raise ValueError(f"bytes must be a string, not {value!r}")
    text = value.translate(_URL_SAFE).rstrip("=")
    try:
        return delimited(1, base64.b64decode(text + "=" * (-len(text) % 4), validate=True))
    except binascii.Error as error:
        raise ValueError(f"bytes must be in base64: {value[:40]!r}") from error


def _float(value: object) -> bytes:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(f"a float must be a number, not {value!r}")
    number = _SPECIAL[value] if isinstance(value, str) and value in _SPECIAL else float(value)
    return _FLOAT_TAG + struct.pack("<f", number)


def _int(value: object) -> bytes:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(f"an integer must be a number, not {value!r}")
    number = int(value) if not isinstance(value, float) else _whole(value)
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"{number} is no 64-bit integer")
    return _INT_TAG + as_varint(number % 2**64)


def _whole(value: float) -> int:
    if not value.is_integer():
        raise ValueError(f"{value} is no integer")
    return int(value)


_LISTS: Final[dict[str, tuple[int, Callable[[Any], bytes]]]] = {
    **dict.fromkeys(("bytesList", "bytes_list"), (1, _bytes)),
    **dict.fromkeys(("floatList", "float_list"), (2, _float)),
    **dict.fromkeys(("int64List", "int64_list"), (3, _int)),
}


def decode_json_example(text: bytes) -> bytes:
    """The wire form of an example in JSON."""
    try:
        return _example(json.loads(text, object_pairs_hook=_Members))
    except (ValueError, OverflowError, RecursionError) as error:
        raise InvalidArgumentError(f"Error while parsing JSON: {error}") from None


register_function("DecodeJSONExample", function=elementwise(decode_json_example))
