"""Tensors of TensorFlow's clients: the bytes of a TensorProto to a value, and back."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.tensor_proto import ByteBudget, decode_tensor, encode_tensor
from asyncexec.framework.tensor_protos import DimProto, TensorProto, TensorShapeProto
from asyncexec.framework.types import DType
from asyncexec.importers.proto_messages import proto_messages

_WITHOUT_VALUES = ("resource_handle_val", "variant_val")


def tensor_class() -> Any:
    """The class of messages TensorProto."""
    return proto_messages(packed=False).message("TensorProto", "graph")


def tensor_from_bytes(data: bytes, budget: ByteBudget) -> Any:
    """The value of a serialized TensorProto; *budget* is for what it takes beyond its own values.

    Raises:
        OpError: it is no TensorProto, or as ``decode_tensor`` raises.
    """
    message = tensor_class()()
    try:
        message.ParseFromString(data)
    except DecodeError:
        raise InvalidArgumentError("this is no TensorProto") from None
    fields = TensorProto.field_defaults()
    for field, value in message.ListFields():
        if field.name == "tensor_shape":
            dims = tuple([DimProto.model_construct(size=dim.size) for dim in value.dim])
            fields[field.name] = TensorShapeProto.model_construct(dim=dims, unknown_rank=value.unknown_rank)
        elif field.name not in _WITHOUT_VALUES:
            fields[field.name] = tuple(value) if isinstance(fields[field.name], tuple) else value
    return decode_tensor(TensorProto.from_fields(fields), byte_budget=budget)


def tensor_to_bytes(value: object, dtype: DType) -> bytes:
    """*value*, of *dtype*, as a serialized TensorProto; InvalidArgumentError where it has no such form."""
    proto = encode_tensor(value, dtype)
    fields = {name: field for name, field in proto if field and name != "tensor_shape"}
    message = tensor_class()(**fields)
    message.tensor_shape.SetInParent()
    if proto.tensor_shape is not None:
        for dim in proto.tensor_shape.dim:
            message.tensor_shape.dim.add(size=dim.size)
    data: bytes = message.SerializeToString()
    return data
