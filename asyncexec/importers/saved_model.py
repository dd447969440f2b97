"""SavedModel files: the graph and the signatures of one MetaGraphDef (``saved_model.proto``, ``meta_graph.proto``).

Variables and assets, which lie beside the file, are not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Final

from asyncexec.framework.errors import DataLossError, InvalidArgumentError, NotFoundError
from asyncexec.framework.graph_def import GraphDef
from asyncexec.framework.tensor_proto import decode_shape, dtype_of_enum
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, TensorShape
from asyncexec.framework.types import DType, int64
from asyncexec.importers.files import read_file
from asyncexec.importers.graph_formats import parse_message, parse_text_message, read_message, serialize
from asyncexec.importers.proto_convert import GraphReader
from asyncexec.importers.proto_messages import proto_messages

SAVED_MODEL_FILES: Final = ("saved_model.pb", "saved_model.pbtxt")
SERVE: Final = "serve"


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A tensor of the graph that a signature takes or gives."""

    name: str
    dtype: DType
    shape: TensorShape


@dataclass(frozen=True, slots=True)
class SignatureDef:
    """A way to call the model: tensors by key (sparse and composite ones as ``key/component``)."""

    inputs: Mapping[str, TensorInfo]
    outputs: Mapping[str, TensorInfo]
    method_name: str


@dataclass(frozen=True, slots=True)
class SavedModel:
    """What a SavedModel file says of one of its graphs."""

    graph_def: GraphDef
    signatures: Mapping[str, SignatureDef]
    tags: tuple[str, ...]


def is_saved_model(path: Path) -> bool:
    """Whether *path* is a SavedModel by its name: a folder, or a file called ``saved_model.pb`` or ``.pbtxt``."""
    return path.name in SAVED_MODEL_FILES or path.is_dir()


def load_saved_model(path: str | PathLike[str]) -> SavedModel:
    """The graph tagged ``serve``, else the first, of a SavedModel folder or file, with its signatures.

    Raises:
        NotFoundError: there is no such file.
        DataLossError: the file is truncated, or no SavedModel.
        InvalidArgumentError: the graph or a signature is malformed.
    """
    source, meta_graph = _meta_graph(Path(path))
    return SavedModel(
        read_message(meta_graph.graph_def, source),
        {name: _signature(meta_graph.signature_def[name], source) for name in sorted(meta_graph.signature_def)},
        tuple(meta_graph.meta_info_def.tags),
    )


def load_saved_graph(path: str | PathLike[str]) -> GraphDef:
    """The graph alone; errors as of :func:`load_saved_model`."""
    source, meta_graph = _meta_graph(Path(path))
    return read_message(meta_graph.graph_def, source)


def _meta_graph(path: Path) -> tuple[str, Any]:
    """The MetaGraphDef to serve, and the file it is from."""
    file = _file_in(path)
    source = repr(str(file))
    message = _parse(read_file(file, "a SavedModel"), file.suffix, source)
    if not message.meta_graphs:
        raise DataLossError(f"{source} is not a SavedModel: it holds no graph")
    served = [meta for meta in message.meta_graphs if SERVE in meta.meta_info_def.tags]
    return source, (served or message.meta_graphs)[0]


def _file_in(path: Path) -> Path:
    if not path.is_dir():
        return path
    for name in SAVED_MODEL_FILES:
        if (path / name).is_file():
            return path / name
    raise NotFoundError(f"folder {str(path)!r} is not a SavedModel: it has no {' or '.join(SAVED_MODEL_FILES)}")


def _parse(data: bytes, suffix: str, source: str) -> Any:
    if suffix == ".pbtxt":
        message = parse_text_message(proto_messages(packed=False).saved_model(), data, source, "a SavedModel")
        data = serialize(message, source)
    return parse_message(proto_messages(packed=True).saved_model, data, source, "a SavedModel")


def _signature(message: Any, source: str) -> SignatureDef:
    try:
        return SignatureDef(_tensor_infos(message.inputs), _tensor_infos(message.outputs), message.method_name)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{source}, in a signature: {error.message}") from error


def _tensor_infos(infos: Any) -> dict[str, TensorInfo]:
    """The tensors of *infos* by key; what is an operation and no tensor (``DT_INVALID``) is left out."""
    found: dict[str, TensorInfo] = {}
    for key in sorted(infos):
        components = _components(infos[key])
        found.update({key + suffix: _tensor_info(name, info) for suffix, name, info in components if info.dtype})
    return found


def _components(info: Any) -> list[tuple[str, str, Any]]:
    """The dense tensors of *info*: suffix of the key, tensor name, and what tells dtype and shape."""
    match info.WhichOneof("encoding"):
        case "coo_sparse":
            sparse, index = info.coo_sparse, type(info)(dtype=int64.enum)
            return [
                ("/values", sparse.values_tensor_name, type(info)(dtype=info.dtype)),
                ("/indices", sparse.indices_tensor_name, index),
                ("/dense_shape", sparse.dense_shape_tensor_name, index),
            ]
        case "composite_tensor":
            return [(f"/{i}", each.name, each) for i, each in enumerate(info.composite_tensor.components)]
    return [("", info.name, info)]


def _tensor_info(name: str, info: Any) -> TensorInfo:
    shape = decode_shape(GraphReader().read(info.tensor_shape)) if info.HasField("tensor_shape") else UNKNOWN_SHAPE
    return TensorInfo(name, dtype_of_enum(info.dtype), shape)
