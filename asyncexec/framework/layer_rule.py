"""Native code of layers, told so that kernels can ask for it and know nothing of how it is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from asyncexec.framework.arrays import Array


class NativeLayers(Protocol):
    """Native code for float32 numbers, channels last (``regions/native_layers.py`` tells what the arguments are).

    Attributes:
        lanes: how many channels a depthwise convolution must have at least; panel: how many others are laid out for.
    """

    lanes: int
    panel: int

    def convolve(self, arguments: Sequence[int], low: float, high: float) -> None:
        """Write some rows and panels of a convolution, limited from *low* to *high*."""

    def convolve_depthwise(self, arguments: Sequence[int], low: float, high: float) -> None:
        """Write some rows of a depthwise convolution."""

    def activate(self, name: str, arguments: Sequence[int]) -> None:
        """Write ``swish``, ``gelu`` or ``gelu_tanh`` of each number of some rows, or ``softmax`` of each row."""

    def normalize(self, arguments: Sequence[int]) -> None:
        """Write some rows, each normalized, and scaled and shifted by columns."""

    def recur(self, name: str, table: NDArray[np.int64]) -> None:
        """Do all steps of ``lstm``, ``gru`` or ``gru_late``, which *table* tells of, and which is written to."""


_FEW: Final = 2**12  # numbers
_SHORT: Final = 8  # numbers in a row
_LONG: Final = 2**12
_WORK: Final = 16  # multiplications, about what an exponential is


class FindLayers(Protocol):
    """Gives native code, once there is some."""

    def __call__(self, work: float, /) -> NativeLayers | None:
        """That for so many multiplications; it is made when there have been many."""

    def is_coming(self) -> bool:
        """Have it made now; whether that is still to end."""


@dataclass(slots=True, eq=False)
class LayerRule:
    """What the kernel of a layer has as its attribute ``layer_rule``.

    Attributes:
        find_native: gives the native code for so many multiplications, once there is some; None where bits must stay.
        is_far_quicker: whether it takes a fraction of the time that the kernel takes without.
    """

    find_native: FindLayers | None = None
    is_far_quicker: bool = False

    def code_for(self, array: Array, *, sums: bool = False) -> NativeLayers | None:
        """The native code for going over the rows of *array*; None if there is none, or it would not be worth it.

        Where it *sums* a row, it is none for long ones, either: number by number, sums of many lose digits.
        """
        if self.find_native is None or array.size <= _FEW or array.dtype != np.float32 or array.shape[-1] < _SHORT:
            return None
        return None if sums and array.shape[-1] > _LONG else self.find_native(_WORK * array.size)
