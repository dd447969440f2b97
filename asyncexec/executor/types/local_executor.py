"""LocalExecutor: the general executor as what users know as an executor."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from asyncexec.executor.engine.executor_barrier import ExecutorBarrier, PartitionedExecutor, PartitionExecutor
from asyncexec.executor.types.executor_params import ExecutorParams, general_executor
from asyncexec.executor.workers.offload import WorkerPool
from asyncexec.framework.cancellation import CancellationManager
from asyncexec.framework.cooperative import run_at_once
from asyncexec.framework.errors import CancelledError
from asyncexec.framework.executor import Executor, ExecutorArgs, current_step


class LocalExecutor(Executor):
    """Runs a graph by the general executor, branches and loops included."""

    __slots__ = ("_device", "_pool", "_steps")

    def __init__(self, params: ExecutorParams) -> None:
        part = PartitionExecutor(run_at_once(general_executor(params)), (), ())
        self._steps = PartitionedExecutor([part], 0, None, params.slice_ns)
        self._device = params.device
        self._pool = params.pool

    async def run(self, args: ExecutorArgs) -> None:
        pool = args.runner or self._pool
        own_pool = WorkerPool() if pool is None else None
        args = replace(args, runner=pool or own_pool)
        token = current_step.set(args)
        try:
            await _run(self._steps.start_with(args), args.cancellation_manager)
            if args.sync_on_finish:
                await self._device.context.sync()
        finally:
            current_step.reset(token)
            if own_pool is not None:
                await own_pool.close()


async def _run(step: ExecutorBarrier, manager: CancellationManager | None) -> None:
    with _cancelled_by(manager, step):
        if not step.run_inline():
            await step.run()


@contextmanager
def _cancelled_by(manager: CancellationManager | None, step: ExecutorBarrier) -> Iterator[None]:
    """Abort *step* when *manager*, which may belong to any thread, is cancelled meanwhile."""
    if manager is None:
        yield
        return
    loop, has_ended = asyncio.get_running_loop(), False

    def abort() -> None:
        if not has_ended:
            step.abort(CancelledError("the step was cancelled by its cancellation manager"))

    token = manager.get_cancellation_token()
    if not manager.register_callback(token, lambda: loop.call_soon_threadsafe(abort)):
        abort()
    try:
        yield
    finally:
        has_ended = True
        manager.try_deregister_callback(token)
