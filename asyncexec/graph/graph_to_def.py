"""Nodes -> GraphDef."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from asyncexec.framework.attr_value import encode_attr_value
from asyncexec.framework.errors import OpError
from asyncexec.framework.graph_def import FunctionDef, FunctionDefLibrary, GraphDef, NodeDef, VersionDef
from asyncexec.framework.limiter import Limiter
from asyncexec.graph.node import Node, Tensor

# What TensorFlow 2.21 writes; graphs made here use nothing that is younger.
CURRENT_VERSIONS: Final = VersionDef.model_construct(producer=2407, min_consumer=12)


def graph_to_def(
    nodes: Iterable[Node], functions: Iterable[FunctionDef] = (), versions: VersionDef = CURRENT_VERSIONS
) -> GraphDef:
    """A GraphDef of *nodes*, in the order given, with *functions* as its library."""
    return GraphDef.model_construct(
        node=tuple(node_to_def(node) for node in nodes),
        library=FunctionDefLibrary.model_construct(function=tuple(functions)),
        versions=versions,
    )


def node_to_def(node: Node) -> NodeDef:
    """The NodeDef of one node."""
    kinds = node.op_def.attrs
    try:
        attrs = {
            name: encode_attr_value(value, kinds[name].kind if name in kinds else "")
            for name, value in node.attrs.items()
            if not isinstance(value, Limiter)  # it is of this process, and has no wire form
        }
    except OpError as error:
        raise error.locate(node) from None
    return NodeDef.model_construct(
        name=node.name,
        op=node.op,
        input=(*map(input_name, node.inputs), *(f"^{control.name}" for control in node.control_inputs)),
        device=node.device,
        attr=attrs,
    )


def input_name(tensor: Tensor) -> str:
    """A tensor as NodeDef.input spells it: slot 0 goes without saying."""
    return tensor.op.name if tensor.index == 0 else f"{tensor.op.name}:{tensor.index}"
