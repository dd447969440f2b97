"""What values contain: a digest that tells it from other content, and how many bytes it takes.

Values of the same content have the same digest in any process: the dtype, shape and elements of tensors; text and
bytes; None, booleans and numbers; lists, tuples, dicts, sets, enums and dataclasses of such values.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import struct
import sys
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Any, Final

import numpy as np

from asyncexec.framework.errors import InvalidTypeError

DIGEST_BYTES: Final = 32
_MAX_DEPTH: Final = 100
_LENGTH: Final = struct.Struct("<Q")
_LEAVES: Final = frozenset({np.ndarray, np.float32, np.float64, np.int32, np.int64, np.bool_, bytes, str, int, float})
_ARRAYS: Final = frozenset({np.ndarray, np.memmap})
_PLAIN_MODULES: Final = frozenset({"builtins", "collections", "numpy", "types"})
_REFERENCE_BYTES: Final = 64  # of an element of a container, beside its own


def digest_of(value: object) -> bytes:
    """The digest of the content of *value*.

    Raises:
        InvalidTypeError: there is something in it whose content is not known.
    """
    return _digest(value, 0)


def _digest(value: object, depth: int) -> bytes:
    if depth > _MAX_DEPTH:
        raise InvalidTypeError(f"the content of values nested deeper than {_MAX_DEPTH} is not compared")
    if type(value) not in _LEAVES and (
        isinstance(value, (list, tuple, Mapping, AbstractSet)) or dataclasses.is_dataclass(value)
    ):
        return hashlib.blake2b(b"".join(_parts(value, depth + 1)), digest_size=DIGEST_BYTES).digest()
    kind, content = _leaf(value, depth + 1)
    told = kind.encode()
    made = hashlib.blake2b(_LENGTH.pack(len(told)) + told, digest_size=DIGEST_BYTES)
    made.update(content)
    return made.digest()


def _parts(value: Any, depth: int) -> list[bytes]:
    """The kind of a container, and the digests of what it contains."""
    if isinstance(value, Mapping):
        items = sorted(_digest(key, depth) + _digest(item, depth) for key, item in value.items())
        return [_kind_of(value, "dict").encode(), *items]
    if isinstance(value, AbstractSet):
        return [_kind_of(value, "set").encode(), *sorted(_digest(item, depth) for item in value)]
    if isinstance(value, (list, tuple)):
        kind = _kind_of(value, "list" if isinstance(value, list) else "tuple")
        return [kind.encode(), *(_digest(item, depth) for item in value)]
    if isinstance(value, type):
        raise _unknown(value)
    fields = [getattr(value, field.name, None) for field in dataclasses.fields(value)]
    return [b"dataclass", _digest(_name_of(type(value)), depth), *(_digest(item, depth) for item in fields)]


def _leaf(value: object, depth: int) -> tuple[str, bytes | bytearray | memoryview]:
    """What kind of content *value* is, and the bytes of it."""
    if isinstance(value, enum.Enum):
        name: str | None = value.name  # a flag without bits has none
        return f"enum {_name_of(type(value))}", (name or "").encode()
    if isinstance(value, (np.ndarray, np.generic)):
        return _tensor(value, depth)
    if isinstance(value, (bytes, bytearray)):
        return "bytes", value
    if isinstance(value, str):
        return _kind_of(value, "str"), value.encode("utf-8", "surrogatepass")
    if value is None or isinstance(value, (bool, int)):
        return type(value).__name__ if type(value) in (bool, int, type(None)) else _name_of(type(value)), _text(value)
    if isinstance(value, float):
        return _kind_of(value, "float"), struct.pack("<d", value)
    if isinstance(value, complex):
        return "complex", struct.pack("<dd", value.real, value.imag)
    raise _unknown(value)


def _tensor(value: Any, depth: int) -> tuple[str, bytes | bytearray | memoryview]:
    if isinstance(value, np.ndarray) and type(value) not in _ARRAYS:  # such as one with a mask, or a unit
        raise _unknown(value)
    if value.dtype.names is not None:
        items = [value[name] for name in value.dtype.names]
        kind = f"structure {list(value.dtype.names)} {list(value.shape)}"
        return kind, b"".join(_digest(item, depth) for item in items)
    kind = f"tensor {value.dtype.name} {list(value.shape)}"
    if isinstance(value, np.generic) and value.dtype.isnative:
        return kind, value.tobytes()
    if value.dtype.hasobject or value.dtype.kind == "T":  # what it has is not in its memory
        return kind, b"".join(_digest(item, depth) for item in value.flat)
    if value.dtype.byteorder == ">":
        value = value.astype(value.dtype.newbyteorder("<"))
    return kind, np.ascontiguousarray(value).reshape(-1).view(np.uint8).data


def _text(value: object) -> bytes:
    return b"" if value is None else hex(int(value)).encode()  # type: ignore[call-overload]


def _kind_of(value: object, plain: str) -> str:
    """What the content of *value* is of: *plain*, unless it is of a class of the user's."""
    kind = type(value)
    return plain if kind.__module__ in _PLAIN_MODULES else _name_of(kind)


def _name_of(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _unknown(value: object) -> InvalidTypeError:
    return InvalidTypeError(f"the content of a value of type {_name_of(type(value))} is not known")


def num_bytes_of(value: object, depth: int = 0) -> int:
    """About how many bytes *value* takes: exact for tensors and text."""
    if isinstance(value, (bytes, bytearray, str)):
        return len(value)
    if isinstance(value, np.ndarray) and value.dtype.hasobject:
        return int(value.nbytes) + sum(_REFERENCE_BYTES + num_bytes_of(item, depth + 1) for item in value.flat)
    if isinstance(value, (np.ndarray, np.generic)):
        return int(value.nbytes)
    if depth > _MAX_DEPTH:
        return 0
    if isinstance(value, Mapping):
        value = [*value.keys(), *value.values()]
    if isinstance(value, (list, tuple, AbstractSet)):
        return sum(_REFERENCE_BYTES + num_bytes_of(item, depth + 1) for item in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [getattr(value, field.name, None) for field in dataclasses.fields(value)]
        return num_bytes_of(fields, depth + 1)
    return sys.getsizeof(value, _REFERENCE_BYTES)


def has_more_than(value: object, num_bytes: int) -> bool:
    """Whether *value* has more than about *num_bytes*; looks at no more of it than that."""
    left, found = [value], 0
    while left and found <= num_bytes:
        value = left.pop()
        if isinstance(value, (np.generic, float, int)):
            pass
        elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
            found += value.nbytes
        elif isinstance(value, (bytes, bytearray, str)):
            found += len(value)
        elif isinstance(value, (np.ndarray, list, tuple, Mapping, AbstractSet)):
            items = value.flat if isinstance(value, np.ndarray) else value
            left += islice(items, num_bytes // _REFERENCE_BYTES + 1)
            left += islice(value.values(), num_bytes // _REFERENCE_BYTES + 1) if isinstance(value, Mapping) else ()
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            left += [getattr(value, field.name, None) for field in dataclasses.fields(value)]
        found += _REFERENCE_BYTES
    return found > num_bytes
