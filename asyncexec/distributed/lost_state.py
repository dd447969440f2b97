"""LostState: which workers have lost what a session had on them, and the call that brings it back.

The variables of a session on a worker are gone with the connection to it.  Steps that such a worker takes part in wait
until the call has ended.  The steps that the call runs itself do not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Final, TypeAlias

from asyncexec.framework.errors import FailedPreconditionError, OpError

# Brings back what a session has lost.
Restore: TypeAlias = Callable[[], Awaitable[object]]

_restored: Final[ContextVar[LostState | None]] = ContextVar("asyncexec_restored", default=None)


class LostState:
    """See the head of this module.

    Args:
        on_end: is told that the call has ended, and what it has failed with.
    """

    def __init__(self, on_end: Callable[[OpError | None], None]) -> None:
        self._on_end = on_end
        self._restore: Restore | None = None
        self._lost: set[str] = set()
        self._covered: set[str] = set()  # those that were lost before the call that is under way
        self._task: asyncio.Task[None] | None = None

    def __bool__(self) -> bool:
        return bool(self._lost)

    def __contains__(self, worker: str) -> bool:
        return worker in self._lost

    @property
    def is_restored_here(self) -> bool:
        """Whether the running code is a part of the call."""
        return _restored.get() is self

    def restore_by(self, restore: Restore) -> None:
        """Have what is lost from now on brought back by *restore*."""
        self._restore = restore

    def lose(self, worker: str) -> None:
        """What *worker* had is gone."""
        if self._restore is not None:
            self._lost.add(worker)
            self._covered.discard(worker)

    def begin(self) -> None:
        """Begin the call, unless it is under way."""
        if self._task is None:
            self._covered = set(self._lost)
            self._task = asyncio.get_running_loop().create_task(self._run())
            self._task.add_done_callback(self._end)

    async def close(self) -> None:
        """End the call."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        assert self._restore is not None  # else nothing is lost
        _restored.set(self)
        await self._restore()

    def _end(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if task.cancelled():
            self._on_end(_failed(asyncio.CancelledError("the call was cancelled")))
        elif (error := task.exception()) is not None:
            self._on_end(_failed(error))
        else:
            self._lost -= self._covered
            self._on_end(None)


def _failed(error: BaseException) -> OpError:
    failure = FailedPreconditionError(
        f"a worker was lost, and restoring the variables of the session has failed: {error}",
        hint="the next step that the worker takes part in tries again",
    )
    failure.__cause__ = error
    return failure
