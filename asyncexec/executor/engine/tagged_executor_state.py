"""TaggedExecutorState: a step of a graph with control flow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from asyncexec.compilation.graph_view import GraphView, NodeItem
from asyncexec.executor.diagnostics.kernel_stats import INLINE, PASSIVE, TRANSFER
from asyncexec.executor.diagnostics.step_stats_collector import NOT_KNOWN
from asyncexec.executor.engine.cascade import TaggedNode
from asyncexec.executor.engine.executor_state import ON_THE_SPOT, ExecutorState, explained
from asyncexec.executor.engine.frame import IterationState, TaskGroup
from asyncexec.executor.engine.one_by_one import OneByOnePropagatorState
from asyncexec.executor.engine.propagator_state import PropagatorState
from asyncexec.executor.engine.ready_queue import RandomReadyQueue
from asyncexec.executor.engine.slots import take_inputs
from asyncexec.executor.engine.transfer_scope import CATCHABLE
from asyncexec.framework.errors import OpError
from asyncexec.framework.foreign_errors import as_op_error


class TaggedExecutorState(ExecutorState[TaggedNode]):
    """A step of a graph with control flow: its entries are TaggedNodes, of which the dead do not run."""

    __slots__ = ()

    _propagator: PropagatorState

    def _make_propagator(self, view: GraphView) -> PropagatorState:
        one_by_one = self._collector is not None or isinstance(self.ready, RandomReadyQueue)
        return OneByOnePropagatorState(view) if one_by_one else PropagatorState(view)

    def run_ready(self, now: int, end: int) -> int:
        """As SimpleExecutorState: to share the loop, by a call more for each node, would cost a tenth."""
        ready, places, collector = self.ready, self._places, self._collector
        now_ns, expensive_ns = self.holds.clock.now_ns, self._stats.expensive_ns
        propagator = self._propagator
        propagate_outputs = propagator.propagate_outputs
        take_next = ready.popleft
        while ready:
            tagged = take_next()
            item, iteration, is_dead = tagged
            place = places[item.id]
            inputs: Sequence[Any] = ()
            outputs: Any = NOT_KNOWN
            try:
                if not place and not is_dead:
                    inputs = take_inputs(iteration.inputs, item)
                    outputs = item.kernel(*inputs)
                    propagate_outputs(tagged, outputs, ready)
                elif place == TRANSFER:
                    self._transfer(tagged, item, now, is_dead=is_dead)
                elif is_dead or place == PASSIVE:
                    propagator.settle(tagged, ready)
                else:
                    self._launch(tagged, item, now)
            except CATCHABLE as raised:
                self._note_failed(tagged, item, now, raised)
                self._fail(tagged, item, explained(raised, item, inputs))
                return now
            before, now = now, now_ns()
            if now - before > expensive_ns and place == INLINE:
                places = self._note_slow(item, now - before, outputs)
            if collector is not None and place in ON_THE_SPOT and not (is_dead or item.is_relay):
                collector.record(item, before, before, now, outputs=outputs, where=iteration.location)
            if now > end:
                return now
        return now

    def release(self) -> BaseException | None:
        failure = super().release()
        self._propagator.close()
        return failure

    def _iteration_of(self, entry: TaggedNode) -> IterationState:
        return entry[1]

    def _tasks_of(self, entry: TaggedNode) -> TaskGroup:
        return entry[1].frame.task_group()

    def task_groups(self) -> Iterable[TaskGroup]:
        return list(self._propagator.task_groups())

    def _fail(self, entry: TaggedNode, item: NodeItem, raised: BaseException) -> None:
        error = as_op_error(raised, item.node)
        if isinstance(error, OpError):
            error.locate_iteration(entry[1].location)
        self.fail_node(item, error)
        if self._failure is None:
            self._propagator.lose(entry, self.ready)
