"""StepScope: one step as a structured scope.  What it started ends in it, whoever fails or cancels."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod

from asyncexec.framework.cooperative import outlast


class StepScope(ABC):
    """A step.  ``run_inline()`` first; if that says False, ``await run()``.

    The first failure ends the step; the caller's own cancellation comes before it.
    """

    __slots__ = ("_failure", "_loop", "_waiter")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._failure: BaseException | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    @abstractmethod
    def has_ready(self) -> bool:
        """Whether there is a node to run."""

    @property
    @abstractmethod
    def is_waiting(self) -> bool:
        """Whether something that was launched has not come back."""

    @abstractmethod
    def _drain(self) -> None:
        """Run ready nodes until there are none, the slice is spent, or one fails."""

    @abstractmethod
    def _stop(self, error: BaseException) -> None:
        """Run nothing more: the step has failed with *error*."""

    @abstractmethod
    def _cancel_launched(self) -> None:
        """Cancel what is awaited, and what no worker thread has begun."""

    @abstractmethod
    async def _wait_for_launched(self) -> None:
        """Wait for some of what was launched, after a failure."""

    @abstractmethod
    def _check_complete(self) -> None:
        """Abort the step if nothing can happen any more in it, and yet it is not done."""

    def run_inline(self) -> bool:
        """Run what is ready until a slice is spent; whether the step has ended.  Raises the step's failure."""
        try:
            self._drain()
        except BaseException as raised:
            # A KeyboardInterrupt, say: if something is in flight, run() ends it and raises this.
            self.abort(raised)
        if self.is_waiting or (self._failure is None and self.has_ready):
            return False
        self._check_complete()
        self._raise_failure()
        return True

    async def run(self) -> None:
        """Run to the end.  Whatever happens, nothing that the step started outlives this."""
        try:
            try:
                await self._run_while_nothing_fails()
            finally:
                if self.is_waiting:
                    await self._end_launched()
        except BaseException as raised:  # the caller's cancellation comes before what a kernel raised
            self._failure = raised
        self._raise_failure()

    async def _run_while_nothing_fails(self) -> None:
        while self._failure is None:
            if self.has_ready:
                await asyncio.sleep(0)
            elif self.is_waiting:
                await self._wait()
            else:
                self._check_complete()
                return
            self._drain()

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
            self._stop(error)
        self.wake()

    def wake(self) -> None:
        """Let the step see what has come back."""
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
            self.abort(asyncio.CancelledError())  # results that still come in are dropped
        self._cancel_launched()
        await outlast(lambda: not self.is_waiting, self._wait_for_launched)
