"""ExecutorState: one step of an executor, or one partition's part of a step.

It takes ready nodes one by one, calls cheap kernels on the spot, and launches the others; what they give comes back
through ``_finish``.  What becomes ready is the propagator's business alone.

The step's own coroutine, and callbacks of its loop, are alone in touching the state, so there are no locks.  The loop
is let go whenever a slice is spent; a step that awaits nothing ends without ever suspending.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from contextvars import Context
from functools import partial
from typing import Any, Final, Protocol

from asyncexec.compilation.graph_view import GraphView, NodeItem
from asyncexec.executor.diagnostics.kernel_stats import (
    ASYNC,
    CAREFUL,
    INLINE,
    PASSIVE,
    SIZED,
    KernelStats,
    has_large,
    num_bytes,
)
from asyncexec.executor.diagnostics.step_observer import StepObserver
from asyncexec.executor.engine.ending import Ending
from asyncexec.executor.engine.frame import TaggedNode, TaskGroup
from asyncexec.executor.engine.grace_period import GracePeriod
from asyncexec.executor.engine.propagator import TaggedQueue
from asyncexec.executor.engine.propagator_state import PropagatorState
from asyncexec.executor.engine.ready_queue import RandomReadyQueue
from asyncexec.executor.engine.step_scope import Launched, StepScope
from asyncexec.executor.engine.transfer_scope import CATCHABLE, TransferScope
from asyncexec.executor.engine.undo_log import Record, UndoLog
from asyncexec.executor.workers.job import Job, Outcome, told_of
from asyncexec.executor.workers.offload import WorkerPool
from asyncexec.executor.workers.worker_chain import NodeCall, WorkerChains, note_outcomes, pass_along
from asyncexec.framework.cooperative import run_at_once
from asyncexec.framework.errors import OpError
from asyncexec.framework.foreign_errors import explained_by
from asyncexec.framework.kernel import Change
from asyncexec.framework.under_way import NodeUnderWay, frames_of
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
        "_stats",
        "context",
        "scope",
    )

    def __init__(
        self,
        plan: ExecutionPlan,
        pool: WorkerPool,
        slice_ns: int,
        feeds: Sequence[object] | None,
        observer: StepObserver | None,
        ready: TaggedQueue,
    ) -> None:
        super().__init__(slice_ns, plan.stats.holds, observer, ready)
        self.scope: StepScope | None = None  # the whole step, where this is a part of it
        self.context: Context | None = None
        self._stats = plan.stats
        self._chains = plan.chains
        self._places = plan.stats.places
        self._pool = pool
        queues_all = observer is not None or isinstance(ready, RandomReadyQueue)
        self._propagator = PropagatorState(plan.view, queues_all=queues_all)
        self._num_tasks = 0  # in the groups of all frames
        self._is_plain_loop: bool | None = None  # not asked yet
        self._jobs: dict[TaggedNode, Job] = {}  # of nodes on worker threads, by entry
        self._ending: Ending | None = None
        if observer is not None:
            observer.record_constants(plan.view.constants)
        self._propagator.activate_roots(feeds, self.ready)

    def be_careful(self, places: list[int] | None = None) -> None:
        """Call no kernel inline with large inputs that was never timed with such: *places*, if they are known."""
        self._places = places or run_at_once(self._stats.careful_places())

    @property
    def has_ready(self) -> bool:
        return bool(self.ready)

    @property
    def is_waiting(self) -> bool:
        return bool(self._num_tasks or self._jobs)

    def deliver_feed(self, index: int, value: object) -> None:
        self._note_large(value)
        if self._failure is None:
            try:
                self._propagator.deliver_feed(index, value, self.ready)
            except OpError as raised:  # a Switch, say, that takes the feed
                self.abort(raised)
        self.wake()

    @property
    def num_tasks(self) -> int:
        """How many async nodes are awaited."""
        return self._num_tasks

    @property
    def is_parked(self) -> bool:
        """Whether nodes wait for something from outside, which this step will not bring."""
        return False

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

    def _abort(self, error: BaseException) -> None:
        self._failure = error  # which is that of the whole step, too
        self.ready.clear()

    def release(self) -> BaseException | None:
        failure = super().release()
        if failure is not None:
            self._propagator.reset()  # a task that is left behind holds on to this
        self._propagator.close()
        return failure

    def fetched(self) -> list[Any]:
        return self._propagator.fetched()

    def _launch(self, entry: TaggedNode, item: NodeItem, now: int) -> None:
        inputs = self._propagator.take_inputs(entry)
        place = self._places[item.id]
        if self._observer is not None:
            self._observer.note_launch(item, entry[1].location, inputs)
        try:
            if place == ASYNC:
                self._start_awaiting(entry, item, inputs, now)
                return
            if place == CAREFUL and self._stats.stays_inline(item.id, inputs):
                self._run_inline(entry, item, inputs)
            else:
                self._run_sized(entry, item, inputs, num_bytes(inputs) if place in (SIZED, CAREFUL) else -1, now)
        except CATCHABLE as raised:
            self._note_ended(item, now, entry[1], error=raised)
            self._fail(entry, item, raised)

    def _run_sized(self, entry: TaggedNode, item: NodeItem, inputs: list[object], size: int, now: int) -> None:
        """Call the kernel of *item* inline, if it is known to be quick on *size* bytes of inputs, else on a worker."""
        if size >= 0 and self._stats.is_quick(item.id, size):
            self._run_inline(entry, item, inputs, size)
        else:
            self._stats.note_away(item.id)
            calls = self._calls(entry, item, inputs, size)
            done = partial(self._on_worker_done, entry, calls, now)
            self._jobs[entry] = self._pool.submit_calls(calls, done)

    def _calls(self, entry: TaggedNode, item: NodeItem, inputs: list[object], size: int) -> list[NodeCall]:
        """The call of *item*, and those that go along on its thread."""
        observer = self._observer
        if observer is not None and observer.wants_outputs:
            return [NodeCall(item, inputs, size)]
        state = self._propagator, self._places
        return self._chains.calls(entry, item, inputs, size, *state, is_observed=observer is not None)

    def _run_inline(self, entry: TaggedNode, item: NodeItem, inputs: list[object], size: int = -1) -> None:
        """Call the kernel of *item*, and take what that costs into account; *size* is that of a SIZED one's inputs."""
        now_ns = self.holds.clock.now_ns
        start = now_ns()
        outputs = item.checked_kernel(*inputs)
        self._propagator.propagate_outputs(entry, outputs, self.ready)
        elapsed = now_ns() - start
        if size >= 0:
            self._stats.update_sized(item.id, size, elapsed, is_inline=True)
        if elapsed > self._stats.expensive_ns:
            if size >= 0:
                self.holds.note(item.node, elapsed)
            else:
                self._stats.update_inline(item.id, elapsed, inputs, outputs)
        self._note_ended(item, start, entry[1], outputs=outputs)

    def _note_slow(self, item: NodeItem, elapsed_ns: int, inputs: Sequence[object], outputs: object) -> list[int]:
        """Take a slow call into account; the places from now on: what follows on something large is slow, too."""
        self._stats.update_inline(item.id, elapsed_ns, inputs, outputs)
        self._note_large(outputs)
        return self._places

    def _received(self, recv: NodeItem, scheduled: int, value: object) -> object:
        self._note_large(value)
        return super()._received(recv, scheduled, value)

    def _note_large(self, outputs: Any) -> None:
        is_large = has_large(outputs if type(outputs) in (tuple, list) else (outputs,))
        if is_large and self._places is self._stats.places:
            self.be_careful()

    def _start_awaiting(self, entry: TaggedNode, item: NodeItem, inputs: list[object], now: int) -> None:
        """Call the kernel of an async node, in a task of the group that *entry* belongs to."""
        call = item.kernel(*inputs)
        if item.is_undoable:
            self._note_change(entry, item, call)
        self._start_task(entry, item, call, now, self.context)

    def _start_task(
        self,
        entry: TaggedNode,
        item: NodeItem,
        call: Coroutine[Any, Any, object] | Change,
        now: int,
        context: Context | None,
    ) -> None:
        tasks = entry[1].frame.task_group()
        coroutine = self._await_kernel(entry, item, call, now, tasks)
        loop = self._loop
        if self._is_plain_loop is None:
            self._is_plain_loop = makes_plain_tasks(loop)
        if self._is_plain_loop:
            task = asyncio.Task(coroutine, loop=loop, name=item.node.name, context=context)
            tasks[entry] = task
            self._num_tasks += 1
        else:
            task = loop.create_task(coroutine, name=item.node.name, context=context)
            if not task.done():  # an eager task has begun, and may have run to the end
                self._note_task(entry, tasks, task)

    async def _await_kernel(
        self,
        entry: TaggedNode,
        item: NodeItem,
        coroutine: Coroutine[Any, Any, object] | Change,
        start: int,
        tasks: TaskGroup,
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
            self._note_ended(item, start, entry[1], error=error)
            if self._forget(entry, tasks) and not self._loop.is_closed():  # else nobody is there to be told
                self._finish(entry, item, None, error)
            return
        if tasks.pop(entry, None) is None:  # as _forget does, and then as _finish: calls cost more than they do
            return
        self._num_tasks -= 1
        if self._observer is not None:
            self._note_ended(item, start, entry[1], outputs=outputs)
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

    def _note_change(self, entry: TaggedNode, item: NodeItem, change: Change) -> None:
        """Let *change* be undone when the step is cancelled."""
        scope = self.scope or self
        if scope.undo_log is None:
            scope.undo_log = UndoLog()
        scope.undo_log.add(Record(change, item, self._stats.items, entry[1]))

    def _note_task(self, entry: TaggedNode, tasks: TaskGroup, task: asyncio.Task[None] | None) -> None:
        """Take note of *task*, once: an eager one does so itself, for its kernel may end the step before it awaits."""
        if entry not in tasks and task is not None:
            tasks[entry] = task
            self._num_tasks += 1

    def _forget(self, entry: TaggedNode, tasks: TaskGroup) -> bool:
        """Forget the task of *entry*; False if it was left behind, and so forgotten before."""
        if tasks.pop(entry, None) is None:
            return False
        self._num_tasks -= 1
        return True

    def _on_worker_done(
        self, entry: TaggedNode, calls: list[NodeCall], scheduled: int, outcomes: list[Outcome]
    ) -> None:
        del self._jobs[entry]
        note_outcomes(calls, outcomes, scheduled, self._stats, self._observer, entry[1].location)
        last = min(len(calls), len(outcomes)) - 1
        if self._failure is None:
            entry = pass_along(entry, calls, last, self._propagator, self.ready)
        self._note_large(outcomes[last].result)
        self._finish(entry, calls[last].item, outcomes[last].result, outcomes[last].error)

    def _finish(self, entry: TaggedNode, item: NodeItem, outputs: object, error: BaseException | None) -> None:
        """Take what a kernel that ran elsewhere gave; after a failure, nothing more is propagated."""
        if self._failure is None:
            if error is None:
                try:
                    self._propagator.propagate_outputs(entry, outputs, self.ready)
                except Exception as raised:  # the outputs are not what the op promises
                    self._fail(entry, item, raised)
            else:
                self._fail(entry, item, error)
        elif error is not None:
            (self.scope or self).note_later(item, error)
        self.wake()

    def _launched(self) -> Iterator[Launched]:
        for group in self.task_groups():
            for entry, task in list(group.items()):
                coroutine = task.get_coro()
                for frame in frames_of(coroutine):
                    yield frame.f_locals["item"], frame.f_locals["start"], coroutine, entry[1].location  # type: ignore[index]  # keys of groups are entries
                    break

    def found_under_way(self) -> Iterator[NodeUnderWay | tuple[str, StepScope]]:
        yield from super().found_under_way()
        for entry, job in self._jobs.items():
            assert isinstance(job.running, NodeCall)
            iteration = ", ".join(entry[1].location)
            yield NodeUnderWay(job.name, job.running.item.node.op, (told_of(job),), None, iteration)

    def _cancel_launched(self, grace_period: GracePeriod) -> None:
        self._ending = Ending(self._pool, self._loop, grace_period)
        self._ending.cancel(self.task_groups())
        for entry in [entry for entry, job in self._jobs.items() if self._pool.cancel(job)]:
            del self._jobs[entry]

    def _abandon_launched(self) -> None:
        self.ready.clear()
        for group in self.task_groups():
            group.clear()
        self._num_tasks = 0
        self._jobs.clear()

    async def _wait_for_launched(self) -> None:
        assert self._ending is not None  # _cancel_launched has been called
        if self._num_tasks:
            await self._wait_for_tasks(self._ending)
            return
        await (self.scope or self)._wait(self._ending.workers_left_s)
        if self._jobs and self._ending.workers_left_s == 0:
            self._ending.abandon(self._jobs.values())
            self._jobs.clear()

    async def _wait_for_tasks(self, ending: Ending) -> None:
        if await ending.wait_for_tasks(self.task_groups()) is None:
            return
        for group in self.task_groups():  # of a task that was cancelled before it began, nothing has been heard
            group.clear()
        self._num_tasks = 0


def explained(raised: BaseException, item: NodeItem, inputs: Sequence[object]) -> BaseException:
    """What *item*'s kernel raised, or the error that says why it did."""
    return explained_by(raised, item.check, inputs)
