"""Executor: runs the steps of one signature.

An ExecutorState drives one step: it takes ready nodes one by one, calls cheap kernels on the spot, and launches the others;
what they give comes back through ``_finish``.  What becomes ready is the propagator's business alone.

The step's own coroutine, and callbacks of its loop, are alone in touching the state, so there are no locks.  The loop
is let go whenever a slice is spent; a step that awaits nothing ends without ever suspending.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Coroutine, Sequence
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
        "_loop",
        "_num_on_workers",
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
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[int, asyncio.Task[None]] = {}  # of async nodes, by item id
        self._num_on_workers = 0
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
        if self._is_waiting or (self._ready and self._failure is None):
            return False
        self._raise_failure()
        return True

    async def run(self) -> None:
        """Run to the end.  Whatever happens, nothing that the step started outlives this."""
        try:
            while self._failure is None:
                if self._ready:
                    await asyncio.sleep(0)
                elif self._is_waiting:
                    await self._wait()
                else:
                    return
                self._drain()
        finally:
            if self._is_waiting:
                await self._end_launched()
        self._raise_failure()

    def _raise_failure(self) -> None:
        # An error whose traceback holds this state must not be held by it in turn: the cycle would keep tensors alive.
        failure, self._failure = self._failure, None
        if failure is not None:
            try:
                raise failure
            finally:
                del failure

    @property
    def _is_waiting(self) -> bool:
        """Whether something that was launched has not come back."""
        return bool(self._tasks or self._num_on_workers)

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
            self._tasks[item.id] = self._loop.create_task(self._await_kernel(item, item.kernel(*inputs), now))
        else:
            self._num_on_workers += 1
            self._pool.submit(item.kernel, inputs, lambda outcome: self._on_worker_done(item, now, outcome))

    async def _await_kernel(self, item: NodeItem, coroutine: Coroutine[Any, Any, Any], start: int) -> None:
        """The body of an async node's task.  Ending the node here, and not in a callback, saves a turn of the loop."""
        if self._failure is not None:
            coroutine.close()
            del self._tasks[item.id]
            self._wake()
            return
        try:
            outputs = await coroutine
            if item.finish is not None:
                outputs = item.finish(outputs)
        except BaseException as error:  # noqa: BLE001 - run() raises it, whatever it is
            del self._tasks[item.id]
            self._finish(item, None, error)
            return
        del self._tasks[item.id]
        if self._collector is not None:
            self._collector.record(item.node, start, start, monotonic_ns())
        self._finish(item, outputs, None)

    def _on_worker_done(self, item: NodeItem, scheduled: int, outcome: Outcome) -> None:
        self._num_on_workers -= 1
        self._stats.update(item.id, outcome.end_ns - outcome.start_ns)
        if self._collector is not None and outcome.error is None:
            self._collector.record(item.node, scheduled, outcome.start_ns, outcome.end_ns, outcome.thread_id)
        self._finish(item, outcome.result, outcome.error)

    def _finish(self, item: NodeItem, outputs: Any, error: BaseException | None) -> None:
        """Take what a kernel that ran elsewhere gave; after a failure, nothing more is propagated."""
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
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    async def _end_launched(self) -> None:
        """Cancel what is awaited, and wait for it and for the worker threads, whoever else cancels meanwhile."""
        if self._failure is None:
            self._failure = asyncio.CancelledError()  # results that still come in are dropped
        for task in self._tasks.values():
            # A task that has not begun sees the failure when it does; cancelled now, it would never run at all.
            if inspect.getcoroutinestate(task.get_coro()) != inspect.CORO_CREATED:  # type: ignore[arg-type]
                task.cancel()
        cancelled: asyncio.CancelledError | None = None
        with anyio.CancelScope(shield=True):
            while self._is_waiting:
                try:
                    if self._tasks:
                        await asyncio.wait(self._tasks.values())
                        self._tasks.clear()
                    else:
                        await self._wait()
                except asyncio.CancelledError as error:
                    cancelled = error
        if cancelled is not None:
            raise cancelled
