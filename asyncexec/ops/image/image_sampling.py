"""Where a resized image samples its source, an axis at a time, as float32.

Every way of resizing but the nearest is linear in the pixels and separable: a matrix [out, in] of weights for rows and
one for columns.  The kernels of ScaleAndTranslate are those of ``sampling_kernels.h``, the rest follows
``tensorflow/core/util/image_resizer_state.h``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.process.free_memory import check_array

F32: Final = np.float32
_TABLE_SIZE: Final = 1024


def truncated(values: Array) -> Array:
    """*values* cut off to int64; the lowest integer for what has none, as processors of the x86 family do."""
    limit = 2.0**63
    cut: Array = np.where(np.abs(values) < limit, values.astype(np.float64), -limit).astype(np.int64)
    return cut


def resize_scale(size: int, out: int, align_corners: bool) -> np.float32:
    """Source pixels a pixel of the result."""
    if align_corners and out > 1:
        return F32(F32(size - 1) / F32(out - 1))
    return F32(F32(size) / F32(out))


def positions(out: int, scale: np.float32, half_pixel: bool) -> Array:
    """The place in the source of each pixel of the result."""
    index = np.arange(out, dtype=F32)
    return (index + F32(0.5)) * scale - F32(0.5) if half_pixel else index * scale


def nearest_indices(size: int, out: int, align_corners: bool, half_pixel: bool) -> Array:
    """The source pixel that each pixel of the result is a copy of."""
    scale = resize_scale(size, out, align_corners)
    index = np.arange(out, dtype=F32)
    where = (index + F32(0.5)) * scale if half_pixel else index * scale
    # Rounded half away from zero; in float64 the sum is exact.
    nearest = np.floor(where.astype(np.float64) + 0.5) if align_corners else np.floor(where)
    return np.clip(nearest.astype(np.int64), 0, size - 1)


def linear_samples(size: int, out: int, align_corners: bool, half_pixel: bool) -> tuple[Array, Array, Array]:
    """The two source pixels around each sample, and how far it is from the first to the second."""
    where = positions(out, resize_scale(size, out, align_corners), half_pixel)
    floor = np.floor(where)
    lower = np.maximum(floor.astype(np.int64), 0)
    upper = np.minimum(np.ceil(where).astype(np.int64), size - 1)
    return lower, upper, where - floor


def weight_matrix(out: int, size: int, *samples: tuple[Array, Array]) -> Array:
    """The matrix [out, in] with each sample's (source pixel, weight) added up."""
    check_array((out, size), np.dtype(F32))
    matrix = np.zeros((out, size), F32)
    rows = np.arange(out)
    for index, weight in samples:
        np.add.at(matrix, (rows, index), weight)
    return matrix


def linear_matrix(size: int, out: int, align_corners: bool, half_pixel: bool) -> Array:
    """Bilinear weights."""
    lower, upper, lerp = linear_samples(size, out, align_corners, half_pixel)
    return weight_matrix(out, size, (lower, 1 - lerp), (upper, lerp))


def _cubic(offset: Array, a: float) -> tuple[Array, Array]:
    """The weights at that many 1024ths of a pixel from the sample, and one pixel further."""
    x = offset / _TABLE_SIZE
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    x = x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return near.astype(F32), far.astype(F32)


def cubic_samples(size: int, out: int, align_corners: bool, half_pixel: bool) -> list[tuple[Array, Array]]:
    """The four source pixels of each sample and their weights.

    With half-pixel centers what lies outside counts for nothing; else the edge is repeated.
    """
    where = positions(out, resize_scale(size, out, align_corners), half_pixel)
    floor = np.floor(where)
    offset = np.rint((where - floor) * F32(_TABLE_SIZE)).astype(np.int64)
    a = -0.5 if half_pixel else -0.75
    near, far = _cubic(offset, a)
    near_after, far_after = _cubic(_TABLE_SIZE - offset, a)
    first = floor.astype(np.int64) - 1
    weights = [far, near, near_after, far_after]
    indices = [np.clip(first + k, 0, size - 1) for k in range(4)]
    if half_pixel:
        weights = [
            np.where(index == first + k, weight, F32(0))
            for k, (index, weight) in enumerate(zip(indices, weights, strict=True))
        ]
        total = weights[0] + weights[1] + weights[2] + weights[3]
        factor = np.where(np.abs(total) >= 1000 * np.finfo(F32).tiny, F32(1) / total, F32(1))
        weights = [weight * factor for weight in weights]
    return list(zip(indices, weights, strict=True))


def cubic_matrix(size: int, out: int, align_corners: bool, half_pixel: bool) -> Array:
    """Bicubic weights."""
    return weight_matrix(out, size, *cubic_samples(size, out, align_corners, half_pixel))


def area_matrix(size: int, out: int, align_corners: bool) -> Array:
    """How much of each source pixel lies in each pixel of the result, divided by its length."""
    check_array((out, size), np.dtype(F32))
    scale = resize_scale(size, out, align_corners)
    start = np.arange(out, dtype=F32) * scale
    stop = np.arange(1, out + 1, dtype=F32) * scale
    first, last = np.floor(start).astype(np.int64), np.ceil(stop).astype(np.int64)
    matrix = np.zeros((out, size), F32)
    for k in range(int(np.max(last - first, initial=0))):
        cell = first + k
        inside = np.where(cell + 1 > stop, stop - cell, F32(1))
        entering = np.where(cell + 1 > stop, scale, cell + 1 - start)
        weight = np.where(cell < start, entering, inside) * (cell < last)
        np.add.at(matrix, (np.arange(out), np.clip(cell, 0, size - 1)), weight.astype(F32))
    return matrix / scale


def apply_matrices(images: Array, rows: Array, columns: Array) -> Array:
    """*images* [batch, height, width, channels] with both axes resampled, as float32."""
    batch, height, width, channels = images.shape
    check_array((batch, len(rows), max(width, len(columns)), channels), np.dtype(F32))
    flat = images.astype(F32, copy=False).reshape(batch, height, width * channels)
    tall = _resampled(rows, flat).reshape(batch * len(rows), width, channels)
    return _resampled(columns, tall).reshape(batch, len(rows), len(columns), channels)


def _resampled(matrix: Array, values: Array) -> Array:
    """The product of *matrix* and each of *values*: what is not finite counts only where its weight is not zero."""
    product: Array = np.matmul(matrix, values)
    if not np.isfinite(product).all():
        for row, weights in enumerate(matrix):
            used = np.flatnonzero(weights)
            product[:, row] = np.matmul(weights[used], values[:, used])
    return product


def _lanczos(radius: int) -> Callable[[Array], Array]:
    def kernel(x: Array) -> Array:
        turned = F32(math.pi) * x
        value = F32(radius) * np.sin(turned) * np.sin(turned / F32(radius)) / (turned * turned)
        return np.where(x > radius, F32(0), np.where(x <= 1e-3, F32(1), value))

    return kernel


def _gaussian(x: Array) -> Array:
    return np.where(x >= 1.5, F32(0), np.exp(-x * x / F32(2 * 0.5 * 0.5)))


def _box(x: Array) -> Array:
    return np.where(x < 0.5, F32(1), np.where(x == 0.5, F32(0.5), F32(0)))


def _triangle(x: Array) -> Array:
    return np.maximum(F32(1) - x, F32(0))


def _keys_cubic(x: Array) -> Array:
    outer = ((F32(-0.5) * x + F32(2.5)) * x - F32(4)) * x + F32(2)
    inner = ((F32(1.5) * x - F32(2.5)) * x) * x + F32(1)
    return np.where(x >= 2, F32(0), np.where(x >= 1, outer, inner))


def _mitchell_cubic(x: Array) -> Array:
    outer = ((F32(-7 / 18) * x + F32(2)) * x - F32(10 / 3)) * x + F32(16 / 9)
    inner = ((F32(7 / 6) * x - F32(2)) * x) * x + F32(8 / 9)
    return np.where(x >= 2, F32(0), np.where(x >= 1, outer, inner))


KERNELS: Final[dict[bytes, tuple[float, Callable[[Array], Array]]]] = {
    b"lanczos1": (1.0, _lanczos(1)),
    b"lanczos3": (3.0, _lanczos(3)),
    b"lanczos5": (5.0, _lanczos(5)),
    b"gaussian": (1.5, _gaussian),
    b"box": (1.0, _box),
    b"triangle": (1.0, _triangle),
    b"keyscubic": (2.0, _keys_cubic),
    b"mitchellcubic": (2.0, _mitchell_cubic),
}


def translated_matrix(size: int, out: int, scale: float, translation: float, kernel: bytes, antialias: bool) -> Array:
    """The weights of ScaleAndTranslate: zero where the result lies outside of the source."""
    check_array((out, size), np.dtype(F32))
    reach, function = KERNELS[kernel]
    inverse = F32(1) / F32(scale)
    spread = max(inverse, F32(1)) if antialias else F32(1)
    sample = (np.arange(out, dtype=F32) + F32(0.5)) * inverse - inverse * F32(translation)
    radius = F32(reach) * spread
    low = np.clip(np.ceil(sample - radius - F32(0.5)), 0, size - 1)
    high = np.clip(np.floor(sample + radius - F32(0.5)), 0, size - 1)
    pixel = np.arange(size, dtype=F32)
    weights: Array = function(np.abs((pixel + F32(0.5) - sample[:, None]) * (F32(1) / spread))).astype(F32)
    weights *= (pixel >= low[:, None]) & (pixel <= high[:, None])
    total = weights.sum(1, keepdims=True)
    np.divide(weights, total, out=weights, where=np.abs(total) >= 1000 * np.finfo(F32).tiny)
    inside: Array = ((sample >= 0) & (sample <= size))[:, None]
    return np.multiply(weights, inside)
