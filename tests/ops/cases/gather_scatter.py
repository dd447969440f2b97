"""Gather, GatherNd, the scatters, DynamicPartition, DynamicStitch, OneHot."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ops.array_values import NUMBER, POD, POD_STRING, REAL, values
from tests.ops.op_case import OpCase, case, f32, i32, i64, text

X = values("float32", 3, 4)
CUBE = values("int32", 2, 3, 4)
NAN = np.float32(np.nan)


def scatter(kind: str, id: str, tensor: Any, indices: Any, updates: Any, **attrs: Any) -> OpCase:
    return case(f"TensorScatter{kind}", tensor, indices, updates, id=id, **attrs)


def stitch(op: str, id: str, indices: list[Any], data: list[Any]) -> OpCase:
    return OpCase(op, [*indices, *data], {"N": len(indices)}, id)


TENSOR_SCATTERS = (("Update", POD_STRING), ("Add", NUMBER), ("Sub", NUMBER), ("Max", REAL), ("Min", REAL))

CASES = [
    *(case("Gather", values(d, 3, 2), i32(2, 0, 2), id=d) for d in POD_STRING),
    case("Gather", X, np.int64(1), id="scalar index"),
    case("Gather", f32(1, 2), np.int32(1), id="to scalar"),
    case("Gather", text(b"a", b"b"), np.int32(1), id="to string"),
    case("Gather", X, i32([0, 1], [2, 2]), id="matrix of indices"),
    case("Gather", X, np.zeros((0, 2), np.int32), id="no indices"),
    case("Gather", values("float32", 0, 2), np.zeros(0, np.int32), id="nothing of nothing"),
    case("Gather", X, i32(0, 3), id="too large"),
    case("Gather", X, i32(0, -1), id="negative"),
    case("Gather", X, np.int32(-1), id="negative scalar"),
    case("Gather", np.float32(1), i32(0), id="of scalar"),
    *(case("GatherV2", values(d, 3, 2), i64(1, 0), np.int32(1), id=d) for d in POD_STRING),
    *(case("GatherV2", CUBE, i32([0, 1], [1, 0]), np.int32(a), id=f"axis {a}") for a in (0, 1, 2, -1, -3)),
    case("GatherV2", X, np.array([1, 0], np.int16), np.int64(0), id="int16 indices"),
    case("GatherV2", X, np.int32(2), np.int32(-1), id="scalar index"),
    case("GatherV2", f32(1, 2), np.int32(1), np.int32(0), id="to scalar"),
    case("GatherV2", CUBE, i32([0, 2], [1, 1]), np.int32(1), id="batch 1", batch_dims=1),
    case("GatherV2", CUBE, i32([0, 2], [1, 1]), np.int32(2), id="batch 1 axis 2", batch_dims=1),
    case("GatherV2", CUBE, i32([0, 2, 3], [1, 1, 0]), np.int32(2), id="batch 2", batch_dims=2),
    case("GatherV2", CUBE, i32([0, 2], [1, 1]), np.int32(-1), id="batch -1", batch_dims=-1),
    case("GatherV2", values("string", 2, 3), i32([0, 2], [1, 1]), np.int32(1), id="batch strings", batch_dims=1),
    case("GatherV2", X, i32(0, 1, 2), np.int32(1), id="batch of scalars", batch_dims=1),
    case("GatherV2", CUBE, i32([0, 2], [1, 3]), np.int32(1), id="batch too large", batch_dims=1),
    case("GatherV2", CUBE, i32([0, 2], [1, 3], [0, 0]), np.int32(1), id="batch of other size", batch_dims=1),
    case("GatherV2", CUBE, i32([0, 2], [1, 1]), np.int32(0), id="axis below batch", batch_dims=1),
    case("GatherV2", CUBE, i32(0, 1), np.int32(1), id="batch too deep", batch_dims=2),
    case("GatherV2", X, i32(0, 4), np.int32(1), id="too large"),
    case("GatherV2", X, i32(-1), np.int32(1), id="negative"),
    case("GatherV2", X, i32(0), np.int32(2), id="axis out of range"),
    case("GatherV2", X, i32(0), np.int32(-3), id="axis out of range back"),
    case("GatherV2", X, i32(0), i32(0), id="vector axis"),
    *(case("GatherNd", values(d, 3, 2), i32([2, 1], [0, 0]), id=d) for d in POD_STRING),
    case("GatherNd", CUBE, i64([1, 2], [0, 0]), id="rows"),
    case("GatherNd", CUBE, np.array([[[1]], [[0]]], np.int16), id="blocks"),
    case("GatherNd", CUBE, i32(1, 2, 3), id="to scalar"),
    case("GatherNd", values("string", 2, 2), i32(1, 1), id="to string"),
    case("GatherNd", X, np.zeros((2, 0), np.int32), id="whole"),
    case("GatherNd", X, np.zeros((0, 2), np.int32), id="no indices"),
    case("GatherNd", values("float32", 0, 2), np.zeros((0, 1), np.int32), id="nothing of nothing"),
    case("GatherNd", X, i32([0, 4]), id="too large"),
    case("GatherNd", X, i32([0, -1]), id="negative"),
    case("GatherNd", X, i32([0, 1, 2]), id="too deep"),
    case("GatherNd", X, np.int32(0), id="scalar index"),
    case("GatherNd", X, i32([0, 4], [1, 1]), id="ignored", bad_indices_policy=b"IGNORE"),
    case("GatherNd", X, i32([0, 4], [1, 1]), id="error", bad_indices_policy=b"ERROR"),
    case("GatherNd", X, i32([0, 0], [1, 1]), id="unknown policy", bad_indices_policy=b"PERHAPS"),
    *(case("ScatterNd", i32([1], [3], [1]), values(d, 3, start=1), i32(5), id=d) for d in POD_STRING),
    case("ScatterNd", i64([0, 1], [1, 0]), f32([1, 2], [3, 4]), i64(2, 2, 2), id="rows"),
    case("ScatterNd", np.zeros((0, 1), np.int32), np.zeros(0, np.float32), i32(3), id="nothing"),
    case("ScatterNd", np.zeros((0, 1), np.int32), np.zeros(0, np.float32), i32(0), id="nothing of nothing"),
    case("ScatterNd", i32([1], [1]), values("float32", 2, 200), i32(2, 200), id="long rows"),
    case("ScatterNd", i32([0]), f32(1), i32(0), id="into nothing"),
    case("ScatterNd", i32([5]), f32(1), i32(5), id="too large"),
    case("ScatterNd", i32([-1]), f32(1), i32(5), id="negative"),
    case("ScatterNd", i32([5], [1]), f32(1, 2), i32(5), id="ignored", bad_indices_policy=b"IGNORE"),
    case("ScatterNd", i32([0]), f32(1, 2), i32(5), id="other count"),
    case("ScatterNd", i32([0]), f32([1, 2]), i32(2, 3), id="other rows"),
    case("ScatterNd", i32([0, 0, 0]), f32(1), i32(5, 5), id="too deep"),
    case("ScatterNd", i32([0]), f32(1), i32(-5), id="negative shape"),
    case("ScatterNd", i32([0]), np.float32(1), i32(5), id="scalar update"),
    case("ScatterNd", i32(0), f32(1), i32(5), id="index vector"),
    *(
        scatter(kind, d, values(d, 4), i32([1], [3], [1]), values(d, 3, start=2))
        for kind, dtypes in TENSOR_SCATTERS
        for d in dtypes
    ),
    *(scatter(kind, "rows", X, i64([1], [0]), values("float32", 2, 4, start=3)) for kind, _ in TENSOR_SCATTERS),
    *(scatter(kind, "nan", f32(1, NAN, 3), i32([0], [1]), f32(NAN, 2)) for kind, _ in TENSOR_SCATTERS),
    *(
        scatter(kind, "nothing", X, np.zeros((0, 1), np.int32), np.zeros((0, 4), np.float32))
        for kind, _ in TENSOR_SCATTERS
    ),
    *(scatter(kind, "too large", X, i32([3]), values("float32", 1, 4)) for kind, _ in TENSOR_SCATTERS),
    *(scatter(kind, "negative", X, i32([-1]), values("float32", 1, 4)) for kind, _ in TENSOR_SCATTERS),
    *(scatter(kind, "other rows", X, i32([0]), values("float32", 1, 3)) for kind, _ in TENSOR_SCATTERS),
    scatter("Update", "scalar", np.float32(1), i32([0]), f32(1)),
    scatter("Update", "whole", X, np.zeros((1, 0), np.int32), values("float32", 1, 3, 4, start=20)),
    scatter("Update", "ignored", X, i32([3], [0]), values("float32", 2, 4), bad_indices_policy=b"IGNORE"),
    scatter("Update", "into nothing", np.zeros((0, 2), np.float32), i32([0]), f32([1, 2])),
    scatter("Update", "entries", X, i32([0, 1], [2, 3]), f32(50, 60)),
    scatter("Add", "entries", X, i32([0, 1], [0, 1], [2, 3]), f32(50, 60, 70)),
    *(case("ScatterNdNonAliasingAdd", values(d, 4), i32([1], [1]), values(d, 2, start=2), id=d) for d in POD),
    case("ScatterNdNonAliasingAdd", values("float32", 4), i32([4]), f32(1), id="too large"),
    *(case("DynamicPartition", values(d, 4), i32(1, 0, 1, 1), id=d, num_partitions=3) for d in POD_STRING),
    case("DynamicPartition", X, i32(1, 0, 1), id="rows", num_partitions=2),
    case("DynamicPartition", X, values("int32", 3, 4) % 2, id="entries", num_partitions=2),
    case("DynamicPartition", f32(1, 2), np.int32(1), id="scalar partition", num_partitions=2),
    case("DynamicPartition", np.zeros((0, 2), np.float32), np.zeros(0, np.int32), id="empty", num_partitions=2),
    case("DynamicPartition", f32(1, 2), i32(0, 2), id="too large", num_partitions=2),
    case("DynamicPartition", f32(1, 2), i32(0, -1), id="negative", num_partitions=2),
    case("DynamicPartition", f32(1, 2), i32(0, 1, 1), id="other length", num_partitions=2),
    *(
        stitch(op, d, [i32(0, 2), np.int32(1)], [values(d, 2, 2), values(d, 2, start=9)])
        for op in ("DynamicStitch", "ParallelDynamicStitch")
        for d in POD_STRING
    ),
    stitch("DynamicStitch", "later wins", [i32(0, 1), i32(1, 2)], [f32(1, 2), f32(3, 4)]),
    stitch("DynamicStitch", "twice in one", [i32(0, 0, 1)], [f32(1, 2, 3)]),
    stitch("DynamicStitch", "scalars", [np.int32(0), np.int32(1)], [np.float32(5), np.float32(6)]),
    stitch("DynamicStitch", "scalar strings", [np.int32(0), np.int32(1)], [b"p", b"q"]),
    stitch("DynamicStitch", "matrix", [i32([0, 1], [3, 2])], [values("int32", 2, 2, 2)]),
    stitch("DynamicStitch", "empty", [np.zeros(0, np.int32)], [np.zeros((0, 3), np.float32)]),
    stitch("DynamicStitch", "negative", [i32(-1, 0)], [f32(1, 2)]),
    stitch("DynamicStitch", "other rest", [i32(0), i32(1)], [values("float32", 1, 2), values("float32", 1, 3)]),
    stitch("DynamicStitch", "other prefix", [i32(0, 1)], [f32(1, 2, 3)]),
    *(case("OneHot", i64(0, 2), np.int32(3), values(d, start=2), values(d, start=1), id=d) for d in POD_STRING),
    *(
        case("OneHot", i32([0, 2, -1], [1, 3, 1]), np.int32(3), np.float32(1), np.float32(0), id=f"axis {a}", axis=a)
        for a in (-1, 0, 1, 2)
    ),
    case("OneHot", np.array([0, 255], np.uint8), np.int32(3), np.float32(1), np.float32(0), id="uint8 indices"),
    case("OneHot", np.array([0, -1], np.int8), np.int32(3), np.float32(1), np.float32(0), id="int8 indices"),
    case("OneHot", np.int64(1), np.int32(3), np.float32(5), np.float32(-1), id="scalar"),
    case("OneHot", i64(0, 2), np.int32(0), np.float32(1), np.float32(0), id="depth 0"),
    case("OneHot", np.zeros(0, np.int64), np.int32(3), np.float32(1), np.float32(0), id="empty"),
    case("OneHot", i64(0, 2), np.int32(-1), np.float32(1), np.float32(0), id="negative depth"),
    case("OneHot", i64(0, 2), i32(3), np.float32(1), np.float32(0), id="vector depth"),
    case("OneHot", i64(0, 2), np.int32(3), f32(1), np.float32(0), id="vector value"),
    case("OneHot", i64(0, 2), np.int32(3), np.float32(1), np.float32(0), id="axis too far", axis=2),
    case("OneHot", i64(0, 2), np.int32(3), np.float32(1), np.float32(0), id="axis -2", axis=-2),
]
