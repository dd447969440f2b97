"""Translations of ops that move elements, or tell shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from asyncexec.graph.node import Node, Tensor
from asyncexec.passes.onnx_emitter import (
    Emitter,
    Translation,
    dim_of,
    is_image,
    rank_of,
    require,
)
from asyncexec.passes.onnx_math import ONNX_TYPES
from asyncexec.passes.tensordot_sizes import sizes_of_tensordot
from asyncexec.process.onnx_model import FROM_NCHW, TO_NCHW

_NCHW_AXIS: Final = (0, 2, 3, 1)
_END: Final = 2**62  # of a slice that goes as far as there is something
_INT64: Final = 7
_MASKS: Final = ("begin", "end", "ellipsis", "new_axis", "shrink_axis")


def _reshape(e: Emitter, node: Node) -> None:
    shape = e.constant(node.inputs[1])
    sizes = _copied_sizes(e, node) or sizes_of_tensordot(e, node)
    if sizes is not None:
        e.give(node, e.op("Reshape", e.take(node.inputs[0]), e.literal(sizes, np.int64)))
        return
    if shape is None:
        require(node.inputs[1].shape.rank == 1, "rank")
        wanted = e.op("Cast", e.take(node.inputs[1]), to=_INT64)
    else:
        require(shape.ndim == 1 and not ((shape == 0).any() and (shape == -1).any()), "sizes")
        wanted = e.literal(shape, np.int64)
    e.give(node, e.op("Reshape", e.take(node.inputs[0]), wanted, allowzero=1))


def _copied_sizes(e: Emitter, node: Node) -> list[int] | None:
    """The sizes that *node*, a Reshape, asks for, where some are sizes of what it takes: 0 stands for these in ONNX.

    They are written as Keras does: a Pack of constants and of elements of a Shape.  None where they are not.
    """
    pack, sizes = node.inputs[1].op, []
    if pack.op != "Pack" or any(e.is_fed(tensor) for tensor in (node.inputs[1], *pack.inputs)):
        return None
    for axis, tensor in enumerate(pack.inputs):
        value = e.constant(tensor)
        if value is not None and value.ndim == 0 and value != 0:
            sizes.append(int(value))
        elif _is_size(e, tensor, node.inputs[0], axis):
            sizes.append(0)
        else:
            return None
    return sizes


def _is_size(e: Emitter, tensor: Tensor, whole: Tensor, axis: int) -> bool:
    """Whether *tensor* is ``Shape(whole)[axis]``."""
    part = tensor.op
    if part.op != "StridedSlice" or part.attrs.get("shrink_axis_mask") != 1 or e.is_fed(part.inputs[0]):
        return False
    begin, strides, shape = e.constant(part.inputs[1]), e.constant(part.inputs[3]), part.inputs[0].op
    if begin is None or strides is None or list(begin) != [axis] or list(strides) != [1] or shape.op != "Shape":
        return False
    source = shape.inputs[0]
    return (source.op, source.index) == (whole.op, whole.index)


def _squeeze(e: Emitter, node: Node) -> None:
    rank = rank_of(node.inputs[0])
    axes = [int(axis) for axis in node.attrs.get("squeeze_dims") or ()]
    if not axes:
        require(all(dim is not None for dim in node.inputs[0].shape.dims or ()), "sizes are not known")
        axes = [axis for axis in range(rank) if dim_of(node.inputs[0], axis) == 1]
    require(axes and all(-rank <= axis < rank for axis in axes), "axes")
    axes = sorted({axis % rank for axis in axes})
    e.give(node, e.op("Squeeze", e.take(node.inputs[0]), e.literal(axes, np.int64)))


def _expand_dims(e: Emitter, node: Node) -> None:
    axes = e.axes(node.inputs[1], rank_of(node.inputs[0]) + 1)
    require(len(axes) == 1, "axes")
    e.give(node, e.op("Unsqueeze", e.take(node.inputs[0]), e.literal(axes, np.int64)))


def _transpose(e: Emitter, node: Node) -> None:
    x, rank = node.inputs[0], rank_of(node.inputs[0])
    perm = e.axes(node.inputs[1], rank)
    require(sorted(perm) == list(range(rank)), "no permutation")
    if tuple(perm) == TO_NCHW:  # the value is the same, and the name of its layout is another
        e.give(node, e.take(x, nchw=True))
    elif tuple(perm) == FROM_NCHW:
        e.give(node, e.take(x), nchw=True)
    elif rank:
        e.give(node, e.op("Transpose", e.take(x), perm=perm))
    else:
        e.give(node, e.op("Identity", e.take(x)))


def _reverse(e: Emitter, node: Node) -> None:
    x = node.inputs[0]
    axes = e.axes(node.inputs[1], rank_of(x))
    require(axes and len(set(axes)) == len(axes), "axes")
    ends, steps = [-_END] * len(axes), [-1] * len(axes)
    e.give(node, _sliced(e, e.take(x), [-1] * len(axes), ends, axes, steps))


def _concat(e: Emitter, node: Node) -> None:
    *values, axis = node.inputs
    rank = rank_of(values[0])
    require(all(rank_of(value) == rank for value in values) and rank, "rank")
    (where,) = e.axes(axis, rank)
    nchw = is_image(values[0]) and any(e.is_nchw(value) for value in values)
    names = [e.take(value, nchw=nchw) for value in values]
    e.give(node, e.op("Concat", *names, axis=_NCHW_AXIS[where] if nchw else where), nchw=nchw)


def _pack(e: Emitter, node: Node) -> None:
    rank = rank_of(node.inputs[0]) + 1
    axis = int(node.attrs.get("axis") or 0)
    require(-rank <= axis < rank, "axis")
    where = e.literal([axis % rank], np.int64)
    e.give(node, e.op("Concat", *(e.op("Unsqueeze", e.take(x), where) for x in node.inputs), axis=axis % rank))


def _pad(e: Emitter, node: Node) -> None:
    x, rank = node.inputs[0], rank_of(node.inputs[0])
    paddings = e.known(node.inputs[1])
    require(paddings.shape == (rank, 2) and rank and (paddings >= 0).all(), "paddings")
    value = e.known(node.inputs[2]) if node.op == "PadV2" else np.zeros((), np.float32)
    require(value.ndim == 0, "rank")
    nchw = is_image(x) and e.is_nchw(x)
    if nchw:
        paddings = paddings[list(TO_NCHW)]
    pads = e.literal(paddings.T.reshape(-1), np.int64)
    e.give(node, e.op("Pad", e.take(x, nchw=nchw), pads, e.literal(value), mode="constant"), nchw=nchw)


def _slice(e: Emitter, node: Node) -> None:
    rank = rank_of(node.inputs[0])
    begin, size = (e.known(tensor).astype(np.int64) for tensor in node.inputs[1:])
    require(begin.shape == size.shape == (rank,) and rank and (begin >= 0).all() and (size >= -1).all(), "sizes")
    for axis in range(rank):  # out of bounds is an error, and no shorter slice
        known = dim_of(node.inputs[0], axis)
        require(size[axis] == -1 or (known is not None and begin[axis] + size[axis] <= known), "sizes are not known")
        require(size[axis] != -1 or not begin[axis] or (known is not None and begin[axis] <= known), "sizes")
    ends = np.where(size == -1, _END, begin + size)
    e.give(node, _sliced(e, e.take(node.inputs[0]), list(begin), list(ends), list(range(rank))))


def _sliced(e: Emitter, x: str, *bounds: Sequence[object]) -> str:
    """A part of *x*: where it begins and ends, on which axes, and in which steps."""
    given = [e.literal(each, np.int64) for each in bounds]
    return e.op("Slice", x, *given)


def _strided_slice(e: Emitter, node: Node) -> None:
    rank = rank_of(node.inputs[0])
    begin, end, strides = (e.known(tensor) for tensor in node.inputs[1:])
    masks = {name: int(node.attrs.get(f"{name}_mask") or 0) for name in _MASKS}
    require(not masks["ellipsis"] and (strides > 0).all(), "masks")
    begins: list[int] = []
    ends: list[int] = []
    axes: list[int] = []
    steps: list[int] = []
    shrunk: list[int] = []
    added: list[int] = []
    axis = position = 0  # of the input, and of the output
    for i in range(len(begin)):
        bit = 1 << i
        if masks["new_axis"] & bit:
            added.append(position)
            position += 1
            continue
        require(axis < rank, "rank")
        first, last = int(begin[i]), int(end[i])
        if masks["shrink_axis"] & bit:
            require(int(strides[i]) == 1, "strides")
            shrunk.append(axis)
            size = dim_of(node.inputs[0], axis)
            require(size is None or -size <= first < size, "an index is out of range")
            first += (size or 0) if first < 0 else 0
            begins.append(first)
            ends.append(first + 1 if first != -1 else _END)
        else:
            begins.append(0 if masks["begin"] & bit else first)
            ends.append(_END if masks["end"] & bit else last)
            position += 1
        axes.append(axis)
        steps.append(int(strides[i]))
        axis += 1
    x = e.take(node.inputs[0])
    bounds = [each for each in zip(begins, ends, axes, steps, strict=True) if not _is_all(node.inputs[0], *each)]
    if bounds:
        x = _sliced(e, x, *zip(*bounds, strict=True))
    if shrunk:
        x = e.op("Squeeze", x, e.literal(shrunk, np.int64))
    if added:
        x = e.op("Unsqueeze", x, e.literal(added, np.int64))
    e.give(node, e.op("Identity", x))


def _is_all(tensor: Tensor, begin: int, end: int, axis: int, step: int) -> bool:
    """Whether a slice takes all that *tensor* has along *axis*."""
    size = dim_of(tensor, axis)
    return not begin and step == 1 and (end == _END or (size is not None and end >= size))


def _split(e: Emitter, node: Node) -> None:
    x = node.inputs[1]
    (axis,) = e.axes(node.inputs[0], rank_of(x))
    count = len(node.outputs)
    size = dim_of(x, axis)
    require(size is not None and size % count == 0 and size, "sizes")
    nchw = is_image(x) and e.is_nchw(x)
    names = e.ops("Split", [e.take(x, nchw=nchw)], count, axis=_NCHW_AXIS[axis] if nchw else axis)
    for index, name in enumerate(names):
        e.give(node, name, nchw=nchw, index=index)


def _gather(e: Emitter, node: Node) -> None:
    """With indices that are known to be in range: what is out of range is an error, negative ones among it."""
    x, rank = node.inputs[0], rank_of(node.inputs[0])
    indices = e.known(node.inputs[1])
    axis = 0
    if node.op == "GatherV2":
        (axis,) = e.axes(node.inputs[2], rank)
    size = dim_of(x, axis)
    require(not node.attrs.get("batch_dims") and size is not None, "sizes")
    require(((indices >= 0) & (indices < size)).all(), "an index is out of range")
    e.give(node, e.op("Gather", e.take(x), e.literal(indices, np.int64), axis=axis))


def _shape(e: Emitter, node: Node) -> None:
    x, dtype = node.inputs[0], node.outputs[0].dtype.name
    nchw = is_image(x) and e.is_nchw(x)
    found = e.op("Shape", e.take(x, nchw=nchw))
    if nchw:
        found = e.op("Gather", found, e.literal(FROM_NCHW, np.int64))
    e.give(node, found if dtype == "int64" else e.op("Cast", found, to=ONNX_TYPES[dtype]))


def _tile(e: Emitter, node: Node) -> None:
    multiples = e.known(node.inputs[1])
    rank = rank_of(node.inputs[0])
    require(multiples.shape == (rank,) and rank and (multiples >= 0).all(), "multiples")
    e.give(node, e.op("Tile", e.take(node.inputs[0]), e.literal(multiples, np.int64)))


ARRAYS: Final[Mapping[str, Translation]] = {
    "Reshape": _reshape,
    "Squeeze": _squeeze,
    "ExpandDims": _expand_dims,
    "Transpose": _transpose,
    "ReverseV2": _reverse,
    "ConcatV2": _concat,
    "Pack": _pack,
    **dict.fromkeys(("Pad", "PadV2"), _pad),
    "Slice": _slice,
    "StridedSlice": _strided_slice,
    "Split": _split,
    **dict.fromkeys(("Gather", "GatherV2"), _gather),
    "Shape": _shape,
    "Tile": _tile,
}
