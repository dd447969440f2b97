"""ModelData: what a file of a model says, whatever its format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from asyncexec.framework.graph_def import GraphDef, NodeDef
from asyncexec.importers.saved_model import SignatureDef


@dataclass(frozen=True, slots=True)
class InitStep:
    """A run that makes a model ready.

    Attributes:
        op: the operation to run.
        feeds: strings to feed, by tensor name.
        checkpoint: from where variables are restored by name that have no value after the run.
    """

    op: str
    feeds: Mapping[str, bytes] = field(default_factory=dict)
    checkpoint: Path | None = None


@dataclass(frozen=True, slots=True)
class ModelData:
    """A graph, and how it is used.

    Attributes:
        graph_def: the graph.
        signatures: the ways to call it by name; without any, its placeholders and what nothing consumes are one.
        init_steps: the runs that make it ready, in this order.
        folder: the only folder in which its ops may read files; None where it needs none.
    """

    graph_def: GraphDef
    signatures: Mapping[str, SignatureDef] = field(default_factory=dict)
    init_steps: Sequence[InitStep] = ()
    folder: Path | None = None


def all_nodes(graph_def: GraphDef) -> Iterator[NodeDef]:
    """The nodes of a graph and of all its functions."""
    yield from graph_def.node
    for function in graph_def.library.function if graph_def.library else ():
        yield from function.node_def
