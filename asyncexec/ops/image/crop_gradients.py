"""Gradients of CropAndResize, to the image and to the boxes, and of ScaleAndTranslate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.ops.image.image_resize import check_boxes, check_scale, crop_positions
from asyncexec.ops.image.image_sampling import KERNELS, apply_matrices, translated_matrix
from asyncexec.process.free_memory import check_array

F32: Final = np.float32


def _check_grads(grads: Array, boxes: Array, box_index: Array, image: Sequence[int]) -> None:
    batch, height, width, depth = image
    if not height or not width:
        raise InvalidArgumentError(f"image dimensions must be positive: {height}, {width}")
    if grads.ndim != 4 or not grads.shape[1] or not grads.shape[2]:
        raise InvalidArgumentError(f"grads must be 4-D with positive sides, not of shape {list(grads.shape)}")
    if grads.shape[3] != depth:
        raise InvalidArgumentError(f"image and grads have other depths: {depth}, {grads.shape[3]}")
    if boxes.ndim and len(grads) != len(boxes):
        raise InvalidArgumentError(f"boxes and grads have incompatible shape: {len(boxes)} boxes, {len(grads)} grads")
    check_boxes(boxes, box_index, batch)


@register_kernel("CropAndResizeGradImage", kind=KernelKind.EXPENSIVE)
def make_grad_image(op: OpKernelConstruction) -> Kernel:
    """The kernel of CropAndResizeGradImage."""
    dtype, is_bilinear = op.np_dtype("T"), op.attr("method") == b"bilinear"

    def kernel(grads: Array, boxes: Array, box_index: Array, image_size: Array) -> Array:
        if np.shape(image_size) != (4,) or (image_size < 0).any():
            raise InvalidArgumentError(f"image_size must be four sizes, not {np.asarray(image_size).tolist()}")
        batch, height, width, depth = map(int, image_size)
        _check_grads(grads, boxes, box_index, (batch, height, width, depth))
        check_array((batch, height, width, depth), np.dtype(np.float64))
        total = np.zeros((batch, height, width, depth), F32 if dtype.itemsize < 8 else dtype)
        y, y_inside = crop_positions(boxes[:, 0], boxes[:, 2], height, grads.shape[1])
        x, x_inside = crop_positions(boxes[:, 1], boxes[:, 3], width, grads.shape[2])
        kept = np.where((y_inside[:, :, None] & x_inside[:, None, :])[..., None], grads, F32(0))
        for rows, row_weight in _shares(y, is_bilinear):
            for columns, column_weight in _shares(x, is_bilinear):
                weighted = kept * row_weight[:, :, None, None] * column_weight[:, None, :, None]
                np.add.at(total, (box_index[:, None, None], rows[:, :, None], columns[:, None, :]), weighted)
        return total.astype(dtype, copy=False)

    return kernel


def _shares(where: Array, is_bilinear: bool) -> list[tuple[Array, Array]]:
    """The pixels that places lie between, and how much each counts."""
    if not is_bilinear:
        return [(np.floor(where.astype(np.float64) + 0.5).astype(np.int64), np.ones_like(where))]
    low = np.floor(where)
    part = (where - low).astype(F32)
    return [(low.astype(np.int64), 1 - part), (np.ceil(where).astype(np.int64), part)]


@register_kernel("CropAndResizeGradBoxes", kind=KernelKind.EXPENSIVE)
def make_grad_boxes(_: OpKernelConstruction) -> Kernel:
    """The kernel of CropAndResizeGradBoxes."""

    def kernel(grads: Array, image: Array, boxes: Array, box_index: Array) -> Array:
        if image.ndim != 4:
            raise InvalidArgumentError(f"image must be 4-D, not of shape {list(image.shape)}")
        _check_grads(grads, boxes, box_index, image.shape)
        height, width = image.shape[1:3]
        y, y_inside = crop_positions(boxes[:, 0], boxes[:, 2], height, grads.shape[1])
        x, x_inside = crop_positions(boxes[:, 1], boxes[:, 3], width, grads.shape[2])
        inside = (y_inside[:, :, None] & x_inside[:, None, :])[..., None]
        down, across = (np.where(inside, grads * slope, F32(0)) for slope in _slopes(image, box_index, y, x))
        by_row, by_column = down.sum((2, 3)), across.sum((1, 3))
        first_y, last_y = _moves(by_row, height)
        first_x, last_x = _moves(by_column, width)
        return np.stack([first_y, first_x, last_y, last_x], 1).astype(F32)

    return kernel


def _slopes(image: Array, which: Array, y: Array, x: Array) -> tuple[Array, Array]:
    """How much each sample grows when it is read further down, and further to the right."""
    which = which[:, None, None]
    (top, above), (bottom, down) = ((at[:, :, None], part[:, :, None, None]) for at, part in _shares(y, True))
    (left, before), (right, across) = ((at[:, None, :], part[:, None, :, None]) for at, part in _shares(x, True))
    top_left, top_right = image[which, top, left].astype(F32), image[which, top, right].astype(F32)
    bottom_left, bottom_right = image[which, bottom, left].astype(F32), image[which, bottom, right].astype(F32)
    return (
        before * (bottom_left - top_left) + across * (bottom_right - top_right),
        above * (top_right - top_left) + down * (bottom_right - bottom_left),
    )


def _moves(slopes: Array, size: int) -> tuple[Array, Array]:
    """What the first and the last edge of a box count, of the *slopes* [box, place] along one axis."""
    places = slopes.shape[1]
    if places == 1:
        half = slopes[:, 0] * F32(0.5) * F32(size - 1)
        return half, half
    share = np.arange(places, dtype=F32) * (F32(size - 1) / F32(places - 1))
    return slopes @ (F32(size - 1) - share), slopes @ share


@register_kernel("ScaleAndTranslateGrad", kind=KernelKind.EXPENSIVE)
def make_scale_and_translate_grad(op: OpKernelConstruction) -> Kernel:
    """The kernel of ScaleAndTranslateGrad: the transposed weights."""
    kind, antialias = op.attr("kernel_type"), op.attr("antialias")
    if kind not in KERNELS:
        raise InvalidArgumentError(f"Unrecognized kernel type: {kind.decode('utf-8', 'replace')}")

    def kernel(grads: Array, original: Array, scale: Array, translation: Array) -> Array:
        if grads.ndim != 4 or original.ndim != 4:
            raise InvalidArgumentError(
                f"input_grad and original_image must be 4-dimensional: {list(grads.shape)}, {list(original.shape)}"
            )
        check_scale(scale, translation)
        rows = translated_matrix(original.shape[1], grads.shape[1], scale[0], translation[0], kind, antialias)
        columns = translated_matrix(original.shape[2], grads.shape[2], scale[1], translation[1], kind, antialias)
        return apply_matrices(grads, rows.T, columns.T)

    return kernel


def grad_image_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """What image_size spells."""
    shape = c.value_as_shape(3).with_rank(4)
    return [shape]


def grad_boxes_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """That of the boxes."""
    return [c.with_rank(2, 2)]


def second_input_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """That of the original image."""
    return [c.input(1)]


register_op(
    "CropAndResizeGradImage",
    "grads: float32, boxes: float32, box_ind: int32, image_size: int32 -> output: T",
    "T: {float16, float32, float64}; method: {'bilinear', 'nearest'} = 'bilinear'",
    shape=grad_image_shape,
)
register_op(
    "CropAndResizeGradBoxes",
    "grads: float32, image: T, boxes: float32, box_ind: int32 -> output: float32",
    "T: {uint8, uint16, int8, int16, int32, int64, float16, float32, float64}; method: {'bilinear'} = 'bilinear'",
    shape=grad_boxes_shape,
)
register_op(
    "ScaleAndTranslateGrad",
    "grads: T, original_image: T, scale: float32, translation: float32 -> output: T",
    "T: {float32}; kernel_type: string = 'lanczos3'; antialias: bool = True",
    shape=second_input_shape,
)
