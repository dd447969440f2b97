"""How string kernels go over their elements: ``bytes`` when 0-d, else an object array of ``bytes``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel


def elementwise(function: Callable[[bytes], bytes]) -> Kernel:
    """The kernel that gives ``function`` of each string."""
    ufunc = np.frompyfunc(function, 1, 1)
    return lambda value: function(value) if isinstance(value, bytes) else ufunc(value)


def elementwise_to(dtype: np.dtype[Any], function: Callable[[bytes], Any]) -> Kernel:
    """The kernel that gives ``function`` of each string, as numbers of *dtype*."""

    def kernel(value: Any) -> Any:
        if isinstance(value, bytes):
            return dtype.type(function(value))
        return np.fromiter(map(function, value.flat), dtype, value.size).reshape(value.shape)

    return kernel


def flat_strings(value: Any) -> list[bytes]:
    """All strings of *value* in row-major order."""
    return [value] if isinstance(value, bytes) else value.ravel().tolist()


def as_strings(items: Iterable[bytes], shape: tuple[int, ...]) -> Any:
    """*items* as a string tensor of *shape*."""
    values = list(items)
    if shape == ():
        return values[0]
    result = np.empty(len(values), object)
    result[:] = values
    return result.reshape(shape)


def scalar_string(value: Any, name: str) -> bytes:
    """*value*, which must be a scalar string."""
    if not isinstance(value, bytes):
        raise InvalidArgumentError(f"{name} must be a scalar, but is of shape {list(np.shape(value))}")
    return value
