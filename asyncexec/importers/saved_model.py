"""SavedModel files: the graph and the signatures of one MetaGraphDef (``saved_model.proto``, ``meta_graph.proto``).

Variables and assets, which lie beside the file, are not read: ``models/saved_model.py`` makes a model of it all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Final

from asyncexec.framework.errors import DataLossError, InvalidArgumentError, NotFoundError
from asyncexec.framework.graph_def import GraphDef
from asyncexec.framework.tensor_proto import decode_shape, decode_tensor, dtype_of_enum
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, TensorShape
from asyncexec.framework.types import DType, int64
from asyncexec.importers.files import read_file
from asyncexec.importers.graph_formats import parse_message, parse_text_message, read_message, serialize
from asyncexec.importers.proto_convert import GraphReader
from asyncexec.importers.proto_messages import proto_messages

SAVED_MODEL_FILES: Final = ("saved_model.pb", "saved_model.pbtxt")
SERVE: Final = "serve"
INIT_OP: Final = "__saved_model_init_op"  # a signature that has an operation and no tensors
_ASSETS: Final = "saved_model_assets"
_INIT_COLLECTIONS: Final = ("saved_model_main_op", "legacy_init_op")


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A tensor of the graph that a signature takes or gives."""

    name: str
    dtype: DType
    shape: TensorShape


@dataclass(frozen=True, slots=True)
class SignatureDef:
    """A way to call the model: tensors by key (sparse and composite ones as ``key/component``).

    Attributes:
        method_name: what kind of signature it is to clients of TensorFlow Serving.
        defaults: values of inputs that may be left out.
    """

    inputs: Mapping[str, TensorInfo]
    outputs: Mapping[str, TensorInfo]
    method_name: str
    defaults: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SavedModel:
    """What a SavedModel file says of one of its graphs.

    Attributes:
        tags: what the graph is for.
        restore_op: the operation that restores all variables; "" where there is none.
        checkpoint_tensor: the tensor to feed with the path of the checkpoint that *restore_op* reads.
        init_op: the operation to run after that, which fills tables, say; "" where there is none.
        assets: the names of files in the folder ``assets``, by the tensors to feed with their paths.
    """

    graph_def: GraphDef
    signatures: Mapping[str, SignatureDef]
    tags: tuple[str, ...]
    restore_op: str = ""
    checkpoint_tensor: str = ""
    init_op: str = ""
    assets: Mapping[str, str] = field(default_factory=dict)


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
        meta_graph.saver_def.restore_op_name,
        meta_graph.saver_def.filename_tensor_name,
        _init_op(meta_graph),
        {asset.tensor_info.name: asset.filename for asset in _assets(meta_graph, source)},
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


def _assets(meta_graph: Any, source: str) -> Sequence[Any]:
    """The AssetFileDefs; graphs of TensorFlow 1 have them in a collection."""
    if meta_graph.asset_file_def or _ASSETS not in meta_graph.collection_def:
        return list(meta_graph.asset_file_def)
    message = proto_messages(packed=True).asset_file_def
    packed = meta_graph.collection_def[_ASSETS].any_list.value
    return [parse_message(message, each.value, source, "a SavedModel with assets") for each in packed]


def _init_op(meta_graph: Any) -> str:
    """The operation that initializes what no checkpoint has, as ``loader.cc`` finds it."""
    if INIT_OP in meta_graph.signature_def:
        return str(meta_graph.signature_def[INIT_OP].outputs[INIT_OP].name)
    for key in _INIT_COLLECTIONS:
        names = meta_graph.collection_def[key].node_list.value if key in meta_graph.collection_def else ()
        if names:
            return str(names[0])
    return ""


def _signature(message: Any, source: str) -> SignatureDef:
    try:
        return SignatureDef(
            _tensor_infos(message.inputs),
            _tensor_infos(message.outputs),
            message.method_name,
            {key: decode_tensor(GraphReader().read(message.defaults[key])) for key in sorted(message.defaults)},
        )
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
