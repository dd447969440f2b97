"""Tensors with elements or slices replaced, or combined with others: the Scatters."""

from __future__ import annotations

from typing import Final

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel
from asyncexec.ops.onnx.common import axis_of, refusing
from asyncexec.ops.onnx.indexing import element_index, point_index
from asyncexec.ops.onnx.onnx_kernels import OnnxNode, onnx_kernel

_REDUCTIONS: Final[dict[str, np.ufunc | None]] = {
    "none": None,
    "add": np.add,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}


def _reduction(node: OnnxNode) -> np.ufunc | None:
    name = node.text("reduction", "none")
    if name not in _REDUCTIONS:
        raise InvalidArgumentError(f"reduction must be one of {', '.join(_REDUCTIONS)}, not {name!r}")
    return _REDUCTIONS[name]


@onnx_kernel("Scatter", since=9)
@onnx_kernel("ScatterElements", since=11)
@refusing
def make_scatter_elements(node: OnnxNode) -> Kernel:
    """The kernel of ScatterElements: an update for each index, whose place along the axis the index is."""
    axis, combine = node.attr("axis", 0), _reduction(node)

    def scatter_elements(x: Array, indices: Array, updates: Array) -> tuple[Array]:
        along = axis_of(axis, x.ndim)
        if indices.shape != updates.shape:
            raise InvalidArgumentError(f"indices {list(indices.shape)} and updates {list(updates.shape)} differ")
        return (_with_updates(x, element_index(x.shape, indices, along), updates, combine),)

    return scatter_elements


@onnx_kernel("ScatterND", since=11)
@refusing
def make_scatter_nd(node: OnnxNode) -> Kernel:
    """The kernel of ScatterND: an update, an element or a slice, for each point in the last axis of the indices."""
    combine = _reduction(node)

    def scatter_nd(x: Array, indices: Array, updates: Array) -> tuple[Array]:
        index = point_index(x, indices)
        if updates.shape != (*indices.shape[:-1], *x.shape[len(index) :]):
            raise InvalidArgumentError(
                f"updates of shape {list(updates.shape)} do not fit indices {list(indices.shape)} into {list(x.shape)}"
            )
        return (_with_updates(x, index, updates, combine),)

    return scatter_nd


def _with_updates(x: Array, index: tuple[Array, ...], updates: Array, combine: np.ufunc | None) -> Array:
    if updates.dtype != x.dtype:
        raise InvalidArgumentError(f"updates are {updates.dtype.name}, but the data is {x.dtype.name}")
    result = np.array(x)
    if combine is None:
        result[index] = updates
    else:
        combine.at(result, index, updates)
    return result
