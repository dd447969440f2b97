"""What a kernel does to each element of large arrays, told so that native code can do it, too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from asyncexec.framework.arrays import Array


class NativeCode(Protocol):
    """Native code in place of numpy, for inputs of some types.

    Attributes:
        does_all: whether there is no element that it leaves to numpy.
    """

    @property
    def does_all(self) -> bool: ...

    def bind(self, inputs: Sequence[Any], outputs: Sequence[Array]) -> Callable[[int, int], bool] | None:
        """What writes the elements from one to another into *outputs*, or tells that it could not; None if nothing."""

    def overwriting(self, inputs: Sequence[Any]) -> Callable[[int, int], int]:
        """What writes the outputs over the first of *inputs*, for the elements from one to another.

        It returns the element that it has come to, which is for numpy if it is not the last of these.
        """


FindNative: TypeAlias = Callable[[Sequence[Any], int], NativeCode | None]


@dataclass(slots=True, eq=False)
class ElementRule:
    """A rule, which a kernel has as its attribute ``element_rule`` for who makes native code.

    Attributes:
        function: gives the new arrays for arrays and scalars, by operators and ufuncs alone.
        find_native: gives the native code for inputs whose arrays have so many elements, once there is some.
    """

    function: Callable[[Sequence[Any]], Sequence[Any]]
    find_native: FindNative | None = None
