"""The nodes of a graph as ``asyncexec inspect`` shows them, whether or not the graph imports here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from asyncexec.framework.errors import OpError
from asyncexec.framework.lazy_module import LazyModule
from asyncexec.framework.tensor_id import CONTROL_SLOT

if TYPE_CHECKING:
    from asyncexec.framework.graph_def import AttrValue, GraphDef
    from asyncexec.graph.graph import Graph

_attr_value = LazyModule("asyncexec.framework.attr_value")
_MAX_SLOT_DIGITS: Final = 9


class Source(NamedTuple):
    """Where an input comes from: the position of a node, and the slot of its output, or CONTROL_SLOT."""

    node: int
    slot: int


class Output(NamedTuple):
    """What is known of an output before it runs."""

    dtype: str
    shape: str


@dataclass(frozen=True, slots=True)
class ShownNode:
    """A node; nodes that are alike share *attrs*.  Outputs are known of graphs that import."""

    name: str
    op: str
    device: str
    inputs: Sequence[Source]
    attrs: Mapping[str, Any]
    outputs: Sequence[Output] = ()


def nodes_of_graph(graph: Graph) -> list[ShownNode]:
    """The nodes of *graph*, with dtypes and shapes."""
    return [
        ShownNode(
            node.name,
            node.op,
            node.device,
            [
                *(Source(tensor.op.id, tensor.index) for tensor in node.inputs),
                *(Source(each.id, CONTROL_SLOT) for each in node.control_inputs),
            ],
            node.attrs,
            [Output(tensor.dtype.name, str(tensor.shape)) for tensor in node.outputs],
        )
        for node in graph.operations
    ]


def nodes_of_def(graph_def: GraphDef) -> list[ShownNode]:
    """The nodes of *graph_def*, which need not make sense: inputs that name no node are left out."""
    positions = {node.name: position for position, node in enumerate(graph_def.node)}
    decoded = _Decoder()
    return [
        ShownNode(node.name, node.op, node.device, list(_sources(node.input, positions)), decoded.attrs(node.attr))
        for node in graph_def.node
    ]


def _sources(inputs: Iterable[str], positions: Mapping[str, int]) -> Iterable[Source]:
    for text in inputs:
        name, _, slot = text.removeprefix("^").partition(":")
        if name in positions:
            is_slot = slot.isdecimal() and len(slot) <= _MAX_SLOT_DIGITS
            yield Source(positions[name], CONTROL_SLOT if text.startswith("^") else int(slot) if is_slot else 0)


class _Decoder:
    """Decodes attrs; those that nodes share once."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[Mapping[str, AttrValue], Mapping[str, Any]]] = {}  # both, lest ids come again

    def attrs(self, attrs: Mapping[str, AttrValue]) -> Mapping[str, Any]:
        found = self._seen.get(id(attrs))
        if found is None:
            found = self._seen[id(attrs)] = attrs, {name: _decoded(value) for name, value in attrs.items()}
        return found[1]


def _decoded(value: AttrValue) -> object:
    try:
        return _attr_value.decode_attr_value(value)
    except OpError as error:
        return f"({error.message})"
