"""Concat, Split, Pack, Unpack and their kin."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ops.array_values import POD, POD_STRING, values
from tests.ops.op_case import OpCase, case, f32, i32, i64, text

X = values("float32", 2, 3)
Y = values("float32", 2, 3, start=10)
NONE = np.array([], np.int32)


def split_v(value: Any, sizes: Any, axis: Any, count: int, id: str) -> OpCase:
    return case("SplitV", value, sizes, axis, id=id, num_split=count)


CASES = [
    *(case("ConcatV2", values(d, 2, 2), values(d, 1, 2, start=4), np.int32(0), id=d) for d in POD_STRING),
    case("ConcatV2", X, Y, np.int32(1), id="axis 1"),
    case("ConcatV2", X, Y, np.int64(-1), id="axis -1"),
    case("ConcatV2", X, values("float32", 2, 0), Y, np.int32(1), id="empty part"),
    case("ConcatV2", values("float32", 0, 3), values("float32", 0, 3), np.int32(0), id="all empty"),
    case("ConcatV2", text(b"a"), text(b"b", b"c"), np.int32(0), id="strings"),
    case("ConcatV2", X, Y, np.int32(2), id="axis out of range"),
    case("ConcatV2", X, Y, np.int32(-3), id="axis out of range back"),
    case("ConcatV2", X, values("float32", 3, 2), np.int32(0), id="does not fit"),
    case("ConcatV2", X, f32(1, 2, 3), np.int32(0), id="other rank"),
    case("ConcatV2", X, Y, i32(0), id="vector axis"),
    case("ConcatV2", np.float32(1), np.float32(2), np.int32(0), id="scalars"),
    case("Concat", np.int32(0), X, Y, id="axis 0"),
    case("Concat", np.int32(-1), X, Y, X, id="three"),
    case("Concat", np.int32(0), text(b"a"), text(b"b"), id="strings"),
    case("Concat", np.int32(5), X, Y, id="axis out of range"),
    case("Concat", np.int32(1), X, values("float32", 3, 2), id="does not fit"),
    case("ConcatOffset", np.int32(1), i32(2, 2, 7), i32(2, 3, 7), i32(2, 9, 7), id="three"),
    case("ConcatOffset", np.int32(-1), i64(2, 7), i64(2, 3), id="int64"),
    case("ConcatOffset", np.int32(1), i32(2, 2), i32(3, 3), id="does not fit"),
    case("ConcatOffset", np.int32(2), i32(2, 2), i32(2, 3), id="axis out of range"),
    case("ConcatOffset", np.int32(0), i32(2, 2), i32(2, 2, 3), id="other rank"),
    *(case("Split", np.int32(1), values(d, 2, 4), id=d, num_split=2) for d in POD_STRING),
    case("Split", np.int32(-1), values("int32", 2, 3, 4), id="axis -1", num_split=4),
    case("Split", np.int32(0), X, id="one", num_split=1),
    case("Split", np.int32(0), values("float32", 0, 3), id="empty", num_split=3),
    case("Split", np.int32(1), X, id="does not divide", num_split=2),
    case("Split", np.int32(2), X, id="axis out of range", num_split=2),
    case("Split", i32(0), X, id="vector axis", num_split=2),
    case("Split", np.int32(0), np.float32(1), id="scalar", num_split=1),
    *(split_v(values(d, 4, 2), i64(1, 3), np.int32(0), 2, d) for d in POD_STRING),
    split_v(values("float32", 2, 6), i32(1, -1, 2), np.int32(1), 3, "inferred"),
    split_v(values("float32", 2, 6), np.array([1, 2, 3], np.int8), np.int32(-1), 3, "int8 sizes"),
    split_v(values("float32", 6), i32(0, 6), np.int32(0), 2, "zero part"),
    split_v(values("float32", 6), i32(6), np.int32(0), 1, "one"),
    split_v(values("float32", 6), i32(-1), np.int32(0), 1, "one inferred"),
    split_v(values("float32", 6), i32(2, 3), np.int32(0), 2, "too short"),
    split_v(values("float32", 6), i32(4, 3), np.int32(0), 2, "too long"),
    split_v(values("float32", 6), i32(7, -1), np.int32(0), 2, "too long, inferred"),
    split_v(values("float32", 6), i32(-1, -1), np.int32(0), 2, "two inferred"),
    split_v(values("float32", 6), i32(-2, 8), np.int32(0), 2, "negative"),
    split_v(values("float32", 6), i32(3, 3), np.int32(1), 2, "axis out of range"),
    split_v(values("float32", 6), i32(3, 3), np.int32(0), 3, "other count"),
    *(case("Pack", values(d, 2), values(d, 2, start=2), id=d) for d in POD_STRING),
    *(case("Pack", values(d), values(d, start=1), values(d, start=2), id=f"{d} scalars") for d in POD_STRING),
    *(case("Pack", X, Y, id=f"axis {axis}", axis=axis) for axis in (0, 1, 2, -1, -2, -3)),
    case("Pack", text(b"a", b"b"), text(b"c", b"d"), id="strings axis 1", axis=1),
    case("Pack", X, id="one"),
    case("Pack", values("float32", 0, 2), values("float32", 0, 2), id="empty"),
    case("Pack", X, Y, id="axis out of range", axis=3),
    case("Pack", np.float32(1), np.float32(2), id="scalars axis -1", axis=-1),
    case("Pack", X, values("float32", 3, 2), id="does not fit"),
    case("Pack", X, values("float32", 1, 3), id="does not broadcast"),
    case("Pack", f32(1), np.float32(2), id="other rank"),
    case("Pack", text(b"a"), b"b", id="strings of other rank"),
    *(case("Unpack", values(d, 2, 2), id=d, num=2) for d in POD_STRING),
    *(
        case("Unpack", values("int32", 2, 3, 2), id=f"axis {axis}", num=n, axis=axis)
        for axis, n in ((1, 3), (-1, 2), (-3, 2))
    ),
    case("Unpack", f32(1, 2, 3), id="scalars", num=3),
    case("Unpack", text(b"a", b"b"), id="scalar strings", num=2),
    case("Unpack", values("float32", 0, 2), id="none", num=0),
    case("Unpack", X, id="other count", num=3),
    case("Unpack", X, id="axis out of range", num=2, axis=2),
    case("Unpack", np.float32(1), id="scalar", num=1),
    *(case("ParallelConcat", values(d, 1, 2), values(d, 1, 2, start=2), id=d, shape=[2, 2]) for d in (*POD, "string")),
    case("ParallelConcat", f32(1), f32(2), id="vectors", shape=[2]),
    case("ParallelConcat", X, Y, id="first not one", shape=[4, 3]),
    case("ParallelConcat", f32(1), f32(2), id="unknown shape", shape=[None]),
]
