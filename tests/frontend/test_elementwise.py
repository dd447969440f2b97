"""Functions that work element by element give what numpy gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from tests.frontend.builder import run

X = np.array([[-2.5, -1.0, -0.5], [0.5, 1.5, 2.5]], np.float32)
UNIT = np.array([-0.9, -0.25, 0.0, 0.5], np.float64)
ABOVE_ONE = np.array([1.0, 1.5, 4.0])
POSITIVE = np.array([0.25, 1.0, 3.0, 10.0], np.float32)
ODD = np.array([0.0, np.nan, np.inf, -np.inf], np.float32)
INTS = np.array([-7, -1, 1, 3, 8], np.int32)
DIVISORS = np.array([2, 3, -4, -2, 5], np.int32)
BITS = np.array([0b1100, 0b1010, 0xFF], np.uint8)
OTHER_BITS = np.array([0b1010, 0b0110, 0x0F], np.uint8)
BOOLS, OTHER_BOOLS = np.array([True, True, False, False]), np.array([True, False, True, False])
COMPLEX = np.array([1 + 2j, -3.5j, 2], np.complex64)

UNARY: list[tuple[str, Any, Any]] = [
    ("abs", X, np.abs),
    ("abs", INTS, np.abs),
    ("abs", COMPLEX, np.abs),
    ("negative", X, np.negative),
    ("sign", X, np.sign),
    ("square", INTS, np.square),
    ("sqrt", POSITIVE, np.sqrt),
    ("rsqrt", POSITIVE, lambda x: 1 / np.sqrt(x)),
    ("reciprocal", X, lambda x: 1 / x),
    ("exp", X, np.exp),
    ("expm1", X, np.expm1),
    ("log", POSITIVE, np.log),
    ("log1p", POSITIVE, np.log1p),
    ("sin", X, np.sin),
    ("cos", X, np.cos),
    ("tan", X, np.tan),
    ("asin", UNIT, np.arcsin),
    ("acos", UNIT, np.arccos),
    ("atan", X, np.arctan),
    ("sinh", X, np.sinh),
    ("cosh", X, np.cosh),
    ("tanh", X, np.tanh),
    ("asinh", X, np.arcsinh),
    ("acosh", ABOVE_ONE, np.arccosh),
    ("atanh", UNIT, np.arctanh),
    ("sigmoid", X, lambda x: 1 / (1 + np.exp(-x))),
    ("floor", X, np.floor),
    ("ceil", X, np.ceil),
    ("round", X, np.round),
    ("rint", X, np.rint),
    ("is_nan", ODD, np.isnan),
    ("is_inf", ODD, np.isinf),
    ("is_finite", ODD, np.isfinite),
    ("real", COMPLEX, np.real),
    ("imag", COMPLEX, np.imag),
    ("angle", COMPLEX, np.angle),
    ("conj", COMPLEX, np.conj),
    ("logical_not", BOOLS, np.logical_not),
    ("invert", BITS, np.invert),
]

BINARY: list[tuple[str, Any, Any, Any]] = [
    ("add", X, X[0], np.add),
    ("subtract", X, np.float32(2), np.subtract),
    ("multiply", INTS, DIVISORS, np.multiply),
    ("divide", X, X[::-1], np.divide),
    ("divide", INTS, DIVISORS, np.divide),
    ("truediv", INTS, DIVISORS, np.divide),
    ("floordiv", INTS, DIVISORS, np.floor_divide),
    ("floormod", INTS, DIVISORS, np.mod),
    ("mod", X, np.float32(0.75), np.mod),
    ("truncatediv", INTS, DIVISORS, lambda x, y: np.trunc(x / y)),
    ("truncatemod", INTS, DIVISORS, np.fmod),
    ("pow", POSITIVE, np.float32(1.5), np.power),
    ("maximum", X, np.float32(0), np.maximum),
    ("minimum", X, np.float32(0), np.minimum),
    ("squared_difference", X, X[0], lambda x, y: (x - y) ** 2),
    ("atan2", X, X[::-1], np.arctan2),
    ("divide_no_nan", X, np.array([1, 0, 2], np.float32), lambda x, y: np.where(y == 0, 0, x / np.where(y == 0, 1, y))),
    ("multiply_no_nan", ODD, np.float32(0), lambda x, y: np.zeros_like(x)),
    ("equal", INTS, DIVISORS, np.equal),
    ("not_equal", INTS, np.int32(3), np.not_equal),
    ("less", X, np.float32(0.5), np.less),
    ("less_equal", X, np.float32(0.5), np.less_equal),
    ("greater", X, np.float32(0.5), np.greater),
    ("greater_equal", X, np.float32(0.5), np.greater_equal),
    ("logical_and", BOOLS, OTHER_BOOLS, np.logical_and),
    ("logical_or", BOOLS, OTHER_BOOLS, np.logical_or),
    ("logical_xor", BOOLS, OTHER_BOOLS, np.logical_xor),
    ("bitwise_and", BITS, OTHER_BITS, np.bitwise_and),
    ("bitwise_or", BITS, OTHER_BITS, np.bitwise_or),
    ("bitwise_xor", BITS, OTHER_BITS, np.bitwise_xor),
    ("left_shift", BITS, np.uint8(2), np.left_shift),
    ("right_shift", BITS, np.uint8(2), np.right_shift),
    ("cross", np.eye(3), np.eye(3)[::-1].copy(), np.cross),
    ("complex", X, X[0], lambda x, y: (x + 1j * y).astype(np.complex64)),
]


def expect(got: Any, want: Any) -> None:
    np.testing.assert_allclose(got, want, rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize(("name", "x", "function"), UNARY, ids=lambda value: value if isinstance(value, str) else "")
def test_function_of_one_tensor(name: str, x: Any, function: Any) -> None:
    got = run(getattr(ax, name), x)
    expect(got, function(x))
    assert got.dtype == function(x).dtype


@pytest.mark.parametrize(
    ("name", "x", "y", "function"), BINARY, ids=lambda value: value if isinstance(value, str) else ""
)
def test_function_of_two_tensors(name: str, x: Any, y: Any, function: Any) -> None:
    expect(run(getattr(ax, name), x, y), function(x, y))


@pytest.mark.allow_blocking
@pytest.mark.parametrize(
    ("name", "scipy_name"),
    [("erf", "erf"), ("erfc", "erfc"), ("erfinv", "erfinv"), ("lgamma", "gammaln"), ("digamma", "digamma")],
)
def test_special_function(name: str, scipy_name: str) -> None:
    special = pytest.importorskip("scipy.special")
    x = np.array([0.25, 0.5, 0.75])
    expect(run(getattr(ax, name), x), getattr(special, scipy_name)(x))


@pytest.mark.parametrize(
    ("dtype", "quotient"),
    [("int8", "float32"), ("uint16", "float32"), ("int32", "float64"), ("int64", "float64"), ("float32", "float32")],
)
def test_division_of_integers_gives_floats(dtype: str, quotient: str) -> None:
    got = run(ax.truediv, np.array([7, 1], dtype), np.array([2, 4], dtype))
    assert (got.tolist(), got.dtype) == ([3.5, 0.25], np.dtype(quotient))


def test_a_python_value_takes_the_dtype_of_the_tensor_beside_it() -> None:
    with ax.Graph():
        x = ax.placeholder(ax.float64, [2])
        for y in (ax.add(1, x), ax.multiply(x, 2), ax.maximum(0, x), ax.divide(1, x), ax.where(x > 0, x, 0)):
            assert y.dtype is ax.float64


def test_strings_add() -> None:
    assert run(lambda: ax.add(ax.constant("left"), "right")) == b"leftright"


def test_sums_and_choices() -> None:
    expect(run(lambda x: ax.add_n([x, x, x]), X), 3 * X)
    expect(run(lambda x: ax.add_n([x]), X), X)
    expect(run(lambda x: ax.clip_by_value(x, -1, 1.5), X), np.clip(X, -1, 1.5))
    expect(run(lambda x: ax.where(x > 0, x, -1), X), np.where(X > 0, X, -1))
    assert run(ax.where, np.array([[True, False], [False, True]])).tolist() == [[0, 0], [1, 1]]
    with ax.Graph(), pytest.raises(ax.errors.InvalidArgumentError, match="both x and y"):
        ax.where([True], x=[1])
    with ax.Graph(), pytest.raises(ax.errors.InvalidArgumentError, match="at least one"):
        ax.add_n([])


def test_casts() -> None:
    assert run(lambda x: ax.cast(x, ax.int32), X).tolist() == X.astype(np.int32).tolist()
    assert run(lambda x: ax.bitcast(x, ax.int32), X).tolist() == X.view(np.int32).tolist()
    with ax.Graph():
        x = ax.placeholder(ax.float32)
        assert ax.cast(x, "float32") is x
