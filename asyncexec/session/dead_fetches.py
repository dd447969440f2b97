"""Why a fetch has no value: the loop that it is inside of, or the branch that was not taken."""

from __future__ import annotations

from collections import deque

from asyncexec.graph.control_flow_info import SWITCHES, ControlFlowInfo
from asyncexec.graph.node import Node, Tensor
from asyncexec.pruning.prune import ClientGraph


def why_dead(tensor: Tensor, graph: ClientGraph) -> str:
    """The reason, as the rest of a sentence."""
    fed = frozenset((feed.op, feed.index) for feed in graph.feeds)
    frame = ControlFlowInfo(graph.nodes, fed).output_frame(tensor.op)
    if frame.name:
        return f"it is inside loop {frame.name!r}"
    switch = _nearest_switch(tensor, graph, fed)
    if switch is None:
        return "it was not computed"
    return (
        f"it is dead, for it is in a branch that was not taken: Switch {switch.name!r} decides by "
        f"{switch.inputs[1].name!r}"
    )


def _nearest_switch(tensor: Tensor, graph: ClientGraph, fed: frozenset[tuple[Node, int]]) -> Node | None:
    nodes = set(graph.nodes)
    seen = {tensor.op}
    queue = deque([tensor.op])
    while queue:
        node = queue.popleft()
        if node.op in SWITCHES:
            return node
        live = [source.op for source in node.inputs if (source.op, source.index) not in fed]
        for source in (*live, *node.control_inputs):
            if source in nodes and source not in seen:
                seen.add(source)
                queue.append(source)
    return None
