"""Slice and the StridedSlice family."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ops.array_values import POD_STRING, values
from tests.ops.op_case import OpCase, case, f32, i32, i64, text

X = values("int32", 3, 4)
V = values("int32", 7)
CUBE = values("int32", 2, 3, 4)
NONE = np.array([], np.int32)


def strided(id: str, x: Any, begin: list[int], end: list[int], strides: list[int], /, **masks: int) -> OpCase:
    spec = [np.array(part, np.int32) for part in (begin, end, strides)]
    return case("StridedSlice", x, *spec, id=id, **{f"{name}_mask": bits for name, bits in masks.items()})


def grad(
    id: str, shape: list[int], begin: list[int], end: list[int], strides: list[int], dy: Any, /, **masks: int
) -> OpCase:
    spec = [np.array(part, np.int32) for part in (shape, begin, end, strides)]
    return case("StridedSliceGrad", *spec, dy, id=id, **{f"{name}_mask": bits for name, bits in masks.items()})


def update(
    id: str, x: Any, begin: list[int], end: list[int], strides: list[int], value: Any, /, **masks: int
) -> OpCase:
    spec = [np.array(part, np.int32) for part in (begin, end, strides)]
    return case("TensorStridedSliceUpdate", x, *spec, value, id=id, **{f"{n}_mask": bits for n, bits in masks.items()})


CASES = [
    *(case("Slice", values(d, 3, 4), i32(1, 0), i32(2, 3), id=d) for d in POD_STRING),
    case("Slice", X, i64(1, 1), i64(-1, 2), id="to the end"),
    case("Slice", X, i32(3, 0), i32(-1, -1), id="empty"),
    case("Slice", X, i32(0, 0), i32(0, 4), id="nothing"),
    case("Slice", np.float32(3), NONE, NONE, id="scalar"),
    case("Slice", b"s", NONE, NONE, id="scalar string"),
    case("Slice", X, i32(0, 2), i32(3, 3), id="too long"),
    case("Slice", X, i32(0, 5), i32(3, -1), id="begins too late"),
    case("Slice", X, i32(0, -1), i32(3, 1), id="negative begin"),
    case("Slice", X, i32(0, 1), i32(3, -2), id="negative size"),
    case("Slice", X, i32(0), i32(3), id="too few"),
    case("Slice", X, i32(0, 0), i32(3), id="other lengths"),
    *(case("StridedSlice", values(d, 3, 4), i32(0, 3), i32(3, 0), i32(2, -1), id=d) for d in POD_STRING),
    case("StridedSlice", V, i64(1), i64(6), i64(2), id="int64 spec"),
    case("StridedSlice", V, np.array([1], np.int16), np.array([6], np.int16), np.array([2], np.int16), id="int16 spec"),
    strided("plain", X, [0, 1], [2, 3], [1, 1]),
    strided("fewer than dims", CUBE, [1], [2], [1]),
    strided("none", CUBE, [], [], []),
    strided("begin mask", V, [3], [5], [1], begin=1),
    strided("end mask", V, [3], [5], [1], end=1),
    strided("both masks backwards", V, [3], [5], [-2], begin=1, end=1),
    strided("begin mask backwards", V, [3], [2], [-1], begin=1),
    strided("end mask backwards", V, [3], [2], [-1], end=1),
    strided("negative ends", V, [-4], [-1], [1]),
    strided("clamped", V, [-100], [100], [3]),
    strided("clamped backwards", V, [100], [-100], [-3]),
    strided("empty", V, [5], [2], [1]),
    strided("empty backwards", V, [2], [5], [-1]),
    strided("beyond", V, [9], [20], [1]),
    strided("beyond the front backwards", V, [-20], [-30], [-1]),
    strided("shrink", X, [1, 0], [2, 4], [1, 1], shrink_axis=1),
    strided("shrink both", X, [1, -1], [0, 0], [1, 1], shrink_axis=3),
    strided("shrink ignores end and begin mask", X, [2, 0], [0, 0], [1, 1], shrink_axis=1, begin=1, end=3),
    strided("shrink stride 2", V, [4], [5], [2], shrink_axis=1),
    strided("shrink of string", text(b"a", b"b"), [1], [2], [1], shrink_axis=1),
    strided("ellipsis", CUBE, [0, 1], [0, 3], [1, 1], ellipsis=1),
    strided("ellipsis middle", CUBE, [1, 0, 1], [2, 0, 3], [1, 1, 1], ellipsis=2),
    strided("ellipsis of nothing", X, [1, 0, 1], [2, 0, 3], [1, 1, 1], ellipsis=2),
    strided("ellipsis stride 0", CUBE, [0, 1], [0, 3], [0, 1], ellipsis=1),
    strided("new axis", X, [0, 1, 0], [0, 2, 4], [1, 1, 1], new_axis=1),
    strided("new axis last", X, [0, 0, 0], [3, 4, 0], [1, 1, 1], new_axis=4),
    strided("new axis after ellipsis", CUBE, [0, 0, 1], [0, 0, 2], [1, 1, 1], ellipsis=1, new_axis=2),
    strided("new axis wins over shrink", X, [0, 1], [1, 2], [1, 1], new_axis=1, shrink_axis=1),
    strided("ellipsis wins over new axis", X, [0, 1], [1, 2], [1, 1], ellipsis=1, new_axis=1),
    strided("all together", CUBE, [0, 0, 0, 2], [1, 0, 0, 0], [1, 1, 1, -1], ellipsis=2, new_axis=4, shrink_axis=1),
    strided("scalar", np.float32(3), [], [], []),
    strided("scalar with new axes", np.float32(3), [0, 0], [0, 0], [1, 1], new_axis=3),
    strided("scalar string with new axis", b"x", [0], [0], [1], new_axis=1),
    strided("scalar ellipsis", np.float32(3), [0], [0], [1], ellipsis=1),
    strided("empty input", values("float32", 0, 3), [0, 1], [5, 3], [1, 1]),
    strided("shrink out of bounds", V, [7], [8], [1], shrink_axis=1),
    strided("shrink out of bounds back", V, [-8], [-7], [1], shrink_axis=1),
    strided("shrink stride -1", V, [3], [2], [-1], shrink_axis=1),
    strided("stride 0", V, [1], [2], [0]),
    strided("stride 0 of shrink", V, [1], [2], [0], shrink_axis=1),
    strided("too many", V, [0, 0], [1, 1], [1, 1]),
    strided("index of scalar", np.float32(3), [0], [1], [1]),
    strided("two ellipses", CUBE, [0, 0], [0, 0], [1, 1], ellipsis=3),
    strided("other lengths", V, [0, 1], [1], [1]),
    case("StridedSlice", V, np.int32(0), np.int32(1), np.int32(1), id="scalar spec"),
    *(grad(d, [3, 4], [0, 3], [3, 0], [2, -1], values(d, 2, 3, start=1)) for d in POD_STRING),
    grad("shrink", [3, 4], [1, 0], [2, 4], [1, 1], f32(1, 2, 3, 4), shrink_axis=1),
    grad("shrink both", [3, 4], [1, -1], [0, 0], [1, 1], np.float32(9), shrink_axis=3),
    grad("new axis", [3], [0, 1], [0, 3], [1, 1], f32([1, 2]), new_axis=1),
    grad("ellipsis", [2, 3], [0, 1], [0, 3], [1, 1], f32([1, 2], [3, 4]), ellipsis=1),
    grad("masks", [5], [1], [2], [2], f32(1, 2, 3), begin=1, end=1),
    grad("other shape", [5], [1], [3], [1], f32(1, 2, 3)),
    grad("does not broadcast", [5], [1], [3], [1], f32(1)),
    grad("out of bounds", [5], [5], [6], [1], np.float32(1), shrink_axis=1),
    *(update(d, values(d, 3, 4), [0, 3], [3, 0], [2, -1], values(d, 2, 3, start=50)) for d in POD_STRING),
    update("shrink", values("float32", 3, 2), [1, 0], [2, 2], [1, 1], f32(7, 8), shrink_axis=1),
    update("shrink all", values("float32", 3), [1], [2], [1], np.float32(7), shrink_axis=1),
    update("empty", values("float32", 3), [2], [1], [1], np.zeros(0, np.float32)),
    update("new axis", values("float32", 3), [0, 1], [0, 3], [1, 1], f32([1, 2]), new_axis=1),
    update("scalar value", values("float32", 3), [1], [3], [1], np.float32(5)),
    update("broadcast value", values("float32", 3, 2), [1, 0], [3, 2], [1, 1], f32(5, 6)),
    update("broadcast one", values("float32", 3), [0], [3], [1], f32(5)),
    update("other shape", values("float32", 3), [0], [3], [1], f32(5, 6)),
    update("higher rank", values("float32", 3), [0], [3], [1], f32([5, 6, 7])),
    update("out of bounds", values("float32", 3), [3], [4], [1], np.float32(7), shrink_axis=1),
]
