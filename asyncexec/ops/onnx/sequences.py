"""Sequences and optionals: a sequence is a list of tensors, an optional a value or ``None``."""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncexec.framework.arrays import ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError, OutOfRangeError
from asyncexec.framework.kernel import Kernel, as_value
from asyncexec.ops.onnx.onnx_kernels import OnnxNode, onnx_kernel


@onnx_kernel("SequenceConstruct", since=11)
def _construct(node: OnnxNode) -> Kernel:
    return lambda *tensors: (list(tensors),)


@onnx_kernel("SequenceEmpty", since=11)
def _empty(node: OnnxNode) -> Kernel:
    return lambda: ([],)


@onnx_kernel("SequenceLength", since=11)
def _length(node: OnnxNode) -> Kernel:
    return lambda sequence: (np.int64(len(_sequence(sequence))),)


@onnx_kernel("SequenceAt", since=11)
def _at(node: OnnxNode) -> Kernel:
    return lambda sequence, position: (_sequence(sequence)[_position(position, sequence, len(sequence))],)


@onnx_kernel("SequenceInsert", since=11)
def _insert(node: OnnxNode) -> Kernel:
    def run(sequence: object, tensor: Any, position: Any = None) -> tuple[list[ArrayOrScalar | bytes]]:
        members = list(_sequence(sequence))
        place = len(members) if position is None else _position(position, sequence, len(members) + 1, len(members))
        members.insert(place, tensor)
        return (members,)

    return run


@onnx_kernel("SequenceErase", since=11)
def _erase(node: OnnxNode) -> Kernel:
    def run(sequence: object, position: Any = None) -> tuple[list[Any]]:
        members = list(_sequence(sequence))
        last = np.int64(len(members) - 1)
        del members[_position(last if position is None else position, sequence, len(members))]
        return (members,)

    return run


@onnx_kernel("SplitToSequence", since=11)
def _split(node: OnnxNode) -> Kernel:
    axis, keeps = node.attr("axis", 0), node.attr("keepdims", 1)

    def run(tensor: object, split: object = None) -> tuple[list[Any]]:
        array = np.asarray(tensor, object if isinstance(tensor, bytes) else None)
        if not -array.ndim <= axis < array.ndim:
            raise InvalidArgumentError(f"axis {axis} is not one of a tensor of {array.ndim} dimensions")
        size = array.shape[axis]
        parts = np.split(array, _ends(size, split), axis)
        if split is None and not keeps:
            return ([as_value(part.squeeze(axis)) for part in parts],)
        return (list(parts),)

    return run


def _ends(size: int, split: Any) -> list[int]:
    """Where each part but the last ends."""
    if split is None or np.ndim(split) == 0:
        length = 1 if split is None else int(split)
        if length < 1:
            raise InvalidArgumentError(f"a tensor is split into parts of 1 or more, not of {length}")
        return list(range(length, size, length))
    lengths = [int(length) for length in split]
    if any(length < 0 for length in lengths) or sum(lengths) != size:
        raise InvalidArgumentError(f"lengths {lengths} do not add up to {size}, the size of the axis to split")
    return [int(end) for end in np.cumsum(lengths[:-1])]


@onnx_kernel("ConcatFromSequence", since=11)
def _concat(node: OnnxNode) -> Kernel:
    axis, is_new = node.attr("axis", 0), node.attr("new_axis", 0)

    def run(sequence: object) -> tuple[Any]:
        members = [np.asarray(each, object if isinstance(each, bytes) else None) for each in _sequence(sequence)]
        if not members:
            raise InvalidArgumentError("an empty sequence cannot be joined to one tensor")
        try:
            return (np.stack(members, axis) if is_new else np.concatenate(members, axis),)
        except ValueError as error:  # AxisError is one too
            raise InvalidArgumentError(f"the tensors of the sequence do not fit together: {error}") from error

    return run


@onnx_kernel("Optional", since=15)
def _optional(node: OnnxNode) -> Kernel:
    return lambda value=None: (value,)


@onnx_kernel("OptionalHasElement", since=15)
def _has_element(node: OnnxNode) -> Kernel:
    return lambda value=None: (np.bool_(value is not None),)


@onnx_kernel("OptionalGetElement", since=15)
def _get_element(node: OnnxNode) -> Kernel:
    def run(value: object) -> tuple[Any]:
        if value is None:
            raise InvalidArgumentError("the optional has no element")
        return (value,)

    return run


def _sequence(value: object) -> list[ArrayOrScalar | bytes]:
    if not isinstance(value, list):
        raise InvalidArgumentError(f"a sequence is expected, a list, not {type(value).__name__}")
    return value


def _position(position: ArrayOrScalar, sequence: object, limit: int, length: int | None = None) -> int:
    """*position*, from the end of *length* where negative, below *limit*."""
    length = limit if length is None else length
    if np.size(position) != 1:
        raise InvalidArgumentError(f"a position is a scalar, not of shape {list(np.shape(position))}")
    index = int(np.reshape(position, ()))
    if not -length <= index < limit:
        raise OutOfRangeError(f"position {index} is out of the range of a sequence of {len(_sequence(sequence))}")
    return index + length if index < 0 else index
