"""PartitionedGraph: what one device runs of a client graph; PartitionDraft: the same while it grows.

Feeds and fetches keep their places: a partition lists those that it takes part in, with their positions among those of
the whole graph.  Arguments and return values of a partition's GraphDef are numbered as
``UpdateArgAndRetvalMetadata`` in ``tensorflow/core/common_runtime/partitioning_utils.cc`` numbers them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from asyncexec.framework.attr_value import encode_attr_value
from asyncexec.framework.cooperative import STRIDE, Stage, run_at_once
from asyncexec.framework.graph_def import FunctionDef, FunctionDefLibrary, GraphDef, NodeDef
from asyncexec.framework.types import DType
from asyncexec.graph.graph_to_def import CURRENT_VERSIONS, NodeEncoder, input_name
from asyncexec.graph.node import Node, Tensor
from asyncexec.graph.recursion import functions_named_by
from asyncexec.pruning.prune import ClientGraph


@dataclass(frozen=True, slots=True, eq=False)
class PartitionedGraph:
    """The part of a client graph that one device runs.

    Attributes:
        graph: its nodes, and those of the feeds, fetches and targets that it has; a fed tensor may be of a node that is
            on another device.
        feed_indices: for each of its feeds, the position among the feeds of the whole graph.
        fetch_indices: the same of its fetches.
    """

    device: str
    graph: ClientGraph
    feed_indices: tuple[int, ...]
    fetch_indices: tuple[int, ...]

    def as_graph_def(self) -> GraphDef:
        """The partition as a GraphDef with the functions that it reaches.

        Feeds are _Arg nodes, but for those that nobody takes; fetches are _Retval nodes.
        """
        return run_at_once(self.graph_def_stage())

    def graph_def_stage(self) -> Stage[GraphDef]:
        """``as_graph_def`` as a stage."""
        graph = self.graph
        owner = graph.nodes[0].graph if graph.nodes else None
        body = yield from self._body()
        takers = (*body, *self._retvals())
        taken: set[str] = set()
        for start in range(0, len(takers), STRIDE):
            taken.update(text.removeprefix("^") for node in takers[start : start + STRIDE] for text in node.input)
            yield
        nodes = (*(arg for arg in self._args() if arg.name in taken), *takers)
        functions = reachable_functions(nodes, owner.functions if owner is not None else {})
        return GraphDef.model_construct(
            node=nodes,
            library=FunctionDefLibrary.model_construct(function=tuple(functions)),
            versions=owner.versions if owner is not None else CURRENT_VERSIONS,
        )

    def _args(self) -> Iterator[NodeDef]:
        for index, tensor in enumerate(self.graph.feeds):
            yield self._boundary_node("_Arg", _arg_name(tensor, index), tensor.dtype, index)

    def _body(self) -> Stage[list[NodeDef]]:
        fed = self._fed_names()
        here = set(self.graph.nodes)
        encoder = NodeEncoder()
        body: list[NodeDef] = []
        for count, node in enumerate(self.graph.nodes):
            data = (fed.get((tensor.op, tensor.index)) or input_name(tensor) for tensor in node.inputs)
            controls = (
                control.name if control in here else fed.get((control, 0), control.name)
                for control in node.control_inputs
            )
            body.append(encoder.node_def(node, (*data, *(f"^{name}" for name in controls)), self.device))
            if not count % STRIDE:
                yield
        return body

    def _retvals(self) -> Iterator[NodeDef]:
        fed = self._fed_names()
        for index, tensor in enumerate(self.graph.fetches):
            source = fed.get((tensor.op, tensor.index)) or input_name(tensor)
            name = f"_retval_{tensor.op.name}_{tensor.index}_{index}"
            yield self._boundary_node("_Retval", name, tensor.dtype, index, source)

    def _fed_names(self) -> dict[tuple[Node, int], str]:
        return {(tensor.op, tensor.index): _arg_name(tensor, i) for i, tensor in enumerate(self.graph.feeds)}

    def _boundary_node(self, op: str, name: str, dtype: DType, index: int, *inputs: str) -> NodeDef:
        attrs = {"T": encode_attr_value(dtype.base_dtype, "type"), "index": encode_attr_value(index, "int")}
        return NodeDef.model_construct(name=name, op=op, input=inputs, device=self.device, attr=attrs)


def _arg_name(tensor: Tensor, index: int) -> str:
    return f"_arg_{tensor.op.name}_{tensor.index}_{index}"


def reachable_functions(nodes: Iterable[NodeDef], library: Mapping[str, FunctionDef]) -> list[FunctionDef]:
    """The functions of *library* that *nodes* call or name, and those that these reach in turn."""
    found: dict[str, FunctionDef] = {}
    if not library:
        return []
    pending = list(nodes)
    while pending:
        for name in functions_named_by(pending.pop()):
            if name in library and name not in found:
                found[name] = library[name]
                pending += library[name].node_def
    return [function for name, function in library.items() if name in found]


@dataclass(slots=True, eq=False)
class PartitionDraft:
    """A partition while it grows.

    Attributes:
        nodes: each after its inputs, but for the back edges of loops.
        receives: whether it gets anything from another partition, or from its own device's other memory.
        feeds: positions of the feeds that its nodes take.
    """

    device: str
    nodes: list[Node] = field(default_factory=list)
    receives: bool = False
    feeds: set[int] = field(default_factory=set)

    def finish(
        self, feeds: Mapping[int, Tensor], fetches: Mapping[int, Tensor], targets: Sequence[Node]
    ) -> PartitionedGraph:
        """The partition, with what it has of feeds and fetches by their positions in the whole graph."""
        graph = ClientGraph(tuple(self.nodes), tuple(feeds.values()), tuple(fetches.values()), tuple(targets))
        return PartitionedGraph(self.device, graph, tuple(feeds), tuple(fetches))
