"""WorkerCalls: calls on worker threads that tasks await.

A step itself does not wait for its calls, and has them done by callbacks.  Here a kernel that is a coroutine makes a
call of its own: one in a worker process, or one with a timeout.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from asyncexec.executor.engine.grace_period import Grace, GracePeriod
from asyncexec.executor.workers.job import Job, Outcome, told_of
from asyncexec.executor.workers.offload import WorkerPool
from asyncexec.framework.errors import DeadlineExceededError
from asyncexec.framework.kernel import do_nothing
from asyncexec.framework.under_way import tells

_INTERRUPTED: Final = Grace(1.0, cancel_s=1.0)  # how long a call that was interrupted has to come back


class WorkerCalls:
    """Calls on the threads of *pool*."""

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool

    @tells(lambda variables: told_of(variables["job"]))
    async def call(
        self,
        function: Callable[..., object],
        args: Sequence[object] = (),
        name: str = "",
        *,
        timeout_s: float | None = None,
        interrupt: Callable[[], None] | None = None,
        on_return: Callable[[], object] = do_nothing,
    ) -> Any:
        """The result of ``function(*args)`` on a thread.

        Who is cancelled meanwhile gets out when the call has ended, or its grace period is over; the call is left
        to its thread then, and a warning names it.

        Args:
            name: that of the node, for messages.
            timeout_s: how long the call may take before it is left to its thread.
            interrupt: is to end the call, and is tried before it is left to its thread by who is cancelled.
            on_return: called once, in the loop, when the thread is free again, or when the call is not to be made.

        Raises:
            DeadlineExceededError: the call has not ended within *timeout_s*.
            Exception: what the function raised.
        """
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        is_left = False
        try:
            job = self._pool.submit(function, args, future.set_result, name)
            try:
                await asyncio.wait([future], timeout=timeout_s)
            except asyncio.CancelledError:
                is_left = not self._pool.cancel(job) and await self._leave(job, future, interrupt, on_return)
                raise
            if timeout_s is not None and not future.done():
                is_left = not self._pool.cancel(job)
                self._pool.abandon(job, on_return)
                raise _too_slow(timeout_s, has_begun=is_left)
        finally:
            if not is_left:
                on_return()
        outcome = future.result()
        if outcome.error is None:
            return outcome.result
        try:
            raise outcome.error
        finally:
            del outcome, future  # the error's traceback holds this frame

    async def _leave(
        self,
        job: Job,
        future: asyncio.Future[Outcome],
        interrupt: Callable[[], None] | None,
        on_return: Callable[[], object],
    ) -> bool:
        """Wait for a call that has begun for its grace period; whether it has been left to its thread then."""
        grace_period, grace = GracePeriod.here(), self._pool.grace
        with suppress(asyncio.CancelledError):  # the caller is on its way out
            await grace_period.wait(future, grace)
        if not future.done() and interrupt is not None:
            interrupt()
            with suppress(asyncio.CancelledError):
                await GracePeriod(asyncio.get_running_loop()).wait(future, _INTERRUPTED)
        if future.done():
            return False
        self._pool.abandon(job, on_return)
        self._pool.warn_of_late([job], grace_period.limit_s(grace))
        return True


def _too_slow(timeout_s: float, *, has_begun: bool) -> DeadlineExceededError:
    return DeadlineExceededError(
        f"the op took more than its timeout of {timeout_s:g} s",
        hint="a plain function cannot be ended: its worker thread is busy until it returns"
        if has_begun
        else "it has not begun, because all worker threads were busy",
    )
