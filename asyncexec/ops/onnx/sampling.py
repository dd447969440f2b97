"""GridSample and AffineGrid: images sampled at places that another input tells."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.kernel import Kernel, KernelKind
from asyncexec.ops.onnx.arrays import empty, need, need_shape, wide
from asyncexec.ops.onnx.interpolation import Border, cubic_taps, linear_taps, sample, zeros_outside
from asyncexec.ops.onnx.onnx_kernels import OnnxNode, onnx_kernel
from asyncexec.process.free_memory import check_array

_FAR: Final = 2.0**40  # cells; whatever is farther away is as far


def _nearest_tap(place: Array) -> list[tuple[Array, Array]]:
    return [(place.astype(np.int64), np.ones_like(place))]


_TAPS: Final[dict[str, Callable[[Array], list[tuple[Array, Array]]]]] = {
    "nearest": _nearest_tap,
    "linear": linear_taps,
    "bilinear": linear_taps,
    "cubic": cubic_taps,
    "bicubic": cubic_taps,
}


def _clamped(cells: Array, size: int) -> tuple[Array, Array | None]:
    return np.clip(cells, 0, size - 1), None


def _reflected(place: Array, low: float, high: float) -> Array:
    """*place*, reflected at *low* and *high* until it is between them."""
    span = high - low
    if span <= 0:
        return np.full_like(place, low)
    distance = np.abs(place - low) % (2 * span)
    return np.asarray(low + np.where(distance > span, 2 * span - distance, distance)).astype(place.dtype)


@onnx_kernel("GridSample", since=16, kind=KernelKind.EXPENSIVE)
def make_grid_sample(node: OnnxNode) -> Kernel:
    """The kernel of GridSample."""
    mode = node.text("mode", "bilinear" if node.opset < 20 else "linear")
    padding, aligned = node.text("padding_mode", "zeros"), bool(node.attr("align_corners", 0))
    need(mode in _TAPS, f"mode must be one of {', '.join(_TAPS)}, not {mode!r}")
    need(padding in ("zeros", "border", "reflection"), f"padding_mode {padding!r} is unknown")

    def ends(size: int) -> tuple[float, float]:
        return (0.0, size - 1.0) if aligned else (-0.5, size - 0.5)

    def reflect(cells: Array, size: int) -> tuple[Array, Array | None]:
        found = _reflected(cells.astype(np.float64), *ends(size)).astype(np.int64)
        return np.clip(found, 0, size - 1), None

    borders: dict[str, Border] = {"zeros": zeros_outside, "border": _clamped, "reflection": reflect}

    def places(grid: Array, axis: int, size: int) -> Array:
        given = np.where(np.isnan(grid[..., axis]), -1, grid[..., axis]).astype(grid.dtype)
        place = (given + 1) / 2 * (size - 1) if aligned else ((given + 1) * size - 1) / 2
        place = np.clip(np.rint(place) if mode == "nearest" else place, -_FAR, _FAR)
        if padding == "zeros" or "cubic" in mode:
            return place  # of a cubic, each cell is brought inside by itself
        low, high = ends(size)
        within = np.clip(place, 0, size - 1) if padding == "border" else _reflected(place, low, high)
        return np.where((place < low) | (place > high), within, place)

    def kernel(x: Array, grid: Array) -> tuple[Array]:
        rank = x.ndim - 2
        need(
            rank > 0 and grid.ndim == x.ndim,
            f"X {list(x.shape)} and grid {list(grid.shape)} must have one rank above 2",
        )
        need_shape(grid, (len(x), *grid.shape[1:-1], rank), "grid")
        need(x.size > 0 or not grid.size, "an empty image has nothing to sample")
        image, where = wide(x), wide(grid)
        out = empty((*x.shape[:2], *grid.shape[1:-1]), image.dtype)
        for n in range(len(x)):
            # The last axis of the image is the first number of a place.
            found = [places(where[n], rank - 1 - i, size) for i, size in enumerate(x.shape[2:])]
            out[n] = sample(image[n], found, _TAPS[mode], borders[padding])
        return (out.astype(x.dtype, copy=False),)

    return kernel


@onnx_kernel("AffineGrid", since=20)
def make_affine_grid(node: OnnxNode) -> Kernel:
    """The kernel of AffineGrid: the places that an affine map gives to the cells of an image."""
    aligned = bool(node.attr("align_corners", 0))

    def kernel(theta: Array, size: ArrayOrScalar) -> tuple[Array]:
        sizes = [int(n) for n in np.reshape(size, -1)]
        need(len(sizes) in (4, 5) and min(sizes) >= 0, f"size must be 4 or 5 numbers, not {sizes}")
        rank = len(sizes) - 2
        need_shape(theta, (sizes[0], rank, rank + 1), "theta")
        maps = wide(theta)
        check_array((max(1, sizes[0]), *sizes[2:], rank + 1), maps.dtype)
        grid = np.ones((*sizes[2:], rank + 1), maps.dtype)
        for i, count in enumerate(sizes[2:]):
            if aligned:
                places = np.linspace(-1, 1, count) if count > 1 else np.zeros(count)
            else:
                places = (np.arange(count) * 2 + 1) / max(count, 1) - 1
            grid[..., rank - 1 - i] = places.reshape(-1, *(1,) * (rank - i - 1))
        out = grid.reshape(1, math.prod(sizes[2:]), rank + 1) @ maps.swapaxes(1, 2)
        return (out.reshape(sizes[0], *sizes[2:], rank).astype(theta.dtype, copy=False),)

    return kernel
