"""Zeros, sums and conjugates of variants, by the Python type of the value (``variant_op_registry.h``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import numpy as np

from asyncexec.framework.errors import InvalidArgumentError, UnimplementedError

V = TypeVar("V")
_ZEROS: Final[dict[type, Callable[[Any], object]]] = {}
_SUMS: Final[dict[type, Callable[[Any, Any], object]]] = {}
_CONJUGATES: Final[dict[type, Callable[[Any], object]]] = {}


def register_variant_ops(
    kind: type[V],
    *,
    zeros_like: Callable[[V], V],
    add: Callable[[V, V], V],
    conjugate: Callable[[V], V] | None = None,
) -> None:
    """Let values of type *kind* have zeros and sums, and complex conjugates."""
    _ZEROS[kind] = zeros_like
    _SUMS[kind] = add
    if conjugate is not None:
        _CONJUGATES[kind] = conjugate


def zeros_like(value: object) -> Any:
    """*value*, a tensor of any dtype, with zeros for its numbers.

    Raises:
        UnimplementedError: a value of dtype variant is of a type that has none.
    """
    if isinstance(value, bytes):
        return b""
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.dtype.kind != "O"):
        return np.zeros_like(value) if isinstance(value, np.ndarray) else type(value)(0)
    if isinstance(value, np.ndarray):
        return _as_objects([zeros_like(item) for item in value.flat], value.shape)
    return _found(_ZEROS, value, "ZEROS_LIKE")(value)


def add(a: Any, b: Any) -> Any:
    """The sum of two tensors of one dtype.

    Raises:
        InvalidArgumentError: they are of different shapes or types.
        UnimplementedError: values of dtype variant are of a type that has none.
    """
    if np.shape(a) != np.shape(b):
        raise InvalidArgumentError(f"Cannot add values of shapes {list(np.shape(a))} and {list(np.shape(b))}")
    if isinstance(a, np.ndarray) and a.dtype.kind == "O":
        return _as_objects([add(x, y) for x, y in zip(a.flat, b.flat, strict=True)], a.shape)
    if isinstance(a, (np.ndarray, np.generic)):
        return np.add(a, b)
    if type(a) is not type(b):
        raise InvalidArgumentError(f"Cannot add a {type(a).__name__} and a {type(b).__name__}")
    return _found(_SUMS, a, "ADD")(a, b)


def conjugate(value: object) -> Any:
    """The complex conjugate of *value*, of dtype variant; UnimplementedError where its type has none."""
    return _found(_CONJUGATES, value, "CONJ")(value)


def _found(functions: dict[type, Callable[..., object]], value: object, what: str) -> Callable[..., object]:
    function = functions.get(type(value))
    if function is None:
        raise UnimplementedError(f"No {what} function is known for values of type {type(value).__name__}")
    return function


def _as_objects(items: list[object], shape: tuple[int, ...]) -> object:
    found = np.empty(len(items), object)
    found[:] = items
    return found.reshape(shape)
