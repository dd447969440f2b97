"""JobQueue: what worker threads take from.

On a free-threaded build, an object that a thread has made and handed over is freed by that thread, and not before it
runs again, even though others drop the last reference.  So a thread without a job wakes up some times, ever later,
before it sleeps until there is one: what its last results were is not kept.
"""

from __future__ import annotations

from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Final, TypeVar

from asyncexec.framework.interpreter import IS_FREE_THREADED

T = TypeVar("T")

_NAPS_S: Final = (0.01, 0.1, 1.0) if IS_FREE_THREADED else ()


class JobQueue(SimpleQueue[T | None]):
    """First in, first out; None tells all threads to end when there is nothing left."""

    def end(self) -> None:
        """Let the threads end when there is no job left: not even one that a thread puts back until then."""
        self.put(None)

    def wait(self) -> T | None:
        """The next one, for which a thread waits; None if that is to end."""
        job = self._wait()
        if job is not None:
            return job
        with suppress(Empty):
            while (job := self.get_nowait()) is None:
                pass
        self.put(None)  # for the others, and for this one when it comes back
        return job

    def _wait(self) -> T | None:
        for nap_s in _NAPS_S:
            with suppress(Empty):
                return self.get(timeout=nap_s)
        return self.get()
