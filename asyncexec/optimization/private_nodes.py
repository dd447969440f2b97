"""PrivateNodes: the nodes that a pass makes for one client graph; the session's graph does not get them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from asyncexec.framework.errors import ResourceExhaustedError
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, TensorShape
from asyncexec.graph.control_flow_info import ENTERS, SWITCHES
from asyncexec.graph.graph import Graph, properties_of
from asyncexec.graph.node import Node, NodeProperties, SourceLine, Tensor

MAX_NODES: Final = 2**20  # functions that call functions twice double with every level
_WIDTH: Final = 8  # inputs and outputs that a node may have before it counts as more than one


def too_many_nodes() -> ResourceExhaustedError:
    """What is raised where functions would be more nodes than there may be."""
    return ResourceExhaustedError(f"the functions of the graph, written out, are more than {MAX_NODES} nodes")


class PropertiesCache:
    """NodeProperties by op and attrs: nodes that share them share kernels too."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], NodeProperties] = {}

    def get(self, op: str, attrs: Mapping[str, object]) -> NodeProperties:
        """The properties of a node of *op* with *attrs*, which are hashable."""
        key = (op, *attrs.items())
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = properties_of(op_registry.lookup(op), attrs)
        return known


class PrivateNodes:
    """The nodes of a client graph, in order, as a pass adds them.

    Attributes:
        nodes: each after its inputs, but for the back edges of loops.
        fed: the tensors that the caller gives, as (node, slot).
        wanted: those that have to run even if nothing takes what they give.
        num_stateful: how many of those that were made here are stateful.
    """

    def __init__(self, graph: Graph, cache: PropertiesCache, fed: set[tuple[Node, int]]) -> None:
        self.nodes: list[Node] = []
        self.wanted: list[Node] = []
        self.num_stateful: int = 0
        self._graph = graph
        self._cache = cache
        self.fed = fed
        self._names: set[str] = set()
        self._frames: set[str] = set()
        self._num_made = 0

    def keep(self, node: Node) -> None:
        """Let *node*, of the session's graph, be part of the client graph as it is."""
        self.nodes.append(node)
        self.wanted.append(node)
        self._note_frame(node)

    def add(
        self,
        op: str,
        name: str,
        inputs: Sequence[Tensor] = (),
        controls: Iterable[Node | None] = (),
        *,
        attrs: Mapping[str, object] | None = None,
        shapes: Sequence[TensorShape] | None = None,
    ) -> Node:
        """Make a node of *op* where its first input is asked to be.

        None among *controls* counts for nothing, unknown *shapes* need not be told.
        """
        device = inputs[0].op.device if inputs else ""
        return self.make(self._cache.get(op, attrs or {}), name, inputs, controls, device=device, shapes=shapes)

    def make(
        self,
        properties: NodeProperties,
        name: str,
        inputs: Sequence[Tensor] = (),
        controls: Iterable[Node | None] = (),
        *,
        device: str = "",
        source_line: SourceLine | None = None,
        shapes: Sequence[TensorShape] | None = None,
    ) -> Node:
        """Make a node of these *properties*; ResourceExhaustedError when there are too many."""
        self.charge(len(inputs) + len(properties.output_dtypes) + len(name) // 32)
        waits_for = tuple(dict.fromkeys(node for node in controls if node is not None))
        node = Node(
            self._graph, self._unused(name, self._names), properties, tuple(inputs), waits_for, device, source_line
        )
        node.output_shapes = tuple(shapes) if shapes is not None else (UNKNOWN_SHAPE,) * len(properties.output_dtypes)
        self.nodes.append(node)
        self.num_stateful += properties.op_def.is_stateful
        return node

    def charge(self, width: int = 0) -> None:
        """Count a node, or a call; ResourceExhaustedError when there are too many.  A wide one counts as several."""
        self._num_made += 1 + width // _WIDTH
        if self._num_made > MAX_NODES:
            raise too_many_nodes()

    def copy(self, node: Node, inputs: Sequence[Tensor], controls: Iterable[Node]) -> Node:
        """Make a copy of *node*, of the session's graph, with other inputs; the name stays."""
        made = self.make(node.properties, "", inputs, controls, device=node.device, source_line=node.source_line)
        made.name, made.id, made.output_shapes = node.name, node.id, node.output_shapes
        self.wanted.append(made)
        self._note_frame(node)
        for output in made.outputs if self.fed else ():
            if (node, output.index) in self.fed:
                self.fed.add((made, output.index))
        return made

    def identity(self, tensor: Tensor, name: str, *controls: Node | None) -> Tensor:
        """*tensor*, once *controls* have run."""
        attrs = {"T": tensor.dtype.base_dtype}
        return self.add("Identity", name, [tensor], controls, attrs=attrs, shapes=[tensor.shape]).outputs[0]

    def join(self, name: str, nodes: Sequence[Node]) -> Node | None:
        """What waits for all of *nodes*: nothing, the only one of them, or a NoOp."""
        nodes = tuple(dict.fromkeys(nodes))
        if len(nodes) < 2:
            return nodes[0] if nodes else None
        return self.add("NoOp", name, controls=nodes)

    def guards(self, tensors: Iterable[Tensor], name: str) -> list[Node]:
        """Nodes that run when *tensors* are there, and are dead where one is."""
        found: dict[Node, None] = {}
        for tensor in tensors:
            if (tensor.op, tensor.index) in self.fed:
                continue
            is_side = tensor.op.op in SWITCHES  # which runs, whichever of its outputs is dead
            found[self.identity(tensor, name).op if is_side else tensor.op] = None
        return list(found)

    def frame_name(self, wanted: str) -> str:
        """*wanted*, or something like it that is the name of no other frame."""
        return self._unused(wanted, self._frames)

    def _note_frame(self, node: Node) -> None:
        if node.op in ENTERS:
            self._frames.add(node.get_attr("frame_name").decode("utf-8", "replace"))

    def _unused(self, wanted: str, used: set[str]) -> str:
        name, count = wanted, 0
        while name and (name in used or (used is self._names and self._graph.find_operation(name) is not None)):
            count += 1
            name = f"{wanted}_{count}"
        used.add(name)
        return name
