"""Wire models of values: TensorProto, TensorShapeProto and what they are made of.

They mirror ``tensor.proto``, ``tensor_shape.proto``, ``resource_handle.proto`` and ``full_type.proto`` of
``tensorflow/core/framework``; their numbers become arrays in :mod:`asyncexec.framework.tensor_proto`.
"""

from __future__ import annotations

from pydantic import StrictBool

from asyncexec.framework.wire_types import (
    Base64Bytes,
    DataType,
    Float32,
    Float64,
    FullTypeId,
    Int32,
    Int64,
    UInt32,
    UInt64,
    WireModel,
)


class DimProto(WireModel):
    """One dimension; size -1 is unknown (``TensorShapeProto.Dim``)."""

    size: Int64 = 0
    name: str = ""


class TensorShapeProto(WireModel):
    """A shape, or with ``unknown_rank`` none."""

    dim: tuple[DimProto, ...] = ()
    unknown_rank: StrictBool = False


class DtypeAndShape(WireModel):
    """What a resource holds (``ResourceHandleProto.DtypeAndShape``)."""

    dtype: DataType = 0
    shape: TensorShapeProto | None = None


class ResourceHandleProto(WireModel):
    """A resource of a running TensorFlow; it means nothing in another process."""

    device: str = ""
    container: str = ""
    name: str = ""
    hash_code: UInt64 = 0
    maybe_type_name: str = ""
    dtypes_and_shapes: tuple[DtypeAndShape, ...] = ()


class VariantTensorDataProto(WireModel):
    """A value of a type that only its own code can read."""

    type_name: str = ""
    metadata: Base64Bytes = b""
    tensors: tuple[TensorProto, ...] = ()


class TensorProto(WireModel):
    """A tensor: its elements packed in ``tensor_content``, or in the ``..._val`` field of its dtype."""

    dtype: DataType = 0
    tensor_shape: TensorShapeProto | None = None
    version_number: Int32 = 0
    tensor_content: Base64Bytes = b""
    half_val: tuple[Int32, ...] = ()
    float_val: tuple[Float32, ...] = ()
    double_val: tuple[Float64, ...] = ()
    int_val: tuple[Int32, ...] = ()
    string_val: tuple[Base64Bytes, ...] = ()
    scomplex_val: tuple[Float32, ...] = ()
    int64_val: tuple[Int64, ...] = ()
    bool_val: tuple[StrictBool, ...] = ()
    dcomplex_val: tuple[Float64, ...] = ()
    resource_handle_val: tuple[ResourceHandleProto, ...] = ()
    variant_val: tuple[VariantTensorDataProto, ...] = ()
    uint32_val: tuple[UInt32, ...] = ()
    uint64_val: tuple[UInt64, ...] = ()
    float8_val: Base64Bytes = b""


class FullTypeDef(WireModel):
    """A type expression; TensorFlow's own optimizers use it, nothing here does."""

    type_id: FullTypeId = 0
    args: tuple[FullTypeDef, ...] = ()
    s: str | None = None
    i: Int64 | None = None
