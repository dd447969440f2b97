"""WorkerStep: what a worker has of one step, from the first value that comes for it until it is forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from asyncexec.distributed.step_rendezvous import StepRendezvous
from asyncexec.executor.diagnostics.step_stats_collector import StepStatsCollector
from asyncexec.executor.engine.executor_barrier import ExecutorBarrier, PartitionedExecutor
from asyncexec.framework.derived import make_derived
from asyncexec.framework.errors import CancelledError, OpError
from asyncexec.framework.executor import ExecutorArgs
from asyncexec.framework.under_way import NodeUnderWay

# Is told, once, that the worker's part of a step has ended, and what it failed with.
AnyExecutor: TypeAlias = "PartitionedExecutor | asyncio.Future[PartitionedExecutor]"
OnEnd: TypeAlias = Callable[[BaseException | None, StepStatsCollector | None], None]


class WorkerStep:
    """See the head of this module.

    Attributes:
        rendezvous: where its values meet.
    """

    __slots__ = ("_halted_by", "_is_left", "_on_end", "_scope", "_task", "rendezvous")

    def __init__(self, rendezvous: StepRendezvous) -> None:
        self.rendezvous: StepRendezvous = rendezvous
        self._on_end: OnEnd | None = None  # of a part that runs
        self._scope: ExecutorBarrier | None = None
        self._task: asyncio.Task[None] | None = None
        self._halted_by: OpError | None = None
        self._is_left = False

    def begin(self, executor: AnyExecutor, args: ExecutorArgs, on_end: OnEnd) -> None:
        """Run the worker's part of the step, once *executor* is there."""
        self._on_end = on_end
        if isinstance(executor, asyncio.Future) and not executor.done():
            self._task = asyncio.get_running_loop().create_task(self._wait_and_run(executor, args))
            return
        try:  # most parts end at once, or wait for what comes: the first need no task
            ready = executor.result() if isinstance(executor, asyncio.Future) else executor
            scope = self._scope = ready.start_with(args)
            has_ended = scope.run_inline()
        except Exception as error:
            self._end(error, args)
        else:
            if has_ended:
                self._end(None, args)
            else:
                self._task = asyncio.get_running_loop().create_task(self._run(scope, args))

    def halt(self, error: OpError, *, is_left: bool = False) -> None:
        """End the worker's part with *error*: the step has failed elsewhere."""
        if self._scope is None:
            self._halted_by, self._is_left = error, is_left
            return
        if is_left:
            self._scope.leave()
        self._scope.abort(error)

    def lose(self, worker: str, error: OpError) -> None:
        """Expect nothing from *worker* any more."""
        self.rendezvous.lose(worker, error)

    @property
    def is_running(self) -> bool:
        """Whether the worker's part has begun and not ended."""
        return self._on_end is not None

    def forget(self) -> None:
        """Drop what has come since the step ended everywhere, and end what runs: nobody waits for it any more."""
        error = CancelledError("the step has ended")
        self.rendezvous.start_abort(error)
        if self.is_running:
            self.halt(make_derived(error), is_left=True)

    def under_way(self) -> list[NodeUnderWay]:
        """The nodes that have begun and not ended."""
        return [] if self._scope is None else list(self._scope.under_way())

    async def wait(self) -> None:
        """Returns when nothing of it runs any more."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _wait_and_run(self, executor: asyncio.Future[PartitionedExecutor], args: ExecutorArgs) -> None:
        try:
            ready = await asyncio.shield(executor)
            scope = ready.start_with(args)
        except (Exception, asyncio.CancelledError) as error:
            is_halted = self._halted_by is not None and _is_cancellation(error)
            self._end(self._halted_by if is_halted else error, args)
            return
        self._scope = scope
        if self._halted_by is not None:
            self.halt(self._halted_by, is_left=self._is_left)
        await self._run(scope, args)

    async def _run(self, scope: ExecutorBarrier, args: ExecutorArgs) -> None:
        try:
            await scope.run()
        except (Exception, asyncio.CancelledError) as error:
            self._end(error, args)
        else:
            self._end(None, args)

    def _end(self, error: BaseException | None, args: ExecutorArgs) -> None:
        self._scope = self._task = None
        on_end, self._on_end = self._on_end, None
        assert on_end is not None  # it ends once
        if error is not None and not isinstance(error, OpError):
            error = make_derived(CancelledError("the step was cancelled")) if _is_cancellation(error) else error
        on_end(error, args.stats_collector)


def _is_cancellation(error: BaseException) -> bool:
    return isinstance(error, asyncio.CancelledError)
