"""Control edges that say nothing new go, and NoOps that only pass one on.

A control edge says nothing new when the node takes something from its source anyway, or from a node that comes after it
by way of nodes that are dead wherever the source is; or when the source is there from the start: a constant, or a NoOp.
"""

from __future__ import annotations

from typing import Final

from asyncexec.framework.cooperative import STRIDE, Stage
from asyncexec.graph.control_flow_info import MERGES
from asyncexec.graph.node import Node
from asyncexec.passes.pass_graph import PassGraph

_MOST_STEPS: Final = 24  # of a search for a way from one node to another, at one node
_MOST_CONTROLS: Final = 64
_MOST_IN_PLACE_OF_ONE: Final = 2
_NEED_NOTHING: Final = frozenset({"Const", "NoOp"})


def reduce_dependencies(graph: PassGraph) -> Stage[None]:
    """The pass."""
    return _Reduction(graph).run()


class _Reduction:
    """Reduces the control edges of one graph."""

    def __init__(self, graph: PassGraph) -> None:
        self._graph = graph

    def run(self) -> Stage[None]:
        for count, node in enumerate(self._graph):
            if node.control_inputs:
                op = node.properties.op
                if op not in MERGES and op != "ControlTrigger" and len(node.control_inputs) <= _MOST_CONTROLS:
                    self._reduce(node)
                if op == "NoOp":
                    self._pass_by(node)
            if not count % STRIDE:
                yield

    def _reduce(self, node: Node) -> None:
        needed = [control for control in node.control_inputs if not self._is_free(control)]
        if len(needed) + len(node.inputs) > 1:
            implied = self._implied(node, needed)
            needed = [control for control in needed if control not in implied]
        if len(needed) < len(node.control_inputs):
            self._graph.set_inputs(node, controls=needed)

    def _is_free(self, control: Node) -> bool:
        """Whether *control* is there from the start: a constant, or a NoOp."""
        return control.properties.op in _NEED_NOTHING and not control.control_inputs and control in self._graph

    def _implied(self, node: Node, controls: list[Node]) -> set[Node]:
        """Those of *controls* that something else which *node* needs comes after, found within a few steps."""
        graph, wanted = self._graph, set(controls)
        found: set[Node] = set()
        pending: list[Node] = []
        for tensor in node.inputs[:_MOST_STEPS]:
            if not graph.is_fed(tensor):
                if tensor.op in wanted:
                    found.add(tensor.op)
                pending.append(tensor.op)
        pending += controls
        seen = set(pending)
        for _ in range(_MOST_STEPS):
            if not pending:
                break
            source = pending.pop(0)
            if graph.facts.of(source).is_flow:
                continue  # may run where what it takes is dead
            sources = [tensor.op for tensor in source.inputs[:_MOST_STEPS] if not graph.is_fed(tensor)]
            for before in (*sources, *source.control_inputs[:_MOST_STEPS]):
                if before in wanted:
                    found.add(before)
                if before not in seen:
                    seen.add(before)
                    pending.append(before)
        return found

    def _pass_by(self, node: Node) -> None:
        """Let what waits for *node*, a NoOp, wait for what that waits for, where that is no more edges."""
        controls = node.control_inputs
        if 0 < len(controls) < _MOST_IN_PLACE_OF_ONE and not self._graph.is_kept(node):
            self._graph.replace_control(node, *controls)
