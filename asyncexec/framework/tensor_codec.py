"""The bytes of a tensor, without pickle: a head, and the payload.

The head: step (i64), length of the key (u16), TensorFlow's number of the dtype (u16), flags (u8: 1 is dead), rank (u8),
bytes of the payload (u64); the key in UTF-8; the dimensions (u64 each).  All is little-endian.

=================  ===================================================================================================
value              payload
=================  ===================================================================================================
dead               none, dtype 0; it arrives as None
numbers, bools     the elements as numpy has them, in C order; rank 0 arrives as a numpy scalar
``bytes``          those bytes, dtype string, rank 0
array of bytes     the length of each (u64), and all of them one after the other
variant            dtype variant, rank 0: what ``framework/wire_forms.py`` makes of it: length of the metadata (u64),
                   the metadata as JSON, and the tensors, each as here with its own head
Python object      a pickle, dtype object, rank 0: only where objects are allowed
=================  ===================================================================================================

Values that mean something in their process alone (variables, queues, tables) have no form.  Whatever a peer says is
checked before memory is taken.
"""

from __future__ import annotations

import json
import math
import pickle
import struct
from typing import Any, Final, NamedTuple

import numpy as np

from asyncexec.framework.arrays import Array, NumpyDType
from asyncexec.framework.errors import (
    InvalidArgumentError,
    InvalidTypeError,
    OpError,
    PermissionDeniedError,
    ResourceExhaustedError,
)
from asyncexec.framework.types import as_dtype, float4_e2m1fn, int2, int4, string, uint2, uint4, variant
from asyncexec.framework.types import bool as bool_dtype
from asyncexec.framework.types import object as object_dtype
from asyncexec.framework.wire_forms import WireForm, wire_form_named, wire_form_of

HEAD: Final = struct.Struct("<qHHBBQ")
MAX_KEY_BYTES: Final = 2**16 - 1
MAX_RANK: Final = 254
MAX_HEAD_BYTES: Final = HEAD.size + MAX_KEY_BYTES + 8 * MAX_RANK
COPIED_BYTES: Final = 64 * 1024  # payloads up to this are copied, and travel in one frame with their head
_DEAD: Final = 1
_NO_DTYPE: Final = 0
_PICKLE_PROTOCOL: Final = 5
_BYTE: Final = np.dtype(np.uint8)
_STRING: Final = string.enum
_OBJECT: Final = object_dtype.enum
_VARIANT: Final = variant.enum
_MAX_DEPTH: Final = 32  # of variants in variants
_LENGTH: Final = struct.Struct("<Q")
# What bytes an element may be, where not all are: first and last, and how to look at them.
_RANGES: Final = {
    bool_dtype.enum: (np.uint8, 0, 1),
    int2.enum: (np.int8, -2, 1),
    uint2.enum: (np.uint8, 0, 3),
    int4.enum: (np.int8, -8, 7),
    uint4.enum: (np.uint8, 0, 15),
    float4_e2m1fn.enum: (np.uint8, 0, 15),
}

_numbers: dict[NumpyDType, int] = {}  # of the numpy dtypes met so far
_numpy_dtypes: dict[int, NumpyDType] = {}  # of the numbers met so far


class EncodedTensor(NamedTuple):
    """A tensor on its way out; *payload* of more than COPIED_BYTES is the memory of the array itself."""

    head: bytes
    payload: bytes | memoryview


class TensorHead(NamedTuple):
    """What a peer says of a tensor; nothing of it is checked but that it is complete."""

    step_id: int
    key: str
    dtype: int
    flags: int
    shape: tuple[int, ...]
    num_bytes: int
    size: int  # of the head itself

    @property
    def is_dead(self) -> bool:
        return self.flags == _DEAD


class ArrivingTensor(NamedTuple):
    """A head that was checked, and memory for its payload: whoever has filled ``memory`` asks ``value``."""

    head: TensorHead
    array: Array | None  # of numbers; it has that memory
    memory: memoryview | bytearray

    def value(self) -> Any:
        """The tensor; InvalidArgumentError if the payload is none of that dtype."""
        head, array, memory = self
        if array is not None:
            if head.dtype in _RANGES:
                _check_range(head, memory)
            return array if head.shape else array[()]
        if head.dtype == _STRING:
            return _strings(head, memory)
        if head.dtype == _VARIANT:
            return _variant(head, memory, _MAX_DEPTH)
        return None if head.dtype == _NO_DTYPE else _unpickled(head, memory)


def encode(step_id: int, key: str, value: object, is_dead: bool, *, objects: bool, max_bytes: int) -> EncodedTensor:
    """The bytes of a tensor.

    Raises:
        InvalidArgumentError: the value has no form, or the key or a string is too long.
        ResourceExhaustedError: the payload has more than *max_bytes*.
    """
    key_bytes = key.encode(errors="surrogatepass")
    if len(key_bytes) > MAX_KEY_BYTES:
        raise InvalidArgumentError(f"the key of a tensor has at most {MAX_KEY_BYTES} bytes: {key[:100]!r}...")
    number, shape, payload = (_NO_DTYPE, (), b"") if is_dead else _form(key, value, objects)
    num_bytes = len(payload)
    if num_bytes > max_bytes:
        raise ResourceExhaustedError(f"tensor {key!r} has {num_bytes} bytes, and {max_bytes} may travel")
    head = HEAD.pack(step_id, len(key_bytes), number, _DEAD if is_dead else 0, len(shape), num_bytes) + key_bytes
    return EncodedTensor(head + struct.pack(f"<{len(shape)}Q", *shape) if shape else head, payload)


def _form(key: str, value: Any, objects: bool) -> tuple[int, tuple[int, ...], bytes | memoryview]:
    """Number of the dtype, shape and payload."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    kind = type(value)
    if kind is bytes or kind is np.bytes_:
        return _STRING, (), bytes(value)
    if isinstance(value, (np.ndarray, np.generic)):
        number = _number_of(value.dtype)
        if number is not None:
            return number, value.shape, _raw(value)
        if value.ndim and value.dtype == np.object_ and all(type(element) is bytes for element in value.flat):
            return _STRING, value.shape, _raw_strings(value)
    form = wire_form_of(value)
    if form is not None:
        return _VARIANT, (), _raw_variant(form, value)
    if not objects:
        raise InvalidArgumentError(
            f"tensor {key!r}: a value of type {kind.__module__}.{kind.__qualname__} cannot go to another process",
            hint="Python objects may, between processes of one program, where the transport has objects=True",
        )
    try:
        return _OBJECT, (), pickle.dumps(value, _PICKLE_PROTOCOL)
    except Exception as error:
        raise InvalidArgumentError(
            f"tensor {key!r}: a value of type {kind.__module__}.{kind.__qualname__} cannot go to another process, for "
            f"it cannot be pickled: {error}"
        ) from error


def is_tensor_dtype(dtype: NumpyDType) -> bool:
    """Whether arrays of *dtype* have a form in bytes; text and objects apart."""
    return _number_of(dtype) is not None


def _number_of(dtype: NumpyDType) -> int | None:
    number = _numbers.get(dtype)
    if number is None and dtype.kind not in "SUTO":
        try:
            number = _numbers[dtype] = as_dtype(dtype).enum
        except InvalidTypeError:
            return None
    return number


def _raw(value: Any) -> bytes | memoryview:
    """The elements of an array or a numpy scalar: a view of the array where it is large."""
    if value.dtype.byteorder == ">":
        value = value.astype(value.dtype.newbyteorder("<"))
    if value.nbytes <= COPIED_BYTES:
        content: bytes = value.tobytes()
        return content
    return np.ascontiguousarray(value).reshape(-1).view(np.uint8).data


def _raw_strings(value: Any) -> bytes:
    elements = value.ravel().tolist()
    return struct.pack(f"<{len(elements)}Q", *map(len, elements)) + b"".join(elements)


def _raw_variant(form: WireForm, value: object) -> bytes:
    metadata, tensors = form.take_apart(value)
    told = json.dumps({"form": form.name, **metadata, "set": [tensor is not None for tensor in tensors]}).encode()
    parts = [_LENGTH.pack(len(told)), told]
    for tensor in tensors:
        if tensor is not None:
            made = encode(0, "", tensor, False, objects=False, max_bytes=2**63)
            parts += (made.head, bytes(made.payload))
    return b"".join(parts)


def read_head(body: memoryview) -> TensorHead | None:
    """The head at the beginning of *body*; None if it is not complete."""
    if len(body) < HEAD.size:
        return None
    step_id, key_length, dtype, flags, rank, num_bytes = HEAD.unpack_from(body)
    key_end = HEAD.size + key_length
    size = key_end + 8 * rank
    if len(body) < size:
        return None
    key = str(body[HEAD.size : key_end], "utf-8", "backslashreplace")
    shape = struct.unpack_from(f"<{rank}Q", body, key_end) if rank else ()
    return TensorHead(step_id, key, dtype, flags, shape, num_bytes, size)


def prepare(head: TensorHead, payload: memoryview | None = None, *, objects: bool, max_bytes: int) -> ArrivingTensor:
    """Memory for the payload that *head* announces, or with a copy of *payload*, after all checks.

    Raises:
        InvalidArgumentError: dtype, shape and size do not fit together, or there is no such dtype.
        PermissionDeniedError: it is a Python object, and those are not allowed.
        ResourceExhaustedError: it has more than *max_bytes*, or there is no memory.
    """
    if head.num_bytes > max_bytes:
        raise _bad(head, f"it has {head.num_bytes} bytes, and at most {max_bytes} are taken", ResourceExhaustedError)
    if payload is not None and len(payload) != head.num_bytes:
        raise _bad(head, f"{head.num_bytes} bytes were announced, and {len(payload)} came")
    if head.flags not in (0, _DEAD) or (head.flags == _DEAD) != (head.dtype == _NO_DTYPE):
        raise _bad(head, f"flags {head.flags} do not go with dtype {head.dtype}")
    if len(head.shape) > MAX_RANK:
        raise _bad(head, f"rank {len(head.shape)} is above {MAX_RANK}")
    if head.dtype in (_NO_DTYPE, _STRING, _OBJECT, _VARIANT):
        _check_bytes(head, objects)
        return ArrivingTensor(
            head, None, _allocated(head, (head.num_bytes,), _BYTE).data if payload is None else payload
        )
    dtype = _numpy_dtype(head)
    if math.prod(head.shape) * dtype.itemsize != head.num_bytes:
        raise _bad(head, f"{dtype.name} of shape {_shown(head.shape)} has other than {head.num_bytes} bytes")
    if payload is not None:
        memory = bytearray(payload)
        return ArrivingTensor(head, _allocated(head, head.shape, dtype, memory), memory)
    array = _allocated(head, head.shape, dtype)
    return ArrivingTensor(head, array, array.reshape(-1).view(_BYTE).data)


def _check_bytes(head: TensorHead, objects: bool) -> None:
    """Whether the size of what is no array of numbers can be right."""
    if head.dtype == _OBJECT and not objects:
        raise _bad(head, "it is a Python object, which is not allowed here", PermissionDeniedError)
    if head.dtype != _STRING and head.shape:
        raise _bad(head, f"dtype {head.dtype} has no shape {_shown(head.shape)}")
    if head.dtype == _NO_DTYPE and head.num_bytes:
        raise _bad(head, "it is dead, and has a payload")
    if head.dtype == _STRING and head.shape and 8 * math.prod(head.shape) > head.num_bytes:
        raise _bad(head, f"{head.num_bytes} bytes are too few for strings of shape {_shown(head.shape)}")


def _allocated(head: TensorHead, shape: tuple[int, ...], dtype: NumpyDType, memory: bytearray | None = None) -> Array:
    try:
        return np.ndarray(shape, dtype, memory)
    except MemoryError as error:
        raise _bad(head, f"no memory for {head.num_bytes} bytes", ResourceExhaustedError) from error
    except (ValueError, OverflowError) as error:
        raise _bad(head, f"shape {_shown(head.shape)}: {error}") from error


def _numpy_dtype(head: TensorHead) -> NumpyDType:
    found = _numpy_dtypes.get(head.dtype)
    if found is None:
        try:
            dtype = as_dtype(head.dtype)
        except InvalidTypeError:
            raise _bad(head, f"there is no dtype {head.dtype}") from None
        if dtype.is_ref or dtype.is_opaque:
            raise _bad(head, f"{dtype.name} cannot come from another process")
        found = _numpy_dtypes[head.dtype] = dtype.as_numpy_dtype.newbyteorder("<")
    return found


def _check_range(head: TensorHead, memory: memoryview | bytearray) -> None:
    view, first, last = _RANGES[head.dtype]
    elements = np.frombuffer(memory, view)
    if elements.size and not first <= np.min(elements) <= np.max(elements) <= last:
        raise _bad(head, f"bytes are not {as_dtype(head.dtype).name}: they are not within {first} and {last}")


def _strings(head: TensorHead, memory: memoryview | bytearray) -> object:
    if not head.shape:
        return bytes(memory)
    count = math.prod(head.shape)
    lengths = struct.unpack_from(f"<{count}Q", memory)
    if 8 * count + sum(lengths) != head.num_bytes:
        raise _bad(head, f"the lengths of its strings do not make up {head.num_bytes} bytes")
    array, place = np.empty(count, np.object_), 8 * count
    for i, length in enumerate(lengths):
        array[i] = bytes(memory[place : place + length])
        place += length
    try:
        return array.reshape(head.shape)
    except (ValueError, OverflowError) as error:
        raise _bad(head, f"shape {_shown(head.shape)}: {error}") from error


def _unpickled(head: TensorHead, memory: memoryview | bytearray) -> object:
    try:
        return pickle.loads(memory)  # noqa: S301 - of a process of the same program, and switched on by name
    except Exception as error:
        raise _bad(head, f"the object cannot be unpickled: {type(error).__name__}: {error}") from error


def _variant(head: TensorHead, memory: memoryview | bytearray, depth: int) -> object:
    try:
        (length,) = _LENGTH.unpack_from(memory)
        told = json.loads(bytes(memory[_LENGTH.size : _LENGTH.size + length]))
        form = wire_form_named(str(told["form"]))
        if form is None:
            raise _bad(head, f"there is no variant {told['form']!r:.100}")
        tensors: list[object] = []
        rest = memoryview(memory)[_LENGTH.size + length :]
        for is_set in told["set"]:
            if not is_set:
                tensors.append(None)
                continue
            tensor, rest = _part(head, rest, depth)
            tensors.append(tensor)
        if len(rest):
            raise _bad(head, f"{len(rest)} bytes are left of a variant")
        return form.put_together(told, tensors)
    except (ValueError, TypeError, KeyError, struct.error, RecursionError) as error:
        if isinstance(error, OpError):
            raise
        raise _bad(head, f"it is no variant: {type(error).__name__}: {error}") from error


def _part(outer: TensorHead, memory: memoryview, depth: int) -> tuple[object, memoryview]:
    """The tensor at the beginning of *memory*, and what comes after it."""
    head = read_head(memory)
    if head is None or not depth or len(memory) < head.size + head.num_bytes:
        raise _bad(outer, "a tensor of a variant is cut" if depth else "variants are nested too deep")
    payload, rest = memory[head.size :][: head.num_bytes], memory[head.size + head.num_bytes :]
    if head.dtype == _VARIANT:
        return _variant(head, payload, depth - 1), rest
    return prepare(head, payload, objects=False, max_bytes=len(payload)).value(), rest


def _shown(shape: tuple[int, ...]) -> str:
    return str(list(shape)) if len(shape) <= 8 else f"[{', '.join(map(str, shape[:8]))}, ...] of rank {len(shape)}"


def _bad(head: TensorHead, why: str, kind: type[OpError] = InvalidArgumentError) -> OpError:
    return kind(f"tensor {head.key!r} of step {head.step_id}: {why}")
