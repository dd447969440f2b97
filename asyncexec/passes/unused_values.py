"""Nodes whose values nobody takes go, though others wait for them: those wait for what the nodes take.

A gradient graph has such nodes.  What updates a variable waits for the gradients of both operands of a product, and
the one for what is fed to the model is not used.  Only what cannot fail goes: an error is the same as without the pass.
"""

from __future__ import annotations

from asyncexec.framework.cooperative import STRIDE, Stage
from asyncexec.graph.control_flow_info import ENTERS, NEXT_ITERATIONS
from asyncexec.graph.node import Node
from asyncexec.passes.node_facts import IDENTITIES, is_switch_like
from asyncexec.passes.pass_graph import PassGraph


def skip_unused_values(graph: PassGraph) -> Stage[None]:
    """The pass."""
    for count, node in enumerate(graph):
        if graph.is_waited_for(node) and not graph.is_taken(node) and _may_go(graph, node):
            sources = [tensor.op for tensor in node.inputs if not graph.is_fed(tensor)]
            graph.replace_control(node, *dict.fromkeys((*sources, *node.control_inputs)))
        if not count % STRIDE:
            yield


def _may_go(graph: PassGraph, node: Node) -> bool:
    if graph.is_kept(node) or not graph.facts.of(node).is_pure or not _cannot_fail(node):
        return False
    sources = [tensor.op for tensor in node.inputs if not graph.is_fed(tensor)]
    return bool(sources) and all(_is_known_to_run(graph, source, node) for source in sources)


def _is_known_to_run(graph: PassGraph, source: Node, node: Node) -> bool:
    """Whether to wait for *source* is to wait for what *node* takes of it, without another transfer."""
    is_of_loop = source.op in ENTERS or source.op in NEXT_ITERATIONS
    return not (is_of_loop or is_switch_like(source)) and graph.device_of(source) == graph.device_of(node)


def _cannot_fail(node: Node) -> bool:
    """Whether *node* gives a value whatever it takes, as far as shapes tell."""
    op_def = node.properties.registration.op_def
    if op_def.name in IDENTITIES:
        return True
    if op_def.name != "MatMul" or any(tensor.shape.rank != 2 for tensor in node.inputs):
        return False
    left, right = (list(tensor.shape) for tensor in node.inputs)
    inner = left[0 if node.attrs["transpose_a"] else 1], right[1 if node.attrs["transpose_b"] else 0]
    return inner[0] is not None and inner[0] == inner[1]
