"""Sizes of tensors, as far as a graph tells them: numbers, or names by which equal sizes are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np

from asyncexec.framework.types import int32, int64
from asyncexec.graph.node import Node, Tensor
from asyncexec.passes.node_facts import IDENTITIES

Size: TypeAlias = int | tuple[Node, int, int]  # a number, or an axis of an output
IsFed: TypeAlias = Callable[[Tensor], bool]

_SAME_SHAPE: Final = IDENTITIES | {"ReverseV2", "Relu", "Tanh", "Sigmoid"}
# Where the sizes of what ONNX's recurrent nodes give come from, by output and axis: the axis of the input.
_OF_RECURRENT: Final = {(0, 0): 0, (0, 2): 1, (1, 1): 1, (2, 1): 1}
_RECURRENT: Final = frozenset({"Onnx>LSTM", "Onnx>GRU", "Onnx>RNN"})


def value_of(tensor: Tensor, is_fed: IsFed) -> Any:
    """The value of *tensor*, where it is a constant behind any Identity; else None."""
    while not is_fed(tensor):
        node = tensor.op
        if node.op == "Const":
            value = node.attrs["value"]
            return value if isinstance(value, (np.ndarray, np.generic)) else None
        if node.op not in IDENTITIES:
            return None
        tensor = node.inputs[0]
    return None


def size_of(tensor: Tensor, axis: int, is_fed: IsFed) -> Size | None:
    """The size of *axis* of *tensor*; None where its rank is not known."""
    while True:
        dims = tensor.shape.dims
        if dims is None or axis >= len(dims):
            return None
        known = dims[axis]
        if known is not None:
            return int(known)
        node = tensor.op
        if is_fed(tensor):
            return node, tensor.index, axis
        if node.op in _SAME_SHAPE:
            tensor = node.inputs[0]
        elif node.op == "Transpose":
            perm = value_of(node.inputs[1], is_fed)
            if perm is None:
                return node, tensor.index, axis
            tensor, axis = node.inputs[0], int(perm[axis]) % len(dims)
        elif node.op == "Squeeze" and node.attrs["squeeze_dims"]:
            gone = {int(each) % (len(dims) + len(node.attrs["squeeze_dims"])) for each in node.attrs["squeeze_dims"]}
            left = [each for each in range(len(dims) + len(gone)) if each not in gone]
            tensor, axis = node.inputs[0], left[axis]
        elif node.op in _RECURRENT and (tensor.index, axis) in _OF_RECURRENT:
            tensor, axis = node.inputs[0], _OF_RECURRENT[tensor.index, axis]
        elif node.op == "Fill" and node.inputs[0].op.op == "Pack" and not is_fed(node.inputs[0]):
            return number_of(node.inputs[0].op.inputs[axis], is_fed) or (node, tensor.index, axis)
        else:
            return node, tensor.index, axis


def number_of(tensor: Tensor, is_fed: IsFed) -> Size | None:
    """The number, or the size, that *tensor* is, a scalar; None where it is something else."""
    while True:
        value = value_of(tensor, is_fed)
        if value is not None:
            return int(value) if not np.ndim(value) and np.issubdtype(value.dtype, np.integer) else None
        node = tensor.op
        if is_fed(tensor):
            return None
        if node.op in IDENTITIES or _is_widening(node) or (node.op == "Max" and node.inputs[0].shape.rank == 0):
            tensor = node.inputs[0]
        elif node.op == "StridedSlice" and node.inputs[0].op.op == "Shape" and not is_fed(node.inputs[0]):
            return _element(node, is_fed)
        else:
            return None


def _is_widening(node: Node) -> bool:
    """Whether *node* casts to a type that holds all sizes."""
    return node.op == "Cast" and node.attrs["DstT"] in (int32, int64)


def _element(node: Node, is_fed: IsFed) -> Size | None:
    """The size that *node* is, if it takes one out of a shape."""
    begin, strides = value_of(node.inputs[1], is_fed), value_of(node.inputs[3], is_fed)
    whole = node.inputs[0].op.inputs[0]
    is_one = node.attrs["shrink_axis_mask"] == 1 and not node.attrs["begin_mask"]
    if begin is None or strides is None or len(begin) != 1 or whole.shape.rank is None or not is_one:
        return None
    return size_of(whole, int(begin[0]) % max(whole.shape.rank, 1), is_fed)
