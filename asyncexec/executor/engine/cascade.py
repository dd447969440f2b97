"""What comes of a value within an iteration: nodes that become ready, and those that need no kernel.

What needs no kernel (Switch, Merge, Enter, Exit, NextIteration, Identity, constants, and all that is dead) the
propagator does itself, as the values come by: the executor sees only nodes whose kernels are to be called.  Such a
cascade goes on until its budget is spent; what is left of it then waits in the ready queue as deliveries.
In a step that is traced, or whose order is drawn, each live node has its turn in the ready queue.

While a cascade is under way, the node that began it is counted, so its iteration cannot end; nor can later iterations
or the frames around it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import groupby, islice
from operator import itemgetter
from typing import Final

import numpy as np

from asyncexec.compilation.graph_view import (
    CONTROL,
    COUNT,
    FETCH,
    NOTHING,
    SOLE,
    Action,
    NodeItem,
    Role,
    Route,
    RouteKind,
)
from asyncexec.executor.engine.frame import FrameState, IterationState
from asyncexec.executor.engine.kernel_outputs import checked_outputs
from asyncexec.executor.engine.propagator import TaggedQueue
from asyncexec.framework.errors import InternalError, OpError
from asyncexec.framework.kernel import DEAD, switch

# A bit of a pending count that tells that one of the inputs that came is dead.
DEAD_BIT: Final = 1 << 40
# Values delivered in one cascade, at 150 ns each, a dead one at a microsecond: a fraction of a slice.
CASCADE_BUDGET: Final = 128
_PORTION: Final = 512  # of the work that waits, behind one entry of the ready queue
# Members of enums as ints and names of the module: looking them up is a good part of a delivery otherwise.
_ACT_SWITCH, _ACT_CONSTANT, _ACT_TRIGGER = int(Action.SWITCH), int(Action.CONSTANT), int(Action.TRIGGER)
_ROLE_CONSTANT_ENTER, _ROLE_EXIT, _ROLE_NEXT_ITERATION = map(int, list(Role)[2:])
_PASS_ON, _SWITCH, _FIRST, _NEXT_ITERATION, _CONSTANT, _EXIT = map(int, list(RouteKind)[3:9])
_MERGE, _CONTROL_MERGE = map(int, list(RouteKind)[9:11])
MERGES: Final = (_FIRST, _MERGE)


class Cascade(ABC):
    """Delivers values and dead ones; what they do to frames is a subclass's business."""

    __slots__ = ("_fetches", "_queues_all", "work")

    work: list[tuple[object, Sequence[Route], IterationState]]  # of the cascade under way
    _queues_all: bool
    _fetches: tuple[IterationState, int]  # the iteration that has the slots of the fetches, and the first of them

    @abstractmethod
    def _enter(self, item: NodeItem, value: object, iteration: IterationState, ready: TaggedQueue) -> None:
        """Let *value*, which may be DEAD, into a child frame of *iteration*."""

    @abstractmethod
    def _next_iteration(self, item: NodeItem, value: object, frame: FrameState, ready: TaggedQueue) -> None:
        """Take *value*, which is for an iteration that has not begun."""

    def _cascade(self, ready: TaggedQueue) -> None:  # noqa: C901
        """Deliver values, and what comes of them.  In one piece: a call a route would cost more than what it does."""
        work, budget, queues_all = self.work, CASCADE_BUDGET, self._queues_all
        while work:
            if budget < 0:
                self._suspend(ready)
                return
            value, routes, target = work.pop()
            budget -= len(routes)
            if value is DEAD:
                self._deliver_dead(routes, target, ready)
                continue
            inputs, pending = target.inputs, target.pending
            for kind, slot, item in routes:
                if kind <= CONTROL:
                    if kind == COUNT:
                        inputs[slot] = value
                    position = item.pending_id
                    count = pending[position] = pending[position] - 1
                    if not count:
                        if item.action and not queues_all:
                            self._act(item, target, ready)
                        else:
                            target.outstanding_ops += 1
                            ready.append((item, target, False))
                    elif count == DEAD_BIT:
                        self.make_dead(item, target, ready)
                elif kind == SOLE:
                    inputs[slot] = value
                    if item.action and not queues_all:
                        self._act(item, target, ready)
                    else:
                        target.outstanding_ops += 1
                        ready.append((item, target, False))
                elif queues_all:
                    self._bring(kind, slot, item, value, target, ready)
                elif kind == _PASS_ON:
                    work.append((value, item.routes[0], target))
                elif kind == _SWITCH:
                    inputs[slot] = value
                    position = item.pending_id
                    count = pending[position] = pending[position] - 1
                    if not count:
                        self._switch(item, target, ready)
                    elif count == DEAD_BIT:
                        self.make_dead(item, target, ready)
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
                    work.append((value, item.routes[0], target.frame.parent_iteration))  # type: ignore[arg-type]  # not the root
                elif kind == _MERGE:
                    self._to_merge(item, value, slot, target, ready)
                elif kind == _CONTROL_MERGE:
                    self._control_to_merge(item, target, ready)
                else:
                    self.fetch(slot, value)

    def _bring(
        self, kind: int, slot: int, item: NodeItem, value: object, target: IterationState, ready: TaggedQueue
    ) -> None:
        """Deliver a value to a node that has its turn in the ready queue, although it needs no kernel."""
        if kind == FETCH:
            self.fetch(slot, value)
        elif kind == _CONTROL_MERGE:
            self._control_to_merge(item, target, ready)
        elif kind in MERGES:
            self._to_merge(item, value, slot, target, ready)
        else:
            if kind != _CONSTANT:
                target.inputs[slot] = value
            self._count_down(item, target, ready)

    def _suspend(self, ready: TaggedQueue) -> None:
        """Let what is left of the work wait in the ready queue."""
        for target, pieces in groupby(self.work, itemgetter(2)):
            while portion := list(islice(pieces, _PORTION)):
                target.outstanding_ops += 1
                ready.append((NodeItem.delivery(portion), target, False))
        self.work.clear()

    def _count_down(self, item: NodeItem, target: IterationState, ready: TaggedQueue) -> None:
        pending, position = target.pending, item.pending_id
        count = pending[position] = pending[position] - 1
        if not count:
            self.make_ready(item, target, ready)
        elif count == DEAD_BIT:
            self.make_dead(item, target, ready)

    def make_ready(self, item: NodeItem, target: IterationState, ready: TaggedQueue) -> None:
        if item.action and not self._queues_all:
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
            self.work.append((item.value, item.routes[0], target))
        elif action == _ACT_TRIGGER:
            self.work.extend([(None, routes, target) for routes in item.routes])
        else:
            value = target.inputs[item.input_start]
            target.inputs[item.input_start] = NOTHING
            self._activate(item, value, target, ready)

    def _switch(self, item: NodeItem, target: IterationState, ready: TaggedQueue) -> None:
        inputs, start, work = target.inputs, item.input_start, self.work
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

    def _switch_by(self, pred: object, item: NodeItem, target: IterationState) -> None:
        """What *pred* says that is no numpy bool; an error names the Switch, not the node that the cascade is from."""
        try:
            outputs = switch(target.inputs[item.input_start], pred)
        except OpError as error:
            located = error.locate(item.node)
            located.locate_iteration(target.location)
            raise located from None
        self.work.extend([(value, routes, target) for value, routes in zip(outputs, item.routes, strict=False)])

    def _to_merge(self, item: NodeItem, value: object, index: int, target: IterationState, ready: TaggedQueue) -> None:
        """A live input has come to a Merge; the first that does, passes."""
        if target.pending[item.pending_id] & 1:
            target.inputs[item.input_start] = (value, np.int32(index))
            self._count_down(item, target, ready)

    def _activate(self, item: NodeItem, outputs: object, iteration: IterationState, ready: TaggedQueue) -> None:
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

    def _hand_on(self, item: NodeItem, outputs: object, target: IterationState) -> None:
        routes = item.routes
        if not item.returns_tuple:
            self.work.append((outputs, routes[0], target))
            return
        count = item.num_outputs
        if type(outputs) is not tuple or len(outputs) != count:
            outputs = checked_outputs(item, outputs)
        self.work.extend([(value, routes[i], target) for i, value in enumerate(outputs)])
        if len(routes) > count:
            self.work.append((None, routes[count], target))

    def fetch(self, slot: int, value: object) -> None:
        """A value has come to a fetch; from inside a loop more than one may."""
        iteration, first = self._fetches
        inputs = iteration.inputs
        if inputs[slot] is not NOTHING:
            index = slot - first
            raise InternalError(
                f"fetch {index} has already been set: it is inside a loop that goes round more than once"
            )
        inputs[slot] = value

    def _die(self, item: NodeItem, iteration: IterationState, ready: TaggedQueue) -> None:
        """Tell the consumers of a node that it is dead, and let go of those inputs that are not."""
        role, count = item.role, item.num_inputs
        if count > 1:
            iteration.inputs[item.input_start : item.input_start + count] = [NOTHING] * count
        if not role:
            self.work.extend([(DEAD, routes, iteration) for routes in item.routes])
        elif role == _ROLE_EXIT:
            self._dead_exit(item, iteration)
        elif role != _ROLE_NEXT_ITERATION:
            self._enter(item, DEAD, iteration, ready)

    def make_dead(self, item: NodeItem, target: IterationState, ready: TaggedQueue) -> None:
        if item.is_control_trigger:  # which runs whatever its inputs are
            self.make_ready(item, target, ready)
        elif item.transfer is None:
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
            elif kind in MERGES:
                self._dead_to_merge(item, target, ready)
            elif kind == _CONTROL_MERGE:
                self._control_to_merge(item, target, ready)
            elif kind != FETCH:
                self._count_down_dead(item, target, ready)

    def _count_down_dead(self, item: NodeItem, target: IterationState, ready: TaggedQueue) -> None:
        pending, position = target.pending, item.pending_id
        count = pending[position] = (pending[position] - 1) | DEAD_BIT
        if count == DEAD_BIT:
            self.make_dead(item, target, ready)

    def _dead_to_merge(
        self, item: NodeItem, target: IterationState, ready: TaggedQueue, *, is_the_last: bool = False
    ) -> None:
        counts = target.dead_counts
        if counts is None:
            counts = target.dead_counts = {}
        before = counts.get(item.id, 0)
        count = counts[item.id] = item.num_merged if is_the_last else before + 1
        if before < count == item.num_merged and target.pending[item.pending_id] == 1:
            self.make_dead(item, target, ready)

    def _control_to_merge(self, item: NodeItem, target: IterationState, ready: TaggedQueue) -> None:
        """A Merge waits for its control inputs, and does not mind whether they are dead."""
        pending, position = target.pending, item.pending_id
        count = pending[position] = pending[position] - 2
        if not count:
            self.make_ready(item, target, ready)
        elif count == 1 and target.dead_counts is not None and target.dead_counts.get(item.id) == item.num_merged:
            self.make_dead(item, target, ready)
