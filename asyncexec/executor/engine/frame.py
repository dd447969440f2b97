"""FrameState and IterationState: what lives while a frame runs (``propagator_state.h``)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final, TypeAlias

from asyncexec.compilation.graph_view import FrameInfo, NodeItem, Route, RouteKind
from asyncexec.framework.kernel import DEAD
from asyncexec.framework.rendezvous import FrameAndIter

# (node, iteration, whether it is dead): what stands in the ready queue.  The iteration knows its frame.
TaggedNode: TypeAlias = "tuple[NodeItem, IterationState, bool]"
TaskGroup: TypeAlias = dict[object, "asyncio.Task[None]"]  # of async nodes, by what stands for the node

_FILLS_A_SLOT: Final = (int(RouteKind.COUNT), int(RouteKind.SWITCH))


class IterationState:
    """One iteration of a frame.

    Attributes:
        inputs, pending: its copies of the frame's lists.
        outstanding_ops: nodes that are ready or running; outstanding_frames: child frames that have not ended.
        children: those child frames, by index; None as long as there have been none.
        dead_counts: for Merges that wait, how many dead inputs have come; None where none has.
    """

    __slots__ = (
        "children",
        "dead_counts",
        "frame",
        "inputs",
        "number",
        "outstanding_frames",
        "outstanding_ops",
        "pending",
    )

    def __init__(self, frame: FrameState, number: int) -> None:
        self.frame: FrameState = frame
        self.number: int = number
        self.inputs: list[Any] = frame.initial_inputs.copy()
        self.pending: list[int] = frame.initial_pending.copy()
        self.outstanding_ops: int = 0
        self.outstanding_frames: int = 0
        self.children: dict[int, FrameState] | None = None
        self.dead_counts: dict[int, int] | None = None

    def child_frame(self, index: int, info: FrameInfo) -> FrameState:
        """The child frame *index*, which begins when it is first asked for."""
        if self.children is None:
            self.children = {}
        frame = self.children.get(index)
        if frame is None:
            frame = self.children[index] = FrameState(index, info, self)
            frame.iterations[0] = IterationState(frame, 0)
            self.outstanding_frames += 1
        return frame

    @property
    def frame_iter(self) -> FrameAndIter:
        """What tells this iteration from all others of the step, on every device that has a part of the loop."""
        return FrameAndIter(self.frame.frame_id, self.number)

    @property
    def location(self) -> list[str]:
        """The frames and iterations around, from the outside in: ``loop 3`` and ``inner 0``; none in the root."""
        if self.frame.parent_iteration is None:
            return []
        parts: list[str] = []
        iteration = self
        while (parent := iteration.frame.parent_iteration) is not None:
            parts.append(f"{iteration.frame.info.name} {iteration.number}")
            iteration = parent
        parts.reverse()
        return parts


class FrameState:
    """One frame, entered from one iteration of its parent.

    Attributes:
        iterations: those that have not ended, by number, at most ``info.parallel_iterations``.
        iteration_count: the number of the last iteration that has begun.
        num_pending_inputs: Enters that have not arrived.
        next_iter_roots: what waits for an iteration to end so that the next may begin.
        initial_inputs, initial_pending: what iterations begin with.
        invariants: values of constant Enters, given to every iteration, and where they go.
        dead_exits: Exits that were dead in the last iteration.
        has_lost: whether a node in it, or in a frame in it, has failed, and the step goes on.
        tasks: what is awaited for it; None as long as nothing has been.
        hashed_id: its frame_id, once it has been asked for.
    """

    __slots__ = (
        "dead_exits",
        "has_lost",
        "hashed_id",
        "index",
        "info",
        "initial_inputs",
        "initial_pending",
        "invariants",
        "iteration_count",
        "iterations",
        "next_iter_roots",
        "num_pending_inputs",
        "parent_iteration",
        "tasks",
    )

    def __init__(self, index: int, info: FrameInfo, parent_iteration: IterationState | None) -> None:
        self.index: int = index
        self.info: FrameInfo = info
        self.parent_iteration: IterationState | None = parent_iteration
        self.num_pending_inputs: int = info.input_count
        self.iteration_count: int = 0
        self.initial_inputs: list[object] = info.initial_inputs
        self.initial_pending: list[int] = info.initial_pending
        self.iterations: dict[int, IterationState] = {}
        self.next_iter_roots: list[tuple[NodeItem, object]] = []
        self.invariants: list[tuple[object, Sequence[Route]]] = []
        self.dead_exits: list[NodeItem] = []
        self.has_lost: bool = False
        self.tasks: TaskGroup | None = None
        self.hashed_id: int = 0

    @property
    def frame_id(self) -> int:
        """A hash of its name and of the iterations that it is in; the root's is 0."""
        parent = self.parent_iteration
        if parent is None:
            return 0
        if not self.hashed_id:
            text = f"{parent.frame_iter} {self.info.name}"
            self.hashed_id = int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") or 1
        return self.hashed_id

    def task_group(self) -> TaskGroup:
        """The frame's own, opened when it is first asked for."""
        if self.tasks is None:
            self.tasks = {}
        return self.tasks

    def task_groups_within(self) -> Iterator[TaskGroup]:
        """The groups of this frame and of the frames in it: to cancel a frame is to cancel all of these."""
        frames = [self]
        while frames:
            frame = frames.pop()
            if frame.tasks:
                yield frame.tasks
            for iteration in frame.iterations.values():
                frames.extend((iteration.children or {}).values())

    def let_go(self) -> None:
        """Hold no value any more, whoever holds the frame."""
        self.iterations.clear()
        self.initial_inputs = self.info.initial_inputs
        self.invariants, self.next_iter_roots = [], []

    def settle_invariants(self) -> None:
        """From here on, begin iterations with loop invariants in the slots of those nodes that wait for more."""
        inputs, pending = self.initial_inputs.copy(), self.initial_pending.copy()
        invariants: list[tuple[object, Sequence[Route]]] = []
        for value, routes in self.invariants:
            left: list[Route] = []
            for kind, slot, item in routes:
                if value is not DEAD and kind in _FILLS_A_SLOT and pending[item.pending_id] > 1:
                    inputs[slot] = value
                    pending[item.pending_id] -= 1
                else:
                    left.append((kind, slot, item))
            if left:
                invariants.append((value, left))
        self.initial_inputs, self.initial_pending, self.invariants = inputs, pending, invariants
