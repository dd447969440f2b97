"""Subnormal floats as zeros, for the thread that asks, as long as it asks.

A processor takes a hundred times as long for a number too small for the exponent of its type, and a mean that decays
comes to such numbers and stays there.  TensorFlow's threads take them for zeros, and give zeros in their place.
The C library has no call for that alone, but it takes and gives the whole floating-point environment of a thread.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from asyncexec.process.shards import spare

_WORDS: Final = 64  # of 32 bits: more than any environment has
_BYTES: Final = 4 * _WORDS
# By machine, where Linux keeps it: the word of the environment, and the bits for what is given and what is taken.
_BITS: Final = {"x86_64": (7, 0x8040), "aarch64": (0, 1 << 24)}


class _Library(NamedTuple):
    """Functions that read the environment of the calling thread into memory, and set it from there."""

    get: Callable[[Any], int]
    set: Callable[[Any], int]
    word: int
    bits: int


_Environment: TypeAlias = Any  # an array of words


class flushed_subnormals:  # noqa: N801 - a context manager, quicker than by a generator
    """Inside, this thread computes with zeros in place of subnormal floats, where the machine is known."""

    __slots__ = ("_environments", "_library")

    def __enter__(self) -> None:
        self._library = library = _library()
        if library is not None:
            self._environments = _environments(library)
            library.set(self._environments[1])

    def __exit__(self, *_: object) -> None:
        if self._library is not None:
            self._library.set(self._environments[0])
            _unused.append(self._environments)


_unused: Final[list[tuple[_Environment, _Environment]]] = []


def _memory() -> tuple[_Environment, _Environment]:
    return (ctypes.c_uint32 * _WORDS)(), (ctypes.c_uint32 * _WORDS)()


def _environments(library: _Library) -> tuple[_Environment, _Environment]:
    """The environment of this thread, and the same with zeros for subnormal floats."""
    before, inside = both = spare(_unused, _memory)
    library.get(before)
    ctypes.memmove(inside, before, _BYTES)
    inside[library.word] |= library.bits
    return both


@cache
def _library() -> _Library | None:
    """What changes the environment; None where nothing is known to."""
    place = _BITS.get(platform.machine()) if sys.platform == "linux" else None
    if place is None:
        return None
    try:
        functions = ctypes.PyDLL(None)
        library = _Library(functions.fegetenv, functions.fesetenv, *place)
    except (OSError, AttributeError):  # no such library, or it keeps these functions elsewhere
        return None
    return library if _works(library) else None


def _works(library: _Library) -> bool:
    tiny = np.finfo(np.float32).tiny
    before, inside = _environments(library)
    library.set(inside)
    try:
        return not np.any(np.full(4, tiny) * np.float32(0.5))
    finally:
        library.set(before)
