"""Graphs as text, before and after a pass."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import Any

import asyncexec as ax
from asyncexec.framework.cooperative import run_at_once
from asyncexec.framework.graph_def import GraphDef
from asyncexec.graph.graph_text import graph_text, parse_graph_text
from asyncexec.graph.graph_to_def import NodeEncoder
from asyncexec.passes.pass_graph import PassGraph
from asyncexec.passes.verify import verify
from asyncexec.pruning.prune import ClientGraph, prune


def graph_of(text: str) -> ax.Graph:
    """The graph that *text* spells."""
    with ax.Graph() as graph:
        ax.import_graph_def(parse_graph_text(textwrap.dedent(text)))
    return graph


def opened(
    text: str, fetches: Sequence[str] = (), feeds: Sequence[str] = (), targets: Sequence[str] = ()
) -> tuple[PassGraph, ClientGraph]:
    """What a signature needs of a graph, as passes see it; and as it is."""
    graph = graph_of(text)
    needed = prune(
        [graph.tensor(name) for name in feeds],
        [graph.tensor(name if ":" in name else f"{name}:0") for name in fetches],
        [graph.operation(name) for name in targets],
    )
    client_graph = run_at_once(needed)
    return run_at_once(PassGraph.open(client_graph, graph)), client_graph


def rewritten(
    steps: Callable[..., Any] | Sequence[Callable[..., Any]],
    text: str,
    fetches: Sequence[str] = (),
    *,
    feeds: Sequence[str] = (),
    targets: Sequence[str] = (),
) -> str:
    """The text of what is left of a graph after *steps*; it has been verified."""
    editable, before = opened(text, fetches, feeds, targets)
    for step in [steps] if callable(steps) else steps:
        run_at_once(editable.apply(step))
    after = editable.client_graph()
    run_at_once(verify(after, before))
    return as_text(after)


def as_text(graph: ClientGraph) -> str:
    """The nodes of *graph*, in their order."""
    encoder = NodeEncoder()
    return graph_text(GraphDef(node=tuple(encoder.node_def(node) for node in graph.nodes)))


def lines(text: str) -> str:
    """*text* as ``rewritten`` gives it."""
    return "\n".join(line.strip() for line in text.strip().splitlines())
