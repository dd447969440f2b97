"""Native code of convolutions: one module for the process, compiled once they have had much to do.

``native_calls.py`` tells on which thread.  It runs without the GIL.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from asyncexec.executor.plans.native_calls import COMPILER, Pauses
from asyncexec.framework.array_address import address_of
from asyncexec.regions.native_depthwise import DEPTHWISE
from asyncexec.regions.native_emitter import NotNativeError
from asyncexec.regions.native_gates import GATE
from asyncexec.regions.native_layers import write_layers
from asyncexec.regions.native_rows import NORM
from asyncexec.regions.native_vectors import AVX2, AVX512, CONVOLUTION, Registers

_ACTIVATIONS: Final = ("swish", "gelu", "gelu_tanh", "softmax")
_RECURRENT: Final = ("lstm", "gru", "gru_late")
_PLAIN: Final = (*_ACTIVATIONS, *_RECURRENT)
_FUNCTIONS: Final = ("native", "native_depthwise", "native_norm", *(f"native_{name}" for name in _PLAIN))
HOT_WORK: Final = 1e9  # multiplications: a tenth of a second, about what it takes to compile


class CompiledLayers:
    """What ``asyncexec.framework.layer_rule.NativeLayers`` tells."""

    def __init__(self) -> None:
        registers = _registers()
        self.lanes: int = registers.lanes
        self.panel: int = registers.panel
        text = write_layers(registers, Pauses())
        addresses = COMPILER.functions(text, self, _FUNCTIONS)
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_float, ctypes.c_float)
        self._convolve, self._convolve_depthwise = map(kind, addresses[:2])
        plain = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
        self._normalize, *others = map(plain, addresses[2:])
        self._plain = dict(zip(_PLAIN, others, strict=True))

    def convolve(self, arguments: Sequence[int], low: float, high: float) -> None:
        """Write some rows and panels of a convolution, limited from *low* to *high*."""
        self._convolve((ctypes.c_int64 * len(CONVOLUTION))(*arguments), low, high)

    def convolve_depthwise(self, arguments: Sequence[int], low: float, high: float) -> None:
        """Write some rows of a depthwise convolution."""
        self._convolve_depthwise((ctypes.c_int64 * len(DEPTHWISE))(*arguments), low, high)

    def activate(self, name: str, arguments: Sequence[int]) -> None:
        """Write ``swish``, ``gelu`` or ``gelu_tanh`` of each number of some rows, or ``softmax`` of each row."""
        self._plain[name]((ctypes.c_int64 * len(GATE))(*arguments))

    def normalize(self, arguments: Sequence[int]) -> None:
        """Write some rows, each normalized, and scaled and shifted by columns."""
        self._normalize((ctypes.c_int64 * len(NORM))(*arguments))

    def recur(self, name: str, table: NDArray[np.int64]) -> None:
        """Do all steps of ``lstm``, ``gru`` or ``gru_late``, which *table* tells of, and which is written to."""
        width = len(CONVOLUTION)
        at, last = address_of(table), len(table) - width
        for number in range(3):  # places of products in the table
            table[last + number] = at + number * width * table.itemsize
        self._plain[name](at + last * table.itemsize)


def _registers() -> Registers:
    """What this processor has; NotNativeError if it is of another kind."""
    features = COMPILER.features()
    for registers, needed in ((AVX512, ("avx512f", "avx512vl", "avx512dq")), (AVX2, ("avx2", "fma"))):
        if all(features.get(name) for name in needed):
            return registers
    raise NotNativeError


class _Layers:
    """The native code of the process, as soon as there is some."""

    __slots__ = ("__weakref__", "_has_ended", "_is_asked", "_left", "_made")

    def __init__(self) -> None:
        self._left = HOT_WORK
        self._is_asked = self._has_ended = False
        self._made: CompiledLayers | None = None

    def __call__(self, work: float, /) -> CompiledLayers | None:
        """The native code for *work*, so many multiplications; it is compiled once there have been many."""
        self._left -= work
        if self._left <= 0:
            self._ask()
        return self._made

    def is_coming(self) -> bool:
        """Have it compiled now; whether that is still to end."""
        self._ask()
        return not self._has_ended

    def _ask(self) -> None:
        if not self._is_asked:
            self._is_asked = True
            COMPILER.submit(self)

    def make(self) -> CompiledLayers:
        """Compile it."""
        return CompiledLayers()

    def replace(self, made: CompiledLayers | None) -> None:
        """Use what was *made* from now on."""
        self._made = made
        self._has_ended = True


LAYERS: Final = _Layers()
