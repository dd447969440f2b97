"""Upsampling and interpolation, one dimension after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError, UnimplementedError
from asyncexec.framework.kernel import Kernel
from asyncexec.ops.pnnx.pnnx_kernels import PnnxNode, pnnx_kernel
from asyncexec.process.free_memory import check_array

_CUBIC: Final = -0.75
_LINEAR: Final = ("linear", "bilinear", "trilinear")


def _positions(size: int, out: int, scale: float | None, aligned: bool) -> Array:
    """Where in the input the cells of the output are."""
    cells = np.arange(out, dtype=np.float64)
    if aligned:
        return cells * ((size - 1) / (out - 1) if out > 1 else 0.0)
    return (cells + 0.5) * (size / out if scale is None else 1 / scale) - 0.5


def _weighted(x: Array, axis: int, terms: Sequence[tuple[Array, Array]]) -> Array:
    """The sum of cells of *x* along *axis*, each by its weights."""
    shape = [1] * x.ndim
    shape[axis] = -1
    total: Array | None = None
    for index, weight in terms:
        part = np.take(x, index, axis=axis) * weight.astype(x.dtype).reshape(shape)
        total = part if total is None else np.add(total, part, out=total)
    assert total is not None
    return total


def _linear(x: Array, axis: int, out: int, scale: float | None, aligned: bool) -> Array:
    size = x.shape[axis]
    at = np.maximum(_positions(size, out, scale, aligned), 0.0)
    low = np.minimum(np.floor(at).astype(np.intp), size - 1)
    part = at - low
    return _weighted(x, axis, [(low, 1 - part), (np.minimum(low + 1, size - 1), part)])


def _cubic(x: Array, axis: int, out: int, scale: float | None, aligned: bool) -> Array:
    size, a = x.shape[axis], _CUBIC
    at = _positions(size, out, scale, aligned)
    low = np.floor(at).astype(np.intp)
    terms = []
    for offset in (-1, 0, 1, 2):
        d = np.abs(at - (low + offset))
        near, far = ((a + 2) * d - (a + 3)) * d * d + 1, ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        terms.append((np.clip(low + offset, 0, size - 1), np.where(d <= 1, near, far)))
    return _weighted(x, axis, terms)


def _nearest(x: Array, axis: int, out: int, scale: float | None, exact: bool) -> Array:
    size = x.shape[axis]
    step = np.float32(size / out if scale is None else 1 / scale)
    index = np.floor((np.arange(out, dtype=np.float32) + np.float32(0.5 if exact else 0.0)) * step).astype(np.intp)
    return np.take(x, np.minimum(index, size - 1), axis=axis)


def resize(x: Array, sizes: Sequence[int], scales: Sequence[float | None], mode: str, aligned: bool) -> Array:
    """*x* whose last dimensions have *sizes*; *scales* tell the positions where they are known."""
    check_array((*x.shape[: x.ndim - len(sizes)], *sizes), x.dtype)
    if min(*sizes, *x.shape) < 1:
        raise InvalidArgumentError(f"an array of shape {list(x.shape)} cannot be resized to {list(sizes)}")
    for axis, out, scale in zip(range(x.ndim - len(sizes), x.ndim), sizes, scales, strict=True):
        if out == x.shape[axis] and scale in (None, 1.0):
            continue
        if mode in _LINEAR:
            x = _linear(x, axis, out, scale, aligned)
        elif mode == "bicubic":
            x = _cubic(x, axis, out, scale, aligned)
        else:
            x = _nearest(x, axis, out, scale, mode == "nearest-exact")
    return x


@pnnx_kernel(
    "nn.Upsample",
    "nn.UpsamplingBilinear2d",
    "nn.UpsamplingNearest2d",
    "F.upsample",
    "F.upsample_bilinear",
    "F.upsample_nearest",
    "F.interpolate",
)
def _upsample(node: PnnxNode) -> Kernel:
    is_bilinear = node.type.lower().endswith(("bilinear2d", "bilinear"))
    mode = node.param("mode", "bilinear" if is_bilinear else "nearest")
    if mode not in (*_LINEAR, "bicubic", "nearest", "nearest-exact"):
        raise UnimplementedError(f"{node.type}: mode {mode!r}", node=node.construction.name)
    if node.param("antialias"):
        raise UnimplementedError(f"{node.type}: antialias", node=node.construction.name)
    aligned = bool(node.param("align_corners", is_bilinear))
    ignores_scale = bool(node.param("recompute_scale_factor"))
    order = node.in_order("input", "size", "scale_factor")
    size, scale_factor = node.param("size"), node.param("scale_factor")
    if size is None and scale_factor is None and node.num_inputs == 1:
        raise node.error("there is neither 'size' nor 'scale_factor'")

    def upsample(*inputs: object) -> Array:
        x, *given = order(inputs)
        wanted = size if given[0] is None else given[0]
        factors = _per_dimension(scale_factor if given[1] is None else given[1], x.ndim - 2)
        if wanted is not None:
            sizes = [int(each) for each in _per_dimension(wanted, x.ndim - 2)]
            return resize(x, sizes, [None] * len(sizes), mode, aligned)
        sizes = [int(np.floor(length * factor)) for length, factor in zip(x.shape[2:], factors, strict=True)]
        return resize(x, sizes, [None] * len(sizes) if ignores_scale else factors, mode, aligned)

    return upsample


def _per_dimension(value: Any, count: int) -> list[float]:
    if value is None:
        return []
    values = np.ravel(value).tolist() if np.ndim(value) else [value] * count
    if count < 1 or len(values) != count or not all(np.isfinite(each) and each > 0 for each in values):
        raise InvalidArgumentError(f"{value!r} does not tell the sizes of {count} dimensions")
    return values
