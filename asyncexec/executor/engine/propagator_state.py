"""What is ready: frames, iterations and dead values.

After ``tensorflow/core/common_runtime/propagator_state.cc``.  The machine is a tagged-token one (Arvind and Culler,
"Dataflow Architectures", 1986): a token is a value with the frame and the iteration it is for.

* A node runs when all its inputs are there.  If one of them is dead, the node does not run, and all it gives is dead.
* A Switch gives a value on one side and a dead one on the other.  A Merge passes on the first live input, and is dead
  when all its inputs are.
* An Enter passes its input into a child frame, into iteration 0; a constant Enter into every iteration.
* A NextIteration passes its input into the next iteration, which waits while ``parallel_iterations`` are under way.
* An Exit passes its input to the parent frame.  If it is dead in the last iteration, the parent gets a dead value.
* An iteration has ended when nothing in it can happen any more and the one before has ended; a frame, when all its
  Enters have arrived and all its iterations have ended.  What it held is freed then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from asyncexec.compilation.bind_kernel import Transfer
from asyncexec.compilation.graph_view import DELIVERY, NOTHING, GraphView, NodeItem, Role, Route
from asyncexec.executor.engine.cascade import CASCADE_BUDGET, MERGES, Cascade
from asyncexec.executor.engine.frame import FrameState, IterationState, TaggedNode, TaskGroup
from asyncexec.executor.engine.propagator import TaggedQueue
from asyncexec.executor.engine.slots import take_inputs
from asyncexec.framework.kernel import DEAD
from asyncexec.framework.rendezvous import full_key

# Iterations without any kernel to call that are begun in one go.
_ITERATIONS_AT_ONCE: Final = 64
# The iteration before which a frame's invariants are settled: in a loop that goes round less it does not pay.
_SETTLED: Final = 2


class PropagatorState(Cascade):
    """A Propagator of tagged nodes.

    Args:
        queues_all: let each live node have its turn in the ready queue, those that need no kernel, too.
    """

    __slots__ = ("_entered", "_root", "_view", "has_frames")

    def __init__(self, view: GraphView, *, queues_all: bool = False) -> None:
        self.work = []
        self._queues_all = queues_all
        self._view = view
        self.has_frames: bool = len(view.frames) > 1
        self._entered: list[FrameState] = []  # in the cascade under way
        self._begin()

    def _begin(self) -> None:
        frame = FrameState(0, self._view.frames[0], None)
        self._root = IterationState(frame, 0)
        if self.has_frames:
            frame.iterations[0] = self._root  # so that child frames are found; a cycle, until close()
        self._fetches = self._root, self._view.fetch_slots.start

    def activate_roots(self, feeds: Sequence[object] | None, ready: TaggedQueue) -> None:
        view, root = self._view, self._root
        for item in view.roots:
            if item.action:
                self.make_ready(item, root, ready)
            else:  # written out: there may be very many
                root.outstanding_ops += 1
                ready.append((item, root, False))
        if feeds is not None:
            work = self.work
            for value, routes in zip(feeds, view.feed_routes, strict=True):
                work.append((value, routes, root))
        self._cascade(ready)
        if self._entered:
            self._end_entered(ready)

    def deliver_feed(self, index: int, value: object, ready: TaggedQueue) -> None:
        self.work.append((value, self._view.feed_routes[index], self._root))
        self._cascade(ready)
        self._end_entered(ready)

    def take_inputs(self, tagged: TaggedNode) -> list[Any]:
        return take_inputs(tagged[1].inputs, tagged[0])

    def waits_for(self, tagged: TaggedNode, item: NodeItem, num_awaited: int) -> bool:
        return tagged[1].pending[item.pending_id] == num_awaited

    def take_ahead(self, tagged: TaggedNode, item: NodeItem) -> list[object]:
        return take_inputs(tagged[1].inputs, item)

    def give_back(self, tagged: TaggedNode, item: NodeItem, inputs: Sequence[object]) -> None:
        slots = tagged[1].inputs
        for slot, value in enumerate(inputs, item.input_start):
            if value is not NOTHING:
                slots[slot] = value

    def propagate_outputs(self, tagged: TaggedNode, outputs: object, ready: TaggedQueue) -> None:
        item, iteration, _ = tagged
        if item.role or item.returns_tuple:
            self._activate(item, outputs, iteration, ready)
        else:
            self.work.append((outputs, item.routes[0], iteration))
        self.go_on(iteration, ready)

    def propagate_sent(self, tagged: TaggedNode, ready: TaggedQueue) -> None:
        if tagged[2]:
            self.settle(tagged, ready)
        else:
            self.propagate_outputs(tagged, (), ready)

    def settle(self, tagged: TaggedNode, ready: TaggedQueue) -> None:
        """Do what there is to do for an entry of the ready queue that needs no kernel."""
        item, iteration, is_dead = tagged
        if is_dead:
            self._die(item, iteration, ready)
        elif item.id == DELIVERY:
            self.work.extend(item.value or ())
        else:
            self._act(item, iteration, ready)
        self.go_on(iteration, ready)

    def go_on(self, iteration: IterationState, ready: TaggedQueue) -> None:
        """Deliver what a node of *iteration* gave; the node has ended then."""
        self._cascade(ready)
        if self._entered:
            self._end_entered(ready)
        iteration.outstanding_ops -= 1
        if not iteration.outstanding_ops and self.has_frames:
            self.end_iteration(iteration, ready)

    def lose(self, tagged: TaggedNode, ready: TaggedQueue) -> None:
        """Go on after a node that failed: what it would have given never comes, and its iteration can end without."""
        iteration = tagged[1]
        frame = iteration.frame
        frame.has_lost = True
        while (parent := frame.parent_iteration) is not None:
            frame = parent.frame
            frame.has_lost = True
        self.go_on(iteration, ready)

    def fetched(self) -> list[Any]:
        return self._root.inputs[self._view.fetch_slots]

    def root_entry(self, item: NodeItem) -> TaggedNode:
        self._root.outstanding_ops += 1
        return item, self._root, False

    def reset(self) -> None:
        root, info = self._root, self._view.frames[0]
        self.work.clear()
        if self.has_frames:
            self.close()
            root.inputs.clear()
            self._begin()
        else:
            root.inputs[:], root.pending[:], root.dead_counts = info.initial_inputs, info.initial_pending, None

    def close(self) -> None:
        """Let go of what is in frames, and of the cycles that they are; ``fetched()`` works as before."""
        frames = [self._root.frame] if self.has_frames else []
        while frames:
            frame = frames.pop()
            for iteration in frame.iterations.values():
                if iteration.children:
                    frames.extend(iteration.children.values())
                    iteration.children = None
                if frame.index:
                    iteration.inputs.clear()
            frame.let_go()

    def rendezvous_key(self, tagged: TaggedNode, transfer: Transfer) -> str:
        """The key that a Send or Recv uses in its iteration; the client waits for a fetch of whichever iteration."""
        _, iteration, is_dead = tagged
        if not iteration.frame.index or (transfer.is_fetch and not is_dead):
            return transfer.root_key
        return full_key(transfer.prefix, iteration.frame_iter)

    def task_groups(self) -> Iterator[TaskGroup]:
        """Those of all frames that have any."""
        return self._root.frame.task_groups_within()

    def _enter(self, item: NodeItem, value: object, iteration: IterationState, ready: TaggedQueue) -> None:
        index = self._view.child_frames[item.id]
        frame = iteration.child_frame(index, self._view.frames[index])
        routes = item.routes[0]
        if item.role == Role.CONSTANT_ENTER:
            frame.invariants.append((value, routes))
            for target in frame.iterations.values():
                self._into_iteration(value, routes, target, ready)
        else:
            self._into_iteration(value, routes, frame.iterations[0], ready)
        frame.num_pending_inputs -= 1
        self._entered.append(frame)

    def _into_iteration(
        self, value: object, routes: Sequence[Route], target: IterationState, ready: TaggedQueue
    ) -> None:
        """Deliver what an Enter brings."""
        if value is not DEAD:
            self.work.append((value, routes, target))
            return
        # A loop that is never entered goes round no more: its Merges are not to wait for NextIterations.
        for route in routes:
            if route[0] in MERGES:
                self._dead_to_merge(route[2], target, ready, is_the_last=True)
            elif route[2].is_relay:
                self._into_iteration(DEAD, route[2].routes[0], target, ready)
            else:
                self.work.append((DEAD, (route,), target))

    def _next_iteration(self, item: NodeItem, value: object, frame: FrameState, ready: TaggedQueue) -> None:
        """*value* is for an iteration that has not begun."""
        frame.next_iter_roots.append((item, value))
        if len(frame.iterations) < frame.info.parallel_iterations:
            self._begin_iteration(frame, ready)

    def _begin_iteration(self, frame: FrameState, ready: TaggedQueue) -> None:
        """Begin the next iteration; for the cascade to go on with."""
        number = frame.iteration_count = frame.iteration_count + 1
        if number == _SETTLED:
            frame.settle_invariants()
        frame.dead_exits.clear()  # that iteration was not the last
        target = frame.iterations[number] = IterationState(frame, number)
        roots, frame.next_iter_roots = frame.next_iter_roots, []
        for item, value in roots:
            self.work.append((value, item.routes[0], target))
        for value, routes in frame.invariants:
            self._into_iteration(value, routes, target, ready)

    def _end_entered(self, ready: TaggedQueue) -> None:
        """End iterations of frames that were entered and have nothing to do."""
        while self._entered:
            first = self._entered.pop().iterations.get(0)
            if first is not None and not first.outstanding_ops:
                self._clean_up(first, ready)

    def end_iteration(self, iteration: IterationState, ready: TaggedQueue) -> None:
        """End *iteration*, in which no node is ready or running, if nothing else can happen in it."""
        self._clean_up(iteration, ready)
        if self._entered:
            self._end_entered(ready)

    def _clean_up(self, iteration: IterationState, ready: TaggedQueue) -> None:
        """Free iterations that have ended, begin those that waited for that, and end the frame if it is done."""
        while (parent := iteration.frame.parent_iteration) is not None:
            frame, number = iteration.frame, iteration.number
            iterations = frame.iterations
            if number - 1 in iterations or (not number and frame.num_pending_inputs):
                return
            at_once = min(_ITERATIONS_AT_ONCE, CASCADE_BUDGET // (len(frame.initial_pending) + 1))
            ended, last = iterations.get(number), number + at_once
            while ended is not None and not ended.outstanding_ops and not ended.outstanding_frames:
                del iterations[number]
                number += 1
                if frame.next_iter_roots:
                    self._begin_iteration(frame, ready)
                    if number < last:
                        self._cascade(ready)
                    else:
                        self._suspend(ready)
                ended = iterations.get(number)
            if iterations or frame.num_pending_inputs:
                return
            assert parent.children is not None  # the frame is one of them
            del parent.children[frame.index]
            if not frame.has_lost:  # else this may not be how the frame would have ended
                dead = [(DEAD, routes, parent) for exit_item in frame.dead_exits for routes in exit_item.routes]
                self.work.extend(dead)
                self._cascade(ready)
            parent.outstanding_frames -= 1
            if parent.outstanding_ops or parent.outstanding_frames:
                return
            iteration = parent
