"""How string kernels go over their elements: ``bytes`` when 0-d, else an object array of ``bytes``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from io import BytesIO
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import ArrayOrScalar, NumpyDType
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel
from asyncexec.process.free_memory import LARGE_BYTES, check_room

# Bytes that are copied at once: what copies them holds all other threads up, about a millisecond for so many.
PIECE_BYTES: Final = 2**20


def elementwise(function: Callable[[bytes], bytes]) -> Kernel:
    """The kernel that gives ``function`` of each string."""
    ufunc = np.frompyfunc(function, 1, 1)
    return lambda value: function(value) if isinstance(value, bytes) else ufunc(value)


def elementwise_to(dtype: NumpyDType, function: Callable[[bytes], object]) -> Kernel:
    """The kernel that gives ``function`` of each string, as numbers of *dtype*."""

    def kernel(value: Any) -> ArrayOrScalar:
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


def joined(separator: bytes, texts: Sequence[bytes], room: TextRoom) -> bytes:
    """``separator.join(texts)``; of a long text as ``BigText`` makes it."""
    size = sum(map(len, texts)) + len(separator) * len(texts)
    if size <= PIECE_BYTES:
        room.take(size)
        return separator.join(texts)
    check_room(size)
    out = BigText(room)
    for index, text in enumerate(texts):
        if index:
            out.add(separator)
        out.add(text)
    return out.text()


def in_pieces(text: bytes, function: Callable[[bytes], bytes], size: int = PIECE_BYTES) -> bytes:
    """``function(text)``, where the function gives the same for parts of *size*, one after the other."""
    if len(text) <= size:
        return function(text)
    out = BigText(TextRoom())
    for start in range(0, len(text), size):
        out.add(function(text[start : start + size]))
    return out.text()


class TextRoom:
    """The memory for the texts of a kernel, which does not know before how long they get, and may make many.

    It is asked for LARGE_BYTES at a time, or for as much as a long text takes.
    """

    def __init__(self) -> None:
        self._left = LARGE_BYTES

    def take(self, size: int) -> None:
        """ResourceExhaustedError when *size* more bytes are more than this process can still take."""
        self._left -= size
        if self._left < 0:
            check_room(max(size, LARGE_BYTES))
            self._left = LARGE_BYTES


class BigText:
    """A text that is made of others, piece by piece, so that other threads run meanwhile.

    ``add`` raises ResourceExhaustedError when there is no more *room*.
    """

    def __init__(self, room: TextRoom) -> None:
        self._out = BytesIO()
        self._room = room
        self._size = self._allowed = 0

    def add(self, text: bytes) -> None:
        """Append *text*."""
        self._size += len(text)
        if self._size > self._allowed:  # the buffer grows by an eighth at a time
            more = self._size // 4
            check_room(max(more, len(text)), held=self._size)
            self._allowed = self._size + more
        if len(text) <= PIECE_BYTES:
            self._out.write(text)
            return
        whole = memoryview(text)
        for start in range(0, len(text), PIECE_BYTES):
            self._out.write(whole[start : start + PIECE_BYTES])

    def text(self) -> bytes:
        """All of it."""
        self._room.take(self._size)
        return self._out.getvalue()
