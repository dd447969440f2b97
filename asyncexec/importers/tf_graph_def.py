"""TensorFlow's graph files: load and save GraphDefs as ``.pb``, ``.pbtxt`` and ``.json``, and load SavedModels.

Binary and text need the package ``protobuf`` (extra ``tf``), and never TensorFlow; JSON needs no extra.
"""

from __future__ import annotations

from os import PathLike
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


def load_graph_def(path: str | PathLike[str], *, format: GraphFormat | None = None) -> GraphDef:  # noqa: A002
    """The GraphDef in a file; of a SavedModel, the graph tagged ``serve``.  The suffix tells the format.

    >>> with ax.Graph() as graph:
    ...     y = ax.constant(1, name="y")
    >>> ax.save_graph_def(graph.as_graph_def(), "graph.json")
    >>> ax.import_graph_def(ax.load_graph_def("graph.json"))
    >>> show(ax.current_graph()["y:0"])
    1

    Raises:
        NotFoundError: there is no such file.
        DataLossError: the file is empty, truncated, or no GraphDef.
        InvalidArgumentError: it has unknown or malformed fields, or its format is unknown.
    """
    path = Path(path)
    if format is None and is_saved_model(path):
        return load_saved_graph(path)
    chosen = format or _format_of(path)
    data = read_file(path, f"a GraphDef ({chosen})")
    if not data:
        raise DataLossError(f"{str(path)!r} is empty; expected a GraphDef ({chosen})")
    return parse_graph_def(data, chosen, source=repr(str(path)))


def save_graph_def(graph_def: GraphDef, path: str | PathLike[str], *, format: GraphFormat | None = None) -> None:  # noqa: A002
    """Write *graph_def* to a file.  The suffix tells the format, unless *format* does.

    >>> with ax.Graph() as graph:
    ...     y = ax.constant(1, name="y")
    >>> ax.save_graph_def(graph.as_graph_def(), "graph.json")
    >>> [node.name for node in ax.load_graph_def("graph.json").node]
    ['y']

    Raises:
        InvalidArgumentError: the suffix tells no format, or *path* is no file.
        NotFoundError: the folder does not exist.
    """
    path = Path(path)
    write_file(path, format_graph_def(graph_def, format or _format_of(path)), "to write a GraphDef")


def _format_of(path: Path) -> GraphFormat:
    found = _SUFFIXES.get(path.suffix.lower())
    if found is None:
        raise InvalidArgumentError(
            f"{str(path)!r} has none of the suffixes {', '.join(_SUFFIXES)}", hint="say which with format="
        )
    return found
