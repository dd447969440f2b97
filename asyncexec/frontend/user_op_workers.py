"""Plain functions of user ops, called on worker threads and awaited in the node's task.

Nothing can end a call that has begun.  When its timeout is over the attempt has failed all the same, and the thread is
left to itself: its result is dropped, and its slot of the limiter is given back when it does return, so that the limit
holds for what really runs.  A step that is cancelled waits for it.  A call that has not begun is not made.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from asyncexec.framework.cooperative import outlast
from asyncexec.framework.resource_mgr import ResourceMgr
from asyncexec.framework.retry import Outcome

Call: TypeAlias = tuple[contextvars.Context, Callable[..., Any], Sequence[Any]]
Done: TypeAlias = Callable[[Any], None]


class WorkerThreads(Protocol):
    """Where the plain functions of a session's ops are called."""

    def submit(self, function: Callable[..., Any], args: Sequence[Any], done: Done) -> Any:
        """Call ``function(*args)`` on a thread; ``done(outcome)``, of ``.result`` and ``.error``, follows in the loop.

        What is returned stands for the call.
        """
        ...

    def cancel(self, job: Any) -> bool:
        """Let a call not be made, if it has not begun; whether that is so.  Then *done* is never called."""
        ...


@dataclass(slots=True, eq=False)
class Job:
    """A call that was submitted."""

    call: list[Call]  # until a thread, or who cancels it, takes it out
    done: Done | None


class OpWorkers:
    """As many threads as cores at most, which end with the session."""

    def __init__(self, num_threads: int | None = None) -> None:
        self._executor = ThreadPoolExecutor(num_threads or os.cpu_count(), thread_name_prefix="asyncexec-op")
        self._futures: set[asyncio.Future[Outcome | None]] = set()

    def submit(self, function: Callable[..., Any], args: Sequence[Any], done: Done) -> Job:
        """As WorkerThreads say."""
        job = Job([(contextvars.copy_context(), function, args)], done)
        future = asyncio.get_running_loop().run_in_executor(self._executor, _do, job.call)
        self._futures.add(future)
        future.add_done_callback(lambda future: self._end(job, future))
        return job

    def _end(self, job: Job, future: asyncio.Future[Outcome | None]) -> None:
        self._futures.discard(future)
        outcome = Outcome(None, asyncio.CancelledError()) if future.cancelled() else future.result()
        if job.done is not None:
            job.done(outcome)

    def cancel(self, job: Job) -> bool:
        """As WorkerThreads say."""
        if _take(job.call) is None:
            return False
        job.done = None
        return True

    def close(self) -> None:
        """Begin nothing more, and wait for nothing: the threads end when the calls under way return."""
        for future in list(self._futures):  # else an abandoned thread would call back a loop that may be closed by then
            future.cancel()
        self._executor.shutdown(wait=False, cancel_futures=True)


def op_workers(resource_mgr: ResourceMgr) -> WorkerThreads:
    """The threads of the session that *resource_mgr* belongs to."""
    workers: Any = resource_mgr.lookup_or_create(object, "_session", "op_workers", OpWorkers)
    found: WorkerThreads = workers
    return found


def _take(call: list[Call]) -> Call | None:
    try:
        return call.pop()
    except IndexError:
        return None


def _do(call: list[Call]) -> Outcome | None:
    """Make the call, on the thread; None if it was cancelled."""
    taken = _take(call)
    if taken is None:
        return None
    context, function, args = taken
    try:
        return Outcome(context.run(function, *args), None)
    except BaseException as error:  # handed to the step, whatever it is
        return Outcome(None, error)
    finally:
        del taken, args  # the error's traceback holds this frame


class WorkerCall:
    """One call on a worker thread, made from when this is constructed; *on_end* is called when its thread is free."""

    __slots__ = ("_ended", "_job", "_on_end", "_outcome", "_workers")

    def __init__(
        self, workers: WorkerThreads, function: Callable[..., Any], args: Sequence[Any], on_end: Callable[[], object]
    ) -> None:
        self._workers = workers
        self._on_end = on_end
        self._ended = asyncio.Event()
        self._outcome: Outcome | None = None
        try:
            self._job = workers.submit(function, args, self._end)
        except BaseException:
            on_end()
            raise

    def _end(self, outcome: Any) -> None:
        self._outcome = Outcome(outcome.result, outcome.error)
        self._ended.set()
        self._on_end()

    async def wait_ended(self, timeout_s: float | None) -> bool:
        """Whether the call ended within *timeout_s*; if not, it is left to itself."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._ended.wait()
        except TimeoutError:
            self._cancel()
            return self._ended.is_set()
        except asyncio.CancelledError:
            if not self._cancel():
                await outlast(self._ended.is_set, self._ended.wait)
            raise
        return True

    def _cancel(self) -> bool:
        is_cancelled = self._workers.cancel(self._job)
        if is_cancelled:
            self._on_end()
        return is_cancelled

    def result(self) -> Any:
        """What the function returned, or raised."""
        outcome, self._outcome = self._outcome, None
        assert outcome is not None
        if outcome.error is None:
            return outcome.result
        try:
            raise outcome.error
        finally:
            del outcome  # the error's traceback holds this frame
