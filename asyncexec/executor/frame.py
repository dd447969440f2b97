"""FrameState and IterationState: what lives while a frame runs (``propagator_state.h``)."""

from __future__ import annotations

from typing import Any

from asyncexec.compilation.graph_view import FrameInfo, NodeItem


class IterationState:
    """One iteration of a frame.

    Attributes:
        inputs, pending: its copies of the frame's lists.
        outstanding_ops: nodes that are ready or running; outstanding_frames: child frames that have not ended.
        children: those child frames, by index.
        dead_counts: for Merges that wait, how many dead inputs have come.
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
        self.frame = frame
        self.number = number
        self.inputs: list[Any] = frame.info.initial_inputs.copy()
        self.pending: list[int] = frame.info.initial_pending.copy()
        self.outstanding_ops = 0
        self.outstanding_frames = 0
        self.children: dict[int, FrameState] = {}
        self.dead_counts: dict[int, int] = {}


class FrameState:
    """One frame, entered from one iteration of its parent.

    Attributes:
        iterations: those that have not ended, by number, at most ``info.parallel_iterations``.
        iteration_count: the number of the last iteration that has begun.
        num_pending_inputs: Enters that have not arrived.
        next_iter_roots: what waits for an iteration to end so that the next may begin.
        invariants: values of constant Enters, given to every iteration.
        dead_exits: Exits that were dead in the last iteration.
    """

    __slots__ = (
        "dead_exits",
        "index",
        "info",
        "invariants",
        "iteration_count",
        "iterations",
        "next_iter_roots",
        "num_pending_inputs",
        "parent_iteration",
    )

    def __init__(self, index: int, info: FrameInfo, parent_iteration: IterationState | None) -> None:
        self.index = index
        self.info = info
        self.parent_iteration = parent_iteration
        self.num_pending_inputs = info.input_count
        self.iteration_count = 0
        self.iterations = {0: IterationState(self, 0)}
        self.next_iter_roots: list[tuple[NodeItem, Any]] = []
        self.invariants: list[tuple[NodeItem, Any]] = []
        self.dead_exits: list[NodeItem] = []

    def is_iteration_done(self, number: int) -> bool:
        """Whether nothing can happen any more in an iteration that has begun."""
        iteration = self.iterations[number]
        if iteration.outstanding_ops or iteration.outstanding_frames:
            return False
        return not self.num_pending_inputs if not number else number - 1 not in self.iterations

    @property
    def is_done(self) -> bool:
        return not self.num_pending_inputs and not self.iterations
