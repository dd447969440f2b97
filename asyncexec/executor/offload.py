"""Worker threads for expensive kernels: one queue in, results back through the loop in batches.

One wake-up of the loop serves all results that have come in since the last: with many calls in flight that is an
order of magnitude cheaper than a ``call_soon_threadsafe`` for each.

A call that has begun cannot be interrupted.  Whoever no longer waits for it *abandons* it: its result is dropped when
it comes, and until then its thread counts as one of the pool's, so there are never more.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple, TypeAlias

from asyncexec.executor.gil_watch import Finding, GilWatch
from asyncexec.framework.clock import NS_PER_MS, monotonic_ns
from asyncexec.framework.cooperative import outlast
from asyncexec.framework.errors import CancelledError, FailedPreconditionError
from asyncexec.framework.kernel_warning import warn_of_kernel

_BATCH: Final = 32  # results that are handed on between two looks at the clock
_BATCH_NS: Final = NS_PER_MS
_INTERRUPTED_S: Final = 1.0  # how long a call that was interrupted has to come back


class Outcome(NamedTuple):
    """What became of a call on a worker thread; times by ``monotonic_ns``."""

    result: Any
    error: BaseException | None
    start_ns: int
    end_ns: int
    thread_id: int


class Grace(NamedTuple):
    """Seconds that what has been launched has to end once its step has ended; None is for ever.

    Attributes:
        worker_s: for calls on worker threads, which nothing can interrupt.
        async_s: for async kernels, which have been cancelled and may have to clean up.
    """

    worker_s: float | None = 5.0
    async_s: float | None = 30.0


@dataclass(frozen=True, slots=True)
class PoolStatistics:
    """How a pool is doing.

    Attributes:
        threads: how many have been started.
        busy: of them, those that make a call, abandoned or not.
        abandoned: of those, the ones whose result nobody waits for.
        queued: calls that wait for a thread.
        completed: calls that have ended.
    """

    threads: int
    busy: int
    abandoned: int
    queued: int
    completed: int


Done: TypeAlias = Callable[[Outcome], None]


class Job:
    """A call that was submitted."""

    __slots__ = ("call", "done", "name")

    def __init__(self, function: Callable[..., Any], args: Sequence[Any], done: Done, name: str) -> None:
        # Until a thread, or who cancels it, takes that out.
        context = contextvars.copy_context()
        context.run(_job_around.set, self)
        self.call = [(context, function, args)]
        self.done: Done | None = done  # None when nobody waits any more; for the loop's thread alone
        self.name = name


# What the running code was called by, on a thread; or what has called for it in the loop, and may wait for it.
_job_around: Final[contextvars.ContextVar[Job | None]] = contextvars.ContextVar("asyncexec_job_around", default=None)


class _Worker:
    """A thread of the pool, and what it does."""

    __slots__ = ("has_ended", "job", "thread")

    def __init__(self) -> None:
        self.job: Job | None = None
        self.has_ended = False
        self.thread: threading.Thread | None = None


class WorkerPool:
    """As many threads as cores at most, started when first needed, of one event loop at a time.

    Args:
        num_threads: how many there can be, instead.
        grace: how long whoever has to end is waited for.
        name: what the threads' names begin with.
    """

    def __init__(
        self, num_threads: int | None = None, grace: Grace | None = None, name: str = "asyncexec-worker"
    ) -> None:
        self.grace = grace or Grace()
        self._num_threads = num_threads or os.cpu_count() or 1
        self._name = name
        self._workers: list[_Worker] = []
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._results: deque[tuple[Job, Outcome, Finding | None]] = deque()
        self._unfinished = 0
        self._abandoned = 0  # of those unfinished
        self._completed = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake_up_is_due = False
        self._on_exit: Callable[[], None] | None = None
        self._gil_watch = GilWatch(self._names_at_work)

    @property
    def num_threads(self) -> int:
        return self._num_threads

    def statistics(self) -> PoolStatistics:
        """How the pool is doing just now."""
        busy = len(self._names_at_work())
        queued = max(0, self._unfinished - busy - len(self._results))
        return PoolStatistics(len(self._workers), busy, self._abandoned, queued, self._completed)

    def _names_at_work(self) -> list[str]:
        return [job.name for worker in self._workers if (job := worker.job) is not None]

    def submit(self, function: Callable[..., Any], args: Sequence[Any], done: Done, name: str = "") -> Job:
        """Call ``function(*args)`` on a thread; ``done(outcome)`` is called in the loop.

        *name* is that of the node, for messages.

        Raises:
            FailedPreconditionError: calls of another event loop are under way; or this is for a call that is on one of
                the threads, and all others are taken: if that waits for this, it might wait for ever.
        """
        loop = asyncio.get_running_loop()
        around = _job_around.get()
        if around is not None and self._unfinished >= self._num_threads:
            self._check_caller(around)
        if loop is not self._loop:
            self._move_to(loop)
        if self._unfinished >= len(self._workers) < self._num_threads:
            self._start_thread()
        self._unfinished += 1
        job = Job(function, args, done, name)
        self._jobs.put(job)
        return job

    def _check_caller(self, caller: Job) -> None:
        if any(worker.job is caller for worker in self._workers):
            raise FailedPreconditionError(
                f"kernel {caller.name!r} runs the graph from its worker thread, and no other thread is free: if all "
                "wait for such runs, none ever ends",
                hint="make that kernel async, or raise num_worker_threads",
            )

    def _move_to(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._unfinished > self._abandoned:
            raise FailedPreconditionError(
                "this session is being used in another event loop", hint="make a session for each loop"
            )
        self._loop = loop
        self._wake_up_is_due = False  # what the other loop was to do it may never have done

    def cancel(self, job: Job) -> bool:
        """Let *job* not be done, if it has not begun; whether that is so."""
        try:
            job.call.pop()
        except IndexError:
            return False
        job.done = None
        self._unfinished -= 1
        return True

    def abandon(self, job: Job) -> None:
        """Wait no more for *job*, which has begun: its thread is back in service when the call has ended."""
        if job.done is not None:
            job.done = None
            self._abandoned += 1

    async def call(
        self,
        function: Callable[..., Any],
        args: Sequence[Any] = (),
        name: str = "",
        interrupt: Callable[[], None] | None = None,
    ) -> Any:
        """The result of ``function(*args)`` on a thread.

        Who is cancelled meanwhile gets out when the call has ended, or the grace period is over and *interrupt*, which
        is to end the call, has been called.
        """
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        job = self.submit(function, args, future.set_result, name)
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            if not self.cancel(job):
                await self._leave(job, future, interrupt)
            raise
        outcome = future.result()
        if outcome.error is None:
            return outcome.result
        try:
            raise outcome.error
        finally:
            del outcome, future  # the error's traceback holds this frame

    async def _leave(self, job: Job, future: asyncio.Future[Outcome], interrupt: Callable[[], None] | None) -> None:
        grace_s = self.grace.worker_s
        try:
            await _outlast_for(future, grace_s)
        finally:
            try:
                if not future.done() and interrupt is not None:
                    interrupt()
                    await _outlast_for(future, _INTERRUPTED_S)
            finally:
                if not future.done():
                    self.abandon(job)
                    warn_of_abandoned([job], grace_s)

    def _start_thread(self) -> None:
        worker = _Worker()
        worker.thread = threading.Thread(
            target=self._work, name=f"{self._name}-{len(self._workers)}", args=(worker, self._jobs), daemon=True
        )
        worker.thread.start()
        self._workers.append(worker)

    def _work(self, worker: _Worker, jobs: SimpleQueue[Job | None]) -> None:
        while (job := jobs.get()) is not None:
            found = self._run(worker, job)
            worker.job = None
            has_result = found is not None
            if found is not None:
                self._results.append((job, *found))
            del job, found  # the loop finds nothing held here
            if has_result:
                # No lock: the result is there before the flag is read, and _collect lowers the flag before it looks.
                self._wake_loop()
        worker.has_ended = True
        if self._on_exit is not None:
            self._call_loop(self._on_exit)

    def _run(self, worker: _Worker, job: Job) -> tuple[Outcome, Finding | None] | None:
        """Do *job*, and hold on to nothing of it once the loop has the outcome; None if it was cancelled."""
        try:
            context, function, args = job.call.pop()
        except IndexError:
            return None
        worker.job = job
        result: Any = None
        error: BaseException | None = None
        finding: Finding | None = None
        start = monotonic_ns()
        try:
            result, finding = self._gil_watch.call(job.name, partial(context.run, function, *args))
        except BaseException as raised:  # handed to the step, whatever it is
            error = raised
        try:
            return Outcome(result, error, start, monotonic_ns(), threading.get_ident()), finding
        finally:
            del context, function, args, result, error, job  # the error's traceback holds this frame

    def _wake_loop(self) -> None:
        if not self._wake_up_is_due:
            self._wake_up_is_due = True
            if not self._call_loop(self._collect):
                self._wake_up_is_due = False
                self._drop_results()

    def _call_loop(self, function: Callable[[], None]) -> bool:
        """Have *function* called in the loop; False if that is closed."""
        assert self._loop is not None  # submit has been called
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:
            return False
        return True

    def _drop_results(self) -> None:
        """Keep only the number of the results that no loop is there to take."""
        for _ in range(len(self._results)):
            try:
                job, outcome, finding = self._results.popleft()
            except IndexError:  # another thread drops them, too
                return
            self._results.append(
                (job, outcome._replace(result=None, error=CancelledError("the loop is closed")), finding)
            )

    def _collect(self) -> None:
        self._wake_up_is_due = False
        end = monotonic_ns() + _BATCH_NS
        results = self._results
        while results:
            for _ in range(min(_BATCH, len(results))):
                job, outcome, finding = results.popleft()
                self._unfinished -= 1
                self._completed += 1
                done, job.done = job.done, None
                if done is None:
                    self._abandoned -= 1
                else:
                    done(outcome)
                if finding is not None:
                    self._judge(finding)
                del job, done, outcome
            if results and monotonic_ns() > end:
                self._wake_loop()
                return

    def _judge(self, finding: Finding) -> None:
        if self._gil_watch.judge(finding):
            warn_of_kernel(
                f"the kernel of node {finding.name!r} holds the GIL on a worker thread, so that the event loop and all"
                " other threads have to wait for it; let its op run in a process: @ax.op(executor='process')"
            )

    async def close(self, *, has_grace: bool = True) -> None:
        """End the threads when they have done what was submitted, and wait for them, whoever cancels meanwhile.

        After the grace period (if it *has_grace*), and for calls that were abandoned before, there is no waiting: such
        a thread ends when its call does, and a warning names the call.
        """
        workers, self._workers = self._workers, []
        jobs, self._jobs = self._jobs, SimpleQueue()
        if not workers:
            return
        loop = self._loop = asyncio.get_running_loop()
        progress = asyncio.Event()
        self._on_exit = progress.set
        for _ in workers:
            jobs.put(None)
        grace_s = self.grace.worker_s
        end_s = loop.time() + grace_s if has_grace and grace_s is not None and self._unfinished else None
        timer = None if end_s is None else loop.call_at(end_s, progress.set)

        def is_over() -> bool:
            progress.clear()
            if end_s is not None and loop.time() >= end_s:
                return True
            return all(worker.has_ended or _is_abandoned(worker.job) for worker in workers)

        try:
            await outlast(is_over, progress.wait)
        finally:
            if timer is not None:
                timer.cancel()
            for worker in workers:
                if worker.has_ended and worker.thread is not None:
                    worker.thread.join()  # it has nothing left to do
            while self._results:
                self._collect()
            self._give_up([worker for worker in workers if not worker.has_ended], jobs)

    def _give_up(self, workers: Sequence[_Worker], jobs: SimpleQueue[Job | None]) -> None:
        """Drop what is still under way, and what waits for its thread."""
        running = [job for worker in workers if (job := worker.job) is not None]
        if not running:
            return
        for job in _take_all(jobs):
            done = job.done
            if self.cancel(job) and done is not None:
                done(_dropped())
        for _ in workers:
            jobs.put(None)
        for job in running:
            done = job.done
            self.abandon(job)
            if done is not None:
                done(_dropped())
        warn_of_abandoned(running, self.grace.worker_s, "when the session was closed")


def _dropped() -> Outcome:
    now = monotonic_ns()
    return Outcome(None, CancelledError("Session has been closed."), now, now, threading.get_ident())


def _take_all(jobs: SimpleQueue[Job | None]) -> list[Job]:
    found: list[Job] = []
    while True:
        try:
            job = jobs.get_nowait()
        except Empty:
            return found
        if job is not None:
            found.append(job)


def _is_abandoned(job: Job | None) -> bool:
    return job is not None and job.done is None


async def _outlast_for(future: asyncio.Future[Outcome], timeout_s: float | None) -> None:
    """``outlast``, for *timeout_s* at most."""
    loop = asyncio.get_running_loop()
    end_s = None if timeout_s is None else loop.time() + timeout_s

    def is_over() -> bool:
        return future.done() or (end_s is not None and loop.time() >= end_s)

    async def wait() -> None:
        await asyncio.wait([future], timeout=None if end_s is None else max(0.0, end_s - loop.time()))

    await outlast(is_over, wait)


def warn_of_abandoned(jobs: Sequence[Job], grace_s: float | None, when: str = "") -> None:
    """Warn of calls that did not come back in time."""
    names = ", ".join(sorted({repr(job.name) for job in jobs}))
    warn_of_kernel(
        f"the kernel of node {names} has not come back from its worker thread within {grace_s:g} s {when}".rstrip()
        if grace_s is not None
        else f"the kernel of node {names} was abandoned on its worker thread"
    )
