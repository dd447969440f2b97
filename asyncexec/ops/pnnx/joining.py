"""Joining arrays, and taking them apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel
from asyncexec.ops.pnnx.pnnx_kernels import PnnxNode, pnnx_kernel


def _listed(inputs: Sequence[object]) -> Sequence[Any]:
    """The arrays: the inputs, or those in the one list among them."""
    return inputs[0] if len(inputs) == 1 and isinstance(inputs[0], (tuple, list)) else inputs


@pnnx_kernel("torch.cat", "torch.concat")
def _cat(node: PnnxNode) -> Kernel:
    axis = node.integer("dim", 0)
    return lambda *inputs: np.concatenate(_listed(inputs), axis)


@pnnx_kernel("torch.stack")
def _stack(node: PnnxNode) -> Kernel:
    axis = node.integer("dim", 0)
    return lambda *inputs: np.stack(_listed(inputs), axis)


def _parts(node: PnnxNode, values: Sequence[object]) -> object:
    """What the node gives of *values*: themselves, or a list where it has one output and they are not one."""
    return values[0] if node.num_outputs == 1 and len(values) == 1 else tuple(values)


@pnnx_kernel("torch.chunk")
def _chunk(node: PnnxNode) -> Kernel:
    count, axis = node.integer("chunks"), node.integer("dim", 0)
    if count < 1:
        raise node.error("'chunks' is at least 1")

    def chunk(x: Array) -> object:
        size = max(1, -(-x.shape[axis] // count))
        return _parts(node, np.split(x, range(size, x.shape[axis], size), axis))

    return chunk


@pnnx_kernel("torch.split", "torch.tensor_split")
def _split(node: PnnxNode) -> Kernel:
    axis = node.integer("dim", 0)
    name = "split_size_or_sections" if node.param("split_size_or_sections") is not None else "split_size"
    sizes = node.param(name)
    if node.type == "torch.tensor_split":
        places = node.param("indices", node.param("sections"))
        return lambda x: _parts(node, np.array_split(x, places, axis))
    values = node.integers(name)

    def split(x: Array) -> Any:
        length = x.shape[axis]
        if isinstance(sizes, int):
            return _parts(node, np.split(x, range(sizes, length, sizes), axis))
        if sum(values) != length:
            raise InvalidArgumentError(f"parts of {list(values)} do not fit {length} cells")
        return _parts(node, np.split(x, np.cumsum(values)[:-1].tolist(), axis))

    if min(values) < (1 if isinstance(sizes, int) else 0):
        raise node.error(f"parts cannot have {list(values)} cells")
    return split


@pnnx_kernel("torch.unbind")
def _unbind(node: PnnxNode) -> Kernel:
    axis = node.integer("dim", 0)
    return lambda x: _parts(node, [np.asarray(each) for each in np.moveaxis(x, axis, 0)])
