"""The JSON of the HTTP routes as schemas, for the OpenAPI description."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from asyncexec.service.datatypes import DATATYPES
from asyncexec.service.protocol_messages import message

Schema = dict[str, Any]

_SCALARS: Final = {
    FieldDescriptor.CPPTYPE_BOOL: "boolean",
    FieldDescriptor.CPPTYPE_DOUBLE: "number",
    FieldDescriptor.CPPTYPE_FLOAT: "number",
    FieldDescriptor.CPPTYPE_STRING: "string",
    FieldDescriptor.CPPTYPE_ENUM: "string",
}

TEXT: Final[Schema] = {"type": "string"}
FLAG: Final[Schema] = {"type": "boolean"}
COUNT: Final[Schema] = {"type": "integer", "minimum": 0}


def ref(name: str) -> Schema:
    """The schema called *name*."""
    return {"$ref": f"#/components/schemas/{name}"}


def list_of(item: Schema, **limits: object) -> Schema:
    """A list of *item*."""
    return {"type": "array", "items": item, **limits}


def record(_required: str = "", /, **properties: Schema) -> Schema:
    """An object with *properties*; the names of those that are always there are words of the first argument."""
    found: Schema = {"type": "object", "properties": properties}
    return {**found, "required": _required.split()} if _required else found


def or_null(schema: Schema) -> Schema:
    """*schema*, or null, which means the same as leaving it out."""
    return {"anyOf": [schema, {"type": "null"}]}


def schemas() -> Mapping[str, Schema]:
    """All schemas by name."""
    return {
        "Error": record("error", error=TEXT),
        **_tensors(),
        **_inference(),
        **_models(),
        **_repository(),
        **_settings(),
        **_serving(),
    }


def _tensors() -> dict[str, Schema]:
    return {
        "Datatype": {"type": "string", "enum": list(DATATYPES)},
        "Parameters": {
            "type": "object",
            "additionalProperties": {"type": ["boolean", "number", "string"]},
            "description": "`timeout` is the deadline of the request in microseconds.",
        },
        "Data": {"type": "array", "description": "The elements in row-major order, flat or nested."},
        "TensorMetadata": record(
            "name datatype shape",
            name=TEXT,
            datatype=ref("Datatype"),
            shape=list_of({"type": "integer", "minimum": -1}),
        ),
    }


def _inference() -> dict[str, Schema]:
    shape = list_of(COUNT, maxItems=32)
    binary_size = record(binary_data_size=COUNT)
    return {
        "InferInput": record(
            "name datatype shape",
            name=TEXT,
            datatype=ref("Datatype"),
            shape=shape,
            parameters=or_null({"allOf": [ref("Parameters"), binary_size]}),
            data=or_null(ref("Data")),
        ),
        "InferRequestedOutput": record(
            "name", name=TEXT, parameters=or_null({"allOf": [ref("Parameters"), record(binary_data=FLAG)]})
        ),
        "InferRequest": record(
            "inputs",
            id=or_null(TEXT),
            parameters=or_null({"allOf": [ref("Parameters"), record(binary_data_output=FLAG)]}),
            inputs=list_of(ref("InferInput")),
            outputs=or_null(list_of(ref("InferRequestedOutput"))),
        ),
        "InferOutput": record(
            "name datatype shape",
            name=TEXT,
            datatype=ref("Datatype"),
            shape=shape,
            parameters=binary_size,
            data=ref("Data"),
        ),
        "InferResponse": record(
            "model_name model_version outputs",
            model_name=TEXT,
            model_version=TEXT,
            id=TEXT,
            parameters=ref("Parameters"),
            outputs=list_of(ref("InferOutput")),
        ),
        "GenerateRequest": {
            "type": "object",
            "description": (
                "Inputs and parameters by name: an element, or a flat list of them.  `id` and `parameters`, an object "
                "of more of them, have this meaning where no input is called so."
            ),
        },
        "GenerateResponse": {
            **record("model_name model_version", model_name=TEXT, model_version=TEXT),
            "description": "Outputs by name, too: an element, or a flat list of them.",
        },
    }


def _models() -> dict[str, Schema]:
    duration = record("count ns", count=COUNT, ns=COUNT)
    kinds = "success fail queue compute_input compute_infer compute_output cache_hit cache_miss"
    statistics = record(
        "name version last_inference inference_count execution_count inference_stats batch_stats",
        name=TEXT,
        version=TEXT,
        last_inference=COUNT,
        inference_count=COUNT,
        execution_count=COUNT,
        inference_stats=record(kinds, **dict.fromkeys(kinds.split(), duration)),
        batch_stats=list_of({"type": "object"}),
    )
    tensors = list_of(ref("TensorMetadata"))
    return {
        "Live": record("live", live=FLAG),
        "Ready": record("ready", ready=FLAG),
        "ModelReady": record("name ready", name=TEXT, ready=FLAG),
        "ServerMetadata": record("name version extensions", name=TEXT, version=TEXT, extensions=list_of(TEXT)),
        "ModelMetadata": record(
            "name versions platform inputs outputs",
            name=TEXT,
            versions=list_of(TEXT),
            platform=TEXT,
            inputs=tensors,
            outputs=tensors,
        ),
        "ModelConfig": _of_message(message("ModelConfig").DESCRIPTOR),
        "ModelStatistics": record("model_stats", model_stats=list_of(statistics)),
    }


def _repository() -> dict[str, Schema]:
    state = record("name", name=TEXT, version=TEXT, state=TEXT, reason=TEXT)
    values = {"type": "object", "additionalProperties": {"type": ["string", "boolean", "integer"]}}
    return {
        "RepositoryIndexRequest": record(ready=or_null(FLAG)),
        "RepositoryIndex": list_of(state),
        "LoadRequest": {
            **record(parameters=or_null(values)),
            "description": "`config` is a ModelConfig, as JSON in a string.",
        },
        "Loaded": record("name load", name=TEXT, load=FLAG),
        "Unloaded": record("name unload", name=TEXT, unload=FLAG),
        "Regions": {
            "type": "array",
            "items": record("name key offset byte_size", name=TEXT, key=TEXT, offset=COUNT, byte_size=COUNT),
        },
        "RegisterRequest": record("key byte_size", key=TEXT, offset=COUNT, byte_size=COUNT),
    }


def _settings() -> dict[str, Schema]:
    of_log: dict[str, Schema] = {
        **dict.fromkeys(("log_info", "log_warning", "log_error"), FLAG),
        "log_verbose_level": {**COUNT, "maximum": 2**31 - 1},
        "log_format": {"enum": ["default", "ISO8601"]},
    }
    number = {**TEXT, "pattern": "^-?[0-9]{1,10}$"}
    of_traces: dict[str, Schema] = {
        "trace_level": list_of({"enum": ["OFF", "TIMESTAMPS", "TENSORS"]}, minItems=1),
        **dict.fromkeys(("trace_rate", "trace_count", "log_frequency"), number),
        "trace_mode": {"enum": ["triton"]},
    }

    def changes(properties: Mapping[str, Schema]) -> Schema:
        found = record(**{name: or_null(schema) for name, schema in properties.items()})
        return {**found, "additionalProperties": False}

    return {
        "LogSettings": record(" ".join(of_log), log_file=TEXT, **of_log),
        "LogChanges": changes(of_log),
        "TraceSettings": record(" ".join(of_traces), trace_file=TEXT, **of_traces),
        "TraceChanges": changes(of_traces),
    }


def _serving() -> dict[str, Schema]:
    signature = or_null({**TEXT, "description": "The signature of the model; no other is served."})
    predict = record(signature_name=signature, instances={"type": "array", "minItems": 1}, inputs={})
    spec = record("name signature_name version", name=TEXT, signature_name=TEXT, version=TEXT)
    status = record("error_code error_message", error_code={"enum": ["OK", "UNKNOWN"]}, error_message=TEXT)
    states = {"enum": ["START", "LOADING", "AVAILABLE", "UNLOADING", "END"]}
    version = record("version state status", version=TEXT, state=states, status=status)
    sizes = list_of(record("size", size={**TEXT, "pattern": "^-?[0-9]+$"}, name=TEXT))
    tensor = record("name dtype", name=TEXT, dtype=TEXT, tensor_shape=record(dim=sizes, unknown_rank=FLAG))
    tensors = {"type": "object", "additionalProperties": tensor}
    signatures = {
        "type": "object",
        "additionalProperties": record("inputs outputs method_name", inputs=tensors, outputs=tensors, method_name=TEXT),
    }
    return {
        "PredictRequest": {**predict, "oneOf": [{"required": ["instances"]}, {"required": ["inputs"]}]},
        "PredictResponse": {
            **record(predictions={"type": "array"}, outputs={}),
            "oneOf": [{"required": ["predictions"]}, {"required": ["outputs"]}],
        },
        "ExamplesRequest": record(
            "examples",
            signature_name=signature,
            context={"type": "object"},
            examples=list_of({"type": "object"}, minItems=1),
        ),
        "ExamplesResponse": record("results", results={"type": "array"}),
        "ModelStatus": record("model_version_status", model_version_status=list_of(version)),
        "ServingMetadata": record(
            "model_spec metadata", model_spec=spec, metadata=record(signature_def=record(signature_def=signatures))
        ),
    }


def _of_message(descriptor: Descriptor) -> Schema:
    """The JSON of a message, as config_as_json() makes it."""
    fields = {field.name: _of_field(field) for field in descriptor.fields}
    return {"type": "object", "properties": fields, "additionalProperties": False}


def _of_field(field: FieldDescriptor) -> Schema:
    inner = field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        return {"type": "object", "additionalProperties": _of_field(inner.fields_by_name["value"])}
    one = {"type": _SCALARS.get(field.cpp_type, "integer")} if inner is None else _of_message(inner)
    return list_of(one) if field.is_repeated else one
