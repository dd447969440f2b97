"""WorkerPool: calls of a session's expensive kernels on worker threads; results back through the loop in batches.

One wake-up of the loop serves all results that have come in since the last: with many calls in flight that is an
order of magnitude cheaper than a ``call_soon_threadsafe`` for each.

A call that has begun cannot be interrupted.  Whoever no longer waits for it *abandons* it: its result is dropped when
it comes, and until then its thread counts as one of the pool's, so there are never more.  Threads that pools share are
replaced meanwhile, for others are not to wait for them: for each pool as many as there are threads, and no more.

A job is a call, or several, each of which takes what the one before has given: the job stays on its thread from call to
call, without the loop between them.  When others wait, it goes behind them after each call, so they wait no longer
than if each call was a job.

Threads share with the loop what can be handed over in one step, also where they really run at once: the turn of a job
is taken by who makes its calls or cancels it, results go through a deque, and so does the right to wake the loop.  All
else is the loop's.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from asyncexec.executor.engine.grace_period import Grace
from asyncexec.executor.workers.job import HANDED_ON, Call, Done, Job, Outcome
from asyncexec.executor.workers.pool_statistics import PoolStatistics
from asyncexec.executor.workers.worker_threads import Share, Worker, WorkerThreads, join_threads
from asyncexec.framework.callers import Caller, callers_around, has_group
from asyncexec.framework.cancellation import call_around
from asyncexec.framework.clock import CLOCK, NS_PER_MS, Clock
from asyncexec.framework.cooperative import outlast
from asyncexec.framework.errors import CancelledError, FailedPreconditionError
from asyncexec.framework.kernel import do_nothing
from asyncexec.framework.kernel_warning import warn_of_kernel
from asyncexec.framework.weak_group import WeakGroup
from asyncexec.process.cores import num_cores
from asyncexec.process.gil_switches import begin_quick_switches, end_quick_switches
from asyncexec.process.gil_watch import Finding, GilWatch

_BATCH: Final = 32  # results that are handed on between two looks at the clock
_BATCH_NS: Final = NS_PER_MS


_pools: Final[WeakGroup[WorkerPool]] = WeakGroup()


class WorkerPool:
    """Up to *num_threads* worker threads, started when first needed, for one event loop at a time.

    Args:
        num_threads: the largest number of threads, by default the number of cores.
        is_shared: whether the pool uses the threads that all such pools share, one for each core.
        grace: the grace periods of calls that must end.
        name: the prefix of the names of the threads.
        clock: measures the calls.

    Raises:
        FailedPreconditionError: a call is submitted while calls of another event loop are under way.
    """

    def __init__(
        self,
        num_threads: int | None = None,
        grace: Grace | None = None,
        name: str = "asyncexec-worker",
        clock: Clock = CLOCK,
        *,
        is_shared: bool = False,
    ) -> None:
        self.grace: Grace = grace or Grace()
        self._num_threads = num_threads or num_cores()
        self._is_shared = is_shared
        self._name = name
        self._clock = clock
        self._share: Share | None = None  # as long as jobs may be there
        self._own_share: Share | None = None  # of threads for what calls on shared ones wait for
        self.results: deque[Job] = deque()
        self._unfinished = 0
        self._abandoned = 0  # of those unfinished
        self._left: set[Job] = set()  # of those, on threads that others have replaced
        self._completed = 0
        self._given_up = 0
        self._warned_of: set[str] = set()  # nodes whose calls did not come back in time
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_sleeps: dict[None, bool] = {None: True}  # who pops it is the one to wake the loop
        self._on_told: Callable[[], None] | None = None
        self._gil_watch = GilWatch(self._names_at_work, clock)
        _pools.add(self)

    @property
    def num_threads(self) -> int:
        return self._num_threads

    def statistics(self) -> PoolStatistics:
        """The state of the pool now."""
        busy = len(self._left) + sum(len(share.jobs_at_work()) for share in self._shares)
        queued = max(0, self._unfinished - busy - len(self.results))
        threads = sum(len(share.threads.workers) for share in self._shares)
        return PoolStatistics(threads, busy, self._abandoned, queued, self._completed, self._given_up)

    def is_awaited_in(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether somebody in *loop* waits for a call."""
        return self._loop is loop and self._unfinished > self._abandoned

    def _count(self, *, unfinished: int = 0, abandoned: int = 0) -> None:
        """Note so many more calls; while somebody waits for one, threads get the GIL soon."""
        was_awaited = self._unfinished > self._abandoned
        self._unfinished += unfinished
        self._abandoned += abandoned
        is_awaited = self._unfinished > self._abandoned
        if is_awaited and not was_awaited:
            begin_quick_switches()
        elif was_awaited and not is_awaited:
            end_quick_switches()

    @property
    def _shares(self) -> list[Share]:
        return [share for share in (self._share, self._own_share) if share is not None]

    def _names_at_work(self) -> list[str]:
        """The nodes that threads are at work for, of whatever pool."""
        return [job.name for share in self._shares for job in share.threads.jobs_at_work()]

    def submit(
        self, function: Callable[..., object], args: Sequence[object], done: Callable[[Outcome], None], name: str = ""
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
        share = self._share
        if share is None:
            share = self._share = join_threads(self, None if self._is_shared else self._num_threads, self._name)
        if share.threads.are_taken and (call_around.get() is not None or has_group()):
            share = self._share_for_callers(share)
        if loop is not self._loop:
            self._move_to(loop)
        job = Job(calls, done, loop, share)
        calls[0].submitted_ns = self._clock.now_ns()
        share.submit(job)
        self._count(unfinished=1)
        return job

    def _share_for_callers(self, share: Share) -> Share:
        """*share*, or another one, such that nobody who has one of its threads waits for what the running code submits.

        FailedPreconditionError where the running code has one itself, and the others are taken.
        """
        if self._is_shared:
            if not any(callers_on(share.threads)):
                return share
            if self._own_share is None:
                self._own_share = join_threads(self, self._num_threads, self._name)
            share = self._own_share
        if share.threads.are_taken:
            for caller, call in callers_on(share.threads):
                error = FailedPreconditionError(
                    f"kernel {call.name!r} runs the graph from its worker thread, and no other thread is free: if "
                    "all wait for such runs, none ever ends",
                    hint="make that kernel async, or raise num_worker_threads",
                )
                if caller is None:
                    raise error
                caller.fail(error)
        return share

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
        for share in self._shares:
            for job in share.take_all():
                self.cancel(job)
            for running in share.jobs_at_work():
                self.abandon(running)
        # One that a thread has just taken, or has ended, is told by its loop when it is collected.
        awaited = self._unfinished - self._abandoned
        self._given_up += awaited
        self._count(abandoned=awaited)

    def cancel(self, job: Job) -> bool:
        """Begin no further call of *job*; whether none is under way.  Else its kernel is told, if it asks."""
        job.stop()
        if not job.take_turn():
            _give_up(job)
            return False
        job.drop()
        job.done = None
        job.share.threads.under_way.pop()
        self._count(unfinished=-1)
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
            self._count(abandoned=1)
            self._given_up += 1
            if self._is_shared and len(self._left) < self._num_threads and job.share.threads.replace(job):
                self._left.add(job)
            _give_up(job)

    def warn_of_late(self, jobs: Iterable[Job], grace_s: float | None) -> None:
        """Warn of *jobs* that have not come back within *grace_s*, once of each node."""
        names = {job.name for job in jobs} - self._warned_of
        if names:
            self._warned_of |= names
            _warn_of_late(names, grace_s)

    def make(self, call: Call, following: Call | None) -> Outcome:
        """Make *call*, hand its result on to the *following* one, and hold on to nothing of it; in a thread."""
        context, function, args = call.take()
        result: Any = None
        error: BaseException | None = None
        finding: Finding | None = None
        now_ns, cpu_ns = self._clock.now_ns, self._clock.cpu_ns
        start, begun = now_ns(), cpu_ns()
        end = None
        used = 0
        try:
            result, finding = self._gil_watch.call(call.name, partial(context.run, function, *args))
            end, used = now_ns(), cpu_ns() - begun
            if following is not None and following.receive(result):
                result = HANDED_ON
        except BaseException as raised:  # handed to the step, whatever it is
            result, error = None, raised
        try:
            end = now_ns() if end is None else end
            return Outcome(result, error, start, end, threading.get_native_id(), finding, used)
        finally:
            del call, following, context, function, args, result, error  # the error's traceback holds this frame

    def wake_loop(self) -> None:
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
        for _ in range(len(self.results)):
            try:
                job = self.results.popleft()
            except IndexError:  # another thread takes them, too
                return
            if job.loop.is_closed():
                error = CancelledError("the loop is closed")
                job.outcomes[-1] = job.outcomes[-1]._replace(result=None, error=error)
            self.results.append(job)

    def _collect(self) -> None:
        self._loop_sleeps[None] = True
        end = self._clock.now_ns() + _BATCH_NS
        results = self.results
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
                self.wake_loop()
                return

    def _tell(self, job: Job) -> None:
        """Tell who waits for *job* what became of it."""
        outcomes, job.outcomes = job.outcomes, []  # who holds the job is to hold no error
        self._completed += len(outcomes)
        done, job.done = job.done, None
        if done is None or job.loop is not self._loop:
            self._count(unfinished=-1, abandoned=-1)
            self._left.discard(job)
            job.tell_of_return()
        else:
            self._count(unfinished=-1)
            done(outcomes)
        if self._on_told is not None:
            self._on_told()
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
        """Wait for the submitted calls, and end the threads that no other pool uses.

        After the grace period (if it *has_grace*), and for calls that were abandoned before, there is no waiting: such
        a call is left to its thread, which ends with it, and a warning names it.
        """
        if self._share is None:
            return
        loop = self._loop = asyncio.get_running_loop()
        progress = asyncio.Event()
        self._on_told = progress.set
        grace_s = self.grace.worker_s
        end_s = loop.time() + grace_s if has_grace and grace_s is not None and self._unfinished else None
        timer = None if end_s is None else loop.call_at(end_s, progress.set)

        ending: list[Worker] | None = None

        def is_over() -> bool:
            nonlocal ending
            progress.clear()
            if ending is None:
                if self._unfinished > self._abandoned and (end_s is None or loop.time() < end_s):
                    return False
                ending = self._leave_threads(partial(_notify, loop, progress))
            return all(map(_has_ended, ending))

        try:
            await outlast(is_over, progress.wait)
        finally:
            if timer is not None:
                timer.cancel()
            if ending is None:  # the loop was closed
                ending = self._leave_threads(do_nothing)
            self._on_told = None
            for worker in ending:
                if worker.has_ended and worker.thread is not None:
                    worker.thread.join()  # it has nothing left to do

    def _leave_threads(self, on_exit: Callable[[], object]) -> list[Worker]:
        """Drop what is still under way, and what waits for its thread; the threads that end now."""
        while self.results:
            self._collect()
        ending: list[Worker] = []
        shares, self._share, self._own_share = self._shares, None, None
        running = [*self._left, *(job for share in shares for job in share.jobs_at_work())]
        left_before = {job.name for job in running if job.done is None}
        for job in [job for share in shares for job in share.take_all()]:
            done = job.done
            if self.cancel(job) and done is not None:
                done(job.dropped(self._clock.now_ns()))
        for job in running:
            done = job.done
            self.abandon(job)
            if done is None:
                job.tell_of_return()  # nobody will, when it does return
            else:
                done(job.dropped(self._clock.now_ns()))
        for share in shares:
            if share.threads.leave([job for job in running if job.share is share], on_exit):
                ending += share.threads.workers
        late = {job.name for job in running} - left_before
        if late:
            _warn_of_late(late, self.grace.worker_s, "when the session was closed")
        if left_before:  # nobody has waited for them now
            shown = ", ".join(sorted(map(repr, left_before)))
            warn_of_kernel(f"the kernel of node {shown} was still on its worker thread when the session was closed")
        return ending


def callers_on(threads: WorkerThreads) -> Iterator[tuple[Caller | None, Call]]:
    """Who waits for what the running code submits, and has one of *threads*, with the call there; None is that code."""
    at_work = [job.running for job in threads.jobs_at_work()]
    for caller in (None, *callers_around()):
        around = call_around.get() if caller is None else caller.context.get(call_around)
        while around is not None and around not in at_work:  # on the threads of other sessions, too
            around = around.around
        if isinstance(around, Call):
            yield caller, around


def _has_ended(worker: Worker) -> bool:
    """Whether *worker* has ended, but for a call that nobody waits for."""
    job = worker.job
    return worker.has_ended or (job is not None and job.done is None)


def _notify(loop: asyncio.AbstractEventLoop, progress: asyncio.Event) -> None:
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(progress.set)


def is_awaiting_workers(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether somebody in *loop* waits for a call of any pool; to be asked in the thread of the loop."""
    return any(pool.is_awaited_in(loop) for pool in _pools.list())


def _give_up(job: Job) -> None:
    try:
        job.give_up()
    except Exception as error:  # of a kernel's callback; whoever is ending a step could do nothing about it
        warn_of_kernel(f"a cancellation callback of node {job.name!r} has failed: {type(error).__name__}: {error}")


def _warn_of_late(names: Iterable[str], grace_s: float | None, when: str = "") -> None:
    shown = ", ".join(sorted(map(repr, names)))
    warn_of_kernel(
        f"the kernel of node {shown} has not come back from its worker thread within {grace_s:g} s {when}".rstrip()
        if grace_s is not None
        else f"the kernel of node {shown} was abandoned on its worker thread"
    )
