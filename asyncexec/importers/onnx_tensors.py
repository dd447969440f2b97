"""Tensors of ONNX as TensorProtos of a GraphDef, checked before memory is taken.

Values are in ``raw_data``, in the field of the dtype, or in a file beside the model, of which nothing outside of the
model's folder is read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import (
    DataLossError,
    InvalidArgumentError,
    OpError,
    PermissionDeniedError,
    ResourceExhaustedError,
)
from asyncexec.framework.tensor_proto import (
    DEFAULT_TENSOR_BYTES,
    ByteBudget,
    decode_tensor,
    encode_shape,
    encode_tensor,
)
from asyncexec.framework.tensor_protos import TensorProto
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import DType
from asyncexec.importers.files import read_part
from asyncexec.importers.onnx_types import dtype_of

# Which field holds values that are not raw, and of what numpy dtype these are there.
_FIELDS: Final[dict[DType, tuple[str, str]]] = {
    types.float32: ("float_data", "float32"),
    types.complex64: ("float_data", "float32"),
    types.float64: ("double_data", "float64"),
    types.complex128: ("double_data", "float64"),
    types.int64: ("int64_data", "int64"),
    types.uint32: ("uint64_data", "uint64"),
    types.uint64: ("uint64_data", "uint64"),
    types.string: ("string_data", "object"),
}
_BITS: Final = {types.int4: 4, types.uint4: 4, types.float4_e2m1fn: 4, types.int2: 2, types.uint2: 2}
_EXTERNAL: Final = 1  # TensorProto.DataLocation


class OnnxTensors:
    """Reads the tensors of one model, whose files are in *folder*; without one it may have none."""

    def __init__(self, folder: Path | None, byte_budget: int = DEFAULT_TENSOR_BYTES) -> None:
        self._folder = folder
        self._budget = ByteBudget(byte_budget)

    def read(self, tensor: object, where: str) -> TensorProto:
        """The wire form of an ``onnx.TensorProto``.

        Raises:
            InvalidArgumentError: its dtype, sizes or values contradict each other.
            DataLossError, NotFoundError: what is in another file is not all there.
            PermissionDeniedError: that file is outside of the model's folder.
        """
        try:
            return self._read(tensor)
        except OpError as error:
            error.message = f"{where}: {error.message}"
            error.args = (str(error),)
            raise

    def read_sparse(self, sparse: Any, where: str) -> TensorProto:
        """The wire form, which is dense, of an ``onnx.SparseTensorProto``; also ResourceExhaustedError."""
        dtype = dtype_of(sparse.values.data_type, where)
        shape = _shape(sparse.dims, where)
        size = math.prod(shape)
        if not self._budget.take(size * dtype.itemsize):
            raise ResourceExhaustedError(
                f"{where}: a sparse tensor of shape {list(shape)} is too large to be made dense"
            )
        values, indices = (_array(self.read(part, where)) for part in (sparse.values, sparse.indices))
        flat = np.zeros(size, dtype.as_numpy_dtype)
        try:
            places = indices if indices.ndim == 1 else np.ravel_multi_index(tuple(indices.T), shape)
            flat[places] = values
        except (ValueError, IndexError) as error:
            raise InvalidArgumentError(f"{where}: indices of a sparse tensor do not fit its shape: {error}") from error
        return encode_tensor(flat.reshape(shape), dtype)

    def _read(self, tensor: Any) -> TensorProto:
        dtype = dtype_of(tensor.data_type, "the tensor")
        if tensor.HasField("segment"):
            raise InvalidArgumentError("the tensor is a segment of another, which is not supported")
        shape = _shape(tensor.dims, "the tensor")
        count = math.prod(shape)
        bits = _BITS.get(dtype)
        if tensor.data_location == _EXTERNAL:
            size = _raw_size(dtype, count)
            return _from_raw(self._external(tensor.external_data, size), dtype, shape, bits)
        if tensor.HasField("raw_data") and dtype is not types.string:
            return _from_raw(tensor.raw_data, dtype, shape, bits)
        field, np_name = _FIELDS.get(dtype, ("int32_data", "int32"))
        values = getattr(tensor, field)
        expected = count * 2 if dtype.is_complex else -(-count * bits // 8) if bits else count
        if len(values) != expected:
            raise InvalidArgumentError(f"{dtype.name} of shape {list(shape)} has {len(values)} values in {field}")
        if dtype is types.string:
            return encode_tensor(_strings(values, shape), dtype)
        return _from_field(np.array(values, np_name), dtype, shape, bits)

    def _external(self, entries: Any, size: int) -> bytes:
        """The bytes in another file."""
        facts = {entry.key: entry.value for entry in entries}
        path = self._path(facts.get("location", ""))
        offset, length = _number(facts, "offset", 0), _number(facts, "length", size)
        if length != size:
            raise InvalidArgumentError(f"{size} bytes are needed, but 'length' of its external data is {length}")
        return read_part(path, offset, size, "external data of an ONNX model")

    def _path(self, location: str) -> Path:
        if self._folder is None:
            raise InvalidArgumentError(
                f"its values are in file {location!r}, but the model is not read from a folder",
                hint="give the path of the model",
            )
        folder = self._folder.resolve()
        try:
            path = (folder / location).resolve()
        except (OSError, ValueError, RuntimeError) as error:
            raise InvalidArgumentError(f"{location!r} is no path of external data: {error}") from error
        if (
            not location
            or not path.is_relative_to(folder)
            or Path(location).is_absolute()
            or ".." in Path(location).parts
        ):
            raise PermissionDeniedError(f"its values are in {location!r}, which is not in the folder of the model")
        return path


def _shape(dims: Any, where: str) -> tuple[int, ...]:
    if any(dim < 0 for dim in dims):
        raise InvalidArgumentError(f"{where} has a negative size: {list(dims)}")
    return TensorShape(dims).as_tuple()


def _number(facts: Mapping[str, str], key: str, default: int) -> int:
    text = facts.get(key)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 19:
        raise InvalidArgumentError(f"{key!r} of its external data is {text[:40]!r}, but must be a number of bytes")
    return int(text)


def _raw_size(dtype: DType, count: int) -> int:
    if dtype is types.string:
        raise InvalidArgumentError("strings cannot be external data")
    return -(-count * _BITS[dtype] // 8) if dtype in _BITS else count * dtype.itemsize


def _from_raw(raw: bytes, dtype: DType, shape: tuple[int, ...], bits: int | None) -> TensorProto:
    size = _raw_size(dtype, math.prod(shape))
    if len(raw) != size:
        raise DataLossError(f"{dtype.name} of shape {list(shape)} takes {size} bytes, but there are {len(raw)}")
    if bits:
        return encode_tensor(_unpacked(np.frombuffer(raw, np.uint8), dtype, shape, bits), dtype)
    if size == dtype.itemsize:  # one value is not packed
        array = np.frombuffer(raw, dtype.as_numpy_dtype.newbyteorder("<")).astype(dtype.as_numpy_dtype)
        return encode_tensor(array.reshape(shape), dtype)
    fields = TensorProto.field_defaults()
    return TensorProto.from_fields(
        fields | {"dtype": dtype.enum, "tensor_shape": encode_shape(TensorShape(shape)), "tensor_content": raw}
    )


def _from_field(values: Array, dtype: DType, shape: tuple[int, ...], bits: int | None) -> TensorProto:
    want = dtype.as_numpy_dtype
    if bits:
        return encode_tensor(_unpacked(values.astype(np.uint8), dtype, shape, bits), dtype)
    if dtype.is_complex or values.dtype == want:
        array = values.view(want)
    elif dtype.is_floating:  # the bits of smaller floats
        array = values.astype(f"uint{8 * want.itemsize}").view(want)
    else:
        array = values.astype(want)
    return encode_tensor(array.reshape(shape), dtype)


def _unpacked(packed: Array, dtype: DType, shape: tuple[int, ...], bits: int) -> Array:
    """Elements of fewer than 8 bits, the first of a byte in its lowest bits."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    low = (packed[:, None] >> shifts & (2**bits - 1)).ravel()[: math.prod(shape)].astype(np.uint8)
    elements: Array
    if dtype.is_floating:
        elements = low.view(dtype.as_numpy_dtype)
    else:
        signed = low.astype(np.int8)
        if not dtype.is_unsigned:
            signed = np.where(signed >= 2 ** (bits - 1), signed - 2**bits, signed)
        elements = signed.astype(dtype.as_numpy_dtype)
    return elements.reshape(shape)


def _strings(values: Any, shape: tuple[int, ...]) -> Array:
    array = np.empty(len(values), np.object_)
    array[:] = list(values)
    return array.reshape(shape)


def _array(proto: TensorProto) -> Array:
    return np.asarray(decode_tensor(proto))
