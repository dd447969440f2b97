"""SourceTask: the task in which a stream draws from its sources.

It is cancelled when the stream ends, and has the time of an async kernel (``Grace.async_s``) to clean up.  A source
that is still there has swallowed its cancellation: it is cancelled a few times more, then abandoned, and named in a
warning.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from asyncexec.executor.engine.ending import REPEAT_S, REPEATS, abandon_task
from asyncexec.framework.kernel_warning import warn_of_kernel


class SourceTask:
    """One such task.

    Args:
        task: what it is.
        name: of what it draws from, for messages.
        grace_s: seconds that it has to end; None is for ever.
        on_abandon: called with the task when it is abandoned.
    """

    __slots__ = ("_grace_s", "_name", "_on_abandon", "_repeats", "_task", "_timer")

    def __init__(
        self,
        task: asyncio.Task[None],
        name: str,
        grace_s: float | None,
        on_abandon: Callable[[asyncio.Task[None]], None],
    ) -> None:
        self._task = task
        self._name = name
        self._grace_s = grace_s
        self._on_abandon = on_abandon
        self._repeats = 0
        self._timer: asyncio.TimerHandle | None = None

    def cancel(self) -> None:
        """Cancel the task; if that does not end it, it is abandoned some time later."""
        self._task.cancel()
        if self._grace_s is not None and not self._task.done():
            self._timer = self._task.get_loop().call_later(self._grace_s, self._insist)
            self._task.add_done_callback(self._stop_timer)

    def _insist(self) -> None:
        if self._repeats == REPEATS:
            self._abandon()
            return
        self._repeats += 1
        self._task.cancel()
        self._timer = self._task.get_loop().call_later(REPEAT_S, self._insist)

    def _stop_timer(self, _: asyncio.Task[None]) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _abandon(self) -> None:
        self._task.remove_done_callback(self._stop_timer)
        abandon_task(self._task)
        warn_of_kernel(
            f"{self._name} swallows its cancellation: it was cancelled {REPEATS + 1} times and has not ended within"
            f" {self._grace_s:g} s; the stream has ended without it"
        )
        self._on_abandon(self._task)
