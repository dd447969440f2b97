"""What passes make of a graph that is run from all of its inputs to all of its outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import asyncexec as ax
from asyncexec.cli.graph_summary import PLACEHOLDERS, output_nodes
from asyncexec.framework.cooperative import run_at_once
from asyncexec.framework.resource_mgr import ResourceMgr
from asyncexec.passes.registry import Level
from asyncexec.session.graph_execution_state import GraphExecutionState

if TYPE_CHECKING:
    from asyncexec.framework.graph_def import GraphDef
    from asyncexec.framework.step_stats import PassStats


def pass_stats(graph_def: GraphDef) -> Sequence[PassStats]:
    """What each pass changes when *graph_def* is optimized; errors as of a session."""
    graph = ax.Graph()
    with graph:
        ax.import_graph_def(graph_def, name="")
    config = ax.SessionConfig(allow_soft_placement=True, place_pruned_graph=True)
    state = GraphExecutionState(graph, config, ResourceMgr())
    feeds = [tensor for node in graph.operations if node.op in PLACEHOLDERS for tensor in node.outputs]
    ends = output_nodes(graph.operations)
    fetches = [tensor for node in ends for tensor in node.outputs]
    targets = [node for node in ends if not node.outputs]
    passes: Sequence[PassStats] = run_at_once(state.pipeline.run(feeds, fetches, targets, Level.WHOLE)).passes
    return passes
