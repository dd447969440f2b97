"""ClientGraph -> a ClientGraph in which each cluster, and each group, is one node, and what the members do."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from asyncexec.framework.cooperative import STRIDE, Stage
from asyncexec.framework.op_def import OpDef
from asyncexec.framework.op_registry import OpRegistration
from asyncexec.framework.shape_inference import no_outputs
from asyncexec.graph.control_flow_info import MERGES, NEXT_ITERATIONS
from asyncexec.graph.node import Node, NodeProperties, Tensor
from asyncexec.pruning.prune import ClientGraph
from asyncexec.regions.clusters import find_clusters, is_free
from asyncexec.regions.groups import find_groups
from asyncexec.regions.program import Program, UnstructuredError
from asyncexec.regions.schedule import Block, schedule
from asyncexec.regions.structure import Bind, find_structure

REGION: Final = OpRegistration(OpDef("_Region", (), (), {}, is_stateful=True), no_outputs)
_WIDE: Final = 1024  # inputs or outputs, which the executor delivers one by one


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """A cluster, or a group.

    Attributes:
        is_group: whether it is a group of elementwise nodes; its arrays are inputs, constants or not.
        node: what stands for it; its name is that of its first node.
        graph: what it does; the inputs of *node* are its feeds, and the outputs its fetches.
        program, block: the same, as a program, and in order.
    """

    node: Node
    graph: ClientGraph
    program: Program
    block: Block
    is_group: bool

    @property
    def may_give_dead(self) -> bool:
        """Whether some outputs are not always live."""
        return bool(self.program.defaults)


@dataclass(frozen=True, slots=True, eq=False)
class FoldedGraph:
    """A client graph with regions.

    Attributes:
        graph: its nodes are regions, and copies of the others with the same names.
        regions: what they do.
    """

    graph: ClientGraph
    regions: Sequence[Region]


def fold(
    graph: ClientGraph, is_hard: Callable[[Node], bool], is_elementwise: Callable[[Node], bool], bind: Bind
) -> Stage[FoldedGraph]:
    """*graph* with a region for each cluster of nodes for which *is_hard* does not hold, as a stage.

    So has each group of nodes for which *is_elementwise* holds, though some are hard.  *bind* gives the kernels.

    Raises:
        UnstructuredError: *graph* has loops that are none.
    """
    folding = _Folding(graph)
    yield from folding.read()
    grouped: set[Node] = set()
    try:
        for group in (yield from find_groups(graph, is_hard, is_elementwise)):
            yield from folding.add(group, bind, is_group=True)
            grouped.update(group)
    except UnstructuredError:  # there are many loops, which groups have to look into
        pass
    for members in (yield from find_clusters(graph, lambda node: node in grouped or is_hard(node))):
        yield from folding.add(members, bind)
    return (yield from folding.finish())


@dataclass(slots=True, eq=False)
class _Folding:
    graph: ClientGraph
    _regions: list[Region] = field(default_factory=list)
    _members: set[Node] = field(default_factory=set)
    _takers: dict[Node, list[tuple[Tensor, Node]]] = field(default_factory=dict)
    _fed: set[tuple[Node, int]] = field(default_factory=set)
    _new: dict[Node, Node] = field(default_factory=dict)

    def read(self) -> Stage[None]:
        """Note who takes what."""
        self._fed.update((tensor.op, tensor.index) for tensor in self.graph.feeds)
        for count, node in enumerate(self.graph.nodes):
            for tensor in node.inputs:
                self._takers.setdefault(tensor.op, []).append((tensor, node))
            if not count % STRIDE:
                yield

    # One region.

    def add(self, members: Sequence[Node], bind: Bind, *, is_group: bool = False) -> Stage[None]:
        """Make a region of *members*, if they have the structure of a program."""
        inside = set(members)
        inputs: dict[tuple[Node, int], Tensor] = {}
        constants: dict[Node, None] = {}
        for count, node in enumerate(members):
            for tensor in node.inputs:
                if (tensor.op, tensor.index) in self._fed or tensor.op not in inside:
                    is_constant = is_free(tensor.op) and (tensor.op, tensor.index) not in self._fed
                    if is_constant and not (is_group and tensor.shape.rank != 0):
                        constants[tensor.op] = None
                    else:
                        inputs[tensor.op, tensor.index] = tensor
            if not count % STRIDE:
                yield
        outputs = yield from self._outputs(members, inside)
        if max(len(inputs), len(outputs)) > _WIDE:
            return
        graph = ClientGraph((*constants, *members), tuple(inputs.values()), tuple(outputs), ())
        try:
            program = yield from find_structure(graph, bind)
            block = yield from schedule(program)
        except UnstructuredError:
            return
        properties = NodeProperties(
            REGION, {}, tuple(tensor.dtype for tensor in graph.feeds), tuple(tensor.dtype for tensor in outputs)
        )
        first = members[0]
        node = Node(first.graph, first.name, properties, (), (), first.device, first.source_line)
        node.output_shapes = tuple(tensor.shape for tensor in outputs)
        region = Region(node, graph, program, block, is_group)
        self._regions.append(region)
        self._members.update(members)

    def _outputs(self, members: Sequence[Node], inside: set[Node]) -> Stage[list[Tensor]]:
        """What others take of *members*."""
        taken: dict[tuple[Node, int], Tensor] = {}
        for count, node in enumerate(members):
            takers = self._takers.get(node, ())
            taken.update({(node, tensor.index): tensor for tensor, taker in takers if taker not in inside})
            if not count % STRIDE:
                yield
        taken.update({(tensor.op, tensor.index): tensor for tensor in self.graph.fetches if tensor.op in inside})
        return [tensor for key, tensor in taken.items() if key not in self._fed]

    # The whole.

    def finish(self) -> Stage[FoldedGraph]:
        """The graph with the regions that have been added."""
        made: list[tuple[Node, Sequence[Tensor], Sequence[Node]]] = []  # with the inputs as they were
        outputs: dict[tuple[Node, int], Tensor] = {}
        for region in self._regions:
            members = [node for node in region.graph.nodes if node in self._members]
            self._new.update(dict.fromkeys(members, region.node))
            for tensor, output in zip(region.graph.fetches, region.node.outputs, strict=True):
                outputs[tensor.op, tensor.index] = output
            controls = [control for node in members for control in node.control_inputs]
            made.append((region.node, region.graph.feeds, controls))
            yield
        for count, node in enumerate(self.graph.nodes):
            if node not in self._members:
                copy = Node(node.graph, node.name, node.properties, (), (), node.device, node.source_line)
                copy.id, copy.output_shapes = node.id, node.output_shapes
                self._new[node] = copy
                made.append((copy, node.inputs, node.control_inputs))
            if not count % STRIDE:
                yield

        def moved(tensor: Tensor) -> Tensor:
            if (tensor.op, tensor.index) in outputs:
                return outputs[tensor.op, tensor.index]
            new = self._new.get(tensor.op)
            return tensor if new is None or tensor.op in self._members else new.outputs[tensor.index]

        for count, (node, inputs, waits_for) in enumerate(made):
            node.inputs = tuple(map(moved, inputs))
            sources = dict.fromkeys(self._new.get(control, control) for control in waits_for)
            node.control_inputs = tuple(source for source in sources if source is not node)
            if not count % STRIDE:
                yield
        nodes = yield from _in_order([node for node, _, _ in made])
        graph = ClientGraph(
            nodes,
            tuple(map(moved, self.graph.feeds)),
            tuple(map(moved, self.graph.fetches)),
            tuple(dict.fromkeys(self._new[node] for node in self.graph.targets)),
        )
        return FoldedGraph(graph, self._regions)


def _in_order(nodes: Sequence[Node]) -> Stage[tuple[Node, ...]]:
    """*nodes*, each after its inputs, but for the back edges of loops."""
    here = set(nodes)
    behind: dict[Node, list[Node]] = {}
    waiting: dict[Node, int] = {}
    for count, node in enumerate(nodes):
        sources = {tensor.op for tensor in node.inputs if not (node.op in MERGES and tensor.op.op in NEXT_ITERATIONS)}
        sources.update(node.control_inputs)
        sources &= here
        for source in sources:
            behind.setdefault(source, []).append(node)
        waiting[node] = len(sources)
        if not count % STRIDE:
            yield
    ready = deque(node for node in nodes if not waiting[node])
    ordered: list[Any] = []
    while ready:
        node = ready.popleft()
        ordered.append(node)
        for other in behind.get(node, ()):
            waiting[other] -= 1
            if not waiting[other]:
                ready.append(other)
        if not len(ordered) % STRIDE:
            yield
    if len(ordered) < len(nodes):
        raise UnstructuredError("nodes wait for one another")
    return tuple(ordered)
