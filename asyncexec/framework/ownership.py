"""Who may write to an array.

Values travel along edges without a copy, so several places may see one array.  What is *kept*, because it outlives the
call or the step that it came from, is frozen: the array is read-only, and so is all that it is a view of.  Nobody can
change it then: who gave it away has another array, and who gets it cannot write to it.

An array that somebody made read-only counts as frozen: making it writable again is up to who did that.  Values that
cannot change (numpy scalars, bytes) need no care, and Python objects under ``ax.object`` are shared as references.
What is over a ``SoleMemory`` is frozen, too: that is not written to while there is such an array.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from sys import getrefcount
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.kernel import as_value, pass_on
from asyncexec.framework.types import DType


class SoleMemory:
    """The memory of an array, which whoever has this may write to as long as nobody has an array over it.

    Args:
        array: of which nobody else has a view, from now on.

    Attributes:
        array: the same, which is not to be handed on.  Each ``look`` is another array: what is known of a frozen array
            by its identity does not hold for what is in its memory later.
    """

    __slots__ = ("__array_interface__", "array")  # the first is what numpy reads

    def __init__(self, array: Array) -> None:
        self.array: Array = array
        interface = array.__array_interface__
        address, _ = interface["data"]
        self.__array_interface__ = {**interface, "data": (address, True)}  # read-only

    def look(self) -> Array:
        """A new array over it, which nobody can make writable."""
        return np.asarray(self)


class SoleOwner:
    """Has a ``SoleMemory``, which has no other owner.

    Attributes:
        memory: the memory.
    """

    __slots__ = ("memory",)

    def __init__(self, memory: SoleMemory) -> None:
        self.memory: SoleMemory = memory

    @property
    def is_alone(self) -> bool:
        """Whether there is no array over the memory, nor anything that keeps one."""
        return getrefcount(self.memory) == _ALONE


def _count_alone() -> int:
    """What ``getrefcount`` tells of a memory that only its owner has; -1 where it does not count all references."""
    owner = SoleOwner(SoleMemory(np.zeros(1)))
    return getrefcount(owner.memory) if getattr(sys, "_is_gil_enabled", lambda: True)() else -1


_ALONE: Final = _count_alone()


def is_frozen(array: Array) -> bool:
    """Whether neither *array* nor what it is a view of can be written to."""
    owner: object = array
    while isinstance(owner, np.ndarray):
        if owner.flags.writeable:
            return False
        array, owner = owner, owner.base
    return array.flags.owndata if owner is None else isinstance(owner, (bytes, SoleMemory))


def keep(value: object) -> Any:
    """*value* for keeping: itself where nobody can change it, else a frozen copy of the array."""
    if not isinstance(value, np.ndarray) or is_frozen(value):
        return value
    return freeze(value.copy())


def detach(value: object) -> Any:
    """*value*, for who has it alone from now on: itself where nobody can change it, else a copy of the array."""
    if not isinstance(value, np.ndarray) or is_frozen(value):
        return value
    return value.copy()


def keeper(dtype: DType) -> Callable[[Any], Any]:
    """What keeps values of *dtype*: ``keep``, or for Python objects, which are shared, nothing at all."""
    return pass_on if dtype.is_opaque else keep


def freeze(value: object) -> Any:
    """*value*, an array that nobody else holds yet, made read-only; a scalar instead of a 0-d array."""
    value = as_value(value)
    if isinstance(value, np.ndarray):
        value.setflags(write=False)
    return value


def read_only(value: object) -> Any:
    """A read-only view of an array; any other value itself.

    Not even the shape of the array can be changed through it.
    """
    if type(value) is np.ndarray:
        value = value.view()
        value.setflags(write=False)
    return value
