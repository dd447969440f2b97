"""The deadline of a run, which covers all of it: waiting for one's turn, building the graph, running it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from itertools import islice
from typing import Any, Final

from asyncexec.executor.engine.step_scope import step_in
from asyncexec.framework.errors import DeadlineExceededError, OpError
from asyncexec.framework.under_way import NodeUnderWay, frames_of, told_by
from asyncexec.session.session_loop import running_loop

_MAX_UNDER_WAY: Final = 1_000
_MAX_TOLD: Final = 2  # in the message


async def within(timeout_s: float, run: Coroutine[Any, Any, object]) -> Any:
    """What *run* gives; DeadlineExceededError, which says what it was at, if it takes longer than that."""
    try:
        loop = running_loop()
    except OpError:
        run.close()
        raise
    deadline = _Deadline(run, asyncio.timeout(None))
    notes: Iterable[str] = ()
    try:
        async with deadline.scope:
            timer = loop.call_at(loop.time() + timeout_s, deadline.expire, loop)
            try:
                return await run
            finally:
                timer.cancel()
    except TimeoutError as error:
        if not deadline.scope.expired() or isinstance(error, OpError):
            raise
        notes = getattr(error.__cause__, "__notes__", ())  # of the cancellation: what nodes have raised since
    finally:
        del deadline.scope  # it holds the task, which holds the error, whose traceback holds this frame
    # Out here it has no context, which would hold the same.
    raise _late(timeout_s, deadline, notes)


class _Deadline:
    """The deadline of *run*, which is awaited in *scope*.

    Attributes:
        nodes: when it has expired, those that had begun and not ended.
        told: what the run waited for, where its step had not begun.
    """

    __slots__ = ("_run", "nodes", "scope", "told")

    def __init__(self, run: Coroutine[Any, Any, Any], scope: asyncio.Timeout) -> None:
        self._run = run
        self.scope = scope
        self.nodes: tuple[NodeUnderWay, ...] = ()
        self.told: str | None = None

    def expire(self, loop: asyncio.AbstractEventLoop) -> None:
        """Look at what the run is at, and cancel it."""
        try:
            for frame in frames_of(self._run):
                step = step_in(frame)
                if step is not None:
                    self.nodes = tuple(islice(step.under_way(), _MAX_UNDER_WAY))
                    break
                self.told = told_by(frame) or self.told
        finally:
            self.scope.reschedule(loop.time())

    def lines(self) -> list[str]:
        if not self.nodes:
            return [] if self.told is None else [self.told]
        lines = list(map(str, self.nodes[:_MAX_TOLD]))
        more = len(self.nodes) - len(lines)
        return [*lines, f"and {more} more: error.under_way"] if more else lines


def _late(timeout_s: float, deadline: _Deadline, notes: Iterable[str]) -> DeadlineExceededError:
    message = f"the run took more than its timeout of {timeout_s:g} s"
    error = DeadlineExceededError("\n  ".join([message, *deadline.lines()]))
    error.under_way = deadline.nodes
    for note in notes:
        error.add_note(note)
    return error
