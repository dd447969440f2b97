"""Where the running code is in a run with a journal: the run, the node, its frames and iterations.

A *path* tells a call of a node from all others of its run: the loops around it with the iteration of each, from the
outside in, then the name of the node.  What runs inside of the node (a function, a run that its op begins) has paths
that begin with the path of the node.  The call finds its scope in a context variable, as it does its span.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from asyncexec.framework.errors import FailedPreconditionError, InvalidTypeError

if TYPE_CHECKING:
    from asyncexec.durable.run_journal import Asked, RunJournal

Path: TypeAlias = tuple[str, ...]


class Parked(BaseException):
    """Ends the call of a node that waits for a value from outside; no Exception, so that ops do not catch it."""


class JournaledStep:
    """A step of a run with a journal: the run itself, a function that a node calls, or a run that an op begins.

    Attributes:
        journal: of the run.
        prefix: what the paths of its nodes begin with.
        asked: what its nodes wait for from outside.
    """

    __slots__ = ("_caller", "asked", "journal", "prefix")

    def __init__(self, journal: RunJournal, prefix: Path = (), caller: CallScope | None = None) -> None:
        self.journal: RunJournal = journal
        self.prefix: Path = prefix
        self.asked: list[Asked] = []
        self._caller = caller

    def check(self) -> None:
        """Raise Parked if nodes wait for something from outside, once the step has ended."""
        if self.asked:
            if self._caller is not None:
                self._caller.asked += self.asked
            raise Parked

    def located(self, frames: Sequence[tuple[str, int]]) -> Path:
        """The path of what is in these frames and iterations, as the executor counts them, from the outside in.

        The executor begins at 0 in a loop that goes on at a later iteration.
        """
        path = self.prefix
        for name, number in frames:
            path = (*path, f"{name} {number + self.journal.first_iteration((*path, name))}")
        return path


class CallScope:
    """The call of a node under way.

    Attributes:
        step: that it is a part of.
        path: of the node.
        loops: the loops around it, with the iterations.
        is_async: whether it may be paused.
        asked: what it waits for from outside; whatever it does then, it gives nothing.
        answered: what it has asked for and got.
    """

    __slots__ = ("_counts", "answered", "asked", "is_async", "loops", "path", "step")

    def __init__(self, step: JournaledStep, path: Path, loops: Sequence[str], *, is_async: bool) -> None:
        self.step: JournaledStep = step
        self.path: Path = path
        self.loops: Sequence[str] = loops
        self.is_async: bool = is_async
        self.asked: list[Asked] = []
        self.answered: list[Asked] = []
        self._counts: Counter[str] = Counter()

    @property
    def node(self) -> str:
        """The name of the node."""
        return self.path[-1]

    def nested(self, label: str) -> JournaledStep:
        """A step that the call begins."""
        return JournaledStep(self.step.journal, (*self.path, self._numbered(label)), self)

    def pause_path(self, name: str) -> Path:
        """The path of its next pause of that name."""
        return (*self.path, self._numbered(f"pause {name}"))

    def begin_again(self) -> None:
        """Count pauses and steps from the first."""
        self._counts.clear()

    def _numbered(self, label: str) -> str:
        number = self._counts[label]
        self._counts[label] += 1
        return f"{label} #{number}"


call_here: Final[ContextVar[CallScope | None]] = ContextVar("asyncexec_journaled_call", default=None)


def nested_step(label: str) -> JournaledStep | None:
    """What a step is given that the running code begins; None where it is in no run with a journal."""
    scope = call_here.get()
    return None if scope is None else scope.nested(label)


def begin_attempt() -> None:
    """The op under way is tried again: its pauses are those of the attempt before."""
    scope = call_here.get()
    if scope is not None:
        scope.begin_again()


def forget_call() -> None:
    """What runs in this context from now on is done for several calls, and is a part of none."""
    call_here.set(None)


def _scope(what: str) -> CallScope:
    scope = call_here.get()
    if scope is None:
        raise FailedPreconditionError(
            f"{what} is called outside of the ops of a run with a journal",
            hint="call it in an async op, in session.run of ax.Session(graph, journal=store)",
        )
    return scope


async def pause_here(name: str, payload: object) -> Any:
    """See ``ax.pause``."""
    scope = _scope("ax.pause")
    journal, path = scope.step.journal, scope.pause_path(name)
    asked = journal.ask(path, name, payload, scope.node, ", ".join(scope.loops))
    if journal.has_answer(path):
        scope.answered.append(asked)
        return journal.take_answer(path)
    scope.asked.append(asked)
    raise Parked


def check_pause(name: object) -> None:
    """Raise an error unless the running code may pause."""
    if not isinstance(name, str) or not name:
        raise InvalidTypeError(f"the name of a pause is a string, not {name!r}")
    scope = _scope("ax.pause")
    if not scope.is_async:
        raise FailedPreconditionError(
            f"ax.pause is called in {scope.node!r}, whose op is no async function",
            hint="define it by 'async def', and await ax.pause(...)",
        )


def call_key() -> str:
    """A string that is the same whenever the call of the op under way is made again, and else in no other call.

    An op that was under way when its process was killed is called again.  Give the key to the service that the op
    calls, as its idempotency key; so the service does not do the work twice.

    >>> @ax.op
    ... async def charge(amount: int) -> str:
    ...     return f"charged {amount}, key {len(ax.call_key())}"

    Raises:
        FailedPreconditionError: the code runs in no op of a run with a journal.
    """
    scope = _scope("ax.call_key")
    return scope.step.journal.key_of(scope.path)
