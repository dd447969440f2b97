"""Order among elements: TopK and Unique."""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, KernelKind
from asyncexec.ops.math.order_statistics import top_k
from asyncexec.ops.onnx.common import as_array, axis_of, integer, refusing
from asyncexec.ops.onnx.onnx_kernels import OnnxNode, onnx_kernel


@onnx_kernel("TopK", since=10)
@refusing
def make_top_k(node: OnnxNode) -> Kernel:
    """The kernel of TopK: sorted whether that is wanted or not; of equal elements the first comes first."""
    axis, is_largest = node.attr("axis", -1), bool(node.attr("largest", 1))
    return lambda x, k: extremes(x, integer(k, "K"), axis, is_largest)


@onnx_kernel("TopK")
@refusing
def make_top_k_by_attr(node: OnnxNode) -> Kernel:
    """The kernel of TopK before 10: how many is an attribute."""
    axis, count = node.attr("axis", -1), node.attr("k")
    return lambda x: extremes(x, count, axis, True)


def extremes(x: Any, count: int, axis: int, is_largest: bool) -> tuple[Array, Array]:
    """The *count* largest or smallest elements along *axis*, and where they are."""
    along = axis_of(axis, x.ndim)
    if not 0 <= count <= x.shape[along]:
        raise InvalidArgumentError(f"K is {count}, but axis {axis} of shape {list(x.shape)} has no such number")
    last = np.moveaxis(x, along, -1)
    if is_largest:
        values, places = top_k(last, count, np.int64)
    else:
        places = np.argsort(last, -1, kind="stable")[..., :count]
        values = np.take_along_axis(last, places, -1)
    return np.moveaxis(values, -1, along), np.moveaxis(places, -1, along).astype(np.int64, copy=False)


@onnx_kernel("Unique", since=11, kind=KernelKind.EXPENSIVE)
@refusing
def make_unique(node: OnnxNode) -> Kernel:
    """The kernel of Unique: elements or slices, sorted or by their first place, and where they were."""
    axis, is_sorted = node.attr("axis"), bool(node.attr("sorted", 1))

    def unique(x: Any) -> tuple[Array, ...]:
        x = as_array(x)
        x = x.reshape(-1) if axis is None else x
        along = axis_of(axis or 0, x.ndim)
        _, first, inverse, counts = np.unique(_keys(x), True, True, True, along)
        inverse = inverse.reshape(-1)
        if not is_sorted:
            order = np.argsort(first)
            first, counts, inverse = first[order], counts[order], np.argsort(order)[inverse]
        results = [x.take(first, along), *(part.astype(np.int64) for part in (first, inverse, counts))]
        return tuple(results[: node.num_outputs])

    return unique


def _keys(x: Array) -> ArrayOrScalar:
    """*x* as numbers in the same order, which numpy can group by slices."""
    if x.dtype.kind == "V":
        return x.astype(np.float32)
    if x.dtype.kind == "O":
        return np.unique(x, return_inverse=True)[1].reshape(x.shape)
    return x
