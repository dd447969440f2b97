"""Joining arrays, taking them apart and slicing them, on any array library.

What the ops mean is told in asyncexec.ops (concat_split.py, slicing.py).  Axes, sizes and bounds come in host memory.
The standard leaves slices out of bounds undefined and some libraries have no negative steps: slices are worked out in
full here, and what runs backwards is taken forwards and flipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from asyncexec.devices.array_library import ArrayLibrary
from asyncexec.devices.kernel_table import KernelTable, shape_list
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.ops.array.array_common import canonical_axis, int_vector, scalar_int
from asyncexec.ops.array.slicing import Index, Masks, spec_to_index


def register_joining(table: KernelTable) -> None:
    """Add the kernels of this module."""
    table.add("Concat", partial(_concat, True))
    table.add("ConcatV2", partial(_concat, False))
    table.add("Pack", _pack)
    table.add("Unpack", _unpack)
    table.add("Split", _split)
    table.add("Slice", _slice)
    table.add("StridedSlice", _strided_slice)


def _concat(axis_is_first: bool, library: ArrayLibrary, op: OpKernelConstruction) -> Kernel:
    xp = library.xp

    def concat(*inputs: Any) -> Any:
        given, values = (inputs[0], inputs[1:]) if axis_is_first else (inputs[-1], inputs[:-1])
        if not values[0].ndim:
            raise InvalidArgumentError("Can't concatenate scalars (use tf.stack instead)")
        axis = canonical_axis(scalar_int(given, "concat axis"), values[0].ndim, "concat axis")
        rest = {(*value.shape[:axis], *value.shape[axis + 1 :]) for value in values}
        if len(rest) > 1 or len({value.ndim for value in values}) > 1:
            raise InvalidArgumentError(
                f"ConcatOp : Dimensions of inputs should match along all but axis {axis}: "
                f"{[shape_list(value) for value in values]}"
            )
        return xp.concat(values, axis=axis)

    return concat


def _pack(library: ArrayLibrary, op: OpKernelConstruction) -> Kernel:
    xp, given = library.xp, op.attr("axis")

    def pack(*values: Any) -> Any:
        if len({tuple(value.shape) for value in values}) > 1:
            raise InvalidArgumentError(f"Shapes of all inputs must match: {[shape_list(value) for value in values]}")
        return xp.stack(values, axis=canonical_axis(given, values[0].ndim + 1))

    return pack


def _along(axis: int, part: int | slice) -> Index:
    return (*(slice(None),) * axis, part, ...)


def _unpack(library: ArrayLibrary, op: OpKernelConstruction) -> Kernel:
    count, given = op.attr("num"), op.attr("axis")

    def unpack(value: Any) -> Any:
        axis = canonical_axis(given, value.ndim)
        if value.shape[axis] != count:
            raise InvalidArgumentError(f"Input shape axis {axis} must equal {count}, got shape {shape_list(value)}")
        return tuple(value[_along(axis, index)] for index in range(count))

    return unpack


def _split(library: ArrayLibrary, op: OpKernelConstruction) -> Kernel:
    count: int = op.attr("num_split")

    def split(split_dim: Any, value: Any) -> Any:
        axis = canonical_axis(scalar_int(split_dim, "split_dim"), value.ndim, "split_dim")
        size, rest = divmod(value.shape[axis], count)
        if rest:
            raise InvalidArgumentError(
                f"Number of ways to split should evenly divide the split dimension, but got split_dim {axis} "
                f"(size = {value.shape[axis]}) and num_split {count}"
            )
        return tuple(value[_along(axis, slice(i * size, i * size + size))] for i in range(count))

    return split


def _slice(library: ArrayLibrary, op: OpKernelConstruction) -> Kernel:
    def slice_array(x: Any, begin: Any, size: Any) -> Any:
        begins, sizes = int_vector(begin, "begin"), int_vector(size, "size")
        if not len(begins) == len(sizes) == x.ndim:
            raise InvalidArgumentError(
                f"Expected begin and size arguments to be 1-D tensors of size {x.ndim}, "
                f"but got {len(begins)}, {len(sizes)}"
            )
        index = []
        for axis, (start, length, dim) in enumerate(zip(begins, sizes, x.shape, strict=True)):
            stop = dim if length == -1 else start + length
            if not 0 <= start <= dim or not start <= stop <= dim:
                raise InvalidArgumentError(
                    f"Expected begin[{axis}] in [0, {dim}] and size[{axis}] in [0, {dim - start}], "
                    f"but got {start} and {length}"
                )
            index.append(slice(start, stop))
        return x[tuple(index)] if index else x

    return slice_array


def _strided_slice(library: ArrayLibrary, op: OpKernelConstruction) -> Kernel:
    xp, masks = library.xp, Masks.of(op.attrs)

    def strided_slice(x: Any, begin: object, end: object, strides: object) -> Any:
        index, backwards = resolved(spec_to_index(begin, end, strides, masks), shape_list(x))
        part = x[index]
        return xp.flip(part, axis=backwards) if backwards else part

    return strided_slice


def resolved(index: Index, shape: Sequence[int]) -> tuple[Index, tuple[int, ...]]:
    """*index* of an array of *shape*, one entry an axis, all of it forwards; and which axes of the result to flip.

    Raises:
        InvalidArgumentError: it is out of bounds, or has more entries than there are axes.
    """
    full: list[Any] = []
    backwards: list[int] = []
    axis = out_axis = 0
    taken = sum(1 for part in index if part is not None and part is not ...)
    if taken > len(shape):
        raise InvalidArgumentError(f"slice index {list(index)} has more entries than {list(shape)} has dimensions")
    for part in (*index, *(() if ... in index else (...,))):
        if part is ...:
            skipped = len(shape) - taken
            full += [slice(None)] * skipped
            axis, out_axis = axis + skipped, out_axis + skipped
        elif part is None:
            full.append(None)
            out_axis += 1
        elif isinstance(part, slice):
            forwards, is_backwards = _forwards(part, shape[axis])
            full.append(forwards)
            backwards += [out_axis] * is_backwards
            axis, out_axis = axis + 1, out_axis + 1
        else:
            if not -shape[axis] <= part < shape[axis]:
                raise InvalidArgumentError(f"slice index {part} of dimension {axis} out of bounds.")
            full.append(part % shape[axis])
            axis += 1
    return tuple(full), tuple(backwards)


def _forwards(part: slice, size: int) -> tuple[slice, bool]:
    """*part* of an axis of that *size* with a positive step, and whether it ran backwards."""
    places = range(size)[part]
    if not places:
        return slice(0, 0, 1), False
    if places.step > 0:
        return slice(places[0], places[-1] + 1, places.step), False
    return slice(places[-1], places[0] + 1, -places.step), True
