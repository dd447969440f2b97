"""SavedModel files: the graph and the signatures of one MetaGraphDef (``saved_model.proto``, ``meta_graph.proto``).

Variables and assets, which lie beside the file, are not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from asyncexec.framework.errors import DataLossError, NotFoundError
from asyncexec.framework.graph_def import GraphDef
from asyncexec.framework.tensor_proto import decode_shape, dtype_of_enum
from asyncexec.framework.tensor_protos import TensorShapeProto
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, TensorShape
from asyncexec.framework.types import DType
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


def load_saved_model(path: str | Path) -> SavedModel:
    """The graph tagged ``serve``, else the first, of a SavedModel folder or file, with its signatures.

    Raises:
        NotFoundError: there is no such file.
        DataLossError: it is cut short or no SavedModel.
    """
    file = _file_in(Path(path))
    source = repr(str(file))
    message = _parse(read_file(file, "a SavedModel"), file.suffix, source)
    if not message.meta_graphs:
        raise DataLossError(f"{source} is not a SavedModel: it holds no graph")
    served = [meta for meta in message.meta_graphs if SERVE in meta.meta_info_def.tags]
    meta_graph = (served or message.meta_graphs)[0]
    return SavedModel(
        read_message(meta_graph.graph_def, source),
        {name: _signature(meta_graph.signature_def[name]) for name in sorted(meta_graph.signature_def)},
        tuple(meta_graph.meta_info_def.tags),
    )


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


def _signature(message: Any) -> SignatureDef:
    return SignatureDef(_tensor_infos(message.inputs), _tensor_infos(message.outputs), message.method_name)


def _tensor_infos(infos: Any) -> dict[str, TensorInfo]:
    found: dict[str, TensorInfo] = {}
    for key in sorted(infos):
        info = infos[key]
        found.update({f"{key}{suffix}": _tensor_info(name, each) for suffix, name, each in _components(info)})
    return found


def _components(info: Any) -> list[tuple[str, str, Any]]:
    """The dense tensors of *info*: suffix of the key, tensor name, and what tells dtype and shape."""
    match info.WhichOneof("encoding"):
        case "coo_sparse":
            sparse = info.coo_sparse
            return [
                ("/values", sparse.values_tensor_name, type(info)(dtype=info.dtype)),
                ("/indices", sparse.indices_tensor_name, type(info)(dtype=9)),
                ("/dense_shape", sparse.dense_shape_tensor_name, type(info)(dtype=9)),
            ]
        case "composite_tensor":
            return [(f"/{i}", each.name, each) for i, each in enumerate(info.composite_tensor.components)]
        case _:
            return [("", info.name, info)]


def _tensor_info(name: str, info: Any) -> TensorInfo:
    shape = UNKNOWN_SHAPE
    if info.HasField("tensor_shape"):
        proto: TensorShapeProto = GraphReader().read(info.tensor_shape)
        shape = decode_shape(proto)
    return TensorInfo(name, dtype_of_enum(info.dtype), shape)
