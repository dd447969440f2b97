"""Inputs at the edges of what ops take: what TensorFlow gives, or refuses, and what follows from the definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ops.op_case import case, f32
from tests.ops.op_runner import run_case


def test_turned_hue_keeps_the_largest_and_the_least_channel() -> None:
    (turned,) = run_case(case("AdjustHue", f32(-0.001, -1e4, -1e4).reshape(1, 1, 3), np.float32(1 / 3)))
    np.testing.assert_array_equal(turned, f32(-1e4, -0.001, -1e4).reshape(1, 1, 3))


@pytest.mark.parametrize(
    ("attrs", "text"),
    [
        ({"precision": 2}, b"abcdef"),
        ({"scientific": True}, b"abcdef"),
        ({"shortest": True}, b"abcdef"),
        ({"precision": 2, "width": 8}, b"      ab"),
        ({"precision": 2, "width": 8, "fill": "-"}, b"ab      "),
        ({"width": 8, "fill": "0"}, b"  abcdef"),
    ],
)
def test_strings_as_strings_have_a_precision_with_a_width_only(attrs: dict[str, Any], text: bytes) -> None:
    assert run_case(case("AsString", b"abcdef", **attrs)) == [text]


@pytest.mark.parametrize("is_lower", [False, True])
@pytest.mark.parametrize("adjoint", [False, True])
def test_bands_connect_no_rows_but_those_that_they_reach(is_lower: bool, adjoint: bool) -> None:
    rhs = f32(1, np.nan, 6, np.inf).reshape(4, 1)
    attrs = {"lower": is_lower, "adjoint": adjoint}
    (found,) = run_case(case("BandedTriangularSolve", f32(1, 2, 3, 4).reshape(1, 4), rhs, **attrs))
    np.testing.assert_array_equal(found, f32(1, np.nan, 2, np.inf).reshape(4, 1))
