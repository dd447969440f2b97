"""Identities that do nothing go: what takes something from one takes it from where that comes from."""

from __future__ import annotations

from asyncexec.framework.cooperative import STRIDE, Stage
from asyncexec.graph.control_flow_info import ENTERS, NEXT_ITERATIONS
from asyncexec.graph.node import Node
from asyncexec.passes.node_facts import IDENTITIES, is_switch_like
from asyncexec.passes.pass_graph import PassGraph


def remove_identities(graph: PassGraph) -> Stage[None]:
    """The pass."""
    for count, node in enumerate(graph):
        if node.properties.op in IDENTITIES and _is_idle(graph, node):
            source = node.inputs[0]
            graph.replace_tensors(node, {0: source})
            if graph.is_waited_for(node):
                graph.replace_control(node, source.op)
        if not count % STRIDE:
            yield


def _is_idle(graph: PassGraph, node: Node) -> bool:
    """Whether nobody can tell *node* from what it takes."""
    source = node.inputs[0]
    if node.control_inputs or graph.is_kept(node) or source.dtype.is_ref or node.outputs[0].dtype.is_ref:
        return False
    if graph.is_fed(source):
        return not graph.is_waited_for(node) and _is_on_one_device(graph, node, source.op)
    # A Merge looks at what comes from Enters and NextIterations with other eyes.
    if source.op.op in ENTERS or source.op.op in NEXT_ITERATIONS:
        return False
    if graph.is_waited_for(node) and is_switch_like(source.op):
        return False
    return _is_on_one_device(graph, node, source.op)


def _is_on_one_device(graph: PassGraph, node: Node, other: Node) -> bool:
    return graph.device_of(node) == graph.device_of(other)
