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


class Outcome(NamedTuple):
    """What became of a call on a worker thread; times by ``monotonic_ns``."""

    result: Any
    error: BaseException | None
    start_ns: int
    end_ns: int
    thread_id: int


Done: TypeAlias = Callable[[Outcome], None]
_Job: TypeAlias = list[Any]  # context, function, arguments, done


class WorkerPool:
    """As many threads as cores at most, started when first needed, of one event loop."""

    def __init__(self, num_threads: int | None = None) -> None:
        self._num_threads = num_threads or os.cpu_count() or 1
        self._threads: list[threading.Thread] = []
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._results: deque[tuple[Done, Outcome]] = deque()
        self._unfinished = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake_up_is_due = False
        self._on_exit: Callable[[], None] | None = None

    @property
    def num_threads(self) -> int:
        return self._num_threads

    def submit(self, function: Callable[..., Any], args: Sequence[Any], done: Done) -> None:
        """Call ``function(*args)`` on a thread; ``done(outcome)`` is called in the loop."""
        self._loop = asyncio.get_running_loop()
        if self._unfinished >= len(self._threads) < self._num_threads:
            self._start_thread()
        self._unfinished += 1
        self._jobs.put([contextvars.copy_context(), function, args, done])

    def _start_thread(self) -> None:
        thread = threading.Thread(
            target=self._work, name=f"asyncexec-worker-{len(self._threads)}", args=(self._jobs,), daemon=True
        )
        thread.start()
        self._threads.append(thread)

    def _work(self, jobs: SimpleQueue[_Job | None]) -> None:
        while (job := jobs.get()) is not None:
            # No lock: the result is there before the flag is read, and _collect lowers the flag before it looks.
            self._results.append(_run(job))
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


def _run(job: _Job) -> tuple[Done, Outcome]:
    """Do *job*, and forget it: once the loop has the outcome, the thread holds on to nothing of it."""
    context, function, args, done = job
    job.clear()
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
