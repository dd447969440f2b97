"""Native code in place of what goes over large arrays tile by tile: groups (``tiled_plan.py``), and rules of kernels.

It is compiled once the group has had many elements, for the types of inputs that were met then (``native_calls.py``
tells on which thread).  It does all elements of a tile at once, without the GIL, and writes right into the outputs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np

from asyncexec.executor.plans.native_calls import COMPILER, Pauses
from asyncexec.framework.array_address import addresses_of
from asyncexec.framework.arrays import Array
from asyncexec.framework.element_rule import ElementRule
from asyncexec.regions.native_emitter import LLVM_NAMES, ScalarType
from asyncexec.regions.native_rules import write_rule
from asyncexec.regions.native_tiles import Taken, TileText, native_group, write_tile
from asyncexec.regions.program import Program
from asyncexec.regions.schedule import Block

HOT_ELEMENTS: Final = 1 << 24  # of a group before it is compiled: numpy takes some 10 ms a node, LLVM two
_REFUSALS: Final = 16  # of tiles, one after the other, after which it is not asked any more
_TYPES: Final[dict[np.dtype[Any], ScalarType]] = {np.dtype(kind): kind for kind in LLVM_NAMES}

DoTile: TypeAlias = Callable[[int, int], bool]
Write: TypeAlias = Callable[[Sequence[Taken], Callable[[], object]], TileText]


class NativeTiles:
    """The native code of a group, as soon as there is some; to be called with the inputs of each call of the group."""

    __slots__ = ("__weakref__", "_left", "_takes", "_tile", "_write")

    def __init__(self, write: Write) -> None:
        self._write = write
        self._left = HOT_ELEMENTS
        self._takes: tuple[Taken, ...] = ()  # once it has been called often
        self._tile: NativeTile | None = None

    def __call__(self, inputs: Sequence[object], size: int) -> NativeTile | None:
        """What does a tile of *inputs*, whose arrays have *size* elements; None if that is for Python."""
        tile = self._tile
        if tile is not None:
            return tile if tile.is_useful and tile.takes(inputs) else None
        self._left -= size
        if self._left <= 0 and not self._takes:
            self._ask(_types_of(inputs))
        return None

    def _ask(self, takes: tuple[Taken, ...] | None) -> None:
        if takes is None:
            self._left = HOT_ELEMENTS
            return
        self._takes = takes
        COMPILER.submit(self)

    def make(self) -> NativeTile:
        """The native code."""
        return NativeTile(self._write, self._takes)

    def replace(self, tile: NativeTile | None) -> None:
        """Use *tile* from now on."""
        self._tile = tile


class NativeTile:
    """The native code of a group for inputs of some types.

    Attributes:
        is_useful: whether it has not refused many tiles, one after the other.
        does_all: whether there is no element that it refuses.
    """

    __slots__ = (
        *("__weakref__", "_arrays", "_call", "_dtypes", "_gives", "_in_order", "_kinds", "_num_refused", "_scalars"),
        "does_all",
    )

    def __init__(self, write: Write, takes: Sequence[Taken]) -> None:
        text = write(takes, Pauses())
        num_outputs = 0 if text.overwrites else len(text.gives)
        pointers = [ctypes.c_void_p] * (len(takes) + num_outputs)
        function = ctypes.CFUNCTYPE(ctypes.c_int64, *pointers, ctypes.c_int64, ctypes.c_int64)
        self._call = function(COMPILER.load(text.text, self, has_vectors=True))
        self._gives = [np.dtype(kind) for kind in text.gives]
        self._num_refused = 0
        self.does_all: bool = text.does_all
        self._dtypes = [np.dtype(kind) for kind, _ in takes]
        self._kinds = [np.ndarray if is_array else kind for kind, is_array in takes]
        self._arrays = [place for place, taken in enumerate(takes) if taken.is_array]
        self._arrays += range(len(takes), len(takes) + num_outputs)
        scalars: dict[ScalarType, list[int]] = {}
        for place, taken in enumerate(takes):
            if not taken.is_array:
                scalars.setdefault(taken.type, []).append(place)
        self._scalars = [(np.dtype(kind), places) for kind, places in scalars.items()]
        found = [*self._arrays, *[places[0] for places in scalars.values()]]
        for places in scalars.values():
            found += places[1:]
        self._in_order = [found.index(place) for place in range(len(found))]

    @property
    def is_useful(self) -> bool:
        return self._num_refused < _REFUSALS

    def takes(self, inputs: Sequence[Any]) -> bool:
        """Whether *inputs* are of the types that it is for."""
        return all(map(isinstance, inputs, self._kinds)) and [value.dtype for value in inputs] == self._dtypes

    def bind(self, inputs: Sequence[object], outputs: Sequence[Array]) -> DoTile | None:
        """What does the elements from one to another of *inputs*, unless it refuses; None if *outputs* are others."""
        if [output.dtype for output in outputs] != self._gives:
            return None
        return partial(self._do, *self._pointers([*inputs, *outputs]))

    def overwriting(self, inputs: Sequence[object]) -> Callable[[int, int], int]:
        """What writes over the first of *inputs* from one element to another, and returns the one it has come to."""
        return partial(self._come_to, *self._pointers(inputs))

    def _pointers(self, values: Sequence[Any]) -> tuple[Sequence[Array], Sequence[int]]:
        """Where *values* are, inputs and outputs, and what has to be kept for that."""
        kept: list[Array] = [values[place] for place in self._arrays]
        # One array for all scalars of a type: each address takes its time.
        kept += [np.array([values[place] for place in places], dtype) for dtype, places in self._scalars]
        pointers = addresses_of(kept)
        for address, (dtype, places) in zip(pointers[len(self._arrays) :], self._scalars, strict=True):
            pointers += range(address + dtype.itemsize, address + len(places) * dtype.itemsize, dtype.itemsize)
        return kept, [pointers[number] for number in self._in_order]

    def _do(self, arrays: Sequence[Array], pointers: Sequence[int], start: int, end: int) -> bool:
        """Do a tile of *arrays*, which are where *pointers* point to; whether it could."""
        return self._come_to(arrays, pointers, start, end) == end

    def _come_to(self, _arrays: Sequence[Array], pointers: Sequence[int], start: int, end: int) -> int:
        come_to = int(self._call(*pointers, start, end))
        self._num_refused = 0 if come_to == end else self._num_refused + 1
        return come_to


def native_tiles(program: Program, block: Block) -> NativeTiles | None:
    """What gives the native code of the group that *program* is; None if there can be none."""
    COMPILER.free_soon()
    group = native_group(program, block)
    return None if group is None else NativeTiles(partial(write_tile, group))


def native_rule(rule: ElementRule) -> NativeTiles:
    """What gives the native code of *rule*."""
    return NativeTiles(partial(write_rule, rule.function))


def _types_of(inputs: Sequence[object]) -> tuple[Taken, ...] | None:
    """The types of *inputs*, if native code knows all of them."""
    found = []
    for value in inputs:
        kind = _TYPES.get(value.dtype) if isinstance(value, (np.ndarray, np.generic)) else None
        if kind is None:
            return None
        found.append(Taken(kind, isinstance(value, np.ndarray)))
    return tuple(found)
