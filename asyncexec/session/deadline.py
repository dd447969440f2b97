"""The deadline of a run, which covers all of it: waiting for one's turn, building the graph, running it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

from asyncexec.framework.errors import DeadlineExceededError, OpError


async def within(timeout_s: float, run: Coroutine[Any, Any, Any]) -> Any:
    """What *run* gives; DeadlineExceededError if it takes longer than that."""
    scope = asyncio.timeout(timeout_s)
    notes: list[str] = []
    try:
        async with scope:
            return await run
    except TimeoutError as error:
        if not scope.expired() or isinstance(error, OpError):
            raise
        notes = getattr(error.__cause__, "__notes__", notes)  # of the cancellation: what nodes have raised since
    finally:
        del scope  # it holds the task, which holds the error, whose traceback holds this frame
    # Out here it has no context, which would hold the same.
    raise _late(timeout_s, notes)


def _late(timeout_s: float, notes: Iterable[str]) -> DeadlineExceededError:
    error = DeadlineExceededError(f"the run took more than its timeout of {timeout_s:g} s")
    for note in notes:
        error.add_note(note)
    return error
