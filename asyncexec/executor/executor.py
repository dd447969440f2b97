"""Executor: runs the steps of one signature.

An ExecutorState drives one step: it takes ready nodes one by one, calls cheap kernels on the spot, and launches the others;
what they give comes back through ``_finish``.  What becomes ready is the propagator's business alone.

The step's own coroutine, and callbacks of its loop, are alone in touching the state, so there are no locks.  The loop
is let go whenever a slice is spent; a step that awaits nothing ends without ever suspending.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

import anyio
import numpy as np

from asyncexec.compilation.graph_view import GraphView, NodeItem
from asyncexec.executor.kernel_errors import as_op_error
from asyncexec.executor.kernel_stats import ASYNC, EXPENSIVE_NS, KernelStats
from asyncexec.executor.offload import Outcome, WorkerPool
from asyncexec.executor.simple_propagator_state import SimplePropagatorState
from asyncexec.executor.step_stats_collector import StepStatsCollector
from asyncexec.framework.clock import NS_PER_MS, monotonic_ns

DEFAULT_SLICE_NS: Final = NS_PER_MS


class Executor:
    """What the steps of one signature share: the plan, and what its kernels have cost so far."""

    __slots__ = ("_pool", "_slice_ns", "stats", "view")

    def __init__(self, view: GraphView, pool: WorkerPool, slice_ns: int = DEFAULT_SLICE_NS) -> None:
        self.view = view
        self.stats = KernelStats(view.items)
        self._pool = pool
        self._slice_ns = slice_ns

    def start(self, feeds: Sequence[Any], collector: StepStatsCollector | None = None) -> ExecutorState:
        """A step with the values of *feeds*; nothing has run yet."""
        return ExecutorState(self, self._pool, self._slice_ns, feeds, collector)


class ExecutorState:
    """One step.  ``run_inline()`` first; if that says False, ``await run()``; then ``fetched()``."""

    __slots__ = (
        "_collector",
        "_failure",
        "_in_flight",
        "_places",
        "_pool",
        "_propagator",
        "_ready",
        "_slice_ns",
        "_stats",
        "_tasks",
        "_waiter",
    )

    def __init__(
        self,
        executor: Executor,
        pool: WorkerPool,
        slice_ns: int,
        feeds: Sequence[Any],
        collector: StepStatsCollector | None,
    ) -> None:
        self._stats = executor.stats
        self._places = executor.stats.places
        self._pool = pool
        self._slice_ns = slice_ns
        self._collector = collector
        self._propagator = SimplePropagatorState(executor.view)
        self._ready: deque[NodeItem] = deque()
        self._in_flight = 0
        self._tasks: dict[asyncio.Future[Any], tuple[NodeItem, int]] = {}
        self._waiter: asyncio.Future[None] | None = None
        self._failure: BaseException | None = None
        if collector is not None:
            collector.record_constants(executor.view.constants)
        self._propagator.activate_roots(feeds, self._ready)

    def run_inline(self) -> bool:
        """Run what is ready until a slice is spent; whether the step has ended.  Raises the step's failure."""
        try:
            self._drain()
        except BaseException as raised:
            # A KeyboardInterrupt, say: if something is in flight, run() ends it and raises this.
            self.abort(raised)
        if self._in_flight or (self._ready and self._failure is None):
            return False
        self._raise_failure()
        return True

    async def run(self) -> None:
        """Run to the end.  Whatever happens, nothing that the step started outlives this."""
        try:
            while self._failure is None:
                if self._ready:
                    await asyncio.sleep(0)
                elif self._in_flight:
                    await self._wait()
                else:
                    return
                self._drain()
        finally:
            if self._in_flight:
                await self._end_in_flight()
        self._raise_failure()

    def _raise_failure(self) -> None:
        # An error whose traceback holds this state must not be held by it in turn: the cycle would keep tensors alive.
        failure, self._failure = self._failure, None
        if failure is not None:
            try:
                raise failure
            finally:
                del failure

    def abort(self, error: BaseException) -> None:
        """End the step with *error*, unless it has failed already."""
        if self._failure is None:
            self._failure = error
        self._ready.clear()
        self._wake()

    def fetched(self) -> list[Any]:
        """The values of the fetches, after the step has ended."""
        return self._propagator.fetched()

    def _drain(self) -> None:
        """Run ready nodes until there are none, the slice is spent, or one fails."""
        ready, places, collector = self._ready, self._places, self._collector
        take_inputs, propagate_outputs = self._propagator.take_inputs, self._propagator.propagate_outputs
        with np.errstate(all="ignore"):
            now = monotonic_ns()
            end = now + self._slice_ns
            while ready:
                item = ready.popleft()
                if places[item.id]:
                    self._launch(item, now)
                    continue
                try:
                    outputs = item.kernel(*take_inputs(item))
                except Exception as raised:  # noqa: BLE001 - named and raised by run()
                    self.abort(as_op_error(raised, item.node))
                    return
                propagate_outputs(item, outputs, ready)
                before, now = now, monotonic_ns()
                if now - before > EXPENSIVE_NS:
                    self._stats.update(item.id, now - before)
                if collector is not None and not item.is_relay:
                    collector.record(item.node, before, before, now)
                if now > end:
                    return

    def _launch(self, item: NodeItem, now: int) -> None:
        inputs = self._propagator.take_inputs(item)
        if self._places[item.id] == ASYNC:
            task = asyncio.get_running_loop().create_task(item.kernel(*inputs))
            self._tasks[task] = (item, now)
            task.add_done_callback(self._on_task_done)
        else:
            self._pool.submit(item.kernel, inputs, lambda outcome: self._on_worker_done(item, now, outcome))
        self._in_flight += 1

    def _on_task_done(self, task: asyncio.Future[Any]) -> None:
        item, start = self._tasks.pop(task)
        if task.cancelled():
            self._finish(item, None, asyncio.CancelledError("the kernel was cancelled"))
            return
        error = task.exception()
        if self._collector is not None and error is None:
            self._collector.record(item.node, start, start, monotonic_ns())
        self._finish(item, None if error is not None else task.result(), error)

    def _on_worker_done(self, item: NodeItem, scheduled: int, outcome: Outcome) -> None:
        self._stats.update(item.id, outcome.end_ns - outcome.start_ns)
        if self._collector is not None and outcome.error is None:
            self._collector.record(item.node, scheduled, outcome.start_ns, outcome.end_ns, outcome.thread_id)
        self._finish(item, outcome.result, outcome.error)

    def _finish(self, item: NodeItem, outputs: Any, error: BaseException | None) -> None:
        """Take what a kernel that ran elsewhere gave; after a failure, nothing more is propagated."""
        self._in_flight -= 1
        if self._failure is None:
            if error is None:
                self._propagator.propagate_outputs(item, outputs, self._ready)
            else:
                self.abort(as_op_error(error, item.node))
        self._wake()

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def _wait(self) -> None:
        """Wait until something that was launched has come back, or the step is aborted."""
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    async def _end_in_flight(self) -> None:
        """Cancel what is awaited, and wait for it and for the worker threads, whoever else cancels meanwhile."""
        if self._failure is None:
            self._failure = asyncio.CancelledError()  # results that still come in are dropped
        for task in list(self._tasks):
            task.cancel()
        cancelled: asyncio.CancelledError | None = None
        with anyio.CancelScope(shield=True):
            while self._in_flight:
                try:
                    await self._wait()
                except asyncio.CancelledError as error:
                    cancelled = error
        if cancelled is not None:
            raise cancelled
