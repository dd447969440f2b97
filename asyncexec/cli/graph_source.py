"""What ``asyncexec inspect`` is given: a file, ``-`` for what is piped into it, or ``module:graph``."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

import asyncexec as ax
from asyncexec.cli.graph_summary import FunctionSummary
from asyncexec.framework.errors import DataLossError, InvalidArgumentError, OpError
from asyncexec.framework.lazy_module import LazyModule
from asyncexec.page.graph_nodes import ShownNode, nodes_of_def, nodes_of_graph

if TYPE_CHECKING:
    from asyncexec.framework.graph_def import FunctionDef, GraphDef
    from asyncexec.graph.graph import Graph

_tf_graph_def = LazyModule("asyncexec.importers.tf_graph_def")
_missing_kernels = LazyModule("asyncexec.compilation.missing_kernels")
_op_registry = LazyModule("asyncexec.framework.op_registry")

STDIN: Final = "-"
_IN_MODULE: Final = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*(?:\.[^\W\d]\w*)*")


@dataclass(frozen=True, slots=True)
class InspectedGraph:
    """A graph, or what can be told of one that does not import.

    Attributes:
        graph: None where it does not import.
        graph_def: None where it was made by a module.
        unknown_ops: ops that are not known here, for which it does not import.
        without_kernel: ops that are known and cannot run.
        error: why it does not import for any other reason.
    """

    nodes: Sequence[ShownNode]
    functions: Sequence[FunctionSummary]
    graph: Graph | None = None
    graph_def: GraphDef | None = None
    unknown_ops: Sequence[str] = ()
    without_kernel: Sequence[str] = ()
    error: OpError | None = None


def read_graph(name: str) -> InspectedGraph:
    """The graph that *name* means.  A module is imported, which runs it, only for ``module:graph``.

    Raises:
        typer.BadParameter: there is no such file, and *name* reads as nothing else.
        Exception: the file is no graph, or what importing the module raises.
    """
    if name == STDIN:
        return read_def(_from_stdin())
    if not os.path.exists(name) and _IN_MODULE.fullmatch(name):
        return _from_module(name)
    if not os.path.exists(name):
        raise typer.BadParameter(f"there is no file {name!r}; name one, or MODULE:GRAPH, or - for standard input")
    return read_def(ax.load_graph_def(Path(name)))


def import_modules(names: Iterable[str]) -> None:
    """Import modules, of the current folder too, for the ops that they define."""
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    for name in names:
        importlib.import_module(name)


def read_def(graph_def: GraphDef) -> InspectedGraph:
    """*graph_def*, imported if it can be.  Nothing of it runs, so any op may be in it."""
    functions = _functions(graph_def.library.function if graph_def.library else ())
    graph = ax.Graph()
    try:
        with graph:
            ax.import_graph_def(graph_def, name="", allowed_ops={node.op for node in graph_def.node})
    except OpError as error:
        unknown = _unknown_ops(graph_def, {each.name for each in functions})
        return InspectedGraph(
            nodes_of_def(graph_def),
            functions,
            graph_def=graph_def,
            unknown_ops=unknown,
            error=None if unknown else error,
        )
    return InspectedGraph(nodes_of_graph(graph), functions, graph, graph_def, without_kernel=_without_kernel(graph))


def _unknown_ops(graph_def: GraphDef, functions: set[str]) -> Sequence[str]:
    registry = _op_registry.registry
    return sorted({node.op for node in graph_def.node if node.op not in registry and node.op not in functions})


def _without_kernel(graph: ax.Graph) -> Sequence[str]:
    """The ops of *graph* and its functions that cannot run; what calls functions is written out before it would."""
    functions = graph.functions
    ops = {node.op for node in graph.operations}
    ops.update(node.op for function in functions.values() for node in function.node_def)
    return sorted(op for op in ops if op not in functions and _missing_kernels.has_no_kernel(op))


def _functions(functions: Iterable[FunctionDef]) -> list[FunctionSummary]:
    return [FunctionSummary(each.signature.name, len(each.node_def)) for each in functions]


def _from_module(name: str) -> InspectedGraph:
    module_name, _, attributes = name.partition(":")
    import_modules([module_name])
    found = sys.modules[module_name]
    for attribute in attributes.split("."):
        found = getattr(found, attribute)
    if isinstance(found, ax.GraphDef):
        return read_def(found)
    if not isinstance(found, ax.Graph):
        raise InvalidArgumentError(
            f"{name} is of type {type(found).__name__}, not a Graph or GraphDef", hint="name what holds the graph"
        )
    return InspectedGraph(nodes_of_graph(found), _functions(found.functions.values()), found)


def _from_stdin() -> GraphDef:
    """The GraphDef on standard input, whose format its first bytes tell."""
    data = sys.stdin.buffer.read()
    if not data:
        raise DataLossError("standard input is empty; expected a GraphDef")
    is_text = not any(byte < 32 and byte not in b"\t\n\r" for byte in data[:1000])
    chosen = "pb" if not is_text else "json" if data.lstrip()[:1] == b"{" else "pbtxt"
    graph_def: GraphDef = _tf_graph_def.parse_graph_def(data, chosen, source="standard input")
    return graph_def
