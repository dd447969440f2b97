"""The formats of models: what a path is, and what reads it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from asyncexec.framework.errors import InvalidArgumentError, NotFoundError
from asyncexec.frontend.pnnx_io import load_pnnx
from asyncexec.importers.load_onnx import load_onnx
from asyncexec.importers.saved_model import is_saved_model
from asyncexec.importers.tf_graph_def import load_graph_def
from asyncexec.models.model_data import ModelData
from asyncexec.models.saved_model import read_saved_model


@dataclass(frozen=True, slots=True)
class ModelFormat:
    """A format.

    Attributes:
        name: what messages call it.
        files: how its files are called, for messages.
        matches: whether a path is of it, by its name, or as a folder.
        read: what reads a path; it may raise any OpError.
    """

    name: str
    files: str
    matches: Callable[[Path], bool]
    read: Callable[[Path], ModelData]


def with_suffix(*suffixes: str) -> Callable[[Path], bool]:
    """What tells whether a path ends in one of *suffixes*."""
    return lambda path: path.name.lower().endswith(suffixes)


def _read_graph(path: Path) -> ModelData:
    return ModelData(load_graph_def(path))


def _read_onnx(path: Path) -> ModelData:
    loaded = load_onnx(path)
    return ModelData(loaded.graph_def, loaded.signatures)


def _read_pnnx(path: Path) -> ModelData:
    loaded = load_pnnx(path)
    return ModelData(loaded.graph_def, loaded.signatures)


# The first that matches is taken.
FORMATS: Final = (
    ModelFormat("SavedModel", "a folder with saved_model.pb", is_saved_model, read_saved_model),
    ModelFormat("ONNX", ".onnx", with_suffix(".onnx"), _read_onnx),
    ModelFormat("PNNX", ".pnnx.param, with its .pnnx.bin beside it", with_suffix(".pnnx.param"), _read_pnnx),
    ModelFormat("GraphDef", ".pb, .pbtxt, .json", with_suffix(".pb", ".pbtxt", ".json"), _read_graph),
)


def read_model(path: Path) -> ModelData:
    """The model at *path*, whatever its format.

    Raises:
        NotFoundError: nothing is there.
        InvalidArgumentError: it is of no known format.
        OpError: as of its format.
    """
    for each in FORMATS:
        if each.matches(path):
            return each.read(path)
    if not path.exists():
        raise NotFoundError(f"{str(path)!r} does not exist; expected a model there")
    known = "; ".join(f"{each.name} ({each.files})" for each in FORMATS)
    raise InvalidArgumentError(f"{str(path)!r} is no model of a known format: {known}")
