"""Tensors as serialized TensorProtos (``parse_tensor_op.cc``), and compressed records (``decode_compressed_op.cc``)."""

from __future__ import annotations

import gzip
import zlib
from typing import Any, Final

import numpy as np

from asyncexec.framework.errors import DataLossError, InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext, scalars, unchanged
from asyncexec.framework.tensor_proto import decode_tensor
from asyncexec.framework.tensor_protos import DimProto, TensorProto, TensorShapeProto
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, TensorShape
from asyncexec.framework.types import DType, string
from asyncexec.ops.array.array_common import PLAIN, boxed
from asyncexec.ops.parsing.wire import DELIMITED, FIXED32, FIXED64, VARINT, as_varint, delimited, fields, packed_varints
from asyncexec.ops.string.string_elements import PIECE_BYTES, BigText, TextRoom, elementwise, scalar_string

_CONTENT: Final = 4
_STRINGS: Final = 8
# The fields of repeated values: what they are called, and numpy's dtype where they have a fixed width.
_VALUES: Final = {
    5: ("float_val", "<f4"),
    6: ("double_val", "<f8"),
    7: ("int_val", None),
    9: ("scomplex_val", "<f4"),
    10: ("int64_val", None),
    11: ("bool_val", None),
    12: ("dcomplex_val", "<f8"),
    13: ("half_val", None),
    16: ("uint32_val", None),
    17: ("uint64_val", None),
}


def _unknown_of_scalar(c: InferenceContext) -> list[TensorShape]:
    c.scalar(0)
    return [UNKNOWN_SHAPE]


register_op("ParseTensor", "serialized: string -> output: out_type", "out_type: type", shape=_unknown_of_scalar)
register_op("SerializeTensor", "tensor: T -> serialized: string", "T: type", shape=scalars)
register_op("DecodeCompressed", "bytes: string -> output: string", "compression_type: string = ''", shape=unchanged)


@register_kernel("ParseTensor")
def parse_tensor(c: OpKernelConstruction) -> Kernel:
    """The tensor in a TensorProto, which must be of the dtype that is asked for."""
    wanted: DType = c.attr("out_type")
    return lambda serialized: tensor_from_bytes(scalar_string(serialized, "serialized"), wanted)


def tensor_from_bytes(data: bytes, wanted: DType, what: str = "`serialized`") -> object:
    """The value of the TensorProto in *data*; InvalidArgumentError where there is none of dtype *wanted*."""
    try:
        proto = _tensor_proto(data)
    except (ValueError, OverflowError) as error:
        raise InvalidArgumentError(f"Could not parse {what} as TensorProto: {error}") from None
    if proto.dtype != wanted.enum:
        raise InvalidArgumentError(
            f"Type mismatch between parsed tensor (DataType {proto.dtype}) and dtype {wanted.name} of {what}"
        )
    return decode_tensor(proto)


def _tensor_proto(data: bytes) -> TensorProto:
    found: dict[str, object] = TensorProto.field_defaults()
    values: dict[str, list[object]] = {}
    for number, kind, content in fields(data):
        if number == 1 and kind == VARINT:
            found["dtype"] = content
        elif number == 2 and kind == DELIMITED:
            found["tensor_shape"] = _shape_proto(content)
        elif number == _CONTENT and kind == DELIMITED:
            found["tensor_content"] = content
        elif number == _STRINGS and kind == DELIMITED:
            values.setdefault("string_val", []).append(content)
        elif number in _VALUES:
            name, np_dtype = _VALUES[number]
            values.setdefault(name, []).extend(_numbers(name, np_dtype, kind, content))
    found.update({name: tuple(items) for name, items in values.items()})
    return TensorProto.from_fields(found)


def _numbers(name: str, np_dtype: str | None, kind: int, content: Any) -> list[bool | int | float]:
    if np_dtype is not None:
        if kind not in (DELIMITED, FIXED32, FIXED64) or len(content) % np.dtype(np_dtype).itemsize:
            raise ValueError(f"{name} has a field of wire type {kind}")
        items: list[Any] = np.frombuffer(content, np_dtype).tolist()
        return items
    if kind not in (DELIMITED, VARINT):
        raise ValueError(f"{name} has a field of wire type {kind}")
    array = packed_varints(content) if kind == DELIMITED else np.array([content], np.uint64).astype(np.int64)
    match name:
        case "bool_val":
            array = array != 0
        case "uint32_val":
            array = array.astype(np.uint32)
        case "uint64_val":
            array = array.view(np.uint64)
        case "int_val" | "half_val":
            array = array.astype(np.int32)
    found: list[Any] = array.tolist()
    return found


def _shape_proto(data: bytes) -> TensorShapeProto:
    dims: list[DimProto] = []
    unknown_rank = False
    for number, kind, content in fields(data):
        if number == 2 and kind == DELIMITED:
            sizes = [value for place, sort, value in fields(content) if place == 1 and sort == VARINT]
            dims.append(DimProto.model_construct(size=int(np.uint64(sizes[-1]).astype(np.int64)) if sizes else 0))
        elif number == 3 and kind == VARINT:
            unknown_rank = bool(content)
    return TensorShapeProto.model_construct(dim=tuple(dims), unknown_rank=unknown_rank)


@register_kernel("SerializeTensor", dtypes={"T": PLAIN})
def serialize_tensor(c: OpKernelConstruction) -> Kernel:
    """Numbers as the bytes that they are in memory, strings one by one."""
    dtype: DType = c.attr("T")
    return lambda tensor: tensor_to_bytes(tensor, dtype)


def tensor_to_bytes(tensor: object, dtype: DType, *, packs_strings: bool = False) -> bytes:
    """The TensorProto of *tensor*, which is of *dtype*; strings one by one, or their lengths and then their bytes."""
    array = boxed(tensor)
    sizes = [as_varint(1 << 3) + as_varint(size) for size in array.shape]
    shape = b"".join(delimited(2, size if dim else b"") for size, dim in zip(sizes, array.shape, strict=True))
    head = as_varint(1 << 3) + as_varint(dtype.enum) + delimited(2, shape)
    if dtype is not string:
        content = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    elif packs_strings:
        content = b"".join([*(as_varint(len(item)) for item in array.flat), *array.flat])
    else:
        return head + b"".join(delimited(_STRINGS, item) for item in array.flat)
    return head + (delimited(_CONTENT, content) if content else b"")


@register_kernel("DecodeCompressed")
def decode_compressed(c: OpKernelConstruction) -> Kernel:
    """Each string unpacked: of ZLIB or GZIP, or as it is."""
    kind = c.attr("compression_type")
    if kind not in (b"", b"ZLIB", b"GZIP"):
        raise InvalidArgumentError(f"Only ZLIB, GZIP or NONE are supported compressions, not {kind!r}")
    room = TextRoom()
    window = zlib.MAX_WBITS | 16 if kind == b"GZIP" else zlib.MAX_WBITS

    def unpacked(data: bytes) -> bytes:
        if not kind:
            return data
        unpacker = zlib.decompressobj(window)
        out = BigText(room)
        try:
            while piece := unpacker.decompress(data, PIECE_BYTES):
                out.add(piece)
                data = unpacker.unconsumed_tail
        except (zlib.error, gzip.BadGzipFile) as error:
            raise DataLossError(f"a compressed string cannot be unpacked: {error}") from None
        return out.text()

    return elementwise(unpacked)
