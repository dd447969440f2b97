"""Tensors made of little: Constant, ConstantOfShape, Range, EyeLike, OneHot, Pad."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar, NumpyDType
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel
from asyncexec.ops.onnx.common import (
    as_array,
    axes_of,
    axis_of,
    check_shape,
    integer,
    integers,
    is_half,
    refusing,
)
from asyncexec.ops.onnx.onnx_dtypes import numpy_dtype
from asyncexec.ops.onnx.onnx_kernels import OnnxNode, onnx_kernel
from asyncexec.ops.string.string_elements import as_strings

_PAD_MODES: Final = {"constant": "constant", "edge": "edge", "reflect": "reflect", "wrap": "wrap"}


@onnx_kernel("Constant")
def make_constant(node: OnnxNode) -> Kernel:
    """The kernel of Constant, whichever of its attributes has the value."""
    result = (constant_value(node),)
    return lambda: result


def constant_value(node: OnnxNode) -> Array:
    """What a Constant gives."""
    given = [name for name in node.attrs if name.startswith(("value", "sparse_value"))]
    if len(given) != 1:
        raise InvalidArgumentError(f"a Constant has one value, not {len(given)}")
    name, value = given[0], node.attr(given[0])
    if name in ("value", "sparse_value", "value_string"):
        return value
    if name == "value_strings":
        return as_strings(value, (len(value),))
    return np.array(value, np.float32 if "float" in name else np.int64)


@onnx_kernel("ConstantOfShape", since=9)
@refusing
def make_constant_of_shape(node: OnnxNode) -> Kernel:
    """The kernel of ConstantOfShape: one value everywhere, 0 in float32 if none is given."""
    value = as_array(node.attr("value", np.zeros(1, np.float32)))
    if value.size != 1:
        raise InvalidArgumentError(f"value must be one element, not of shape {list(value.shape)}")
    element, dtype = value.reshape(-1)[0], value.dtype
    is_zero = dtype.kind not in "OV" and not element

    def constant_of_shape(shape: object) -> tuple[object]:
        dims = integers(shape, "the shape")
        check_shape(dims, dtype)
        return (np.zeros(dims, dtype) if is_zero else np.full(dims, element, dtype),)

    return constant_of_shape


@onnx_kernel("Range", since=11)
@refusing
def make_range(node: OnnxNode) -> Kernel:
    """The kernel of Range; halves are computed in float32, or what ``stash_type`` says."""
    stash = numpy_dtype(node.attr("stash_type", 1))
    if stash.name not in ("float32", "float64"):
        raise InvalidArgumentError(f"stash_type must be float32 or float64, not {stash.name}")

    def make(start: ArrayOrScalar, limit: ArrayOrScalar, delta: ArrayOrScalar) -> tuple[Array]:
        if not start.size == limit.size == delta.size == 1:
            raise InvalidArgumentError("start, limit and delta must be scalars")
        dtype = start.dtype
        if is_half(dtype):
            start, limit, delta = (value.astype(stash) for value in (start, limit, delta))
        count = steps_to(start.item(), limit.item(), delta.item())
        check_shape([count], dtype)
        numbers = np.arange(count).astype(start.dtype, copy=False)
        return ((start + numbers * delta).astype(dtype, copy=False),)

    return make


def steps_to(start: float, limit: float, delta: float) -> int:
    """How many numbers there are from *start* to before *limit* in steps of *delta*."""
    if not delta:
        raise InvalidArgumentError("a step of 0 leads nowhere")
    if isinstance(delta, int):
        return max(0, -int((start - limit) // delta))
    count = (limit - start) / delta
    if not math.isfinite(count):
        raise InvalidArgumentError(f"from {start} to {limit} in steps of {delta} is no range")
    return max(0, math.ceil(count))


@onnx_kernel("EyeLike", since=9)
@refusing
def make_eye_like(node: OnnxNode) -> Kernel:
    """The kernel of EyeLike: ones on a diagonal, with the shape of the input."""
    given, k = node.attr("dtype"), node.attr("k", 0)
    wanted = None if given is None else numpy_dtype(given)

    def eye_like(x: Array) -> tuple[object]:
        if x.ndim != 2:
            raise InvalidArgumentError(f"the input must be a matrix, not of shape {list(x.shape)}")
        rows, columns = x.shape
        return (np.eye(rows, columns, max(-rows, min(columns, k)), dtype=wanted or x.dtype),)

    return eye_like


@onnx_kernel("OneHot", since=9)
@refusing
def make_one_hot(node: OnnxNode) -> Kernel:
    """The kernel of OneHot; an index below zero counts from the end, one outside picks nothing."""
    axis = node.attr("axis", -1)

    def one_hot(indices: Any, depth: ArrayOrScalar, values: Array) -> tuple[Array]:
        size, along = integer(depth, "depth"), axis_of(axis, indices.ndim + 1)
        if values.shape != (2,) or size < 0:
            raise InvalidArgumentError(f"depth {size} and values of shape {list(values.shape)} are not those of OneHot")
        shape = (*indices.shape[:along], size, *indices.shape[along:])
        check_shape(shape, values.dtype)
        places = np.where(indices < 0, indices + indices.dtype.type(size), indices)
        is_hot = np.expand_dims(places, along) == np.arange(size).reshape(size, *(1,) * (indices.ndim - along))
        return (np.where(is_hot, values[1], values[0]).astype(values.dtype, copy=False),)

    return one_hot


@onnx_kernel("Pad", since=11)
@refusing
def make_pad(node: OnnxNode) -> Kernel:
    """The kernel of Pad; sizes below zero cut off."""
    mode = _pad_mode(node)

    def pad(x: Any, pads: object, value: Any = None, axes: object = None) -> tuple[Array]:
        x = as_array(x)
        sizes = integers(pads, "pads")
        along = axes_of(range(x.ndim) if axes is None else integers(axes, "axes"), x.ndim)
        return (padded(x, pad_pairs(sizes, along, x.ndim), mode, value),)

    return pad


@onnx_kernel("Pad", since=2)
@refusing
def make_pad_by_attrs(node: OnnxNode) -> Kernel:
    """The kernel of Pad before 11: sizes and value are attributes."""
    mode, sizes, value = _pad_mode(node), node.attr("pads", []), node.attr("value", 0.0)
    return lambda x: (padded(x, pad_pairs(sizes, range(x.ndim), x.ndim), mode, x.dtype.type(value)),)


def _pad_mode(node: OnnxNode) -> str:
    mode = node.text("mode", "constant")
    if mode not in _PAD_MODES:
        raise InvalidArgumentError(f"mode must be one of {', '.join(_PAD_MODES)}, not {mode!r}")
    return mode


def pad_pairs(sizes: Sequence[int], axes: Sequence[int], rank: int) -> list[tuple[int, int]]:
    """What to add before and after each axis, from the sizes before all of *axes*, then those after."""
    if len(sizes) != 2 * len(axes):
        raise InvalidArgumentError(f"pads {list(sizes)} do not fit {len(axes)} axes")
    pairs = [(0, 0)] * rank
    for place, axis in enumerate(axes):
        pairs[axis] = (sizes[place], sizes[len(axes) + place])
    return pairs


def padded(x: Array, pairs: Sequence[tuple[int, int]], mode: str, value: ArrayOrScalar | None) -> Array:
    """*x* with *pairs* of sizes added, by *mode*, or cut off."""
    shape = [dim + low + high for dim, (low, high) in zip(x.shape, pairs, strict=True)]
    check_shape(shape, x.dtype)
    cut = [slice(max(0, -low), dim - max(0, -high)) for dim, (low, high) in zip(x.shape, pairs, strict=True)]
    x = x[tuple(cut)]
    added = [(max(0, low), max(0, high)) for low, high in pairs]
    if mode == "constant":
        fill = _fill_value(value, x.dtype)
        result = np.full(shape, fill, x.dtype)
        result[tuple(slice(low, low + dim) for dim, (low, _) in zip(x.shape, added, strict=True))] = x
        return result
    if any(not dim and (low or high) for dim, (low, high) in zip(x.shape, added, strict=True)):
        raise InvalidArgumentError(f"mode {mode} has nothing to take from in shape {list(x.shape)}")
    for axis, (low, high) in enumerate(added):
        if low or high:
            x = x.take(_source_places(x.shape[axis], low, high, mode), axis)
    return x


def _fill_value(value: object, dtype: NumpyDType) -> object:
    if value is None:
        return b"" if dtype.kind == "O" else np.zeros((), dtype)[()]
    array = as_array(value)
    if array.size != 1 or array.dtype != dtype:
        raise InvalidArgumentError(f"constant_value must be one {dtype.name}")
    return array.reshape(-1)[0]


def _source_places(size: int, low: int, high: int, mode: str) -> Array:
    """From which place along an axis each place of the result is taken."""
    places = np.arange(-low, size + high)
    if mode == "edge":
        return places.clip(0, size - 1)
    if mode == "wrap":
        return places % size
    if size == 1:
        return np.zeros_like(places)
    period = 2 * (size - 1)
    places %= period
    return np.where(places < size, places, period - places)
