"""What a loop would compute anew in each iteration, from what does not change in it, is computed before the loop.

Such a node takes loop constants alone (``Enter`` with ``is_constant``) and waits for nothing inside of the loop.  So it
runs whenever iteration 0 takes place, which it does whenever the loop is entered, even one that goes round no times: to
compute it before costs nothing that was not paid, and fails only where the loop would have failed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from asyncexec.framework.cooperative import STRIDE, Stage
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.graph.control_flow_info import ENTERS
from asyncexec.graph.graph import properties_of
from asyncexec.graph.node import Node
from asyncexec.passes.pass_graph import PassGraph

_MOST_ROUNDS: Final = 8  # one for each loop around a node


def move_loop_invariants(graph: PassGraph) -> Stage[None]:
    """The pass."""
    for _ in range(_MOST_ROUNDS):
        moved = yield from _Motion(graph).run()
        if not moved:
            return
        yield from graph.tidy()


@dataclass(slots=True)
class _Motion:
    """Moves what can be moved out of the innermost loop that it is in."""

    graph: PassGraph

    def run(self) -> Stage[int]:
        """How many nodes were moved."""
        graph, moved = self.graph, 0
        constants: set[Node] = set()
        for count, node in enumerate(graph):
            if node.properties.op in ENTERS:
                if node.attrs.get("is_constant") and not graph.is_fed(node.outputs[0]):
                    constants.add(node)
            elif constants and node.inputs:
                for tensor in node.inputs:
                    if tensor.op not in constants:
                        break
                else:
                    if self._can_move(node):
                        self._move(node)
                        constants.add(node)
                        moved += 1
            if not count % STRIDE:
                yield
        return moved

    def _can_move(self, node: Node) -> bool:
        graph = self.graph
        return (
            not node.control_inputs
            and len(node.properties.output_dtypes) == 1
            and graph.facts.of(node).is_pure
            and not graph.is_kept(node)
        )

    def _move(self, node: Node) -> None:
        """Let a node of that name stand before the loop, and *node* be the Enter of what it gives."""
        graph = self.graph
        properties, shapes, inputs = node.properties, node.output_shapes, node.inputs
        enters = [tensor.op for tensor in inputs]
        controls = dict.fromkeys(control for enter in enters for control in enter.control_inputs)
        outside = [enter.inputs[0] for enter in enters]
        moved = graph.make(properties, f"{node.name}/enter", outside, controls, like=node, shapes=shapes)
        moved.name, node.name = node.name, moved.name  # errors name the one that computes
        attrs = {
            "T": properties.output_dtypes[0],
            "frame_name": enters[0].attrs["frame_name"],
            "is_constant": True,
            "parallel_iterations": enters[0].attrs["parallel_iterations"],
        }
        graph.convert(node, properties_of(op_registry.lookup("Enter"), attrs), moved.outputs, (), shapes)
