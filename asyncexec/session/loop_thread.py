"""LoopThread: an event loop on a thread of its own, and calls into it that other threads wait for.

A call is a task of the loop.  An exception that reaches the waiting thread from outside cancels that task, and is
raised when the task has ended.  Such an exception is Ctrl-C, what the handler of another signal raises, or what another
thread sends (``PyThreadState_SetAsyncExc``).  A second one is raised at once; the task then ends in the background.

Such an exception may come between any two bytecodes of the waiting thread.  So that thread never holds a lock that the
loop's thread takes: it sends callbacks to the loop, and reads what the loop has set.  All else belongs to the loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any, Final

from asyncexec.framework.errors import CancelledError, FailedPreconditionError

# How often a waiting thread wakes up: an exception that no signal brings reaches it only then.
_WAKE_S: Final = 0.05
_INTERRUPTS: Final = (KeyboardInterrupt, SystemExit)


class _Latch:
    """Is set once, by the loop's thread; others wait for it."""

    __slots__ = ("_lock", "is_set")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()  # until it is set
        self.is_set = False

    def set(self) -> None:
        """Let those who wait go on."""
        self.is_set = True
        self._lock.release()

    def wait_a_moment(self) -> None:
        """Wait until it is set, or for ``_WAKE_S``."""
        if self._lock.acquire(timeout=_WAKE_S):
            self._lock.release()


class _Call:
    """A call of a coroutine function in the loop.

    Attributes:
        ended: set when there is a result or an error.
    """

    __slots__ = ("_args", "_error", "_function", "_has_begun", "_is_cancelled", "_result", "_task", "ended")

    def __init__(self, function: Callable[..., Awaitable[Any]], args: tuple[object, ...]) -> None:
        self._function = function
        self._args = args
        self._task: asyncio.Task[None] | None = None
        self._has_begun = self._is_cancelled = False
        self._result: object = None
        self._error: BaseException | None = None
        self.ended = _Latch()

    def begin(self, under_way: set[_Call]) -> None:
        """Make the task; until it has ended, this is one of *under_way*."""
        under_way.add(self)
        self._task = asyncio.get_running_loop().create_task(self._run(under_way))

    async def _run(self, under_way: set[_Call]) -> None:
        self._has_begun = True
        try:
            self._result = await self._function(*self._args)
        except asyncio.CancelledError as raised:
            self._error = CancelledError("the call was cancelled in its event loop")
            self._error.__cause__ = raised
        except BaseException as raised:  # for the waiting thread, whatever it is: the loop goes on
            self._error = raised
        under_way.discard(self)
        self.ended.set()

    def cancel(self) -> None:
        """Cancel the task, once: a second time would interrupt its clean-up."""
        if self._is_cancelled or self.ended.is_set:
            return
        if self._task is None:  # nothing will make it any more
            self.ended.set()
        elif self._has_begun:
            self._is_cancelled = True
            self._task.cancel()
        else:  # cancelled now, it would never run
            self._task.get_loop().call_soon(self.cancel)

    def result(self) -> Any:
        """What the function gave; raises what it raised."""
        error, self._error = self._error, None
        if error is None:
            return self._result
        try:
            raise error
        finally:
            del error  # its traceback holds this frame


class LoopThread:
    """Runs a loop of *loop_factory* from its start until it is closed."""

    def __init__(self, loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
        self._loop_factory = loop_factory
        self._loop: asyncio.AbstractEventLoop | None = None  # not made yet
        self._under_way: set[_Call] = set()
        self._last: _Call | None = None
        self._is_over = False  # the last call has ended
        self._begun = _Latch()  # set when the loop is there, or could not be made
        self._ended = _Latch()  # set when the loop is closed
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run_loop, name="asyncexec-loop", daemon=True)

    def start(self) -> None:
        """Start the thread, and wait for its loop; whoever is interrupted meanwhile calls ``stop``.

        Raises:
            RuntimeError: there can be no more threads.
            Exception: what the factory raised.
        """
        self._thread.start()
        while not self._begun.is_set:
            self._begun.wait_a_moment()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """End the thread, maybe before it has a loop, without a last call; do not wait."""
        self._is_over = True
        if self._loop is not None:
            self._send(self._loop.stop)

    @property
    def is_current(self) -> bool:
        """Whether the running code is in this thread, which cannot wait for its own loop."""
        return threading.get_ident() == self._thread.ident

    @property
    def is_open(self) -> bool:
        """Whether the thread runs, as it does not in a process that was forked, and its last call has not begun."""
        return self._last is None and self._thread.is_alive()

    @property
    def is_busy(self) -> bool:
        """Whether a call is under way."""
        return bool(self._under_way)

    def call(self, function: Callable[..., Awaitable[Any]], *args: object) -> Any:
        """What *function* gives, called with *args* and awaited in the loop, in a copy of this context.

        Raises:
            FailedPreconditionError: the loop is closed, or runs in this thread.
            CancelledError: somebody else has cancelled the task.
            Exception: what the function raised.
        """
        call = _Call(function, args)
        self._wait(call.ended, partial(call.begin, self._under_way), call.cancel)
        if not call.ended.is_set:
            raise FailedPreconditionError("this session is not open", hint="use it in a 'with' block")
        return call.result()

    def close(self, function: Callable[[], Awaitable[object]]) -> None:
        """Await *function* as the last call, unless there is one already, and end the thread.

        Raises:
            FailedPreconditionError: it is this thread.
            Exception: what the function raised.
        """
        last = _Call(self._end, (function,))
        self._wait(self._ended, partial(self._begin_last, last), partial(self._cancel_last, last))
        self._thread.join()
        if last.ended.is_set:
            last.result()

    def close_soon(self, function: Callable[[], Awaitable[object]], wait_s: float) -> None:
        """Let *function*, cancelled from the start, be the last call; wait at most *wait_s* for the end."""
        self._send(partial(self._cancel_last, _Call(self._end, (function,))))
        if wait_s:
            self._thread.join(wait_s)

    def _wait(self, latch: _Latch, begin: Callable[[], object], cancel: Callable[[], object]) -> None:
        """Have *begin* called in the loop, and wait for *latch*, or the end of the loop.

        An exception that comes from outside has *cancel* called there.
        """
        if self.is_current:
            raise FailedPreconditionError(
                "a kernel in the event loop of a BlockingSession cannot wait for what that loop is to do",
                hint="run it on a worker thread: @ax.op(expensive=True)",
            )
        try:
            self._send(begin)
            self._wait_for(latch)
        except BaseException:
            try:
                self._send(cancel)
            finally:  # another exception may have come before that was done
                self._send(cancel)
            self._wait_for(latch)
            raise

    def _wait_for(self, latch: _Latch) -> None:
        """Wait for *latch*, or the end of the loop.

        By itself, as since Python 3.12 no ``try`` catches what comes as a loop at its end jumps back.
        """
        while not (latch.is_set or self._ended.is_set):
            latch.wait_a_moment()

    def _send(self, callback: Callable[[], object]) -> None:
        """Have *callback* called in the loop, in a copy of this context, unless the loop is closed."""
        loop = self._loop
        assert loop is not None  # it has been started
        try:
            loop.call_soon_threadsafe(callback, context=copy_context())
        except RuntimeError:
            if not loop.is_closed():
                raise

    # In the thread of the loop.

    def _begin_last(self, call: _Call) -> _Call:
        """Let *call* be the last, unless there is one; which one that is."""
        if self._last is None:
            self._last = call
            call.begin(self._under_way)
        return self._last

    def _cancel_last(self, call: _Call) -> None:
        self._begin_last(call).cancel()

    async def _end(self, function: Callable[[], Awaitable[object]]) -> None:
        try:
            await function()
        finally:
            self._is_over = True
            asyncio.get_running_loop().stop()

    def _run_loop(self) -> None:
        try:
            with suppress(*_INTERRUPTS), asyncio.Runner(loop_factory=self._loop_factory) as runner:
                self._loop = runner.get_loop()
                self._begun.set()
                while not self._is_over:
                    with suppress(*_INTERRUPTS):  # of a task, which has it for those who await that
                        self._loop.run_forever()
        except BaseException as error:
            if self._begun.is_set:
                raise
            self._failure = error
        finally:
            if not self._begun.is_set:
                self._begun.set()
            self._ended.set()
