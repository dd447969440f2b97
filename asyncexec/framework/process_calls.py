"""Calls of functions in other processes: what is said of the function, and who makes the call.

A function travels by name, as a module and the path in it, and is imported there.  No code is sent.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

from asyncexec.framework.errors import InvalidArgumentError


class FunctionReference(NamedTuple):
    """Where to find a function; *is_wrapped* tells that it is the ``__wrapped__`` of what is found there."""

    module: str
    qualname: str
    is_wrapped: bool = False

    def resolve(self) -> Callable[..., Any]:
        """The function, its module imported if need be.

        Raises:
            ImportError, AttributeError: it is not there.
        """
        found: Callable[..., object] = attrgetter(self.qualname)(importlib.import_module(self.module))
        return found.__wrapped__ if self.is_wrapped else found  # type: ignore[attr-defined]


class ProcessCalls(Protocol):
    """What calls functions in other processes."""

    async def call(self, function: FunctionReference, args: Sequence[Any], kwargs: Mapping[str, Any], name: str) -> Any:
        """The result of the call, made for the node *name*."""
        ...


def check_importable(function: Callable[..., object], op: str) -> None:
    """Raise InvalidArgumentError where the name of *function* tells that another process could not import it."""
    qualname = getattr(function, "__qualname__", None)
    module = getattr(function, "__module__", None)
    if not qualname or not module:
        raise _not_importable(op, f"{function!r} has no name to import it by")
    if "<lambda>" in qualname:
        raise _not_importable(op, "its function is a lambda")
    if "<locals>" in qualname:
        raise _not_importable(op, f"its function {qualname} is defined inside another")
    if module == "__main__" and not _main_is_importable():
        raise _not_importable(op, f"its function {qualname} is defined in an interactive session")


def reference_to(function: Callable[..., object], wrapper: object, op: str) -> FunctionReference:
    """How another process finds *function*, which stands in its module as itself or as *wrapper*.

    Raises:
        InvalidArgumentError: something else stands there.
    """
    check_importable(function, op)
    reference = FunctionReference(function.__module__, function.__qualname__)
    try:
        found: object = reference.resolve()
    except (ImportError, AttributeError) as error:
        raise _not_importable(op, f"{reference.module}.{reference.qualname} cannot be imported: {error}") from error
    if found is not function and found is not wrapper:
        raise _not_importable(op, f"{reference.module}.{reference.qualname} is something else: {found!r}")
    return reference._replace(is_wrapped=found is wrapper)


def _main_is_importable() -> bool:
    main = sys.modules["__main__"]
    return getattr(main, "__spec__", None) is not None or hasattr(main, "__file__")


def _not_importable(op: str, reason: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"op {op!r} cannot run in a process, because a process imports it by name, and {reason}",
        hint="define the function at the top level of a module",
    )
