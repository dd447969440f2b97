"""Colours, boxes, patches, and the reading and writing of images."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ops.cases.convolution import data
from tests.ops.op_case import OpCase, case, f32, i32

RNG = np.random.default_rng(11)
RGB = np.concatenate(
    [RNG.random((30, 3)), [[0, 0, 0], [1, 1, 1], [0.5, 0.5, 0.2], [1, 0, 0], [0, 1, 1], [0.3, 0.3, 0.3]]]
)
RGB = RGB.reshape(3, 4, 3, 3).astype(np.float32)
COLORS = [
    *(case(op, RGB, id="f32") for op in ("RGBToHSV", "HSVToRGB")),
    *(case(op, RGB.astype(np.float64), id="f64", atol=1e-5) for op in ("RGBToHSV", "HSVToRGB")),
    *(case(op, RGB[0, 0, 0], id="vector") for op in ("RGBToHSV", "HSVToRGB")),
    *(case(op, RGB[:0], id="empty") for op in ("RGBToHSV", "HSVToRGB")),
    *(case(op, RGB[..., :2], id="error-channels") for op in ("RGBToHSV", "HSVToRGB")),
    *(
        case(op, RGB, np.float32(amount), id=f"amount{amount}", atol=1e-5)
        for op in ("AdjustHue", "AdjustSaturation", "AdjustContrastv2")
        for amount in (0, 0.3, 0.9, 1.7)
    ),
    case("AdjustHue", RGB, np.float32(-0.4), id="negative", atol=1e-5),
    *(
        variant
        for op in ("AdjustHue", "AdjustSaturation", "AdjustContrastv2")
        for variant in (
            case(op, RGB[0], np.float32(0.2), id="one-image", atol=1e-5),
            case(op, RGB[0, 0], np.float32(0.2), id="error-rank"),
            case(op, RGB, f32(0.2), id="error-amount"),
            case(op, RGB[:0], np.float32(0.2), id="empty"),
        )
    ),
    case("AdjustHue", RGB[..., :2], np.float32(0.2), id="error-channels"),
    case("AdjustContrastv2", RGB[..., :2], np.float32(0.2), id="two-channels"),
]

BOXES = f32(
    [0, 0, 1, 1],
    [0, 0.1, 1, 1.1],
    [0, -0.1, 1, 0.9],
    [0, 10, 1, 11],
    [1, 10.1, 0, 11.1],
    [0, 100, 1, 101],
    [0, 0, 0, 0],
)
SCORES = f32(0.9, 0.75, 0.6, 0.95, 0.5, 0.3, 0.75)
HALF, LOW = np.float32(0.5), np.float32(0.4)
N = np.int32


def nms(version: str, *args: Any, id: str, boxes: Any = BOXES, scores: Any = SCORES, **attrs: Any) -> OpCase:
    return case(f"NonMaxSuppression{version}", boxes, scores, *args, id=id, **attrs)


H = np.float16
SUPPRESSION = [
    nms("", N(3), id="three"),
    nms("", N(30), id="all", iou_threshold=0.9),
    nms("V2", N(3), HALF, id="three"),
    nms("V2", N(0), HALF, id="none"),
    nms("V2", N(9), np.float32(0), id="no-overlap"),
    nms("V3", N(9), HALF, LOW, id="least"),
    nms("V3", N(9), H(0.5), H(0.4), id="f16", boxes=BOXES.astype(H), scores=SCORES.astype(H)),
    nms("V3", N(9), HALF, np.float32(-np.inf), id="infinite"),
    nms("V3", N(9), HALF, LOW, id="empty", boxes=BOXES[:0], scores=SCORES[:0]),
    nms("V3", N(9), HALF, LOW, id="ties", scores=f32(1, 1, 1, 1, 1, 1, 1)),
    nms("V3", N(-1), HALF, LOW, id="error-negative"),
    nms("V3", N(9), np.float32(1.5), LOW, id="error-threshold"),
    nms("V3", N(9), HALF, LOW, id="error-scores", scores=SCORES[:3]),
    nms("V3", N(9), HALF, LOW, id="error-columns", boxes=BOXES[:, :3]),
    nms("V3", i32(9), HALF, LOW, id="error-limit"),
    nms("V4", N(9), HALF, LOW, id="plain"),
    nms("V4", N(9), HALF, LOW, id="padded", pad_to_max_output_size=True),
    nms("V5", N(9), HALF, LOW, np.float32(0), id="hard"),
    nms("V5", N(6), HALF, np.float32(0), np.float32(0.5), id="soft"),
    nms("V5", N(6), HALF, np.float32(0.3), np.float32(0.2), id="soft-least", pad_to_max_output_size=True),
    nms("V5", N(6), HALF, np.float32(0), np.float32(-1), id="error-sigma"),
    case(
        "NonMaxSuppressionWithOverlaps",
        f32([1, 0.6, 0], [0.6, 1, 0.3], [0, 0.3, 1]),
        f32(0.5, 0.9, 0.7),
        N(3),
        HALF,
        LOW,
        id="f32",
    ),
    case("NonMaxSuppressionWithOverlaps", f32([1, 0.6, 0]), f32(0.5), N(3), HALF, LOW, id="error-square"),
]
B4 = np.stack([BOXES, BOXES[::-1]])[:, :, None] / np.float32(2)
CLASSES = RNG.permutation(42).reshape(2, 7, 3).astype(np.float32) / np.float32(42)


def combined(*sizes: int, id: str, boxes: Any = B4, least: float = 0.2, iou: float = 0.5, **attrs: Any) -> OpCase:
    args = (*(N(size) for size in sizes), np.float32(iou), np.float32(least))
    return case("CombinedNonMaxSuppression", boxes, CLASSES, *args, id=id, **attrs)


COMBINED = [
    combined(2, 5, id="shared"),
    combined(2, 50, id="padded"),
    combined(2, 50, id="per-class", pad_per_class=True),
    combined(3, 5, id="unclipped", clip_boxes=False),
    combined(3, 5, id="own-boxes", boxes=np.concatenate([B4, B4 * 0.5, B4 + 0.25], 2).astype(np.float32)),
    combined(3, 5, id="nothing", least=2.0),
    combined(3, 0, id="error-total"),
    combined(0, 3, id="error-per-class"),
    combined(3, 5, id="error-iou", iou=1.5),
    combined(3, 5, id="error-classes", boxes=np.concatenate([B4, B4], 2)),
]


def patches(x: Any, k: Any, s: Any, r: Any, padding: bytes, id: str) -> OpCase:
    return case(
        "ExtractImagePatches", x, id=id, ksizes=[1, *k, 1], strides=[1, *s, 1], rates=[1, *r, 1], padding=padding
    )


PATCHES = [
    patches(data(2, 5, 6, 2), (3, 2), (1, 2), (1, 1), b"SAME", "same"),
    patches(data(2, 5, 6, 2), (3, 2), (1, 2), (1, 1), b"VALID", "valid"),
    patches(data(1, 7, 7, 1), (2, 2), (2, 2), (2, 3), b"VALID", "rates"),
    patches(data(1, 5, 6, 2, dtype=np.uint8), (2, 2), (2, 2), (1, 1), b"SAME", "u8"),
    patches(data(1, 3, 3, 1).astype(np.complex64), (2, 2), (2, 2), (1, 1), b"SAME", "c64"),
    patches(data(0, 3, 3, 1), (2, 2), (1, 1), (1, 1), b"SAME", "empty"),
    patches(data(3, 3, 1), (2, 2), (1, 1), (1, 1), b"SAME", "error-rank"),
    patches(data(1, 2, 2, 1), (3, 3), (1, 1), (1, 1), b"VALID", "too-large"),
    case(
        "ExtractVolumePatches",
        data(1, 3, 4, 3, 2),
        id="same",
        ksizes=[1, 2, 2, 2, 1],
        strides=[1, 1, 2, 1, 1],
        padding=b"SAME",
    ),
]

CASES = COLORS + SUPPRESSION + COMBINED + PATCHES
