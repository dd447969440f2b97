"""Worker processes, for pure-Python kernels that hold the GIL.

A thread of a worker pool talks to each process, by a pipe, and brings its results to the loop in batches as any worker
thread does.  Why not the executor of the standard library: when one of its processes ends, or has to be ended, all
calls fail; and one such executor for each process brings two more threads, which make a call half as dear again (470
microseconds against 300, measured side by side).

Processes are spawned (a fork copies locks that other threads hold) when calls first need them, and end with the
session.  Free-threaded builds have no use for them: there the calls are made on the threads themselves.
"""

from __future__ import annotations

import os
import secrets
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from asyncexec.executor.engine.grace_period import Grace
from asyncexec.executor.workers import process_main
from asyncexec.executor.workers.job import Outcome
from asyncexec.executor.workers.message import Failure, Message, attach, discard, pack, unpack
from asyncexec.executor.workers.offload import WorkerPool
from asyncexec.executor.workers.pool_statistics import PoolStatistics
from asyncexec.executor.workers.worker_calls import WorkerCalls
from asyncexec.framework.errors import InvalidArgumentError, UnavailableError
from asyncexec.framework.interpreter import gil_is_enabled
from asyncexec.framework.process_calls import FunctionReference

if TYPE_CHECKING:
    from multiprocessing.shared_memory import SharedMemory

_END_S: Final = 5.0  # how long a process without a call may take to end


class ProcessPool:
    """As many processes as cores at most, of one session.

    Args:
        num_processes: how many there can be, instead.
        grace: how long a call may go on when nobody wants its result; then its process is killed.
    """

    def __init__(self, num_processes: int | None = None, grace: Grace | None = None) -> None:
        self._threads = WorkerPool(num_processes, grace, name="asyncexec-process")
        self._calls = WorkerCalls(self._threads)
        self._idle: list[_WorkerProcess] = []
        self._uses_processes = gil_is_enabled()

    def statistics(self) -> PoolStatistics:
        """How the pool is doing: of its threads, each of which waits for a process."""
        return self._threads.statistics()

    def drop_loop(self) -> None:
        """Wait for no call any more: the loop that they were made in is closed."""
        self._threads.drop_loop()

    async def call(
        self, function: FunctionReference, args: Sequence[object], kwargs: Mapping[str, object], name: str = ""
    ) -> Any:
        """The result of *function* in a process.

        Raises:
            InvalidArgumentError: an argument or the result cannot be pickled.
            UnavailableError: the process ended before the call did.
            Exception: what the function raised, with a note on where.
        """
        if not self._uses_processes:
            return await self._calls.call(partial(function.resolve(), *args, **kwargs), name=name)
        lease = _Lease()
        return await self._calls.call(self._make, (lease, function, args, kwargs), name=name, interrupt=lease.kill)

    def _make(
        self, lease: _Lease, function: FunctionReference, args: Sequence[object], kwargs: Mapping[str, object]
    ) -> object:
        process = self._take()
        lease.begin(process)
        try:
            return process.call(function, args, kwargs)
        finally:
            lease.end()
            if process.is_killed:
                process.end()
            else:
                self._idle.append(process)

    def _take(self) -> _WorkerProcess:
        try:
            return self._idle.pop()  # the one that was used last
        except IndexError:
            return _WorkerProcess()

    async def close(self) -> None:
        """End the processes, whoever cancels meanwhile."""
        idle, self._idle = self._idle, []
        for process in idle:
            self._threads.submit(process.end, (), _ignore, "(the end of a worker process)")
        await self._threads.close(has_grace=False)  # they end in time, or are killed


def _ignore(_: Outcome) -> None:
    pass


class _Lease:
    """What one call has of a process: as long as it lasts, the process can be killed for its sake."""

    __slots__ = ("_is_killed", "_lock", "_process")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: _WorkerProcess | None = None
        self._is_killed = False

    def begin(self, process: _WorkerProcess) -> None:
        with self._lock:
            self._process = process
            if self._is_killed:
                process.kill()

    def end(self) -> None:
        with self._lock:
            self._process = None

    def kill(self) -> None:
        with self._lock:
            self._is_killed = True
            if self._process is not None:
                self._process.kill()


class _WorkerProcess:
    """A process, spawned at the first call; used by one thread at a time."""

    def __init__(self) -> None:
        from multiprocessing import get_context

        context = get_context("spawn")
        self._connection, self._other_end = context.Pipe()
        self._process = context.Process(
            target=process_main.serve, args=(self._other_end,), name="asyncexec-process", daemon=True
        )
        self.is_killed = False

    def call(self, function: FunctionReference, args: Sequence[object], kwargs: Mapping[str, object]) -> Any:
        name = f"asyncexec-{os.getpid():x}-{secrets.token_hex(4)}"
        inputs, segment = _packed((tuple(args), dict(kwargs)), name + "-in")
        try:
            is_result, message = self._answer((function, inputs, name + "-out"))
            value = _unpacked(message)
        finally:
            if segment is not None:
                segment.close()
                segment.unlink()
        if is_result:
            return value
        raise _raised(value)

    def _answer(self, message: tuple[FunctionReference, Message, str]) -> tuple[bool, Message]:
        if self._process.pid is None:
            with _interrupts_blocked():
                self._process.start()
            self._other_end.close()
            if self.is_killed:  # before there was a process
                self.kill()
        try:
            self._connection.send(message)
            answer: tuple[bool, Message] = self._connection.recv()
        except (EOFError, OSError) as error:
            self.kill()
            self._process.join()
            discard(message[2])
            raise _ended(self._process.exitcode) from error
        return answer

    def kill(self) -> None:
        """End the process, whatever it does."""
        self.is_killed = True
        if self._process.pid is not None:
            self._process.kill()

    def end(self) -> None:
        """Let the process end, and wait for it."""
        self._connection.close()  # which tells it
        self._process.join(_END_S)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join()


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Keeps Ctrl-C from a process that this thread starts, until the process ignores it: its imports take a while."""
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # which would end the block if the start of the process was to start it
    before = None if os.name == "nt" else signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        if before is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _packed(values: object, segment_name: str) -> tuple[Message, SharedMemory | None]:
    try:
        return pack(values, segment_name)
    except OSError:  # no room for a segment
        raise
    except Exception as error:
        raise InvalidArgumentError(
            f"an input cannot be sent to a process: {type(error).__name__}: {error}",
            hint="what goes in and comes out must be picklable",
        ) from error


def _unpacked(message: Message) -> Any:
    """The values in *message*, whose segment is then gone."""
    segment = attach(message)
    try:
        return unpack(message, segment, copy=True)
    finally:
        if segment is not None:
            segment.close()
            segment.unlink()


def _raised(failure: Failure) -> BaseException:
    failure.error.add_note(f"in a worker process:\n{failure.traceback.rstrip()}")
    return failure.error


def _ended(exit_code: int | None) -> UnavailableError:
    how = "" if exit_code is None else f" by signal {-exit_code}" if exit_code < 0 else f" with exit code {exit_code}"
    return UnavailableError(
        f"the process that ran it ended{how} before it did",
        hint="a script whose ops run in processes starts its work under: if __name__ == '__main__':",
    )
