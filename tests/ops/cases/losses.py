"""Losses and what measures predictions."""

from __future__ import annotations

import numpy as np

from tests.ops.op_case import case, f32, f64, i32, i64

RNG = np.random.default_rng(3)
LOGITS = (RNG.normal(size=(3, 4)) * 3).astype(np.float32)
LABELS = RNG.dirichlet(np.ones(4), 3).astype(np.float32)
XENT, SPARSE = "SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits"
PREDICTIONS = f32([0.1, 0.3, 0.2, 0.4], [0.4, 0.4, 0.1, 0.1], [np.nan, 0, 1, 2], [np.inf, 0, 1, 2], [1, 1, 1, 1])

CASES = [
    case(XENT, LOGITS, LABELS, id="f32"),
    case(XENT, LOGITS.astype(np.float64), LABELS.astype(np.float64), id="f64"),
    case(XENT, LOGITS.astype(np.float16), LABELS.astype(np.float16), id="f16", rtol=1e-2, atol=2e-3),
    case(XENT, LOGITS, LABELS[:1], id="broadcast"),
    case(XENT, LOGITS[:1], LABELS, id="broadcast-logits"),
    case(XENT, LOGITS, f32([1]), id="broadcast-classes"),
    case(XENT, f32().reshape(0, 4), f32().reshape(0, 4), id="empty"),
    case(XENT, f32([1000, -1000, 0]), f32([0, 1, 0]), id="large"),
    case(XENT, LOGITS, LABELS[:2], id="error-batch"),
    case(XENT, LOGITS[0], LABELS[0], id="error-rank"),
    case(SPARSE, LOGITS, i32(0, 3, 1), id="i32"),
    case(SPARSE, LOGITS, i64(0, 3, 1), id="i64"),
    case(SPARSE, LOGITS.astype(np.float64), i64(0, 3, 1), id="f64"),
    case(SPARSE, LOGITS.astype(np.float16), i64(0, 3, 1), id="f16", rtol=1e-2, atol=2e-3),
    case(SPARSE, f32().reshape(0, 4), i64(), id="empty"),
    case(SPARSE, f32().reshape(2, 0), i64(0, 0), id="error-no-classes"),
    case(SPARSE, LOGITS, i64(0, 4, 1), id="error-label"),
    case(SPARSE, LOGITS, i64(0, -1, 1), id="error-negative-label"),
    case(SPARSE, LOGITS, i64(0, 1), id="error-batch"),
    case(SPARSE, LOGITS, i64([0, 1, 2]), id="error-label-rank"),
    case("L2Loss", LOGITS, id="f32"),
    case("L2Loss", f64(1, 2, 3), id="f64"),
    case("L2Loss", f32(1, 2, 3).astype(np.float16), id="f16"),
    case("L2Loss", np.float32(3), id="scalar"),
    case("L2Loss", f32(), id="empty"),
    case("InTopK", PREDICTIONS, i32(1, 0, 2, 2, 3), id="two", k=2),
    case("InTopK", PREDICTIONS, i64(3, 4, -1, 0, 0), id="i64", k=1),
    case("InTopK", PREDICTIONS, i32(1, 0, 2, 2, 3), id="all", k=10),
    case("InTopK", PREDICTIONS, i32(1, 0, 2, 2, 3), id="zero", k=0),
    case("InTopK", PREDICTIONS, i32(1, 0, 2), id="error-batch", k=2),
    case("InTopK", PREDICTIONS[0], i32(1), id="error-rank", k=2),
    case("InTopKV2", PREDICTIONS, i32(1, 0, 2, 2, 3), np.int32(2), id="two"),
    case("InTopKV2", PREDICTIONS, i64(3, 1, 0, 0, 2), np.int64(1), id="i64"),
    case("InTopKV2", f32().reshape(0, 4), i32(), np.int32(1), id="empty"),
    case("InTopKV2", PREDICTIONS, i32(1, 0, 2, 2, 3), i32(2), id="error-k"),
]
