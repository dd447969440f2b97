"""What passes make of a graph that is run from all of its inputs to all of its outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import asyncexec as ax
from asyncexec.cli.graph_summary import PassSummary
from asyncexec.framework.cooperative import run_at_once
from asyncexec.framework.op_registry import registry
from asyncexec.framework.resource_mgr import ResourceMgr
from asyncexec.graph.graph_ends import PLACEHOLDERS, output_nodes
from asyncexec.passes.registry import Level
from asyncexec.session.graph_execution_state import GraphExecutionState

if TYPE_CHECKING:
    from asyncexec.framework.graph_def import GraphDef
    from asyncexec.framework.step_stats import PassStats
    from asyncexec.graph.graph import Graph

MOST_EXAMPLES: Final = 3


def graph_to_optimize(graph_def: GraphDef) -> Graph:
    """The graph of a file, whose ops passes may run to fold constants.

    What reaches outside of the graph is refused, but for ops of modules that the caller has imported.
    """
    graph = ax.Graph()
    ops = {node.op for node in graph_def.node}
    with graph:
        allowed = {op for op in ops if op in registry and registry.lookup(op).kernel is not None}
        ax.import_graph_def(graph_def, name="", allowed_ops=allowed)
    return graph


def pass_summaries(graph: Graph) -> list[PassSummary]:
    """What each pass changes when *graph* is optimized; errors as of a session."""
    config = ax.SessionConfig(allow_soft_placement=True, place_pruned_graph=True)
    state = GraphExecutionState(graph, config, ResourceMgr())
    feeds = [tensor for node in graph.operations if node.op in PLACEHOLDERS for tensor in node.outputs]
    ends = output_nodes(graph.operations)
    fetches = [tensor for node in ends for tensor in node.outputs]
    targets = [node for node in ends if not node.outputs]
    passes: Sequence[PassStats] = run_at_once(state.pipeline.run(feeds, fetches, targets, Level.WHOLE)).passes
    return [
        PassSummary(
            each.name,
            each.device,
            each.num_nodes_before,
            each.num_nodes_after,
            each.num_added,
            each.num_removed,
            each.num_changed,
            each.examples[:MOST_EXAMPLES],
        )
        for each in passes
    ]
