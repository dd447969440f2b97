"""Ops at the edges of what they take: values that follow from their definitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ops.op_case import OpCase, f64
from tests.ops.op_runner import run_case

INF, NAN = np.inf, np.nan
HUGE = 1.7e308


@pytest.mark.parametrize(
    ("op", "inputs", "expected"),
    [
        ("Lgamma", [f64(INF, -INF, 0, -1, 1, NAN)], [INF, INF, INF, INF, 0, NAN]),
        # Nothing has been integrated at zero, and nothing but next to nothing as long as x is far below a.
        ("Igamma", [f64(2, 0, -1, NAN, HUGE, HUGE, 0), f64(0, 0, 0, 0, 3, 1e300, 1)], [0, 0, 0, 0, 0, 0, NAN]),
        ("Igammac", [f64(2, HUGE, HUGE, 0), f64(0, 3, 1e300, 1)], [1, 1, 1, NAN]),
        # All terms vanish where the least of them is a power of more than one; at a pole one of them does not.
        ("Zeta", [f64(HUGE, INF, 1e17, INF, INF), f64(3, 2, 1.5, 0, -3)], [0, 0, 0, INF, INF]),
        ("Polygamma", [f64(INF, 1), f64(-2, -2)], [INF, INF]),
        ("SqrtGrad", [f64(0, 0, NAN, 2, INF), f64(0, 1, 0, 4, 0)], [0, INF, 0, 1, 0]),
        ("RsqrtGrad", [f64(0, INF, NAN, 2), f64(0, 0, 0, 4)], [0, 0, 0, -16]),
        ("ReciprocalGrad", [f64(0, INF, NAN, 2, INF), f64(0, 0, 0, 4, 1)], [0, 0, 0, -16, -INF]),
        ("InvGrad", [f64(INF, 3), f64(0, 2)], [0, -18]),
        ("SqrtGrad", [np.array([NAN, 2j], np.complex128), np.array([0, 4], np.complex128)], [0, 1j]),
    ],
)
def test_functions(op: str, inputs: list[Any], expected: list[Any]) -> None:
    (found,) = run_case(OpCase(op, inputs))
    np.testing.assert_array_equal(found, expected)
