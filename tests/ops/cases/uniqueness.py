"""Where, Unique, ListDiff; TopK, NthElement, LowerBound, UpperBound."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ops.array_values import POD, REAL, values
from tests.ops.op_case import OpCase, case, f32, i32, i64

NAN, INF = float("nan"), float("inf")
NONE = np.array([], np.int64)
MANY = (np.arange(600) * 7919 % 97).astype(np.int32)
UNIQUES = ("Unique", "UniqueWithCounts")


def repeated(dtype: str) -> Any:
    return values(dtype, 5)[np.array([3, 1, 3, 4, 1, 0])]


def unique(op: str, id: str, x: Any, **attrs: Any) -> list[OpCase]:
    return [case(op, x, id=id, **attrs), case(f"{op}V2", x, NONE, id=id, **attrs)]


CASES = [
    *(case("Where", values(d, 2, 3), id=d) for d in POD if d != "float16"),
    case("Where", f32(0.0, -0.0, NAN, 1), id="nan"),
    case("Where", np.bool_(True), id="scalar"),
    case("Where", np.bool_(False), id="scalar false"),
    case("Where", np.zeros((0, 3), np.bool_), id="empty"),
    case("Where", values("int32", 2, 2, 2), id="cube"),
    *(c for op in UNIQUES for d in (*REAL, "bool", "string") for c in unique(op, d, repeated(d))),
    *(c for op in UNIQUES for c in unique(op, "int64 idx", repeated("int32"), out_idx="int64")),
    *(c for op in UNIQUES for c in unique(op, "nan", f32(NAN, 1, NAN, 1))),
    *(c for op in UNIQUES for c in unique(op, "zeros", f32(0.0, -0.0, 1))),
    *(c for op in UNIQUES for c in unique(op, "minus zero first", f32(-0.0, 0.0, 1))),
    *(c for op in UNIQUES for c in unique(op, "empty", np.zeros(0, np.float32))),
    *(
        case(f"{op}V2", np.zeros(shape, np.float32), i64(axis), id=f"no elements {shape} {axis}")
        for op in UNIQUES
        for shape in ((0, 2), (2, 0), (0, 0), (2, 0, 3))
        for axis in range(len(shape))
    ),
    *(c for op in UNIQUES for c in unique(op, "many", MANY)),
    *(c for op in UNIQUES for c in unique(op, "many floats", MANY.astype(np.float32) - 3)),
    *(c for op in UNIQUES for c in unique(op, "matrix", i32([1, 2]))),
    *(
        case("UniqueWithCountsV2", i32([1, 2, 1], [3, 4, 3], [1, 2, 1]), i64(axis), id=f"axis {axis}")
        for axis in (0, 1, -1, -2)
    ),
    case("UniqueV2", i32([1, 2, 1], [3, 4, 3], [1, 2, 1]), i32(1), id="int32 axis"),
    case("UniqueV2", f32([NAN, 0.0], [NAN, 0.0], [1, -0.0], [1, 0.0]), i64(0), id="nan rows"),
    case("UniqueV2", values("string", 2, 2)[[0, 1, 0]], i64(0), id="string rows"),
    case("UniqueV2", values("int32", 2, 2, 2)[:, [0, 1, 0]], i64(1), id="cube"),
    case("UniqueV2", i32(3, 1, 3), i64(0), id="vector axis 0"),
    case("UniqueV2", i32(3, 1, 3), i64(1), id="axis out of range"),
    case("UniqueV2", i32(3, 1, 3), i64(0, 0), id="two axes"),
    case("UniqueV2", i32([3, 1]), np.int64(0), id="scalar axis"),
    *(case("ListDiff", repeated(d), values(d, 2), id=d) for d in (*REAL, "string")),
    case("ListDiff", f32(NAN, 1, 0.0), f32(NAN, -0.0), id="nan"),
    case("ListDiff", MANY, np.arange(0, 97, 2).astype(np.int32), id="many", out_idx="int64"),
    case("ListDiff", i32(1, 2), np.zeros(0, np.int32), id="empty y"),
    case("ListDiff", np.zeros(0, np.int32), i32(1), id="empty x"),
    case("ListDiff", i32([1]), i32(1), id="matrix"),
    *(
        case(op, np.sort(values(d, 2, 4), -1), values(d, 2, 3, start=1), id=d)
        for op in ("LowerBound", "UpperBound")
        for d in REAL
    ),
    *(
        case(op, f32([0, 3, 9, 9, 10], [1, 2, 3, 4, 5]), f32([2, 9, 11], [0, 3, INF]), id=f"bounds {out}", out_type=out)
        for op in ("LowerBound", "UpperBound")
        for out in ("int32", "int64")
    ),
    case("LowerBound", f32([1, 2]), f32([1], [2]), id="other rows"),
    case("LowerBound", f32(1, 2), f32(1), id="vectors"),
    case("UpperBound", np.zeros((1, 0), np.float32), f32([1, 2]), id="empty"),
    *(case("TopKV2", repeated(d), np.int32(4), id=d) for d in REAL),
    *(case("TopKV2", repeated("float32"), np.int32(k), id=f"k {k}") for k in (0, 1, 2, 6)),
    case("TopKV2", values("float32", 2, 3, 4) % 3, np.int32(2), id="cube"),
    case("TopKV2", values("int32", 2, 5) % 2, np.int64(5), id="all tied", index_type="int64"),
    case("TopKV2", values("int32", 2, 5) % 2, np.array(3, np.int16), id="int16 k", index_type="int16"),
    case("TopKV2", f32(-INF, INF, 0, -0.0, INF), np.int32(4), id="infinities"),
    case("TopKV2", MANY, np.int32(20), id="many"),
    case("TopKV2", np.stack([MANY, MANY[::-1]]).astype(np.float32), np.int32(7), id="many rows"),
    case("TopKV2", MANY, np.int32(1), id="many, one"),
    case("TopKV2", f32(1, 2), np.int32(3), id="k too large"),
    case("TopKV2", f32(1, 2), np.int32(-1), id="k negative"),
    case("TopKV2", np.float32(1), np.int32(0), id="scalar"),
    case("TopKV2", f32(1, 2), i32(1), id="vector k"),
    case("TopKV2", f32(3, 1, 2), np.int32(1), id="unsorted one", sorted=False),
    case("TopKV2", np.zeros((0, 3), np.float32), np.int32(2), id="empty"),
    *(case("NthElement", repeated(d), np.int32(2), id=d) for d in REAL),
    *(case("NthElement", values("float32", 2, 4), np.int32(1), id=f"reverse {r}", reverse=r) for r in (True, False)),
    case("NthElement", f32(1, 2), np.int32(2), id="too far"),
    case("NthElement", f32(1, 2), np.int32(-1), id="negative"),
    case("NthElement", np.float32(1), np.int32(0), id="scalar"),
    case("NthElement", f32(1, 2), i32(0), id="vector n"),
]
