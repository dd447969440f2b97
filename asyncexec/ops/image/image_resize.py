"""Resizing of images [batch, height, width, channels] (``tensorflow/core/ops/image_ops.cc``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError, OutOfRangeError
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.ops.image.image_sampling import (
    F32,
    KERNELS,
    apply_matrices,
    area_matrix,
    cubic_matrix,
    cubic_samples,
    linear_matrix,
    linear_samples,
    nearest_indices,
    translated_matrix,
)
from asyncexec.process.free_memory import check_array

MAX_SIDE: Final = 2**31 - 1
_TILE: Final = 2**15  # numbers


def resize_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """The batch and channels of the input, the sides that the second input spells."""
    return [sized_shape(c, 0, 1, 0)]


def sized_shape(c: InferenceContext, images: int, size: int, batch_from: int) -> TensorShape:
    """Sides from the value of input *size*, batch from one input and channels from the other."""
    shape = c.with_rank(images, 4)
    sides = c.vector(size)
    if sides[0] not in (None, 2):
        raise InvalidArgumentError(f"Dimension must be 2 but is {sides[0]}")
    value = c.value(size)
    known = [None, None] if value is None else [int(side) for side in np.ravel(value)]
    batch = shape[0] if batch_from == images else c.input(batch_from)[0]
    return TensorShape([batch, *known, shape[3]])


def like_second(c: InferenceContext) -> Sequence[TensorShape]:
    """The shape of the image that was resized."""
    image = c.with_rank(1, 4)
    return [TensorShape([c.with_rank(0, 4)[0], image[1], image[2], image[3]])]


def check_corners(op: OpKernelConstruction) -> tuple[bool, bool]:
    """The attrs align_corners and half_pixel_centers, which exclude each other."""
    align = op.attr("align_corners")
    half = op.attrs.get("half_pixel_centers", False)
    if align and half:
        raise InvalidArgumentError("If half_pixel_centers is True, align_corners must be False.")
    return align, half


def checked_sides(images: Array, size: object, *, may_be_empty: bool = False) -> tuple[int, int]:
    """The sides that *size* spells, for *images* that can be resized to them."""
    if images.ndim != 4:
        raise InvalidArgumentError(f"input must be 4-dimensional, not of shape {list(images.shape)}")
    sides = np.asarray(size)
    if sides.shape != (2,):
        raise InvalidArgumentError(f"shape_t must be 1-dimensional with two elements, not of shape {list(sides.shape)}")
    height, width = int(sides[0]), int(sides[1])
    if height <= 0 or width <= 0:
        raise InvalidArgumentError(f"output dimensions must be positive, not {height} x {width}")
    if 0 in images.shape[1:] and not may_be_empty:
        raise InvalidArgumentError(f"input image must be of non-zero size, not of shape {list(images.shape)}")
    if max(images.shape[1:3]) > MAX_SIDE:
        raise InvalidArgumentError("input sizes must be between 0 and max int32")
    check_array((images.shape[0], height, width, images.shape[3]), np.dtype(F32))
    return height, width


@register_kernel("ResizeBilinear", kind=KernelKind.EXPENSIVE)
def make_resize_bilinear(op: OpKernelConstruction) -> Kernel:
    """The kernel of ResizeBilinear."""
    align, half = check_corners(op)
    return lambda images, size: resized_linearly(images, size, align, half)


def resized_linearly(images: Array, size: object, align: bool, half: bool) -> Array:
    """*images* of another size, by the four pixels around each place."""
    height, width = checked_sides(images, size)
    top, bottom, down = linear_samples(images.shape[1], height, align, half)
    left, right, across = linear_samples(images.shape[2], width, align, half)
    batch, tall, _, channels = images.shape
    wide = np.empty((batch, tall, width, channels), F32)
    for rows in _tiles(wide):
        tile = images[:, rows].astype(F32, copy=False)
        _between(tile.take(left, 2), tile.take(right, 2), across[:, None], wide[:, rows])
    resized = np.empty((batch, height, width, channels), F32)
    for rows in _tiles(resized):
        _between(wide.take(top[rows], 1), wide.take(bottom[rows], 1), down[rows, None, None], resized[:, rows])
    return resized


def _tiles(images: Array) -> Iterator[slice]:
    """The rows of *images*, so many at a time as stay in a cache."""
    height = images.shape[1]
    step = max(1, _TILE // max(1, images.size // height))
    return (slice(start, start + step) for start in range(0, height, step))


def _between(a: Array, b: Array, part: Array, out: Array | None = None) -> Array:
    """What lies that *part* of the way from *a* to *b*, which is overwritten."""
    b -= a
    b *= part
    between: Array = np.add(b, a, out=out)
    return between


@register_kernel("ResizeNearestNeighbor", kind=KernelKind.EXPENSIVE)
def make_resize_nearest(op: OpKernelConstruction) -> Kernel:
    """The kernel of ResizeNearestNeighbor."""
    align, half = check_corners(op)

    def kernel(images: Array, size: object) -> Array:
        height, width = checked_sides(images, size)
        rows = nearest_indices(images.shape[1], height, align, half)
        columns = nearest_indices(images.shape[2], width, align, half)
        return images.take(rows, 1).take(columns, 2)

    return kernel


@register_kernel("ResizeBicubic", kind=KernelKind.EXPENSIVE)
def make_resize_bicubic(op: OpKernelConstruction) -> Kernel:
    """The kernel of ResizeBicubic."""
    align, half = check_corners(op)

    def kernel(images: Array, size: object) -> Array:
        height, width = checked_sides(images, size)
        images = images.astype(F32, copy=False)
        rows = cubic_samples(images.shape[1], height, align, half)
        columns = cubic_samples(images.shape[2], width, align, half)
        tall = _weighted([images.take(index, 1) * weight[:, None, None] for index, weight in rows])
        return _weighted([tall.take(index, 2) * weight[:, None] for index, weight in columns])

    return kernel


def _weighted(terms: list[Array]) -> Array:
    total, *others = terms
    for term in others:
        total += term
    return total


@register_kernel("ResizeArea", kind=KernelKind.EXPENSIVE)
def make_resize_area(op: OpKernelConstruction) -> Kernel:
    """The kernel of ResizeArea."""
    align, _ = check_corners(op)

    def kernel(images: Array, size: object) -> Array:
        height, width = checked_sides(images, size)
        rows, columns = area_matrix(images.shape[1], height, align), area_matrix(images.shape[2], width, align)
        return apply_matrices(images, rows, columns)

    return kernel


def check_scale(scale: Array, translation: Array) -> None:
    """InvalidArgumentError unless both are two numbers, and those of *scale* positive."""
    for what, vector in (("scale", scale), ("translation", translation)):
        if vector.shape != (2,):
            raise InvalidArgumentError(f"{what} must have two elements, not be of shape {list(vector.shape)}")
    if not (scale > 0).all():
        raise InvalidArgumentError(f"Scale must be greater than zero: {scale.tolist()}")


@register_kernel("ScaleAndTranslate", kind=KernelKind.EXPENSIVE)
def make_scale_and_translate(op: OpKernelConstruction) -> Kernel:
    """The kernel of ScaleAndTranslate."""
    kind, antialias = op.attr("kernel_type"), op.attr("antialias")
    if kind not in KERNELS:
        raise InvalidArgumentError(f"Unrecognized kernel type: {kind.decode('utf-8', 'replace')}")

    def kernel(images: Array, size: object, scale: Array, translation: Array) -> Array:
        height, width = checked_sides(images, size)
        check_scale(scale, translation)
        rows = translated_matrix(images.shape[1], height, scale[0], translation[0], kind, antialias)
        columns = translated_matrix(images.shape[2], width, scale[1], translation[1], kind, antialias)
        return apply_matrices(images, rows, columns)

    return kernel


@register_kernel("ResizeBilinearGrad", "ResizeBicubicGrad", kind=KernelKind.EXPENSIVE)
def make_resize_grad(op: OpKernelConstruction) -> Kernel:
    """The kernel of ResizeBilinearGrad and ResizeBicubicGrad: the transposed weights."""
    align, half = check_corners(op)
    matrix: Callable[..., Array] = linear_matrix if op.op == "ResizeBilinearGrad" else cubic_matrix
    dtype = op.np_dtype("T")

    def kernel(grads: Array, original: Array) -> Array:
        if grads.ndim != 4 or original.ndim != 4:
            raise InvalidArgumentError(
                f"input_grad and original_image must be 4-dimensional: {list(grads.shape)}, {list(original.shape)}"
            )
        if not grads.shape[1] or not grads.shape[2] or not original.shape[1] or not original.shape[2]:
            raise InvalidArgumentError("height and width of the images must not be zero")
        rows = matrix(original.shape[1], grads.shape[1], align, half)
        columns = matrix(original.shape[2], grads.shape[2], align, half)
        return apply_matrices(grads, rows.T, columns.T).astype(dtype, copy=False)

    return kernel


@register_kernel("ResizeNearestNeighborGrad", kind=KernelKind.EXPENSIVE)
def make_resize_nearest_grad(op: OpKernelConstruction) -> Kernel:
    """The kernel of ResizeNearestNeighborGrad."""
    align, half = op.attr("align_corners"), op.attr("half_pixel_centers")

    def kernel(grads: Array, size: object) -> Array:
        height, width = checked_sides(grads, size, may_be_empty=True)
        rows = nearest_indices(height, grads.shape[1], align, half)
        columns = nearest_indices(width, grads.shape[2], align, half)
        total = np.zeros((grads.shape[0], height, width, grads.shape[3]), grads.dtype)
        for y, row in enumerate(rows):
            for x, column in enumerate(columns):
                total[:, row, column] += grads[:, y, x]
        return total

    return kernel


@register_kernel("CropAndResize", kind=KernelKind.EXPENSIVE)
def make_crop_and_resize(op: OpKernelConstruction) -> Kernel:
    """The kernel of CropAndResize."""
    bilinear = op.attr("method") == b"bilinear"
    fill = F32(op.attr("extrapolation_value"))

    def kernel(image: Array, boxes: Array, box_index: Array, crop_size: object) -> Array:
        height, width = _checked_crop(image, boxes, box_index, crop_size)
        y, y_inside = crop_positions(boxes[:, 0], boxes[:, 2], image.shape[1], height)
        x, x_inside = crop_positions(boxes[:, 1], boxes[:, 3], image.shape[2], width)
        sample = _crop_bilinear if bilinear else _crop_nearest
        crops = sample(image, box_index[:, None, None], y[:, :, None], x[:, None, :])
        outside = ~(y_inside[:, :, None] & x_inside[:, None, :])
        crops[outside] = fill
        return crops

    return kernel


def check_boxes(boxes: Array, box_index: Array, batch: int) -> None:
    """An error unless there are boxes, each of one of the *batch* images."""
    if boxes.ndim != 2 or boxes.shape[1] != 4 or box_index.shape != boxes.shape[:1]:
        raise InvalidArgumentError(
            f"boxes must be 2-D with 4 columns and box_index as long, not {list(boxes.shape)}, {list(box_index.shape)}"
        )
    if ((box_index < 0) | (box_index >= batch)).any():
        raise OutOfRangeError(f"box_index has values outside [0, {batch})")


def _checked_crop(image: Array, boxes: Array, box_index: Array, crop_size: object) -> tuple[int, int]:
    if image.ndim != 4 or not image.shape[1] or not image.shape[2]:
        raise InvalidArgumentError(f"image must be 4-D with positive sides, not of shape {list(image.shape)}")
    sides = np.asarray(crop_size)
    if sides.shape != (2,) or (sides <= 0).any():
        raise InvalidArgumentError(f"crop_size must be two positive numbers, not {sides.tolist()}")
    check_boxes(boxes, box_index, len(image))
    if not np.isfinite(boxes).all():
        raise InvalidArgumentError("Boxes contains at least one element that is not finite")
    check_array((len(boxes), int(sides[0]), int(sides[1]), image.shape[3]), np.dtype(F32))
    return int(sides[0]), int(sides[1])


def crop_positions(first: Array, last: Array, size: int, out: int) -> tuple[Array, Array]:
    """Where each row (or column) of each crop lies in the image, cut to it; and whether it was inside."""
    if out > 1:
        step = (last - first) * F32(size - 1) / F32(out - 1)
        where = (first * F32(size - 1))[:, None] + np.arange(out, dtype=F32) * step[:, None]
    else:
        where = (0.5 * (first + last).astype(np.float64) * (size - 1)).astype(F32)[:, None]
    inside = (where >= 0) & (where <= size - 1)
    return np.where(inside, where, F32(0)), inside


def _crop_bilinear(image: Array, which: Array, y: Array, x: Array) -> Array:
    top, left = np.floor(y).astype(np.int64), np.floor(x).astype(np.int64)
    bottom, right = np.ceil(y).astype(np.int64), np.ceil(x).astype(np.int64)
    down, across = (y - top).astype(F32)[..., None], (x - left).astype(F32)[..., None]
    upper = _between(image[which, top, left].astype(F32), image[which, top, right].astype(F32), across)
    lower = _between(image[which, bottom, left].astype(F32), image[which, bottom, right].astype(F32), across)
    return _between(upper, lower, down)


def _crop_nearest(image: Array, which: Array, y: Array, x: Array) -> Array:
    rows, columns = (np.floor(where.astype(np.float64) + 0.5).astype(np.int64) for where in (y, x))
    return image[which, rows, columns].astype(F32)


def crop_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """One crop a box."""
    boxes, index = c.with_rank(1, 2), c.vector(2)
    count = TensorShape([boxes[0]]).merge_with(index)[0]
    TensorShape([boxes[1]]).merge_with([4])
    image = sized_shape(c, 0, 3, 0)
    return [TensorShape([count, image[1], image[2], image[3]])]


def nearest_grad_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """The batch and channels of the gradient, the sides that the second input spells."""
    return [sized_shape(c, 0, 1, 0)]


_TYPES = "{int8, uint8, int16, uint16, int32, int64, bfloat16, float16, float32, float64}"
_CORNERS = "; align_corners: bool = False; half_pixel_centers: bool = False"
_IMAGES = "images: T, size: int32 -> resized_images: float32"
register_op("ResizeBilinear", _IMAGES, f"T: {_TYPES}{_CORNERS}", shape=resize_shape)
register_op("ResizeBicubic", _IMAGES, f"T: {_TYPES}{_CORNERS}", shape=resize_shape)
register_op("ResizeArea", _IMAGES, f"T: {_TYPES}; align_corners: bool = False", shape=resize_shape)
register_op(
    "ResizeNearestNeighbor",
    "images: T, size: int32 -> resized_images: T",
    f"T: {_TYPES}{_CORNERS}",
    shape=resize_shape,
)
register_op(
    "ScaleAndTranslate",
    "images: T, size: int32, scale: float32, translation: float32 -> resized_images: float32",
    f"T: {_TYPES}; kernel_type: string = 'lanczos3'; antialias: bool = True",
    shape=resize_shape,
)
register_op(
    "ResizeBilinearGrad",
    "grads: float32, original_image: T -> output: T",
    "T: {float32, bfloat16, float16, float64}" + _CORNERS,
    shape=like_second,
)
register_op(
    "ResizeBicubicGrad",
    "grads: float32, original_image: T -> output: T",
    "T: {float32, float64}" + _CORNERS,
    shape=like_second,
)
register_op(
    "ResizeNearestNeighborGrad",
    "grads: T, size: int32 -> output: T",
    "T: {uint8, int8, int32, float16, float32, float64, bfloat16}" + _CORNERS,
    shape=nearest_grad_shape,
)
register_op(
    "CropAndResize",
    "image: T, boxes: float32, box_ind: int32, crop_size: int32 -> crops: float32",
    "T: {uint8, uint16, int8, int16, int32, int64, float16, float32, float64}; "
    "method: {'bilinear', 'nearest'} = 'bilinear'; extrapolation_value: float = 0.0",
    shape=crop_shape,
)
