"""SimpleExecutorState: a step of a graph without control flow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from asyncexec.compilation.graph_view import GraphView, NodeItem
from asyncexec.executor.diagnostics.kernel_stats import TRANSFER
from asyncexec.executor.engine.executor_state import ExecutorState, explained
from asyncexec.executor.engine.frame import TaskGroup
from asyncexec.executor.engine.simple_propagator_state import SimplePropagatorState
from asyncexec.executor.engine.slots import take_inputs
from asyncexec.executor.engine.step_scope import Waiter
from asyncexec.executor.engine.transfer_scope import CATCHABLE
from asyncexec.framework.errors import OpError
from asyncexec.framework.foreign_errors import as_op_error


class SimpleExecutorState(ExecutorState[NodeItem]):
    """A step of a graph without control flow.  It may be used again: to make another costs more."""

    __slots__ = ()

    _propagator: SimplePropagatorState

    def _make_propagator(self, view: GraphView) -> SimplePropagatorState:
        return SimplePropagatorState(view)

    def run_ready(self, now: int, end: int) -> int:
        """Run ready nodes until there are none, the time *end* has come, or one fails; the time that it is then."""
        ready, places, collector = self.ready, self._places, self._collector
        now_ns, expensive_ns = self.holds.clock.now_ns, self._stats.expensive_ns
        propagator = self._propagator
        slots, pending, items = propagator.inputs, propagator.pending, propagator.items
        take_next = ready.popleft
        while ready:
            item = take_next()
            if places[item.id]:
                if places[item.id] == TRANSFER:
                    self._transfer(item, item, now)
                else:
                    self._launch(item, item, now)
                now = now_ns()
                if now > end:
                    return now
                continue
            inputs = take_inputs(slots, item)
            try:
                outputs = item.kernel(*inputs)
                if item.returns_tuple or item.control_edges:
                    propagator.propagate_outputs(item, outputs, ready)
                else:  # written out: the call would take a third of what is done here
                    for slot, consumer in item.output_edges[0]:
                        slots[slot] = outputs
                        count = pending[consumer] = pending[consumer] - 1
                        if not count:
                            ready.append(items[consumer])
            except CATCHABLE as raised:
                self._note_failed(item, item, now, raised)
                self._fail(item, item, explained(raised, item, inputs))
                return now
            before, now = now, now_ns()
            if now - before > expensive_ns:
                places = self._note_slow(item, now - before, outputs)
            if collector is not None and not item.is_relay:
                collector.record(item, before, before, now, outputs=outputs)
            if now > end:
                return now
        return now

    def release(self) -> BaseException | None:
        if self._failure is not None or self._loop.is_closed():
            return super().release()
        self._waiter = None
        return None  # nobody else takes part in it, so nothing is missing

    def reset(self) -> bool:
        self._places = self._stats.places
        self._propagator.reset()
        return True

    def restart(self, feeds: Sequence[Any] | None, waiter: Waiter) -> None:
        self._waiter = waiter
        self._propagator.activate_roots(feeds, self.ready)

    def _tasks_of(self, entry: NodeItem) -> TaskGroup:
        return self._tasks

    def task_groups(self) -> Iterable[TaskGroup]:
        return (self._tasks,)

    def _iteration_of(self, entry: NodeItem) -> None:
        return None

    def _fail(self, entry: NodeItem, item: NodeItem, raised: BaseException) -> None:
        error = as_op_error(raised, item.node)
        if isinstance(error, OpError):
            error.locate_iteration(())
        self.fail_node(item, error)
