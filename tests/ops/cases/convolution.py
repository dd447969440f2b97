"""Convolutions, their gradients, depthwise convolutions and morphology."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ops.op_case import OpCase, case, i32, i64


def data(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Any:
    """Numbers with a few bits, so that half-size floats hold them."""
    rng = np.random.default_rng(seed + sum(shape))
    values = rng.integers(-16, 17, shape)
    return (values / 8 if np.dtype(dtype).kind == "f" else values).astype(dtype)


ONES = [1, 1, 1, 1]


def conv(
    x: Any, f: Any, id: str, strides: Any = (1, 1), padding: bytes = b"SAME", op: str = "Conv2D", **attrs: Any
) -> OpCase:
    return case(op, x, f, id=id, strides=[1, *strides, 1], padding=padding, **attrs)


FORWARD = [
    conv(data(2, 6, 5, 3), data(3, 3, 3, 4), "same"),
    conv(data(2, 6, 5, 3), data(3, 3, 3, 4), "valid", padding=b"VALID"),
    conv(data(2, 7, 8, 3), data(3, 2, 3, 4), "same-strides", (2, 3)),
    conv(data(2, 7, 8, 3), data(3, 2, 3, 4), "valid-strides", (3, 2), b"VALID"),
    conv(data(1, 9, 9, 2), data(3, 3, 2, 2), "dilated", dilations=[1, 2, 3, 1]),
    conv(data(1, 9, 9, 2), data(3, 3, 2, 2), "dilated-valid", padding=b"VALID", dilations=[1, 2, 2, 1]),
    conv(data(1, 9, 9, 2), data(3, 3, 2, 2), "dilated-strided", (2, 2), dilations=[1, 2, 2, 1]),
    conv(
        data(1, 5, 6, 2), data(3, 3, 2, 3), "explicit", padding=b"EXPLICIT", explicit_paddings=[0, 0, 2, 1, 0, 3, 0, 0]
    ),
    conv(data(2, 5, 5, 4), data(1, 1, 4, 3), "pointwise"),
    conv(data(2, 5, 5, 4), data(1, 1, 4, 3), "pointwise-strided", (2, 2)),
    conv(data(2, 5, 4, 4), data(5, 4, 4, 3), "whole", padding=b"VALID"),
    conv(data(2, 5, 5, 6), data(3, 3, 3, 4), "two-groups"),
    conv(data(2, 5, 5, 4), data(3, 3, 1, 8), "four-groups", (2, 2)),
    conv(data(1, 4, 4, 2, dtype=np.float64), data(2, 2, 2, 2, dtype=np.float64), "f64"),
    conv(data(1, 4, 4, 2, dtype=np.float16), data(2, 2, 2, 2, dtype=np.float16), "f16"),
    conv(data(1, 4, 4, 2, dtype=np.int32), data(2, 2, 2, 2, dtype=np.int32), "i32"),
    conv(data(0, 4, 4, 2), data(2, 2, 2, 2), "empty-batch"),
    conv(data(2, 4, 4, 2), data(2, 2, 2, 0), "no-filters"),
    conv(data(1, 2, 2, 1), data(5, 5, 1, 1), "same-window-larger"),
    conv(data(1, 3, 3, 1), data(2, 2, 1, 1), "window-less-than-stride", (3, 3)),
    conv(data(1, 2, 2, 1), data(3, 3, 1, 1), "error-window-too-large", padding=b"VALID"),
    conv(data(1, 4, 4, 3), data(2, 2, 2, 2), "error-depth"),
    conv(data(1, 4, 4, 4), data(2, 2, 2, 3), "error-groups"),
    conv(data(4, 4, 3), data(2, 2, 3, 2), "error-rank"),
    conv(data(1, 4, 4, 3), data(2, 3, 2), "error-filter-rank"),
    conv(data(1, 4, 4, 3), data(2, 2, 3, 2), "error-zero-stride", (0, 1)),
    conv(data(1, 4, 4, 3), data(2, 2, 3, 2), "error-no-pads", padding=b"EXPLICIT"),
    conv(data(1, 4, 4, 3), data(2, 2, 3, 2), "error-needless-pads", explicit_paddings=[0] * 8),
    case("Conv2D", data(1, 4, 4, 3), data(2, 2, 3, 2), id="error-batch-stride", strides=[2, 1, 1, 1], padding=b"SAME"),
    case("Conv2D", data(1, 4, 4, 3), data(2, 2, 3, 2), id="error-three-strides", strides=[1, 1, 1], padding=b"SAME"),
    conv(data(1, 4, 4, 3), data(2, 2, 3, 2), "error-dilation", dilations=[1, 0, 1, 1]),
    conv(data(2, 4, 5, 5, 2), data(2, 3, 2, 2, 3), "same", (1, 1, 1), op="Conv3D"),
    conv(data(1, 5, 5, 5, 2), data(2, 3, 2, 2, 3), "strided", (2, 1, 3), op="Conv3D"),
    conv(data(1, 5, 5, 5, 2), data(2, 3, 2, 2, 3), "valid", (1, 2, 1), b"VALID", op="Conv3D"),
    conv(data(1, 4, 4, 4, 2), data(1, 1, 1, 2, 3), "pointwise", (1, 1, 1), op="Conv3D"),
    conv(data(1, 4, 4, 4, 1, dtype=np.float64), data(2, 2, 2, 1, 1, dtype=np.float64), "f64", (1, 1, 1), op="Conv3D"),
    conv(data(1, 4, 4, 4, 2), data(2, 2, 2, 3, 1), "error-depth", (1, 1, 1), op="Conv3D"),
    conv(data(1, 2, 4, 4, 2), data(3, 2, 2, 2, 1), "error-too-large", (1, 1, 1), b"VALID", op="Conv3D"),
]


def grad_input(sizes: Any, f: Any, dy: Any, id: str, strides: Any = (1, 1), padding: bytes = b"SAME", **k: Any) -> Any:
    op = k.pop("op", "Conv2DBackpropInput")
    return case(op, sizes, f, dy, id=id, strides=[1, *strides, 1], padding=padding, atol=1e-5, **k)


def grad_filter(x: Any, sizes: Any, dy: Any, id: str, strides: Any = (1, 1), padding: bytes = b"SAME", **k: Any) -> Any:
    op = k.pop("op", "Conv2DBackpropFilter")
    return case(op, x, sizes, dy, id=id, strides=[1, *strides, 1], padding=padding, atol=1e-5, **k)


PADS = [0, 0, 2, 1, 0, 3, 0, 0]
GRADIENTS = [
    grad_input(i32(2, 6, 5, 3), data(3, 3, 3, 4), data(2, 6, 5, 4), "same"),
    grad_input(i32(2, 7, 8, 3), data(3, 2, 3, 4), data(2, 4, 4, 4), "same-strides", (2, 2)),
    grad_input(i32(2, 7, 8, 3), data(3, 2, 3, 4), data(2, 2, 3, 4), "valid-strides", (3, 3), b"VALID"),
    grad_input(
        i32(1, 5, 6, 2), data(3, 3, 2, 3), data(1, 6, 7, 3), "explicit", padding=b"EXPLICIT", explicit_paddings=PADS
    ),
    grad_input(i32(2, 5, 5, 4), data(1, 1, 4, 3), data(2, 5, 5, 3), "pointwise"),
    grad_input(i32(6, 5), data(3, 3, 3, 4), data(2, 6, 5, 4), "two-sizes"),
    grad_input(i32(1, 4, 4, 1), data(2, 2, 1, 1, dtype=np.float64), data(1, 4, 4, 1, dtype=np.float64), "f64"),
    grad_input(i32(1, 4, 4, 1), data(2, 2, 1, 1, dtype=np.float16), data(1, 4, 4, 1, dtype=np.float16), "f16"),
    grad_input(i32(0, 4, 4, 1), data(2, 2, 1, 1), data(0, 4, 4, 1), "empty"),
    grad_input(i32(2, 6, 5, 3), data(3, 3, 3, 4), data(2, 5, 5, 4), "error-spatial"),
    grad_input(i32(1, 6, 5, 3), data(3, 3, 3, 4), data(2, 6, 5, 4), "error-batch"),
    grad_input(i32(2, 6, 5, 2), data(3, 3, 3, 4), data(2, 6, 5, 4), "error-depth"),
    grad_input(i32(2, 6, 5, 3), data(3, 3, 3, 4), data(2, 6, 5, 5), "error-out-depth"),
    grad_input(i32(6, 5, 3), data(3, 3, 3, 4), data(2, 6, 5, 4), "error-three-sizes"),
    grad_filter(data(2, 6, 5, 3), i32(3, 3, 3, 4), data(2, 6, 5, 4), "same"),
    grad_filter(data(2, 7, 8, 3), i32(3, 2, 3, 4), data(2, 4, 4, 4), "same-strides", (2, 2)),
    grad_filter(data(2, 7, 8, 3), i32(3, 2, 3, 4), data(2, 2, 3, 4), "valid-strides", (3, 3), b"VALID"),
    grad_filter(
        data(1, 5, 6, 2), i32(3, 3, 2, 3), data(1, 6, 7, 3), "explicit", padding=b"EXPLICIT", explicit_paddings=PADS
    ),
    grad_filter(data(1, 4, 4, 1, dtype=np.float64), i32(2, 2, 1, 1), data(1, 4, 4, 1, dtype=np.float64), "f64"),
    grad_filter(data(0, 4, 4, 1), i32(2, 2, 1, 1), data(0, 4, 4, 1), "empty"),
    grad_filter(data(2, 6, 5, 3), i32(3, 3, 3, 4), data(2, 5, 5, 4), "error-spatial"),
    grad_filter(data(2, 6, 5, 3), i32(3, 3, 3), data(2, 6, 5, 4), "error-three-sizes"),
    grad_input(
        i32(1, 4, 5, 5, 2), data(2, 3, 2, 2, 3), data(1, 4, 5, 5, 3), "same", (1, 1, 1), op="Conv3DBackpropInputV2"
    ),
    grad_input(
        i64(1, 5, 5, 5, 2),
        data(2, 3, 2, 2, 3),
        data(1, 2, 2, 2, 3),
        "strided-i64",
        (2, 2, 2),
        b"VALID",
        op="Conv3DBackpropInputV2",
    ),
    grad_input(
        i32(1, 4, 5, 5, 2), data(2, 3, 2, 2, 3), data(1, 4, 5, 4, 3), "error", (1, 1, 1), op="Conv3DBackpropInputV2"
    ),
    grad_filter(
        data(1, 4, 5, 5, 2), i32(2, 3, 2, 2, 3), data(1, 4, 5, 5, 3), "same", (1, 1, 1), op="Conv3DBackpropFilterV2"
    ),
    grad_filter(
        data(1, 5, 5, 5, 2), i32(2, 3, 2, 2, 3), data(1, 3, 3, 3, 3), "strided", (2, 2, 2), op="Conv3DBackpropFilterV2"
    ),
]

D = "DepthwiseConv2dNative"
DI, DF = D + "BackpropInput", D + "BackpropFilter"
DEPTHWISE = [
    conv(data(2, 6, 5, 3), data(3, 3, 3, 1), "same", op=D),
    conv(data(2, 6, 5, 3), data(3, 3, 3, 2), "multiplier", op=D),
    conv(data(2, 7, 8, 3), data(3, 2, 3, 2), "strided", (2, 2), op=D),
    conv(data(2, 7, 8, 3), data(3, 2, 3, 1), "valid", (2, 2), b"VALID", op=D),
    conv(
        data(1, 5, 6, 2),
        data(3, 3, 2, 1),
        "explicit",
        padding=b"EXPLICIT",
        explicit_paddings=[0, 0, 2, 1, 0, 3, 0, 0],
        op=D,
    ),
    conv(data(1, 4, 4, 2, dtype=np.float64), data(2, 2, 2, 1, dtype=np.float64), "f64", op=D),
    conv(data(1, 4, 4, 2, dtype=np.float16), data(2, 2, 2, 1, dtype=np.float16), "f16", op=D, rtol=1e-3),
    conv(data(0, 4, 4, 2), data(2, 2, 2, 1), "empty", op=D),
    conv(data(1, 4, 4, 2), data(2, 2, 3, 1), "error-depth", op=D),
    conv(data(1, 4, 4, 2), data(2, 2, 2, 1), "error-unequal-strides", (1, 2), op=D),
    conv(data(1, 2, 2, 2), data(3, 3, 2, 1), "error-too-large", padding=b"VALID", op=D),
    grad_input(i32(2, 6, 5, 3), data(3, 3, 3, 2), data(2, 6, 5, 6), "same", op=DI),
    grad_input(i32(2, 7, 8, 3), data(3, 2, 3, 1), data(2, 3, 4, 3), "strided", (2, 2), b"VALID", op=DI),
    grad_input(i32(2, 6, 5, 3), data(3, 3, 3, 2), data(2, 6, 5, 5), "error-depth", op=DI),
    grad_input(i32(6, 5, 3), data(3, 3, 3, 2), data(2, 6, 5, 6), "error-sizes", op=DI),
    grad_filter(data(2, 6, 5, 3), i32(3, 3, 3, 2), data(2, 6, 5, 6), "same", op=DF),
    grad_filter(data(2, 7, 8, 3), i32(3, 2, 3, 1), data(2, 4, 4, 3), "strided", (2, 2), op=DF),
    grad_filter(data(2, 6, 5, 3), i32(3, 3, 3, 2), data(2, 6, 4, 6), "error-spatial", op=DF),
]


def dilation(op: str, *inputs: Any, id: str, s: int = 1, r: int = 1, padding: bytes = b"SAME") -> OpCase:
    return case(op, *inputs, id=id, strides=[1, s, s, 1], rates=[1, r, r, 1], padding=padding)


MORPHOLOGY = [
    dilation("Dilation2D", data(2, 5, 6, 2), data(3, 2, 2), id="same"),
    dilation("Dilation2D", data(2, 7, 7, 2), data(2, 3, 2), id="strided", s=2),
    dilation("Dilation2D", data(1, 7, 7, 2), data(2, 3, 2), id="rate", r=2, padding=b"VALID"),
    dilation("Dilation2D", data(1, 5, 5, 2, dtype=np.int32), data(2, 3, 2, dtype=np.int32), id="i32"),
    dilation("Dilation2D", data(1, 5, 5, 2, dtype=np.float64), data(2, 3, 2, dtype=np.float64), id="f64"),
    dilation("Dilation2D", data(1, 5, 5, 2, dtype=np.uint8) % 50, data(2, 3, 2, dtype=np.uint8) % 50, id="u8"),
    dilation("Dilation2D", data(1, 5, 5, 2), data(2, 3, 3), id="error-depth"),
    dilation("Dilation2D", data(1, 2, 2, 2), data(3, 3, 2), id="x"),
    dilation("Dilation2DBackpropInput", data(2, 5, 6, 2), data(3, 2, 2), data(2, 5, 6, 2, seed=1), id="same"),
    dilation("Dilation2DBackpropFilter", data(2, 5, 6, 2), data(3, 2, 2), data(2, 5, 6, 2, seed=1), id="same"),
    dilation("Dilation2DBackpropInput", data(2, 5, 6, 2), data(3, 2, 2), data(2, 5, 5, 2), id="error"),
    dilation("Dilation2D", data(1, 2, 2, 2), data(5, 5, 2), id="error-too-large", padding=b"VALID"),
]

CASES = FORWARD + GRADIENTS + DEPTHWISE + MORPHOLOGY
