"""What a caller gets of a value that a step has fetched.

Along edges travel numpy scalars and arrays, bytes for text, and references to variables.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from asyncexec.framework.errors import InvalidArgumentError, OpError
from asyncexec.graph.node import Tensor

Giver: TypeAlias = Callable[[Any], Any]


def giver(tensor: Tensor, *, is_reference: bool, is_text: bool) -> Giver | None:
    """What makes the caller's value of one fetched from *tensor*; None where it is the same."""
    if is_reference:
        return partial(_read, tensor)
    if is_text:
        return _unshared_text
    return _unshared if not tensor.dtype.is_opaque and tensor.shape.dims != () else None


def may_be_scalar(tensor: Tensor) -> bool:
    """Whether a value of *tensor* may be one that ``python_scalar`` changes."""
    return not tensor.dtype.is_opaque and tensor.shape.rank in (0, None)


def python_scalar(value: object) -> Any:
    """The bool, int, float or complex that a numpy scalar is; any other value as ``as_text`` gives it."""
    # Not bytes of numpy's, which a session handle is.
    return value.item() if isinstance(value, np.generic) and not isinstance(value, np.flexible) else as_text(value)


def as_text(value: object) -> Any:
    """Bytes that are UTF-8 as str, any other value itself."""
    if type(value) is bytes:
        try:
            return value.decode()
        except UnicodeDecodeError:
            pass
    return value


def _unshared_text(value: object) -> Any:
    return _unshared(as_text(value))


def _unshared(value: object) -> Any:
    """*value*, or a view of an array that is kept: not even the shape of that one can be changed by way of it."""
    return value.view() if type(value) is np.ndarray and not value.flags.writeable else value


def _read(tensor: Tensor, variable: Any) -> Any:
    """What *variable*, a reference fetched from *tensor*, refers to now."""
    try:
        value = variable.read()
    except OpError as error:
        raise error.locate(tensor.op) from None
    except (AttributeError, TypeError):  # as of a reader, whose read() takes a queue
        kind = type(variable).__name__
        raise InvalidArgumentError(
            f"fetch {tensor.name!r} is a handle of a {kind}, which has no value", node=tensor.op
        ) from None
    return _unshared(value)
