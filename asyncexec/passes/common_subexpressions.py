"""Nodes that give the same for the same reason become one: same op, attrs, inputs, control inputs and device.

After ``tensorflow/core/graph/optimizer_cse.cc``.  Which of two values an op with swapped inputs gives first may show in
the bits of a NaN, so inputs are taken in any order for commutative ops on integers and booleans only.
"""

from __future__ import annotations

from typing import Any, Final

from asyncexec.framework.cooperative import STRIDE, Stage
from asyncexec.graph.node import Node, NodeProperties
from asyncexec.passes.node_facts import attrs_key, nbytes, value_key
from asyncexec.passes.pass_graph import PassGraph

_LARGEST_CONSTANT: Final = 4096  # bytes that are compared


def merge_common_subexpressions(graph: PassGraph) -> Stage[None]:
    """The pass."""
    return _Merging(graph).run()


class _Merging:
    """Merges the equal nodes of one graph."""

    def __init__(self, graph: PassGraph) -> None:
        self._graph = graph
        self._known: dict[object, Node] = {}
        self._kinds: dict[NodeProperties, int | None] = {}  # of properties that are equal, one number
        self._numbers: dict[object, int] = {}
        self._commutes: set[int] = set()  # kinds whose inputs may be swapped

    def run(self) -> Stage[None]:
        graph, known, kinds, commutes = self._graph, self._known, self._kinds, self._commutes
        placement = graph.placement
        is_in_one_place = placement is not None and not placement.elsewhere
        for count, node in enumerate(graph):
            if not count % STRIDE:
                yield
            properties = node.properties
            try:
                kind = kinds[properties]
            except KeyError:
                kind = kinds[properties] = self._kind(node)
            if kind is None:
                continue
            # A tensor is one object, so its id stands for it; == of tensors is not for us.
            inputs: Any = tuple([id(tensor) for tensor in node.inputs])
            if len(inputs) == 2 and kind in commutes:
                inputs = frozenset(inputs)
            key = kind, inputs, node.control_inputs, "" if is_in_one_place else graph.device_of(node)
            first = known.setdefault(key, node)
            if first is not node:
                self._merge(node, first)

    def _merge(self, node: Node, first: Node) -> None:
        """Let what takes something from *node* take it from *first*."""
        graph = self._graph
        if graph.is_kept(node) or any(graph.is_fed(tensor) for tensor in first.outputs):
            return
        graph.replace_tensors(node, dict(enumerate(first.outputs)))
        if graph.is_waited_for(node):
            graph.replace_control(node, first)

    def _kind(self, node: Node) -> int | None:
        """A number that nodes of the same op with the same attrs have."""
        properties = node.properties
        if not self._graph.facts.of(node).is_pure:
            return None
        key: object
        if node.op == "Const":
            value = node.attrs["value"]
            if nbytes(value) > _LARGEST_CONSTANT:
                return None
            key = properties.registration, properties.output_dtypes, value_key(value)
        else:
            key = attrs_key(properties)
        try:
            kind = self._numbers.setdefault(key, len(self._numbers))
        except TypeError:  # an attr that cannot be hashed
            return None
        if properties.op_def.is_commutative and not any(
            dtype.is_floating or dtype.is_complex for dtype in properties.input_dtypes
        ):
            self._commutes.add(kind)
        return kind
