"""What a coroutine waits for, told by the functions that it is suspended in.

Nothing is noted down while it runs.  Who wants to know walks from a coroutine to the one that it awaits, and so on, as
``asyncio.Task.get_stack`` does for the outermost; a function says by ``tells`` what it is suspended for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import CodeType, FrameType
from typing import Any, Final, TypeAlias, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

Teller: TypeAlias = Callable[[Mapping[str, Any]], str]
_MAX_FRAMES: Final = 256
_TELLERS: Final[dict[CodeType, Teller]] = {}


@dataclass(frozen=True, slots=True)
class NodeUnderWay:
    """A node that had begun and not ended: one of ``under_way`` of a DeadlineExceededError, or of the statistics.

    Attributes:
        node, op: its name and op type.
        waits_for: what it waited for, as far as is known: a limiter, a batch, a thread, its next attempt.
        since_s: for how many seconds it had been under way; None where that is not known.
        iteration: the loops around it and the iteration of each, such as ``"outer 3, inner 0"``; "" outside of loops.
    """

    node: str
    op: str
    waits_for: tuple[str, ...]
    since_s: float | None
    iteration: str = ""

    def __str__(self) -> str:
        told = ", ".join(self.waits_for) or "was awaited"
        time = "" if self.since_s is None else f" for {self.since_s:.3g} s"
        where = f" in iteration {self.iteration}" if self.iteration else ""
        return f"{self.node!r} ({self.op}){where} {told}{time}"


def within(iteration: str, node: NodeUnderWay) -> NodeUnderWay:
    """*node* of a step that runs in *iteration* of another one."""
    return replace(node, iteration=", ".join(filter(None, (iteration, node.iteration)))) if iteration else node


def tells(tell: Teller) -> Callable[[F], F]:
    """Let *tell* say, by the local variables of the function below, what that is suspended for."""

    def note(function: F) -> F:
        _TELLERS[function.__code__] = tell
        return function

    return note


def frames_of(awaitable: object) -> Iterator[FrameType]:
    """The frames that *awaitable*, a coroutine or generator, is suspended in, the outermost first."""
    for _ in range(_MAX_FRAMES):
        frame = getattr(awaitable, "cr_frame", None) or getattr(awaitable, "gi_frame", None)
        if frame is None:
            return
        yield frame
        awaited = getattr(awaitable, "cr_await", None) or getattr(awaitable, "gi_yieldfrom", None)
        # A generator that sends to a coroutine itself has that in a variable.
        awaitable = frame.f_locals.get("coroutine") if awaited is None else awaited


def told_by(frame: FrameType) -> str | None:
    """What the function of *frame* is suspended for, if it says so."""
    tell = _TELLERS.get(frame.f_code)
    return None if tell is None else tell(frame.f_locals)
