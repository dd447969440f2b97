"""Errors that are an OpError and of the class that a user's code has raised, both: so ``except MyError`` finds them.

Ray does so with its ``RayTaskError``.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

from asyncexec.framework.errors import NodeLike, OpError, bare, copy_members

# What coroutines, generators, tasks and groups treat in ways of their own.
_APART: Final = (StopIteration, StopAsyncIteration, asyncio.CancelledError, BaseExceptionGroup)
_MANY: Final = 256  # classes that are kept

_known: dict[tuple[type[OpError], type[Exception]], type[OpError] | None] = {}


def combined_error(kind: type[OpError], raised: BaseException, text: str, node: NodeLike, hint: str | None) -> OpError:
    """An error of *kind* for what was *raised*, with its class and its attributes if the two can be combined."""
    if isinstance(raised, Exception) and not isinstance(raised, _APART):
        both = _both(kind, type(raised))
        if both is not None:
            with contextlib.suppress(Exception):  # it has a property of a name that we set, say
                return _combined(both, raised, text, node, hint)
    return kind(text, node=node, hint=hint)


def _combined(both: type[OpError], raised: Exception, text: str, node: NodeLike, hint: str | None) -> OpError:
    error = bare(both)
    copy_members(raised, error)
    OpError.__init__(error, text, node=node, hint=hint)
    theirs = {name: value for name, value in raised.__dict__.items() if not hasattr(OpError, name)}
    error.__dict__.update(theirs | error.__dict__)
    str(error)
    return error


def _both(kind: type[OpError], theirs: type[Exception]) -> type[OpError] | None:
    """A class that inherits from both; None where there is none, or no need of one."""
    if issubclass(kind, theirs):
        return None
    key = kind, theirs
    if key not in _known:
        if len(_known) == _MANY:
            _known.clear()
        body = {"__module__": kind.__module__, "__doc__": kind.__doc__, "__reduce__": _reduced}
        try:
            _known[key] = type(f"{kind.__name__}[{theirs.__name__}]", (kind, theirs), body)
        except TypeError:  # their instances are laid out in other ways, or their classes want more
            _known[key] = None
    return _known[key]


def _reduced(error: OpError) -> tuple[Any, ...]:
    """What pickle takes of an error whose class has no name to be found by."""
    return _remade, (*type(error).__bases__, error.args), error.__dict__


def _remade(kind: type[OpError], theirs: type[Exception], args: tuple[object, ...]) -> OpError:
    error = bare(_both(kind, theirs) or kind)
    error.args = args
    return error
