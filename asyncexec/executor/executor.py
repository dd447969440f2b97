"""Executor: runs the steps of one signature.

An ExecutorState drives one step: it takes ready nodes one by one, calls cheap kernels on the spot, and launches the
others; what they give comes back through ``_finish``.  What becomes ready is the propagator's business alone.  Where a
graph is spread over partitions, each has its ExecutorState, and an ExecutorBarrier drives them all.

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
from typing import Any, Final

import numpy as np

from asyncexec.compilation.graph_view import GraphView, NodeItem
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
from asyncexec.executor.one_by_one import OneByOnePropagatorState
from asyncexec.executor.propagator_state import PropagatorState
from asyncexec.executor.simple_propagator_state import SimplePropagatorState
from asyncexec.executor.step_scope import StepScope
from asyncexec.executor.step_stats_collector import StepStatsCollector
from asyncexec.framework.clock import NS_PER_MS, monotonic_ns
from asyncexec.framework.errors import OpError
from asyncexec.framework.kernel import DEAD
from asyncexec.framework.rendezvous import Received, Rendezvous

DEFAULT_SLICE_NS: Final = NS_PER_MS
# What a kernel may raise: a CancelledError is the caller's only where the step awaits; the rest is not ours to catch.
CATCHABLE: Final = (Exception, asyncio.CancelledError)
_ON_THE_SPOT: Final = (INLINE, PASSIVE)


class Executor:
    """What the steps of one signature share: the plan, and what its kernels have cost so far.

    A *schedule_seed* makes each step take ready nodes in an order drawn from it: results must not depend on the order.
    """

    __slots__ = ("_pool", "_schedule_seed", "_slice_ns", "stats", "view")

    def __init__(
        self, view: GraphView, pool: WorkerPool, slice_ns: int = DEFAULT_SLICE_NS, schedule_seed: int | None = None
    ) -> None:
        self.view = view
        self.stats = KernelStats(view.items, has_control_flow=view.has_control_flow)
        self._pool = pool
        self._slice_ns = slice_ns
        self._schedule_seed = schedule_seed

    def start(
        self,
        feeds: Sequence[Any],
        collector: StepStatsCollector | None = None,
        rendezvous: Rendezvous | None = None,
        context: Context | None = None,
    ) -> ExecutorState:
        """A step with the values of *feeds*, or the part of one that meets others in *rendezvous*; nothing has run yet.

        Async kernels run in *context*, where one is given.
        """
        order = None if self._schedule_seed is None else Random(self._schedule_seed)
        kind = TaggedExecutorState if self.view.has_control_flow else ExecutorState
        state = kind(self, self._pool, self._slice_ns, feeds, collector, order)
        state.rendezvous, state.context = rendezvous, context
        return state


class ExecutorState(StepScope):
    """One step, or one partition's part of it.  When it has run, ``fetched()`` has the values."""

    __slots__ = (
        "_collector",
        "_jobs",
        "_num_tasks",
        "_places",
        "_pool",
        "_propagator",
        "_random",
        "_ready",
        "_recvs",
        "_slice_ns",
        "_stats",
        "_tasks",
        "context",
        "rendezvous",
        "scope",
    )

    def __init__(
        self,
        executor: Executor,
        pool: WorkerPool,
        slice_ns: int,
        feeds: Sequence[Any],
        collector: StepStatsCollector | None,
        order: Random | None,
    ) -> None:
        super().__init__()
        self.scope: StepScope | None = None  # the whole step, where this is a part of it
        self.rendezvous: Rendezvous | None = None
        self.context: Context | None = None
        self._stats = executor.stats
        self._places = executor.stats.places
        self._pool = pool
        self._slice_ns = slice_ns
        self._collector = collector
        self._random = order
        self._propagator: Any = self._make_propagator(executor.view)
        # What the propagator says is ready: it alone knows what its entries are, apart from the item in each.
        self._ready: deque[Any] = deque()
        self._tasks: TaskGroup = {}  # of async nodes; where there are frames, each has a group of its own
        self._num_tasks = 0  # in all groups
        self._jobs: dict[Any, Job] = {}  # of nodes on worker threads, by entry
        self._recvs: dict[Any, NodeItem] = {}  # that wait in the rendezvous, by entry
        if collector is not None:
            collector.record_constants(executor.view.constants)
        self._propagator.activate_roots(feeds, self._ready)

    @property
    def has_ready(self) -> bool:
        return bool(self._ready)

    @property
    def is_waiting(self) -> bool:
        return bool(self._num_tasks or self._jobs)

    def waiting_recvs(self) -> list[str]:
        """The names of the Recvs that wait for a value."""
        return [item.node.name for item in self._recvs.values()]

    def abort(self, error: BaseException) -> None:
        if self.scope is None:
            super().abort(error)
        else:
            self.scope.abort(error)

    def wake(self) -> None:
        if self.scope is None:
            super().wake()
        else:
            self.scope.wake()

    def _stop(self, error: BaseException) -> None:
        self._ready.clear()

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
            now = monotonic_ns()
            self.run_ready(now, now + self._slice_ns)

    def run_ready(self, now: int, end: int) -> None:
        """Run ready nodes until there are none, the time *end* has come, or one fails."""
        ready, places, collector = self._ready, self._places, self._collector
        take_inputs, propagate_outputs = self._propagator.take_inputs, self._propagator.propagate_outputs
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
                    return
                continue
            inputs = take_inputs(item)
            try:
                propagate_outputs(item, item.kernel(*inputs), ready)
            except CATCHABLE as raised:
                self._fail(item, item, _explained(raised, item, inputs))
                return
            before, now = now, monotonic_ns()
            if now - before > EXPENSIVE_NS:
                self._stats.update(item.id, now - before)
            if collector is not None and not item.is_relay:
                collector.record(item, before, before, now)
            if now > end:
                return

    def _take_any(self) -> Any:
        assert self._random is not None
        self._ready.rotate(-self._random.randrange(len(self._ready)))
        return self._ready.popleft()

    def _fail(self, entry: Any, item: NodeItem, raised: BaseException) -> None:
        self.abort(as_op_error(raised, item.node))

    def _transfer(self, entry: Any, item: NodeItem, now: int, *, is_dead: bool = False) -> None:
        """Send to the rendezvous or receive from it: the one kind of node that runs when it is dead."""
        transfer, rendezvous = item.transfer, self.rendezvous
        assert transfer is not None and rendezvous is not None  # who has transfers is given a rendezvous
        key = self._propagator.rendezvous_key(entry, transfer)
        if not transfer.is_send:
            self._recvs[entry] = item
            rendezvous.recv_async(
                key, transfer.args, lambda error, found: self._on_received(entry, item, now, error, found)
            )
        elif is_dead:
            rendezvous.send(key, transfer.args, None, True)
            self._propagator.settle(entry, self._ready)
        else:
            (value,) = self._propagator.take_inputs(entry)
            rendezvous.send(key, transfer.args, value.read() if transfer.reads else value, False)
            self._record_transfer(item, now)
            self._propagator.propagate_outputs(entry, (), self._ready)

    def _on_received(
        self, entry: Any, item: NodeItem, scheduled: int, error: OpError | None, found: Received | None
    ) -> None:
        del self._recvs[entry]
        outputs: Any = None
        if found is not None:
            value, is_dead, _ = found
            if is_dead:
                outputs = DEAD
            else:
                outputs = value if item.finish is None else item.finish(value)
                self._record_transfer(item, scheduled)
        self._finish(entry, item, outputs, error)

    def _record_transfer(self, item: NodeItem, scheduled: int) -> None:
        if self._collector is not None:
            self._collector.record(item, scheduled, scheduled, monotonic_ns())

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
                    item.checked_kernel, inputs, lambda outcome: self._on_worker_done(entry, item, size, now, outcome)
                )
        except CATCHABLE as raised:
            self._fail(entry, item, raised)

    def _run_sized(self, entry: Any, item: NodeItem, inputs: list[Any], size: int) -> None:
        start = monotonic_ns()
        outputs = item.checked_kernel(*inputs)
        self._propagator.propagate_outputs(entry, outputs, self._ready)
        end = monotonic_ns()
        self._stats.update_sized(item.id, size, end - start)
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
            outputs = await coroutine
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
                    self._propagator.propagate_outputs(entry, outputs, self._ready)
                except Exception as raised:  # the outputs are not what the op promises
                    self._fail(entry, item, raised)
            else:
                self._fail(entry, item, error)
        self.wake()

    def _cancel_launched(self) -> None:
        for task in [task for group in self._task_groups() for task in group.values()]:
            # A task that has not begun sees the failure when it does; cancelled now, it would never run at all.
            if inspect.getcoroutinestate(task.get_coro()) != inspect.CORO_CREATED:  # type: ignore[arg-type]
                task.cancel()
        for entry in [entry for entry, job in self._jobs.items() if self._pool.cancel(job)]:
            del self._jobs[entry]

    async def _wait_for_launched(self) -> None:
        if self._num_tasks:
            await asyncio.wait([task for group in self._task_groups() for task in group.values()])
            for group in self._task_groups():  # of a task that was cancelled before it began, nothing has been heard
                group.clear()
            self._num_tasks = 0
        else:
            await (self.scope or self)._wait()


class TaggedExecutorState(ExecutorState):
    """A step of a graph with control flow: its entries are TaggedNodes, of which the dead do not run."""

    __slots__ = ()

    def _make_propagator(self, view: GraphView) -> Any:
        one_by_one = self._collector is not None or self._random is not None
        return OneByOnePropagatorState(view) if one_by_one else PropagatorState(view)

    def run_ready(self, now: int, end: int) -> None:
        """The base's loop over TaggedNodes, written out again: a call more for each node would cost a tenth."""
        ready, places, collector = self._ready, self._places, self._collector
        propagator: PropagatorState = self._propagator
        take_inputs, propagate_outputs = propagator.take_inputs, propagator.propagate_outputs
        take_next = ready.popleft if self._random is None else self._take_any
        while ready:
            tagged = take_next()
            item, _, is_dead = tagged
            place = places[item.id]
            inputs: Sequence[Any] = ()
            try:
                if not place and not is_dead:
                    inputs = take_inputs(tagged)
                    propagate_outputs(tagged, item.kernel(*inputs), ready)
                elif place == TRANSFER:
                    self._transfer(tagged, item, now, is_dead=is_dead)
                elif is_dead or place == PASSIVE:
                    propagator.settle(tagged, ready)
                else:
                    self._launch(tagged, item, now)
            except CATCHABLE as raised:
                self._fail(tagged, item, _explained(raised, item, inputs))
                return
            before, now = now, monotonic_ns()
            if now - before > EXPENSIVE_NS and place == INLINE:
                self._stats.update(item.id, now - before)
            if collector is not None and place in _ON_THE_SPOT and not (is_dead or item.is_relay):
                collector.record(item, before, before, now)
            if now > end:
                return

    def _tasks_of(self, entry: Any) -> TaskGroup:
        group: TaskGroup = self._propagator.task_group(entry)
        return group

    def _task_groups(self) -> Iterable[TaskGroup]:
        return list(self._propagator.task_groups())

    def _fail(self, entry: Any, item: NodeItem, raised: BaseException) -> None:
        error = as_op_error(raised, item.node)
        if isinstance(error, OpError):
            error.locate_iteration(self._propagator.location(entry))
        self.abort(error)


def _explained(raised: BaseException, item: NodeItem, inputs: Sequence[Any]) -> BaseException:
    """What *item*'s kernel raised, or the error that says why it did."""
    if item.check is not None and inputs:
        try:
            item.check(*inputs)
        except OpError as error:
            return error
    return raised
