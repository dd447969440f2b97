"""LoadThreads: the threads on which a session has models loaded, which end with it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from asyncexec.framework.cooperative import outlast
from asyncexec.framework.errors import CancelledError
from asyncexec.process.gil_switches import start_thread


class Cancellable(Protocol):
    """The options of a load, as ONNX Runtime has them."""

    def set_load_cancellation_flag(self, value: bool, /) -> None: ...


class LoadStop:
    """Tells loads that nobody waits for them any more."""

    __slots__ = ("_is_set", "_lock", "_watched")

    def __init__(self) -> None:
        self._is_set = False
        self._lock = threading.Lock()
        self._watched: list[Cancellable] = []

    @property
    def is_set(self) -> bool:
        """Whether nobody waits."""
        return self._is_set

    def set(self) -> None:
        """Nobody waits from now on."""
        with self._lock:
            self._is_set = True
            for options in self._watched:
                options.set_load_cancellation_flag(True)

    def check(self) -> None:
        """Raise CancelledError if nobody waits."""
        if self._is_set:
            raise CancelledError("the session that the model is for has been closed")

    @contextmanager
    def watching(self, options: Cancellable) -> Iterator[None]:
        """Have ONNX Runtime end a load with *options* inside, too; CancelledError comes of it."""
        with self._lock:
            self.check()
            self._watched.append(options)
        try:
            yield
        except Exception:
            self.check()
            raise
        finally:
            with self._lock:
                self._watched.remove(options)


class LoadThreads:
    """The threads of one session.

    Attributes:
        stop: what the loads on them are to ask.
    """

    __slots__ = ("_lock", "_tellers", "_threads", "stop")

    def __init__(self) -> None:
        self.stop: LoadStop = LoadStop()
        self._lock = threading.Lock()
        self._threads: set[threading.Thread] = set()
        self._tellers: set[Callable[[], object]] = set()  # of those who wait until all have ended

    def start(self, load: Callable[..., object], *args: object) -> threading.Thread | None:
        """Call *load* on a thread; None where the session has been closed."""

        def run() -> None:
            try:
                load(*args)
            finally:
                with self._lock:
                    self._threads.remove(threading.current_thread())
                    tellers = list(self._tellers)
                for tell in tellers:
                    tell()

        with self._lock:
            if self.stop.is_set:
                return None
            # No daemon: Python waits for it at the end, which would abort in the midst of ONNX Runtime's own code.
            thread = threading.Thread(target=run, name="asyncexec-onnx", daemon=False)
            self._threads.add(thread)
            try:
                start_thread(thread)
            except BaseException:  # there may be no more threads
                self._threads.remove(thread)
                raise
        return thread

    async def close(self) -> None:
        """Wait until the threads have ended: within some tenths of a second, where models are large."""
        loop, progress = asyncio.get_running_loop(), asyncio.Event()

        def tell() -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(progress.set)

        with self._lock:
            self._tellers.add(tell)
            threads = list(self._threads)
        self.stop.set()

        def are_over() -> bool:
            progress.clear()
            return not self._threads

        try:
            await outlast(are_over, progress.wait)
        finally:
            with self._lock:
                self._tellers.remove(tell)
            for thread in threads:
                if thread not in self._threads:
                    thread.join()  # it has nothing left to do
