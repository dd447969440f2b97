"""Special functions."""

from __future__ import annotations

import numpy as np

from tests.ops.cases.math import INF, NAN, of, rtol
from tests.ops.op_case import OpCase, case, f32

ANY = (-3.2, -1.5, -0.5, 0.0, 0.1, 0.5, 1.0, 2.5, 6.0, INF, NAN)
POSITIVE = (0.1, 0.5, 1.0, 2.5, 6.0, 20.0)
HALF = ("float16", "float32", "float64")
WIDE = ("float32", "float64")
UNARY = {
    "Erf": (("bfloat16", *HALF), (*ANY[:-2], NAN)),
    "Erfc": (("bfloat16", *HALF), ANY),
    "Erfinv": (WIDE, (-0.99, -0.5, 0.0, 0.3, 0.999, 1.0, -1.0, 2.0)),
    "Ndtri": (WIDE, (0.001, 0.3, 0.5, 0.999, 0.0, 1.0)),
    "Lgamma": (HALF, (-1.0, -1.5, -0.5, 0.0, *POSITIVE, INF)),
    "Digamma": (HALF, (-1.0, -1.5, -0.5, 0.0, *POSITIVE)),
    "Dawsn": (WIDE, ANY[:-2]),
    "Expint": (WIDE, (*POSITIVE, 0.0, -1.0)),
    "Spence": (WIDE, (0.0, *POSITIVE, -1.0)),
    "FresnelCos": (WIDE, ANY[:-2]),
    "FresnelSin": (WIDE, ANY[:-2]),
    "BesselI0": (HALF, ANY[:-2]),
    "BesselI0e": (HALF, ANY[:-2]),
    "BesselI1": (HALF, ANY[:-2]),
    "BesselI1e": (HALF, ANY[:-2]),
    "BesselJ0": (HALF, ANY[:-2]),
    "BesselJ1": (HALF, ANY[:-2]),
    "BesselK0": (HALF, (0.0, *POSITIVE[:-1], -1.0)),
    "BesselK0e": (HALF, (0.0, *POSITIVE, -1.0)),
    "BesselK1": (HALF, (0.0, *POSITIVE[:-1], -1.0)),
    "BesselK1e": (HALF, (0.0, *POSITIVE, -1.0)),
    "BesselY0": (HALF, (0.0, *POSITIVE, -1.0)),
    "BesselY1": (HALF, (*POSITIVE, -1.0)),
}


def unary_cases() -> list[OpCase]:
    cases = []
    for op, (dtypes, values) in UNARY.items():
        cases += [case(op, of(dtype, *values), id=dtype, rtol=rtol(dtype)) for dtype in dtypes]
        cases.append(case(op, np.float32(0.4), id="scalar"))
        cases.append(case(op, np.zeros((0, 2), np.float32), id="empty"))
    return cases


def binary_cases() -> list[OpCase]:
    cases = []
    points = {
        "Igamma": ((0.5, 1.0, 3.0, 10.0, 0.0, -1.0, 2.0, 2.0), (0.1, 2.0, 3.0, 8.0, 1.0, 1.0, 0.0, -1.0)),
        "Igammac": ((0.5, 1.0, 3.0, 10.0, 0.0, -1.0, 2.0, 2.0), (0.1, 2.0, 3.0, 8.0, 1.0, 1.0, 0.0, -1.0)),
        "Zeta": ((2.0, 3.5, 1.0, 4.0, 0.5, 2.0), (1.0, 0.5, 2.0, 10.0, 1.0, -1.0)),
        "Polygamma": ((0.0, 1.0, 2.0, 3.0, 1.5, -1.0), (1.5, 0.5, 2.0, 10.0, 1.0, 1.0)),
    }
    for op, (x, y) in points.items():
        cases += [case(op, of(dtype, *x), of(dtype, *y), id=dtype) for dtype in WIDE]
        cases.append(case(op, np.float32(2), np.float32(3), id="scalars"))
        cases.append(case(op, f32([2], [3]), f32(1, 2, 3), id="broadcast"))
        cases.append(case(op, f32(1, 2), f32(1, 2, 3), id="shapes differ"))
    for dtype in WIDE:
        a, b, x = of(dtype, 0.5, 2, 3, 10), of(dtype, 0.5, 1, 4, 2), of(dtype, 0.1, 0.5, 0.9, 1.0)
        cases.append(case("Betainc", a, b, x, id=dtype))
    cases += [
        case("Betainc", np.float32(2), np.float32(3), np.float32(0.25), id="scalars"),
        case("Betainc", np.float32(2), f32(3, 4), f32(0.25, 0.5), id="scalar and vectors"),
        case("Betainc", f32(2), f32(3, 4), f32(0.25, 0.5), id="shapes differ"),
        case("Betainc", f32(2, 2), f32(3, 4), f32(-0.5, 1.5), id="x outside of 0 to 1"),
    ]
    return cases


CASES = unary_cases() + binary_cases()
