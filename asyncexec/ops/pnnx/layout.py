"""The layout of arrays: shapes, the order of dimensions, slices, parts, borders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel
from asyncexec.framework.types import DType
from asyncexec.ops.pnnx.pnnx_kernels import PnnxNode, pnnx_kernel
from asyncexec.ops.pnnx.windows import padded
from asyncexec.process.free_memory import check_array

_TO_THE_END: Final = 2**31 - 1  # PNNX's greatest number
_DTYPES: Final[dict[str, DType]] = {
    "float": types.float32,
    "float32": types.float32,
    "double": types.float64,
    "float64": types.float64,
    "half": types.float16,
    "float16": types.float16,
    "bfloat16": types.bfloat16,
    "int": types.int32,
    "int32": types.int32,
    "long": types.int64,
    "int64": types.int64,
    "short": types.int16,
    "int16": types.int16,
    "int8": types.int8,
    "uint8": types.uint8,
    "bool": types.bool,
}


def _shape_source(node: PnnxNode, name: str) -> Callable[[Sequence[Any]], Sequence[int]]:
    """What gives the integers *name*, from a parameter or an input of that name (or the second)."""
    place = node.input_index(name)
    if place is None and node.param(name) is None and node.num_inputs > 1:
        place = 1
    if place is None:
        constant = node.integers(name)
        return lambda inputs: constant
    at = place

    def integers(inputs: Sequence[Any]) -> list[int]:
        given = np.ravel(inputs[at])
        # Torch's floor and ceil of a number are integers; ours, and the type of an empty list, are not.
        if given.dtype.kind not in "iuf" or not np.all(np.isfinite(given) & (given == np.floor(given))):
            raise node.error(f"input {name!r} is {given.tolist()} of {given.dtype}, not of integers")
        return [int(each) for each in given]

    return integers


@pnnx_kernel("Tensor.view", "Tensor.reshape", "torch.reshape")
def _reshape(node: PnnxNode) -> Kernel:
    shape_of = _shape_source(node, "shape")

    def reshape(*inputs: Any) -> Array:
        x, shape = inputs[0], shape_of(inputs)
        unknown = [axis for axis, size in enumerate(shape) if size == -1]
        rest = prod(size for size in shape if size != -1)
        fits = (rest > 0 and x.size % rest == 0) if unknown else rest == x.size
        if len(unknown) > 1 or any(size < -1 for size in shape) or not fits:
            raise InvalidArgumentError(f"a tensor of shape {list(x.shape)} cannot have shape {list(shape)}")
        return np.asarray(x.reshape(tuple(shape)))

    return reshape


@pnnx_kernel("Tensor.view_as", "Tensor.reshape_as")
def _reshape_as(node: PnnxNode) -> Kernel:
    return lambda x, other: x.reshape(other.shape)


@pnnx_kernel("torch.flatten", "nn.Flatten")
def _flatten(node: PnnxNode) -> Kernel:
    start, end = node.integer("start_dim", 1 if node.type == "nn.Flatten" else 0), node.integer("end_dim", -1)

    def flatten(x: Array) -> Array:
        first, last = _axis(start, x.ndim), _axis(end, x.ndim)
        return x.reshape(*x.shape[:first], prod(x.shape[first : last + 1]), *x.shape[last + 1 :])

    return flatten


def _axis(axis: int, ndim: int) -> int:
    if not -max(ndim, 1) <= axis < max(ndim, 1):
        raise InvalidArgumentError(f"there is no dimension {axis} among {ndim}")
    return axis % max(ndim, 1)


@pnnx_kernel("torch.unflatten", "nn.Unflatten")
def _unflatten(node: PnnxNode) -> Kernel:
    axis = node.integer("dim")
    sizes = node.integers("sizes") if node.param("sizes") is not None else node.integers("unflattened_size")

    def unflatten(x: Array) -> Array:
        at = _axis(axis, x.ndim)
        return x.reshape(*x.shape[:at], *sizes, *x.shape[at + 1 :])

    return unflatten


@pnnx_kernel("Tensor.permute", "torch.permute")
def _permute(node: PnnxNode) -> Kernel:
    dims = node.integers("dims")
    return lambda x: np.transpose(x, dims)


@pnnx_kernel("torch.transpose", "Tensor.transpose")
def _transpose(node: PnnxNode) -> Kernel:
    first, second = node.integer("dim0"), node.integer("dim1")
    return lambda x: np.swapaxes(x, first, second)


@pnnx_kernel("torch.t")
def _t(node: PnnxNode) -> Kernel:
    return lambda x: np.transpose(x)


@pnnx_kernel("torch.squeeze")
def _squeeze(node: PnnxNode) -> Kernel:
    if node.param("dim") is None:
        return lambda x: np.squeeze(x)
    dims = node.integers("dim")

    def squeeze(x: Array) -> Array:
        return np.squeeze(x, tuple(axis for axis in dims if x.shape[_axis(axis, x.ndim)] == 1))

    return squeeze


@pnnx_kernel("torch.unsqueeze")
def _unsqueeze(node: PnnxNode) -> Kernel:
    axis = node.integer("dim")
    return lambda x: np.expand_dims(x, axis)


@pnnx_kernel("Tensor.expand", "torch.broadcast_to")
def _expand(node: PnnxNode) -> Kernel:
    sizes_of = _shape_source(node, "sizes" if node.param("sizes") is not None else "shape")

    def expand(*inputs: Any) -> Array:
        x, sizes = inputs[0], list(sizes_of(inputs))
        own = [1] * (len(sizes) - x.ndim) + list(x.shape)
        return np.broadcast_to(x, [old if size == -1 else size for size, old in zip(sizes, own, strict=True)])

    return expand


@pnnx_kernel("Tensor.expand_as")
def _expand_as(node: PnnxNode) -> Kernel:
    return lambda x, other: np.broadcast_to(x, other.shape)


@pnnx_kernel("Tensor.repeat", "torch.tile")
def _repeat(node: PnnxNode) -> Kernel:
    sizes_of = _shape_source(node, "sizes" if node.type == "Tensor.repeat" else "dims")

    def repeat(*inputs: Any) -> Array:
        x, sizes = inputs[0], sizes_of(inputs)
        own = (1,) * (len(sizes) - x.ndim) + x.shape
        times = (1,) * (x.ndim - len(sizes)) + tuple(sizes)
        if min(times, default=1) < 0:
            raise InvalidArgumentError(f"a tensor cannot be repeated {list(sizes)} times")
        check_array([size * count for size, count in zip(own, times, strict=True)], x.dtype)
        return np.tile(x, times)

    return repeat


@pnnx_kernel("torch.repeat_interleave")
def _repeat_interleave(node: PnnxNode) -> Kernel:
    count, axis = node.integer("repeats"), node.param("dim")

    def repeat(x: Array) -> Array:
        check_array((x.size, max(count, 0)), x.dtype)
        return np.repeat(x, count, axis)

    return repeat


@pnnx_kernel("Tensor.slice")
def _slice(node: PnnxNode) -> Kernel:
    """One slice, or several with ``dims``, where ``selects`` takes one index in place of a slice."""
    if node.param("dims") is None:
        dims: tuple[int, ...] = (node.integer("dim", 0),)
        starts: tuple[object, ...] = (node.param("start"),)
        ends: tuple[object, ...] = (node.param("end"),)
        steps: tuple[int, ...] = (node.integer("step", 1),)
        selects: tuple[int, ...] = (_TO_THE_END,)
    else:
        dims = node.integers("dims")
        starts, ends = node.integers("starts"), node.integers("ends")
        steps, selects = node.integers("steps"), node.integers("selects", (_TO_THE_END,) * len(dims))
    if len({len(dims), len(starts), len(ends), len(steps), len(selects)}) != 1:
        raise node.error("dims, starts, ends, steps and selects do not fit together")
    if any(step < 1 and select == _TO_THE_END for step, select in zip(steps, selects, strict=True)):
        raise node.error(f"steps of {list(steps)} are not all at least 1")
    bounds = node.in_order("input", "start", "end")
    parts = list(zip(dims, starts, ends, steps, selects, strict=True))

    def cut(*inputs: object) -> Array:
        x, start, end = bounds(inputs)
        key: list[Any] = [slice(None)] * x.ndim
        for axis, low, high, step, select in parts:
            low, high = _bound(low if start is None else start), _bound(high if end is None else end)
            key[_axis(axis, x.ndim)] = slice(low, high, step) if select == _TO_THE_END else select
        return np.asarray(x[tuple(key)])

    return cut


def _bound(value: Any) -> int | None:
    return None if value is None or int(value) >= _TO_THE_END else int(value)


@pnnx_kernel("Tensor.select", "torch.select")
def _select(node: PnnxNode) -> Kernel:
    axis, index = node.integer("dim"), node.param("index")
    order = node.in_order("input", "index")

    def select(*inputs: object) -> Any:
        x, given = order(inputs)
        return x[(slice(None),) * _axis(axis, x.ndim) + (int(index if given is None else given),)]

    return select


@pnnx_kernel("Tensor.index")
def _index(node: PnnxNode) -> Kernel:
    return lambda x, *indices: x[_flat(indices)]


def _flat(indices: Sequence[object]) -> tuple[object, ...]:
    values = indices[0] if len(indices) == 1 and isinstance(indices[0], (tuple, list)) else indices
    return tuple(slice(None) if value is None else value for value in values)


@pnnx_kernel("torch.index_select")
def _index_select(node: PnnxNode) -> Kernel:
    axis, order = node.integer("dim"), node.in_order("input", "index")

    def select(*inputs: object) -> Array:
        x, index = order(inputs)
        return np.take(x, index, axis=axis)

    return select


@pnnx_kernel("torch.gather")
def _gather(node: PnnxNode) -> Kernel:
    axis, order = node.integer("dim"), node.in_order("input", "index")

    def gather(*inputs: object) -> Array:
        x, index = order(inputs)
        part = x[tuple(slice(None) if at == _axis(axis, x.ndim) else slice(n) for at, n in enumerate(index.shape))]
        return np.take_along_axis(part, index, axis)

    return gather


@pnnx_kernel("torch.roll")
def _roll(node: PnnxNode) -> Kernel:
    shifts, dims = node.integers("shifts"), node.param("dims")
    axes = None if dims is None else node.integers("dims")
    return lambda x: np.roll(x, shifts, axes)


@pnnx_kernel("torch.flip")
def _flip(node: PnnxNode) -> Kernel:
    dims = node.integers("dims")
    return lambda x: np.flip(x, dims)


@pnnx_kernel("nn.ChannelShuffle")
def _channel_shuffle(node: PnnxNode) -> Kernel:
    groups = node.integer("groups")

    def shuffle(x: Array) -> Array:
        parts = x.reshape(x.shape[0], groups, -1, *x.shape[2:])
        return np.swapaxes(parts, 1, 2).reshape(x.shape)

    return shuffle


@pnnx_kernel("nn.PixelShuffle", "F.pixel_shuffle")
def _pixel_shuffle(node: PnnxNode) -> Kernel:
    r = node.integer("upscale_factor")

    def shuffle(x: Array) -> Array:
        *first, channels, height, width = x.shape
        parts = x.reshape(*first, channels // (r * r), r, r, height, width)
        n = len(first)
        parts = parts.transpose(*range(n), n, n + 3, n + 1, n + 4, n + 2)
        return parts.reshape(*first, channels // (r * r), height * r, width * r)

    return shuffle


@pnnx_kernel("nn.PixelUnshuffle", "F.pixel_unshuffle")
def _pixel_unshuffle(node: PnnxNode) -> Kernel:
    r = node.integer("downscale_factor")

    def shuffle(x: Array) -> Array:
        *first, channels, height, width = x.shape
        parts, n = x.reshape(*first, channels, height // r, r, width // r, r), len(first)
        parts = parts.transpose(*range(n), n, n + 2, n + 4, n + 1, n + 3)
        return parts.reshape(*first, channels * r * r, height // r, width // r)

    return shuffle


@pnnx_kernel(
    "F.pad",
    *(f"nn.{mode}Pad{dims}d" for mode in ("Constant", "Reflection", "Replication") for dims in (1, 2, 3)),
    "nn.ZeroPad2d",
)
def _pad(node: PnnxNode) -> Kernel:
    if node.type == "F.pad":
        values, mode = node.integers("pad"), node.param("mode", "constant")
    else:
        values = node.integers("padding")
        mode = next((mode for mode in ("reflect", "replicat") if mode in node.type.lower()), "constant")
        mode = "replicate" if mode == "replicat" else mode
    if len(values) == 1:
        values = values * 2 * int(node.type[-2])
    if len(values) % 2:
        raise node.error(f"borders come in pairs, not as {list(values)}")
    value = node.param("value", 0) or 0
    pads = list(zip(values[::2], values[1::2], strict=True))[::-1]
    return lambda x: padded(x, pads, mode, value)


def _cast(x: Array, dtype: np.dtype[Any]) -> Array:
    """*x* as *dtype*; of complex numbers the real part, where that has no other."""
    loses_part = np.iscomplexobj(x) and dtype.kind not in "cb"
    return np.asarray(x.real if loses_part else x).astype(dtype, copy=False)


@pnnx_kernel("Tensor.to", "Tensor.type_as", "Tensor.float", "Tensor.type")
def _to(node: PnnxNode) -> Kernel:
    if node.type == "Tensor.type_as":
        return lambda x, other: _cast(x, other.dtype)
    name = "float" if node.type == "Tensor.float" else str(node.param("dtype", "")).removeprefix("torch.")
    if not name or name == "None":
        return lambda x: x
    if name not in _DTYPES:
        raise node.error(f"parameter 'dtype' is {name!r}, not one of {', '.join(_DTYPES)}")
    dtype = np.dtype(_DTYPES[name].as_numpy_dtype)
    return lambda x: _cast(x, dtype)
