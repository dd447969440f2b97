"""Elementwise math of one input (``tensorflow/core/ops/math_ops.cc``, ``core/kernels/cwise_op_*.cc``)."""

from __future__ import annotations

import operator
from typing import Any, Final

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.kernel import Kernel
from asyncexec.framework.kernel_registry import register_function
from asyncexec.ops.math.elementwise import (
    COMPLEXES,
    FLOAT_ATTR,
    FLOAT_COMPLEX_ATTR,
    FLOATS,
    WIDE_FLOATS,
    register_unary,
)

_SIGNED_ATTR: Final = "T: {bfloat16, float16, float32, float64, int8, int16, int32, int64}"
_SIGNED_COMPLEX_ATTR: Final = _SIGNED_ATTR[:-1] + ", complex64, complex128}"
_NUMBER_ATTR: Final = _SIGNED_ATTR[:-1] + ", uint8, uint16, uint32, uint64, complex64, complex128}"


def square(x: Any) -> ArrayOrScalar:
    """x * x"""
    return x * x


def reciprocal(x: Any) -> ArrayOrScalar:
    """1 / x"""
    return 1 / x


def rsqrt(x: ArrayOrScalar) -> ArrayOrScalar:
    """1 / sqrt(x)"""
    return 1 / np.sqrt(x)


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x))"""
    result = np.exp(-x)
    if not x.ndim:
        return 1 / (1 + result)
    one = x.dtype.type(1)  # numpy takes longer with a Python number
    result += one
    return np.divide(one, result, out=result)


_FLOAT_COMPLEX_FUNCTIONS: Final[dict[str, Kernel]] = {
    "Sqrt": np.sqrt,
    "Rsqrt": rsqrt,
    "Exp": np.exp,
    "Expm1": np.expm1,
    "Log": np.log,
    "Log1p": np.log1p,
    "Sin": np.sin,
    "Cos": np.cos,
    "Tan": np.tan,
    "Asin": np.arcsin,
    "Acos": np.arccos,
    "Atan": np.arctan,
    "Sinh": np.sinh,
    "Cosh": np.cosh,
    "Tanh": np.tanh,
    "Asinh": np.arcsinh,
    "Acosh": np.arccosh,
    "Atanh": np.arctanh,
    "Sigmoid": sigmoid,
}

for _name, _function in _FLOAT_COMPLEX_FUNCTIONS.items():
    register_unary(_name, _function, FLOAT_COMPLEX_ATTR)

for _name, _function in {"Floor": np.floor, "Ceil": np.ceil}.items():
    register_unary(_name, _function, FLOAT_ATTR)

for _name, _function in {"IsNan": np.isnan, "IsInf": np.isinf, "IsFinite": np.isfinite}.items():
    register_unary(_name, _function, FLOAT_ATTR, signature="x: T -> y: bool")

for _name in ("Reciprocal", "Inv"):
    register_unary(_name, reciprocal, _SIGNED_COMPLEX_ATTR, FLOATS | COMPLEXES)

register_unary("Abs", operator.abs, _SIGNED_ATTR)
register_unary("Neg", operator.neg, _SIGNED_COMPLEX_ATTR)
register_unary("Sign", np.sign, _SIGNED_COMPLEX_ATTR)
register_unary("Square", square, _NUMBER_ATTR)
register_unary("Rint", np.rint, FLOAT_ATTR, WIDE_FLOATS)
register_unary("Round", np.rint, _SIGNED_COMPLEX_ATTR, FLOATS)
# numpy's rint turns integers into floats; an integer is its own rounding.
register_function("Round", function=operator.pos, dtypes={"T": {types.int32, types.int64}}, is_elementwise=True)
