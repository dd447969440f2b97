"""Nodes whose values nobody takes go, though others wait for them: those wait for what the nodes take.

A gradient graph has such nodes.  What updates a variable waits for the gradients of both operands of a product, and
the one for what is fed to the model is not used.  TensorFlow's optimizer does so with all ops but a few.  Here it is
what gradients consist of: nobody waits for such a node to have its inputs checked.
"""

from __future__ import annotations

from typing import Final

from asyncexec.framework.cooperative import STRIDE, Stage
from asyncexec.graph.control_flow_info import ENTERS, NEXT_ITERATIONS
from asyncexec.graph.node import Node
from asyncexec.passes.node_facts import IDENTITIES, is_switch_like
from asyncexec.passes.pass_graph import PassGraph

_GRADIENTS: Final = IDENTITIES | {
    *("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"),
    *("Conv2DBackpropInput", "Conv3DBackpropInputV2", "DepthwiseConv2dNativeBackpropInput"),
}


def skip_unused_values(graph: PassGraph) -> Stage[None]:
    """The pass."""
    for count, node in enumerate(graph):
        if graph.is_waited_for(node) and not graph.is_taken(node) and _may_go(graph, node):
            sources = [tensor.op for tensor in node.inputs if not graph.is_fed(tensor)]
            graph.replace_control(node, *dict.fromkeys((*sources, *node.control_inputs)))
        if not count % STRIDE:
            yield


def _may_go(graph: PassGraph, node: Node) -> bool:
    facts = graph.facts.of(node)
    if graph.is_kept(node) or not facts.is_pure or facts.op not in _GRADIENTS:
        return False
    sources = [tensor.op for tensor in node.inputs if not graph.is_fed(tensor)]
    return bool(sources) and all(_is_known_to_run(graph, source, node) for source in sources)


def _is_known_to_run(graph: PassGraph, source: Node, node: Node) -> bool:
    """Whether to wait for *source* is to wait for what *node* takes of it, without another transfer."""
    is_of_loop = source.op in ENTERS or source.op in NEXT_ITERATIONS
    return not (is_of_loop or is_switch_like(source)) and graph.device_of(source) == graph.device_of(node)
