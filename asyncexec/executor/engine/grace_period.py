"""GracePeriod: how long what cannot be interrupted is still waited for.

A step that has failed by itself, or is ended by the close of its session, has time.  One whose deadline is over, or
whose caller has cancelled it, has next to none: nobody wants its results, and somebody waits for its end.  A step may
come from the one to the other while it ends, so who waits asks again when it is told that there is less time.

Calls that a kernel awaits in its task (in a worker process, or on a thread, with a timeout) have the grace period of
the step that has cancelled the task.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from asyncexec.framework.cooperative import outlast


class Grace(NamedTuple):
    """Seconds that what has been launched has to end once its step has ended; None is for ever.

    Attributes:
        worker_s: for calls on worker threads and in processes, which cannot be interrupted.
        async_s: for async kernels, which have been cancelled and may have to clean up.
        cancel_s: instead of ``worker_s``, where the step's deadline is over, or its caller has cancelled it.
    """

    worker_s: float | None = 5.0
    async_s: float | None = 30.0
    cancel_s: float | None = 0.025


_of_tasks: Final[WeakKeyDictionary[asyncio.Task[object], GracePeriod]] = WeakKeyDictionary()


class GracePeriod:
    """That of one step, from when it ends; *is_cancelled* where that is because nobody waits for its results."""

    __slots__ = ("_loop", "_waits", "cancelled_at_s", "start_s")

    def __init__(self, loop: asyncio.AbstractEventLoop, *, is_cancelled: bool = False) -> None:
        self._loop = loop
        self._waits: set[asyncio.Future[None]] = set()
        self.start_s: float | None = None if is_cancelled else loop.time()
        self.cancelled_at_s = loop.time() if is_cancelled else None

    @classmethod
    def here(cls) -> GracePeriod:
        """That of the step which has cancelled the current task; somebody else's cancellation is a caller's."""
        task = asyncio.current_task()
        found = None if task is None else _of_tasks.get(task)
        return found or cls(asyncio.get_running_loop(), is_cancelled=True)

    def cover(self, task: asyncio.Task[None]) -> None:
        """Let this be the grace period of calls that *task* makes."""
        _of_tasks[task] = self

    def cancel(self) -> None:
        """From now on nobody waits for results."""
        if self.cancelled_at_s is None:
            self.cancelled_at_s = self._loop.time()
            for wait in self._waits:
                if not wait.done():
                    wait.set_result(None)

    def limit_s(self, grace: Grace) -> float | None:
        """How many seconds calls are given in all."""
        return grace.worker_s if self.cancelled_at_s is None else grace.cancel_s

    def left_s(self, grace: Grace) -> float | None:
        """How many seconds are left."""
        limits = ((self.start_s, grace.worker_s), (self.cancelled_at_s, grace.cancel_s))
        ends = [since + seconds for since, seconds in limits if since is not None and seconds is not None]
        return max(0.0, min(ends) - self._loop.time()) if ends else None

    async def wait(self, future: asyncio.Future[Any], grace: Grace) -> None:
        """Wait for *future* as long as there is grace, whoever cancels meanwhile."""
        await outlast(lambda: future.done() or self.left_s(grace) == 0, lambda: self._wait(future, grace))

    async def _wait(self, future: asyncio.Future[Any], grace: Grace) -> None:
        cancelled: asyncio.Future[None] = self._loop.create_future()
        self._waits.add(cancelled)
        try:
            await asyncio.wait(
                {future, cancelled} if self.cancelled_at_s is None else {future},
                timeout=self.left_s(grace),
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            self._waits.discard(cancelled)
