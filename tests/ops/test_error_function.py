"""The error function of large arrays against scipy's in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import special

from asyncexec.ops.math import error_function
from asyncexec.ops.math.error_function import erf_function, erfc_function

MANY = 50_000
EDGES = [0.0, 1e-45, 1e-20, 1.0, np.nextafter(np.float32(1), np.float32(0)), 3.8325, 3.84, 9.1, 1e19, 1e38, np.inf]


def spread() -> Any:
    """Numbers of both signs, from near zero to where the complement is almost zero, and special ones."""
    edges = np.array([*EDGES, *(-value for value in EDGES), np.nan], np.float32)
    return np.concatenate([edges, np.linspace(-9, 9, MANY, dtype=np.float32)])


@pytest.mark.parametrize("name", ["erf", "erfc"])
@np.errstate(all="ignore")
def test_large_arrays_are_as_precise_as_in_tensorflow(name: str) -> None:
    x = spread()
    result = (erf_function() if name == "erf" else erfc_function())(x)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, getattr(special, name)(x.astype(np.float64)), rtol=1e-6, atol=1e-38)


@pytest.mark.parametrize("function", [erf_function(), erfc_function()])
@np.errstate(all="ignore")
def test_tiles_are_put_together(function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = spread()[: MANY - MANY % 3].reshape(-1, 3).T[:, ::-1]
    expected = function(x)
    assert expected.shape == x.shape
    monkeypatch.setattr(error_function, "_TILE", 1000)
    np.testing.assert_array_equal(function(x), expected)


@pytest.mark.parametrize("function", [erf_function(), erfc_function()])
def test_other_inputs_are_computed_in_their_type(function: Any) -> None:
    large = np.linspace(-3, 3, MANY)
    assert function(large).dtype == np.float64
    assert isinstance(function(np.float32(0.5)), np.float32)
    assert function(np.zeros((0, 3), np.float32)).shape == (0, 3)
