"""TensorFlow's graph files: load and save GraphDefs as ``.pb``, ``.pbtxt`` and ``.json``, and load SavedModels.

Binary and text go through the protobuf classes that the package ``tensorboard`` carries (extra ``tf``), never through
TensorFlow; JSON needs no extra.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from asyncexec.framework.errors import DataLossError, InvalidArgumentError
from asyncexec.framework.graph_def import GraphDef
from asyncexec.importers.files import read_file, write_file
from asyncexec.importers.graph_formats import (
    GraphFormat,
    format_graph_def,
    graph_def_from_proto,
    graph_def_to_proto,
    parse_graph_def,
)
from asyncexec.importers.saved_model import (
    SavedModel,
    SignatureDef,
    TensorInfo,
    is_saved_model,
    load_saved_graph,
    load_saved_model,
)

__all__ = [
    "GraphFormat",
    "SavedModel",
    "SignatureDef",
    "TensorInfo",
    "format_graph_def",
    "graph_def_from_proto",
    "graph_def_to_proto",
    "load_graph_def",
    "load_saved_model",
    "parse_graph_def",
    "save_graph_def",
]

_SUFFIXES: Final[dict[str, GraphFormat]] = {".pb": "pb", ".pbtxt": "pbtxt", ".json": "json"}


def load_graph_def(path: str | Path, *, format: GraphFormat | None = None) -> GraphDef:  # noqa: A002
    """The GraphDef in a file, its format guessed by its suffix; of a SavedModel, the graph tagged ``serve``.

    Raises:
        NotFoundError: there is no such file.
        DataLossError: it is empty, cut short, or not a GraphDef.
        InvalidArgumentError: it has fields that are unknown or wrong; or nothing tells its format.
    """
    path = Path(path)
    if format is None and is_saved_model(path):
        return load_saved_graph(path)
    chosen = format or _format_of(path)
    data = read_file(path, f"a GraphDef ({chosen})")
    if not data:
        raise DataLossError(f"{str(path)!r} is empty; expected a GraphDef ({chosen})")
    return parse_graph_def(data, chosen, source=repr(str(path)))


def save_graph_def(graph_def: GraphDef, path: str | Path, *, format: GraphFormat | None = None) -> None:  # noqa: A002
    """Write *graph_def* to a file, its format told by the suffix unless given."""
    path = Path(path)
    write_file(path, format_graph_def(graph_def, format or _format_of(path)), "to write a GraphDef")


def _format_of(path: Path) -> GraphFormat:
    found = _SUFFIXES.get(path.suffix.lower())
    if found is None:
        raise InvalidArgumentError(
            f"{str(path)!r} has none of the suffixes {', '.join(_SUFFIXES)}", hint="say which with format="
        )
    return found
