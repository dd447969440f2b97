"""NodeItem, FrameInfo and GraphView: a ClientGraph laid out for running, built once and shared by all steps.

After ``graph_view.cc`` and ``immutable_executor_state.cc`` of ``tensorflow/core/common_runtime/``.

The layout: all inputs of all nodes of a frame stand in one list of slots, those of a node side by side from
``input_start``.  An iteration of the frame works on copies of ``initial_inputs`` and ``initial_pending``.  In the root
frame, feeds are written before a step starts, and ``fetch_slots`` is where fetched values arrive.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, TypeAlias

from asyncexec.compilation.bind_kernel import BoundKernel
from asyncexec.framework.kernel import pass_on
from asyncexec.graph.control_flow_info import ENTERS, EXITS, MERGES, NEXT_ITERATIONS, SWITCHES
from asyncexec.graph.node import Node

# (input slot, id of the consumer); for a Merge, (index of the input, id of the Merge)
EdgeInfo: TypeAlias = tuple[int, int]

CONTROL_FLOW_OPS: Final = ENTERS | EXITS | MERGES | NEXT_ITERATIONS | SWITCHES | {"LoopCond", "ControlTrigger"}


class Role(IntEnum):
    """What a node is to the propagator."""

    NORMAL = 0
    ENTER = 1
    CONSTANT_ENTER = 2
    EXIT = 3
    NEXT_ITERATION = 4


SINK: Final = -1  # stands for the fetches as a consumer: the last of the root's pending counts


class _Nothing:
    """Stands in slots where no value has arrived."""

    def __repr__(self) -> str:
        return "<nothing>"


NOTHING: Final = _Nothing()


class NodeItem:
    """A node as an executor sees it.

    Attributes:
        id: its position in ``GraphView.items`` and in the pending counts.
        kernel: what to call with the values of its inputs.
        kind: where the kernel runs (for a sync one: where to begin with); is_expensive: what the user said of it.
        finish: makes outputs of what an async kernel gives, or None.
        input_start, num_inputs: its slots.
        output_edges: for each output, where its value goes.
        control_edges: ids of nodes that wait for it without taking a value.
        returns_tuple: whether the kernel returns a tuple of outputs instead of the only one.
        passes_on: whether the kernel gives what it gets, and need not be called.
        frame, pending_id: the frame it runs in, and its position in that frame's pending counts.
        role: what it does to frames and iterations.
        is_merge, num_merged: a Merge has one slot, for the input that comes first, of so many.
        is_relay: whether it is no execution of the node but hands on what the node gave to a part of its many
        consumers.
    """

    __slots__ = (
        "control_edges",
        "finish",
        "frame",
        "id",
        "input_start",
        "is_control_trigger",
        "is_expensive",
        "is_merge",
        "is_relay",
        "kernel",
        "kind",
        "node",
        "num_inputs",
        "num_merged",
        "output_edges",
        "passes_on",
        "pending_id",
        "returns_tuple",
        "role",
    )

    def __init__(
        self, item_id: int, node: Node, bound: BoundKernel, input_start: int, pending_id: int, frame: int
    ) -> None:
        self.id = item_id
        self.pending_id = pending_id
        self.frame = frame
        self.node = node
        self.kernel, self.kind, self.is_expensive, self.finish = bound
        self.passes_on = bound.kernel is pass_on
        self.input_start = input_start
        self.is_merge = node.op in MERGES
        self.num_merged = len(node.inputs)
        self.num_inputs = 1 if self.is_merge else len(node.inputs)
        self.returns_tuple = node.op_def.returns_tuple
        self.is_relay = False
        self.is_control_trigger = node.op == "ControlTrigger"
        self.role = int(_role(node))
        self.output_edges: tuple[tuple[EdgeInfo, ...], ...] = ()
        self.control_edges: tuple[int, ...] = ()

    def become_relay(self) -> None:
        """Be no execution of the node, whatever its op."""
        self.is_relay = True
        self.is_merge = self.is_control_trigger = False
        self.role = int(Role.NORMAL)

    def __repr__(self) -> str:
        return f"<NodeItem {self.id} {self.node.name} = {self.node.op}>"


def _role(node: Node) -> Role:
    if node.op in ENTERS:
        return Role.CONSTANT_ENTER if node.attrs.get("is_constant") else Role.ENTER
    if node.op in EXITS:
        return Role.EXIT
    return Role.NEXT_ITERATION if node.op in NEXT_ITERATIONS else Role.NORMAL


@dataclass(frozen=True, slots=True, eq=False)
class FrameInfo:
    """What is known of a frame before any step runs; every iteration works on copies of the two lists.

    ``initial_inputs`` has the values of constants already; ``initial_pending`` counts, for each node, the inputs and
    control inputs still to be delivered.  That of a Merge is odd until a live input has come: twice its control
    inputs, plus one.
    """

    name: str
    input_count: int  # Enters into this frame; it cannot end before all have arrived
    parallel_iterations: int
    initial_inputs: list[Any]
    initial_pending: list[int]


@dataclass(frozen=True, slots=True, eq=False)
class GraphView:
    """A signature's plan.  ``frames[0]`` is the root; the lists are never changed."""

    items: tuple[NodeItem, ...]
    constants: tuple[Node, ...]  # their values are in initial_inputs, so they are no items
    frames: tuple[FrameInfo, ...]
    child_frames: tuple[int, ...]  # for each item that is an Enter, the frame it enters
    roots: tuple[NodeItem, ...]  # what is ready before any feed has come
    feed_edges: tuple[tuple[EdgeInfo, ...], ...]
    feed_controls: tuple[tuple[int, ...], ...]
    fetch_slots: slice  # where the fetched values arrive, in the inputs of the root frame
    has_control_flow: bool
