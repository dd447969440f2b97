"""What the service tells of itself and of its models, as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from asyncexec.service.models.model import Model
from asyncexec.service.models.signature import TensorSpec
from asyncexec.service.models.statistics import Duration
from asyncexec.service.server_info import HTTP_EXTENSIONS, NAME, VERSION

_LONG: Final = (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64)


def server_metadata(extensions: Iterable[str] = ()) -> dict[str, Any]:
    """What the server is, and what it can: also *extensions*, which are not there always."""
    return {"name": NAME, "version": VERSION, "extensions": [*HTTP_EXTENSIONS, *extensions]}


def model_metadata(model: Model, versions: Iterable[str]) -> dict[str, Any]:
    """What *model*, one of *versions*, takes and gives."""
    return {
        "name": model.name,
        "versions": list(versions),
        "platform": model.config.platform,
        "inputs": [_described(spec) for spec in model.signature.inputs.values()],
        "outputs": [_described(spec) for spec in model.signature.outputs.values()],
    }


def _described(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": spec.described_shape}


def model_statistics(model: Model) -> dict[str, Any]:
    """What *model* has done, as Triton's statistics extension tells it."""
    done = model.statistics
    return {
        "name": model.name,
        "version": model.version,
        "last_inference": done.last_inference_ms,
        "inference_count": done.inference_count,
        "execution_count": done.execution_count,
        "inference_stats": {name: _told(each) for name, each in done.inference_stats().items()},
        "batch_stats": [
            {"batch_size": rows, **{name: _told(each) for name, each in durations.items()}}
            for rows, durations in done.batch_stats().items()
        ],
    }


def _told(duration: Duration) -> dict[str, int]:
    return {"count": duration.count, "ns": duration.ns}


def config_as_json(config: Any) -> dict[str, Any]:
    """A ModelConfig with all of its fields, as Triton tells it: numbers of 64 bits are numbers, not strings."""
    fields = json_format.MessageToDict(
        config, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return _with_numbers(config.DESCRIPTOR, fields)


def _with_numbers(message: Descriptor, fields: dict[str, object]) -> dict[str, object]:
    return {name: _with_number(message.fields_by_name[name], value) for name, value in fields.items()}


def _with_number(field: FieldDescriptor, value: Any) -> object:
    if isinstance(value, list):
        return [_with_number(field, item) for item in value]
    inner = field.message_type
    if inner is None:
        return int(value) if field.cpp_type in _LONG else value
    if inner.GetOptions().map_entry:
        return {key: _with_number(inner.fields_by_name["value"], item) for key, item in value.items()}
    return _with_numbers(inner, value)
