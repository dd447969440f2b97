"""WeakGroup: objects that are not kept alive, added and listed by any thread.

A ``WeakSet`` is one in Python: while one thread lists it, an object that another thread lets go of may leave it, and
the listing fails.  Here each of the three is one step of a ``set``.
"""

from __future__ import annotations

from typing import Generic, TypeVar
from weakref import ref

T = TypeVar("T")


class WeakGroup(Generic[T]):
    """Objects, until nobody else has them."""

    __slots__ = ("_refs",)

    def __init__(self) -> None:
        self._refs: set[ref[T]] = set()

    def add(self, one: T) -> None:
        """Let *one* be listed, as long as it lives."""
        self._refs.add(ref(one, self._refs.discard))

    def list(self) -> list[T]:
        """Those that live."""
        return [found for each in self._refs.copy() if (found := each()) is not None]
