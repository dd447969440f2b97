"""WorkerThreads: threads that make the calls of one pool, or of any number of pools in turns.

A pool that has jobs has one place in the queue that the threads take from, however many jobs these are.  Who takes it
takes one job, and puts the pool behind the others.  So a pool with thousands of jobs delays another one by a job for
each thread.

A call can share its work with threads that have nothing else to do.  Each of these does a part of it, and another, and
when a pool has a job in the meantime it goes behind that.  It holds no job, so threads that help count as free: what
needs one waits for a part at most.

Pools belong to event loops that may run in different threads.  What they share can be handed over in one step, as in
offload.py; only to join, to leave and to start a thread takes a lock.
"""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Final, Protocol

from asyncexec.executor.workers.job import HANDED_ON, Call, Job, Outcome
from asyncexec.executor.workers.job_queue import JobQueue, Taker
from asyncexec.framework.kernel import do_nothing
from asyncexec.process.cores import be_on, leave_first_core, move, num_cores, this_core_and_others
from asyncexec.process.gil_switches import start_thread
from asyncexec.process.shards import let_help

_FEW_CORES: Final = 4  # among more, the kernel finds one that is idle
_lock: Final = threading.Lock()
_common: WorkerThreads | None = None  # while a pool uses them


class JobOwner(Protocol):
    """The pool that a job belongs to, as its thread sees it."""

    results: deque[Job]  # that have ended

    def make(self, call: Call, following: Call | None, /) -> Outcome:
        """Make *call*, and hand its result on to the *following* one."""
        ...

    def wake_loop(self) -> None:
        """Let the loop of the pool look at the results."""
        ...


class Worker:
    """A thread, and what it does.

    Attributes:
        is_left: whether it ends after its next call.
    """

    __slots__ = ("_cores", "_lock", "_own_core", "has_ended", "is_left", "job", "thread")

    def __init__(self) -> None:
        self.job: Job | None = None
        self.has_ended: bool = False
        self.is_left: bool = False
        self.thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._own_core = -1
        self._cores: Collection[int] = ()  # that it may run on, when it no longer has one of its own

    def begin(self, job: Job) -> None:
        """Have *job*, on any core."""
        with self._lock:
            self.job = job
            if self._cores:
                self._leave_core()

    def stay_on(self, core: int, cores: Collection[int]) -> None:
        """Run on *core*, if it has no job, until it may run on all *cores* again."""
        thread = self.thread
        with self._lock:
            if self.job is None and thread is not None and thread.native_id is not None:
                self._own_core, self._cores = core, cores
                be_on([core], thread.native_id)

    def leave_core(self) -> None:
        """Run on any core again."""
        with self._lock:
            self._leave_core()

    def _leave_core(self) -> None:
        cores, self._cores = self._cores, ()
        if cores and self.thread is not None and self.thread.native_id is not None:
            move(self.thread.native_id, {self._own_core}, cores)


class Share(deque[Job]):
    """What a pool has in *threads*: its jobs that wait for one of them, first in, first out."""

    __slots__ = ("owner", "right_to_queue", "threads")

    def __init__(self, threads: WorkerThreads, owner: JobOwner) -> None:
        super().__init__()
        self.threads: WorkerThreads = threads
        self.owner: JobOwner = owner
        self.right_to_queue: list[None] = [None]  # it has one place in the queue at most

    def submit(self, job: Job) -> None:
        """Let a thread make the calls of *job*; RuntimeError where the thread that it needs cannot be started."""
        threads = self.threads
        if len(threads.under_way) >= len(threads.workers) < threads.num_threads:
            threads.start_thread()
        threads.under_way.append(None)
        self.put(job)

    def put(self, job: Job) -> None:
        """Let *job* wait behind the others."""
        self.append(job)
        try:
            self.right_to_queue.pop()
        except IndexError:
            self.threads.turns.ring()  # whoever put this there may have been interrupted before
            return
        self.threads.turns.put(self)

    def take_all(self) -> list[Job]:
        """All that no thread has taken, and from now on none will."""
        found: list[Job] = []
        with suppress(IndexError):
            while True:
                found.append(self.popleft())
        return found

    def jobs_at_work(self) -> list[Job]:
        """The jobs of this pool that are on threads."""
        return [job for job in self.threads.jobs_at_work() if job.share is self]


class Help:
    """Parts of the work of a call, for one thread that has no job.

    Args:
        part: does one part; whether there may be more.  It raises nothing.
    """

    __slots__ = ("_context", "_part")

    def __init__(self, part: Callable[[], bool]) -> None:
        self._context = contextvars.copy_context()
        self._part = part

    def go_on(self, is_alone: Callable[[], bool]) -> bool:
        """Do parts, until there are no more, or it is not alone in wanting a thread; whether there may be more."""
        while self._context.run(self._part):
            if not is_alone():
                return True
        return False


class WorkerThreads:
    """Up to *num_threads* threads, started when first needed.

    Attributes:
        workers: that have been started.
        under_way: has an entry for each job that is waiting, or on a thread.
        turns: shares that have jobs, and helps, in the order in which they have their turns.
    """

    __slots__ = ("_name", "_num_users", "_on_exit", "num_threads", "turns", "under_way", "workers")

    def __init__(self, num_threads: int, name: str) -> None:
        self.num_threads: int = num_threads
        self.workers: list[Worker] = []
        self._on_exit: Callable[[], object] = do_nothing
        self._name = name
        self._num_users = 0
        self.turns: JobQueue[Share | Help] = JobQueue()
        self.under_way: deque[None] = deque()

    @property
    def are_taken(self) -> bool:
        """Whether a job that is submitted now has to wait."""
        return len(self.under_way) >= self.num_threads

    def jobs_at_work(self) -> list[Job]:
        """The jobs that are on threads."""
        return [job for worker in list(self.workers) if (job := worker.job) is not None]

    def help(self, part: Callable[[], bool], count: int) -> Callable[[], object]:
        """Have threads without a job, at most *count*, call *part* until it returns False; from one of the threads.

        Between two calls others that wait for a thread go first.  What is returned is to be called when all is done.
        """
        leave_first_core()
        under_way = len(self.under_way)
        count = min(count, self.num_threads - under_way)
        with suppress(RuntimeError):  # those that there are will do
            for _ in range(under_way + count - len(self.workers)):
                self.start_thread()
        leave = self._one_on_each_core() if count + 1 == num_cores() <= _FEW_CORES else do_nothing
        for _ in range(count):
            self.turns.put(Help(part))
        return leave

    def _one_on_each_core(self) -> Callable[[], object]:
        """Keep the calling thread on its core, and those without a job on others, until what is returned is called.

        Threads that take turns at the interpreter's lock wake each other, and the kernel likes to wake a thread where
        the one is that wakes it.  It takes some milliseconds to see that another core is idle.
        """
        found = this_core_and_others()
        if found is None or not found[1]:
            return do_nothing
        core, others = found
        cores = [core, *others]
        caller = threading.get_native_id()
        threads = [each for each in self.workers if each.thread is not None and each.thread.native_id != caller]
        placed = threads[: len(others)]
        for worker, other in zip(placed, others, strict=False):
            worker.stay_on(other, cores)
        be_on([core])

        def leave() -> None:
            move(caller, {core}, cores)
            for worker in placed:
                worker.leave_core()

        return leave

    def leave(self, left: Sequence[Job], on_exit: Callable[[], object]) -> bool:
        """Be one user less; whether there is none, so that the threads end, each of which calls *on_exit* then.

        Where there are users, others replace the threads of the jobs *left*, which have not come back.
        """
        global _common
        with _lock:
            self._num_users -= 1
            is_last = not self._num_users
            if is_last:
                self._on_exit = on_exit
                self.turns.end()
                _common = None if _common is self else _common
        for job in () if is_last else left:
            self.replace(job)
        return is_last

    def replace(self, job: Job) -> bool:
        """Let another thread take the place of the one that *job* is on, which ends with it; whether there is one."""
        with _lock:
            found = [worker for worker in self.workers if worker.job is job]
            for worker in found:
                worker.is_left = True
                self.workers.remove(worker)
        if found and not self.turns.empty():
            with suppress(RuntimeError):  # the next job starts it
                self.start_thread()
        return bool(found)

    def start_thread(self) -> None:
        """Start a thread if there may be more."""
        with _lock:
            if len(self.workers) >= self.num_threads:
                return
            worker = Worker()
            worker.thread = threading.Thread(
                target=self._work, name=f"{self._name}-{len(self.workers)}", args=(worker,), daemon=True
            )
            contextvars.Context().run(start_thread, worker.thread)  # where threads inherit one, not that of this call
            self.workers.append(worker)

    def _work(self, worker: Worker) -> None:
        let_help(self.help)
        taker = Taker(self.turns)
        while not worker.is_left and (job := self._next_job(worker, taker)) is not None:
            owner = job.share.owner
            has_ended = self._run(worker, owner, job)
            if has_ended:
                self.under_way.pop()
                owner.results.append(job)
                if not job.loop.is_closed():
                    taker.get_ready()  # for what the loop has next, so that it wakes no other thread for that
            del job  # the loop finds nothing held here
            if has_ended:
                owner.wake_loop()
            leave_first_core()
            del owner
        taker.leave()
        worker.has_ended = True
        self._on_exit()

    def _next_job(self, worker: Worker, taker: Taker[Share | Help]) -> Job | None:
        """A job of the pool whose turn it is, which goes behind the others; None if the thread is to end."""
        turns = self.turns
        while (turn := taker.take()) is not None:
            if isinstance(turn, Help):
                if turn.go_on(turns.empty):
                    turns.put(turn)
                del turn  # the thread waits now
                worker.leave_core()
                continue
            try:
                job = turn.popleft()
            except IndexError:  # the pool has taken it back
                job = None
            if turn or not self._gives_up_place(turn):
                turns.put(turn)
            if job is not None:
                return job
            del turn
        return None

    def _gives_up_place(self, share: Share) -> bool:
        """Let *share*, which had no more jobs just now, have no place in the queue; False if it is to have one."""
        share.right_to_queue.append(None)
        if not share:
            return True
        try:
            share.right_to_queue.pop()
        except IndexError:  # who brought the job has seen to it
            return True
        return False

    def _run(self, worker: Worker, owner: JobOwner, job: Job) -> bool:
        """Make the calls of *job* until there are no more, or others wait; whether the loop is to be told of it."""
        if not job.take_turn():
            return False
        worker.begin(job)
        try:
            while True:
                following = job.following
                outcome = owner.make(job.running, following)
                job.outcomes.append(outcome)
                if outcome.result is not HANDED_ON or following is None or not job.goes_on_with(following):
                    worker.job = None
                    return True
                if not (following.is_cheap or self.turns.empty()):
                    worker.job = None
                    return not job.put_back()
        finally:
            del job, following, outcome, owner  # an error's traceback leads to this frame


def join_threads(owner: JobOwner, num_threads: int | None, name: str) -> Share:
    """A share for *owner* in so many threads of its own; where no number is named, in those that pools have in common.

    Those there are as long as somebody has a share in them.
    """
    global _common
    with _lock:
        threads = _common if num_threads is None else WorkerThreads(num_threads, name)
        if threads is None:
            threads = _common = WorkerThreads(num_cores(), name)
        threads._num_users += 1
        return Share(threads, owner)
