"""SavedModels with their variables, tables and assets, as TensorFlow's loader starts them (``loader.cc``)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from asyncexec.checkpoints.bundle_entry import index_path
from asyncexec.framework.errors import NotFoundError, PermissionDeniedError
from asyncexec.framework.graph_def import GraphDef
from asyncexec.importers.saved_model import INIT_OP, SavedModel, load_saved_model
from asyncexec.models.model_data import InitStep, ModelData, all_nodes

_TRAIN_OP: Final = "__saved_model_train_op"
_VARIABLES: Final = frozenset({"VarHandleOp", "Variable", "VariableV2"})


def read_saved_model(path: Path) -> ModelData:
    """The SavedModel in the folder *path*, or with that file.

    Raises:
        NotFoundError: it is not there, or lacks files, all of which are named.
        PermissionDeniedError: an asset lies outside of the folder.
        DataLossError, InvalidArgumentError: it is cut short, or malformed.
    """
    saved = load_saved_model(path)
    folder = path if path.is_dir() else path.parent
    checkpoint = folder / "variables" / "variables"
    _check_files(saved, folder, checkpoint)
    assets = {tensor: os.fsencode(folder / "assets" / name) for tensor, name in saved.assets.items()}
    steps = []
    if saved.restore_op and index_path(checkpoint).exists():
        feeds = {saved.checkpoint_tensor: os.fsencode(checkpoint), **assets}
        steps.append(InitStep(_op(saved.restore_op), feeds, checkpoint))
    if saved.init_op:
        steps.append(InitStep(_op(saved.init_op), assets))
    signatures = {name: each for name, each in saved.signatures.items() if name not in (INIT_OP, _TRAIN_OP)}
    return ModelData(saved.graph_def, signatures, steps, folder)


def _op(name: str) -> str:
    return name.partition(":")[0]


def _check_files(saved: SavedModel, folder: Path, checkpoint: Path) -> None:
    """Raise unless all files are there that the graph needs to begin."""
    wanted = [folder / "assets" / name for name in saved.assets.values()]
    inside = folder.resolve()
    outside = [str(path) for path in wanted if not path.resolve().is_relative_to(inside)]
    if outside:
        raise PermissionDeniedError(f"the model {str(folder)!r} wants files that are not in it: {', '.join(outside)}")
    if _has_variables(saved.graph_def) and saved.restore_op:
        wanted.append(index_path(checkpoint))
    missing = [str(path.relative_to(folder)) for path in wanted if not path.exists()]
    if missing:
        raise NotFoundError(f"the model {str(folder)!r} lacks files: {', '.join(missing)}")


def _has_variables(graph_def: GraphDef) -> bool:
    return any(node.op in _VARIABLES for node in all_nodes(graph_def))
