"""Job: calls for a worker thread, one after the other, each of which takes what the one before has given.

The event loop submits a job, and hears of it again when its last call has ended, or one has failed.  Between two calls
the job belongs to its thread: it makes the next call at once, or, if other jobs wait, puts the job behind them.

Who has a job's *turn* may go on with it: the thread that took the job from the queue, or who cancelled it there.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from asyncexec.framework.cancellation import CancellableCall, call_around
from asyncexec.framework.errors import CancelledError
from asyncexec.framework.kernel import do_nothing
from asyncexec.process.gil_watch import Finding

if TYPE_CHECKING:
    from asyncexec.executor.workers.worker_threads import Share


class _HandedOn:
    """Stands for the result of a call that the next call has taken."""

    def __repr__(self) -> str:
        return "<handed on>"


HANDED_ON: Final = _HandedOn()
_EMPTY: Final = contextvars.Context()


class Outcome(NamedTuple):
    """What became of a call on a worker thread; times by the clock of its pool, *cpu_ns* of the processor."""

    result: Any
    error: BaseException | None
    start_ns: int
    end_ns: int
    thread_id: int
    finding: Finding | None = None
    cpu_ns: int = 0


Done: TypeAlias = Callable[[list[Outcome]], None]


class Call(CancellableCall):
    """One call of a job: of *function*, for the node *name*, in a *context* of its own.

    One that *is_cheap* follows the call before at once, whoever waits for a thread.
    """

    __slots__ = ("args", "context", "function", "is_cheap", "name")

    def __init__(
        self, function: Callable[..., object], args: Sequence[object] = (), name: str = "", *, is_cheap: bool = False
    ) -> None:
        super().__init__(call_around.get())
        self.context: contextvars.Context = contextvars.copy_context()
        self.function: Callable[..., Any] = function
        self.args: Sequence[object] = args
        self.name: str = name
        self.is_cheap: bool = is_cheap

    def receive(self, result: object) -> bool:
        """Take the *result* of the call before; False where this call is not to be made with it."""
        self.args = (result,)
        return True

    def take(self) -> tuple[contextvars.Context, Callable[..., Any], Sequence[object]]:
        """The context, the function and its arguments; the call, which is about to be made, lets go of them."""
        self.context.run(call_around.set, self)
        taken = self.context, self.function, self.args
        self.context, self.function, self.args = _EMPTY, do_nothing, ()
        return taken


def told_of(job: Job) -> str:
    """What who waits for *job* waits for."""
    return "was at work on a worker thread" if job.has_begun else "waited for a worker thread"


class Job:
    """Calls that were submitted.

    Attributes:
        calls: all of them; running: the one that is made, or the next one.
        outcomes: of the calls that have ended.
        loop: the one it was submitted in.
        share: whose jobs it waits among.
        done: is called there; None when nobody waits any more.  For the loop's thread alone.
        on_return: of a job that is abandoned: called when it has ended.
    """

    __slots__ = (
        "_is_stopped",
        "_turn",
        "calls",
        "done",
        "loop",
        "on_return",
        "outcomes",
        "running",
        "share",
    )

    def __init__(self, calls: Sequence[Call], done: Done, loop: asyncio.AbstractEventLoop, share: Share) -> None:
        self.calls: Sequence[Call] = calls
        self.running: Call = calls[0]
        self.outcomes: list[Outcome] = []
        self.loop: asyncio.AbstractEventLoop = loop
        self.share: Share = share
        self.done: Done | None = done
        self.on_return: Callable[[], object] | None = None
        self._turn = [None]
        self._is_stopped = False

    @property
    def name(self) -> str:
        """The node of the call that is made, or of the next one."""
        return self.running.name

    @property
    def has_begun(self) -> bool:
        """Whether a thread is at work on it."""
        return not self._turn

    @property
    def following(self) -> Call | None:
        """The call after the one that is made."""
        position = len(self.outcomes) + 1
        return self.calls[position] if position < len(self.calls) else None

    def take_turn(self) -> bool:
        """Whether the caller may go on with the job; nobody else may then."""
        try:
            self._turn.pop()
        except IndexError:
            return False
        return True

    def put_back(self) -> bool:
        """Let the job wait behind the others of its share; False where it was stopped just now, and keeps its turn."""
        self._turn.append(None)
        if self.is_stopped:
            return not self.take_turn()  # unless who stopped it has
        self.share.put(self)
        return True

    def goes_on_with(self, call: Call) -> bool:
        """Whether the next *call* is to be made."""
        self.running = call
        return not self.is_stopped  # asked last: who stops the job tells the running call after that

    @property
    def is_stopped(self) -> bool:
        """Whether no call is to be begun any more."""
        return self._is_stopped or self.loop.is_closed()

    def stop(self) -> None:
        """Begin no further call."""
        self._is_stopped = True

    def drop(self) -> None:
        """Let go of all that the calls hold; for who has the turn."""
        self.running.take()
        self.calls = ()

    def dropped(self, now_ns: int) -> list[Outcome]:
        """The outcomes of a job that nobody will finish."""
        error = CancelledError("Session has been closed.")
        return [*self.outcomes, Outcome(None, error, now_ns, now_ns, threading.get_native_id())]

    def tell_of_return(self) -> None:
        """Call ``on_return``, if it has not been called."""
        on_return, self.on_return = self.on_return, None
        if on_return is not None:
            on_return()

    def give_up(self) -> None:
        """Tell the running call that nobody wants its result; what its callbacks raise is raised here."""
        self.running.give_up()
