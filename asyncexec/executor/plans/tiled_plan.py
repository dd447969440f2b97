"""TiledPlan: the kernel of a group of elementwise nodes, which goes over large arrays tile by tile.

An op on a large array reads it from memory, and writes another to memory.  A group does all that it has to do with one
tile before it takes the next: what its nodes hand on to each other stays in the cache, and only what others take of it
becomes whole arrays.  Between two tiles the memory of all temporaries is free, and is used again for the next.

The tiles are shared with threads that are idle (``process/shards.py``), and after each its thread looks whether anybody
still wants the result.
The results are those of the nodes one by one, to the bit.  So they run whenever the inputs are not alike, or a tile
fails: then the error is theirs, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from asyncexec.executor.engine.transfer_scope import CATCHABLE
from asyncexec.executor.plans.compiled_plan import CompiledPlan
from asyncexec.framework.arrays import Array
from asyncexec.framework.cancellation import call_around
from asyncexec.framework.element_rule import FindNative, NativeCode
from asyncexec.framework.errors import CancelledError
from asyncexec.framework.kernel import Kernel
from asyncexec.process.shards import is_shared, share

# Of each array of a tile: several fit into a second-level cache, and a call of a kernel costs little beside its work.
TILE_BYTES: Final = 2**17
# Tiles that are one for native code, which leaves nothing in the cache, and where several threads share them: between
# two kernels each waits until no other has the interpreter's lock, which takes longer than to read some from memory.
_TOGETHER: Final = 4
_FEW: Final = 64  # elements by which the nodes tell what the others will be


class TiledPlan:
    """The kernel of a group of elementwise nodes.

    Args:
        plan: calls the kernels of the nodes one by one; its function is plain.
        in_place: the same for arrays of one shape: it overwrites what it has made where nobody takes that any more, so
            that fewer arrays are to stay in the cache.
        find_native: gives the native code for inputs whose arrays have so many elements, if there is some.
    """

    __slots__ = ("_find_native", "_in_place", "_plan")

    is_quick = True  # it is measured, and does not run inline where it is not cheap

    def __init__(self, plan: CompiledPlan, in_place: CompiledPlan, find_native: FindNative | None = None) -> None:
        self._plan = plan
        self._in_place = in_place
        self._find_native = find_native

    def __call__(self, *inputs: object) -> Any:
        """The outputs of the group for *inputs*; what a node raises names that node."""
        outputs = self._by_tiles(inputs)
        if outputs is not None:
            return outputs
        try:
            return self._plan.function(*inputs)
        except CATCHABLE as raised:
            self._plan.fail(raised)

    def _by_tiles(self, inputs: Sequence[object]) -> tuple[Array, ...] | None:
        """The outputs, if *inputs* are large and alike, and no tile fails."""
        arrays = [value for value in inputs if isinstance(value, np.ndarray)]
        if not arrays or not all(_is_like(array, arrays[0]) for array in arrays):
            return None
        size, length = arrays[0].size, TILE_BYTES // max(array.itemsize for array in arrays)
        if size <= length:
            return None
        native = None if self._find_native is None else self._find_native(inputs, size)
        tiles = _Tiles(self._in_place.function, inputs, length)
        starts = tiles.begin(arrays[0].shape, native)
        if starts is None:
            return None
        call = call_around.get()
        manager = None if call is None else call.manager()

        def do(start: int) -> None:
            for tile in tiles.from_on(start):
                if manager is not None and manager.is_cancelled:
                    raise CancelledError("nobody waits for the call any more")
                tiles.do(tile)

        try:
            share(do, starts, sum(output.nbytes for output in tiles.outputs))
        except CancelledError:
            raise
        except Exception:  # the nodes one by one tell what is wrong
            return None
        return tuple(tiles.outputs)


def _is_like(array: Any, other: Any) -> bool:
    flags = array.flags
    return type(array) is np.ndarray and array.shape == other.shape and flags.c_contiguous and flags.aligned


class _Tiles:
    """The tiles of one call.

    Attributes:
        outputs: what the tiles are written into.
    """

    __slots__ = ("_function", "_inputs", "_length", "_native", "outputs")

    def __init__(self, function: Kernel, inputs: Sequence[object], length: int) -> None:
        self._function = function
        self._inputs = [value.reshape(-1) if isinstance(value, np.ndarray) else value for value in inputs]
        self._length = length
        self._native: Callable[[int, int], bool] | None = None
        self.outputs: list[Array] = []

    def begin(self, shape: tuple[int, ...], native: NativeCode | None) -> Sequence[int] | None:
        """Do the first elements, and make outputs of *shape* by what they give; where the others start.

        None if there cannot be such outputs.
        """
        end = min(self._length, _FEW)
        try:
            first = self._part(0, end)
        except Exception:  # the nodes one by one tell what is wrong
            return None
        if not all(isinstance(value, np.ndarray) and value.shape == (end,) for value in first):
            return None
        self.outputs = [np.empty(shape, value.dtype) for value in first]
        self._write(first, 0, end)
        if native is not None:
            self._native = native.bind(self._inputs, self.outputs)
        return range(end, math.prod(shape), _TOGETHER * self._length)

    def from_on(self, start: int) -> Sequence[range]:
        """The next tiles from *start* on, which are one for native code, or where threads share them."""
        end = min(start + _TOGETHER * self._length, self.outputs[0].size)
        if self._native is not None or is_shared():
            return [range(start, end)]
        return [range(at, min(at + self._length, end)) for at in range(start, end, self._length)]

    def do(self, tile: range) -> None:
        """Do a *tile*."""
        start, end = tile.start, tile.stop
        if self._native is None or not self._native(start, end):
            self._write(self._part(start, end), start, end)

    def _part(self, start: int, end: int) -> Sequence[Any]:
        """What the nodes give for the elements from *start* to *end*."""
        part: Sequence[Any] = self._function(
            *[value[start:end] if isinstance(value, np.ndarray) else value for value in self._inputs]
        )
        return part

    def _write(self, part: Sequence[object], start: int, end: int) -> None:
        for output, value in zip(self.outputs, part, strict=True):
            output.reshape(-1)[start:end] = value
