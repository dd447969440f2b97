"""Expressions: what they compute, by torch's rules for types, and texts that are none."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.ops.pnnx.expression import ExpressionParser, evaluate

X = np.array([[1.0, 4.0, 9.0]], np.float32)
N = np.array([1, 2, 3], np.int64)


def value_of(text: str, *inputs: Any) -> Any:
    """The value of an expression."""
    return evaluate(ExpressionParser(text, len(inputs)).parse(), inputs)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("@0", X),
        ("add(@0,mul(@0,2))", X * 3),
        ("sub(@0,@0,2)", -X),
        ("rsub(@0,1)", 1 - X),
        ("sqrt(@0)", [[1, 2, 3]]),
        (" div( 1.0 , rsqrt(@0) ) ", [[1, 2, 3]]),
        ("pow(@0,2.000000e+00)", X * X),
        ("max(min(@0,4),2)", [[2, 4, 4]]),
        ("neg(floor_divide(@0,2))", [[0, -2, -4]]),
        ("remainder(@0,5)", [[1, 4, 4]]),
        ("ge(@0,4)", [[False, True, True]]),
    ],
)
def test_arithmetic(text: str, expected: Any) -> None:
    np.testing.assert_allclose(value_of(text, X), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("size(@0,1)", 3),
        ("size(@0)", (1, 3)),
        ("[size(@0,0),-1,[2]]", (1, -1, (2,))),
        ("[]", ()),
        ("int(div(size(@0,1),2))", 1),
        ("floor_divide(size(@0,1),2)", 1),
        ("pow(2,10)", 1024),
        ("1.000000e-12", 1e-12),
        ("-inf", -np.inf),
        ("None", None),
        ("True", True),
    ],
)
def test_numbers_and_lists_are_python_values(text: str, expected: Any) -> None:
    value = value_of(text, X)
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("text", "inputs", "dtype"),
    [
        ("mul(@0,2)", (X,), "float32"),
        ("mul(@0,2.5)", (N,), "float32"),
        ("div(@0,2)", (N,), "float32"),
        ("mul(@0,2)", (N,), "int64"),
        ("sqrt(@0)", (N,), "float32"),
        ("mul(@0,sqrt(2))", (X,), "float32"),
        ("add(@0,@1)", (X, np.float64(1)), "float32"),
        ("add(@0,@1)", (X, X.astype(np.float64)), "float64"),
        ("add(@0,@1)", (N, np.float32(1)), "float32"),
        ("add(@0,@1)", (X.astype(np.float16), 1.5), "float16"),
    ],
)
def test_types(text: str, inputs: tuple[Any, ...], dtype: str) -> None:
    assert value_of(text, *inputs).dtype.name == dtype


@pytest.mark.parametrize(
    ("text", "position", "message"),
    [
        ("", 0, "a value is missing"),
        ("add(@0", 6, "'add' at 0 has no end"),
        ("add(@0,)", 7, "a value is missing"),
        ("add(@0)", 6, "'add' at 0 takes 2 or 3 values"),
        ("add(@0,@1)", 7, "'@1' is not among the 1 inputs"),
        ("@99999999999", 0, "is not among the 1 inputs"),
        ("__import__(1)", 0, "there is no value or function '__import__('"),
        ("x", 0, "there is no value or function 'x'"),
        ("add(@0,1)]", 9, "']' closes nothing"),
        ("[@0)", 3, "')' closes nothing"),
        ("@0 @0", 3, "'@0' is not expected here"),
        ("(@0)", 0, "'(' is not expected here"),
        (",", 0, "',' is not expected here"),
        ("@0;1", 2, "';' is not part of an expression"),
        ("sqrt(1e)", 6, "'e' is not expected here"),
    ],
)
def test_texts_that_are_none(text: str, position: int, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=re.escape(f"position {position}: ") + ".*" + re.escape(message)):
        value_of(text, X)


def test_nesting_without_end_is_no_recursion() -> None:
    depth = 20_000
    assert value_of("neg(" * depth + "@0" + ")" * depth, np.float32(2)) == 2
    with pytest.raises(InvalidArgumentError, match="has no end"):
        value_of("neg(" * depth, X)


def test_large_shifts_and_powers_take_no_memory() -> None:
    with pytest.raises(InvalidArgumentError, match="shifts go from 0 to 63"):
        value_of("lshift(1,1000000000)")
    assert isinstance(value_of("pow(10,1000000000)"), int)
