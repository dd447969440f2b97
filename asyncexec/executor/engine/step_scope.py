"""StepScope: one step as a structured scope.  What it started ends in it, whoever fails or cancels.

Steps, their parts on this device or on a worker, and streams are ended by five verbs, which mean the same everywhere:

========= =================================== ===================================================================
verb      who calls it                        what it does
========= =================================== ===================================================================
close     whoever feeds a stream              nothing more goes in; what is in there comes out
abort     a node that fails, another part of  nothing more begins, and the error is the failure, unless there is
          the step, a session that closes     one; what was launched is still there
cancel    a caller that is cancelled or       as abort; and nobody waits for results, only for the end, so what
          late, or leaves                     cannot be interrupted has less time
drain     who drives it, before its release   waits until nothing is in flight; after abort or cancel, what was
                                              launched is cancelled, and left behind when its grace period is over
release   who drives it, at last; whoever     gives the failure, and lets go of everything; what a cancelled step
          finds its loop closed               has changed in queues is undone
========= =================================== ===================================================================

A step takes no ``close``: its feeds are counted.  ``run_inline()`` and ``run()`` do all that a step needs; other
drivers, such as a stream, call the verbs.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FrameType
from typing import Any, Final, Protocol, TypeAlias

from asyncexec.compilation.graph_view import NodeItem
from asyncexec.executor.diagnostics.loop_holds import LoopHolds
from asyncexec.executor.engine.frame import TaskGroup
from asyncexec.executor.engine.grace_period import GracePeriod
from asyncexec.executor.engine.kernel_surroundings import call_among_kernels
from asyncexec.executor.engine.undo_log import UndoLog, is_cancellation, undo_all
from asyncexec.framework.clock import NS_PER_S
from asyncexec.framework.cooperative import let_others_go_on, outlast
from asyncexec.framework.derived import is_derived
from asyncexec.framework.error_text import one_line
from asyncexec.framework.errors import CancelledError, InternalError
from asyncexec.framework.spans import observed_span
from asyncexec.framework.under_way import NodeUnderWay, frames_of, told_by, within

MAX_NOTES: Final = 8  # of later failures, at the first
_MAX_TOLD: Final = 1_000  # of the text that tells iterations of steps in one another


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

    @property
    def has_failed(self) -> bool:
        """Whether it runs nothing more, as something has failed or it was cancelled."""
        return self._failure is not None

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
    def _abort(self, error: BaseException) -> None:
        """Let nothing more begin: the step has failed with *error*."""

    @abstractmethod
    def _cancel_launched(self, grace_period: GracePeriod) -> None:
        """Cancel what is awaited, and what no worker thread has begun; the rest has *grace_period* to end."""

    @abstractmethod
    async def _wait_for_launched(self) -> None:
        """Wait for some of what was launched, once it has been cancelled."""

    @abstractmethod
    def _abandon_launched(self) -> None:
        """Expect nothing of what was launched: the loop is closed."""

    @abstractmethod
    def _launched(self) -> Iterator[Launched]:
        """What is awaited, with its node, since when, where that is known, and its iterations."""

    @abstractmethod
    def task_groups(self) -> Iterable[TaskGroup]:
        """What is awaited."""

    def _missing(self) -> BaseException | None:
        """Why the step is not complete, although nothing can happen in it any more."""
        return None

    def is_stuck(self) -> bool:
        """Whether the step waits for what only itself could bring about; it is aborted then."""
        return self._failure is not None

    def under_way(self) -> Iterator[NodeUnderWay]:
        """The nodes that have begun and not ended; of one that runs a step itself, the nodes of that.

        Steps may be nested deeper than Python calls may.
        """
        steps = [("", self.found_under_way())]
        while steps:
            outer, found = steps[-1]
            for each in found:
                if isinstance(each, NodeUnderWay):
                    yield within(outer, each)
                    continue
                iteration, inner = each
                told = outer if len(outer) > _MAX_TOLD else ", ".join(filter(None, (outer, iteration)))
                steps.append((told, inner.found_under_way()))
                break
            else:
                steps.pop()

    def found_under_way(self) -> Iterator[NodeUnderWay | tuple[str, StepScope]]:
        """Nodes under way, with the step and its iteration in place of a node that runs a step."""
        for item, start_ns, awaited, loops in self._launched():
            waits_for: list[str] = []
            iteration = ", ".join(loops)
            for frame in frames_of(awaited):
                inner = step_in(frame)
                if inner is not None:
                    yield iteration, inner
                    break
                told = told_by(frame)
                if told is not None:
                    waits_for.append(told)
            else:
                since_s = None if start_ns is None else (self.holds.clock.now_ns() - start_ns) / NS_PER_S
                yield NodeUnderWay(item.node.name, item.node.op, tuple(waits_for), since_s, iteration)

    def _run_slice(self) -> None:
        """Run ready nodes until there are none, the slice is spent, or one fails."""
        start = self.holds.clock.now_ns()
        elapsed = call_among_kernels(self.run_ready, start, start + self._slice_ns) - start
        if elapsed > self.holds.longest_slice_ns:
            self.holds.longest_slice_ns = elapsed

    def reset(self) -> bool:
        """Let go of all values, after the step has ended well; whether it may be used again."""
        return False

    def restart(self, feeds: Sequence[Any] | None, waiter: Waiter) -> None:
        """Be the next step of the same maker, after ``reset``: that is cheaper than to make another."""
        raise InternalError("this step is not reset, and so is not begun again")

    def run_inline(self) -> bool:
        """Run what is ready until a slice is spent; whether the step has ended.  Raises the step's failure."""
        try:
            self._run_slice()
        except BaseException as raised:
            # A KeyboardInterrupt, say: if something is in flight, run() ends it and raises this.
            self.abort(raised)
        if self.is_waiting or (self._failure is None and self.has_ready):
            return False
        self._raise_failure()
        return True

    async def run(self, look: Callable[[], bool] | None = None) -> None:
        """Run to the end.  Whatever happens, nothing that the step started outlives this.

        Args:
            look: called whenever something has run; as long as it says True, more feeds may come, and the step goes on.
        """
        is_over = False
        try:
            try:
                if look is not None:
                    await self._run_while_open(look)
                has_ready = self.has_ready
                while self._failure is None:
                    if has_ready:
                        await let_others_go_on()
                    elif not self.is_waiting:
                        is_over = True
                        break
                    elif not self.is_stuck():
                        self._waiter = told = self._loop.create_future()
                        await told
                    has_ready = self.has_ready
                    if has_ready:
                        self._run_slice()
                        has_ready = self.has_ready
            except asyncio.CancelledError:
                self.cancel(asyncio.CancelledError())  # results that still come in are dropped
                raise
            finally:
                if not is_over and self.is_waiting:
                    await self.drain()
        except BaseException as raised:  # the caller's cancellation comes before what a kernel raised
            if self._failure is None:
                self._abort(raised)
            self._failure = raised
        self._raise_failure()

    async def _run_while_open(self, look: Callable[[], bool]) -> None:
        self._run_slice()
        while self._failure is None and look():
            await (let_others_go_on() if self.has_ready else self._told())
            self._run_slice()

    def _raise_failure(self) -> None:
        # An error whose traceback holds this state must not be held by it in turn: the cycle would keep tensors alive.
        failure = self.release()
        if failure is not None:
            try:
                raise failure
            finally:
                del failure

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
            self._abort(error)
        self.wake()

    def cancel(self, error: BaseException) -> None:
        """``abort``, and nobody waits for results, only for the end: what cannot be interrupted has less time."""
        if self._grace_period is None:
            self._grace_period = GracePeriod(self._loop, is_cancelled=True)
        else:
            self._grace_period.cancel()
        self.abort(error)

    async def drain(self) -> None:
        """Cancel what is awaited, and wait for it and for the worker threads, whoever else cancels meanwhile."""
        if self._loop.is_closed():  # the coroutine was closed, too: there is no waiting
            self._abandon()
            return
        if self._failure is None:
            self.abort(asyncio.CancelledError())  # results that still come in are dropped
        self._grace_period = self._grace_period or GracePeriod(self._loop)
        self._cancel_launched(self._grace_period)
        span = observed_span()
        with contextlib.nullcontext() if span is None else span.cancellation():
            await outlast(lambda: not self.is_waiting, self._wait_or_cancel)

    async def _wait_or_cancel(self) -> None:
        try:
            await self._wait_for_launched()
        except asyncio.CancelledError:
            self.cancel(asyncio.CancelledError())
            raise

    def release(self) -> BaseException | None:
        """What the step has failed with, once it has ended; nothing in it holds another part of it any more.

        Where it was cancelled, what it has changed is undone.
        """
        if self._loop.is_closed():
            self._abandon()
        elif self._failure is None and (error := self._missing()) is not None:
            self.abort(error)
        failure, self._failure = self._failure, None
        later, self._later = self._later, None
        self._waiter = None
        if failure is not None:
            with contextlib.suppress(Exception):  # of an exception that takes no notes
                for note in (later or ())[:MAX_NOTES]:
                    failure.add_note(note)
            if is_cancellation(failure):
                self.undo()
        return failure

    def _abandon(self) -> None:
        """Expect nothing any more, as the loop is closed; whatever has not failed is cancelled."""
        self._failure = self._failure or CancelledError("the event loop of the step was closed")
        self._abandon_launched()
        self.undo()

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

    def wake(self) -> None:
        """Let the step see what has come back."""
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _told(self) -> asyncio.Future[None]:
        """What is done when something that was launched has come back, or the step is aborted."""
        self._waiter = future = self._loop.create_future()
        return future

    async def _wait(self, timeout_s: float | None = None) -> None:
        """Wait until something that was launched has come back, the step is aborted, or the time is over."""
        timer = None if timeout_s is None else self._loop.call_later(timeout_s, self.wake)
        try:
            await self._told()
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()
