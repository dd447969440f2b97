"""PipelineState: a step of a StraightLine, one segment after the other.

A stream runs thousands of steps of one plan.  Where that is a straight line, what the general executor decides anew for
every node of every step is decided once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from asyncexec.compilation.graph_view import GraphView, NodeItem
from asyncexec.compilation.straight_line import Segment, StraightLine, straighten
from asyncexec.executor.executor_state import ExecutionPlan, ExecutorState, explained
from asyncexec.executor.kernel_outputs import checked_outputs
from asyncexec.executor.kernel_stats import ASYNC, EXPENSIVE_NS, INLINE, KernelStats, moving_average
from asyncexec.executor.offload import WorkerPool
from asyncexec.executor.transfer_scope import CATCHABLE
from asyncexec.framework.clock import monotonic_ns

# Steps of the general executor, which measures each node, before a plan is made a line; twice as many after each line
# that turned out slow.
_WARM_UP: Final = 64
_MAX_WARM_UP: Final = 4096


class Line:
    """A plan as a straight line, as long as its segments are quick."""

    __slots__ = ("_cost_ns", "_sampled_at_ns", "_stats", "cells", "is_quick", "segments")

    def __init__(self, line: StraightLine, stats: KernelStats) -> None:
        self.segments = line.segments
        self.cells = [None] * line.num_cells
        self._stats = stats
        self._cost_ns = self._sampled_at_ns = 0
        self.is_quick = True

    def note_slow(self, segment: Segment, elapsed_ns: int) -> None:
        """Take note of *segment*, which held the loop for longer than it should.

        If that goes on, the plan goes back to the executor that can tell by which node.
        """
        items = list(segment.items.values())
        if len(items) == 1:
            self._stats.update_inline(items[0].id, elapsed_ns)
        else:
            self._stats.holds.note_one_of([item.node for item in items], elapsed_ns)
        now = monotonic_ns()
        self._cost_ns = moving_average(self._cost_ns, elapsed_ns, now - self._sampled_at_ns)
        self._sampled_at_ns = now
        if self._cost_ns > EXPENSIVE_NS:
            self.is_quick = False


class LineMaker:
    """Decides which steps of one plan are those of a Line."""

    __slots__ = ("_line", "_num_steps", "_plan", "_warm_up")

    def __init__(self, plan: ExecutionPlan) -> None:
        self._plan = plan
        self._line: Line | None = None
        self._num_steps = 0  # of the general executor, since the last Line
        self._warm_up = _WARM_UP

    def line(self) -> Line | None:
        """What a step is to run; None if the general executor is to run it."""
        if self._line is not None and not self._line.is_quick:
            self._line = None
            self._warm_up = min(2 * self._warm_up, _MAX_WARM_UP)
        if self._line is None and self._num_steps >= self._warm_up:
            self._num_steps = 0
            self._line = make_line(self._plan)
        return self._line

    def note_step(self) -> bool:
        """Take note of a step that the general executor has run; whether it should go on."""
        self._num_steps += 1
        return self._num_steps < self._warm_up


def make_line(plan: ExecutionPlan) -> Line | None:
    """*plan* as a Line, if all its nodes are quick or async."""
    places = [plan.stats.places[item.id] for item in plan.view.items]
    if any(place not in (INLINE, ASYNC) for place in places):
        return None
    line = straighten(plan.view, [i for i, place in enumerate(places) if place == ASYNC], checked_outputs)
    return None if line is None else Line(line, plan.stats)


class LinePropagatorState:
    """Where a step of a Line is, and the values that it holds between two segments."""

    __slots__ = ("_line", "at", "cells")

    def __init__(self, line: Line) -> None:
        self._line = line
        self.at = 0
        self.cells: list[Any] = line.cells.copy()

    def activate_roots(self, feeds: Sequence[Any], ready: Any) -> None:
        """Add the first segment to *ready*, with the values of *feeds* in its cells."""
        self.at = 0
        self.cells[: len(feeds)] = feeds
        ready.append(self._line.segments[0])

    def propagate_outputs(self, item: NodeItem, outputs: Any, ready: Any) -> None:
        """Put what *item*'s kernel gave into its cells; add the next segment to *ready*."""
        segments, at = self._line.segments, self.at
        cells = segments[at].result_cells
        if item.returns_tuple:
            for cell, value in zip(cells, checked_outputs(item, outputs), strict=True):
                if cell >= 0:
                    self.cells[cell] = value
        elif cells[0] >= 0:
            self.cells[cells[0]] = outputs
        self.at = at + 1
        ready.append(segments[at + 1])


class PipelineState(ExecutorState):
    """One step of a Line.

    Attributes:
        values: of the fetches, when it has run.
    """

    __slots__ = ("_line", "values")

    def __init__(self, plan: ExecutionPlan, line: Line, pool: WorkerPool, slice_ns: int, feeds: Sequence[Any]) -> None:
        self._line = line
        self.values: list[Any] | None = None
        super().__init__(plan, pool, slice_ns, feeds, None, None)

    def _make_propagator(self, view: GraphView) -> Any:
        return LinePropagatorState(self._line)

    def run_ready(self, now: int, end: int) -> int:
        """Run the segment that is ready, and those behind it; see the base."""
        ready, propagator = self.ready, self._propagator
        while ready:
            segment = ready.popleft()
            try:
                given = segment.function(propagator.cells)
            except CATCHABLE as raised:
                item, inputs = segment.locate(raised)
                self._fail(item, item, explained(raised, item, inputs))
                return now
            before, now = now, monotonic_ns()
            if now - before > EXPENSIVE_NS:
                self._line.note_slow(segment, now - before)
            if segment.awaited is None:
                self.values = given
            else:
                try:
                    self._start_awaiting(segment.awaited, segment.awaited, given, now)
                except CATCHABLE as raised:
                    self._fail(segment.awaited, segment.awaited, raised)
                    return now
                if not self._is_plain_loop:  # the kernel has begun: its time is not that of the next segment
                    now = monotonic_ns()
            if now > end:
                return now
        return now

    def rest(self) -> bool:
        """Let go of all values; whether it may be used again."""
        self._waiter = None
        self.values = None
        return self._line.is_quick
