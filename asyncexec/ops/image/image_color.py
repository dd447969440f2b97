"""Colours of images whose last axis is red, green, blue (``tensorflow/core/kernels/image/colorspace_op.h``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import float32
from asyncexec.ops.array.windows import widened


def rgb_to_hsv(rgb: Array) -> Array:
    """Hue, saturation and value, each from 0 to 1."""
    red, green, blue = rgb[..., 0], rgb[..., 1], rgb[..., 2]
    kind = rgb.dtype.type
    value = rgb.max(-1)
    spread = value - rgb.min(-1)
    saturation = np.where(value > 0, spread / value, kind(0))
    norm = kind(1) / (kind(6) * spread)
    hue = np.where(
        red == value,
        norm * (green - blue),
        np.where(green == value, norm * (blue - red) + kind(2 / 6), norm * (red - green) + kind(4 / 6)),
    )
    hue = np.where(spread > 0, hue, kind(0))
    hue = np.where(hue < 0, hue + kind(1), hue)
    return np.stack([hue, saturation, value], -1)


def hue_parts(hue: Array) -> Array:
    """How much of red, green and blue is in a hue, each from 0 to 1."""
    return sixth_parts(hue * hue.dtype.type(6))


def sixth_parts(six: Array) -> Array:
    """How much of red, green and blue is in a hue from 0 to 6."""
    parts = [abs(six - 3) - 1, 2 - abs(six - 2), 2 - abs(six - 4)]
    clipped: Array = np.clip(np.stack(parts, -1), 0, 1)
    return clipped


def hsv_to_rgb(hsv: Array) -> Array:
    """Red, green and blue of hue, saturation and value."""
    saturation, value = hsv[..., 1:2], hsv[..., 2:3]
    rgb: Array = (1 - saturation + saturation * hue_parts(hsv[..., 0])) * value
    return rgb


def adjust_hue(rgb: Array, delta: object) -> Array:
    """*rgb* with its hue turned by *delta* (1 is once around)."""
    red, green, blue = rgb[..., 0], rgb[..., 1], rgb[..., 2]
    low, middle, high = np.split(np.sort(rgb, -1), 3, -1)
    part = np.where(high > low, (middle - low) / (high - low), rgb.dtype.type(0))[..., 0]
    upper = np.where(blue < red, 1, np.where(blue > green, 3, 2))
    sector = np.where(red < green, upper, np.where(blue < green, 0, np.where(blue > red, 4, 5)))
    hue = np.where(sector % 2, 1 - part, part) + sector.astype(rgb.dtype)
    hue = np.where(high[..., 0] > low[..., 0], hue, rgb.dtype.type(0))
    parts = sixth_parts(np.mod(hue + delta * rgb.dtype.type(6), rgb.dtype.type(6)))
    turned: Array = np.where(parts == 1, high, low + parts * (high - low))
    return turned


def adjust_saturation(rgb: Array, scale: Any) -> Array:
    """*rgb* with its saturation multiplied by *scale*."""
    hsv = rgb_to_hsv(rgb)
    hsv[..., 1] = np.clip(hsv[..., 1] * scale, 0, 1)
    return hsv_to_rgb(hsv)


def adjust_contrast(images: Array, factor: Any) -> Array:
    """*images* with each channel's distance from its mean over the image multiplied by *factor*."""
    mean = images.mean((-3, -2), keepdims=True)
    adjusted: Array = (images - mean) * factor + mean
    return adjusted


def color_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """The shape of the input, whose last axis has three channels."""
    shape = c.input(0).with_rank_at_least(1)
    if shape.dims is None:
        return [shape]
    return [TensorShape([*shape.as_list()[:-1], TensorShape([shape[-1]]).merge_with([3])[0]])]


def adjust_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """The shape of the input, an image or more."""
    return [c.input(0).with_rank_at_least(3)]


@register_kernel("RGBToHSV", "HSVToRGB")
def make_color(op: OpKernelConstruction) -> Kernel:
    """The kernel of RGBToHSV and HSVToRGB."""
    function = rgb_to_hsv if op.op == "RGBToHSV" else hsv_to_rgb
    dtype = op.np_dtype("T")

    def kernel(images: Array) -> Array:
        if images.ndim < 1 or images.shape[-1] != 3:
            raise InvalidArgumentError(f"input must have 3 channels, not be of shape {list(images.shape)}")
        return function(widened(images)).astype(dtype, copy=False)

    return kernel


def _adjustment(function: Callable[[Array, Any], Array], op: OpKernelConstruction, *, is_rgb: bool) -> Kernel:
    dtype = op.np_dtype("T")

    def kernel(images: Array, amount: ArrayOrScalar) -> Array:
        if images.ndim < 3:
            raise InvalidArgumentError(f"input must be at least 3-D, not of shape {list(images.shape)}")
        if np.ndim(amount):
            raise InvalidArgumentError(f"the amount must be a scalar, not of shape {list(np.shape(amount))}")
        if is_rgb and images.shape[-1] != 3:
            raise InvalidArgumentError(f"input must have 3 channels but instead has {images.shape[-1]}")
        if not images.size:
            return images
        return function(widened(images), amount).astype(dtype, copy=False)

    return kernel


@register_kernel("AdjustHue", dtypes={"T": [float32]})
def make_adjust_hue(op: OpKernelConstruction) -> Kernel:
    """The kernel of AdjustHue."""
    return _adjustment(adjust_hue, op, is_rgb=True)


@register_kernel("AdjustSaturation", dtypes={"T": [float32]})
def make_adjust_saturation(op: OpKernelConstruction) -> Kernel:
    """The kernel of AdjustSaturation."""
    return _adjustment(adjust_saturation, op, is_rgb=True)


@register_kernel("AdjustContrastv2", dtypes={"T": [float32]})
def make_adjust_contrast(op: OpKernelConstruction) -> Kernel:
    """The kernel of AdjustContrastv2."""
    return _adjustment(adjust_contrast, op, is_rgb=False)


@register_kernel("AdjustContrast")
def make_adjust_contrast_within(_: OpKernelConstruction) -> Kernel:
    """The kernel of AdjustContrast, which keeps to a range."""

    def kernel(images: Array, factor: Any, low: Any, high: Any) -> Array:
        if images.ndim < 3:
            raise InvalidArgumentError(f"input must be at least 3-D, not of shape {list(images.shape)}")
        if np.ndim(factor) or np.ndim(low) or np.ndim(high):
            raise InvalidArgumentError("contrast_factor, min_value and max_value must be scalars")
        wide = images.astype(np.float32)
        return np.minimum(np.maximum(adjust_contrast(wide, factor), low), high) if wide.size else wide

    return kernel


def adjust_within_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """That of the images."""
    c.scalar(2)
    c.scalar(3)
    return adjust_shape(c)


register_op(
    "AdjustContrast",
    "images: T, contrast_factor: float32, min_value: float32, max_value: float32 -> output: float32",
    "T: {uint8, int8, int16, int32, int64, float32, float64}",
    shape=adjust_within_shape,
)
_ADJUST_TYPES = "T: {float16, float32} = float32"
for _name in ("RGBToHSV", "HSVToRGB"):
    register_op(
        _name, "images: T -> output: T", "T: {float16, bfloat16, float32, float64} = float32", shape=color_shape
    )
for _name, _amount in (("AdjustHue", "delta"), ("AdjustSaturation", "scale"), ("AdjustContrastv2", "contrast_factor")):
    register_op(_name, f"images: T, {_amount}: float32 -> output: T", _ADJUST_TYPES, shape=adjust_shape)
