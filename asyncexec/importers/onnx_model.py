"""ONNX models as they come in: read, checked, functions expanded, types inferred."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Final

from asyncexec.framework.errors import DataLossError, InvalidArgumentError, InvalidTypeError
from asyncexec.framework.extras import require
from asyncexec.importers.files import read_file
from asyncexec.importers.onnx_checks import check_expansion, check_nodes, opsets_of
from asyncexec.importers.onnx_support import (
    fill_in_defaults,
    find_functions,
    refuse_what_is_lacking,
    warn_of_references,
)

_LARGE_BYTES: Final = 4096  # an initializer that is larger tells no shapes: inference is spared its values
_OLDEST_OPSET: Final = 7  # models before it are converted: broadcasting was another
_MAX_ROUNDS: Final = 16  # function bodies in function bodies
_EXTERNAL: Final = 1  # TensorProto.DataLocation


@dataclass(frozen=True, slots=True)
class OnnxModel:
    """A model that may be built.

    Attributes:
        graph: ``onnx.GraphProto`` without calls of functions, with the types of values as far as they are known.
        tensors: by name, the initializers of *graph* that stand there without values.
        opsets: domain -> version of its operator set.
        folder: where the files are that hold large tensors; None when the model is not from a file.
        ir_version: the version of the format.
    """

    graph: Any
    tensors: dict[str, Any]
    opsets: dict[str, int]
    folder: Path | None
    ir_version: int


def read_onnx_model(source: object) -> OnnxModel:
    """The model in *source*: a path, bytes, or an ``onnx.ModelProto``.

    Raises:
        NotFoundError, PermissionDeniedError: there is no such file, or it must not be read.
        DataLossError: it is no ONNX model, or is truncated.
        InvalidArgumentError: the model contradicts itself.
        UnimplementedError: it has ops that there is nothing for; all are listed.
        MissingExtraError: the onnx library is not installed.
    """
    onnx: Any = require("onnx", extra="onnx")
    model, folder, where = _parsed(onnx, source)
    if not model.HasField("graph"):
        raise DataLossError(f"{where} is not an ONNX model: it holds no graph")
    check_expansion(model)
    model = _new_enough(onnx, model)
    light, tensors = _without_large_tensors(onnx, model)
    light = _inlined(light)
    opsets = opsets_of(light)
    check_nodes(light.graph, opsets)
    refuse_what_is_lacking(light.graph, opsets)
    light = _inferred(_with_bodies(light))
    opsets = opsets_of(light)
    warn_of_references(light.graph, opsets)
    return OnnxModel(light.graph, tensors, opsets, folder, model.ir_version)


def _parsed(onnx: Any, source: object) -> tuple[Any, Path | None, str]:
    if isinstance(source, onnx.ModelProto):
        return source, None, "the model"
    if isinstance(source, (bytes, bytearray, memoryview)):
        data, folder, where = bytes(source), None, "the model"
    elif isinstance(source, (str, PathLike)):
        path = Path(source)
        data, folder, where = read_file(path, "an ONNX model"), path.parent, repr(str(path))
    else:
        raise InvalidTypeError(f"an ONNX model is a path, bytes or an onnx.ModelProto, not {type(source).__name__}")
    message: Any = require("google.protobuf.message", extra="onnx")
    if not data:
        raise DataLossError(f"{where} is not an ONNX model: it is empty")
    try:
        return onnx.load_model_from_string(data), folder, where
    except (message.DecodeError, ValueError, RecursionError) as error:
        raise DataLossError(f"{where} is not an ONNX model, or truncated: {error}") from error


def _new_enough(onnx: object, model: object) -> Any:
    """*model*, converted where its operator set is older than those that there are kernels for."""
    version = opsets_of(model).get("", _OLDEST_OPSET)
    if version >= _OLDEST_OPSET:
        return model
    converter: Any = require("onnx.version_converter", extra="onnx")
    try:
        return converter.convert_version(model, _OLDEST_OPSET)
    except Exception as error:  # of C++, some of no type of its own
        raise InvalidArgumentError(
            f"operator set {version} is older than {_OLDEST_OPSET}, and the model cannot be converted: {error}"
        ) from error


def _without_large_tensors(onnx: Any, model: Any) -> tuple[object, dict[str, Any]]:
    """A copy of *model* whose large initializers have no values, and these by name."""
    light = onnx.ModelProto()
    for field, value in model.ListFields():
        if field.name != "graph":
            _copy(light, field, value)
    large: dict[str, object] = {}
    for field, value in model.graph.ListFields():
        if field.name != "initializer":
            _copy(light.graph, field, value)
            continue
        for tensor in value:
            if tensor.ByteSize() <= _LARGE_BYTES:
                light.graph.initializer.append(tensor)
                continue
            large[tensor.name] = tensor
            light.graph.initializer.add(
                name=tensor.name, data_type=tensor.data_type, dims=tensor.dims, data_location=_EXTERNAL
            )
    return light, large


def _copy(target: object, field: Any, value: object) -> None:
    if field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED:
        getattr(target, field.name).extend(value)
    elif field.message_type is not None:
        getattr(target, field.name).CopyFrom(value)
    else:
        setattr(target, field.name, value)


def _inlined(model: Any) -> Any:
    """*model* with the bodies of its own functions in the place of their calls."""
    if not model.functions:
        return model
    inliner: Any = require("onnx.inliner", extra="onnx")
    try:
        return inliner.inline_local_functions(model, True)
    except Exception as error:  # of C++, some of no type of its own
        raise InvalidArgumentError(f"the functions of the model cannot be expanded: {error}") from error


def _with_bodies(model: Any) -> Any:
    """*model* where nodes without a kernel are replaced by what ONNX defines their ops by, where that can be had."""
    inliner: Any = require("onnx.inliner", extra="onnx")
    stuck: set[tuple[str, str]] = set()
    for _ in range(_MAX_ROUNDS):
        opsets = opsets_of(model)
        found = [function for function in find_functions(model.graph, opsets) if function not in stuck]
        if not found:
            break
        model = _inferred(model)  # some bodies depend on types
        for function in found:
            complete = type(model)()
            complete.CopyFrom(model)
            fill_in_defaults(complete.graph, opsets, function)
            try:
                model = inliner.inline_selected_functions(complete, [function], inline_schema_functions=True)
            except Exception:  # of C++; of types that are not known, or of an input that is left out
                stuck.add(function)
    return model


def _inferred(model: Any) -> Any:
    """*model* with what can be known of the types of its values; shapes that it only claims are left out."""
    inference: Any = require("onnx.shape_inference", extra="onnx")
    for graph in all_graphs(model.graph):
        for value in (*graph.value_info, *graph.output):
            if value.type.WhichOneof("value") == "tensor_type":
                value.type.tensor_type.ClearField("shape")
    try:
        return inference.infer_shapes(model, data_prop=True)
    except Exception as error:  # of C++, some of no type of its own
        raise InvalidArgumentError(f"the types of the model contradict each other: {error}") from error


def all_graphs(graph: Any) -> Iterator[Any]:
    """*graph* and those within its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else ())):
                yield from all_graphs(inner)
