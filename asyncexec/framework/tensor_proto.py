"""TensorProto <-> numpy, checked before memory is taken.

The rules are those of ``tensorflow/core/framework/tensor.cc`` (``Tensor::FromProto``): elements are packed in
``tensor_content`` or listed in the ``..._val`` field of the dtype, where the last one stands for all that are missing
and none at all means zeros.  That lets a few bytes stand for any amount of memory, so what is spread out beyond the
proto's own values is held to a budget; and more values than the shape has room for are refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.errors import (
    InvalidArgumentError,
    InvalidTypeError,
    ResourceExhaustedError,
    UnimplementedError,
)
from asyncexec.framework.tensor_protos import DimProto, TensorProto, TensorShapeProto
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, TensorShape
from asyncexec.framework.types import DType, as_dtype
from asyncexec.framework.wire_types import DATA_TYPES

DEFAULT_TENSOR_BYTES: Final = 256 * 2**20
_MAX_BYTES: Final = 2**62  # numpy refuses more, whatever the machine
_MAX_NUMPY_RANK: Final = 64
_DTYPES: Final[dict[int, DType]] = {dtype.enum: dtype for dtype in types.ALL_DTYPES} | {
    dtype.as_ref.enum: dtype.as_ref for dtype in types.ALL_DTYPES
}


class ByteBudget:
    """What all the tensors of one import may take beyond the values that their protos carry.

    Attributes:
        total: bytes in all.
        left: bytes that are left of them.
    """

    __slots__ = ("left", "total")

    def __init__(self, total: int = DEFAULT_TENSOR_BYTES) -> None:
        self.total: int = total
        self.left: int = total

    def take(self, size: int) -> bool:
        """Take *size* bytes, if there are as many left."""
        if size > self.left:
            return False
        self.left -= size
        return True

    @classmethod
    def of(cls, budget: int | ByteBudget) -> ByteBudget:
        """*budget* itself, or a new one of so many bytes."""
        return budget if isinstance(budget, ByteBudget) else cls(budget)


def dtype_of_enum(number: int) -> DType:
    """The DType of an enum number of ``types.proto``; InvalidArgumentError when there is none here."""
    found = _DTYPES.get(number)
    if found is None:
        raise InvalidArgumentError(f"data type {DATA_TYPES.write(number)} is not supported")
    return found


def decode_shape(proto: TensorShapeProto) -> TensorShape:
    """The shape, -1 standing for a size that is unknown.

    Raises:
        InvalidArgumentError: a size below -1, too many dimensions or elements, or dimensions of an unknown rank.
    """
    if proto.unknown_rank:
        if proto.dim:
            raise InvalidArgumentError("a shape of unknown rank has dimensions")
        return UNKNOWN_SHAPE
    return TensorShape(None if dim.size == -1 else dim.size for dim in proto.dim)


def encode_shape(shape: TensorShape) -> TensorShapeProto:
    """The wire form of *shape*."""
    if shape.dims is None:
        return TensorShapeProto.model_construct(unknown_rank=True)
    dims = (DimProto.model_construct(size=-1 if size is None else size) for size in shape.dims)
    return TensorShapeProto.model_construct(dim=tuple(dims))


def decode_tensor(proto: TensorProto, *, byte_budget: int | ByteBudget = DEFAULT_TENSOR_BYTES) -> Any:
    """The value of *proto*: a read-only array, a numpy scalar, or ``bytes`` for a scalar string.

    Raises:
        ResourceExhaustedError: spreading its values over its shape takes more than is left of *byte_budget*.
        InvalidArgumentError: a dtype that has no values, a shape that is not known, or values that do not fit it.
        UnimplementedError: more dimensions than numpy has.
    """
    dtype = dtype_of_enum(proto.dtype)
    field = VALUE_FIELDS.get(dtype)
    if field is None:
        raise InvalidArgumentError(f"a tensor of dtype {dtype.name} has no value that can be read")
    shape = _known_shape(proto)
    count = math.prod(shape)
    try:
        flat = _decode_content(proto.tensor_content, dtype, count) if proto.tensor_content else None
        if flat is None:
            flat = _spread(_read_values(proto, field, dtype), count, dtype, shape, ByteBudget.of(byte_budget))
        flat.flags.writeable = False  # and so is every view of it
        array = flat.reshape(shape)
    except (MemoryError, OverflowError) as error:
        raise ResourceExhaustedError(f"no memory for a {dtype.name} tensor of shape {list(shape)}") from error
    if array.ndim == 0:
        return array[()]
    return array


def _known_shape(proto: TensorProto) -> tuple[int, ...]:
    if proto.tensor_shape is None:
        return ()
    if proto.tensor_shape.unknown_rank:
        raise InvalidArgumentError("a tensor has a shape of unknown rank")
    dims = tuple([dim.size for dim in proto.tensor_shape.dim])
    shape = TensorShape(dims).as_tuple()
    if len(shape) > _MAX_NUMPY_RANK:
        raise UnimplementedError(f"a tensor has {len(shape)} dimensions; there can be at most {_MAX_NUMPY_RANK}")
    return shape


def _spread(values: np.ndarray, count: int, dtype: DType, shape: tuple[int, ...], budget: ByteBudget) -> np.ndarray:
    """*values* made *count* long by repetition of the last, or zeros when there is none."""
    given = len(values)
    if given == count:
        return values
    if given > count:
        raise InvalidArgumentError(f"a {dtype.name} tensor of shape {list(shape)} has {count} elements, not {given}")
    spread_bytes = (count - given) * values.itemsize
    if spread_bytes > budget.left:
        taken = f", of which tensors before it took {budget.total - budget.left}" if budget.left < budget.total else ""
        raise ResourceExhaustedError(
            f"{given} values spread over a {dtype.name} tensor of shape {list(shape)} take {spread_bytes} bytes, more "
            f"than the byte budget of {budget.total}{taken}",
            hint="raise byte_budget if the graph is to be trusted",
        )
    if spread_bytes > _MAX_BYTES:
        raise MemoryError
    flat = np.empty(count, values.dtype)
    budget.left -= spread_bytes
    flat[:given] = values
    flat[given:] = values[-1] if given else (b"" if dtype is types.string else 0)
    return flat


def _decode_content(content: bytes, dtype: DType, count: int) -> np.ndarray:
    if dtype is types.string:
        return _decode_string_content(content, count)
    np_dtype = dtype.as_numpy_dtype
    if len(content) != count * np_dtype.itemsize:
        raise InvalidArgumentError(
            f"tensor_content has {len(content)} bytes, but {count} elements of {dtype.name} take "
            f"{count * np_dtype.itemsize}"
        )
    if dtype is types.bool:
        return np.frombuffer(content, np.uint8).astype(np.bool_)
    if dtype in _NARROW:
        return _narrow(np.frombuffer(content, np.uint8), dtype)
    return np.frombuffer(content, np_dtype.newbyteorder("<")).astype(np_dtype, copy=False)


def _decode_string_content(content: bytes, count: int) -> np.ndarray:
    """Strings as ``EncodeStringList`` packs them: all lengths as varints, then all bytes."""
    problem = InvalidArgumentError(f"tensor_content of {len(content)} bytes does not hold {count} strings")
    if count > len(content):
        raise problem
    lengths, position = [], 0
    for _ in range(count):
        length, position = _varint(content, position)
        lengths.append(length)
    if position + sum(lengths) != len(content):
        raise problem
    flat = np.empty(count, np.object_)
    for i, length in enumerate(lengths):
        flat[i] = content[position : position + length]
        position += length
    return flat


def _varint(content: bytes, position: int) -> tuple[int, int]:
    """The number at *position*, and where the next begins."""
    number = 0
    for shift in range(0, 35, 7):
        if position >= len(content):
            break
        byte = content[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
    raise InvalidArgumentError("tensor_content is cut short in the lengths of its strings")


_NARROW: Final = {types.int2: 2, types.uint2: 2, types.int4: 4, types.uint4: 4}  # bits of an element


def _narrow(bits: np.ndarray, dtype: DType) -> np.ndarray:
    """Integers of fewer than 8 bits, of the low bits of each byte."""
    values = 2 ** _NARROW[dtype]
    low = (bits & (values - 1)).astype(np.int8)
    if not dtype.is_unsigned:
        low = np.where(low >= values // 2, low - values, low)
    narrow: np.ndarray = low.astype(dtype.as_numpy_dtype)
    return narrow


def _read_plain(values: tuple[object, ...], dtype: DType) -> np.ndarray:
    return np.array(values, dtype.as_numpy_dtype)


def _read_int(values: tuple[int, ...], dtype: DType) -> np.ndarray:
    """Integers of 32 bits and less wrap around, as TensorFlow lets them."""
    wide = np.array(values, np.int32)
    return _narrow(wide, dtype) if dtype in _NARROW else wide.astype(dtype.as_numpy_dtype, copy=False)


def _read_half(values: tuple[int, ...], dtype: DType) -> np.ndarray:
    return np.array(values, np.int32).astype(np.uint16).view(dtype.as_numpy_dtype)


def _read_complex(values: tuple[float, ...], dtype: DType) -> np.ndarray:
    if len(values) % 2:
        raise InvalidArgumentError(f"a {dtype.name} tensor has {len(values)} real and imaginary parts, an odd number")
    part = np.float32 if dtype is types.complex64 else np.float64
    return np.array(values, part).view(dtype.as_numpy_dtype)


def _read_float8(values: bytes, dtype: DType) -> np.ndarray:
    return np.frombuffer(values, np.uint8).view(dtype.as_numpy_dtype)


def _read_strings(values: tuple[bytes, ...], dtype: DType) -> np.ndarray:
    flat = np.empty(len(values), np.object_)
    flat[:] = values
    return flat


_FIELDS_OF: Final = {
    "float_val": (types.float32,),
    "double_val": (types.float64,),
    "int_val": (
        *(types.int32, types.int16, types.int8, types.uint16, types.uint8),
        *_NARROW,
        *(types.qint8, types.quint8, types.qint16, types.quint16, types.qint32),
    ),
    "int64_val": (types.int64,),
    "uint32_val": (types.uint32,),
    "uint64_val": (types.uint64,),
    "bool_val": (types.bool,),
    "half_val": (types.float16, types.bfloat16),
    "scomplex_val": (types.complex64,),
    "dcomplex_val": (types.complex128,),
    "float8_val": (*types.FLOAT8_DTYPES, types.float4_e2m1fn),
    "string_val": (types.string,),
}
VALUE_FIELDS: Final = {dtype: field for field, dtypes in _FIELDS_OF.items() for dtype in dtypes}
_SPECIAL_READERS: Final[dict[str, Callable[[Any, DType], np.ndarray]]] = {
    "int_val": _read_int,
    "half_val": _read_half,
    "scomplex_val": _read_complex,
    "dcomplex_val": _read_complex,
    "float8_val": _read_float8,
    "string_val": _read_strings,
}


def _read_values(proto: TensorProto, field: str, dtype: DType) -> np.ndarray:
    reader = _SPECIAL_READERS.get(field)
    values = getattr(proto, field)
    return _read_plain(values, dtype) if reader is None else reader(values, dtype)


def encode_tensor(value: object, dtype: DType | None = None) -> TensorProto:
    """*value* as a TensorProto: one element in its ``..._val`` field, several packed in ``tensor_content``.

    *value* may be what :func:`decode_tensor` gives, or Python numbers, strings and lists of them, which become int32
    (int64 if they need it), float32, bool, complex128 or string unless *dtype* is given.

    Raises:
        InvalidArgumentError: it is of another dtype than *dtype*, or of one that has no wire form.
    """
    array, dtype = _as_array(value, dtype)
    field = VALUE_FIELDS.get(dtype)
    if field is None:
        raise InvalidArgumentError(f"a value of dtype {dtype.name} has no wire form")
    fields = TensorProto.field_defaults()
    fields |= {"dtype": dtype.enum, "tensor_shape": encode_shape(TensorShape(array.shape))}
    if field == "string_val":
        fields[field] = tuple([_as_bytes(item) for item in array.ravel().tolist()])
    elif array.size == 1:
        fields[field] = _one_value(array.reshape(1), dtype)
    else:
        fields["tensor_content"] = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    return TensorProto.from_fields(fields)


def _as_array(value: object, dtype: DType | None) -> tuple[np.ndarray, DType]:
    is_numpy = isinstance(value, (np.ndarray, np.generic))
    if isinstance(value, (bytes, str)) or dtype is types.string:
        value = np.array(value, np.object_)
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidArgumentError(f"no tensor can be made of {type(value).__name__}: {error}") from error
    if array.dtype.kind in "OSUT":
        if dtype not in (None, types.string) or not all(isinstance(item, (bytes, str)) for item in array.flat):
            raise InvalidTypeError(f"the elements are Python objects, not {(dtype or types.string).name}")
        return array, types.string
    if dtype is None:
        dtype = as_dtype(array.dtype) if is_numpy else _dtype_of_python(array)
    if dtype not in VALUE_FIELDS:
        return array, dtype
    return _converted(value, array, dtype, is_numpy), dtype


def _dtype_of_python(array: np.ndarray) -> DType:
    if array.dtype == np.float64:
        return types.float32
    if array.dtype == np.int64 and (array.size == 0 or (array.min() >= -(2**31) and array.max() < 2**31)):
        return types.int32
    return as_dtype(array.dtype)


def _converted(value: object, array: np.ndarray, dtype: DType, is_numpy: bool) -> np.ndarray:
    want = dtype.as_numpy_dtype
    if array.dtype == want:
        return array
    if is_numpy or (array.size and array.dtype.kind not in _kinds_for(dtype)):
        raise InvalidTypeError(f"a value of {array.dtype.name} is no {dtype.name}")
    try:
        return np.array(value, want)
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidArgumentError(f"a value does not fit {dtype.name}: {error}") from error


def _kinds_for(dtype: DType) -> str:
    """The kinds of numpy dtypes whose values lose nothing by their kind when they become *dtype*."""
    if dtype.is_bool:
        return "b"
    return "biufc" if dtype.is_complex else "biuf" if dtype.is_floating else "biu"


def _one_value(array: np.ndarray, dtype: DType) -> object:
    match VALUE_FIELDS[dtype]:
        case "half_val":
            return tuple(array.view(np.uint16).tolist())
        case "scomplex_val" | "dcomplex_val":
            return (float(array[0].real), float(array[0].imag))
        case "float8_val":
            return array.tobytes()
        case "int_val":
            return (int(array[0]),)
    return tuple(array.tolist())


def _as_bytes(item: bytes | str) -> bytes:
    return item.encode() if isinstance(item, str) else bytes(item)
