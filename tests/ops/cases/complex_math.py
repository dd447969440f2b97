"""Complex numbers."""

from __future__ import annotations

import numpy as np

from tests.ops.op_case import OpCase, case, f32, f64

VALUES = (3 + 4j, -1, 1j, 0, -2 - 0.5j, -1j)
PAIRS = (("complex64", "float32"), ("complex128", "float64"))


def parts() -> list[OpCase]:
    cases = []
    for op in ("Real", "Imag", "Angle", "ComplexAbs"):
        for whole, part in PAIRS:
            cases.append(case(op, np.array(VALUES, whole), id=whole, Tout=part))
        cases.append(case(op, np.complex64(1 - 2j), id="scalar"))
        cases.append(case(op, np.zeros((2, 0), np.complex64), id="empty"))
    for whole, _ in PAIRS:
        cases.append(case("Conj", np.array(VALUES, whole), id=whole))
    cases.append(case("Conj", np.complex64(1 - 2j), id="scalar"))
    return cases


CASES = [
    *parts(),
    case("Complex", f32(1, 2), f32(3, -4), id="complex64"),
    case("Complex", f64(1, 2), f64(3, -4), id="complex128", Tout="complex128"),
    case("Complex", np.float32(1), np.float32(3), id="scalars"),
    case("Complex", f32([1], [2]), f32(3, -4, 0), id="broadcast"),
    case("Complex", np.zeros((0, 2), np.float32), np.float32(1), id="empty"),
    case("Complex", f32(1, 2), f32(3, -4, 0), id="shapes differ"),
]
