"""Reductions: the Reduce family, ArgMax and ArgMin."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel
from asyncexec.ops.onnx.common import axes_of, axis_of, integers, is_half, refusing
from asyncexec.ops.onnx.onnx_kernels import OnnxNode, onnx_kernel

Axes = tuple[int, ...] | None  # none: all
Reducer = Callable[[Any, Axes, bool], Any]

_add: Final[Callable[..., object]] = np.add.reduce
_multiply: Final[Callable[..., object]] = np.multiply.reduce


def _total(x: Array, axes: Axes, keepdims: bool) -> Any:
    return _add(x, axes, x.dtype, keepdims=keepdims)


def _product(x: Any, axes: Axes, keepdims: bool) -> Any:
    return _multiply(x, axes, x.dtype, keepdims=keepdims)


def _mean(x: Any, axes: Axes, keepdims: bool) -> ArrayOrScalar:
    count = x.size if axes is None else math.prod(x.shape[axis] for axis in axes)
    total = _total(x, axes, keepdims)
    if x.dtype.kind in "iu":
        return np.trunc(total / np.float64(count)).astype(x.dtype)
    return np.divide(total, x.dtype.type(count))


def _total_of_absolutes(x: ArrayOrScalar, axes: Axes, keepdims: bool) -> ArrayOrScalar:
    return _total(np.absolute(x), axes, keepdims)


def _total_of_squares(x: Array, axes: Axes, keepdims: bool) -> Any:
    return _total(np.square(x), axes, keepdims)


def _norm(x: object, axes: Axes, keepdims: bool) -> object:
    return np.sqrt(_total_of_squares(_real(x), axes, keepdims))


def _log_of_total(x: object, axes: Axes, keepdims: bool) -> object:
    return np.log(_total(_real(x), axes, keepdims))


def _log_of_total_of_exponentials(x: Array, axes: Axes, keepdims: bool) -> Array:
    x = _real(x)
    largest = np.maximum.reduce(x, axes, keepdims=True, initial=-np.inf)
    shift = np.where(np.isfinite(largest), largest, x.dtype.type(0))
    result = np.log(_total(np.exp(x - shift), axes, True)) + shift
    return result if keepdims else np.squeeze(result, tuple(range(x.ndim)) if axes is None else axes)


def _real(x: Any) -> Array:
    return x.astype(np.float64) if x.dtype.kind in "iu" else x


def _largest(x: object, axes: Axes, keepdims: bool) -> object:
    return _extreme(np.maximum, x, axes, keepdims, is_largest=True)


def _smallest(x: object, axes: Axes, keepdims: bool) -> object:
    return _extreme(np.minimum, x, axes, keepdims, is_largest=False)


def _extreme(ufunc: np.ufunc, x: Any, axes: Axes, keepdims: bool, *, is_largest: bool) -> ArrayOrScalar:
    if x.size:
        return ufunc.reduce(x, axes, keepdims=keepdims)
    if x.dtype.kind in "iu":
        limits = np.iinfo(x.dtype)
        initial: object = limits.min if is_largest else limits.max
    elif x.dtype.kind == "b":
        initial = not is_largest
    else:
        initial = -np.inf if is_largest else np.inf
    over: dict[str, Any] = {"axis": axes, "keepdims": keepdims}
    shape = np.any(np.empty(x.shape, np.bool_), **over).shape
    return np.full(shape, initial, x.dtype)


_REDUCERS: Final[dict[str, Reducer]] = {
    "ReduceSum": _total,
    "ReduceProd": _product,
    "ReduceMean": _mean,
    "ReduceMax": _largest,
    "ReduceMin": _smallest,
    "ReduceL1": _total_of_absolutes,
    "ReduceL2": _norm,
    "ReduceSumSquare": _total_of_squares,
    "ReduceLogSum": _log_of_total,
    "ReduceLogSumExp": _log_of_total_of_exponentials,
}
_EXACT_IN_HALVES: Final = frozenset({"ReduceMax", "ReduceMin"})


def _reducer(op_type: str) -> Reducer:
    """The function of *op_type* in the dtype of its input; sums of halves are computed in float32."""
    function = _REDUCERS[op_type]
    if op_type in _EXACT_IN_HALVES:
        return function

    def reduce(x: Array, axes: Axes, keepdims: bool) -> Any:
        if is_half(x.dtype):
            return function(x.astype(np.float32), axes, keepdims).astype(x.dtype)
        return function(x, axes, keepdims).astype(x.dtype, copy=False)

    return reduce


@refusing
def make_reduction(node: OnnxNode) -> Kernel:
    """The kernel of a reduction whose axes are an input; none of them means all, or, if told so, none."""
    function, keepdims = _reducer(node.op_type), bool(node.attr("keepdims", 1))
    of_none = () if node.attr("noop_with_empty_axes", 0) else None

    def reduce(x: Any, axes: Any = None) -> tuple[ArrayOrScalar]:
        if axes is None or not np.size(axes):
            return (function(x, of_none, keepdims),)
        return (function(x, axes_of(integers(np.atleast_1d(axes), "axes"), x.ndim), keepdims),)

    return reduce


@refusing
def make_reduction_by_attr(node: OnnxNode) -> Kernel:
    """The kernel of a reduction whose axes are an attribute."""
    function, keepdims, axes = _reducer(node.op_type), bool(node.attr("keepdims", 1)), node.attr("axes")
    return lambda x: (function(x, axes_of(axes, x.ndim) if axes else None, keepdims),)


for _op in _REDUCERS:
    onnx_kernel(_op, since=13 if _op == "ReduceSum" else 18)(make_reduction)
    onnx_kernel(_op)(make_reduction_by_attr)


@onnx_kernel("ArgMax", "ArgMin")
@refusing
def make_arg_extreme(node: OnnxNode) -> Kernel:
    """The kernel of ArgMax and ArgMin: where the first, or last, of the extreme elements is."""
    find: Any = np.ndarray.argmax if node.op_type == "ArgMax" else np.ndarray.argmin
    axis, keepdims = node.attr("axis", 0), bool(node.attr("keepdims", 1))
    from_end = node.attr("select_last_index", 0)

    def arg_extreme(x: ArrayOrScalar) -> tuple[Array]:
        along = axis_of(axis, x.ndim)
        if not x.shape[along]:
            raise InvalidArgumentError(f"axis {axis} of shape {list(x.shape)} has no elements")
        if not from_end:
            return (find(x, along, keepdims=keepdims),)
        place = find(np.flip(x, along), along, keepdims=keepdims)
        return (x.shape[along] - 1 - place,)

    return arg_extreme
