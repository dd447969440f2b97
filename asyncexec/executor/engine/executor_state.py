"""ExecutorState: one step of an executor, or one partition's part of a step.

It takes ready nodes one by one, calls cheap kernels on the spot, and launches the others; what they give comes back
through ``_finish``.  What becomes ready is the propagator's business alone.

The step's own coroutine, and callbacks of its loop, are alone in touching the state, so there are no locks.  The loop
is let go whenever a slice is spent; a step that awaits nothing ends without ever suspending.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from contextvars import Context
from functools import partial
from random import Random
from typing import Any, Final, Protocol

from asyncexec.compilation.graph_view import GraphView, NodeItem
from asyncexec.executor.diagnostics.kernel_stats import (
    ASYNC,
    CAREFUL,
    INLINE,
    PASSIVE,
    SIZED,
    TRANSFER,
    KernelStats,
    num_bytes,
)
from asyncexec.executor.diagnostics.step_stats_collector import StepStatsCollector
from asyncexec.executor.engine.ending import EndedPropagatorState, Ending
from asyncexec.executor.engine.frame import IterationState, TaskGroup
from asyncexec.executor.engine.simple_propagator_state import SimplePropagatorState
from asyncexec.executor.engine.slots import take_inputs
from asyncexec.executor.engine.step_scope import StepScope, Waiter
from asyncexec.executor.engine.transfer_scope import CATCHABLE, TransferScope
from asyncexec.executor.engine.undo_log import Record, UndoLog
from asyncexec.executor.workers.job import Job, Outcome
from asyncexec.executor.workers.offload import WorkerPool
from asyncexec.executor.workers.worker_chain import NodeCall, WorkerChains, note_outcomes, pass_along
from asyncexec.framework.errors import OpError
from asyncexec.framework.foreign_errors import as_op_error, explained_by
from asyncexec.framework.kernel import Change
from asyncexec.process.plain_tasks import makes_plain_tasks

ON_THE_SPOT: Final = (INLINE, PASSIVE)


class ExecutionPlan(Protocol):
    """What a step needs of its executor."""

    @property
    def view(self) -> GraphView: ...

    @property
    def stats(self) -> KernelStats: ...

    @property
    def chains(self) -> WorkerChains: ...


class ExecutorState(TransferScope):
    """One step, or one partition's part of it.  When it has run, ``fetched()`` has the values."""

    __slots__ = (
        "_chains",
        "_ending",
        "_is_plain_loop",
        "_jobs",
        "_num_tasks",
        "_places",
        "_pool",
        "_random",
        "_stats",
        "_tasks",
        "context",
        "scope",
    )

    def __init__(
        self,
        plan: ExecutionPlan,
        pool: WorkerPool,
        slice_ns: int,
        feeds: Sequence[Any] | None,
        collector: StepStatsCollector | None,
        order: Random | None,
    ) -> None:
        super().__init__(slice_ns, plan.stats.holds, collector)
        self.scope: StepScope | None = None  # the whole step, where this is a part of it
        self.context: Context | None = None
        self._stats = plan.stats
        self._chains = plan.chains
        self._places = plan.stats.places
        self._pool = pool
        self._random = order
        self._propagator = self._make_propagator(plan.view)
        self._tasks: TaskGroup = {}  # of async nodes; where there are frames, each has a group of its own
        self._num_tasks = 0  # in all groups
        self._is_plain_loop: bool | None = None  # not asked yet
        self._jobs: dict[Any, Job] = {}  # of nodes on worker threads, by entry
        self._ending: Ending | None = None
        if collector is not None:
            collector.record_constants(plan.view.constants)
        self._propagator.activate_roots(feeds, self.ready)

    def be_careful(self) -> None:
        self._places = self._stats.careful_places()

    @property
    def has_ready(self) -> bool:
        return bool(self.ready)

    @property
    def is_waiting(self) -> bool:
        return bool(self._num_tasks or self._jobs)

    def deliver_feed(self, index: int, value: Any) -> None:
        if self._failure is None:
            try:
                self._propagator.deliver_feed(index, value, self.ready)
            except OpError as raised:  # a Switch, say, that takes the feed
                self.abort(raised)
        self.wake()

    def end(self) -> BaseException | None:
        self._waiter = None
        return None  # nobody else takes part in it, so nothing is missing

    def rest(self) -> bool:
        self._places = self._stats.places
        self._propagator.reset()
        return True

    def restart(self, feeds: Sequence[Any] | None, waiter: Waiter) -> None:
        self._waiter = waiter
        self._propagator.activate_roots(feeds, self.ready)

    @property
    def num_tasks(self) -> int:
        """How many async nodes are awaited."""
        return self._num_tasks

    @property
    def has_jobs(self) -> bool:
        """Whether anything is with worker threads."""
        return bool(self._jobs)

    def abort(self, error: BaseException) -> None:
        if self.scope is None:
            super().abort(error)
        else:
            self.scope.abort(error)

    def fail_node(self, item: NodeItem, error: BaseException) -> None:
        if self.scope is None:
            super().fail_node(item, error)
        else:
            self.scope.fail_node(item, error)

    def wake(self) -> None:
        if self.scope is None:  # as the base does, without another call
            waiter = self._waiter
            if waiter is not None and not waiter.done():
                waiter.set_result(None)
        else:
            self.scope.wake()

    def _stop(self, error: BaseException) -> None:
        self.ready.clear()

    def _check_complete(self) -> None:
        """A step that runs alone is done when nothing is left to do."""

    def _check_progress(self) -> None:
        """What a step that runs alone waits for comes from elsewhere."""

    def halt(self, error: BaseException) -> None:
        """Run nothing more: the step that this is a part of has failed with *error*."""
        self._failure = error
        self._stop(error)

    def fetched(self) -> list[Any]:
        values: list[Any] = self._propagator.fetched()
        return values

    def _make_propagator(self, view: GraphView) -> Any:
        return SimplePropagatorState(view)

    def run_ready(self, now: int, end: int) -> int:
        """Run ready nodes until there are none, the time *end* has come, or one fails; the time that it is then."""
        ready, places, collector = self.ready, self._places, self._collector
        now_ns, expensive_ns = self.holds.clock.now_ns, self._stats.expensive_ns
        propagator = self._propagator
        slots, pending, items = propagator.inputs, propagator.pending, propagator.items
        take_next = ready.popleft if self._random is None else self._take_any
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
                self._fail(item, item, explained(raised, item, inputs))
                return now
            before, now = now, now_ns()
            if now - before > expensive_ns:
                self._stats.update_inline(item.id, now - before)
            if collector is not None and not item.is_relay:
                collector.record(item, before, before, now)
            if now > end:
                return now
        return now

    def _take_any(self) -> Any:
        assert self._random is not None
        self.ready.rotate(-self._random.randrange(len(self.ready)))
        return self.ready.popleft()

    def _fail(self, entry: Any, item: NodeItem, raised: BaseException) -> None:
        error = as_op_error(raised, item.node)
        if isinstance(error, OpError):
            error.locate_iteration(())
        self.fail_node(item, error)

    def _launch(self, entry: Any, item: NodeItem, now: int) -> None:
        inputs = self._propagator.take_inputs(entry)
        place = self._places[item.id]
        try:
            if place == ASYNC:
                self._start_awaiting(entry, item, inputs, now)
                return
            if place == CAREFUL and self._stats.stays_inline(item.id, inputs):
                self._run_inline(entry, item, inputs)
                return
            size = num_bytes(inputs) if place in (SIZED, CAREFUL) else -1
            if size >= 0 and self._stats.is_quick(item.id, size):
                self._run_sized(entry, item, inputs, size)
            else:
                calls = self._chains.calls(entry, item, inputs, size, self._propagator, self._places)
                done = partial(self._on_worker_done, entry, calls, now)
                self._jobs[entry] = self._pool.submit_calls(calls, done)
        except CATCHABLE as raised:
            self._fail(entry, item, raised)

    def _run_inline(self, entry: Any, item: NodeItem, inputs: list[Any]) -> None:
        now_ns = self.holds.clock.now_ns
        start = now_ns()
        self._propagator.propagate_outputs(entry, item.checked_kernel(*inputs), self.ready)
        end = now_ns()
        if end - start > self._stats.expensive_ns:
            self._stats.update_inline(item.id, end - start)
        if self._collector is not None and not item.is_relay:
            self._collector.record(item, start, start, end)

    def _run_sized(self, entry: Any, item: NodeItem, inputs: list[Any], size: int) -> None:
        now_ns = self.holds.clock.now_ns
        start = now_ns()
        outputs = item.checked_kernel(*inputs)
        self._propagator.propagate_outputs(entry, outputs, self.ready)
        end = now_ns()
        self._stats.update_sized(item.id, size, end - start)
        if end - start > self._stats.expensive_ns:
            self.holds.note(item.node, end - start)
        if self._collector is not None:
            self._collector.record(item, start, start, end)

    def _start_awaiting(self, entry: Any, item: NodeItem, inputs: list[Any], now: int) -> None:
        """Call the kernel of an async node, in a task of the group that *entry* belongs to."""
        tasks = self._tasks_of(entry)
        call = item.kernel(*inputs)
        if item.is_undoable:
            self._note_change(entry, item, call)
        coroutine = self._await_kernel(entry, item, call, now, tasks)
        loop = self._loop
        if self._is_plain_loop is None:
            self._is_plain_loop = makes_plain_tasks(loop)
        if self._is_plain_loop:
            task = asyncio.Task(coroutine, loop=loop, name=item.node.name, context=self.context)
            tasks[entry] = task
            self._num_tasks += 1
        else:
            task = loop.create_task(coroutine, name=item.node.name, context=self.context)
            if not task.done():  # an eager task has begun, and may have run to the end
                self._note_task(entry, tasks, task)

    async def _await_kernel(
        self, entry: Any, item: NodeItem, coroutine: Coroutine[Any, Any, Any] | Change, start: int, tasks: TaskGroup
    ) -> None:
        """The body of an async node's task.  Ending the node here, and not in a callback, saves a turn of the loop."""
        if self._failure is not None:
            coroutine.close()
            self._forget(entry, tasks)
            self.wake()
            return
        if not self._is_plain_loop:
            self._note_task(entry, tasks, asyncio.current_task())
        try:
            outputs = await self._stats.watch(item.id, coroutine)
            if item.finish is not None:
                outputs = item.finish(outputs)
        except BaseException as error:
            self._forget(entry, tasks)
            if not self._loop.is_closed():  # else nobody is there to be told
                self._finish(entry, item, None, error)
            return
        if tasks.pop(entry, None) is not None:  # as _forget does, and then as _finish: calls cost more than they do
            self._num_tasks -= 1
        if self._collector is not None:
            self._collector.record(item, start, start, self.holds.clock.now_ns())
        if self._failure is None:
            try:
                self._propagator.propagate_outputs(entry, outputs, self.ready)
            except Exception as raised:  # the outputs are not what the op promises
                self._fail(entry, item, raised)
        waiter = self._waiter
        if self.scope is not None:
            self.scope.wake()
        elif waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _note_change(self, entry: Any, item: NodeItem, change: Change) -> None:
        """Let *change* be undone when the step is cancelled."""
        scope = self.scope or self
        if scope.undo_log is None:
            scope.undo_log = UndoLog()
        scope.undo_log.add(Record(change, item, self._stats.items, self._iteration_of(entry)))

    def _iteration_of(self, entry: Any) -> IterationState | None:
        """The iteration of a frame that *entry* is in, where there are frames."""
        return None

    def _tasks_of(self, entry: Any) -> TaskGroup:
        """The group that the task of *entry* belongs to."""
        return self._tasks

    def _task_groups(self) -> Iterable[TaskGroup]:
        return (self._tasks,)

    def _note_task(self, entry: Any, tasks: TaskGroup, task: asyncio.Task[None] | None) -> None:
        """Take note of *task*, once: an eager one does so itself, for its kernel may end the step before it awaits."""
        if entry not in tasks and task is not None:
            tasks[entry] = task
            self._num_tasks += 1

    def _forget(self, entry: Any, tasks: TaskGroup) -> None:
        if tasks.pop(entry, None) is not None:  # not there if the task was left behind
            self._num_tasks -= 1

    def _on_worker_done(self, entry: Any, calls: list[NodeCall], scheduled: int, outcomes: list[Outcome]) -> None:
        del self._jobs[entry]
        note_outcomes(calls, outcomes, scheduled, self._stats, self._collector)
        last = min(len(calls), len(outcomes)) - 1
        if last and self._failure is None:
            entry = pass_along(entry, calls[:last], self._propagator, self.ready)
        self._finish(entry, calls[last].item, outcomes[last].result, outcomes[last].error)

    def _finish(self, entry: Any, item: NodeItem, outputs: Any, error: BaseException | None) -> None:
        """Take what a kernel that ran elsewhere gave; after a failure, nothing more is propagated."""
        if self._failure is None:
            if error is None:
                try:
                    self._propagator.propagate_outputs(entry, outputs, self.ready)
                except Exception as raised:  # the outputs are not what the op promises
                    self._fail(entry, item, raised)
            else:
                self._fail(entry, item, error)
        self.wake()

    def _cancel_launched(self) -> None:
        self._ending = Ending(self._pool, self._loop)
        self._ending.cancel(self._task_groups())
        for entry in [entry for entry, job in self._jobs.items() if self._pool.cancel(job)]:
            del self._jobs[entry]

    def _drop_launched(self) -> None:
        self.ready.clear()
        for group in self._task_groups():
            group.clear()
        self._num_tasks = 0
        self._jobs.clear()
        self._propagator = EndedPropagatorState()

    def _endings(self) -> Iterable[Ending]:
        return () if self._ending is None else (self._ending,)

    async def _wait_for_launched(self) -> None:
        assert self._ending is not None  # _cancel_launched has been called
        if self._num_tasks:
            await self._wait_for_tasks(self._ending)
            return
        await (self.scope or self)._wait(self._ending.workers_left_s)
        if self._jobs and self._ending.workers_left_s == 0:
            self._ending.abandon(self._jobs)
            self._jobs.clear()

    async def _wait_for_tasks(self, ending: Ending) -> None:
        have_ended = await ending.wait_for_tasks(self._task_groups())
        if have_ended is None:
            return
        for group in self._task_groups():  # of a task that was cancelled before it began, nothing has been heard
            group.clear()
        self._num_tasks = 0
        if not have_ended:
            self._propagator = EndedPropagatorState()


def explained(raised: BaseException, item: NodeItem, inputs: Sequence[Any]) -> BaseException:
    """What *item*'s kernel raised, or the error that says why it did."""
    return explained_by(raised, item.check, inputs)
