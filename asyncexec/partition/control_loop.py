"""Loops that span devices: which device runs which part, and what tells each of them to go round once more.

After ``AddControlFlow`` and ``OptimizeControlFlowColocation`` in ``tensorflow/core/graph/graph_partition.cc``.

The device that has the LoopCond of a frame leads it.  On every other device that has a part in an edge of the frame
between devices stands a control loop, which carries no value::

    Const -> Enter -> Merge -> Switch -> NextIteration -> (Merge)
                               Switch takes the LoopCond, sent in each iteration

Its Merge, the pivot, runs once in each iteration, in the last one too.  A Recv of the frame has it as its control
input, and so runs once in each iteration as well; what the other device does not compute is sent dead.  Where a frame
is inside another one, the Enter takes the outer pivot in place of the Const.  A frame without LoopCond and
NextIteration has one iteration only: there the Enter is the pivot.

What crosses must come in each iteration, dead or alive.  So a loop made by hand in which a Merge gets nothing after the
first iteration, for its NextIteration was dead, can run on one device and not on several: its Recvs wait, as they do in
TensorFlow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from asyncexec.framework.cooperative import STRIDE, Stage
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.tensor_shape import SCALAR, TensorShape
from asyncexec.framework.types import as_dtype
from asyncexec.graph.control_flow_info import (
    ENTERS,
    EXITS,
    MERGES,
    NEXT_ITERATIONS,
    SWITCHES,
    ControlFlowInfo,
    Frame,
)
from asyncexec.graph.node import Node, NodeProperties, Tensor
from asyncexec.optimization.private_nodes import PropertiesCache
from asyncexec.partition.partitioned_graph import PartitionDraft
from asyncexec.partition.send_recv import Transfers, empty_const

FLOW_OPS: Final = ENTERS | EXITS | MERGES | NEXT_ITERATIONS | SWITCHES
_SHAPE: Final = TensorShape([0])
_FLOAT32: Final = as_dtype("float32")


def colocate_control_flow(
    nodes: Sequence[Node], flow_nodes: Sequence[Node], draft_of: dict[Node, PartitionDraft], fed: frozenset[object]
) -> Stage[None]:
    """Move Switches and Exits to their data input, Enters and NextIterations to the first node that takes their value.

    So a variable is not sent to where it is not used, and the Merge of a loop has its Enter and NextIteration with it.
    No Enter is left where nobody takes anything from it: when such a one came last, a loop would not see its end.
    """
    moved = {node for node in flow_nodes if _goes_with_consumer(node)}
    takers = yield from _consumers(nodes, moved, lambda node: [tensor.op for tensor in node.inputs])
    for node in reversed(flow_nodes):
        if node in takers:
            draft_of[node] = draft_of[takers[node][0]]
    for node in flow_nodes:
        if node.op in SWITCHES or node.op in EXITS:
            source = node.inputs[0]
            if source.op in draft_of and (source.op, source.index) not in fed:
                draft_of[node] = draft_of[source.op]
    waiters = yield from _consumers(nodes, moved, lambda node: node.control_inputs)
    for node in reversed(flow_nodes):
        consumers = [*takers.get(node, ()), *waiters.get(node, ())]
        if consumers and all(draft_of[consumer] is not draft_of[node] for consumer in consumers):
            draft_of[node] = draft_of[consumers[0]]


def _goes_with_consumer(node: Node) -> bool:
    if node.op in ENTERS:
        return not node.properties.input_dtypes[0].is_ref
    return node.op in NEXT_ITERATIONS


def _consumers(
    nodes: Sequence[Node], of: set[Node], sources_of: Callable[[Node], Iterable[Node]]
) -> Stage[dict[Node, list[Node]]]:
    """The nodes that have each node of *of* among their sources, in order."""
    found: dict[Node, list[Node]] = {}
    for start in range(0, len(nodes) if of else 0, STRIDE):
        for node in nodes[start : start + STRIDE]:
            for source in sources_of(node):
                if source in of:
                    found.setdefault(source, []).append(node)
        yield
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _ControlLoop:
    """The control loop of a frame on a device; ``pivot`` runs in each iteration."""

    pivot: Node
    head: tuple[Node, ...]  # what comes before all other nodes
    tail: tuple[Node, ...]  # what comes after the LoopCond


class ControlLoops:
    """The control loops of a client graph.

    Raises:
        InvalidArgumentError: the frames do not fit together, or one that spans devices has no LoopCond.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        flow_nodes: Sequence[Node],
        draft_of: dict[Node, PartitionDraft],
        fed: frozenset[tuple[Node, int]],
        transfers: Transfers,
        info: ControlFlowInfo,
    ) -> None:
        self._nodes = nodes
        self._draft_of = draft_of
        self._transfers = transfers
        self._cache = PropertiesCache()
        self._loops: dict[tuple[Frame, PartitionDraft], _ControlLoop] = {}
        self.info = info
        self._check_back_edges(flow_nodes, fed)
        self._going_round = {self.info.frame_of(node) for node in flow_nodes if node.op in NEXT_ITERATIONS}

    def _check_back_edges(self, flow_nodes: Iterable[Node], fed: frozenset[tuple[Node, int]]) -> None:
        info = self.info
        for node in flow_nodes:
            for tensor in node.inputs if node.op in MERGES else ():
                if (tensor.op, tensor.index) in fed:
                    continue
                frame = info.output_frame(tensor.op)
                if frame is not info.frame_of(node):
                    raise InvalidArgumentError(
                        f"{{{{node {node.name}}}}} has inputs from different frames. "
                        f"The input {{{{node {tensor.op.name}}}}} is in frame {frame.name!r}, "
                        f"the node itself in {info.frame_of(node).name!r}.",
                        node=node,
                    )

    def add(self, edges: Iterable[tuple[Node, Node]]) -> Stage[list[Node]]:
        """Add the loops that *edges* between devices need, as a stage; all nodes, in order, with those of the loops."""
        for count, (source, consumer) in enumerate(edges):
            frame = self.info.output_frame(source)
            if frame.parent is not None:
                self._ensure(frame, self._draft_of[consumer], consumer)
                # What depends on nothing but constants of the loop is to be sent in each iteration, too.
                if frame.loop_cond is None or self._draft_of[source] is not self._draft_of[frame.loop_cond]:
                    self._ensure(frame, self._draft_of[source], source)
            if not count % STRIDE:
                yield
        return (yield from self._in_order())

    def pivot(self, source: Node, draft: PartitionDraft) -> Node | None:
        """What a Recv of *draft* waits for, which gets an output of *source*: None outside of loops."""
        loop = self._loops.get((self.info.output_frame(source), draft))
        return None if loop is None else loop.pivot

    def _ensure(self, frame: Frame, draft: PartitionDraft, near: Node) -> None:
        """Make the control loops of *frame* and of those around it on *draft*, named after the node *near*."""
        missing: list[Frame] = []
        around: Frame | None = frame
        while around is not None and around.parent is not None and (around, draft) not in self._loops:
            missing.append(around)
            around = around.parent
        for inner in reversed(missing):
            outer = None if inner.parent is None else self._loops.get((inner.parent, draft))
            self._loops[inner, draft] = self._make(inner, draft, near, None if outer is None else outer.pivot)
            draft.receives = True

    def _make(self, frame: Frame, draft: PartitionDraft, near: Node, outer: Node | None) -> _ControlLoop:
        head: list[Node] = []
        if outer is None:
            outer = self._node(draft, self._transfers.new_name(near), empty_const())
            head.append(outer)
        enter_attrs = {
            "T": _FLOAT32,
            "frame_name": frame.enters[0].get_attr("frame_name"),
            "parallel_iterations": frame.parallel_iterations,
        }
        enter = self._control(draft, near, "Enter", enter_attrs, outer.outputs[0])
        head.append(enter)
        if frame.loop_cond is None:
            if frame in self._going_round:
                raise InvalidArgumentError(
                    f"A cross-device loop must have a pivot predicate: {frame.name}",
                    node=near,
                    hint="put the loop on one device, or a LoopCond into it",
                )
            return _ControlLoop(enter, tuple(head), ())
        merge = self._control(draft, near, "Merge", {"T": _FLOAT32, "N": 2}, *enter.outputs * 2)
        head.append(merge)
        condition = frame.loop_cond.outputs[0]
        switch = self._control(draft, near, "Switch", {"T": _FLOAT32}, merge.outputs[0], condition)
        following = self._control(draft, near, "NextIteration", {"T": _FLOAT32}, switch.outputs[1])
        merge.inputs = (enter.outputs[0], following.outputs[0])
        return _ControlLoop(merge, tuple(head), (switch, following))

    def _control(
        self, draft: PartitionDraft, near: Node, op: str, attrs: Mapping[str, object], *inputs: Tensor
    ) -> Node:
        name = f"_cloop{self._transfers.new_name(near)}"
        return self._node(draft, name, self._cache.get(op, attrs), inputs)

    def _node(
        self, draft: PartitionDraft, name: str, properties: NodeProperties, inputs: tuple[Tensor, ...] = ()
    ) -> Node:
        node = Node(self._nodes[0].graph, name, properties, inputs, (), draft.device)
        node.output_shapes = tuple(_SHAPE if dtype is _FLOAT32 else SCALAR for dtype in properties.output_dtypes)
        self._draft_of[node] = draft
        return node

    def _in_order(self) -> Stage[list[Node]]:
        """All nodes, each after its inputs: heads first, outer ones before inner ones; tails after their LoopConds."""
        tails: dict[Node, list[Node]] = {}
        ordered: list[Node] = []
        for (frame, _), loop in sorted(self._loops.items(), key=lambda item: item[0][0].depth):
            ordered += loop.head
            if frame.loop_cond is not None:
                tails.setdefault(frame.loop_cond, []).extend(loop.tail)
        for count, node in enumerate(self._nodes):
            ordered.append(node)
            if node in tails:
                ordered += tails[node]
            if not count % STRIDE:
                yield
        return ordered
