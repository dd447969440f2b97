"""What is ready, in a graph with control flow: frames, iterations and dead values.

After ``tensorflow/core/common_runtime/propagator_state.cc``.  The machine is a tagged-token one (Arvind and Culler,
"Dataflow Architectures", 1986): a token is a value with the frame and the iteration it is for.

* A node runs when all its inputs are there.  If one of them is dead, the node does not run, and all it gives is dead.
* A Switch gives a value on one side and a dead one on the other.  A Merge passes on the first live input, and is dead
when
  all its inputs are.
* An Enter passes its input into a child frame, into iteration 0; a constant Enter into every iteration.
* A NextIteration passes its input into the next iteration, which waits while ``parallel_iterations`` are under way.
* An Exit passes its input to the parent frame.  One that is dead tells nothing, for the loop goes on; if it is still
dead
  when the frame ends, the parent gets a dead value.
* An iteration has ended when nothing in it can happen any more and the one before has ended; a frame, when all its
  Enters have arrived and all its iterations have ended.  What it held is freed then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from asyncexec.compilation.graph_view import NOTHING, SINK, EdgeInfo, GraphView, NodeItem, Role
from asyncexec.executor.frame import FrameState, IterationState
from asyncexec.framework.errors import InternalError
from asyncexec.framework.kernel import DEAD

# (node, iteration, whether it is dead); the iteration knows its frame
TaggedNode: TypeAlias = tuple[NodeItem, IterationState, bool]
TaggedQueue: TypeAlias = deque[TaggedNode]

# A bit of a pending count that tells that one of the inputs that came is dead.
_DEAD_BIT: Final = 1 << 40
_ENTER, _CONSTANT_ENTER = int(Role.ENTER), int(Role.CONSTANT_ENTER)
_EXIT, _NEXT_ITERATION = int(Role.EXIT), int(Role.NEXT_ITERATION)


class PropagatorState:
    """Decides what runs next.  Never awaits, never calls a kernel, never reads a clock."""

    __slots__ = ("_items", "_root", "_view")

    def __init__(self, view: GraphView) -> None:
        self._view = view
        self._items = view.items
        self._root = FrameState(0, view.frames[0], None).iterations[0]

    def activate_roots(self, feeds: Sequence[Any], ready: TaggedQueue) -> None:
        """Add to *ready* what can run at once, with the values of *feeds* delivered."""
        view, root = self._view, self._root
        for item in view.roots:
            self._make_ready(item, root, False, ready)
        for value, edges, controls in zip(feeds, view.feed_edges, view.feed_controls, strict=True):
            self._deliver(value, edges, root, ready)
            self._release(controls, root, ready)

    def take_inputs(self, tagged: TaggedNode) -> list[Any]:
        """The values of the inputs of a live node; the state lets go of them."""
        item, iteration, _ = tagged
        inputs, start, count = iteration.inputs, item.input_start, item.num_inputs
        if count == 1:
            values = [inputs[start]]
            inputs[start] = NOTHING
        elif count == 2:
            second = start + 1
            values = [inputs[start], inputs[second]]
            inputs[start] = inputs[second] = NOTHING
        elif not count:
            values = []
        else:
            end = start + count
            values = inputs[start:end]
            inputs[start:end] = [NOTHING] * count
        return values

    def propagate_outputs(self, tagged: TaggedNode, outputs: Any, ready: TaggedQueue) -> None:
        """Deliver what the kernel of a live node gave; add to *ready* what can run now."""
        item, iteration, _ = tagged
        role = item.role
        if not role:
            if item.returns_tuple or item.control_edges or outputs is DEAD:
                self._activate(item, outputs, iteration, ready)
            else:
                self._deliver(outputs, item.output_edges[0], iteration, ready)
        elif role == _NEXT_ITERATION:
            self._next_iteration(item, outputs, iteration, ready)
        elif role == _EXIT:
            assert iteration.frame.parent_iteration is not None
            self._activate(item, outputs, iteration.frame.parent_iteration, ready)
        else:
            self._enter(item, outputs, iteration, ready)
        iteration.outstanding_ops -= 1
        if not iteration.outstanding_ops:
            self._clean_up(iteration, ready)

    def pass_on(self, tagged: TaggedNode, ready: TaggedQueue) -> None:
        """take_inputs() and propagate_outputs() of a live node whose kernel gives what it gets."""
        item, iteration, _ = tagged
        inputs, start = iteration.inputs, item.input_start
        value = inputs[start]
        inputs[start] = NOTHING
        if item.role or item.control_edges:
            self.propagate_outputs(tagged, value, ready)
            return
        if item.is_merge:
            value, index = value
            values, indices = item.output_edges
            self._deliver(value, values, iteration, ready)
            if indices:
                self._deliver(index, indices, iteration, ready)
        else:
            self._deliver(value, item.output_edges[0], iteration, ready)
        iteration.outstanding_ops -= 1
        if not iteration.outstanding_ops:
            self._clean_up(iteration, ready)

    def propagate_dead(self, tagged: TaggedNode, ready: TaggedQueue) -> None:
        """Tell the consumers of a node that it is dead."""
        item, iteration, _ = tagged
        role = item.role
        if not role:
            self._activate_dead(item, iteration, ready)
        elif role == _EXIT:
            if iteration.number == iteration.frame.iteration_count:
                iteration.frame.dead_exits.append(item)
        elif role != _NEXT_ITERATION:
            self._enter(item, DEAD, iteration, ready)
        iteration.outstanding_ops -= 1
        if not iteration.outstanding_ops:
            self._clean_up(iteration, ready)

    def fetched(self) -> list[Any]:
        """The values of the fetches; NOTHING where none has arrived."""
        return self._root.inputs[self._view.fetch_slots]

    def location(self, tagged: TaggedNode) -> str:
        """The frames and iterations that a node is in, from the outside in: ``loop 3, inner 0``; ``""`` in the root."""
        parts: list[str] = []
        iteration: IterationState | None = tagged[1]
        while iteration is not None and iteration.frame.parent_iteration is not None:
            parts.append(f"{iteration.frame.info.name} {iteration.number}")
            iteration = iteration.frame.parent_iteration
        return ", ".join(reversed(parts))

    # Delivery within one iteration.

    def _activate(self, item: NodeItem, outputs: Any, target: IterationState, ready: TaggedQueue) -> None:
        if item.returns_tuple:
            for value, edges in zip(outputs or (), item.output_edges, strict=True):
                if value is DEAD:
                    self._deliver_dead(edges, target, ready)
                else:
                    self._deliver(value, edges, target, ready)
        elif outputs is DEAD:
            self._deliver_dead(item.output_edges[0], target, ready, from_enter=bool(item.role))
        else:
            self._deliver(outputs, item.output_edges[0], target, ready)
        if item.control_edges:
            if outputs is DEAD:
                self._release_dead(item.control_edges, target, ready)
            else:
                self._release(item.control_edges, target, ready)

    def _activate_dead(self, item: NodeItem, target: IterationState, ready: TaggedQueue) -> None:
        for edges in item.output_edges:
            self._deliver_dead(edges, target, ready)
        if item.control_edges:
            self._release_dead(item.control_edges, target, ready)

    def _make_ready(self, item: NodeItem, target: IterationState, is_dead: bool, ready: TaggedQueue) -> None:
        target.outstanding_ops += 1
        ready.append((item, target, is_dead and not item.is_control_trigger))

    def _deliver(self, value: Any, edges: Sequence[EdgeInfo], target: IterationState, ready: TaggedQueue) -> None:
        items, inputs, pending = self._items, target.inputs, target.pending
        for slot, consumer in edges:
            if consumer == SINK:
                self._fetch(slot, value)
                continue
            item = items[consumer]
            position = item.pending_id
            if item.is_merge:
                count = pending[position]
                if not count & 1:
                    continue  # another input was first
                inputs[item.input_start] = (value, np.int32(slot))
            else:
                inputs[slot] = value
                count = pending[position]
            pending[position] = count = count - 1
            if not count:
                target.outstanding_ops += 1
                ready.append((item, target, False))
            elif count == _DEAD_BIT:
                self._make_ready(item, target, True, ready)

    def _fetch(self, slot: int, value: Any) -> None:
        """A value has come to a fetch; from inside a loop more than one may."""
        inputs = self._root.inputs
        if inputs[slot] is not NOTHING:
            index = slot - self._view.fetch_slots.start
            raise InternalError(
                f"fetch {index} has already been set: it is inside a loop that goes round more than once"
            )
        inputs[slot] = value

    def _deliver_dead(
        self, edges: Sequence[EdgeInfo], target: IterationState, ready: TaggedQueue, *, from_enter: bool = False
    ) -> None:
        for _, consumer in edges:
            if consumer == SINK:
                continue
            item = self._items[consumer]
            if item.is_merge:
                # A loop that is never entered goes round no more: its Merges are not to wait for NextIterations.
                self._dead_to_merge(item, target, ready, all_at_once=from_enter)
            else:
                self._count_down_dead(item, target, ready)

    def _dead_to_merge(
        self, item: NodeItem, target: IterationState, ready: TaggedQueue, *, all_at_once: bool = False
    ) -> None:
        count = item.num_merged if all_at_once else target.dead_counts.get(item.id, 0) + 1
        target.dead_counts[item.id] = count
        if count == item.num_merged and target.pending[item.pending_id] == 1:
            self._make_ready(item, target, True, ready)

    def _count_down_dead(self, item: NodeItem, target: IterationState, ready: TaggedQueue) -> None:
        pending, position = target.pending, item.pending_id
        count = pending[position] = (pending[position] - 1) | _DEAD_BIT
        if count == _DEAD_BIT:
            self._make_ready(item, target, True, ready)

    def _release(self, consumers: Sequence[int], target: IterationState, ready: TaggedQueue) -> None:
        pending = target.pending
        for consumer in consumers:
            item = self._items[consumer]
            position = item.pending_id
            if item.is_merge:
                self._control_to_merge(item, target, ready)
                continue
            count = pending[position] = pending[position] - 1
            if not count or count == _DEAD_BIT:
                self._make_ready(item, target, bool(count), ready)

    def _release_dead(self, consumers: Sequence[int], target: IterationState, ready: TaggedQueue) -> None:
        for consumer in consumers:
            item = self._items[consumer]
            if item.is_merge:
                self._control_to_merge(item, target, ready)
            else:
                self._count_down_dead(item, target, ready)

    def _control_to_merge(self, item: NodeItem, target: IterationState, ready: TaggedQueue) -> None:
        """A Merge waits for its control inputs, and does not mind whether they are dead."""
        pending, position = target.pending, item.pending_id
        count = pending[position] = pending[position] - 2
        all_dead = target.dead_counts.get(item.id, 0) == item.num_merged
        if not count or (count == 1 and all_dead):
            self._make_ready(item, target, bool(count), ready)

    # Frames and iterations.

    def _enter(self, item: NodeItem, value: Any, iteration: IterationState, ready: TaggedQueue) -> None:
        index = self._view.child_frames[item.id]
        frame = iteration.children.get(index)
        if frame is None:
            frame = iteration.children[index] = FrameState(index, self._view.frames[index], iteration)
            iteration.outstanding_frames += 1
        if item.role == _CONSTANT_ENTER:
            frame.invariants.append((item, value))
            for target in list(frame.iterations.values()):
                self._activate(item, value, target, ready)
        else:
            self._activate(item, value, frame.iterations[0], ready)
        frame.num_pending_inputs -= 1
        first = frame.iterations.get(0)
        if first is not None and not first.outstanding_ops:
            self._clean_up(first, ready)

    def _next_iteration(self, item: NodeItem, value: Any, iteration: IterationState, ready: TaggedQueue) -> None:
        frame = iteration.frame
        if iteration.number < frame.iteration_count:
            self._activate(item, value, frame.iterations[iteration.number + 1], ready)
        else:
            frame.next_iter_roots.append((item, value))
            if len(frame.iterations) < frame.info.parallel_iterations:
                self._begin_iteration(frame, ready)

    def _begin_iteration(self, frame: FrameState, ready: TaggedQueue) -> None:
        number = frame.iteration_count = frame.iteration_count + 1
        frame.dead_exits.clear()  # that iteration was not the last
        target = frame.iterations[number] = IterationState(frame, number)
        roots, frame.next_iter_roots = frame.next_iter_roots, []
        for item, value in roots:
            self._activate(item, value, target, ready)
        for item, value in frame.invariants:
            self._activate(item, value, target, ready)

    def _clean_up(self, iteration: IterationState, ready: TaggedQueue) -> None:
        """Free iterations that have ended, begin those that waited for that, and end the frame if it is done."""
        frame = iteration.frame
        parent = frame.parent_iteration
        if parent is None:
            return
        number = iteration.number
        while number in frame.iterations and frame.is_iteration_done(number):
            del frame.iterations[number]
            number += 1
            if frame.next_iter_roots:
                self._begin_iteration(frame, ready)
        if frame.is_done:
            self._end_frame(frame, parent, ready)

    def _end_frame(self, frame: FrameState, parent: IterationState, ready: TaggedQueue) -> None:
        del parent.children[frame.index]
        for item in frame.dead_exits:
            self._activate_dead(item, parent, ready)
        parent.outstanding_frames -= 1
        if not parent.outstanding_ops and not parent.outstanding_frames:
            self._clean_up(parent, ready)
