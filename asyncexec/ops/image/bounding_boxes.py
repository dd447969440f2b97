"""DrawBoundingBoxes and V2: frames around the boxes of each image (``draw_bounding_box_op.cc``)."""

from __future__ import annotations

from typing import Final

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.ops.image.image_sampling import truncated

# Yellow, blue, red, lime, purple, olive, maroon, navy, aqua, fuchsia.
_COLORS: Final = np.array(
    [
        [1, 1, 0, 1],
        [0, 0, 1, 1],
        [1, 0, 0, 1],
        [0, 1, 0, 1],
        [0.5, 0, 0.5, 1],
        [0.5, 0.5, 0, 1],
        [0.5, 0, 0, 1],
        [0, 0, 0.5, 1],
        [0, 1, 1, 1],
        [1, 0, 1, 1],
    ],
    np.float32,
)


def _palette(depth: int, colors: Array | None) -> Array:
    if colors is not None:
        if colors.ndim != 2 or colors.shape[1] < depth:
            raise InvalidArgumentError(f"colors must be a matrix of {depth} channels or more, not {list(colors.shape)}")
        if colors.size:
            return colors[:, :depth]
    return np.ones((1, 1), np.float32) if depth == 1 else _COLORS[:, :depth]


def _edges(boxes: Array, height: int, width: int) -> Array:
    """The first row, the first column, the last row and the last column of each box, as whole pixels."""
    sides = np.array([height - 1, width - 1, height - 1, width - 1], np.float32)
    return truncated(boxes * sides)


def _draw(image: Array, edges: Array, palette: Array) -> None:
    """Frames on *image*, each over those before."""
    height, width = image.shape[:2]
    first, last = edges[:, :2], edges[:, 2:]
    seen = (first <= last).all(1) & (first < (height, width)).all(1) & (last >= 0).all(1)
    for number in np.flatnonzero(seen):
        top, left, bottom, right = edges[number].tolist()
        color = palette[int(number) % len(palette)]
        rows, columns = slice(max(top, 0), bottom + 1), slice(max(left, 0), right + 1)
        for row in {top, bottom} & set(range(height)):
            image[row, columns] = color
        for column in {left, right} & set(range(width)):
            image[rows, column] = color


def draw_boxes(images: Array, boxes: Array, colors: Array | None = None) -> Array:
    """*images* with frames at *boxes*, whose corners are parts of the sides."""
    if images.ndim != 4 or images.shape[3] not in (1, 3, 4):
        raise InvalidArgumentError(f"images must be of rank 4 with 1, 3 or 4 channels, not {list(images.shape)}")
    if boxes.ndim != 3 or boxes.shape[2] != 4 or len(boxes) != len(images):
        raise InvalidArgumentError(f"boxes must be [{len(images)}, boxes, 4], not {list(boxes.shape)}")
    palette = _palette(images.shape[3], colors).astype(images.dtype)
    drawn = images.copy()
    for image, edges in zip(drawn, _edges(boxes, *images.shape[1:3]), strict=True):
        _draw(image, edges, palette)
    return drawn


@register_kernel("DrawBoundingBoxes", "DrawBoundingBoxesV2", kind=KernelKind.EXPENSIVE)
def make_draw(_: OpKernelConstruction) -> Kernel:
    """The kernel of DrawBoundingBoxes and V2."""
    return draw_boxes


def draw_shape(c: InferenceContext) -> list[TensorShape]:
    """That of the images."""
    c.with_rank(1, 3)
    return [c.with_rank(0, 4)]


_TYPES: Final = "T: {float16, float32} = float32"
register_op("DrawBoundingBoxes", "images: T, boxes: float32 -> output: T", _TYPES, shape=draw_shape)
register_op("DrawBoundingBoxesV2", "images: T, boxes: float32, colors: float32 -> output: T", _TYPES, shape=draw_shape)
