"""Branches that are never taken, for their predicate is known, go.

What a Switch with a constant predicate gives on the other side is always dead, and so is all that takes something from
it, up to the Merge, which is then whatever comes from the side that is left.  Loops are left alone: nothing is known of
what comes through an Enter or a NextIteration.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from asyncexec.framework.cooperative import STRIDE, Stage
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.framework.tensor_shape import SCALAR
from asyncexec.framework.types import as_dtype
from asyncexec.graph.control_flow_info import ENTERS, MERGES, NEXT_ITERATIONS
from asyncexec.graph.graph import properties_of
from asyncexec.graph.node import Node, Tensor
from asyncexec.passes.node_facts import is_constant
from asyncexec.passes.pass_graph import PassGraph

_DECIDED: Final = frozenset({"Switch", "_SwitchN"})
_LOOPS: Final = ENTERS | NEXT_ITERATIONS


def remove_dead_branches(graph: PassGraph) -> Stage[None]:
    """The pass."""
    return _DeadBranches(graph).run()


class _DeadBranches:
    """Removes the dead branches of one graph.

    Attributes that grow on the way: the tensors, and the nodes, that are always dead.
    """

    def __init__(self, graph: PassGraph) -> None:
        self._graph = graph
        self._tensors: set[tuple[Node, int]] = set()
        self._nodes: set[Node] = set()

    def run(self) -> Stage[None]:
        graph, tensors = self._graph, self._tensors
        for count, node in enumerate(graph):
            op = node.properties.op
            if op in _DECIDED:
                self._decide(node)
            if tensors:
                self._spread(node)
            if not count % STRIDE:
                yield
        for node in self._nodes:
            graph.release(node)

    def _decide(self, switch: Node) -> None:
        """Note which outputs of *switch* are dead, and let the other be what it takes, if its predicate is known."""
        graph = self._graph
        data, predicate = switch.inputs
        if not is_constant(predicate) or graph.is_fed(predicate) or np.ndim(predicate.op.attrs["value"]):
            return
        live = _live_output(switch, predicate.op.attrs["value"])
        for index in range(len(switch.outputs)):
            if index != live:
                self._mark(switch, index)
        if graph.is_kept(switch):
            return
        controls = (*switch.control_inputs, *predicate.op.control_inputs)
        if controls:
            data = self._identity(data, f"{switch.name}/taken", controls, switch)
        graph.replace_tensors(switch, {live: data})

    def _mark(self, node: Node, index: int) -> None:
        if not self._graph.is_fed(node.outputs[index]):
            self._tensors.add((node, index))

    def _spread(self, node: Node) -> None:
        """Note what is dead because something that *node* takes is."""
        op, tensors = node.properties.op, self._tensors
        if op in MERGES:
            if any((tensor.op, tensor.index) in tensors for tensor in node.inputs):
                self._merge(node)
        elif op not in _LOOPS and op != "ControlTrigger" and op not in ("Exit", "RefExit"):
            is_dead = any((tensor.op, tensor.index) in tensors for tensor in node.inputs)
            if is_dead or any(control in self._nodes for control in node.control_inputs):
                self._bury(node)

    def _bury(self, node: Node) -> None:
        self._nodes.add(node)
        for index in range(len(node.properties.output_dtypes)):
            self._mark(node, index)

    def _merge(self, merge: Node) -> None:
        graph = self._graph
        live = [slot for slot, tensor in enumerate(merge.inputs) if (tensor.op, tensor.index) not in self._tensors]
        if any(tensor.op.op in _LOOPS for tensor in merge.inputs):
            return
        if not live:
            self._bury(merge)
        elif len(live) == 1 and not (merge.control_inputs or merge.op != "Merge" or graph.is_kept(merge)):
            self._pass_by(merge, live[0])

    def _pass_by(self, merge: Node, slot: int) -> None:
        """Let what takes something from *merge* take it from its input *slot*."""
        graph, tensor = self._graph, merge.inputs[slot]
        if tensor.dtype.is_ref:
            return
        guard = graph.guard(tensor)
        index = {"value": np.int32(slot), "dtype": as_dtype("int32")}
        properties = properties_of(op_registry.lookup("Const"), index)
        position = graph.make(properties, f"{merge.name}/index", (), [guard], like=merge, shapes=[SCALAR])
        graph.replace_tensors(merge, {0: tensor, 1: position.outputs[0]})
        graph.replace_control(merge, guard)

    def _identity(self, tensor: Tensor, name: str, controls: Sequence[Node], like: Node) -> Tensor:
        properties = properties_of(op_registry.lookup("Identity"), {"T": tensor.dtype.base_dtype})
        return self._graph.make(properties, name, [tensor], controls, like=like, shapes=[tensor.shape]).outputs[0]


def _live_output(switch: Node, value: object) -> int:
    """Which output of *switch* is live when *value* decides."""
    if switch.op == "Switch":
        return int(bool(value))
    index, count = int(np.asarray(value)), len(switch.outputs)
    return index if 0 <= index < count else count - 1
