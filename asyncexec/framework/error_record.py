"""Exceptions as JSON has them, and made again: without pickle, and without importing anything.

An exception of a class that is loaded is one of that class again.  Another is of a class of the same name, which
inherits from the built-in class that the other inherited from: so it is shown, sorted and retried in the same way.
"""

from __future__ import annotations

import builtins
import json
import sys
from collections.abc import Mapping
from typing import Any, Final

from asyncexec.framework.derived import is_derived, make_derived
from asyncexec.framework.errors import Code, OpError, bare, error_class
from asyncexec.framework.retry import AttemptNote

_FIELDS: Final = ("message", "hint", "node", "op", "user_line", "iteration")
_MAX_TEXT: Final = 1 << 16


def told_of(error: BaseException) -> dict[str, Any]:
    """What JSON can have of *error*."""
    kind = type(error)
    told: dict[str, object] = {
        "classes": [f"{base.__module__}:{base.__qualname__}" for base in kind.__mro__ if base is not object],
        "text": _text_of(error)[:_MAX_TEXT],
        "args": _as_json(list(error.args)),
        "attributes": {name: value for name, value in vars(error).items() if _is_told(name, value)},
        "notes": [[isinstance(note, AttemptNote), str(note)] for note in getattr(error, "__notes__", ())],
    }
    if isinstance(error, OpError):
        told["code"] = int(error.code)
        told |= {name: getattr(error, name) for name in _FIELDS}
        told["attempts"] = list(error.attempts)
        told["derived"] = is_derived(error)
        if error.__cause__ is not None and not isinstance(error.__cause__, OpError):
            told["cause"] = told_of(error.__cause__)
    return told


def made_of(told: Mapping[str, Any]) -> BaseException:
    """The exception that *told* was made of.

    Raises:
        ValueError, TypeError, KeyError, AttributeError: it is malformed.
    """
    error = _op_error(told) if "code" in told else _other(told)
    for is_attempt, note in told["notes"]:
        error.add_note(AttemptNote(note) if is_attempt else str(note))
    return error


def _op_error(told: Mapping[str, Any]) -> OpError:
    kind = error_class(Code(told["code"]))
    found = _loaded(told["classes"][0])
    if found is not None and issubclass(found, kind) and found.__init__ is OpError.__init__:
        kind = found
    error = kind(str(told["message"]), node=told["node"], op=told["op"], hint=told["hint"], user_line=told["user_line"])
    if told["iteration"]:
        error.locate_iteration([str(told["iteration"])])
    if told["attempts"]:
        error.add_attempts([str(each) for each in told["attempts"]])
    if "cause" in told:
        error.__cause__ = made_of(told["cause"])
    return make_derived(error) if told["derived"] else error


def _other(told: Mapping[str, Any]) -> BaseException:
    classes, text = [str(each) for each in told["classes"]], str(told["text"])
    args = (text,) if told["args"] is None else tuple(told["args"])
    kind = _loaded(classes[0])
    if kind is not None:
        error = _instance(kind, args) or _bare(kind, args)
        if error is not None:
            vars(error).update(told["attributes"])
            if _text_of(error) == text:
                return error
    module, _, name = classes[0].partition(":")
    members = {"__module__": module, "__str__": lambda _: text}
    for base in [*filter(None, map(_built_in, classes)), Exception]:
        made = type(name.rpartition(".")[2], (base,), members)
        error = _instance(made, args) or _bare(made, args)
        if error is not None:
            return error
    raise ValueError(f"no exception {name!r} can be made")


def _instance(kind: type[BaseException], args: tuple[object, ...]) -> BaseException | None:
    try:
        return kind(*args)
    except Exception:
        return None


def _bare(kind: type[BaseException], args: tuple[object, ...]) -> BaseException | None:
    """An exception whose ``__init__`` takes something else than it has made its args of."""
    try:
        error = bare(kind)
    except TypeError:
        return None
    error.args = args
    return error


def _loaded(name: str) -> type[BaseException] | None:
    """The class of that name, of a module that has been imported already."""
    module, _, path = name.partition(":")
    found: object = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) and issubclass(found, BaseException) else None


def _built_in(name: str) -> type[BaseException] | None:
    return _loaded(name) if name.startswith(f"{builtins.__name__}:") else None


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return ""


def _is_told(name: str, value: object) -> bool:
    return not name.startswith("_") and (value is None or _as_json(value) is not None)


def _as_json(value: object) -> object:
    """*value*, where JSON gives it back as it is; else None."""
    try:
        return value if json.loads(json.dumps(value)) == value else None
    except (TypeError, ValueError, RecursionError):
        return None
