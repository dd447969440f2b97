"""Errors of a step, as they travel from a worker to the coordinator.

What the user's code has raised travels too where Python objects may, so that ``except MyError`` finds it there.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Callable
from typing import Any, Final

from asyncexec.framework.derived import is_derived, make_derived
from asyncexec.framework.errors import Code, OpError, UnavailableError, UnknownError, error_class
from asyncexec.framework.foreign_errors import as_op_error

_MAX_CAUSE_BYTES: Final = 1 << 20
_MAX_NOTES: Final = 16
_MAX_TEXT: Final = 1 << 16  # characters of a message, and of all else that an error tells


class _Place:
    """A node that an error names, as ``as_op_error`` wants to have it."""

    def __init__(self, name: str, op: str, user_line: str | None) -> None:
        self.name = name
        self.op = op
        self.user_line = user_line


def note_loss(error: OpError, worker: str) -> OpError:
    """*error*, which was raised because *worker* cannot be reached, and says so from now on."""
    if isinstance(error, UnavailableError):  # and not a value that could not be sent
        error.lost_worker = worker
    return error


def encode_error(error: BaseException, *, objects: bool) -> dict[str, object]:
    """What is told of *error*; with its cause, pickled, where *objects* may travel."""
    if not isinstance(error, OpError):
        return {"code": int(Code.UNKNOWN), "message": _cut(f"{type(error).__name__}: {_shown(error)}")}
    told: dict[str, object] = {"code": int(error.code), "message": _cut(error.message)}
    for name in ("node", "op", "hint", "iteration", "user_line"):
        value = getattr(error, name)
        if value:
            told[name] = _cut(value) if isinstance(value, str) else value
    if error.attempts:
        told["attempts"] = list(map(_cut, error.attempts[:_MAX_NOTES]))
    if isinstance(error, UnavailableError) and error.lost_worker is not None:
        told["lost_worker"] = error.lost_worker
    notes = [_cut(str(note)) for note in getattr(error, "__notes__", ())[:_MAX_NOTES]]
    if notes:
        told["notes"] = notes
    if is_derived(error):
        told["derived"] = True
    cause = error.__cause__
    # Only of what a kernel has raised is the error made of its cause alone.
    if objects and isinstance(cause, Exception) and isinstance(error, type(cause)):
        pickled = _pickled(cause)
        if pickled is not None:
            told["cause"] = base64.b85encode(pickled).decode()
    return told


def decode_error(told: dict[str, Any], worker: str, find: Callable[[str], Any], *, objects: bool) -> OpError:
    """The error that ``encode_error`` told of, with a note that it came from *worker*.

    *find* gives the node of a name, or None: an error names the line that made it.
    """
    try:
        kind = error_class(int(told.get("code", 0)))
    except (ValueError, TypeError):
        kind = UnknownError
    name = told.get("node")
    node = find(name) if isinstance(name, str) else None
    op = node.op if node is not None else told.get("op")
    user_line = node.user_line if node is not None else told.get("user_line")
    message, hint = str(told.get("message", "")), told.get("hint")
    error: OpError = kind(message, node=name, op=op, hint=hint, user_line=user_line)
    cause = _unpickled(told.get("cause")) if objects else None
    if cause is not None:
        combined = as_op_error(cause, _Place(name or "", op or "", user_line))
        if isinstance(combined, OpError) and combined.code == error.code:
            error = combined
    if told.get("iteration"):
        error.locate_iteration([str(told["iteration"])])
    if told.get("lost_worker"):
        note_loss(error, str(told["lost_worker"]))
    if isinstance(told.get("attempts"), list):
        error.add_attempts([str(each) for each in told["attempts"]])
    for note in told.get("notes", ())[:_MAX_NOTES]:
        error.add_note(str(note))
    error.add_note(f"on {worker}")
    if told.get("derived"):
        return make_derived(error)
    return error


def _pickled(cause: Exception) -> bytes | None:
    """*cause*, if it can be pickled and read again."""
    traceback, cause.__traceback__ = cause.__traceback__, None
    try:
        found = pickle.dumps(cause)
        if len(found) > _MAX_CAUSE_BYTES:
            return None
        pickle.loads(found)  # noqa: S301 - our own
    except Exception:
        return None
    finally:
        cause.__traceback__ = traceback
    return found


def _unpickled(text: object) -> Exception | None:
    if not isinstance(text, str):
        return None
    try:
        found = pickle.loads(base64.b85decode(text))  # noqa: S301 - of a program that is ours, as the user has said
    except Exception:  # of a module that is not here, say
        return None
    return found if isinstance(found, Exception) else None


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}..."


def _shown(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "it cannot be shown"
