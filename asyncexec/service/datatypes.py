"""Tensors on the wire: the datatypes of the Open Inference Protocol, as raw bytes and as JSON.

Raw tensors are in row-major order and little-endian; an element of BYTES is its length, in 4 bytes, and its bytes.
Whatever a caller says of a size is compared with what has come before memory is taken.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.arrays import NumpyDType
from asyncexec.framework.errors import InvalidArgumentError, UnimplementedError
from asyncexec.framework.types import DType

if TYPE_CHECKING:
    from asyncexec.framework.arrays import Array

_DTYPES: Final = {
    "BOOL": types.bool,
    "UINT8": types.uint8,
    "UINT16": types.uint16,
    "UINT32": types.uint32,
    "UINT64": types.uint64,
    "INT8": types.int8,
    "INT16": types.int16,
    "INT32": types.int32,
    "INT64": types.int64,
    "FP16": types.float16,
    "BF16": types.bfloat16,
    "FP32": types.float32,
    "FP64": types.float64,
    "BYTES": types.string,
}
DATATYPES: Final = tuple(_DTYPES)
_NAMES: Final = {dtype: name for name, dtype in _DTYPES.items()}
_ONLY_RAW: Final = ("FP16", "BF16")
_LENGTH: Final = struct.Struct("<I")
# What struct calls the elements of a datatype; it is quicker than numpy for the few elements of most requests.
_CODES: Final = {
    "INT8": "b",
    "INT16": "h",
    "INT32": "i",
    "INT64": "q",
    "UINT8": "B",
    "UINT16": "H",
    "UINT32": "I",
    "UINT64": "Q",
    "FP32": "f",
    "FP64": "d",
}
_INTEGERS: Final = frozenset({int})
_NUMBERS: Final = frozenset({int, float})
# Of a datatype of numbers: the kinds of Python values that it takes, that code, and the dtype of numpy.
_NUMERIC: Final = {
    name: (_NUMBERS if code in "fd" else _INTEGERS, code, _DTYPES[name].as_numpy_dtype) for name, code in _CODES.items()
}
_MOST_DIMS: Final = 32
_MOST_ELEMENTS: Final = 2**40  # more fit into no memory; products stay small integers
_MOST_STRINGS: Final = 2**22  # each is an object, which takes more time and memory than its bytes do


def datatype_of(dtype: DType) -> str:
    """The protocol's name of *dtype*; UnimplementedError where it has none."""
    name = _NAMES.get(dtype.base_dtype)
    if name is None:
        raise UnimplementedError(f"values of {dtype.name} cannot be sent to clients")
    return name


def dtype_of(datatype: str, tensor: str) -> DType:
    """What *datatype*, the protocol's name, means; InvalidArgumentError, for *tensor*, where it means nothing."""
    dtype = _DTYPES.get(datatype)
    if dtype is None:
        raise InvalidArgumentError(f"input '{tensor}' has the unknown data-type '{datatype}'")
    return dtype


def num_elements(shape: Sequence[object], tensor: str) -> int:
    """How many elements a tensor of *shape* has; InvalidArgumentError where it is no shape."""
    if len(shape) > _MOST_DIMS:
        raise _no_shape(tensor)
    count, has_zero = 1, False
    for size in shape:
        if type(size) is not int or size < 0:
            raise _no_shape(tensor)
        if size:
            count *= size
        else:
            has_zero = True  # numpy, too, refuses large sizes beside one of 0
        if count > _MOST_ELEMENTS:
            raise InvalidArgumentError(f"the shape of input '{tensor}' is too large")
    return 0 if has_zero else count


def _no_shape(tensor: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"the shape of input '{tensor}' is a list of at most {_MOST_DIMS} sizes, which are integers from 0"
    )


def described(datatype: str, shape: Sequence[object], tensor: str) -> tuple[DType, int]:
    """The dtype and the number of elements of an input; InvalidArgumentError where there are none or too many."""
    dtype, count = dtype_of(datatype, tensor), num_elements(shape, tensor)
    if dtype is types.string and count > _MOST_STRINGS:
        raise InvalidArgumentError(
            f"input '{tensor}' is BYTES of {count} elements: a tensor of BYTES has at most {_MOST_STRINGS}"
        )
    return dtype, count


def from_raw(tensor: str, datatype: str, shape: Sequence[int], data: bytes | memoryview) -> Array:
    """The array that *data* is; it may be read-only.

    Raises:
        InvalidArgumentError: the shape or the datatype mean nothing, or *data* has another size.
    """
    dtype, count = described(datatype, shape, tensor)
    if dtype is types.string:
        return _strings(tensor, count, bytes(data)).reshape(shape)
    np_dtype = dtype.as_numpy_dtype
    expected = count * np_dtype.itemsize
    if len(data) != expected:
        raise InvalidArgumentError(
            f"input byte size mismatch for input '{tensor}': expected {expected}, got {len(data)}",
        )
    array: Array = np.frombuffer(data, np_dtype, count)
    if len(shape) != 1:
        array = array.reshape(shape)
    if dtype is types.bool and np.max(array.view(np.uint8), initial=0) > 1:
        raise InvalidArgumentError(f"input '{tensor}' is BOOL and has bytes other than 0 and 1")
    return array


def _strings(tensor: str, count: int, data: bytes) -> Array:
    if len(data) < count * _LENGTH.size:
        raise InvalidArgumentError(
            f"incorrect number of string elements for inference input '{tensor}': expecting {count}, "
            f"got {len(data)} bytes"
        )
    found: list[bytes] = []
    place, end = 0, len(data)
    header, length_of, add = _LENGTH.size, _LENGTH.unpack_from, found.append
    while place < end and len(found) <= count:
        start = place + header
        if start > end:
            raise InvalidArgumentError(f"incomplete string length indicator for inference input '{tensor}'")
        place = start + length_of(data, place)[0]
        if place > end:
            raise InvalidArgumentError(f"incomplete string data for inference input '{tensor}'")
        add(data[start:place])
    if len(found) != count:
        number = f"{len(found)} or more" if place < end else len(found)
        raise InvalidArgumentError(
            f"unexpected number of string elements {number} for inference input '{tensor}', expecting {count}"
        )
    return _objects(found)


def to_raw(array: Array) -> bytes:
    """What from_raw() makes *array* of."""
    if array.dtype.kind in "OSU":
        return b"".join(_LENGTH.pack(len(item)) + item for item in map(as_bytes, array.flat))
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    return array.tobytes()


def from_json(tensor: str, datatype: str, shape: Sequence[int], data: Any) -> Array:
    """The array of *data*: a list of its elements, flat or nested.

    Raises:
        InvalidArgumentError: the shape or the datatype mean nothing, the elements are of another type, or there are
            more or fewer of them.
    """
    dtype, count = described(datatype, shape, tensor)
    if datatype in _ONLY_RAW:
        raise InvalidArgumentError(f"input '{tensor}' is {datatype}, which is sent as binary data, not as JSON")
    flat = data
    if type(data) is not list or (data and type(data[0]) is list):
        flat = _flat(tensor, data)
    if len(flat) != count:
        raise InvalidArgumentError(f"input '{tensor}' got {len(flat)} elements, expected {count} for {list(shape)}")
    array = _elements(tensor, datatype, dtype, flat)
    return array if len(shape) == 1 else array.reshape(shape)


def _flat(tensor: str, data: object) -> list[Any]:
    while isinstance(data, list) and data and isinstance(data[0], list):
        if not all(isinstance(row, list) for row in data):
            raise InvalidArgumentError(f"input '{tensor}' has lists beside elements in its data")
        data = [item for row in data for item in row]
    if not isinstance(data, list):
        raise InvalidArgumentError(f"input '{tensor}' has no list as its data")
    return data


def _elements(tensor: str, datatype: str, dtype: DType, flat: list[object]) -> Array:
    """*flat* as an array, where nothing is lost by that but the precision of floats."""
    found = set(map(type, flat))
    numeric = _NUMERIC.get(datatype)
    if numeric is not None:
        kinds, code, np_dtype = numeric
        if not found <= kinds:
            raise _mismatch(tensor, datatype)
        try:
            return np.frombuffer(struct.pack(f"={len(flat)}{code}", *flat), np_dtype)
        except (OverflowError, struct.error):
            return _with_infinities(tensor, datatype, flat, np_dtype)
    if not found <= ({bool} if dtype is types.bool else {str, bytes}):
        raise _mismatch(tensor, datatype)
    return np.array(flat, np.bool_) if dtype is types.bool else _objects([as_bytes(item) for item in flat])


def _with_infinities(tensor: str, datatype: str, flat: list[Any], np_dtype: NumpyDType) -> Array:
    """*flat* with inf where a float is too large for the datatype, as in JSON of other libraries."""
    try:
        if np_dtype.kind != "f":
            raise OverflowError
        with np.errstate(over="ignore"):
            return np.array(flat, np.float64).astype(np_dtype)
    except OverflowError:
        raise InvalidArgumentError(f"input '{tensor}' has elements that {datatype} cannot hold") from None


def _mismatch(tensor: str, datatype: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"unable to parse data of input '{tensor}': not all elements are {datatype}")


def to_json(tensor: str, array: Array) -> Any:
    """The elements of *array* as a flat list; strings are UTF-8, and orjson writes null for what is no number.

    Raises:
        InvalidArgumentError: there are strings that are not UTF-8, or FP16 or BF16: they can be sent as binary data.
    """
    if array.dtype.kind in "OSU":
        try:
            return [as_bytes(item).decode() for item in array.flat]
        except UnicodeDecodeError:
            raise InvalidArgumentError(f"output '{tensor}' is no text: ask for it as binary data") from None
    if array.dtype.itemsize == 2 and array.dtype.kind not in "iu":
        raise InvalidArgumentError(f"output '{tensor}' has 16-bit floats: ask for it as binary data")
    return array.ravel().tolist()


def _objects(items: list[bytes]) -> Array:
    array = np.empty(len(items), object)
    array[:] = items
    return array


def as_bytes(item: Any) -> bytes:
    """The bytes of *item*, an element of a tensor of strings."""
    return item.encode() if isinstance(item, str) else bytes(item)
