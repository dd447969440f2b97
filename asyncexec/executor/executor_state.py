"""ExecutorState: one step of an executor, or one partition's part of a step.

It takes ready nodes one by one, calls cheap kernels on the spot, and launches the others; what they give comes back
through ``_finish``.  What becomes ready is the propagator's business alone.

The step's own coroutine, and callbacks of its loop, are alone in touching the state, so there are no locks.  The loop
is let go whenever a slice is spent; a step that awaits nothing ends without ever suspending.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Coroutine, Iterable, Sequence
from contextvars import Context
from random import Random
from typing import Any, Final, Protocol, TypeAlias

import numpy as np

from asyncexec.compilation.bind_kernel import Transfer
from asyncexec.compilation.graph_view import GraphView, NodeItem
from asyncexec.executor.ending import EndedPropagatorState, Ending
from asyncexec.executor.frame import TaskGroup
from asyncexec.executor.kernel_errors import as_op_error
from asyncexec.executor.kernel_stats import (
    ASYNC,
    EXPENSIVE_NS,
    INLINE,
    PASSIVE,
    SIZED,
    TRANSFER,
    KernelStats,
    num_bytes,
)
from asyncexec.executor.offload import Job, Outcome, WorkerPool
from asyncexec.executor.simple_propagator_state import SimplePropagatorState
from asyncexec.executor.slots import take_inputs
from asyncexec.executor.step_scope import StepScope
from asyncexec.executor.step_stats_collector import StepStatsCollector
from asyncexec.framework.clock import monotonic_ns
from asyncexec.framework.errors import OpError
from asyncexec.framework.kernel import DEAD
from asyncexec.framework.rendezvous import Received, Rendezvous

# What a kernel may raise: a CancelledError is the caller's only where the step awaits; the rest is not ours to catch.
CATCHABLE: Final = (Exception, asyncio.CancelledError)
ON_THE_SPOT: Final = (INLINE, PASSIVE)


class ExecutionPlan(Protocol):
    """What a step needs of its executor."""

    @property
    def view(self) -> GraphView: ...

    @property
    def stats(self) -> KernelStats: ...


class ExecutorState(StepScope):
    """One step, or one partition's part of it.  When it has run, ``fetched()`` has the values."""

    __slots__ = (
        "_collector",
        "_ending",
        "_jobs",
        "_num_tasks",
        "_places",
        "_pool",
        "_propagator",
        "_random",
        "_recvs",
        "_slice_ns",
        "_stats",
        "_tasks",
        "context",
        "holds",
        "ready",
        "rendezvous",
        "scope",
        "standing",
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
        super().__init__()
        self.scope: StepScope | None = None  # the whole step, where this is a part of it
        self.rendezvous: Rendezvous | None = None
        self.standing: dict[str, Standing] = {}  # of the whole step: Recvs that Sends may hand values to, by key
        self.context: Context | None = None
        self._stats = plan.stats
        self.holds = plan.stats.holds
        self._places = plan.stats.places
        self._pool = pool
        self._slice_ns = slice_ns
        self._collector = collector
        self._random = order
        self._propagator: Any = self._make_propagator(plan.view)
        # What the propagator says is ready: it alone knows what its entries are, apart from the item in each.
        self.ready: deque[Any] = deque()
        self._tasks: TaskGroup = {}  # of async nodes; where there are frames, each has a group of its own
        self._num_tasks = 0  # in all groups
        self._jobs: dict[Any, Job] = {}  # of nodes on worker threads, by entry
        self._ending: Ending | None = None
        self._recvs: dict[Any, NodeItem] = {}  # that wait in the rendezvous, by entry
        if collector is not None:
            collector.record_constants(plan.view.constants)
        self._propagator.activate_roots(feeds, self.ready)

    @property
    def has_ready(self) -> bool:
        return bool(self.ready)

    @property
    def is_waiting(self) -> bool:
        return bool(self._num_tasks or self._jobs)

    def deliver_feed(self, index: int, value: Any) -> None:
        """Take the value of one feed, in a step that was started without feeds."""
        if self._failure is None:
            try:
                self._propagator.deliver_feed(index, value, self.ready)
            except OpError as raised:  # a Switch, say, that takes the feed
                self.abort(raised)
        self.wake()

    def rest(self) -> None:
        """Let go of all values, when this, a step of its own without control flow, has ended well."""
        self._waiter = None
        self._propagator.reset()

    def restart(self, feeds: Sequence[Any] | None) -> None:
        """Be the next step of the same plan, after ``rest``: that is cheaper than to make another."""
        self._propagator.activate_roots(feeds, self.ready)

    @property
    def num_tasks(self) -> int:
        """How many async nodes are awaited."""
        return self._num_tasks

    @property
    def has_jobs(self) -> bool:
        """Whether anything is with worker threads."""
        return bool(self._jobs)

    def waiting_recvs(self) -> list[str]:
        """The names of the Recvs that wait for a value."""
        return [item.node.name for item in self._recvs.values()]

    def abort(self, error: BaseException) -> None:
        if self.scope is None:
            super().abort(error)
        else:
            self.scope.abort(error)

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
        if self._failure is None:
            self._failure = error
        self._stop(error)

    def fetched(self) -> list[Any]:
        """The values of the fetches, after the step has ended."""
        values: list[Any] = self._propagator.fetched()
        return values

    def _make_propagator(self, view: GraphView) -> Any:
        return SimplePropagatorState(view)

    def _drain(self) -> None:
        with np.errstate(all="ignore"):
            start = monotonic_ns()
            elapsed = self.run_ready(start, start + self._slice_ns) - start
        if elapsed > self.holds.longest_slice_ns:
            self.holds.longest_slice_ns = elapsed

    def run_ready(self, now: int, end: int) -> int:
        """Run ready nodes until there are none, the time *end* has come, or one fails; the time that it is then."""
        ready, places, collector = self.ready, self._places, self._collector
        slots, propagate_outputs = self._propagator.inputs, self._propagator.propagate_outputs
        take_next = ready.popleft if self._random is None else self._take_any
        while ready:
            item = take_next()
            if places[item.id]:
                if places[item.id] == TRANSFER:
                    self._transfer(item, item, now)
                else:
                    self._launch(item, item, now)
                now = monotonic_ns()
                if now > end:
                    return now
                continue
            inputs = take_inputs(slots, item)
            try:
                propagate_outputs(item, item.kernel(*inputs), ready)
            except CATCHABLE as raised:
                self._fail(item, item, explained(raised, item, inputs))
                return now
            before, now = now, monotonic_ns()
            if now - before > EXPENSIVE_NS:
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
        self.abort(as_op_error(raised, item.node))

    def _transfer(self, entry: Any, item: NodeItem, now: int, *, is_dead: bool = False) -> None:
        """Send, or receive: the one kind of node that runs when it is dead."""
        transfer = item.transfer
        assert transfer is not None
        try:
            if transfer.is_send:
                self._send(entry, item, transfer, now, is_dead=is_dead)
            else:
                self._recv(entry, item, transfer, now)
        except CATCHABLE as raised:
            self._fail(entry, item, raised)

    def _send(self, entry: Any, item: NodeItem, transfer: Transfer, now: int, *, is_dead: bool) -> None:
        propagator, value = self._propagator, DEAD
        if not is_dead:
            (value,) = propagator.take_inputs(entry)
            if transfer.reads:
                value = value.read()
            if self._collector is not None:
                self._collector.record(item, now, now, monotonic_ns())
        key = propagator.rendezvous_key(entry, transfer)
        receiver = self.standing.pop(key, None) if self.standing else None
        if receiver is not None:
            recv, state = receiver
            state.receive(recv, now, value)
        else:
            assert self.rendezvous is not None  # who has transfers is given one
            self.rendezvous.send(key, transfer.args, None if is_dead else value, is_dead)
        if is_dead:
            propagator.settle(entry, self.ready)
        else:
            propagator.propagate_sent(entry, self.ready)

    def _recv(self, entry: Any, item: NodeItem, transfer: Transfer, now: int) -> None:
        assert self.rendezvous is not None
        self._recvs[entry] = item
        self.rendezvous.recv_async(
            self._propagator.rendezvous_key(entry, transfer),
            transfer.args,
            lambda error, found: self._on_received(entry, item, now, error, found),
        )

    def receive(self, recv: NodeItem, now: int, value: Any) -> None:
        """Let a Recv that waits outside of all loops have its value, or DEAD."""
        propagator = self._propagator
        propagator.propagate_outputs(propagator.root_entry(recv), self._received(recv, now, value), self.ready)

    def _on_received(
        self, entry: Any, item: NodeItem, scheduled: int, error: OpError | None, found: Received | None
    ) -> None:
        del self._recvs[entry]
        outputs: Any = None
        if found is not None:
            value, is_dead, _ = found
            try:
                outputs = self._received(item, scheduled, DEAD if is_dead else value)
            except OpError as wrong:
                error = wrong
        self._finish(entry, item, outputs, error)

    def _received(self, recv: NodeItem, scheduled: int, value: Any) -> Any:
        """*value*, checked and recorded where that is wanted."""
        if value is not DEAD:
            if recv.finish is not None:
                value = recv.finish(value)
            if self._collector is not None:
                self._collector.record(recv, scheduled, scheduled, monotonic_ns())
        return value

    def _launch(self, entry: Any, item: NodeItem, now: int) -> None:
        inputs = self._propagator.take_inputs(entry)
        try:
            if self._places[item.id] == ASYNC:
                coroutine = self._await_kernel(entry, item, item.kernel(*inputs), now)
                task = self._loop.create_task(coroutine, context=self.context)
                if not task.done():  # an eager task may have run to the end
                    self._tasks_of(entry)[entry] = task
                    self._num_tasks += 1
                return
            size = num_bytes(inputs) if self._places[item.id] == SIZED else -1
            if size >= 0 and self._stats.is_quick(item.id, size):
                self._run_sized(entry, item, inputs, size)
            else:
                self._jobs[entry] = self._pool.submit(
                    item.checked_kernel,
                    inputs,
                    lambda outcome: self._on_worker_done(entry, item, size, now, outcome),
                    item.node.name,
                )
        except CATCHABLE as raised:
            self._fail(entry, item, raised)

    def _run_sized(self, entry: Any, item: NodeItem, inputs: list[Any], size: int) -> None:
        start = monotonic_ns()
        outputs = item.checked_kernel(*inputs)
        self._propagator.propagate_outputs(entry, outputs, self.ready)
        end = monotonic_ns()
        self._stats.update_sized(item.id, size, end - start)
        if end - start > EXPENSIVE_NS:
            self.holds.note(item.node, end - start)
        if self._collector is not None:
            self._collector.record(item, start, start, end)

    async def _await_kernel(self, entry: Any, item: NodeItem, coroutine: Coroutine[Any, Any, Any], start: int) -> None:
        """The body of an async node's task.  Ending the node here, and not in a callback, saves a turn of the loop."""
        if self._failure is not None:
            coroutine.close()
            self._forget_task(entry)
            self.wake()
            return
        try:
            outputs = await self._stats.watch(item.id, coroutine)
            if item.finish is not None:
                outputs = item.finish(outputs)
        except BaseException as error:
            self._forget_task(entry)
            self._finish(entry, item, None, error)
            return
        self._forget_task(entry)
        if self._collector is not None:
            self._collector.record(item, start, start, monotonic_ns())
        self._finish(entry, item, outputs, None)

    def _tasks_of(self, entry: Any) -> TaskGroup:
        """The group that the task of *entry* belongs to."""
        return self._tasks

    def _task_groups(self) -> Iterable[TaskGroup]:
        return (self._tasks,)

    def _forget_task(self, entry: Any) -> None:
        if self._tasks_of(entry).pop(entry, None) is not None:  # not there where an eager task runs to the end at once
            self._num_tasks -= 1

    def _on_worker_done(self, entry: Any, item: NodeItem, size: int, scheduled: int, outcome: Outcome) -> None:
        del self._jobs[entry]
        elapsed_ns = outcome.end_ns - outcome.start_ns
        if outcome.error is not None:
            pass  # how long it takes to fail says nothing
        elif size >= 0:
            self._stats.update_sized(item.id, size, elapsed_ns)
        else:
            self._stats.update(item.id, elapsed_ns)
        if self._collector is not None and outcome.error is None:
            self._collector.record(item, scheduled, outcome.start_ns, outcome.end_ns, outcome.thread_id)
        self._finish(entry, item, outcome.result, outcome.error)

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
        for task in [task for group in self._task_groups() for task in group.values()]:
            # A task that has not begun sees the failure when it does; cancelled now, it would never run at all.
            if inspect.getcoroutinestate(task.get_coro()) != inspect.CORO_CREATED:  # type: ignore[arg-type]
                task.cancel()
        for entry in [entry for entry, job in self._jobs.items() if self._pool.cancel(job)]:
            del self._jobs[entry]

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
        tasks = [task for group in self._task_groups() for task in group.values()]
        _, late = await asyncio.wait(tasks, timeout=ending.tasks_left_s)
        if late:
            if ending.cancel_again(late):
                return
            ending.leave_tasks(self._task_groups())
        for group in self._task_groups():  # of a task that was cancelled before it began, nothing has been heard
            group.clear()
        self._num_tasks = 0
        if late:
            self._propagator = EndedPropagatorState()


# A Recv that is ready from the start of the step, and the partition's state that it is in.
Standing: TypeAlias = tuple[NodeItem, ExecutorState]


def explained(raised: BaseException, item: NodeItem, inputs: Sequence[Any]) -> BaseException:
    """What *item*'s kernel raised, or the error that says why it did."""
    if item.check is not None and inputs:
        try:
            item.check(*inputs)
        except OpError as error:
            return error
    return raised
