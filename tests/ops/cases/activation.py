"""Activations, softmax, bias, and their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ops.op_case import OpCase, case, f32, i32

X = f32(-100, -3, -1, -0.5, -1e-4, 0, 1e-4, 0.5, 1, 3, 5.5, 6, 7, 100)
SPECIAL = f32(np.inf, -np.inf, np.nan, 0, -0.0)
FLOATS = [np.float64, np.float16]
UNARY = ["Relu", "Relu6", "LeakyRelu", "Elu", "Selu", "Softplus", "Softsign"]
GRADS = ["ReluGrad", "Relu6Grad", "LeakyReluGrad", "EluGrad", "SeluGrad", "SoftplusGrad", "SoftsignGrad"]


def tolerance(dtype: Any) -> float:
    return 2e-3 if dtype is np.float16 else 1e-6


def unary(op: str) -> list[OpCase]:
    cases = [
        case(op, X.reshape(2, 7), id="f32"),
        case(op, SPECIAL, id="special"),
        case(op, np.float32(-1.5), id="scalar"),
        case(op, f32().reshape(0, 3), id="empty"),
    ]
    return cases + [
        case(op, X[1:-1].astype(t), id=t.__name__, rtol=tolerance(t), atol=tolerance(t) / 4) for t in FLOATS
    ]


def gradient(op: str) -> list[OpCase]:
    grads = np.linspace(-2, 3, len(X)).astype(np.float32)
    cases = [
        case(op, grads, X, id="f32"),
        case(op, np.float32(2), np.float32(-0.5), id="scalar"),
        case(op, f32(), f32(), id="empty"),
        case(op, f32(1, 2, 3), f32(1, 2), id="error-shape"),
    ]
    return cases + [
        case(op, grads[1:-1].astype(t), X[1:-1].astype(t), id=t.__name__, rtol=tolerance(t), atol=tolerance(t) / 4)
        for t in FLOATS
    ]


INTEGERS = [np.int8, np.uint8, np.int16, np.int32, np.int64, np.uint16, np.uint32, np.uint64]
INTEGER_CASES = [
    case(op, np.array([-8, -1, 0, 1, 5, 6, 7, 100]).astype(t), id=t.__name__)
    for op in ("Relu", "Relu6")
    for t in INTEGERS
]
GRAD_INTEGERS = [
    case(op, np.arange(8).astype(t), np.array([-8, -1, 0, 1, 5, 6, 7, 100]).astype(t), id=t.__name__)
    for op in ("ReluGrad", "Relu6Grad")
    for t in INTEGERS
]

LOGITS = np.random.default_rng(1).normal(size=(2, 3, 4)).astype(np.float32) * 4
SOFTMAX = [
    variant
    for op in ("Softmax", "LogSoftmax")
    for variant in (
        case(op, LOGITS, id="f32"),
        case(op, LOGITS[0, 0], id="vector"),
        case(op, LOGITS.astype(np.float64), id="f64"),
        case(op, LOGITS.astype(np.float16), id="f16", rtol=2e-3, atol=2e-3),
        case(op, f32(1000, -1000, 0), id="large"),
        case(op, f32(-np.inf, 0, 1), id="inf"),
        case(op, f32().reshape(2, 0), id="no-classes"),
        case(op, f32().reshape(0, 3), id="empty"),
        case(op, np.float32(1), id="error-scalar"),
    )
]

BIAS = [
    case("BiasAdd", LOGITS, f32(1, 2, 3, 4), id="f32"),
    case("BiasAdd", LOGITS[0], f32(1, 2, 3, 4), id="matrix"),
    case("BiasAdd", LOGITS, f32(1, 2, 3), id="nchw", data_format=b"NCHW"),
    case(
        "BiasAdd",
        np.arange(24, dtype=np.float64).reshape(1, 2, 3, 4),
        f32(1, 2).astype(np.float64),
        id="nchw4",
        data_format=b"NCHW",
    ),
    case("BiasAdd", np.arange(6, dtype=np.int32).reshape(2, 3), i32(1, 2, 3), id="i32"),
    case("BiasAdd", LOGITS[0].astype(np.complex64), f32(1, 2, 3, 4).astype(np.complex64), id="c64"),
    case("BiasAdd", LOGITS.astype(np.float16), f32(1, 2, 3, 4).astype(np.float16), id="f16", rtol=1e-3),
    case("BiasAdd", f32().reshape(0, 4), f32(1, 2, 3, 4), id="empty"),
    case("BiasAdd", LOGITS, f32(1, 2, 3), id="error-length"),
    case("BiasAdd", LOGITS, f32(1), id="error-one"),
    case("BiasAdd", f32(1, 2), f32(1, 2), id="error-rank"),
    case("BiasAdd", LOGITS, f32(1, 2, 3, 4).reshape(1, 4), id="error-bias-rank"),
    case("BiasAddV1", LOGITS, f32(1, 2, 3, 4), id="f32"),
    case("BiasAddV1", LOGITS, f32(1, 2, 3), id="error-length"),
    case("BiasAddGrad", LOGITS, id="f32"),
    case("BiasAddGrad", LOGITS, id="nchw", data_format=b"NCHW"),
    case("BiasAddGrad", LOGITS.astype(np.float64), id="f64"),
    case("BiasAddGrad", np.arange(6, dtype=np.int32).reshape(2, 3), id="i32"),
    case("BiasAddGrad", np.arange(6, dtype=np.float16).reshape(2, 3), id="f16"),
    case("BiasAddGrad", f32().reshape(0, 3), id="empty"),
    case("BiasAddGrad", f32(1, 2), id="error-rank"),
]

CASES = (
    [one for op in UNARY for one in unary(op)]
    + [one for op in GRADS for one in gradient(op)]
    + [case("LeakyRelu", X, id="alpha", alpha=0.5), case("LeakyRelu", X, id="steep", alpha=1.5)]
    + [case("LeakyReluGrad", X, X, id="alpha", alpha=1.5)]
    + INTEGER_CASES
    + GRAD_INTEGERS
    + SOFTMAX
    + BIAS
)
