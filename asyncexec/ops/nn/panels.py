"""Weights as native code takes them: laid out anew, panel by panel, and kept as long as what they are made of."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from asyncexec.framework.array_address import address_of
from asyncexec.framework.arrays import Array, NumpyDType
from asyncexec.framework.ownership import is_frozen
from asyncexec.process.free_memory import check_array

Key: TypeAlias = tuple[int, ...]  # of an array: its id, and how it is seen
_ALIGNED: Final = 64  # bytes


class Laid(NamedTuple):
    """An array as native code takes it, and where it is."""

    array: Array
    address: int


class LaidOut:
    """What is made of constants; that of others is made each time."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[Key, tuple[weakref.ref[Array], Laid]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, key: Key) -> bool:
        return key in self._known

    def get(self, owner: Array, key: Key, make: Callable[[], Array]) -> Laid:
        """What *make* gives: it is kept as long as *owner* is there, if nobody can write to that."""
        known = self._known.get(key)
        if known is not None and known[0]() is owner:
            return known[1]
        array = make()
        laid = Laid(array, address_of(array))
        if is_frozen(owner):
            kept = self._known
            kept[key] = weakref.ref(owner, lambda _: kept.pop(key, None)), laid
        return laid


def panels_of(weights: Array, size: int) -> Array:
    """*weights* [taps, channels] as [panels, taps, channels of a panel], with zeros where there are no channels."""
    taps, channels = weights.shape
    count = -(-channels // size)
    check_array((count, taps, size), weights.dtype)
    panels, _ = aligned((count, taps, size), weights.dtype)
    for number, panel in enumerate(panels):
        some = weights[:, number * size : (number + 1) * size]
        panel[:, : some.shape[1]] = some
        panel[:, some.shape[1] :] = 0
    return panels


def aligned(shape: Sequence[int], dtype: NumpyDType) -> tuple[Array, int]:
    """A new array, and its address: it begins where a line of the cache does.

    Loads of vectors take twice as long across two lines.  It can be frozen: nobody else can write to what it is a view
    of.
    """
    size = math.prod(shape)
    room = np.empty(size + _ALIGNED // dtype.itemsize, dtype)
    address = address_of(room)
    skipped = -address % _ALIGNED
    start = skipped // dtype.itemsize
    array = room[start : start + size].reshape(shape)
    room.setflags(write=False)
    return array, address + skipped
