"""The bytes of a checkpoint: a head, a part in JSON, and values, as ``framework/tensor_codec.py`` has them.

===========  =========================================================================================================
8 bytes      ``AXCKPT\\r\\n``: a copy that changed line ends is found out
u32          the version of the format
u32          Adler-32 of the part in JSON
u64          the length of all that comes after the head
u64          the length of the part in JSON
the part     what is known of the stream; ``values`` there has name, kind, length and checksum of each value
the values   one after the other, each with its own head
===========  =========================================================================================================

All is little-endian.  A value of dtype object is JSON, or what the codec of the user makes of it; nothing is pickled.

The checksum of a value is Adler-32.  Of a large one, each page of 4096 bytes is first made a number of 64 bits: the sum
of its words of 32 bits, each times a weight of its own.  That takes half as long as a CRC, and finds a word that has
another value, and two words that have changed places.  Version 1 had sums of words of 64 bits without weights.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from asyncexec.framework.errors import DataLossError, FailedPreconditionError, InvalidArgumentError, OpError
from asyncexec.framework.ownership import freeze
from asyncexec.framework.tensor_codec import encode, is_tensor_dtype, prepare, read_head
from asyncexec.framework.wire_forms import wire_form_of

VERSION: Final = 2
_MAGIC: Final = b"AXCKPT\r\n"
_HEAD: Final = struct.Struct("<8sIIQ")
_LENGTH: Final = struct.Struct("<Q")
_MAX_BYTES: Final = 2**62
_LARGE_BYTES: Final = 2**20
_PIECE_BYTES: Final = 2**20
_PAGE_BYTES: Final = 4096
_PAGE_WORDS: Final = _PAGE_BYTES // 4
# Odd, so that no change of one word is lost; else at random.
_WEIGHTS: Final = np.frombuffer(hashlib.shake_128(b"weights of words").digest(8 * _PAGE_WORDS), "<u8") | np.uint64(1)
_ARRAYS: Final = frozenset({np.ndarray, np.memmap})  # others have more than their elements, such as a mask
_NO_VALUE, _TENSOR, _OBJECT, _APART = range(4)


class Codec(Protocol):
    """Makes bytes of Python objects, and objects of such bytes; for states of dtype object that JSON cannot have."""

    def encode(self, value: Any) -> bytes:
        """The bytes of *value*."""
        ...

    def decode(self, content: bytes) -> Any:
        """What *content* was made of."""
        ...


class JsonCodec:
    """Objects as JSON: None, booleans, numbers, strings, and lists and dicts of these."""

    def encode(self, value: object) -> bytes:
        """The bytes of *value*; TypeError or ValueError when it would not come back as it is."""
        content = json.dumps(value, allow_nan=True).encode()
        found = json.loads(content)
        if not _is_same(found, value):
            raise TypeError(
                "JSON does not give it back as it is, such as a tuple, an enum, a number of numpy, a defaultdict, or a"
                " dict whose keys are no strings"
            )
        return content

    def decode(self, content: bytes) -> Any:
        """What *content* was made of."""
        return json.loads(content)


def _is_same(found: Any, value: Any) -> bool:
    """Whether *found* is as *value*, of the same types throughout, where NaN is as NaN."""
    kind = type(value)
    if type(found) is not kind:
        return False
    if kind is list:
        return len(found) == len(value) and all(map(_is_same, found, value))
    if kind is dict:
        return found.keys() == value.keys() and all(
            type(name) is str and _is_same(found[name], each) for name, each in value.items()
        )
    return bool(found == value or found != found)


@dataclass(frozen=True, slots=True)
class Record:
    """What a checkpoint holds.

    Attributes:
        about: what JSON can have.
        values: tensors by name; None is no value.
    """

    about: Mapping[str, Any]
    values: Mapping[str, Any]


def to_bytes(record: Record, codec: Codec) -> bytes:
    """The bytes of *record*, as of ``to_parts``."""
    return joined(to_parts(record, codec))


def joined(parts: Iterable[bytes | memoryview]) -> bytes:
    """*parts* as one.  Python lets other threads run while it joins bytes, and while it joins views it does not."""
    pieces = (part[start : start + _PIECE_BYTES] for part in parts for start in range(0, len(part), _PIECE_BYTES))
    return b"".join([bytes(piece) for piece in pieces])


def to_parts(record: Record, codec: Codec, apart: Collection[str] = ()) -> list[bytes | memoryview]:
    """The bytes of *record*, in parts that follow one another; large ones are the memory of arrays.

    Of the tensors that are stored *apart* it has the checksums.

    Raises:
        InvalidArgumentError: a value has no form; it is named.
    """
    parts: list[bytes | memoryview] = []
    listed: list[list[object]] = []
    for name, value in record.values.items():
        kind, pieces = _pieces(name, value, codec)
        if name in apart:
            listed.append([name, _APART, 0, _checksum(pieces)])
            continue
        listed.append([name, kind, sum(map(len, pieces)), _checksum(pieces)])
        parts += pieces
    try:
        about = json.dumps({**record.about, "values": listed}).encode()
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"a checkpoint cannot hold what is told of the stream: {error}",
            hint="the positions of sources are what JSON has",
        ) from error
    parts = [_LENGTH.pack(len(about)), about, *parts]
    return [_HEAD.pack(_MAGIC, VERSION, zlib.adler32(about), sum(map(len, parts))), *parts]


def _checksum(pieces: Iterable[bytes | memoryview], version: int = VERSION) -> int:
    """Adler-32, of large pieces that of the numbers of their pages."""
    checksum = 1
    for piece in pieces:
        if len(piece) >= _LARGE_BYTES:
            whole = len(piece) // _PAGE_BYTES * _PAGE_BYTES
            checksum = zlib.adler32(_pages(piece[:whole], version).tobytes(), checksum)
            piece = piece[whole:]
        checksum = zlib.adler32(piece, checksum)
    return checksum


def _pages(piece: bytes | memoryview, version: int) -> Any:
    """A number for each page of *piece*."""
    if version == 1:
        return np.frombuffer(piece, "<u8").reshape(-1, _PAGE_BYTES // 8).sum(axis=1, dtype="<u8")
    words = np.frombuffer(piece, "<u4").reshape(-1, _PAGE_WORDS)
    return np.einsum("ij,j->i", words, _WEIGHTS, dtype="<u8")


def _pieces(name: str, value: object, codec: Codec) -> tuple[int, list[bytes | memoryview]]:
    if value is None:
        return _NO_VALUE, []
    if _is_tensor(value):
        made = encode(0, "", value, False, objects=False, max_bytes=_MAX_BYTES)
        return _TENSOR, [made.head, made.payload]
    kind = type(value)
    try:
        content = codec.encode(value)
    except Exception as error:
        raise InvalidArgumentError(
            f"{name}: a value of type {kind.__module__}.{kind.__qualname__} cannot be stored in a checkpoint:"
            f" {type(error).__name__}: {error}",
            hint="use tensors, or what JSON has; or give codec=, whose encode makes bytes of it, and decode the value",
        ) from error
    if not isinstance(content, bytes):
        raise InvalidArgumentError(f"{name}: the codec has made {type(content).__name__} of it, not bytes")
    return _OBJECT, [content]


def _is_tensor(value: object) -> bool:
    if isinstance(value, np.ndarray):
        if value.dtype == np.object_:
            is_tensor = bool(value.ndim) and all(type(element) is bytes for element in value.flat)
        else:
            is_tensor = is_tensor_dtype(value.dtype)
        return is_tensor and type(value) in _ARRAYS
    if isinstance(value, np.generic):
        return isinstance(value, np.bytes_) or is_tensor_dtype(value.dtype)
    return isinstance(value, bytes) or wire_form_of(value) is not None


def told_in(content: bytes) -> Mapping[str, Any]:
    """What *content* tells of itself, without its values; errors as of ``from_bytes``."""
    return _opened(memoryview(content))[0]


def from_bytes(content: bytes, codec: Codec, apart: Mapping[str, object] | None = None) -> Record:
    """The record of *content*, and of the tensors that were stored *apart*.

    Raises:
        DataLossError: it is no checkpoint, or is torn or damaged.
        FailedPreconditionError: it is of a newer version.
    """
    about, rest, version = _opened(memoryview(content))
    values: dict[str, object] = {}
    try:
        for name, kind, length, found in about.pop("values"):
            checksum = _Checksum(found, version)
            if not 0 <= length <= len(rest):
                raise DataLossError(f"a checkpoint is damaged: {name!r} has {length} bytes of {len(rest)}")
            if kind == _APART:
                values[name] = _checked(name, apart, checksum)
                continue
            values[name] = _value(name, kind, rest[:length], checksum, codec)
            rest = rest[length:]
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        if isinstance(error, OpError):
            raise
        raise DataLossError(f"a checkpoint is damaged: {type(error).__name__}: {error}") from error
    if rest:
        raise DataLossError(f"a checkpoint is damaged: {len(rest)} bytes are left")
    return Record(about, values)


def _opened(content: memoryview) -> tuple[dict[str, Any], memoryview, int]:
    """The part in JSON, the rest, and the version, once the checksum is right."""
    if len(content) < len(_MAGIC) or bytes(content[: len(_MAGIC)]) != _MAGIC:
        raise DataLossError(f"these {len(content)} bytes are no checkpoint of asyncexec")
    if len(content) < _HEAD.size:
        raise DataLossError(f"a checkpoint is torn: it ends after {len(content)} bytes")
    _, version, checksum, length = _HEAD.unpack_from(content)
    if version > VERSION:
        raise FailedPreconditionError(
            f"a checkpoint is of version {version}, and this asyncexec reads versions up to {VERSION}",
            hint="it was written by a newer asyncexec; go on with that one",
        )
    rest = content[_HEAD.size :]
    if len(rest) != length:
        raise DataLossError(f"a checkpoint is torn: {len(rest)} of {length} bytes are there")
    try:
        (about_length,) = _LENGTH.unpack_from(rest)
        values = rest[_LENGTH.size + about_length :]
        told = bytes(rest[_LENGTH.size : _LENGTH.size + about_length])
        if zlib.adler32(told) != checksum:
            raise DataLossError("a checkpoint is damaged: its checksum is wrong")
        about = json.loads(told)
    except (ValueError, struct.error, RecursionError) as error:
        raise DataLossError(f"a checkpoint is damaged: {type(error).__name__}: {error}") from error
    if version < 1 or not isinstance(about, dict):
        raise DataLossError("a checkpoint is damaged: its head is wrong")
    return about, values, version


class _Checksum(NamedTuple):
    """A checksum that was stored, and the version of the format."""

    value: int
    version: int

    def check(self, name: str, pieces: Iterable[bytes | memoryview]) -> None:
        """DataLossError unless it is that of *pieces*, of the value *name*."""
        if _checksum(pieces, self.version) != self.value:
            raise DataLossError(f"a checkpoint is damaged: the checksum of {name!r} is wrong")


def _value(name: str, kind: int, content: memoryview, checksum: _Checksum, codec: Codec) -> object:
    head = read_head(content) if kind == _TENSOR else None
    if kind == _TENSOR and (head is None or head.size + head.num_bytes != len(content)):
        raise DataLossError(f"a checkpoint is damaged: {name!r} is cut")
    checksum.check(name, [content] if head is None else [content[: head.size], content[head.size :]])
    if head is None:
        return _decoded(name, bytes(content), codec) if kind == _OBJECT else None
    return prepare(head, content[head.size :], objects=False, max_bytes=len(content)).value()


def _checked(name: str, apart: Mapping[str, object] | None, checksum: _Checksum) -> object:
    if apart is None or name not in apart:
        raise DataLossError(f"a checkpoint is incomplete: the file of {name!r} is missing")
    array = freeze(apart[name])
    made = encode(0, "", array, False, objects=False, max_bytes=_MAX_BYTES)
    checksum.check(name, [made.head, made.payload])
    return array


def _decoded(name: str, content: bytes, codec: Codec) -> object:
    try:
        return codec.decode(content)
    except Exception as error:
        told = f"{name!r} cannot be decoded: {type(error).__name__}: {error}"
        raise DataLossError(f"a checkpoint is of another codec, or damaged: {told}") from error
