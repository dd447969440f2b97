"""StepScope: one step as a structured scope.  What it started ends in it, whoever fails or cancels."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FrameType
from typing import Any, Final, Protocol, TypeAlias

from asyncexec.compilation.graph_view import NodeItem
from asyncexec.executor.diagnostics.loop_holds import LoopHolds
from asyncexec.executor.engine.ending import Ending
from asyncexec.executor.engine.frame import TaskGroup
from asyncexec.executor.engine.grace_period import GracePeriod
from asyncexec.executor.engine.kernel_surroundings import call_among_kernels
from asyncexec.executor.engine.undo_log import UndoLog, is_cancellation, undo_all
from asyncexec.framework.clock import NS_PER_S
from asyncexec.framework.cooperative import outlast
from asyncexec.framework.derived import is_derived
from asyncexec.framework.error_text import one_line
from asyncexec.framework.errors import CancelledError, InternalError
from asyncexec.framework.spans import observed_span
from asyncexec.framework.under_way import NodeUnderWay, frames_of, told_by, within

MAX_NOTES: Final = 8  # of later failures, at the first


class Waiter(Protocol):
    """What is told once that something has come back; a Future is one."""

    def done(self) -> bool: ...

    def set_result(self, result: None, /) -> None: ...


class FailureKeeper(ABC):
    """A Waiter that may let its step go on when a node in it has failed."""

    __slots__ = ()

    @abstractmethod
    def keep_failure(self, item: NodeItem, error: BaseException) -> bool:
        """Take the *error* of *item*, which gives nothing to its consumers then; whether the step is to go on."""


class StepMaker(Protocol):
    """What has all that the steps of one signature have in common."""

    def start(self, feeds: Sequence[Any] | None, /) -> StepScope:
        """A step with the values of *feeds*, or one whose feeds come by ``deliver_feed``; nothing has run yet."""
        ...


# A node, when it was launched, the coroutine that awaits it, and the loops and iterations that it is in.
Launched: TypeAlias = tuple[NodeItem, int | None, Any, Sequence[str]]


def step_in(frame: FrameType) -> StepScope | None:
    """The step that *frame* runs, if it does."""
    return frame.f_locals["self"] if frame.f_code is StepScope.run.__code__ else None


class StepScope(ABC):
    """A step.  ``run_inline()`` first; if that says False, ``await run()``.

    The first failure ends the step; the caller's own cancellation comes before it.

    Args:
        slice_ns: how long it may hold the event loop at a stretch.

    Attributes:
        holds: is told how long that was.
        undo_log: what it has changed in queues; None as long as there is nothing.
    """

    __slots__ = ("_failure", "_grace_period", "_later", "_loop", "_slice_ns", "_waiter", "holds", "undo_log")

    def __init__(self, slice_ns: int, holds: LoopHolds) -> None:
        self._loop = asyncio.get_running_loop()
        self._slice_ns = slice_ns
        self.holds: LoopHolds = holds
        self._failure: BaseException | None = None
        self._later: list[str] | None = None  # what nodes have raised since
        self._grace_period: GracePeriod | None = None  # of a step that ends
        self._waiter: Waiter | None = None
        self.undo_log: UndoLog | None = None

    @property
    @abstractmethod
    def has_ready(self) -> bool:
        """Whether there is a node to run."""

    @property
    @abstractmethod
    def is_waiting(self) -> bool:
        """Whether something that was launched has not come back."""

    @abstractmethod
    def run_ready(self, now: int, end: int) -> int:
        """Run ready nodes until there are none, the time *end* has come, or one fails; the time that it is then."""

    @abstractmethod
    def deliver_feed(self, index: int, value: Any) -> None:
        """Take the value of one feed, in a step that was started without feeds."""

    @abstractmethod
    def fetched(self) -> list[Any]:
        """The values of the fetches; NOTHING where none has arrived."""

    @abstractmethod
    def _stop(self, error: BaseException) -> None:
        """Run nothing more: the step has failed with *error*."""

    @abstractmethod
    def _cancel_launched(self) -> None:
        """Cancel what is awaited, and what no worker thread has begun."""

    @abstractmethod
    def _drop_launched(self) -> None:
        """Wait for nothing that was launched: the loop is closed."""

    @abstractmethod
    async def _wait_for_launched(self) -> None:
        """Wait for some of what was launched, after a failure."""

    @abstractmethod
    def _launched(self) -> Iterator[Launched]:
        """What is awaited, with its node, since when, where that is known, and its iterations."""

    def under_way(self) -> Iterator[NodeUnderWay]:
        """The nodes that have begun and not ended; of one that runs a step itself, the nodes of that."""
        for item, start_ns, awaited, loops in self._launched():
            waits_for: list[str] = []
            iteration = ", ".join(loops)
            for frame in frames_of(awaited):
                inner = step_in(frame)
                if inner is not None:
                    yield from (within(iteration, each) for each in inner.under_way())
                    break
                told = told_by(frame)
                if told is not None:
                    waits_for.append(told)
            else:
                since_s = None if start_ns is None else (self.holds.clock.now_ns() - start_ns) / NS_PER_S
                yield NodeUnderWay(item.node.name, item.node.op, tuple(waits_for), since_s, iteration)

    @abstractmethod
    def _task_groups(self) -> Iterable[TaskGroup]:
        """What is awaited."""

    @abstractmethod
    def _check_complete(self) -> None:
        """Abort the step if nothing can happen any more in it, and yet it is not done."""

    @abstractmethod
    def _check_progress(self) -> None:
        """Abort the step if it waits for what only itself could bring about."""

    @abstractmethod
    def _endings(self) -> Iterable[Ending]:
        """What decides how long the step waits for what was launched."""

    def _drain(self) -> None:
        """Run ready nodes until there are none, the slice is spent, or one fails."""
        start = self.holds.clock.now_ns()
        elapsed = call_among_kernels(self.run_ready, start, start + self._slice_ns) - start
        if elapsed > self.holds.longest_slice_ns:
            self.holds.longest_slice_ns = elapsed

    @abstractmethod
    def be_careful(self) -> None:
        """Call no kernel inline with large inputs that was never timed with such."""

    def end(self) -> BaseException | None:
        """What a step has failed with in which nothing is left to do, if it has."""
        self._check_complete()
        return self.take_failure()

    def rest(self) -> bool:
        """Let go of all values, after the step has ended well; whether it may be used again."""
        return False

    def restart(self, feeds: Sequence[Any] | None, waiter: Waiter) -> None:
        """Be the next step of the same maker, after ``rest``: that is cheaper than to make another."""
        raise InternalError("this step does not rest, and so is not begun again")

    def is_stuck(self) -> bool:
        """Whether the step waits for what only itself could bring about; it is aborted then."""
        self._check_progress()
        return self._failure is not None

    def run_inline(self) -> bool:
        """Run what is ready until a slice is spent; whether the step has ended.  Raises the step's failure."""
        try:
            self._drain()
        except BaseException as raised:
            # A KeyboardInterrupt, say: if something is in flight, run() ends it and raises this.
            self.abort(raised)
        if self.is_waiting or (self._failure is None and self.has_ready):
            return False
        self._check_complete()
        self._raise_failure()
        return True

    async def run(self, look: Callable[[], bool] | None = None) -> None:
        """Run to the end.  Whatever happens, nothing that the step started outlives this.

        Args:
            look: called whenever something has run; as long as it says True, more feeds may come, and the step goes on.
        """
        try:
            try:
                await (self._run_while_nothing_fails() if look is None else self._run_while_open(look))
            except asyncio.CancelledError:
                self.leave()
                raise
            finally:
                if self.is_waiting:
                    await self._end_launched()
        except BaseException as raised:  # the caller's cancellation comes before what a kernel raised
            if self._failure is None:
                self._stop(raised)  # cancelled where nothing had been launched
            self._failure = raised
        self._raise_failure()

    async def _run_while_nothing_fails(self) -> None:
        while self._failure is None:
            if self.has_ready:
                await asyncio.sleep(0)
            elif self.is_waiting:
                self._check_progress()
                if self._failure is None:
                    await self._wait()
            else:
                self._check_complete()
                return
            self._drain()

    async def _run_while_open(self, look: Callable[[], bool]) -> None:
        self._drain()
        while self._failure is None and look():
            await (asyncio.sleep(0) if self.has_ready else self._wait())
            self._drain()
        await self._run_while_nothing_fails()

    def _raise_failure(self) -> None:
        # An error whose traceback holds this state must not be held by it in turn: the cycle would keep tensors alive.
        failure = self.take_failure()
        if failure is not None:
            try:
                raise failure
            finally:
                del failure

    def take_failure(self) -> BaseException | None:
        """What the step has failed with, once it has ended; nothing in it holds another part of it any more.

        Where it was cancelled, what it has changed is undone.
        """
        failure, self._failure = self._failure, None
        later, self._later = self._later, None
        self._waiter = None
        if failure is not None:
            with contextlib.suppress(Exception):  # of an exception that takes no notes
                for note in (later or ())[:MAX_NOTES]:
                    failure.add_note(note)
        if failure is not None and is_cancellation(failure):
            self.undo()
        return failure

    def undo(self) -> None:
        """Undo what it has changed in queues: nobody gets its results."""
        log, self.undo_log = self.undo_log, None
        if log is not None:
            undo_all([log])

    def watch(self, waiter: Waiter) -> None:
        """Tell *waiter* whatever comes back, where somebody else than ``run()`` drives the step."""
        self._waiter = waiter

    def abort(self, error: BaseException) -> None:
        """End the step with *error*, unless it has failed already."""
        if self._failure is None:
            self._failure = error
            self._stop(error)
        self.wake()

    def note_later(self, item: NodeItem, error: BaseException) -> None:
        """Let the step's failure tell of *error*, which *item* has raised since, unless it comes of that failure."""
        if isinstance(error, CancelledError) or not isinstance(error, Exception) or is_derived(error):
            return
        self._later = self._later or []
        self._later.append(f"while the step ended, {item.node.name!r} raised {one_line(error)}")

    def fail_node(self, item: NodeItem, error: BaseException) -> None:
        """End the step with the *error* of *item*, unless its waiter lets it go on."""
        waiter: object = self._waiter
        if isinstance(waiter, FailureKeeper) and self._failure is None and waiter.keep_failure(item, error):
            self.wake()
        else:
            self.abort(error)

    def drop(self) -> None:
        """Let go of everything: the loop is closed, and nothing that is awaited comes back."""
        self._failure = self._failure or CancelledError("the event loop of the step was closed")
        self._waiter = None
        self._drop_launched()
        self.undo()

    def leave(self) -> None:
        """Take note that nobody waits for results, only for the end: what cannot be interrupted has less time."""
        if self._grace_period is None:
            self._grace_period = GracePeriod(self._loop, is_left=True)
        else:
            self._grace_period.leave()
            self.wake()

    def wake(self) -> None:
        """Let the step see what has come back."""
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def _wait(self, timeout_s: float | None = None) -> None:
        """Wait until something that was launched has come back, the step is aborted, or the time is over."""
        self._waiter = future = self._loop.create_future()
        timer = None if timeout_s is None else self._loop.call_later(timeout_s, self.wake)
        try:
            await future
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

    async def _end_launched(self) -> None:
        """Cancel what is awaited, and wait for it and for the worker threads, whoever else cancels meanwhile."""
        if self._loop.is_closed():  # the coroutine was closed, too: there is no waiting
            self.drop()
            return
        if self._failure is None:
            self.abort(asyncio.CancelledError())  # results that still come in are dropped
        self._cancel_launched()
        grace_period = self._grace_period = self._grace_period or GracePeriod(self._loop)
        for ending in self._endings():
            ending.grace_period = grace_period
        for group in self._task_groups():
            grace_period.cover(group.values())
        span = observed_span()
        with contextlib.nullcontext() if span is None else span.cancellation():
            await outlast(lambda: not self.is_waiting, self._wait_or_leave)

    async def _wait_or_leave(self) -> None:
        try:
            await self._wait_for_launched()
        except asyncio.CancelledError:
            self.leave()
            raise
