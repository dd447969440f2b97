"""NodeItem, FrameInfo and GraphView: a ClientGraph laid out for running, built once and shared by all steps.

After ``graph_view.cc`` and ``immutable_executor_state.cc`` of ``tensorflow/core/common_runtime/``.

The layout: all inputs of all nodes of a frame stand in one list of slots, those of a node side by side from
``input_start``.  An iteration of the frame works on copies of ``initial_inputs`` and ``initial_pending``.  In the root
frame, feeds are written before a step starts, and ``fetch_slots`` is where fetched values arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, Self, TypeAlias

from asyncexec.compilation.bind_kernel import BoundKernel, Transfer
from asyncexec.framework.kernel import CheckedKernel, Kernel, KernelKind, do_nothing, pass_on, switch
from asyncexec.graph.control_flow_info import ENTERS, EXITS, MERGES, NEXT_ITERATIONS, SWITCHES
from asyncexec.graph.node import Node

CONTROL_FLOW_OPS: Final = ENTERS | EXITS | MERGES | NEXT_ITERATIONS | SWITCHES | {"LoopCond", "ControlTrigger"}


class Role(IntEnum):
    """What a node does to frames and iterations."""

    NORMAL = 0
    ENTER = 1
    CONSTANT_ENTER = 2
    EXIT = 3
    NEXT_ITERATION = 4


class Action(IntEnum):
    """What the propagator does in place of a kernel; RUN is to call the kernel."""

    RUN = 0
    PASS_ON = 1
    SWITCH = 2
    CONSTANT = 3
    TRIGGER = 4


class RouteKind(IntEnum):
    """What happens where a route leads.

    COUNT fills a slot and counts down, CONTROL only counts down; SOLE fills the slot that alone was waited for.  MERGE
    and CONTROL_MERGE come to a Merge, FETCH to a fetch.  By the others it goes on at once: past a node that passes on
    (FIRST: a Merge that does no more than that), to a Switch, into the next iteration, out of the frame, or with the
    value of a constant.
    """

    COUNT = 0
    CONTROL = 1
    SOLE = 2
    PASS_ON = 3
    SWITCH = 4
    FIRST = 5
    NEXT_ITERATION = 6
    CONSTANT = 7
    EXIT = 8
    MERGE = 9
    CONTROL_MERGE = 10
    FETCH = 11


# (kind, input slot, consumer): for a Merge, the index of the input; for a fetch, DELIVERED; for controls, no slot
Route: TypeAlias = "tuple[int, int, NodeItem]"

# The kinds as ints: members of enums are slow to look up and to compare.
COUNT: Final = int(RouteKind.COUNT)
CONTROL: Final = int(RouteKind.CONTROL)
SOLE: Final = int(RouteKind.SOLE)
FETCH: Final = int(RouteKind.FETCH)
CONTROL_KINDS: Final = (CONTROL, int(RouteKind.CONSTANT), int(RouteKind.CONTROL_MERGE))


class _Nothing:
    """Stands in slots where no value has arrived."""

    def __repr__(self) -> str:
        return "<nothing>"


NOTHING: Final = _Nothing()
DELIVERY: Final = -1  # the id of what is no node, but values on their way


class NodeItem:
    """A node as an executor sees it.

    Attributes:
        id: its position in ``GraphView.items`` and in the pending counts.
        kernel: what to call with the values of its inputs; check: what tells why it raised, or None.
        kind: where the kernel runs (for a sync one: where to begin with); is_expensive: what the user said of it.
        finish: makes outputs of what an async kernel gives, or None; is_undoable: whether what it does can be undone.
        gives_new: whether nobody else has the arrays that the kernel gives.
        is_elementwise: whether the kernel may get its inputs part by part.
        input_start, num_inputs: its slots.
        returns_tuple: whether the kernel returns a tuple of outputs instead of the only one.
        transfer: of a Send or Recv, what it does in place of a kernel; else None.
        guarded: constants that run when it has, without being items.
        action: what the propagator does itself, so that the kernel need not be called; value: of a constant.
        num_outputs: how many outputs it has; routes: for each, where its value goes.  Routes to nodes that wait for
        it without taking a value are with those of the only output, or, if ``returns_tuple``, stand after all others.
        frame, pending_id: the frame it runs in, and its position in that frame's pending counts.
        role: what it does to frames and iterations.
        is_merge, num_merged: a Merge has one slot, for the input that comes first, of so many.
        is_relay: whether it is no execution of the node but hands on what the node gave to a part of its many
        consumers.
    """

    __slots__ = (
        "action",
        "check",
        "finish",
        "frame",
        "gives_new",
        "guarded",
        "id",
        "input_start",
        "is_control_trigger",
        "is_elementwise",
        "is_expensive",
        "is_merge",
        "is_relay",
        "is_undoable",
        "kernel",
        "kind",
        "node",
        "num_inputs",
        "num_merged",
        "num_outputs",
        "pending_id",
        "returns_tuple",
        "role",
        "routes",
        "transfer",
        "value",
    )

    kind: KernelKind
    is_expensive: bool | None
    finish: Callable[[Any], object] | None
    transfer: Transfer | None
    gives_new: bool
    is_undoable: bool

    def __init__(
        self, item_id: int, node: Node, bound: BoundKernel, input_start: int, pending_id: int, frame: int
    ) -> None:
        properties = node.properties
        op, num_inputs = properties.op, len(node.inputs)
        kernel, self.kind, self.is_expensive, self.finish, self.transfer, self.gives_new, self.is_undoable, *_ = bound
        self.id: int = item_id
        self.pending_id: int = pending_id
        self.frame: int = frame
        self.node: Node = node
        self.is_elementwise: bool = bound.is_elementwise
        self.kernel: Kernel = kernel
        self.check: Callable[..., None] | None = None
        if isinstance(kernel, CheckedKernel):
            self.kernel, self.check = kernel.function, kernel.check
        self.action: int = _ACTIONS.get(id(kernel), _RUN)
        self.value: Any | None = None
        if op == "Const":
            self.action, self.value = _CONSTANT, kernel()
        self.input_start: int = input_start
        self.is_merge: bool = op in MERGES
        self.num_merged: int = num_inputs
        self.num_inputs: int = 1 if self.is_merge else num_inputs
        self.returns_tuple: bool = properties.registration.op_def.returns_tuple
        self.is_relay: bool = False
        self.is_control_trigger: bool = op == "ControlTrigger"
        self.role: int = _role(node) if op in _ROLES else _NORMAL
        self.num_outputs: int = len(properties.output_dtypes)
        self.guarded: tuple[Node, ...] = ()
        self.routes: tuple[tuple[Route, ...], ...] = ()

    @property
    def checked_kernel(self) -> Kernel:
        """The kernel, for calling where nobody looks for the reason when it has raised."""
        return self.kernel if self.check is None else CheckedKernel(self.kernel, self.check)

    @classmethod
    def delivery(cls, values: Sequence[tuple[object, Sequence[Route], object]]) -> Self:
        """What stands in the place of an item for *values* that are on their way."""
        item = cls.__new__(cls)
        item.id, item.is_relay, item.value, item.routes = DELIVERY, True, values, ((),)
        return item

    def data_routes(self) -> Iterator[tuple[int, Route]]:
        """The routes of values, each with the index of its output."""
        for index, routes in enumerate(self.routes):
            for route in routes:
                if route[0] not in CONTROL_KINDS:
                    yield index, route

    def become_relay(self, num_values: int) -> None:
        """Be no execution of the node, whatever its op: hand on a value, or, if there is none, the turn."""
        self.is_relay = True
        self.num_inputs = self.num_outputs = num_values
        self.returns_tuple = not num_values
        self.is_merge = False
        self.is_control_trigger = False
        self.role = _NORMAL
        self.action = _ACTIONS[id(self.kernel)]

    def __repr__(self) -> str:
        return f"<NodeItem {self.id} {self.node.name} = {self.node.op}>"


DELIVERED: Final = NodeItem.delivery(())  # stands for the consumer where a fetch is


# By identity, for a kernel need not be hashable.
_ACTIONS: Final = {
    id(pass_on): int(Action.PASS_ON),
    id(switch): int(Action.SWITCH),
    id(do_nothing): int(Action.TRIGGER),
}
_ROLES: Final = {
    **dict.fromkeys(ENTERS, Role.ENTER),
    **dict.fromkeys(EXITS, Role.EXIT),
    **dict.fromkeys(NEXT_ITERATIONS, Role.NEXT_ITERATION),
}
_RUN, _CONSTANT, _NORMAL = int(Action.RUN), int(Action.CONSTANT), int(Role.NORMAL)


def _role(node: Node) -> int:
    role = _ROLES[node.op]
    return int(Role.CONSTANT_ENTER if role == Role.ENTER and node.attrs.get("is_constant") else role)


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
    initial_inputs: list[object]
    initial_pending: list[int]


@dataclass(frozen=True, slots=True, eq=False)
class GraphView:
    """A signature's plan.  ``frames[0]`` is the root; the lists are never changed."""

    items: tuple[NodeItem, ...]
    constants: tuple[Node, ...]  # their values are in initial_inputs, so they are no items
    frames: tuple[FrameInfo, ...]
    child_frames: tuple[int, ...]  # for each item that is an Enter, the frame it enters
    roots: tuple[NodeItem, ...]  # what is ready before any feed has come
    feed_routes: tuple[tuple[Route, ...], ...]  # where the value of each feed goes, and what waits for it
    fetch_slots: slice  # where the fetched values arrive, in the inputs of the root frame
