"""Reductions of segments."""

from __future__ import annotations

import numpy as np

from tests.ops.cases.math import COMPLEX, FLOATS, NAN, SIGNED, UNSIGNED, of, rtol
from tests.ops.op_case import OpCase, case, f32, i32, i64

ROWS = f32([1, -2], [3, 4], [5, 6], [-7, 0.5])
NO_IDS = np.zeros(0, np.int32)


def sorted_cases() -> list[OpCase]:
    cases = []
    for op in ("SegmentSum", "SegmentMean", "SegmentProd", "SegmentMax", "SegmentMin"):
        kinds = (*FLOATS, *SIGNED, *UNSIGNED) + (() if op in ("SegmentMax", "SegmentMin") else COMPLEX)
        for dtype in kinds:
            cases.append(case(op, of(dtype, 5, 2, 3, 100), i32(0, 0, 2, 2), id=dtype, rtol=rtol(dtype)))
        cases += [
            case(op, of("int8", 100, 100, 100), i32(0, 0, 0), id="overflow"),
            case(op, i32(1, -2, -3), i32(0, 0, 1), id="negative"),
            case(op, ROWS, i64(0, 0, 1, 1), id="rows"),
            case(op, ROWS, i32(1, 1, 4, 4), id="ids left out"),
            case(op, np.ones((2, 2, 0), np.float32), i32(0, 0), id="empty rows"),
            case(op, ROWS[:0], NO_IDS, id="no rows"),
            case(op, f32(1, NAN, 3), i32(0, 0, 1), id="NaN"),
            case(op, ROWS, i32(-1, 0, 1, 1), id="negative id"),
            case(op, ROWS, i32(0, 2, 1, 3), id="unsorted"),
            case(op, ROWS, i32(0, 1), id="too few ids"),
            case(op, ROWS, i32([0, 0], [1, 1]), id="matrix of ids"),
            case(op, np.float32(1), i32(0), id="scalar data"),
        ]
    return cases


def unsorted_cases() -> list[OpCase]:
    cases = []
    for op in ("UnsortedSegmentSum", "UnsortedSegmentProd", "UnsortedSegmentMax", "UnsortedSegmentMin"):
        kinds = (*FLOATS, *SIGNED, *UNSIGNED) + (() if op[15:] in ("Max", "Min") else COMPLEX)
        for dtype in kinds:
            data, ids = of(dtype, 5, 2, 3, 100), i32(2, 0, 2, 3)
            cases.append(case(op, data, ids, np.int32(5), id=dtype, rtol=1e-2 if dtype == "bfloat16" else rtol(dtype)))
        cases += [
            case(op, ROWS, i64(3, 0, 3, 1), np.int64(4), id="rows"),
            case(op, ROWS, i32(1, -1, 1, -5), np.int32(2), id="negative ids"),
            case(op, ROWS, i32([0, 1], [1, 0], [2, 2], [0, 0]), np.int32(3), id="matrix of ids"),
            case(op, f32(1, 2), np.int32(1), np.int32(2), id="scalar id"),
            case(op, np.float32(1), np.int32(1), np.int32(2), id="scalars"),
            case(op, ROWS[:0], NO_IDS, np.int32(2), id="no rows"),
            case(op, ROWS[:0], NO_IDS, np.int32(0), id="nothing"),
            case(op, f32(1, NAN, 3), i32(0, 0, 1), np.int32(2), id="NaN"),
            case(op, ROWS, i32(0, 1, 2, 4), np.int32(4), id="id too large"),
            case(op, ROWS, i32(0, 1, 2, 3), np.int32(-1), id="negative num_segments"),
            case(op, ROWS, i32(0, 1, 2), np.int32(4), id="too few ids"),
            case(op, ROWS, i32(0, 1, 2, 3), i32(4), id="num_segments is a vector"),
        ]
    return cases


def sparse_cases() -> list[OpCase]:
    cases = []
    for name in ("Sum", "Mean", "SqrtN"):
        op = f"SparseSegment{name}"
        for dtype in FLOATS:
            data = of(dtype, [1, 2], [3, 4], [5, 6])
            cases.append(case(op, data, i32(0, 2, 1), i32(0, 0, 2), id=dtype, rtol=rtol(dtype)))
            sized = case(
                f"{op}WithNumSegments", data, i32(0, 2, 1), i32(0, 0, 2), np.int32(4), id=dtype, rtol=rtol(dtype)
            )
            cases.append(sized)
            grad = case(f"{op}Grad", data, i32(3, 0, 3, 1), i32(0, 0, 1, 2), np.int32(5), id=dtype, rtol=rtol(dtype))
            cases.append(grad)
        cases += [
            case(op, ROWS, i64(0, 3, 3), i64(1, 1, 3), id="ids left out"),
            case(op, ROWS, NO_IDS, NO_IDS, id="nothing"),
            case(op, ROWS, i32(0, 4, 1), i32(0, 0, 1), id="index too large"),
            case(op, ROWS, i32(0, -1, 1), i32(0, 0, 1), id="negative index"),
            case(op, ROWS, i32(0, 2, 1), i32(0, 2, 1), id="unsorted"),
            case(op, ROWS, i32(0, 2, 1), i32(-1, 0, 1), id="negative id"),
            case(op, ROWS, i32(0, 2), i32(0, 0, 1), id="lengths differ"),
            case(op, np.float32(1), i32(0), i32(0), id="scalar data"),
            case(op, ROWS, i32([0]), i32([0]), id="matrix of ids"),
            case(f"{op}WithNumSegments", ROWS, i32(0, 2, 1), i32(0, 0, 2), np.int32(2), id="num_segments too small"),
            case(f"{op}WithNumSegments", ROWS, NO_IDS, NO_IDS, np.int32(2), id="nothing"),
            case(f"{op}WithNumSegments", ROWS, i32(0), i32(0), np.int32(-1), id="negative num_segments"),
            case(f"{op}WithNumSegments", ROWS, i32(0), i32(0), i32(1), id="num_segments is a vector"),
            case(f"{op}Grad", ROWS, i32(3, 0, 7, 1), i32(0, 0, 1, 2), np.int32(5), id="index too large"),
        ]
    kinds = (*SIGNED, *UNSIGNED)
    data, indices, ids = (5, 2, 3, 100), i32(0, 2, 1), i32(0, 0, 2)
    return cases + [case("SparseSegmentSum", of(dtype, *data), indices, ids, id=dtype) for dtype in kinds]


CASES = sorted_cases() + unsorted_cases() + sparse_cases()
