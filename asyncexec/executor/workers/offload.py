"""Worker threads for expensive kernels: one queue in, results back through the loop in batches.

One wake-up of the loop serves all results that have come in since the last: with many calls in flight that is an
order of magnitude cheaper than a ``call_soon_threadsafe`` for each.

A call that has begun cannot be interrupted.  Whoever no longer waits for it *abandons* it: its result is dropped when
it comes, and until then its thread counts as one of the pool's, so there are never more.

A job is a call, or several, each of which takes what the one before has given: the job stays on its thread from call to
call, without the loop between them.  When others wait, it goes behind them after each call, so they wait no longer
than if each call was a job.

Threads share with the loop what can be handed over in one step, also where they really run at once: the turn of a job
is taken by who makes its calls or cancels it, results go through a deque, and so does the right to wake the loop.  All
else is the loop's.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from asyncexec.executor.engine.grace_period import Grace
from asyncexec.executor.workers.job import HANDED_ON, Call, Done, Job, Outcome
from asyncexec.executor.workers.job_queue import JobQueue
from asyncexec.framework.callers import callers_around
from asyncexec.framework.cancellation import call_around
from asyncexec.framework.clock import CLOCK, NS_PER_MS, Clock
from asyncexec.framework.cooperative import outlast
from asyncexec.framework.errors import CancelledError, FailedPreconditionError
from asyncexec.framework.kernel_warning import warn_of_kernel
from asyncexec.framework.weak_group import WeakGroup
from asyncexec.process.gil_watch import Finding, GilWatch

_BATCH: Final = 32  # results that are handed on between two looks at the clock
_BATCH_NS: Final = NS_PER_MS


@dataclass(frozen=True, slots=True)
class PoolStatistics:
    """How a pool is doing.

    Attributes:
        threads: how many have been started.
        busy: of them, those that make a call, abandoned or not.
        abandoned: of those, the ones whose result nobody waits for.
        queued: calls that wait for a thread.
        completed: calls that have ended.
        given_up: calls that have been abandoned so far.
    """

    threads: int
    busy: int
    abandoned: int
    queued: int
    completed: int
    given_up: int = 0


_pools: Final[WeakGroup[WorkerPool]] = WeakGroup()


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
        clock: what calls are timed by.
    """

    def __init__(
        self,
        num_threads: int | None = None,
        grace: Grace | None = None,
        name: str = "asyncexec-worker",
        clock: Clock = CLOCK,
    ) -> None:
        self.grace = grace or Grace()
        self._num_threads = num_threads or os.cpu_count() or 1
        self._name = name
        self._clock = clock
        self._workers: list[_Worker] = []
        self._jobs: JobQueue[Job] = JobQueue()
        self._results: deque[Job] = deque()
        self._unfinished = 0
        self._abandoned = 0  # of those unfinished
        self._completed = 0
        self._given_up = 0
        self._warned_of: set[str] = set()  # nodes whose calls did not come back in time
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_sleeps: dict[None, bool] = {None: True}  # who pops it is the one to wake the loop
        self._on_exit: Callable[[], None] | None = None
        self._gil_watch = GilWatch(self._names_at_work, clock)
        _pools.add(self)

    @property
    def num_threads(self) -> int:
        return self._num_threads

    def statistics(self) -> PoolStatistics:
        """How the pool is doing just now."""
        busy = len(self._names_at_work())
        queued = max(0, self._unfinished - busy - len(self._results))
        return PoolStatistics(len(self._workers), busy, self._abandoned, queued, self._completed, self._given_up)

    def is_awaited_in(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether somebody in *loop* waits for a call."""
        return self._loop is loop and self._unfinished > self._abandoned

    def _names_at_work(self) -> list[str]:
        return [job.name for worker in self._workers if (job := worker.job) is not None]

    def submit(
        self, function: Callable[..., Any], args: Sequence[Any], done: Callable[[Outcome], None], name: str = ""
    ) -> Job:
        """Call ``function(*args)`` on a thread, for the node *name*; ``done(outcome)`` is called in the loop."""
        return self.submit_calls([Call(function, args, name)], lambda outcomes: done(outcomes[0]))

    def submit_calls(self, calls: Sequence[Call], done: Done) -> Job:
        """Make *calls* on a thread, each with what the one before has given; ``done(outcomes)`` is called in the loop.

        They end with the first that fails, and before one that cannot go on with what it gets.

        Raises:
            FailedPreconditionError: calls of another event loop are under way; or this is for a call that is on one of
                the threads, and all others are taken: if that waits for this, it might wait for ever.
        """
        loop = asyncio.get_running_loop()
        if self._unfinished >= self._num_threads:
            self._check_callers()
        if loop is not self._loop:
            self._move_to(loop)
        if self._unfinished >= len(self._workers) < self._num_threads:
            self._start_thread()
        self._unfinished += 1
        job = Job(calls, done, loop)
        self._jobs.put(job)
        return job

    def _check_callers(self) -> None:
        """Let nobody who has a thread wait for what the running code submits; FailedPreconditionError if it has one."""
        at_work = [job.running for worker in self._workers if (job := worker.job) is not None]
        for caller in (None, *callers_around()):
            around = call_around.get() if caller is None else caller.context.get(call_around)
            while around is not None and around not in at_work:  # on the threads of other sessions, too
                around = around.around
            if isinstance(around, Call):
                error = FailedPreconditionError(
                    f"kernel {around.name!r} runs the graph from its worker thread, and no other thread is free: if "
                    "all wait for such runs, none ever ends",
                    hint="make that kernel async, or raise num_worker_threads",
                )
                if caller is None:
                    raise error
                caller.fail(error)

    def _move_to(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._unfinished > self._abandoned:
            if self._loop is not None and not self._loop.is_closed():
                raise FailedPreconditionError(
                    "this session is being used in another event loop", hint="make a session for each loop"
                )
            self.drop_loop()
        self._loop = loop
        self._loop_sleeps[None] = True  # what the other loop was to do it may never have done

    def drop_loop(self) -> None:
        """Wait for no call any more: the loop that they were made in is closed."""
        for job in self._jobs.take_all():
            self.cancel(job)
        for worker in self._workers:
            if (running := worker.job) is not None:
                self.abandon(running)
        # One that a thread has just taken, or has ended, is told by its loop when it is collected.
        self._given_up += self._unfinished - self._abandoned
        self._abandoned = self._unfinished

    def cancel(self, job: Job) -> bool:
        """Begin no further call of *job*; whether none is under way.  Else its kernel is told, if it asks."""
        job.stop()
        if not job.take_turn():
            _give_up(job)
            return False
        job.drop()
        job.done = None
        self._unfinished -= 1
        self._completed += len(job.outcomes)
        return True

    def abandon(self, job: Job, on_return: Callable[[], object] | None = None) -> None:
        """Wait no more for *job*, which has begun: its thread is back in service when the running call has ended.

        *on_return* is called in the loop then.
        """
        if job.done is not None:
            job.stop()
            job.done = None
            job.on_return = on_return
            self._abandoned += 1
            self._given_up += 1
            _give_up(job)

    def warn_of_late(self, jobs: Iterable[Job], grace_s: float | None) -> None:
        """Warn of *jobs* that have not come back within *grace_s*, once of each node."""
        names = {job.name for job in jobs} - self._warned_of
        if names:
            self._warned_of |= names
            _warn_of_late(names, grace_s)

    def _start_thread(self) -> None:
        worker = _Worker()
        worker.thread = threading.Thread(
            target=self._work, name=f"{self._name}-{len(self._workers)}", args=(worker, self._jobs), daemon=True
        )
        contextvars.Context().run(worker.thread.start)  # where threads inherit one, not that of this call
        self._workers.append(worker)

    def _work(self, worker: _Worker, jobs: JobQueue[Job]) -> None:
        while (job := jobs.wait()) is not None:
            has_ended = self._run(worker, job, jobs)
            if has_ended:
                self._results.append(job)
            del job  # the loop finds nothing held here
            if has_ended:
                self._wake_loop()
        worker.has_ended = True
        if self._on_exit is not None and self._loop is not None:
            with suppress(RuntimeError):  # that is closed
                self._loop.call_soon_threadsafe(self._on_exit)

    def _run(self, worker: _Worker, job: Job, jobs: JobQueue[Job]) -> bool:
        """Make the calls of *job* until there are no more, or other jobs wait; whether the loop is to be told of it."""
        if not job.take_turn():
            return False
        worker.job = job
        try:
            while True:
                following = job.following
                outcome = self._make(job.running, following)
                job.outcomes.append(outcome)
                if outcome.result is not HANDED_ON or following is None or not job.goes_on_with(following):
                    worker.job = None
                    return True
                if not jobs.empty():
                    worker.job = None
                    return not job.put_back(jobs)
        finally:
            del job, following, outcome  # an error's traceback leads to this frame

    def _make(self, call: Call, following: Call | None) -> Outcome:
        """Make *call*, hand its result on to the *following* one, and hold on to nothing of it."""
        context, function, args = call.take()
        result: Any = None
        error: BaseException | None = None
        finding: Finding | None = None
        now_ns = self._clock.now_ns
        start = now_ns()
        end = None
        try:
            result, finding = self._gil_watch.call(call.name, partial(context.run, function, *args))
            end = now_ns()
            if following is not None and following.receive(result):
                result = HANDED_ON
        except BaseException as raised:  # handed to the step, whatever it is
            result, error = None, raised
        try:
            end = now_ns() if end is None else end
            return Outcome(result, error, start, end, threading.get_ident(), finding)
        finally:
            del call, following, context, function, args, result, error  # the error's traceback holds this frame

    def _wake_loop(self) -> None:
        """Have the loop take the results, unless it is about to."""
        # The result is there before this asks whether the loop sleeps, and the loop says so before it looks.
        while self._loop_sleeps.pop(None, False):
            loop = self._loop
            assert loop is not None  # submit has been called
            try:
                loop.call_soon_threadsafe(self._collect)
                return
            except RuntimeError:  # it is closed
                self._loop_sleeps[None] = True
            self._drop_results()
            if loop is self._loop:
                return

    def _drop_results(self) -> None:
        """Keep only the number of the results that no loop is there to take."""
        for _ in range(len(self._results)):
            try:
                job = self._results.popleft()
            except IndexError:  # another thread takes them, too
                return
            if job.loop.is_closed():
                error = CancelledError("the loop is closed")
                job.outcomes[-1] = job.outcomes[-1]._replace(result=None, error=error)
            self._results.append(job)

    def _collect(self) -> None:
        self._loop_sleeps[None] = True
        end = self._clock.now_ns() + _BATCH_NS
        results = self._results
        while results:
            left = _BATCH
            while left > 0 and results:
                try:
                    job = results.popleft()
                except IndexError:  # a thread looks which to drop, and then wakes this loop
                    return
                left -= len(job.outcomes)
                self._tell(job)
                del job
            if results and self._clock.now_ns() > end:
                self._wake_loop()
                return

    def _tell(self, job: Job) -> None:
        """Tell who waits for *job* what became of it."""
        outcomes, job.outcomes = job.outcomes, []  # who holds the job is to hold no error
        self._unfinished -= 1
        self._completed += len(outcomes)
        done, job.done = job.done, None
        if done is None or job.loop is not self._loop:
            self._abandoned -= 1
            job.tell_of_return()
        else:
            done(outcomes)
        for outcome in outcomes:
            if outcome.finding is not None:
                self._judge(outcome.finding)

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
        jobs, self._jobs = self._jobs, JobQueue()
        if not workers:
            return
        loop = self._loop = asyncio.get_running_loop()
        progress = asyncio.Event()
        self._on_exit = progress.set
        jobs.end()
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

    def _give_up(self, workers: Sequence[_Worker], jobs: JobQueue[Job]) -> None:
        """Drop what is still under way, and what waits for its thread."""
        running = [job for worker in workers if (job := worker.job) is not None]
        if not running:
            return
        left_before = {job.name for job in running if _is_abandoned(job)}
        for job in jobs.take_all():
            done = job.done
            if self.cancel(job) and done is not None:
                done(job.dropped(self._clock.now_ns()))
        jobs.end()
        for job in running:
            done = job.done
            self.abandon(job)
            if done is None:
                job.tell_of_return()  # nobody will, when it does return
            else:
                done(job.dropped(self._clock.now_ns()))
        late = {job.name for job in running} - left_before
        if late:
            _warn_of_late(late, self.grace.worker_s, "when the session was closed")
        if left_before:  # nobody has waited for them now
            shown = ", ".join(sorted(map(repr, left_before)))
            warn_of_kernel(f"the kernel of node {shown} was still on its worker thread when the session was closed")


def is_awaiting_workers(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether somebody in *loop* waits for a call of any pool; to be asked in the thread of the loop."""
    return any(pool.is_awaited_in(loop) for pool in _pools.list())


def _give_up(job: Job) -> None:
    try:
        job.give_up()
    except Exception as error:  # of a kernel's callback; whoever is ending a step could do nothing about it
        warn_of_kernel(f"a cancellation callback of node {job.name!r} has failed: {type(error).__name__}: {error}")


def _is_abandoned(job: Job | None) -> bool:
    return job is not None and job.done is None


def _warn_of_late(names: Iterable[str], grace_s: float | None, when: str = "") -> None:
    shown = ", ".join(sorted(map(repr, names)))
    warn_of_kernel(
        f"the kernel of node {shown} has not come back from its worker thread within {grace_s:g} s {when}".rstrip()
        if grace_s is not None
        else f"the kernel of node {shown} was abandoned on its worker thread"
    )
