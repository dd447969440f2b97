"""JobQueue: every job is taken once, by the thread that has slept for the shortest time, and the end reaches all."""

from __future__ import annotations

import sys
import threading
from collections import Counter, deque
from collections.abc import Callable
from types import FrameType
from typing import Any

from asyncexec.executor.workers import job_queue
from asyncexec.executor.workers.job_queue import JobQueue, Taker

_LIMIT_S = 10.0


class _Thread(threading.Thread):
    """Takes from *queue* until the end, and calls *on_job* with each."""

    def __init__(self, queue: JobQueue[int], on_job: Callable[[int], object]) -> None:
        super().__init__(daemon=True)
        self.taker = Taker(queue)
        self._on_job = on_job

    def run(self) -> None:
        while (job := self.taker.take()) is not None:
            self._on_job(job)


def _wait_for_sleepers(queue: JobQueue[int], count: int) -> None:
    while len(queue._ready) < count:
        threading.Event().wait(0.001)


def test_jobs_are_taken_in_order_and_what_is_there_at_the_end_too() -> None:
    queue: JobQueue[int] = JobQueue()
    for job in (1, 2, 3):
        queue.put(job)
    queue.end()
    taker = Taker(queue)
    assert [taker.take() for _ in range(4)] == [1, 2, 3, None]
    queue.put(4)  # by a thread that was at work
    assert [taker.take(), taker.take()] == [4, None]
    assert queue.empty()


def test_the_thread_that_has_slept_for_the_shortest_time_wakes() -> None:
    queue: JobQueue[int] = JobQueue()
    taken: list[tuple[int, str]] = []
    has_taken = threading.Semaphore(0)

    def note(job: int) -> None:
        taken.append((job, threading.current_thread().name))
        has_taken.release()

    threads = [_Thread(queue, note) for _ in range(3)]
    for count, thread in enumerate(threads, 1):
        thread.start()
        _wait_for_sleepers(queue, count)
    for job in range(5):
        queue.put(job)
        assert has_taken.acquire(timeout=_LIMIT_S)
        _wait_for_sleepers(queue, 3)
    queue.end()
    for thread in threads:
        thread.join()
    assert taken == [(job, threads[-1].name) for job in range(5)]


def test_a_thread_that_is_ready_gets_the_next_job_and_no_other_wakes() -> None:
    queue: JobQueue[int] = JobQueue()
    other = _Thread(queue, lambda job: None)
    other.start()
    _wait_for_sleepers(queue, 1)
    taker = Taker(queue)
    for job in range(3):
        taker.get_ready()
        taker.get_ready()  # no more than once
        queue.put(job)
        assert queue._ready == [other.taker._bell]
        assert taker.take() == job
    taker.get_ready()
    taker.leave()
    assert queue._ready == [other.taker._bell]
    queue.end()
    other.join()


def test_a_thread_that_leaves_wakes_another_for_the_job_that_it_was_woken_for() -> None:
    queue: JobQueue[int] = JobQueue()
    taken: list[int] = []
    has_taken = threading.Event()
    other = _Thread(queue, lambda job: (taken.append(job), has_taken.set()))
    other.start()
    _wait_for_sleepers(queue, 1)
    taker = Taker(queue)
    taker.get_ready()
    queue.put(1)
    taker.leave()
    assert has_taken.wait(_LIMIT_S)
    queue.end()
    other.join()
    assert taken == [1]


def test_whoever_is_interrupted_while_putting_takes_no_thread_out_of_service() -> None:
    class Interrupted(Exception):
        pass

    def put_until(step: int, queue: JobQueue[int]) -> bool:
        """Put a job, interrupted before that step of the interpreter, as by a signal; whether there are so many."""
        left = step

        def trace(frame: FrameType, event: str, arg: object) -> Any:
            nonlocal left
            if frame.f_code.co_filename != job_queue.__file__:
                return None
            frame.f_trace_opcodes = True
            if event == "opcode":
                left -= 1
                if not left:
                    raise Interrupted
            return trace

        before = sys.gettrace()
        sys._getframe().f_trace_opcodes = True  # Python 3.12 has no such events but where a frame asks for them by now
        sys.settrace(trace)
        try:
            queue.put(1)
        except Interrupted:
            return True
        finally:
            sys.settrace(before)
        return False

    step = 1
    while True:
        queue: JobQueue[int] = JobQueue()
        has_taken = threading.Event()
        thread = _Thread(queue, lambda job, has_taken=has_taken: job == 2 and has_taken.set())
        thread.start()
        _wait_for_sleepers(queue, 1)
        was_interrupted = put_until(step, queue)
        queue.put(2)
        assert has_taken.wait(_LIMIT_S), f"interrupted before step {step}"
        queue.end()
        thread.join()
        if not was_interrupted:
            break
        step += 1
    assert step > 10


def test_a_thread_that_is_woken_for_a_job_and_has_another_wakes_one_for_it() -> None:
    queue: JobQueue[int] = JobQueue()
    taken: list[int] = []
    has_taken = threading.Event()

    class Jobs(deque[int]):
        """Where a thread that takes the first job goes on when another sleeps, and the second job is there."""

        def popleft(self) -> int:
            job = super().popleft()
            if job == 0:
                other.start()
                _wait_for_sleepers(queue, 2)
                queue._ready.reverse()  # who has taken this job is rung for
                queue.put(1)
            return job

    other = _Thread(queue, lambda job: (taken.append(job), has_taken.set()))
    queue._jobs = Jobs([0])
    taker = Taker(queue)
    taker.get_ready()
    assert taker.take() == 0
    assert has_taken.wait(_LIMIT_S)
    queue.end()
    other.join()
    assert taken == [1]


def test_many_threads_take_each_job_once() -> None:
    queue: JobQueue[int] = JobQueue()
    jobs = range(4000)
    taken: list[int] = []
    has_taken = threading.Semaphore(0)

    def note(job: int) -> None:
        taken.append(job)
        has_taken.release()

    def put(first: int) -> None:
        for job in jobs[first::4]:
            queue.put(job)

    takers = [_Thread(queue, note) for _ in range(6)]
    threads = [*takers, *(threading.Thread(target=put, args=(first,)) for first in range(4))]
    for thread in threads:
        thread.start()
    for _ in jobs:
        assert has_taken.acquire(timeout=_LIMIT_S)
    queue.end()
    for thread in threads:
        thread.join()
    assert Counter(taken) == Counter(jobs)
