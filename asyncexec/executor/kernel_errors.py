"""What a kernel raised -> the OpError that the user sees: it names the node, and has the exception as its cause."""

from __future__ import annotations

import asyncio
from typing import Final

from asyncexec.framework.errors import (
    CancelledError,
    DeadlineExceededError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    OpError,
    PermissionDeniedError,
    ResourceExhaustedError,
    UnimplementedError,
    UnknownError,
)
from asyncexec.graph.node import Node

# In this order: the first class that fits decides.
_CLASSES: Final[tuple[tuple[type[BaseException], type[OpError]], ...]] = (
    (TimeoutError, DeadlineExceededError),
    (PermissionError, PermissionDeniedError),
    (FileNotFoundError, NotFoundError),
    (LookupError, NotFoundError),
    (NotImplementedError, UnimplementedError),
    (MemoryError, ResourceExhaustedError),
    (ValueError, InvalidArgumentError),
    (TypeError, InvalidArgumentError),
    (ArithmeticError, InvalidArgumentError),
    (AssertionError, InternalError),
    (asyncio.CancelledError, CancelledError),
)


def as_op_error(raised: BaseException, node: Node) -> BaseException:
    """The error to end the step with; what is not for a step to catch (KeyboardInterrupt, ...) is left as it is."""
    if isinstance(raised, OpError):
        return raised.locate(node)
    if not isinstance(raised, (Exception, asyncio.CancelledError)):
        return raised
    chosen = next((ours for theirs, ours in _CLASSES if isinstance(raised, theirs)), UnknownError)
    error = chosen(_text_of(raised), node=node)
    error.__cause__ = raised
    return error


def _text_of(raised: BaseException) -> str:
    name = type(raised).__name__
    try:
        text = str(raised)
    except Exception:  # an exception that cannot even be shown
        return name
    return f"{name}: {text}" if text else name
