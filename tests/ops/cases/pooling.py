"""Pooling and its gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tests.ops.cases.convolution import data
from tests.ops.op_case import OpCase, case, f32, i32


def pool(
    op: str, *inputs: Any, id: str, k: Any = (2, 2), s: Any = (1, 1), padding: bytes = b"SAME", **a: Any
) -> OpCase:
    return case(op, *inputs, id=id, ksize=[1, *k, 1], strides=[1, *s, 1], padding=padding, **a)


X = data(2, 5, 6, 3)
X3 = data(1, 4, 5, 3, 2)
MAX_TYPES = [np.float64, np.float16, np.int32, np.int64, np.uint8, np.int8, np.int16, np.uint16]


def forward(op: str) -> list[OpCase]:
    return [
        pool(op, X, id="same"),
        pool(op, X, id="same-strides", k=(3, 2), s=(2, 3)),
        pool(op, X, id="valid", k=(3, 3), s=(2, 2), padding=b"VALID"),
        pool(op, X, id="global", k=(5, 6), padding=b"VALID"),
        pool(op, X, id="one", k=(1, 1)),
        pool(op, X, id="one-strided", k=(1, 1), s=(2, 2)),
        pool(op, X[:, :2, :2], id="larger-than-input", k=(5, 5)),
        pool(op, X[:0], id="empty"),
        pool(op, X[:, :2], id="error-too-large", k=(3, 3), padding=b"VALID"),
        pool(op, X[0], id="error-rank"),
        pool(op, X, id="error-zero", k=(0, 1)),
        case(op, X, id="error-batch", ksize=[2, 1, 1, 1], strides=[1, 1, 1, 1], padding=b"SAME"),
        case(op, X, id="error-stride", ksize=[1, 1, 1, 1], strides=[1, 0, 1, 1], padding=b"SAME"),
    ]


def gradients(op: str, x: Any, y: Any, **k: Any) -> OpCase:
    return pool(op, x, y, data(*y.shape, seed=7), **k)


TIES = (data(2, 5, 6, 3) > 0).astype(np.float32)


Y3 = sliding_window_view(X3, (2, 3, 1), (1, 2, 3)).max((-1, -2, -3))[:, ::2]
B3 = (X3 > 0).astype(np.float32)
C3 = sliding_window_view(B3, (2, 3, 1), (1, 2, 3)).max((-1, -2, -3))[:, ::2]
PADDED = np.pad(B3, [(0, 0), (0, 1), (0, 1), (0, 1), (0, 0)])
D3 = sliding_window_view(PADDED, (2, 2, 2), (1, 2, 3)).max((-1, -2, -3))
V2 = "MaxPoolV2"
CASES = [
    *forward("MaxPool"),
    *forward("AvgPool"),
    *(pool("MaxPool", (X * 8).astype(t), id=t.__name__) for t in MAX_TYPES),
    *(pool("AvgPool", X.astype(t), id=t.__name__, rtol=2e-3) for t in (np.float64, np.float16)),
    pool(
        "MaxPool",
        f32(-np.inf, -np.inf, 1, np.inf, -1, -2).reshape(1, 1, 6, 1),
        id="infinite",
        k=(1, 2),
        padding=b"VALID",
    ),
    pool("MaxPool", X, id="explicit", padding=b"EXPLICIT", explicit_paddings=[0, 0, 1, 1, 0, 1, 0, 0]),
    pool("MaxPool", X, id="error-pads", padding=b"EXPLICIT", explicit_paddings=[0, 0, 2, 1, 0, 1, 0, 0]),
    case("MaxPool", data(2, 2, 2, 6), id="depth", ksize=[1, 1, 1, 3], strides=[1, 1, 1, 3], padding=b"SAME"),
    case("MaxPool", data(2, 2, 2, 6), id="error-depth", ksize=[1, 1, 1, 3], strides=[1, 1, 1, 2], padding=b"SAME"),
    case("MaxPool", data(2, 2, 2, 6), id="error-both", ksize=[1, 2, 1, 3], strides=[1, 1, 1, 3], padding=b"SAME"),
    case("AvgPool", data(2, 2, 2, 6), id="error-depth", ksize=[1, 1, 1, 3], strides=[1, 1, 1, 3], padding=b"SAME"),
    case(V2, X, i32(1, 3, 2, 1), i32(1, 2, 2, 1), id="same", padding=b"SAME"),
    case(V2, X, i32(1, 3, 2, 1), i32(1, 2, 2, 1), id="valid", padding=b"VALID"),
    case(V2, X, i32(1, 3, 2), i32(1, 2, 2, 1), id="error-ksize", padding=b"VALID"),
    pool("MaxPool3D", X3, id="same", k=(2, 2, 2), s=(1, 1, 1)),
    pool("MaxPool3D", X3, id="valid", k=(2, 3, 1), s=(2, 1, 1), padding=b"VALID"),
    pool("AvgPool3D", X3, id="same", k=(2, 2, 2), s=(1, 1, 1)),
    pool("AvgPool3D", X3, id="valid", k=(2, 3, 1), s=(2, 1, 1), padding=b"VALID"),
    pool("MaxPoolWithArgmax", X, id="same"),
    pool("MaxPoolWithArgmax", TIES, id="ties", k=(3, 3), s=(2, 2)),
    pool("MaxPoolWithArgmax", X, id="valid", k=(3, 2), s=(2, 2), padding=b"VALID"),
    pool("MaxPoolWithArgmax", X, id="batch", include_batch_in_index=True),
    pool("MaxPoolWithArgmax", X, id="i32", Targmax="int32"),
    pool("MaxPoolWithArgmax", (X * 8).astype(np.int64), id="int64"),
    pool(
        "MaxPoolWithArgmax",
        f32(np.nan, 1, -np.inf, -np.inf).reshape(1, 1, 4, 1),
        id="special",
        k=(1, 2),
        padding=b"VALID",
    ),
    gradients("MaxPoolGrad", X, data(2, 5, 6, 3), id="error-grad", padding=b"VALID"),
    pool("MaxPoolGrad", TIES, TIES, data(2, 5, 6, 3, seed=5), id="same"),
    pool("MaxPoolGrad", X, X[:, :2, :3], data(2, 2, 3, 3, seed=5), id="valid", k=(3, 2), s=(2, 2), padding=b"VALID"),
    pool("MaxPoolGrad", X.astype(np.float64), X.astype(np.float64), X.astype(np.float64), id="f64"),
    pool("MaxPoolGrad", X.astype(np.float16), X.astype(np.float16), X.astype(np.float16), id="f16", rtol=2e-3),
    pool(
        "MaxPoolGrad",
        X,
        data(2, 6, 6, 3),
        data(2, 6, 6, 3),
        id="explicit",
        padding=b"EXPLICIT",
        explicit_paddings=[0, 0, 1, 1, 0, 1, 0, 0],
    ),
    case("MaxPoolGradV2", TIES, TIES, X, i32(1, 2, 3, 1), i32(1, 1, 1, 1), id="same", padding=b"SAME"),
    pool("MaxPool3DGrad", X3, Y3, data(1, 2, 3, 3, 2, seed=3), id="valid", k=(2, 3, 1), s=(2, 1, 1), padding=b"VALID"),
    pool("MaxPool3DGrad", B3, C3, data(1, 2, 3, 3, 2, seed=3), id="ties", k=(2, 3, 1), s=(2, 1, 1), padding=b"VALID"),
    pool("MaxPool3DGrad", B3, D3, data(1, 4, 5, 3, 2, seed=3), id="same", k=(2, 2, 2), s=(1, 1, 1)),
    pool("AvgPoolGrad", i32(2, 5, 6, 3), data(2, 5, 6, 3), id="same"),
    pool("AvgPoolGrad", i32(2, 5, 6, 3), data(2, 2, 3, 3), id="valid", k=(3, 2), s=(2, 2), padding=b"VALID"),
    pool("AvgPoolGrad", i32(2, 5, 6, 3), data(2, 5, 6, 3, dtype=np.float64), id="f64"),
    pool("AvgPoolGrad", i32(2, 5, 6), data(2, 5, 6, 3), id="error-sizes"),
    pool("AvgPool3DGrad", i32(1, 4, 5, 3, 2), data(1, 4, 5, 3, 2), id="same", k=(2, 2, 2), s=(1, 1, 1)),
]
