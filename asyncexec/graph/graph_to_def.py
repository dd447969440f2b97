"""Nodes -> GraphDef."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from asyncexec.framework.attr_value import encode_attr_value
from asyncexec.framework.errors import OpError
from asyncexec.framework.graph_def import AttrValue, FunctionDef, FunctionDefLibrary, GraphDef, NodeDef, VersionDef
from asyncexec.framework.limiter import Limiter
from asyncexec.graph.node import Node, NodeProperties, Tensor

# What TensorFlow 2.21 writes; graphs made here use nothing that is younger.
CURRENT_VERSIONS: Final = VersionDef.model_construct(producer=2407, min_consumer=12)


def graph_to_def(
    nodes: Iterable[Node], functions: Iterable[FunctionDef] = (), versions: VersionDef = CURRENT_VERSIONS
) -> GraphDef:
    """A GraphDef of *nodes*, in the order given, with *functions* as its library."""
    to_def = NodeEncoder().node_def
    return GraphDef.model_construct(
        node=tuple(map(to_def, nodes)),
        library=FunctionDefLibrary.model_construct(function=tuple(functions)),
        versions=versions,
    )


def node_to_def(node: Node) -> NodeDef:
    """The NodeDef of one node."""
    return NodeEncoder().node_def(node)


class NodeEncoder:
    """Makes the NodeDefs of many nodes; those that share their properties share the attrs of their NodeDefs."""

    def __init__(self) -> None:
        self._attrs: dict[NodeProperties, Mapping[str, AttrValue]] = {}

    def node_def(self, node: Node, inputs: Iterable[str] | None = None, device: str | None = None) -> NodeDef:
        """The NodeDef of *node*, with other *inputs* or another *device* where they are given."""
        properties = node.properties
        attrs = self._attrs.get(properties)
        if attrs is None:
            attrs = self._attrs[properties] = _encoded_attrs(node)
        if inputs is None:
            inputs = (*map(input_name, node.inputs), *(f"^{control.name}" for control in node.control_inputs))
        fields = NodeDef.field_defaults()
        fields["name"], fields["op"], fields["attr"] = node.name, node.op, attrs
        fields["input"], fields["device"] = tuple(inputs), node.device if device is None else device
        return NodeDef.from_fields(fields)


def _encoded_attrs(node: Node) -> Mapping[str, AttrValue]:
    kinds = node.op_def.attrs
    try:
        return {
            name: encode_attr_value(value, kinds[name].kind if name in kinds else "")
            for name, value in node.attrs.items()
            if not isinstance(value, Limiter)  # it is of this process, and has no wire form
        }
    except OpError as error:
        raise error.locate(node) from None


def input_name(tensor: Tensor) -> str:
    """A tensor as NodeDef.input spells it: slot 0 goes without saying."""
    return tensor.op.name if tensor.index == 0 else f"{tensor.op.name}:{tensor.index}"
