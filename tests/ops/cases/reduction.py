"""Reductions over axes, ArgMax and ArgMin."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ops.cases.math import COMPLEX, FLOATS, INF, NAN, SIGNED, UNSIGNED, of, rtol
from tests.ops.op_case import OpCase, case, f32, i32, i64

CUBE = np.arange(24, dtype=np.float32).reshape(2, 3, 4) / 7 - 1
NONE = np.zeros(0, np.int32)


def axes_cases(op: str, data: Any) -> list[OpCase]:
    return [
        case(op, data, i32(1), id="one axis"),
        case(op, data, i32(0, 2), id="two axes"),
        case(op, data, i32(-1), id="negative axis"),
        case(op, data, i64(0, 1, 2), id="all axes, int64"),
        case(op, data, np.int32(1), id="scalar axis"),
        case(op, data, NONE, id="no axes"),
        case(op, data, i32(2, 0), id="keep_dims", keep_dims=True),
        case(op, data, np.int32(-2), id="scalar axis, keep_dims", keep_dims=True),
        case(op, data, NONE, id="no axes, keep_dims", keep_dims=True),
        case(op, data[0, 0, 0], NONE, id="scalar"),
        case(op, data[0, 0, 0], np.int32(0), id="axis of a scalar"),
        case(op, data, i32(3), id="axis too large"),
        case(op, data, i32(-4), id="axis too small"),
        case(op, data, i32(1, 1), id="axis twice"),
        case(op, data, i32(1, -2), id="axis twice, once negative"),
        case(op, data, i32([0], [1]), id="matrix of axes"),
        case(op, data[:, :0], i32(1), id="over nothing"),
        case(op, data[:, :0], i32(0), id="of nothing"),
        case(op, data[:, :0], i32(0, 1, 2), id="all of nothing"),
        case(op, data[:1], i32(0), id="axis of one"),
    ]


def reduction_cases() -> list[OpCase]:
    cases = []
    for op in ("Sum", "Mean", "Prod", "EuclideanNorm", "Max", "Min"):
        cases += axes_cases(op, CUBE)
        for dtype in FLOATS:
            cases.append(case(op, of(dtype, [1.5, -2.5, 3], [0.25, 7, -1]), i32(1), id=dtype, rtol=rtol(dtype)))
            cases.append(case(op, np.zeros((0, 2)).astype(of(dtype, 0).dtype), i32(0), id=f"{dtype} over nothing"))
        cases.append(case(op, f32(1, NAN, 3), i32(0), id="NaN"))
        cases.append(case(op, f32([1, INF], [3, -INF]), i32(0), id="infinite"))
        for dtype in SIGNED:
            cases.append(case(op, of(dtype, [7, -8, -3], [100, 50, 3]), i32(1), id=dtype))
            cases.append(case(op, of(dtype, 7, -8, -4), i32(0), id=f"{dtype} negative"))
            cases.append(case(op, np.zeros((0, 2), dtype), i32(0), id=f"{dtype} over nothing"))
            cases.append(case(op, np.full(3, np.iinfo(dtype).max, dtype), i32(0), id=f"{dtype} overflow"))
        for dtype in UNSIGNED:
            cases.append(case(op, of(dtype, [200, 100, 3], [1, 2, 3]), i32(1), id=dtype))
            cases.append(case(op, np.zeros((0, 2), dtype), i32(0), id=f"{dtype} over nothing"))
        if op not in ("Max", "Min"):
            for dtype in COMPLEX:
                cases.append(case(op, of(dtype, [1 + 2j, 3 - 1j], [0.5j, -2]), i32(1), id=dtype))
                cases.append(case(op, np.zeros((0, 2), dtype), i32(0), id=f"{dtype} over nothing"))
    for op in ("All", "Any"):
        cases += axes_cases(op, CUBE > 0.5)
    return cases


def arg_cases() -> list[OpCase]:
    cases = []
    for op in ("ArgMax", "ArgMin"):
        for dtype in (*FLOATS, *SIGNED, *UNSIGNED, "bool"):
            cases.append(case(op, of(dtype, [1, 3, 3, 0], [5, 2, 5, 2]), np.int32(1), id=dtype))
        cases += [
            case(op, CUBE, np.int32(0), id="first axis"),
            case(op, CUBE, np.int64(-2), id="negative axis"),
            case(op, CUBE, np.int32(1), id="to int32", output_type="int32"),
            case(op, f32(1, NAN, 3, 0), np.int32(0), id="NaN"),
            case(op, f32(NAN, 2, 3, 0), np.int32(0), id="NaN first"),
            case(op, f32([NAN, NAN], [1, NAN]), np.int32(1), id="only NaN"),
            case(op, f32(INF, INF), np.int32(0), id="infinite"),
            case(op, f32(-INF, -INF), np.int32(0), id="negative infinite"),
            case(op, CUBE, np.int32(3), id="axis too large"),
            case(op, CUBE, np.int32(-4), id="axis too small"),
            case(op, CUBE, i32(0), id="axis is a vector"),
            case(op, np.float32(1), np.int32(0), id="scalar"),
            case(op, CUBE[:0], np.int32(0), id="over nothing"),
            case(op, CUBE[:0], np.int32(1), id="of nothing"),
            case(op, np.zeros((1,) * 8, np.float32), np.int32(0), id="rank 8"),
        ]
    cases.append(case("ArgMax", CUBE, np.int32(1), id="to int16", output_type="int16"))
    cases.append(case("ArgMax", CUBE, np.int32(1), id="to uint16", output_type="uint16"))
    return cases


CASES = reduction_cases() + arg_cases()
