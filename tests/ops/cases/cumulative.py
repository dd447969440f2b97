"""Running sums, products and logsumexp."""

from __future__ import annotations

import numpy as np

from tests.ops.cases.math import COMPLEX, FLOATS, INF, SIGNED, UNSIGNED, of, rtol
from tests.ops.op_case import OpCase, case, f32, i32

CUBE = np.arange(24, dtype=np.float32).reshape(2, 3, 4) / 7 - 1


def scan_cases(op: str) -> list[OpCase]:
    cases = []
    for exclusive in (False, True):
        for reverse in (False, True):
            flags = {"exclusive": exclusive, "reverse": reverse}
            name = f"exclusive={exclusive}, reverse={reverse}"
            cases += [
                case(op, CUBE, np.int32(1), id=f"middle axis, {name}", **flags),
                case(op, f32(0.5, -2, 3), np.int64(-1), id=f"vector, {name}", **flags),
                case(op, CUBE[:, :0], np.int32(1), id=f"empty, {name}", **flags),
            ]
    for dtype in FLOATS:
        cases.append(case(op, of(dtype, 0.5, 2, -1.5, 3), np.int32(0), id=dtype, rtol=rtol(dtype), atol=rtol(dtype)))
    return [
        *cases,
        case(op, CUBE, np.int32(3), id="axis too large"),
        case(op, CUBE, np.int32(-4), id="axis too small"),
        case(op, CUBE, i32(0), id="axis is a vector"),
        case(op, np.float32(1), np.int32(0), id="scalar"),
    ]


def number_cases(op: str) -> list[OpCase]:
    cases = [case(op, of(dtype, 100, 100, 3, 2), np.int32(0), id=dtype) for dtype in (*SIGNED, *UNSIGNED)]
    return cases + [case(op, of(dtype, 1 + 2j, 3, -1j), np.int32(0), id=dtype) for dtype in COMPLEX]


CASES = [
    *scan_cases("Cumsum"),
    *scan_cases("Cumprod"),
    *scan_cases("CumulativeLogsumexp"),
    *number_cases("Cumsum"),
    *number_cases("Cumprod"),
    case("CumulativeLogsumexp", f32(-INF, -INF, 3, 100, -200), np.int32(0), id="infinite"),
    case("CumulativeLogsumexp", f32(1, INF, 3), np.int32(0), id="positive infinite"),
]
