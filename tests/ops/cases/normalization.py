"""Batch normalization, its gradients, and local response normalization."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ops.cases.convolution import data
from tests.ops.op_case import OpCase, case, f32

X = data(2, 3, 4, 2)
SCALE, OFFSET = f32(1, 2), f32(0.5, -1)
MEAN, VARIANCE = f32(0.25, -0.5), f32(2, 0.5)
NONE = f32()
V1, V2, V3 = "FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"


def unknown_values(one: OpCase) -> OpCase:
    """In inference TensorFlow leaves the reserves as they were in memory."""
    return OpCase(one.op, one.inputs, one.attrs, one.id, compare=False)


def gradient(op: str, id: str, x: Any = X, **attrs: Any) -> OpCase:
    reserve = [f32(0)] if op.endswith("V3") else []
    return case(op, x * x, x, SCALE, MEAN, VARIANCE, *reserve, id=id, rtol=1e-4, atol=1e-4, **attrs)


CASES = [
    case(V1, X, SCALE, OFFSET, NONE, NONE, id="train"),
    case(V2, X, SCALE, OFFSET, NONE, NONE, id="train", epsilon=0.01),
    case(V3, X, SCALE, OFFSET, NONE, NONE, id="train"),
    case(V3, X, SCALE, OFFSET, MEAN, VARIANCE, id="average", exponential_avg_factor=0.25),
    case(V3, X[:1, :1, :1], SCALE, OFFSET, NONE, NONE, id="one-cell"),
    case(V3, X.astype(np.float16), SCALE, OFFSET, NONE, NONE, id="f16", rtol=2e-3, atol=2e-3),
    case(V3, data(2, 2, 3, 2), SCALE, OFFSET, NONE, NONE, id="nchw", data_format=b"NCHW"),
    case(V3, data(2, 2, 3, 2, 2), SCALE, OFFSET, NONE, NONE, id="ndhwc", data_format=b"NDHWC"),
    unknown_values(case(V1, X, SCALE, OFFSET, MEAN, VARIANCE, id="inference", is_training=False)),
    unknown_values(case(V3, X, SCALE, OFFSET, MEAN, VARIANCE, id="inference", is_training=False)),
    unknown_values(case(V3, X[:0], SCALE, OFFSET, NONE, NONE, id="empty")),
    case(V3, X, SCALE, OFFSET, NONE, NONE, id="error-average", exponential_avg_factor=0.5),
    case(V3, X, SCALE, OFFSET, NONE, NONE, id="error-inference", is_training=False),
    case(V3, X, f32(1, 2, 3), OFFSET, NONE, NONE, id="error-scale"),
    case(V3, X[0], SCALE, OFFSET, NONE, NONE, id="error-rank"),
    gradient("FusedBatchNormGrad", "train"),
    gradient("FusedBatchNormGradV2", "train", epsilon=0.01),
    gradient("FusedBatchNormGradV3", "train"),
    gradient("FusedBatchNormGradV3", "inference", is_training=False),
    gradient("FusedBatchNormGradV3", "ndhwc", data(1, 2, 3, 2, 2), data_format=b"NDHWC"),
    case("FusedBatchNormGradV3", X[:1], X, SCALE, MEAN, VARIANCE, f32(0), id="error-shape"),
    case("LRN", data(2, 3, 2, 7), id="default"),
    case("LRN", data(2, 3, 2, 7), id="attrs", depth_radius=2, bias=2.0, alpha=0.1, beta=0.75),
    case("LRN", data(2, 3, 2, 7), id="radius-zero", depth_radius=0),
    case("LRN", data(2, 3, 2, 7).astype(np.float16), id="f16", rtol=5e-3, atol=1e-3),
    case("LRN", data(3, 2, 7), id="error-rank"),
]
