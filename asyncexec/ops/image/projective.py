"""ImageProjectiveTransformV2 and V3 (``tensorflow/core/kernels/image/image_ops.h``).

Each pixel of the result is read where its transform puts it; outside of the image that is told by ``fill_mode``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.process.free_memory import check_array

F32: Final = np.float32


def _reflected(where: Array, size: int) -> Array:
    double = F32(2 * size)
    low = np.where(where < double, double * np.trunc(-where / double) + where, where)
    low = np.where(low < -size, low + double, -low - 1)
    high = where - double * np.trunc(where / double)
    high = np.where(high >= size, double - high - 1, high)
    return np.where(where < 0, low, np.where(where > size - 1, high, where))


def _wrapped(where: Array, size: int) -> Array:
    span = F32(size - 1)
    low = where + size * (np.trunc(-where / span) + 1)
    high = where - size * np.trunc(where / span)
    return np.where(where < 0, low, np.where(where > size - 1, high, where))


def _placed(where: Array, size: int, mode: bytes) -> Array:
    """Where an axis of *size* pixels is read, by the mode."""
    if mode == b"CONSTANT":
        return where
    if size <= 1:
        return np.zeros_like(where)
    if mode == b"REFLECT":
        where = _reflected(where, size)
    elif mode == b"WRAP":
        where = _wrapped(where, size)
    return np.clip(where, F32(0), F32(size - 1)).astype(F32)


def _read(images: Array, y: Array, x: Array, fill: Any) -> Array:
    """The pixels [batch, row, column, channel] at whole places of each image, *fill* outside."""
    height, width = images.shape[1:3]
    inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
    rows, columns = (np.where(inside, axis, 0).astype(np.int64) for axis in (y, x))
    pixels = images[np.arange(len(images))[:, None, None], rows, columns]
    return np.where(inside[..., None], pixels, fill)


def _nearest(images: Array, y: Array, x: Array, fill: object) -> Array:
    rows, columns = (np.copysign(np.floor(np.abs(axis.astype(np.float64)) + 0.5), axis) for axis in (y, x))
    return _read(images, rows, columns, fill)


def _bilinear(images: Array, y: Array, x: Array, fill: object) -> Array:
    top, left = np.floor(y), np.floor(x)
    bottom, right = top + 1, left + 1

    def row(at: Array) -> Array:
        ends = (_read(images, at, side, fill).astype(F32, copy=False) for side in (left, right))
        return (right - x)[..., None] * next(ends) + (x - left)[..., None] * next(ends)

    sampled: Array = (bottom - y)[..., None] * row(top) + (y - top)[..., None] * row(bottom)
    return sampled


def _checked_sides(images: Array, transforms: Array, output_shape: Array) -> tuple[int, int]:
    if images.ndim != 4:
        raise InvalidArgumentError(f"input images must have rank 4, not shape {list(images.shape)}")
    if transforms.ndim != 2 or transforms.shape[1] != 8 or len(transforms) not in (1, len(images)):
        raise InvalidArgumentError(
            f"Input transform should be num_images x 8 or 1 x 8, not of shape {list(transforms.shape)}"
        )
    if np.shape(output_shape) != (2,):
        raise InvalidArgumentError(f"output shape must have two elements, not shape {list(np.shape(output_shape))}")
    height, width = map(int, output_shape)
    if height <= 0 or width <= 0:
        raise InvalidArgumentError(f"new dimensions must be positive, not {height} and {width}")
    return height, width


def _places(transforms: Array, height: int, width: int) -> tuple[Array, Array, Array]:
    """Where each pixel of the result is read [transform, row, column]: y, x, and whether it lies at infinity."""
    y, x = np.mgrid[:height, :width].astype(F32)
    t = transforms.astype(F32, copy=False)[:, :, None, None]
    projection = t[:, 6] * x + t[:, 7] * y + F32(1)
    return (
        (t[:, 3] * x + t[:, 4] * y + t[:, 5]) / projection,
        (t[:, 0] * x + t[:, 1] * y + t[:, 2]) / projection,
        projection == 0,
    )


@register_kernel("ImageProjectiveTransformV2", "ImageProjectiveTransformV3", kind=KernelKind.EXPENSIVE)
def make_projective_transform(op: OpKernelConstruction) -> Kernel:
    """The kernel of ImageProjectiveTransformV2 and V3."""
    dtype, mode, way = op.np_dtype("dtype"), op.attr("fill_mode"), op.attr("interpolation")
    if mode not in (b"CONSTANT", b"REFLECT", b"WRAP", b"NEAREST"):
        raise InvalidArgumentError(f"Invalid mode {mode!r}. Supported: CONSTANT, REFLECT, WRAP, NEAREST")
    if way not in (b"NEAREST", b"BILINEAR"):
        raise InvalidArgumentError(f"Invalid interpolation {way!r}. Supported types: NEAREST, BILINEAR")
    sample = _nearest if way == b"NEAREST" else _bilinear

    def kernel(images: Array, transforms: Array, output_shape: Array, fill_value: Any = 0.0) -> Array:
        height, width = _checked_sides(images, transforms, output_shape)
        if np.ndim(fill_value):
            raise InvalidArgumentError(f"fill_value must be a scalar, not of shape {list(fill_value.shape)}")
        check_array((len(images), height, width, images.shape[3]), dtype)
        fill = np.asarray(fill_value).astype(dtype)
        if not images.shape[1] or not images.shape[2]:
            return np.full((len(images), height, width, images.shape[3]), fill, dtype)
        y, x, is_lost = _places(transforms, height, width)
        y, x = _placed(y, images.shape[1], mode), _placed(x, images.shape[2], mode)
        return np.where(is_lost[..., None], fill, sample(images, y, x, fill).astype(dtype))

    return kernel


def transform_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """The batch and the channels of the images, the sides that the third input spells."""
    images = c.with_rank(0, 4)
    if c.num_inputs > 3:
        c.scalar(3)
    TensorShape([c.vector(2)[0]]).merge_with([2])
    sides = c.value(2)
    height, width = (None, None) if sides is None else map(int, sides)
    return [TensorShape([images[0], height, width, images[3]])]


_TYPES: Final = (
    "dtype: {uint8, int32, int64, bfloat16, float16, float32, float64}; interpolation: string; "
    "fill_mode: string = 'CONSTANT'"
)
_INPUTS: Final = "images: dtype, transforms: float32, output_shape: int32"
register_op("ImageProjectiveTransformV2", f"{_INPUTS} -> transformed_images: dtype", _TYPES, shape=transform_shape)
register_op(
    "ImageProjectiveTransformV3",
    f"{_INPUTS}, fill_value: float32 -> transformed_images: dtype",
    _TYPES,
    shape=transform_shape,
)
