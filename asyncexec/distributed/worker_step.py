"""WorkerStep: what a worker has of one step, from the first value that comes for it until it is forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from asyncexec.distributed.step_rendezvous import StepRendezvous
from asyncexec.executor.diagnostics.step_stats_collector import StepStatsCollector
from asyncexec.executor.engine.executor_barrier import ExecutorBarrier, PartitionedExecutor
from asyncexec.framework.derived import copy_of, make_derived
from asyncexec.framework.errors import CancelledError, OpError
from asyncexec.framework.executor import ExecutorArgs

AnyExecutor: TypeAlias = "PartitionedExecutor | asyncio.Future[PartitionedExecutor]"
# Is told, once, that the worker's part of a step has ended, and what it failed with.
OnEnd: TypeAlias = Callable[[BaseException | None, StepStatsCollector | None], None]


class WorkerStep:
    """See the head of this module.

    Attributes:
        rendezvous: where its values meet.
        has_begun: whether its partitions have been told to run.
    """

    __slots__ = ("_on_end", "_scope", "_task", "has_begun", "rendezvous")

    def __init__(self, rendezvous: StepRendezvous) -> None:
        self.rendezvous: StepRendezvous = rendezvous
        self.has_begun: bool = False
        self._on_end: OnEnd | None = None  # of a part that runs
        self._scope: ExecutorBarrier | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def has_ended(self) -> bool:
        """Whether nothing of it runs any more."""
        return self.has_begun and self._on_end is None

    def begin(self, executor: AnyExecutor, args: ExecutorArgs, on_end: OnEnd) -> None:
        """Run the worker's part of the step, once *executor* is there."""
        self.has_begun = True
        self._on_end = on_end
        if not isinstance(executor, asyncio.Future) or executor.done():
            self._start(args, executor)
        else:
            executor.add_done_callback(partial(self._start, args))

    def cancel(self, error: OpError) -> None:
        """``abort``, and nobody waits for the results of the step."""
        self.rendezvous.drop()
        if self._scope is not None:
            self._scope.cancel(copy_of(error))
        self.abort(error)

    def abort(self, error: OpError) -> None:
        """End the worker's part with *error*: the step has failed elsewhere."""
        self.rendezvous.drop()
        if self._scope is not None:
            self._scope.abort(copy_of(error))
        elif self._on_end is not None:  # it waits for its executor
            self.rendezvous.start_abort(error)
            self._end(error, None)

    def fail(self, error: OpError) -> bool:
        """End the step for lack of what it needs; False if the worker's part has ended before."""
        is_in_time = not self.has_ended
        self.abort(error)
        self.rendezvous.start_abort(error)
        return is_in_time

    def lose(self, worker: str, error: OpError) -> bool:
        """Expect nothing from *worker* any more; False if that ends the step, but its part here has ended before."""
        return not self.rendezvous.lose(worker, error) or self.fail(error)

    def release(self) -> None:
        """Drop what has come since the step ended everywhere."""
        self.rendezvous.drop()
        self.rendezvous.start_abort(CancelledError("the step has ended"))

    async def wait(self) -> None:
        """Returns when nothing of it runs any more."""
        if self._task is not None:
            await asyncio.wait([self._task])

    def _start(self, args: ExecutorArgs, executor: AnyExecutor) -> None:
        if self._on_end is None:
            return  # it was aborted while it waited
        try:  # most parts end at once, or wait for what comes: the first need no task
            ready = executor.result() if isinstance(executor, asyncio.Future) else executor
            scope = self._scope = ready.start_with(args)
            has_ended = scope.run_inline()
        except (Exception, asyncio.CancelledError) as error:
            self._end(error, args.stats_collector)
        else:
            if has_ended:
                self._end(None, args.stats_collector)
            else:
                self._task = asyncio.get_running_loop().create_task(self._run(scope, args))

    async def _run(self, scope: ExecutorBarrier, args: ExecutorArgs) -> None:
        try:
            await scope.run()
        except (Exception, asyncio.CancelledError) as error:
            self._end(error, args.stats_collector)
        else:
            self._end(None, args.stats_collector)

    def _end(self, error: BaseException | None, collector: StepStatsCollector | None) -> None:
        self._scope = self._task = None
        on_end, self._on_end = self._on_end, None
        assert on_end is not None  # it ends once
        if isinstance(error, asyncio.CancelledError):
            error = make_derived(CancelledError("the step was cancelled"))
        on_end(error, collector)
