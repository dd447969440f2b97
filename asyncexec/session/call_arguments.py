"""What callers of a session's methods give, made uniform, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from asyncexec.framework.errors import InvalidArgumentError, InvalidTypeError, OpError
from asyncexec.graph.node import Node, Tensor


def as_tuple(targets: Any) -> tuple[Any, ...]:
    """*targets*, one or several; InvalidTypeError if they are nothing of the kind."""
    if isinstance(targets, (str, Tensor, Node)):
        return (targets,)
    try:
        return tuple(targets)
    except TypeError:
        raise InvalidTypeError(f"targets is {type(targets).__name__} {targets!r}, not a list of operations") from None


def as_feed_keys(feeds: Any) -> tuple[Any, ...]:
    """The keys of what a partial run may be fed; InvalidTypeError if there are values, too."""
    if isinstance(feeds, Mapping):
        raise InvalidTypeError("a partial run begins with the names of its feeds, not their values", hint="list(feeds)")
    return as_tuple(feeds)


def bad_call(feeds: Any, error: Exception) -> OpError:
    """What is wrong with a call of run() whose arguments are not what they look like."""
    if isinstance(error, RecursionError):
        return InvalidArgumentError("the fetches are nested too deeply")
    return InvalidTypeError(f"feeds is {type(feeds).__name__} {feeds!r}, not a mapping of tensors to values")
