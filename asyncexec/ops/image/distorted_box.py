"""SampleDistortedBoundingBox, V2 and Stateless: a random crop (``sample_distorted_bounding_box_op.cc``).

A crop has an area and an aspect ratio within ranges, and covers a part of one of the boxes.  After too many attempts
the whole image is the crop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.cancellation import raise_if_cancelled
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.ops.random.philox import from_stateless_seed
from asyncexec.ops.random.random_shape import check_seed
from asyncexec.ops.random.random_stateful import GuardedPhilox
from asyncexec.ops.random.simple_philox import SimplePhilox

F32: Final = np.float32
_MOST_ATTEMPTS: Final = 2**20  # each takes some ten microseconds
Box = tuple[int, int, int, int]  # first row, first column, last row, last column


@dataclass(frozen=True, slots=True)
class CropRanges:
    """What a crop may be: the attrs of the ops."""

    aspect_ratio: Sequence[float]
    area: Sequence[float]
    max_attempts: int
    takes_image: bool

    def sample(self, height: int, width: int, boxes: Sequence[Box], covered: float, random: SimplePhilox) -> Box:
        """A crop that covers as much of one of *boxes*; all of the image if there is none."""
        low, high = F32(self.aspect_ratio[0]), F32(self.aspect_ratio[1])
        for _ in range(self.max_attempts):
            raise_if_cancelled()
            ratio = F32(random.float32()) * (high - low) + low
            crop = self._crop(height, width, ratio, random)
            if crop is not None and _covers(crop, boxes, covered):
                return crop
        return 0, 0, height, width

    def _crop(self, rows: int, columns: int, ratio: Any, random: SimplePhilox) -> Box | None:
        least, most = (F32(part) * F32(columns) * F32(rows) for part in self.area)
        if rows <= 0 or columns <= 0 or ratio <= 0 or self.area[0] > self.area[1]:
            return None
        height, tallest = (_rounded(np.sqrt(area / ratio)) for area in (least, most))
        if _rounded(tallest * ratio) > columns:
            tallest = int((columns + 0.5 - float(F32(1e-7))) / float(ratio))
            tallest -= _rounded(tallest * ratio) > columns
        tallest = min(tallest, rows)
        height = min(height, tallest)
        if height < tallest:
            height += random.below(tallest - height + 1)
        if height * _rounded(height * ratio) < least:
            height += 1
        if height * _rounded(height * ratio) > most:
            height -= 1
        width = _rounded(height * ratio)
        if not least <= height * width <= most or not 0 < width <= columns or not 0 < height <= rows:
            return None
        y = random.below(rows - height) if height < rows else 0
        x = random.below(columns - width) if width < columns else 0
        return y, x, y + height, x + width


def _rounded(value: np.generic) -> int:
    return int(np.rint(F32(value)))


def _area(box: Box) -> int:
    return (box[2] - box[0]) * (box[3] - box[1])


def _covers(crop: Box, boxes: Sequence[Box], covered: float) -> bool:
    if _area(crop) < 1:
        return False
    for box in boxes:
        if _area(box) < 1:
            continue
        height = min(crop[2], box[2]) - max(crop[0], box[0])
        width = min(crop[3], box[3]) - max(crop[1], box[1])
        shared = max(height, 0) * max(width, 0)
        if F32(shared) / F32(_area(box)) >= covered:
            return True
    return False


def _ranges(op: OpKernelConstruction) -> CropRanges:
    ratio, area, attempts = op.attr("aspect_ratio_range"), op.attr("area_range"), op.attr("max_attempts")
    if len(ratio) != 2 or min(ratio) <= 0:
        raise InvalidArgumentError(f"Aspect ratio range must be two positive numbers: {list(ratio)}")
    if len(area) != 2 or min(area) <= 0 or max(area) > 1:
        raise InvalidArgumentError(f"Area range must be two numbers in (0, 1]: {list(area)}")
    if not 0 < attempts <= _MOST_ATTEMPTS:
        raise InvalidArgumentError(f"Max attempts must be positive, and at most {_MOST_ATTEMPTS}: {attempts}")
    return CropRanges(ratio, area, attempts, op.attr("use_image_if_no_bounding_boxes"))


def _pixel_boxes(boxes: Array, height: int, width: int) -> list[Box]:
    if boxes.ndim != 3 or boxes.shape[2] != 4:
        raise InvalidArgumentError(f"input boxes must be [batch, boxes, 4], not {list(boxes.shape)}")
    if not ((boxes >= 0) & (boxes <= 1)).all():
        raise InvalidArgumentError("All bounding box coordinates must be in [0.0, 1.0]")
    found: list[Box] = (boxes.reshape(-1, 4) * np.array([height, width] * 2, F32)).astype(np.int64).tolist()
    return found


def _image_sides(image_size: Array) -> tuple[int, int]:
    if np.shape(image_size) != (3,):
        raise InvalidArgumentError(f"image_size must contain 3 elements, not be of shape {list(np.shape(image_size))}")
    height, width = int(image_size[0]), int(image_size[1])
    if not (0 <= height < 2**31 - 1 and 0 <= width < 2**31 - 1):
        raise InvalidArgumentError(f"image height and width cannot be negative or >= int32 max: {height}, {width}")
    return height, width


def _sampled(
    ranges: CropRanges, image_size: Any, boxes: Array, covered: Any, random: SimplePhilox
) -> tuple[Array, ...]:
    height, width = _image_sides(image_size)
    if np.ndim(covered) or not covered >= 0:
        raise InvalidArgumentError(f"Min object covered must be a scalar and not negative: {covered}")
    objects = _pixel_boxes(boxes, height, width)
    if not objects:
        if not ranges.takes_image:
            raise InvalidArgumentError(
                "No bounding boxes provided as input. One must enable use_image_if_no_bounding_boxes if you wish to "
                "not provide any bounding boxes."
            )
        objects = [(0, 0, height, width)]
    y, x, bottom, right = ranges.sample(height, width, objects, float(covered), random)
    with np.errstate(all="ignore"):
        box = np.array([y, x, bottom, right], F32) / np.array([height, width] * 2, F32)
    begin, size = np.array([[y, x, 0], [bottom - y, right - x, -1]]).astype(image_size.dtype)
    return begin, size, box.reshape(1, 1, 4)


@register_kernel("SampleDistortedBoundingBox", "SampleDistortedBoundingBoxV2", kind=KernelKind.EXPENSIVE)
def make_sample(op: OpKernelConstruction) -> Kernel:
    """The kernel of SampleDistortedBoundingBox and V2."""
    ranges, seeds = _ranges(op), (op.attr("seed"), op.attr("seed2"))
    state = op.node_state(GuardedPhilox, lambda: GuardedPhilox(*seeds))
    default = op.attrs.get("min_object_covered", 0.0)
    if default < 0:
        raise InvalidArgumentError(f"Min object covered must be non-negative: {default}")

    def kernel(image_size: object, boxes: Array, covered: Any = default) -> tuple[object, ...]:
        random = SimplePhilox(state.reserve(ranges.max_attempts))  # four words an attempt
        return _sampled(ranges, image_size, boxes, F32(covered) if np.ndim(covered) == 0 else covered, random)

    return kernel


@register_kernel("StatelessSampleDistortedBoundingBox", kind=KernelKind.EXPENSIVE)
def make_stateless_sample(op: OpKernelConstruction) -> Kernel:
    """The kernel of StatelessSampleDistortedBoundingBox."""
    ranges = _ranges(op)

    def kernel(image_size: object, boxes: Array, covered: object, seed: object) -> tuple[Any, ...]:
        check_seed(seed)
        return _sampled(ranges, image_size, boxes, covered, SimplePhilox(from_stateless_seed(seed)))

    return kernel


def sample_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """Two vectors of three, and one box."""
    c.vector(0).merge_with([3])
    TensorShape([c.with_rank(1, 3)[2]]).merge_with([4])
    if c.num_inputs > 2:
        c.scalar(2)
    if c.num_inputs > 3:
        c.vector(3).merge_with([2])
    return [TensorShape([3]), TensorShape([3]), TensorShape([1, 1, 4])]


_OUTPUTS: Final = "-> begin: T, size: T, bboxes: float32"
_TYPES: Final = "T: {uint8, int8, int16, int32, int64}"
_RANGES: Final = (
    "aspect_ratio_range: list(float) = [0.75, 1.33]; area_range: list(float) = [0.05, 1.0]; max_attempts: int = 100; "
    "use_image_if_no_bounding_boxes: bool = False"
)
register_op(
    "SampleDistortedBoundingBox",
    f"image_size: T, bounding_boxes: float32 {_OUTPUTS}",
    f"{_TYPES}; seed: int = 0; seed2: int = 0; min_object_covered: float = 0.1; {_RANGES}",
    is_stateful=True,
    shape=sample_shape,
)
register_op(
    "SampleDistortedBoundingBoxV2",
    f"image_size: T, bounding_boxes: float32, min_object_covered: float32 {_OUTPUTS}",
    f"{_TYPES}; seed: int = 0; seed2: int = 0; {_RANGES}",
    is_stateful=True,
    shape=sample_shape,
)
register_op(
    "StatelessSampleDistortedBoundingBox",
    f"image_size: T, bounding_boxes: float32, min_object_covered: float32, seed: Tseed {_OUTPUTS}",
    f"{_TYPES}; Tseed: {{int32, int64}}; {_RANGES}",
    shape=sample_shape,
)
