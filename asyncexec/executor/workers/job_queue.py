"""JobQueue: what worker threads take from.

Of the threads that sleep, the one wakes that has slept for the shortest time: its stack is in the cache of its core.
And a library that shares the work of a call among threads of its own finds these where the call before has left them.
If threads took turns, the kernel would wake the library's on the very core of the one that waits for it, every tenth
time or so, until it balances the cores four or eight milliseconds later (measured with ONNX Runtime on two cores,
Linux 6.18: calls of 2 ms took 2.4 on average).

On a free-threaded build, an object that a thread has made and handed over is freed by that thread, and not before it
runs again, even though others drop the last reference.  So a thread without a job wakes up some times, ever later,
before it sleeps until there is one: what its last results were is not kept.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Final, Generic, TypeVar

from asyncexec.framework.interpreter import IS_FREE_THREADED

T = TypeVar("T")

_RELEASE: Final = type(threading.Lock()).release
_FOR_EVER: Final = -1.0
_NAPS_S: Final = (0.01, 0.1, 1.0) if IS_FREE_THREADED else ()


class JobQueue(Generic[T]):
    """First in, first out, from any number of threads to any number, each of which takes by a Taker of its own.

    What two threads do at once to the deque and the list are operations that are over in one step.
    """

    __slots__ = ("_has_ended", "_jobs", "_ready")

    def __init__(self) -> None:
        self._jobs: deque[T] = deque()
        self._ready: list[threading.Lock] = []  # the bells of the threads that sleep, or will look before they do
        self._has_ended = False

    def put(self, job: T) -> None:
        """Let *job* wait behind the others, for a thread that is up or that this wakes."""
        self._jobs.append(job)
        self.ring()

    def empty(self) -> bool:
        """Whether there was nothing just now."""
        return not self._jobs

    def end(self) -> None:
        """Let the threads end when there is no job left: not even one that a thread puts back until then."""
        self._has_ended = True
        while self.ring():
            pass

    def ring(self) -> bool:
        """Wake the thread that has come last; whether there was one."""
        try:
            # One step, in which no signal is handled: a thread that was no longer there to be woken would sleep on.
            next(map(_RELEASE, iter(self._ready.pop, None)))
        except IndexError:
            return False
        return True


class Taker(Generic[T]):
    """The end of *queue* that one thread takes from."""

    __slots__ = ("_bell", "_is_ready", "_queue")

    def __init__(self, queue: JobQueue[T]) -> None:
        self._queue = queue
        self._bell = threading.Lock()  # free when it has been rung
        self._bell.acquire()
        self._is_ready = False

    def get_ready(self) -> None:
        """Be the thread that gets what is put from now on: it is to take right after that."""
        if not self._is_ready:
            self._is_ready = True
            self._queue._ready.append(self._bell)

    def take(self) -> T | None:
        """The next job, for which the thread waits; None if it is to end."""
        queue, naps = self._queue, iter(_NAPS_S)
        while True:
            try:
                job = queue._jobs.popleft()
            except IndexError:
                if queue._has_ended:
                    return None
                if not self._is_ready:
                    self.get_ready()  # and look again: who came before that has rung for nobody
                elif self._bell.acquire(timeout=next(naps, _FOR_EVER)):
                    self._is_ready = False
                continue
            if self._is_ready:
                self._be_busy()
            return job

    def leave(self) -> None:
        """Take no more."""
        if self._is_ready:
            self._be_busy()

    def _be_busy(self) -> None:
        """Have nobody wake the thread, which is up; if somebody has, for another job, wake another thread."""
        self._is_ready = False
        try:
            self._queue._ready.remove(self._bell)
        except ValueError:
            self._bell.acquire()  # somebody has rung, or is about to
            if self._queue._jobs:
                self._queue.ring()
