"""Resizing, cropping, and their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ops.cases.convolution import data
from tests.ops.op_case import OpCase, case, f32, i32

X = data(2, 4, 5, 3)
SIZES = {"larger": (7, 9), "smaller": (3, 2), "same": (4, 5), "one": (1, 1), "mixed": (9, 2)}
CENTERS: dict[str, dict[str, Any]] = {
    "legacy": {},
    "corners": {"align_corners": True},
    "half": {"half_pixel_centers": True},
}
TYPES = [np.uint8, np.int8, np.int16, np.uint16, np.int32, np.int64, np.float16, np.float64]


def resizes(op: str) -> list[OpCase]:
    cases = [
        case(op, X, i32(*size), id=f"{name}-{centers}", rtol=1e-4, atol=1e-5, **attrs)
        for name, size in SIZES.items()
        for centers, attrs in CENTERS.items()
        if not (op == "ResizeArea" and centers == "half")
    ]
    cases += [case(op, (X * 8).astype(t), i32(6, 3), id=t.__name__, rtol=1e-4, atol=1e-4) for t in TYPES]
    cases += [case(op, X[:0], i32(3, 3), id="empty"), case(op, X[..., :0], i32(3, 3), id="no-channels")]
    cases += [
        case(op, X, i32(0, 3), id="error-zero"),
        case(op, X, i32(-1, 3), id="error-negative"),
        case(op, X, i32(3, 3, 3), id="error-size"),
        case(op, X[0], i32(3, 3), id="error-rank"),
        case(op, X[:, :0], i32(3, 3), id="error-no-image"),
    ]
    return cases


def gradients(op: str, original: Any, kind: str) -> list[OpCase]:
    return [
        case(op, data(2, *size, 3), original, id=f"{kind}-{name}-{centers}", rtol=1e-4, atol=1e-4, **attrs)
        for name, size in SIZES.items()
        for centers, attrs in CENTERS.items()
    ]


def translate(id: str, kernel: bytes = b"lanczos3", antialias: bool = True, **k: Any) -> OpCase:
    scale, translation = k.pop("scale", f32(1.5, 0.6)), k.pop("translation", f32(0.3, -0.7))
    size = k.pop("size", i32(5, 4))
    return case(
        "ScaleAndTranslate",
        *(k.pop("x", X), size, scale, translation),
        id=id,
        rtol=1e-4,
        atol=1e-4,
        kernel_type=kernel,
        antialias=antialias,
    )


KERNELS = [b"lanczos1", b"lanczos3", b"lanczos5", b"gaussian", b"box", b"triangle", b"keyscubic", b"mitchellcubic"]
BOXES = f32([0, 0, 1, 1], [0.1, 0.2, 0.7, 0.9], [1, 1, 0, 0], [-0.5, -0.2, 1.3, 0.5])
INDEX = i32(0, 1, 1, 0)


def crop(id: str, boxes: Any = BOXES, index: Any = INDEX, size: Any = (3, 4), x: Any = X, **attrs: Any) -> OpCase:
    return case("CropAndResize", x, boxes, index, i32(*size), id=id, atol=1e-5, **attrs)


CASES = [
    *resizes("ResizeBilinear"),
    *resizes("ResizeNearestNeighbor"),
    *resizes("ResizeBicubic"),
    *resizes("ResizeArea"),
    case("ResizeBilinear", X, i32(3, 3), id="error-both", align_corners=True, half_pixel_centers=True),
    *gradients("ResizeBilinearGrad", X, "f32"),
    case("ResizeBilinearGrad", data(2, 3, 3, 3), X.astype(np.float64), id="f64"),
    *gradients("ResizeBicubicGrad", X, "f32"),
    *gradients("ResizeNearestNeighborGrad", i32(4, 5), "f32"),
    case("ResizeNearestNeighborGrad", data(1, 3, 3, 1, dtype=np.int32), i32(2, 2), id="i32"),
    case("ResizeNearestNeighborGrad", data(1, 3, 3, 1), i32(2, 0), id="error-zero"),
    *(translate(f"{k.decode()}-{a}", k, a) for k in KERNELS for a in (True, False)),
    translate("u8", x=(X * 8 + 20).astype(np.uint8)),
    translate("outside", translation=f32(10, -10)),
    translate("error-scale", scale=f32(0, 1)),
    translate("error-kernel", b"nonsense"),
    translate("error-size", size=i32(0, 4)),
    crop("bilinear"),
    crop("nearest", method=b"nearest"),
    crop("fill", extrapolation_value=-3.5),
    crop("one", size=(1, 1)),
    crop("one-nearest", size=(1, 3), method=b"nearest"),
    crop("u8", x=(X * 8 + 20).astype(np.uint8)),
    crop("f64", x=X.astype(np.float64)),
    crop("no-boxes", boxes=BOXES[:0], index=INDEX[:0]),
    crop("error-index", index=i32(0, 1, 2, 0)),
    crop("error-negative-index", index=i32(0, -1, 1, 0)),
    crop("error-size", size=(0, 1)),
    crop("error-length", index=i32(0, 1)),
    crop("error-columns", boxes=BOXES[:, :3]),
    crop("error-nan", boxes=f32([0, 0, 1, np.nan]), index=i32(0)),
]
