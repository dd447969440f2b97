"""QuantizedResizeBilinear: in integers, with 7 or 30 bits after the point (``quantized_resize_bilinear_op.cc``)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import SCALAR, TensorShape
from asyncexec.ops.image.image_resize import checked_sides, resize_shape, resized_linearly
from asyncexec.ops.image.image_sampling import linear_samples

_BITS = {"u": 7, "i": 30}


def _cut(values: Array, divisor: int) -> Array:
    """The quotient without what is left, as C divides."""
    quotient: Array = np.sign(values) * (np.abs(values) // divisor)
    return quotient


def _resized(images: Array, size: object, align: bool, half: bool) -> Array:
    one = 1 << _BITS[images.dtype.kind]
    height, width = checked_sides(images, size)
    if (height, width) == images.shape[1:3]:
        return images
    top, bottom, down = linear_samples(images.shape[1], height, align, half)
    left, right, across = linear_samples(images.shape[2], width, align, half)
    x = (across.astype(np.float32) * np.float32(one)).astype(np.int64)[:, None]
    y = (down.astype(np.float32) * np.float32(one)).astype(np.int64)[:, None, None]
    wide = images.astype(np.float32).astype(np.int64)  # of 24 bits, as TensorFlow reads them
    first, last = wide.take(left, 2), wide.take(right, 2)
    rows = first * one + (last - first) * x
    upper, lower = rows.take(top, 1), rows.take(bottom, 1)
    between = upper + _cut(lower - upper, one) * y
    return _cut(between + one // 2, one).astype(images.dtype)


@register_kernel(
    "QuantizedResizeBilinear",
    kind=KernelKind.EXPENSIVE,
    dtypes={"T": {types.quint8, types.qint32, types.float32}},
)
def make_quantized_resize(op: OpKernelConstruction) -> Kernel:
    """The kernel of QuantizedResizeBilinear."""
    align, half = op.attr("align_corners"), op.attr("half_pixel_centers")
    resize = resized_linearly if op.attr("T").name == "float32" else _resized

    def kernel(
        images: Array, size: object, low: np.generic, high: np.generic
    ) -> tuple[Array, ArrayOrScalar, ArrayOrScalar]:
        if np.ndim(low) or np.ndim(high):
            raise InvalidArgumentError("min and max must be scalars")
        return resize(images, size, align, half), low, high

    return kernel


def quantized_resize_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """That of the resized images, and their range."""
    c.scalar(2)
    c.scalar(3)
    return [*resize_shape(c), SCALAR, SCALAR]


register_op(
    "QuantizedResizeBilinear",
    "images: T, size: int32, min: float32, max: float32 -> resized_images: T, out_min: float32, out_max: float32",
    "T: {quint8, qint32, float32}; align_corners: bool = False; half_pixel_centers: bool = False",
    shape=quantized_resize_shape,
)
