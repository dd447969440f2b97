"""Non-maximum suppression: the best boxes that do not overlap (``non_max_suppression_op.cc``)."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_function, register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import SCALAR, Dim, TensorShape
from asyncexec.process.free_memory import check_array

F32: Final = np.float32
Similarity = Callable[[int, Any], Array]


def box_similarity(boxes: Array) -> Similarity:
    """A function that gives the intersection over union of one box with others."""
    corners = boxes.astype(F32, copy=False)
    low = np.minimum(corners[:, :2], corners[:, 2:])
    high = np.maximum(corners[:, :2], corners[:, 2:])
    sides = high - low
    area = sides[:, 0] * sides[:, 1]

    def similarity(one: int, others: Array) -> Array:
        reach = np.maximum(np.minimum(high[others], high[one]) - np.maximum(low[others], low[one]), F32(0))
        common = reach[:, 0] * reach[:, 1]
        overlap = common / (area[others] + area[one] - common)
        return np.where((area[others] <= 0) | (area[one] <= 0), F32(0), overlap)

    return similarity


def suppress(scores: Array, limit: int, threshold: object, least: object, similarity: Similarity) -> Array:
    """The best *limit* candidates above *least*, none more similar to a better one than *threshold*."""
    candidates = np.flatnonzero(scores > least)
    order = candidates[np.argsort(-scores[candidates].astype(np.float64), kind="stable")]
    selected: list[int] = []
    while len(order) and len(selected) < limit:
        best = int(order[0])
        selected.append(best)
        order = order[1:]
        order = order[~(similarity(best, order).astype(scores.dtype) > threshold)]
    return np.array(selected, np.int32)


def suppress_softly(
    scores: Array, limit: int, least: object, sigma: object, similarity: Similarity
) -> tuple[list[int], list[Any]]:
    """The best candidates, each score lowered by its likeness to better ones; with the scores they end with."""
    scale = scores.dtype.type(-0.5) / sigma
    heap = [(-float(scores[i]), int(i), 0) for i in np.flatnonzero(scores > least)]
    heapq.heapify(heap)
    selected: list[int] = []
    final: list[object] = []
    while heap and len(selected) < limit:
        negative, index, start = heapq.heappop(heap)
        before = scores.dtype.type(-negative)
        score = _lowered(before, index, selected[start:][::-1], least, scale, similarity)
        if score == before:
            selected.append(index)
            final.append(score)
        elif score > least:
            heapq.heappush(heap, (-float(score), index, len(selected)))
    return selected, final


def _lowered(score: Any, index: int, others: list[int], least: Any, scale: np.generic, similarity: Similarity) -> Any:
    if not others:
        return score
    alike = similarity(index, np.array(others)).astype(scale.dtype)
    for weight in np.exp(scale * alike * alike):
        score = score * weight
        if score <= least:
            break
    return score


def checked_limit(boxes: Array, scores: Array, limit: Any, *thresholds: Any) -> int:
    """The most boxes to select; InvalidArgumentError unless the inputs fit together."""
    if np.ndim(limit) or any(np.ndim(threshold) for threshold in thresholds):
        raise InvalidArgumentError("max_output_size and the thresholds must be scalars")
    if thresholds and not 0 <= thresholds[0] <= 1:
        raise InvalidArgumentError(f"iou_threshold must be in [0, 1], not {thresholds[0]}")
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        raise InvalidArgumentError(f"boxes must be 2-D with 4 columns, not of shape {list(boxes.shape)}")
    if scores.shape != boxes.shape[:1]:
        raise InvalidArgumentError(f"scores has incompatible shape {list(scores.shape)} for {len(boxes)} boxes")
    if limit < 0:
        raise InvalidArgumentError(f"output size must be non-negative, not {limit}")
    return int(limit)


def _lowest(scores: Array) -> np.generic:
    return np.finfo(scores.dtype).min


def nms_v2(boxes: Array, scores: Array, limit: object, threshold: object) -> Array:
    """The kernel of NonMaxSuppressionV2."""
    count = checked_limit(boxes, scores, limit, threshold)
    return suppress(scores, count, threshold, _lowest(scores), box_similarity(boxes))


def nms_v3(boxes: Array, scores: Array, limit: object, threshold: object, least: object) -> Array:
    """The kernel of NonMaxSuppressionV3."""
    count = checked_limit(boxes, scores, limit, threshold, least)
    return suppress(scores, count, threshold, least, box_similarity(boxes))


def nms_with_overlaps(overlaps: Array, scores: Array, limit: Any, threshold: Any, least: Any) -> Array:
    """The kernel of NonMaxSuppressionWithOverlaps."""
    if overlaps.ndim != 2 or overlaps.shape[0] != overlaps.shape[1] or scores.shape != overlaps.shape[:1]:
        raise InvalidArgumentError(
            f"overlaps must be square, with a score a row: {list(overlaps.shape)}, {list(scores.shape)}"
        )
    if np.ndim(limit) or limit < 0:
        raise InvalidArgumentError("max_output_size must be a scalar and not negative")
    if np.ndim(threshold) or np.ndim(least):
        raise InvalidArgumentError("overlap_threshold and score_threshold must be scalars")
    return suppress(scores, int(limit), threshold, least, lambda one, others: overlaps[others, one])


@register_kernel("NonMaxSuppression", kind=KernelKind.EXPENSIVE)
def make_nms(op: OpKernelConstruction) -> Kernel:
    """The kernel of NonMaxSuppression."""
    threshold = F32(op.attr("iou_threshold"))
    return lambda boxes, scores, limit: nms_v2(boxes, scores, limit, threshold)


@register_kernel("NonMaxSuppressionV4", kind=KernelKind.EXPENSIVE)
def make_nms_v4(op: OpKernelConstruction) -> Kernel:
    """The kernel of NonMaxSuppressionV4."""
    pad = op.attr("pad_to_max_output_size")

    def kernel(
        boxes: Array, scores: Array, limit: np.generic, threshold: object, least: object
    ) -> tuple[Array, ArrayOrScalar]:
        selected = nms_v3(boxes, scores, limit, threshold, least)
        return _padded(selected, int(limit)) if pad else selected, np.int32(len(selected))

    return kernel


@register_kernel("NonMaxSuppressionV5", kind=KernelKind.EXPENSIVE)
def make_nms_v5(op: OpKernelConstruction) -> Kernel:
    """The kernel of NonMaxSuppressionV5."""
    pad = op.attr("pad_to_max_output_size")
    dtype = op.np_dtype("T")

    def kernel(
        boxes: Array, scores: Array, limit: np.generic, threshold: Any, least: Any, sigma: Any
    ) -> tuple[Array, Array, ArrayOrScalar]:
        count = checked_limit(boxes, scores, limit, threshold, least, sigma)
        if sigma < 0:
            raise InvalidArgumentError(f"soft_nms_sigma must be non-negative, not {sigma}")
        if sigma > 0:
            found, final = suppress_softly(scores, count, least, sigma, box_similarity(boxes))
            selected, kept = np.array(found, np.int32), np.array(final, dtype)
        else:
            selected = suppress(scores, count, threshold, least, box_similarity(boxes))
            kept = scores[selected]
        valid = np.int32(len(selected))
        if pad:
            selected, kept = _padded(selected, count), _padded(kept, count)
        return selected, kept, valid

    return kernel


def _padded(values: Array, length: int) -> Array:
    check_array((length,), values.dtype)
    padded = np.zeros(length, values.dtype)
    padded[: len(values)] = values
    return padded


@register_kernel("CombinedNonMaxSuppression", kind=KernelKind.EXPENSIVE)
def make_combined_nms(op: OpKernelConstruction) -> Kernel:
    """The kernel of CombinedNonMaxSuppression: class by class, then the best of all classes."""
    pad_per_class, clip = op.attr("pad_per_class"), op.attr("clip_boxes")

    def kernel(
        boxes: Array, scores: Array, per_class: np.generic, total: np.generic, threshold: np.generic, least: np.generic
    ) -> tuple[Array, Array, Array, Array]:
        _check_combined(boxes, scores, per_class, total, threshold)
        size = int(total)
        if pad_per_class:
            size = min(size, int(per_class) * scores.shape[2])
        check_array((len(boxes), size, 4), np.dtype(F32))
        found = [
            _combined_image(*image, int(per_class), threshold, least, size) for image in zip(boxes, scores, strict=True)
        ]
        out = np.zeros((len(boxes), size, 4), F32)
        values, classes = np.zeros((len(boxes), size), F32), np.zeros((len(boxes), size), F32)
        for i, (chosen, score, label) in enumerate(found):
            out[i, : len(score)] = np.clip(chosen, 0, 1) if clip else chosen
            values[i, : len(score)], classes[i, : len(score)] = score, label
        return out, values, classes, np.array([len(score) for _, score, _ in found], np.int32)

    return kernel


def _combined_image(
    boxes: Array, scores: Array, per_class: int, threshold: object, least: object, size: int
) -> tuple[Array, Array, Array]:
    chosen, values, labels = [np.zeros((0, 4), F32)], [np.zeros(0, F32)], [np.zeros(0, F32)]
    for label in range(scores.shape[1]):
        own = boxes[:, label if boxes.shape[1] > 1 else 0]
        column = np.ascontiguousarray(scores[:, label])
        selected = suppress(column, min(per_class, len(own)), threshold, least, box_similarity(own))
        chosen.append(own[selected])
        values.append(column[selected])
        labels.append(np.full(len(selected), label, F32))
    score = np.concatenate(values)
    best = np.argsort(-score, kind="stable")[:size]
    return np.concatenate(chosen)[best], score[best], np.concatenate(labels)[best]


def _check_combined(boxes: Array, scores: Array, per_class: Any, total: Any, threshold: Any) -> None:
    if boxes.ndim != 4 or scores.ndim != 3 or boxes.shape[3] != 4:
        raise InvalidArgumentError(
            f"boxes must be [batch, boxes, classes, 4] and scores 3-D: {list(boxes.shape)}, {list(scores.shape)}"
        )
    if boxes.shape[:2] != scores.shape[:2] or boxes.shape[2] not in (1, scores.shape[2]):
        raise InvalidArgumentError(f"boxes {list(boxes.shape)} do not fit scores {list(scores.shape)}")
    if np.ndim(per_class) or np.ndim(total) or per_class <= 0 or total <= 0:
        raise InvalidArgumentError("max_output_size_per_class and max_total_size must be scalars above zero")
    if np.ndim(threshold) or not 0 <= threshold <= 1:
        raise InvalidArgumentError(f"iou_threshold must be in [0, 1], not {threshold}")


def nms_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """As many indices as are found, or as many as padded to; their scores; the number that is valid."""
    boxes, scores = c.with_rank(0, 2), c.vector(1)
    TensorShape([boxes[0]]).merge_with(scores)
    TensorShape([boxes[1]]).merge_with([4])
    for index in range(2, c.num_inputs):
        c.scalar(index)
    length: Dim = None
    if c.attrs.get("pad_to_max_output_size"):
        length = c.int_value(2)
        if length is not None and length < 0:
            raise InvalidArgumentError(f"max_output_size must be non-negative, not {length}")
    indices = TensorShape([length])
    return {1: [indices], 2: [indices, SCALAR], 3: [indices, indices, SCALAR]}[c.num_outputs]


def overlaps_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """As many indices as are found."""
    overlaps, scores = c.with_rank(0, 2), c.vector(1)
    TensorShape([overlaps[0]]).merge_with(scores).merge_with([overlaps[1]])
    for index in range(2, 5):
        c.scalar(index)
    return [TensorShape([None])]


def combined_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """For each image, the sizes that the inputs tell where they are known."""
    boxes, scores = c.with_rank(0, 4), c.with_rank(1, 3)
    TensorShape([boxes[3]]).merge_with([4])
    batch = TensorShape([boxes[0]]).merge_with([scores[0]])[0]
    TensorShape([boxes[1]]).merge_with([scores[1]])
    for index in range(2, 6):
        c.scalar(index)
    total, per_class = c.int_value(3), c.int_value(2)
    if total is not None and total <= 0:
        raise InvalidArgumentError(f"max_total_size must be above zero, not {total}")
    size: Dim = total
    if c.attr("pad_per_class"):
        unknown = total is None or per_class is None or scores[2] is None
        size = None if unknown else min(total or 0, (per_class or 0) * scores[2])
    rows = TensorShape([batch, size])
    return [TensorShape([batch, size, 4]), rows, rows, TensorShape([batch])]


register_function("NonMaxSuppressionV2", function=nms_v2, kind=KernelKind.EXPENSIVE)
register_function("NonMaxSuppressionV3", function=nms_v3, kind=KernelKind.EXPENSIVE)
register_function("NonMaxSuppressionWithOverlaps", function=nms_with_overlaps, kind=KernelKind.EXPENSIVE)

_TYPES = "T: {float16, float32} = float32; T_threshold: {float16, float32} = float32"
_V3_INPUTS = "boxes: T, scores: T, max_output_size: int32, iou_threshold: T_threshold, score_threshold: T_threshold"
_PAD = "pad_to_max_output_size: bool = False"
register_op(
    "NonMaxSuppression",
    "boxes: float32, scores: float32, max_output_size: int32 -> selected_indices: int32",
    "iou_threshold: float = 0.5",
    shape=nms_shape,
)
register_op(
    "NonMaxSuppressionV2",
    "boxes: T, scores: T, max_output_size: int32, iou_threshold: T_threshold -> selected_indices: int32",
    _TYPES,
    shape=nms_shape,
)
register_op("NonMaxSuppressionV3", _V3_INPUTS + " -> selected_indices: int32", _TYPES, shape=nms_shape)
register_op(
    "NonMaxSuppressionV4",
    _V3_INPUTS + " -> selected_indices: int32, valid_outputs: int32",
    f"{_TYPES}; {_PAD}",
    shape=nms_shape,
)
register_op(
    "NonMaxSuppressionV5",
    "boxes: T, scores: T, max_output_size: int32, iou_threshold: T, score_threshold: T, soft_nms_sigma: T "
    "-> selected_indices: int32, selected_scores: T, valid_outputs: int32",
    "T: {float16, float32} = float32; " + _PAD,
    shape=nms_shape,
)
register_op(
    "NonMaxSuppressionWithOverlaps",
    "overlaps: float32, scores: float32, max_output_size: int32, overlap_threshold: float32, "
    "score_threshold: float32 -> selected_indices: int32",
    shape=overlaps_shape,
)
register_op(
    "CombinedNonMaxSuppression",
    "boxes: float32, scores: float32, max_output_size_per_class: int32, max_total_size: int32, "
    "iou_threshold: float32, score_threshold: float32 -> nmsed_boxes: float32, nmsed_scores: float32, "
    "nmsed_classes: float32, valid_detections: int32",
    "pad_per_class: bool = False; clip_boxes: bool = True",
    shape=combined_shape,
)
