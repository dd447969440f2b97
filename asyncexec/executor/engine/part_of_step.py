"""PartOfStep: the one loop over ready nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from asyncexec.compilation.graph_view import CONTROL, COUNT, FETCH, NOTHING, SOLE, NodeItem
from asyncexec.executor.diagnostics.kernel_stats import CAREFUL, PASSIVE, TRANSFER, num_bytes
from asyncexec.executor.engine.cascade import DEAD_BIT
from asyncexec.executor.engine.executor_state import ExecutorState, explained
from asyncexec.executor.engine.frame import TaggedNode, TaskGroup
from asyncexec.executor.engine.propagator_state import PropagatorState
from asyncexec.executor.engine.slots import take_inputs
from asyncexec.executor.engine.step_scope import Waiter
from asyncexec.executor.engine.transfer_scope import CATCHABLE
from asyncexec.framework.errors import OpError
from asyncexec.framework.foreign_errors import as_op_error
from asyncexec.framework.kernel import DEAD


class PartOfStep(ExecutorState):
    """A step of one executor, or one partition's part of it.  It may be used again: to make another costs more."""

    __slots__ = ()

    _propagator: PropagatorState

    def run_ready(self, now: int, end: int) -> int:  # noqa: C901
        """Run ready nodes until there are none, the time *end* has come, or one fails; the time that it is then.

        What most nodes give goes to nodes of the same iteration that are to be counted, or run at once.  That much of
        the propagator is written out: to call it would take longer than what it does.  The rest goes on in a cascade.
        """
        ready, places, observer = self.ready, self._places, self._observer
        now_ns, expensive_ns, stays_inline = self.holds.clock.now_ns, self._stats.expensive_ns, self._stats.stays_inline
        propagator = self._propagator
        work, has_frames = propagator.work, propagator.has_frames
        take_next, add = ready.popleft, ready.append
        while ready:
            tagged = take_next()
            item, iteration, is_dead = tagged
            place = places[item.id]
            if is_dead or (place and (place != CAREFUL or observer is not None)):
                self._handle(tagged, item, place, now)
                now = now_ns()
                if now > end:
                    return now
                continue
            slots, start = iteration.inputs, item.input_start
            if item.num_inputs == 2:
                inputs = [slots[start], slots[start + 1]]
                slots[start] = slots[start + 1] = NOTHING
            else:
                inputs = take_inputs(slots, item)
            try:
                if place and not stays_inline(item.id, inputs):
                    self._run_sized(tagged, item, inputs, num_bytes(inputs), now)
                    now = now_ns()
                    if now > end:
                        return now
                    continue
                outputs = item.kernel(*inputs)
                if item.returns_tuple or item.role or outputs is DEAD:
                    propagator.propagate_outputs(tagged, outputs, ready)
                else:
                    pending, num_ready, goes_on = iteration.pending, 0, False
                    for kind, slot, consumer in item.routes[0]:
                        if kind == SOLE:
                            slots[slot] = outputs
                        elif kind <= CONTROL:
                            if kind == COUNT:
                                slots[slot] = outputs
                            position = consumer.pending_id
                            count = pending[position] = pending[position] - 1
                            if count:
                                if count == DEAD_BIT:
                                    propagator.make_dead(consumer, iteration, ready)
                                    goes_on = True
                                continue
                        elif kind == FETCH:
                            propagator.fetch(slot, outputs)
                            continue
                        else:
                            work.append((outputs, ((kind, slot, consumer),), iteration))
                            goes_on = True
                            continue
                        if consumer.action:
                            propagator.make_ready(consumer, iteration, ready)
                            goes_on = True
                        else:
                            num_ready += 1
                            add((consumer, iteration, False))
                    if goes_on:
                        iteration.outstanding_ops += num_ready
                        propagator.go_on(iteration, ready)
                    elif num_ready != 1 and has_frames:  # else there are as many as before, or nobody asks
                        iteration.outstanding_ops += num_ready - 1
                        if not iteration.outstanding_ops:
                            propagator.end_iteration(iteration, ready)
            except CATCHABLE as raised:
                self._note_ended(item, now, iteration, error=raised)
                self._fail(tagged, item, explained(raised, item, inputs))
                return now
            before, now = now, now_ns()
            if now - before > expensive_ns:
                places = self._note_slow(item, now - before, inputs, outputs)
            if observer is not None and not item.is_relay:
                where = iteration.location if has_frames else ()
                observer.record(item, before, before, now, outputs=outputs, where=where)
            if now > end:
                return now
        return now

    def _handle(self, tagged: TaggedNode, item: NodeItem, place: int, now: int) -> None:
        """Do what there is to do for an entry of the ready queue whose kernel is not simply called."""
        try:
            if place == TRANSFER:
                self._transfer(tagged, item, now, is_dead=tagged[2])
            elif tagged[2] or item.is_relay:
                self._propagator.settle(tagged, self.ready)
            elif place == PASSIVE:  # in a step whose nodes are all to be seen
                self._run_inline(tagged, item, self._propagator.take_inputs(tagged))
            else:
                self._launch(tagged, item, now)
        except CATCHABLE as raised:
            self._note_ended(item, now, tagged[1], error=raised)
            self._fail(tagged, item, raised)

    def reset(self) -> bool:
        self._places = self._stats.places
        self._propagator.reset()
        return True

    def restart(self, feeds: Sequence[object] | None, waiter: Waiter) -> None:
        self._waiter = waiter
        if feeds and self._stats.have_grown(feeds):
            self.be_careful()
        self._propagator.activate_roots(feeds, self.ready)

    def task_groups(self) -> Iterable[TaskGroup]:
        return list(self._propagator.task_groups())

    def _fail(self, entry: TaggedNode, item: NodeItem, raised: BaseException) -> None:
        error = as_op_error(raised, item.node)
        if isinstance(error, OpError):
            error.locate_iteration(entry[1].location)
        self.fail_node(item, error)
        if self._failure is None:
            self._propagator.lose(entry, self.ready)
