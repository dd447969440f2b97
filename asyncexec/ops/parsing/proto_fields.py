"""DecodeProtoV2 and EncodeProto: fields of messages as tensors (``decode_proto_op.cc``, ``encode_proto_op.cc``).

Messages are described by protobuf's own descriptors, and read and written on the wire here.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import DataLossError, InvalidArgumentError
from asyncexec.framework.extras import require
from asyncexec.framework.file_access import FileAccess, named_path
from asyncexec.framework.file_errors import file_errors
from asyncexec.framework.kernel import Kernel, OpKernelConstruction, as_value
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, TensorShape
from asyncexec.framework.types import DType, string
from asyncexec.ops.array.array_common import boxed, check_memory
from asyncexec.ops.parsing.wire import DELIMITED, FIXED32, FIXED64, VARINT, as_varint, delimited, fields, packed_varints
from asyncexec.ops.string.string_elements import as_strings, flat_strings

# By the number of a field's type in FieldDescriptorProto: the dtypes that its tensor may have.
_DTYPES: Final[dict[int, tuple[str, ...]]] = {
    1: ("float64",),
    2: ("float32", "float64"),
    3: ("int64",),
    4: ("uint64",),
    5: ("int32", "int64"),
    6: ("uint64",),
    7: ("uint32", "uint64"),
    8: ("bool",),
    9: ("string",),
    11: ("string",),
    12: ("string",),
    13: ("uint32", "uint64"),
    14: ("int32",),
    15: ("int32", "int64"),
    16: ("int64",),
    17: ("int32", "int64"),
    18: ("int64",),
}
_TEXTS: Final = frozenset({9, 11, 12})
_FIXED: Final[dict[int, str]] = {1: "<f8", 2: "<f4", 6: "<u8", 7: "<u4", 15: "<i4", 16: "<i8"}
_ZIGZAG: Final = frozenset({17, 18})
_NARROW: Final = {5: np.int32, 13: np.uint32, 14: np.int32, 17: np.int32}
_TYPE_NAMES: Final = (
    *("double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "group", "message"),
    *("bytes", "uint32", "enum", "sfixed32", "sfixed64", "sint32", "sint64"),
)


def _decode_shape(c: InferenceContext) -> Sequence[TensorShape]:
    given, names = c.input(0), c.attr("field_names")
    if len(names) != len(c.attr("output_types")):
        raise InvalidArgumentError(f"{len(names)} field_names have {len(c.attr('output_types'))} output_types")
    if given.dims is None:
        return [UNKNOWN_SHAPE] * c.num_outputs
    return [TensorShape([*given.dims, len(names)]), *[TensorShape([*given.dims, None]) for _ in names]]


def _encode_shape(c: InferenceContext) -> Sequence[TensorShape]:
    sizes = c.input(0).with_rank_at_least(2)
    if len(c.attr("field_names")) != len(c.attr("Tinput_types")):
        raise InvalidArgumentError("field_names and values must be of one length")
    return [UNKNOWN_SHAPE if sizes.dims is None else TensorShape(sizes.dims[:-1])]


register_op(
    "DecodeProtoV2",
    "bytes: string -> sizes: int32, values: output_types",
    "message_type: string; field_names: list(string); output_types: list(type) >= 0; descriptor_source: string ="
    " 'local://'; message_format: string = 'binary'; sanitize: bool = False",
    shape=_decode_shape,
    touches_outside=True,
)
register_op(
    "EncodeProto",
    "sizes: int32, values: Tinput_types -> bytes: string",
    "field_names: list(string); message_type: string; descriptor_source: string = 'local://'; Tinput_types: list(type)"
    " >= 1",
    shape=_encode_shape,
    touches_outside=True,
)


def _descriptor(c: OpKernelConstruction, files: FileAccess) -> Any:
    """The descriptor of the message that a node names; it may read a file."""
    source: bytes = c.attr("descriptor_source")
    name: str = c.attr("message_type").decode("utf-8", "replace")
    pools = require("google.protobuf.descriptor_pool", extra="tf")
    pool = pools.Default() if source in (b"", b"local://") else _pool_of(c.op, source, files)
    try:
        return pool.FindMessageTypeByName(name)
    except KeyError:
        raise InvalidArgumentError(f"No descriptor found for message type {name}") from None


def _pool_of(op: str, source: bytes, files: FileAccess) -> Any:
    """A pool with the files of a FileDescriptorSet: in the attr itself, or in the file that it names."""
    pb2 = require("google.protobuf.descriptor_pb2", extra="tf")
    if source.startswith(b"bytes://"):
        data = source.removeprefix(b"bytes://")
    else:
        with file_errors():
            data = files.path(op, named_path(source)).read_bytes()
    pool = require("google.protobuf.descriptor_pool", extra="tf").DescriptorPool()
    try:
        for file in pb2.FileDescriptorSet.FromString(data).file:
            pool.Add(file)
    except (TypeError, ValueError, require("google.protobuf.message", extra="tf").DecodeError) as error:
        raise InvalidArgumentError(f"Source does not represent serialized file descriptor set proto: {error}") from None
    return pool


def _fields_of(c: OpKernelConstruction, dtypes: Sequence[DType], files: FileAccess) -> tuple[Any, list[Any]]:
    """The descriptor of the message, and those of the fields that are asked for, whose dtypes must fit."""
    message = _descriptor(c, files)
    found = []
    for name, dtype in zip(c.attr("field_names"), dtypes, strict=True):
        field = message.fields_by_name.get(name.decode("utf-8", "replace"))
        if field is None:
            raise InvalidArgumentError(f"Unknown field: {name!r} in message type {message.full_name}")
        if dtype.name not in _DTYPES.get(field.type, ()):
            raise InvalidArgumentError(
                f"Unexpected type for {message.full_name}.{field.name}: {_TYPE_NAMES[field.type - 1]} to {dtype.name}"
            )
        found.append(field)
    return message, found


def _wire_kind(field_type: int) -> int:
    if field_type in _TEXTS:
        return DELIMITED
    if field_type in _FIXED:
        return FIXED64 if np.dtype(_FIXED[field_type]).itemsize == 8 else FIXED32
    return VARINT


def _values_of(field: Any, kind: int, content: Any) -> list[bool | bytes | float | int]:
    """The values in one field on the wire; ValueError where it has other ones."""
    if field.type in _TEXTS:
        if kind != DELIMITED:
            raise ValueError(f"field {field.name} is of wire type {kind}")
        return [content]
    if kind not in (_wire_kind(field.type), DELIMITED):
        raise ValueError(f"field {field.name} is of wire type {kind}")
    if field.type in _FIXED:
        numbers: list[Any] = np.frombuffer(content, _FIXED[field.type]).tolist()
        return numbers
    integers = packed_varints(content) if kind == DELIMITED else np.array([content], np.uint64).astype(np.int64)
    if field.type in _ZIGZAG:
        pairs = integers.view(np.uint64)
        integers = (pairs >> np.uint64(1)).astype(np.int64) ^ -(pairs & np.uint64(1)).astype(np.int64)
    if field.type in _NARROW:
        integers = integers.astype(_NARROW[field.type])
    found = integers != 0 if field.type == 8 else integers.view(np.uint64) if field.type == 4 else integers
    values: list[Any] = found.tolist()
    return values


def _default(field: Any) -> object:
    if field.type == 11 or (field.is_repeated and field.type in _TEXTS):
        return b""
    if field.is_repeated:
        return 0
    return field.default_value.encode() if isinstance(field.default_value, str) else field.default_value


@register_kernel("DecodeProtoV2", is_expensive=True)
def decode_proto(c: OpKernelConstruction) -> Kernel:
    """How often each field is in each message, and the values, filled up with the field's default."""
    dtypes: Sequence[DType] = c.attr("output_types")
    described = cache(lambda: _fields_of(c, dtypes, c.resource_mgr.files))
    message_format = c.attr("message_format")
    if message_format not in (b"binary", b"text"):
        raise InvalidArgumentError(f"format must be one of binary or text, not {message_format!r}")
    is_text, sanitizes = message_format == b"text", c.attr("sanitize")

    def kernel(serialized: object) -> tuple[Any, ...]:
        descriptor, wanted = described()
        shape = np.shape(boxed(serialized))
        messages = flat_strings(serialized)
        if not messages:
            raise InvalidArgumentError("bytes must contain at least one value")
        if is_text or sanitizes:
            messages = [_rewritten(descriptor, message, is_text) for message in messages]
        read = [_read(message, wanted) for message in messages]
        sizes = np.array([[len(values) for values in each] for each in read], np.int32).reshape(*shape, len(wanted))
        columns = [[each[place] for each in read] for place in range(len(wanted))]
        return (sizes, *map(_padded, columns, wanted, dtypes, [shape] * len(wanted)))

    return kernel


def _rewritten(descriptor: object, message: bytes, is_text: bool) -> bytes:
    """The message in the order of its fields, without those that are not known."""
    made = require("google.protobuf.message_factory", extra="tf").GetMessageClass(descriptor)()
    text_format = require("google.protobuf.text_format", extra="tf")
    try:
        if is_text:
            text_format.Parse(message, made)
        else:
            made.ParseFromString(message)
    except (text_format.ParseError, require("google.protobuf.message", extra="tf").DecodeError) as error:
        raise DataLossError(f"Unable to parse {'text' if is_text else 'binary'} protobuf: {error}") from None
    made.DiscardUnknownFields()
    data: bytes = made.SerializeToString()
    return data


def _read(message: bytes, wanted: Sequence[Any]) -> list[list[bool | bytes | float | int]]:
    """The values of each field that is wanted; the last of one that is not repeated."""
    found: list[list[Any]] = [[] for _ in wanted]
    places: dict[int, list[int]] = {}
    for place, field in enumerate(wanted):
        places.setdefault(field.number, []).append(place)
    try:
        for number, kind, content in fields(message):
            for place in places.get(number, ()):
                values = _values_of(wanted[place], kind, content)
                found[place] = [*found[place], *values] if wanted[place].is_repeated else values[-1:]
    except ValueError as error:
        raise DataLossError(f"a message cannot be read: {error}") from None
    return found


def _padded(rows: list[list[Any]], field: object, dtype: DType, shape: Sequence[int]) -> Array:
    width = max([1, *map(len, rows)])
    check_memory([len(rows), width], dtype.as_numpy_dtype)
    default = _default(field)
    filled = [[*row, *[default] * (width - len(row))] for row in rows]
    if dtype is string:
        return as_strings([item for row in filled for item in row], (*shape, width))
    return np.array(filled, dtype.as_numpy_dtype).reshape(*shape, width)


@register_kernel("EncodeProto", is_expensive=True)
def encode_proto(c: OpKernelConstruction) -> Kernel:
    """Messages with so many values of each field, fields by their numbers."""
    dtypes: Sequence[DType] = c.attr("Tinput_types")
    described = cache(lambda: _fields_of(c, dtypes, c.resource_mgr.files)[1])

    def kernel(sizes: Array, *values: Array) -> Array:
        wanted = described()
        batch = np.shape(values[0])[:-1]
        if any(np.ndim(each) < 1 or np.shape(each)[:-1] != batch for each in values):
            raise InvalidArgumentError(
                f"Values must be of one batch shape: {[list(np.shape(each)) for each in values]}"
            )
        if np.shape(sizes) != (*batch, len(wanted)):
            raise InvalidArgumentError(
                f"sizes should be batch_size + [len(field_names)].  Saw: {list(np.shape(sizes))} but expected: "
                f"{[*batch, len(wanted)]}"
            )
        count = math.prod(batch)
        counts = sizes.reshape(count, len(wanted))
        for place, each in enumerate(values):
            wrong = np.flatnonzero((counts[:, place] < 0) | (counts[:, place] > np.shape(each)[-1]))
            if wrong.size:
                raise InvalidArgumentError(
                    f"Size to write must not be negative or larger than value tensor; but saw: "
                    f"{counts[wrong[0], place]} > {np.shape(each)[-1]} at message {wrong[0]} field {place}"
                )
        order = sorted(range(len(wanted)), key=lambda place: wanted[place].number)
        rows = [each.reshape(count, -1) if count else each for each in values]
        messages = [
            b"".join(_written(wanted[place], rows[place][index, : counts[index, place]].tolist()) for place in order)
            for index in range(count)
        ]
        return as_value(as_strings(messages, batch))

    return kernel


def _written(field: Any, values: list[Any]) -> bytes:
    if not values:
        return b""
    if field.type in _TEXTS:
        return b"".join(delimited(field.number, value) for value in values)
    write = _writer(field.type)
    if field.is_packed:
        return delimited(field.number, b"".join(map(write, values)))
    tag = as_varint(field.number << 3 | _wire_kind(field.type))
    return b"".join(tag + write(value) for value in values)


def _writer(field_type: int) -> Callable[[Any], bytes]:
    if field_type in _FIXED:
        layout = {"<f8": "<d", "<f4": "<f", "<u8": "<Q", "<u4": "<I", "<i4": "<i", "<i8": "<q"}[_FIXED[field_type]]
        if field_type in (1, 2):
            return lambda value: struct.pack(layout, value)
        bits = 8 * struct.calcsize(layout)
        unsigned = layout.upper() if layout[1] in "iq" else layout
        return lambda value: struct.pack(unsigned, value % 2**bits)
    if field_type in _ZIGZAG:
        bits = 32 if field_type == 17 else 64
        return lambda value: as_varint((value << 1 ^ value >> 63) % 2**bits)
    return lambda value: as_varint(int(value) % 2**64)
