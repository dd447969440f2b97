"""Sums, means, extremes and norms along dimensions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.kernel import Kernel
from asyncexec.ops.array.array_common import mean_of
from asyncexec.ops.pnnx.pnnx_kernels import PnnxNode, pnnx_kernel

_REDUCTIONS: Final[dict[str, Callable[..., object]]] = {
    "torch.sum": np.sum,
    "torch.mean": mean_of,
    "torch.prod": np.prod,
    "torch.amax": np.max,
    "torch.amin": np.min,
    "torch.any": np.any,
    "torch.all": np.all,
}


def _axes(node: PnnxNode) -> tuple[int, ...] | None:
    return node.integers("dim") if node.param("dim") not in (None, ()) else None


@pnnx_kernel(*_REDUCTIONS)
def _reduce(node: PnnxNode) -> Kernel:
    axes, keeps, function = _axes(node), bool(node.param("keepdim")), _REDUCTIONS[node.type]
    return lambda x: np.asarray(function(x, axis=axes, keepdims=keeps))


_EXTREMES: Final[dict[str, tuple[Any, Any]]] = {"torch.max": (np.max, np.argmax), "torch.min": (np.min, np.argmin)}


@pnnx_kernel("torch.max", "torch.min")
def _extreme(node: PnnxNode) -> Kernel:
    find, place = _EXTREMES[node.type]
    if node.num_inputs == 2:
        return np.maximum if node.type == "torch.max" else np.minimum
    if node.param("dim") is None:
        return lambda x: np.asarray(find(x))
    axis, keeps = node.integer("dim"), bool(node.param("keepdim"))

    def extreme(x: Array) -> object:
        values = np.asarray(find(x, axis=axis, keepdims=keeps))
        if node.num_outputs == 1:
            return values
        return values, np.asarray(place(x, axis=axis, keepdims=keeps)).astype(np.int64)

    return extreme


@pnnx_kernel("torch.argmax", "torch.argmin")
def _arg_extreme(node: PnnxNode) -> Kernel:
    place: Any = np.argmax if node.type == "torch.argmax" else np.argmin
    axis, keeps = node.param("dim"), bool(node.param("keepdim"))
    return lambda x: np.asarray(place(x, axis=axis, keepdims=keeps)).astype(np.int64)


@pnnx_kernel("torch.var", "torch.std")
def _var(node: PnnxNode) -> Kernel:
    """Of fewer numbers than are taken off it is not a number, of which numpy's own function would warn."""
    is_root = node.type == "torch.std"
    axes, keeps = _axes(node), bool(node.param("keepdim"))
    less = node.param("correction", int(bool(node.param("unbiased", True))))

    def var(x: ArrayOrScalar) -> Any:
        exact: Any = x.astype(np.float32) if x.dtype == np.float16 else x
        total = np.sum(exact, axis=axes, keepdims=True)
        count = x.size / max(total.size, 1)
        away = exact - np.divide(total, count)
        squares = (away * np.conj(away)).real
        found = np.divide(squares.sum(axis=axes, keepdims=keeps), max(count - less, 0))
        return np.asarray(np.sqrt(found) if is_root else found, x.dtype if exact is not x else None)

    return var


@pnnx_kernel("torch.norm", "torch.linalg.vector_norm")
def _norm(node: PnnxNode) -> Kernel:
    order = node.param("p", node.param("ord", 2))
    order = 2.0 if order == "fro" else order
    if not isinstance(order, (int, float)):
        raise node.error(f"parameter 'p' is {order!r}, not a number")
    over: dict[str, Any] = {"axis": _axes(node), "keepdims": bool(node.param("keepdim"))}

    def norm(x: Array) -> Array:
        if np.isinf(order):
            return np.asarray((np.max if order > 0 else np.min)(np.abs(x), **over))
        if order == 0:
            return np.asarray(np.sum(x != 0, **over)).astype(x.dtype)
        return np.asarray(np.sum(np.abs(x) ** order, **over) ** (1 / order))

    return norm


@pnnx_kernel("torch.cumsum")
def _cumsum(node: PnnxNode) -> Kernel:
    axis = node.integer("dim")
    return lambda x: np.cumsum(x, axis=axis)


@pnnx_kernel("torch.topk")
def _topk(node: PnnxNode) -> Kernel:
    count, axis, is_largest = node.integer("k"), node.integer("dim", -1), bool(node.param("largest", True))

    def topk(x: Array) -> object:
        order = np.argsort(-x if is_largest else x, axis=axis, kind="stable")
        order = np.take(order, range(count), axis=axis)
        values = np.take_along_axis(x, order, axis)
        return values if node.num_outputs == 1 else (values, order.astype(np.int64))

    return topk
