"""What is ready, in a graph with control flow: frames, iterations and dead values.

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

What needs no kernel (Switch, Merge, Enter, Exit, NextIteration, Identity, constants, and all that is dead) the
propagator does itself, as the values come by: the executor sees only nodes whose kernels are to be called.  Such a
cascade goes on until its budget is spent; what is left of it then waits in the ready queue as *Suspended* deliveries.

While a cascade is under way, the node that began it is counted, so its iteration cannot end; nor can later iterations
or the frames around it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from asyncexec.compilation.bind_kernel import Transfer
from asyncexec.compilation.graph_view import NOTHING, Action, GraphView, NodeItem, Role, Route, RouteKind
from asyncexec.executor.frame import FrameState, IterationState, Suspended, TaskGroup
from asyncexec.executor.kernel_errors import checked_outputs
from asyncexec.executor.slots import take_inputs
from asyncexec.framework.errors import InternalError, OpError
from asyncexec.framework.kernel import DEAD, switch
from asyncexec.framework.rendezvous import full_key

# (node, iteration, whether it is dead); the iteration knows its frame
TaggedNode: TypeAlias = tuple[Any, IterationState, bool]
TaggedQueue: TypeAlias = deque[TaggedNode]

# A bit of a pending count that tells that one of the inputs that came is dead.
_DEAD_BIT: Final = 1 << 40
# Values delivered in one cascade; at some 150 ns each.
_CASCADE_BUDGET: Final = 2048
# Iterations without any kernel to call that are begun in one go.
_ITERATIONS_AT_ONCE: Final = 64

# The iteration before which a frame's invariants are settled: in a loop that goes round less it does not pay.
_SETTLED: Final = 2

# Members of enums as ints and names of the module: looking them up is a good part of a delivery otherwise.
_ACT_SWITCH, _ACT_CONSTANT, _ACT_TRIGGER = int(Action.SWITCH), int(Action.CONSTANT), int(Action.TRIGGER)
_ROLE_CONSTANT_ENTER, _ROLE_EXIT, _ROLE_NEXT_ITERATION = map(int, list(Role)[2:])
_COUNT, _CONTROL, _SOLE, _PASS_ON, _SWITCH, _FIRST = map(int, list(RouteKind)[:6])
_NEXT_ITERATION, _CONSTANT, _EXIT, _MERGE, _CONTROL_MERGE, _FETCH = map(int, list(RouteKind)[6:])
_MERGES: Final = (_FIRST, _MERGE)


class PropagatorState:
    """Decides what runs next.  Never awaits, never calls a kernel, never reads a clock."""

    __slots__ = ("_entered", "_root", "_view", "_work")

    def __init__(self, view: GraphView) -> None:
        self._view = view
        self._root = FrameState(0, view.frames[0], None).iterations[0]
        self._work: list[tuple[Any, Sequence[Route], Any]] = []  # of the cascade under way
        self._entered: list[FrameState] = []  # in the cascade under way

    def activate_roots(self, feeds: Sequence[Any], ready: TaggedQueue) -> None:
        """Add to *ready* what can run at once, with the values of *feeds* delivered."""
        view, root = self._view, self._root
        for item in view.roots:
            self._make_ready(item, root, ready)
        for value, routes in zip(feeds, view.feed_routes, strict=True):
            self._work.append((value, routes, root))
        self._cascade(ready)
        self._end_entered(ready)

    def take_inputs(self, tagged: TaggedNode) -> list[Any]:
        """The values of the inputs of a live node; the state lets go of them."""
        return take_inputs(tagged[1].inputs, tagged[0])

    def propagate_outputs(self, tagged: TaggedNode, outputs: Any, ready: TaggedQueue) -> None:
        """Deliver what the kernel of a live node gave; add to *ready* what can run now."""
        item, iteration, _ = tagged
        if item.role or item.returns_tuple:
            self._activate(item, outputs, iteration, ready)
        else:
            self._work.append((outputs, item.routes[0], iteration))
        self._cascade(ready)
        if self._entered:
            self._end_entered(ready)
        iteration.outstanding_ops -= 1
        if not iteration.outstanding_ops:
            self._clean_up(iteration, ready)

    def propagate_sent(self, tagged: TaggedNode, ready: TaggedQueue) -> None:
        """Go on after a Send, which gives nothing."""
        self.propagate_outputs(tagged, (), ready)

    def settle(self, tagged: TaggedNode, ready: TaggedQueue) -> None:
        """Do what there is to do for an entry of the ready queue that needs no kernel."""
        item, iteration, is_dead = tagged
        if is_dead:
            self._die(item, iteration, ready)
        elif type(item) is Suspended:
            self._work.append((item.value, item.routes, iteration))
        else:
            self._act(item, iteration, ready)
        self._cascade(ready)
        if self._entered:
            self._end_entered(ready)
        iteration.outstanding_ops -= 1
        if not iteration.outstanding_ops:
            self._clean_up(iteration, ready)

    def fetched(self) -> list[Any]:
        """The values of the fetches; NOTHING where none has arrived."""
        return self._root.inputs[self._view.fetch_slots]

    def root_entry(self, item: NodeItem) -> TaggedNode:
        """What stands for a node of the root that nobody has put into the ready queue."""
        self._root.outstanding_ops += 1
        return item, self._root, False

    def rendezvous_key(self, tagged: TaggedNode, transfer: Transfer) -> str:
        """The key that a Send or Recv uses in its iteration."""
        iteration = tagged[1]
        return full_key(transfer.prefix, iteration.frame_iter) if iteration.frame.index else transfer.root_key

    def task_groups(self) -> Iterator[TaskGroup]:
        """Those of all frames that have any."""
        return self._root.frame.task_groups_within()

    def _cascade(self, ready: TaggedQueue) -> None:  # noqa: C901
        """Deliver values, and what comes of them.  In one piece: a call a route would cost more than what it does."""
        work, budget = self._work, _CASCADE_BUDGET
        while work:
            value, routes, target = work.pop()
            budget -= len(routes)
            if budget < 0:
                work.append((value, routes, target))
                self._suspend(ready)
                return
            if value is DEAD:
                self._deliver_dead(routes, target, ready)
                continue
            inputs, pending = target.inputs, target.pending
            for kind, slot, item in routes:
                if kind <= _CONTROL:
                    if kind == _COUNT:
                        inputs[slot] = value
                    position = item.pending_id
                    count = pending[position] = pending[position] - 1
                    if not count:
                        if item.action:
                            self._act(item, target, ready)
                        else:
                            target.outstanding_ops += 1
                            ready.append((item, target, False))
                    elif count == _DEAD_BIT:
                        self._make_dead(item, target, ready)
                elif kind == _SOLE:
                    inputs[slot] = value
                    if item.action:
                        self._act(item, target, ready)
                    else:
                        target.outstanding_ops += 1
                        ready.append((item, target, False))
                elif kind == _PASS_ON:
                    work.append((value, item.routes[0], target))
                elif kind == _SWITCH:
                    inputs[slot] = value
                    position = item.pending_id
                    count = pending[position] = pending[position] - 1
                    if not count:
                        self._switch(item, target, ready)
                    elif count == _DEAD_BIT:
                        self._make_dead(item, target, ready)
                elif kind == _FIRST:
                    if pending[item.pending_id]:
                        pending[item.pending_id] = 0
                        work.append((value, item.routes[0], target))
                elif kind == _NEXT_ITERATION:
                    frame = target.frame
                    if target.number < frame.iteration_count:
                        work.append((value, item.routes[0], frame.iterations[target.number + 1]))
                    else:
                        self._next_iteration(item, value, frame, ready)
                elif kind == _CONSTANT:
                    work.append((item.value, item.routes[0], target))
                elif kind == _EXIT:
                    work.append((value, item.routes[0], target.frame.parent_iteration))
                elif kind == _MERGE:
                    self._to_merge(item, value, slot, target, ready)
                elif kind == _CONTROL_MERGE:
                    self._control_to_merge(item, target, ready)
                else:
                    self._fetch(slot, value)

    def _suspend(self, ready: TaggedQueue) -> None:
        for value, routes, target in self._work:
            target.outstanding_ops += 1
            ready.append((Suspended(value, routes), target, False))
        self._work.clear()

    def _count_down(self, item: NodeItem, target: IterationState, ready: TaggedQueue) -> None:
        pending, position = target.pending, item.pending_id
        count = pending[position] = pending[position] - 1
        if not count:
            self._make_ready(item, target, ready)
        elif count == _DEAD_BIT:
            self._make_dead(item, target, ready)

    def _make_ready(self, item: NodeItem, target: IterationState, ready: TaggedQueue) -> None:
        if item.action:
            self._act(item, target, ready)
        else:
            target.outstanding_ops += 1
            ready.append((item, target, False))

    def _act(self, item: NodeItem, target: IterationState, ready: TaggedQueue) -> None:
        """Do what *item* does, whose inputs are all there, in place of its kernel."""
        action = item.action
        if action == _ACT_SWITCH:
            self._switch(item, target, ready)
        elif action == _ACT_CONSTANT:
            self._work.append((item.value, item.routes[0], target))
        elif action == _ACT_TRIGGER:
            self._work.extend([(None, routes, target) for routes in item.routes])
        else:
            value = target.inputs[item.input_start]
            target.inputs[item.input_start] = NOTHING
            self._activate(item, value, target, ready)

    def _switch(self, item: NodeItem, target: IterationState, ready: TaggedQueue) -> None:
        inputs, start, work = target.inputs, item.input_start, self._work
        pred, routes = inputs[start + 1], item.routes
        if pred is np.True_:
            work.append((inputs[start], routes[1], target))
            work.append((DEAD, routes[0], target))
        elif pred is np.False_:
            work.append((inputs[start], routes[0], target))
            work.append((DEAD, routes[1], target))
        else:
            self._switch_by(pred, item, target)
        inputs[start] = inputs[start + 1] = NOTHING
        if len(routes) > 2:
            work.append((None, routes[2], target))

    def _switch_by(self, pred: Any, item: NodeItem, target: IterationState) -> None:
        """What *pred* says that is no numpy bool; an error names the Switch, not the node that the cascade is from."""
        try:
            outputs = switch(target.inputs[item.input_start], pred)
        except OpError as error:
            located = error.locate(item.node)
            located.locate_iteration(target.location)
            raise located from None
        self._work.extend([(value, routes, target) for value, routes in zip(outputs, item.routes, strict=False)])

    def _to_merge(self, item: NodeItem, value: Any, index: int, target: IterationState, ready: TaggedQueue) -> None:
        """A live input has come to a Merge; the first that does, passes."""
        if target.pending[item.pending_id] & 1:
            target.inputs[item.input_start] = (value, np.int32(index))
            self._count_down(item, target, ready)

    def _activate(self, item: NodeItem, outputs: Any, iteration: IterationState, ready: TaggedQueue) -> None:
        """Send what *item* gave on its way, into another iteration or frame if that is what the node does."""
        role = item.role
        if not role:
            self._hand_on(item, outputs, iteration)
        elif role == _ROLE_NEXT_ITERATION:
            frame = iteration.frame
            if iteration.number < frame.iteration_count:
                self._hand_on(item, outputs, frame.iterations[iteration.number + 1])
            else:
                self._next_iteration(item, outputs, frame, ready)
        elif role == _ROLE_EXIT:
            assert iteration.frame.parent_iteration is not None
            self._hand_on(item, outputs, iteration.frame.parent_iteration)
        else:
            self._enter(item, outputs, iteration, ready)

    def _hand_on(self, item: NodeItem, outputs: Any, target: IterationState) -> None:
        routes = item.routes
        if not item.returns_tuple:
            self._work.append((outputs, routes[0], target))
            return
        count = len(item.output_edges)
        if type(outputs) is not tuple or len(outputs) != count:
            outputs = checked_outputs(item, outputs)
        self._work.extend([(value, routes[i], target) for i, value in enumerate(outputs)])
        if len(routes) > count:
            self._work.append((None, routes[count], target))

    def _fetch(self, slot: int, value: Any) -> None:
        """A value has come to a fetch; from inside a loop more than one may."""
        inputs = self._root.inputs
        if inputs[slot] is not NOTHING:
            index = slot - self._view.fetch_slots.start
            raise InternalError(
                f"fetch {index} has already been set: it is inside a loop that goes round more than once"
            )
        inputs[slot] = value

    def _die(self, item: NodeItem, iteration: IterationState, ready: TaggedQueue) -> None:
        """Tell the consumers of a node that it is dead."""
        role = item.role
        if not role:
            value = None if item.is_control_trigger else DEAD
            self._work.extend([(value, routes, iteration) for routes in item.routes])
        elif role == _ROLE_EXIT:
            self._dead_exit(item, iteration)
        elif role != _ROLE_NEXT_ITERATION:
            self._enter(item, DEAD, iteration, ready)

    def _make_dead(self, item: NodeItem, target: IterationState, ready: TaggedQueue) -> None:
        if item.transfer is None:
            self._die(item, target, ready)
        else:  # to tell the other side
            target.outstanding_ops += 1
            ready.append((item, target, True))

    def _dead_exit(self, item: NodeItem, iteration: IterationState) -> None:
        if iteration.number == iteration.frame.iteration_count:
            iteration.frame.dead_exits.append(item)

    def _deliver_dead(self, routes: Sequence[Route], target: IterationState, ready: TaggedQueue) -> None:
        for kind, _, item in routes:
            if kind == _EXIT:
                self._dead_exit(item, target)
            elif kind in _MERGES:
                self._dead_to_merge(item, target, ready)
            elif kind == _CONTROL_MERGE:
                self._control_to_merge(item, target, ready)
            elif kind != _FETCH:
                self._count_down_dead(item, target, ready)

    def _count_down_dead(self, item: NodeItem, target: IterationState, ready: TaggedQueue) -> None:
        pending, position = target.pending, item.pending_id
        count = pending[position] = (pending[position] - 1) | _DEAD_BIT
        if count == _DEAD_BIT:
            self._make_dead(item, target, ready)

    def _dead_to_merge(
        self, item: NodeItem, target: IterationState, ready: TaggedQueue, *, is_the_last: bool = False
    ) -> None:
        counts = target.dead_counts
        if counts is None:
            counts = target.dead_counts = {}
        before = counts.get(item.id, 0)
        count = counts[item.id] = item.num_merged if is_the_last else before + 1
        if before < count == item.num_merged and target.pending[item.pending_id] == 1:
            self._make_dead(item, target, ready)

    def _control_to_merge(self, item: NodeItem, target: IterationState, ready: TaggedQueue) -> None:
        """A Merge waits for its control inputs, and does not mind whether they are dead."""
        pending, position = target.pending, item.pending_id
        count = pending[position] = pending[position] - 2
        if not count:
            self._make_ready(item, target, ready)
        elif count == 1 and target.dead_counts is not None and target.dead_counts.get(item.id) == item.num_merged:
            self._make_dead(item, target, ready)

    def _enter(self, item: NodeItem, value: Any, iteration: IterationState, ready: TaggedQueue) -> None:
        index = self._view.child_frames[item.id]
        frame = iteration.child_frame(index, self._view.frames[index])
        routes = item.routes[0]
        if item.role == _ROLE_CONSTANT_ENTER:
            frame.invariants.append((value, routes))
            for target in frame.iterations.values():
                self._into_iteration(value, routes, target, ready)
        else:
            self._into_iteration(value, routes, frame.iterations[0], ready)
        frame.num_pending_inputs -= 1
        self._entered.append(frame)

    def _into_iteration(self, value: Any, routes: Sequence[Route], target: IterationState, ready: TaggedQueue) -> None:
        """Deliver what an Enter brings."""
        if value is not DEAD:
            self._work.append((value, routes, target))
            return
        # A loop that is never entered goes round no more: its Merges are not to wait for NextIterations.
        for route in routes:
            if route[0] in _MERGES:
                self._dead_to_merge(route[2], target, ready, is_the_last=True)
            else:
                self._work.append((DEAD, (route,), target))

    def _next_iteration(self, item: NodeItem, value: Any, frame: FrameState, ready: TaggedQueue) -> None:
        """*value* is for an iteration that has not begun."""
        frame.next_iter_roots.append((item, value))
        if len(frame.iterations) < frame.info.parallel_iterations:
            self._begin_iteration(frame, ready)

    def _begin_iteration(self, frame: FrameState, ready: TaggedQueue) -> None:
        """Begin the next iteration; for the cascade to go on with."""
        number = frame.iteration_count = frame.iteration_count + 1
        if number == _SETTLED and not frame.num_pending_inputs:
            frame.settle_invariants()
        frame.dead_exits.clear()  # that iteration was not the last
        target = frame.iterations[number] = IterationState(frame, number)
        roots, frame.next_iter_roots = frame.next_iter_roots, []
        for item, value in roots:
            self._work.append((value, item.routes[0], target))
        for value, routes in frame.invariants:
            self._into_iteration(value, routes, target, ready)

    def _end_entered(self, ready: TaggedQueue) -> None:
        """End iterations of frames that were entered and have nothing to do."""
        while self._entered:
            first = self._entered.pop().iterations.get(0)
            if first is not None and not first.outstanding_ops:
                self._clean_up(first, ready)

    def _clean_up(self, iteration: IterationState, ready: TaggedQueue) -> None:
        """Free iterations that have ended, begin those that waited for that, and end the frame if it is done."""
        while (parent := iteration.frame.parent_iteration) is not None:
            frame, number = iteration.frame, iteration.number
            iterations = frame.iterations
            if number - 1 in iterations or (not number and frame.num_pending_inputs):
                return
            ended, last = iterations.get(number), number + _ITERATIONS_AT_ONCE
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
            self._work.extend([(DEAD, routes, parent) for exit_item in frame.dead_exits for routes in exit_item.routes])
            self._cascade(ready)
            parent.outstanding_frames -= 1
            if parent.outstanding_ops or parent.outstanding_frames:
                return
            iteration = parent
