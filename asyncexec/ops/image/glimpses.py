"""ExtractGlimpse and V2: a window of each image, noise where it lies outside (``eigen_attention.h``)."""

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
from asyncexec.ops.image.image_sampling import truncated
from asyncexec.process.free_memory import check_array

F32: Final = np.float32
_NOISES: Final = (b"uniform", b"gaussian", b"zero")


def _noise_of(op: OpKernelConstruction) -> bytes:
    noise: bytes = op.attr("noise")
    if op.attr("uniform_noise") and noise not in (b"", b"uniform"):
        raise InvalidArgumentError("The uniform_noise and noise could not be specified at the same time")
    if not noise:
        return b"uniform" if op.attr("uniform_noise") else b"gaussian"
    if noise not in _NOISES:
        raise InvalidArgumentError(f"The noise could only be uniform, gaussian, or zero, got {noise!r}")
    return noise


def _filled(image: Array, height: int, width: int, noise: bytes) -> Array:
    """A window of noise with the range, or by channel with the mean and deviation, of *image*."""
    shape = (height, width, image.shape[2])
    if noise == b"zero" or not image.size:
        return np.zeros(shape, F32)
    rng = np.random.default_rng()
    if noise == b"uniform":
        low, high = image.min(), image.max()
        spread: Array = low + rng.random(shape, F32) * (high - low)
        return spread
    mean, deviation = image.mean((0, 1)), image.std((0, 1))
    normal: Array = mean + rng.standard_normal(shape, F32) * deviation
    return np.clip(normal, image.min((0, 1)), image.max((0, 1)))


def _corners(offsets: Array, image: tuple[int, int], window: tuple[int, int], op: OpKernelConstruction) -> Array:
    """The first row and column of each window, as whole pixels."""
    sides, glimpse = np.array(image, F32), np.array(window, F32)
    normalized, centered, is_second = op.attr("normalized"), op.attr("centered"), op.op == "ExtractGlimpseV2"
    where = offsets * sides if normalized else offsets
    if centered:
        where = (where if is_second and not normalized else where / F32(2)) + sides / F32(2)
    if not is_second or (normalized and centered):
        where = where - glimpse / F32(2)
    return truncated(where)


@register_kernel("ExtractGlimpse", "ExtractGlimpseV2", kind=KernelKind.EXPENSIVE)
def make_glimpse(op: OpKernelConstruction) -> Kernel:
    """The kernel of ExtractGlimpse and V2."""
    noise = _noise_of(op)

    def kernel(images: Array, size: object, offsets: Array) -> Array:
        height, width = _checked(images, size, offsets)
        glimpses = np.empty((len(images), height, width, images.shape[3]), F32)
        if not glimpses.size:
            return glimpses
        rows, columns = images.shape[1:3]
        corners = _corners(offsets, (rows, columns), (height, width), op)
        for image, (y, x), glimpse in zip(images, corners.tolist(), glimpses, strict=True):
            top, left = max(y, 0), max(x, 0)
            bottom, right = min(y + height, rows), min(x + width, columns)
            if (bottom - top, right - left) != (height, width):
                glimpse[:] = _filled(image, height, width, noise)
            if bottom > top and right > left:
                glimpse[top - y : bottom - y, left - x : right - x] = image[top:bottom, left:right]
        return glimpses

    return kernel


def _checked(images: Array, size: Any, offsets: Array) -> tuple[int, int]:
    if images.ndim != 4:
        raise InvalidArgumentError(f"input must be 4-dimensional, not of shape {list(images.shape)}")
    if np.shape(size) != (2,) or (size < 0).any():
        raise InvalidArgumentError(f"size must be a height and a width, not {np.asarray(size).tolist()}")
    if offsets.shape != (len(images), 2):
        raise InvalidArgumentError(f"offsets must be [{len(images)}, 2], not {list(offsets.shape)}")
    height, width = map(int, size)
    check_array((len(images), height, width, images.shape[3]), np.dtype(F32))
    return height, width


def glimpse_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """The batch and the channels of the images, the sides that the second input spells."""
    images, offsets = c.with_rank(0, 4), c.with_rank(2, 2)
    batch = TensorShape([images[0]]).merge_with([offsets[0]])[0]
    TensorShape([offsets[1]]).merge_with([2])
    TensorShape([c.vector(1)[0]]).merge_with([2])
    sides = c.value(1)
    height, width = (None, None) if sides is None else map(int, sides)
    return [TensorShape([batch, height, width, images[3]])]


for _name in ("ExtractGlimpse", "ExtractGlimpseV2"):
    register_op(
        _name,
        "input: float32, size: int32, offsets: float32 -> glimpse: float32",
        "centered: bool = True; normalized: bool = True; uniform_noise: bool = True; noise: string = 'uniform'",
        shape=glimpse_shape,
    )
