"""``pause``: an op waits for a value from outside, for however long."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from asyncexec.durable.journal_scope import check_pause, pause_here


def pause(name: str, payload: object = None) -> Coroutine[Any, Any, Any]:
    """In an async op, ``await ax.pause("approval", payload)`` waits for a value from outside, for however long.

    The step goes on as far as it can without the value.  Then it ends with ``PausedError``, which has a token, and
    nothing of it stays in memory.  ``session.resume(token, value)`` goes on, later and in another process.  There the
    op is called anew, and ``ax.pause`` returns the value.  So what is not to be done twice belongs into an op of its
    own.  The page *Pauses* tells more.

    >>> @ax.op
    ... async def approved(amount: int) -> bool:
    ...     return amount < 100 or await ax.pause("approval", {"amount": amount})
    >>> with ax.Graph() as graph:
    ...     result = approved(ax.placeholder(ax.int64, [], name="amount"))
    >>> store = ax.checkpoint.MemoryStore()
    >>> async def main():
    ...     async with ax.Session(graph, journal=store) as session:
    ...         try:
    ...             await session.run(result, {"amount:0": 250})
    ...         except ax.PausedError as error:
    ...             token = error.token
    ...     async with ax.Session(graph, journal=store) as session:
    ...         return await session.resume(token, True)
    >>> print(ax.run(main()))
    True

    Args:
        name: what it waits for; two pauses in one call of an op may have the same name.
        payload: for whoever gives the value: None, a number, a string, lists and dicts of these, or an array.

    Raises:
        FailedPreconditionError: the code runs in no async op of a run with a journal.
        InvalidTypeError: *name* is no string.
    """
    check_pause(name)
    return pause_here(name, payload)
