"""NonMaxSuppression: of boxes that overlap, the one with the best score; class by class."""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.kernel import Kernel, KernelKind
from asyncexec.ops.onnx.arrays import need, need_rank
from asyncexec.ops.onnx.onnx_kernels import OnnxNode, onnx_kernel


def _number(value: Any, what: str) -> float:
    if value is None or not np.size(value):
        return 0.0
    need(np.size(value) == 1, f"{what} must be one number, not shape {list(np.shape(value))}")
    return float(np.reshape(value, ()))


@onnx_kernel("NonMaxSuppression", since=10, kind=KernelKind.EXPENSIVE)
def make_non_max_suppression(node: OnnxNode) -> Kernel:
    """The kernel of NonMaxSuppression."""
    is_centered = bool(node.attr("center_point_box", 0))

    def kernel(
        boxes: Array, scores: Array, limit: object = None, overlap: object = None, least: Any = None
    ) -> tuple[Array]:
        need_rank(boxes, 3, "boxes")
        need_rank(scores, 3, "scores")
        need(
            boxes.shape[2] == 4 and boxes.shape[0] == scores.shape[0] and boxes.shape[1] == scores.shape[2],
            f"boxes {list(boxes.shape)} and scores {list(scores.shape)} do not fit each other",
        )
        most = max(0, int(_number(limit, "max_output_boxes_per_class")))
        threshold = np.float32(_number(overlap, "iou_threshold"))
        need(bool(0 <= threshold <= 1), f"iou_threshold must be from 0 to 1, not {threshold}")
        floor = None if least is None or not np.size(least) else np.float32(_number(least, "score_threshold"))
        found = [
            (image, kind, box)
            for image in range(len(boxes))
            for kind in range(scores.shape[1])
            for box in _best(_corners(boxes[image], is_centered), scores[image, kind], most, threshold, floor)
        ]
        return (np.array(found, np.int64).reshape(-1, 3),)

    return kernel


def _corners(boxes: Array, is_centered: bool) -> Array:
    """Each box as its lower and its upper corner."""
    if is_centered:
        half = boxes[:, 2:] / 2
        return np.concatenate([boxes[:, :2] - half, boxes[:, :2] + half], 1)
    return np.concatenate([np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])], 1)


def _best(boxes: Array, scores: Array, most: int, threshold: object, floor: object) -> list[int]:
    """The numbers of the boxes that stay, the best first."""
    order = np.argsort(-scores, kind="stable")
    if floor is not None:
        order = order[scores[order] > floor]
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(1)
    kept: list[int] = []
    while len(order) and len(kept) < most:
        box, order = int(order[0]), order[1:]
        kept.append(box)
        low, high = np.maximum(boxes[box, :2], boxes[order, :2]), np.minimum(boxes[box, 2:], boxes[order, 2:])
        shared = np.maximum(high - low, 0).prod(1)
        union = areas[box] + areas[order] - shared
        order = order[~((shared > 0) & (union > 0) & (shared / union > threshold))]
    return kept
