"""Any exception -> the OpError that the user sees, with the node, and with the exception as its cause."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from asyncexec.framework.combined_errors import combined_error
from asyncexec.framework.errors import (
    CancelledError,
    DeadlineExceededError,
    InternalError,
    InvalidArgumentError,
    NodeLike,
    NotFoundError,
    OpError,
    PermissionDeniedError,
    ResourceExhaustedError,
    UnavailableError,
    UnimplementedError,
    UnknownError,
)
from asyncexec.framework.kernel import Kernel
from asyncexec.framework.retry import AttemptNote

# In this order: the first class that fits decides.
_CLASSES: Final[tuple[tuple[type[BaseException], type[OpError]], ...]] = (
    (TimeoutError, DeadlineExceededError),
    (PermissionError, PermissionDeniedError),
    (FileNotFoundError, NotFoundError),
    (LookupError, NotFoundError),
    (ConnectionError, UnavailableError),
    (NotImplementedError, UnimplementedError),
    (MemoryError, ResourceExhaustedError),
    (ValueError, InvalidArgumentError),
    (TypeError, InvalidArgumentError),
    (ArithmeticError, InvalidArgumentError),
    (AssertionError, InternalError),
    (asyncio.CancelledError, CancelledError),
)


def as_op_error(raised: BaseException, node: NodeLike) -> BaseException:
    """The error to end the step with; what is not for a step to catch (KeyboardInterrupt, ...) is left as it is."""
    if isinstance(raised, OpError):
        return _with_notes(raised.locate(node), raised)
    if not isinstance(raised, (Exception, asyncio.CancelledError)):
        return raised
    chosen = next((ours for theirs, ours in _CLASSES if isinstance(raised, theirs)), UnknownError)
    text = _text_of(raised)
    error = combined_error(chosen, raised, text, node, _hint_of(raised, text))
    error.__cause__ = raised
    return _with_notes(error, raised)


def _with_notes(error: OpError, raised: BaseException) -> OpError:
    """*error* with the notes of *raised*; those on attempts go into its text, for logs that show no notes."""
    notes = getattr(raised, "__notes__", ())
    attempts = [note for note in notes if isinstance(note, AttemptNote)]
    if attempts:
        if error is raised:  # which may be raised again, and for others
            error = error.located(error.node, error.op, error.user_line)
        error.add_attempts(attempts)
    if notes:
        error.__notes__ = [note for note in notes if not isinstance(note, AttemptNote)]
    return error


def _hint_of(raised: BaseException, text: str) -> str | None:
    if isinstance(raised, (ValueError, TypeError)) and ("read-only" in text or "not writable" in text):
        return "others may see what an op gets: change a copy of it, x = x.copy()"
    return None


def _text_of(raised: BaseException) -> str:
    name = type(raised).__name__
    try:
        text = str(raised)
    except Exception:  # an exception that cannot even be shown
        return name
    return f"{name}: {text}" if text else name


def explained_by(raised: BaseException, check: Kernel | None, inputs: Sequence[object]) -> BaseException:
    """What a kernel raised, or the error of its *check*, which says why it did."""
    if check is not None and inputs:
        try:
            check(*inputs)
        except OpError as error:
            return error
    return raised
