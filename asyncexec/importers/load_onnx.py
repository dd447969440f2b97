"""``load_onnx``: an ONNX model as a GraphDef and a signature, as a SavedModel has them."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Final

from asyncexec.importers.onnx_graph import GraphWriter, OnnxGraph
from asyncexec.importers.onnx_model import read_onnx_model
from asyncexec.importers.onnx_scope import Value
from asyncexec.importers.saved_model import SERVE, SavedModel, SignatureDef, TensorInfo

SIGNATURE: Final = "serving_default"
ONNX_SUFFIX: Final = ".onnx"


def load_onnx(source: str | PathLike[str] | bytes | object) -> SavedModel:
    """The model at a path, in bytes or in an ``onnx.ModelProto``; its inputs and outputs by their ONNX names.

    Inputs with a default are in the graph, but not among those that the signature asks for.

    Raises:
        NotFoundError, PermissionDeniedError: there is no such file, or it must not be read.
        DataLossError: it is no ONNX model, or is truncated.
        InvalidArgumentError, ResourceExhaustedError: the model contradicts itself, or is too large.
        UnimplementedError: it has ops that there is nothing for; all are listed.
        MissingExtraError: the onnx library is not installed.
    """
    graph = read_onnx_graph(source)
    signature = SignatureDef(_tensor_infos(graph.inputs), _tensor_infos(graph.outputs), "onnx")
    return SavedModel(graph.graph_def, {SIGNATURE: signature}, (SERVE,))


def read_onnx_graph(source: object) -> OnnxGraph:
    """The GraphDef, and what ONNX names stand for in it; errors as of :func:`load_onnx`."""
    return GraphWriter(read_onnx_model(source)).write()


def _tensor_infos(values: Mapping[str, Value]) -> dict[str, TensorInfo]:
    return {name: TensorInfo(value.text, value.dtype, value.type.shape) for name, value in values.items()}
