"""Types of ONNX: numbers of ``TensorProto.DataType``, and a TypeProto as dtype and shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from asyncexec.framework import types
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.tensor_shape import SCALAR, UNKNOWN_SHAPE, TensorShape
from asyncexec.framework.types import DType

# From onnx.proto: enum TensorProto.DataType.
DTYPES: Final[dict[int, DType]] = {
    1: types.float32,
    2: types.uint8,
    3: types.int8,
    4: types.uint16,
    5: types.int16,
    6: types.int32,
    7: types.int64,
    8: types.string,
    9: types.bool,
    10: types.float16,
    11: types.float64,
    12: types.uint32,
    13: types.uint64,
    14: types.complex64,
    15: types.complex128,
    16: types.bfloat16,
    17: types.float8_e4m3fn,
    18: types.float8_e4m3fnuz,
    19: types.float8_e5m2,
    20: types.float8_e5m2fnuz,
    21: types.uint4,
    22: types.int4,
    23: types.float4_e2m1fn,
    24: types.float8_e8m0fnu,
    25: types.uint2,
    26: types.int2,
}


@dataclass(frozen=True, slots=True)
class ValueType:
    """What is known of a value before the model runs; a sequence, optional or map is an object."""

    dtype: DType = types.object
    shape: TensorShape = UNKNOWN_SHAPE


UNKNOWN_TYPE: Final = ValueType()
OBJECT_TYPE: Final = ValueType(types.object, SCALAR)


def dtype_of(number: int, where: str) -> DType:
    """The dtype that ONNX numbers so; InvalidArgumentError, which says *where*, when there is none."""
    found = DTYPES.get(number)
    if found is None:
        raise InvalidArgumentError(f"{where} has element type {number}, which ONNX does not have")
    return found


def value_type(proto: Any, where: str) -> ValueType:
    """What a TypeProto tells; InvalidArgumentError for an element type or a shape that cannot be."""
    kind = proto.WhichOneof("value")
    if kind is None:
        return UNKNOWN_TYPE
    if kind != "tensor_type":
        return OBJECT_TYPE
    tensor = proto.tensor_type
    if not tensor.elem_type:
        return UNKNOWN_TYPE
    dtype = dtype_of(tensor.elem_type, where)
    if not tensor.HasField("shape"):
        return ValueType(dtype)
    try:
        return ValueType(dtype, TensorShape(_dim(dim) for dim in tensor.shape.dim))
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{where}: {error.message}") from error


def _dim(dim: Any) -> int | None:
    """A size; one that is a symbol, or less than 0 as some exporters write, is not known."""
    return int(dim.dim_value) if dim.HasField("dim_value") and dim.dim_value >= 0 else None
