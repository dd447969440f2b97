"""Worker threads for expensive kernels: one queue in, results back through the loop in batches.

One wake-up of the loop serves all results that have come in since the last: with many calls in flight that is an
order of magnitude cheaper than a ``call_soon_threadsafe`` for each.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeAlias

from asyncexec.framework.clock import monotonic_ns
from asyncexec.framework.cooperative import outlast
from asyncexec.framework.errors import FailedPreconditionError


class Outcome(NamedTuple):
    """What became of a call on a worker thread; times by ``monotonic_ns``."""

    result: Any
    error: BaseException | None
    start_ns: int
    end_ns: int
    thread_id: int


Done: TypeAlias = Callable[[Outcome], None]
# [(context, function, arguments, done)] until a thread, or who cancels it, takes that out
Job: TypeAlias = list[tuple[contextvars.Context, Callable[..., Any], Sequence[Any], Done]]


class WorkerPool:
    """As many threads as cores at most, started when first needed, of one event loop."""

    def __init__(self, num_threads: int | None = None) -> None:
        self._num_threads = num_threads or os.cpu_count() or 1
        self._threads: list[threading.Thread] = []
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._results: deque[tuple[Done, Outcome]] = deque()
        self._unfinished = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake_up_is_due = False
        self._on_exit: Callable[[], None] | None = None

    @property
    def num_threads(self) -> int:
        return self._num_threads

    def submit(self, function: Callable[..., Any], args: Sequence[Any], done: Done) -> Job:
        """Call ``function(*args)`` on a thread; ``done(outcome)`` is called in the loop.

        Raises:
            FailedPreconditionError: calls of another event loop are under way.
        """
        loop = asyncio.get_running_loop()
        if self._unfinished and loop is not self._loop:
            raise FailedPreconditionError(
                "this session is being used in another event loop", hint="make a session for each loop"
            )
        self._loop = loop
        if self._unfinished >= len(self._threads) < self._num_threads:
            self._start_thread()
        self._unfinished += 1
        job: Job = [(contextvars.copy_context(), function, args, done)]
        self._jobs.put(job)
        return job

    def cancel(self, job: Job) -> bool:
        """Let *job* not be done, if it has not begun; whether that is so."""
        try:
            job.pop()
        except IndexError:
            return False
        self._unfinished -= 1
        return True

    def _start_thread(self) -> None:
        thread = threading.Thread(
            target=self._work, name=f"asyncexec-worker-{len(self._threads)}", args=(self._jobs,), daemon=True
        )
        thread.start()
        self._threads.append(thread)

    def _work(self, jobs: SimpleQueue[Job | None]) -> None:
        while (job := jobs.get()) is not None:
            result = _run(job)
            if result is None:
                continue
            # No lock: the result is there before the flag is read, and _collect lowers the flag before it looks.
            self._results.append(result)
            del result
            if not self._wake_up_is_due:
                self._wake_up_is_due = True
                assert self._loop is not None  # submit has been called
                self._loop.call_soon_threadsafe(self._collect)
        if self._loop is not None and self._on_exit is not None:
            self._loop.call_soon_threadsafe(self._on_exit)

    def _collect(self) -> None:
        self._wake_up_is_due = False
        while self._results:
            done, outcome = self._results.popleft()
            self._unfinished -= 1
            done(outcome)
            del done, outcome

    async def close(self) -> None:
        """End the threads when they have done what was submitted, and wait for them, whoever cancels meanwhile."""
        threads, self._threads = self._threads, []
        if not threads:
            return
        self._loop = asyncio.get_running_loop()
        all_ended = asyncio.Event()
        self._on_exit = partial(_count_down, [len(threads)], all_ended)
        for _ in threads:
            self._jobs.put(None)
        await outlast(all_ended.is_set, all_ended.wait)
        for thread in threads:
            thread.join()  # it has nothing left to do


def _run(job: Job) -> tuple[Done, Outcome] | None:
    """Do *job*, and hold on to nothing of it once the loop has the outcome; None if it was cancelled."""
    try:
        context, function, args, done = job.pop()
    except IndexError:
        return None
    result: Any = None
    error: BaseException | None = None
    start = monotonic_ns()
    try:
        result = context.run(function, *args)
    except BaseException as raised:  # handed to the step, whatever it is
        error = raised
    try:
        return done, Outcome(result, error, start, monotonic_ns(), threading.get_ident())
    finally:
        del context, function, args, done, result, error  # the error's traceback holds this frame


def _count_down(left: list[int], all_ended: asyncio.Event) -> None:
    left[0] -= 1
    if not left[0]:
        all_ended.set()
