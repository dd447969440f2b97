"""Elementwise math, comparisons, logic and choice on any array library.

What an op means is told in asyncexec.ops (math.py, binary_math.py, division.py, comparison.py, select.py); here it is
said again in functions of the array-API standard alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from asyncexec.devices.array_library import ArrayLibrary
from asyncexec.devices.kernel_table import KernelTable, broadcast_size, check_same_shape, explained, in_float32
from asyncexec.framework import types
from asyncexec.framework.errors import InternalError, InvalidArgumentError, OpError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.ops.math.binary_math import add_in_groups
from asyncexec.ops.math.elementwise import (
    COMPLEXES,
    FLOATS,
    INTEGERS,
    NUMBERS,
    REALS,
    SIGNED,
    UNSIGNED,
    WIDE_FLOATS,
    shape_text,
)

# op -> function of the standard
_FLOAT_COMPLEX: Final = {
    "Sqrt": "sqrt",
    "Exp": "exp",
    "Expm1": "expm1",
    "Log": "log",
    "Log1p": "log1p",
    "Sin": "sin",
    "Cos": "cos",
    "Tan": "tan",
    "Asin": "asin",
    "Acos": "acos",
    "Atan": "atan",
    "Sinh": "sinh",
    "Cosh": "cosh",
    "Tanh": "tanh",
    "Asinh": "asinh",
    "Acosh": "acosh",
    "Atanh": "atanh",
}
_FLOAT: Final = {"Floor": "floor", "Ceil": "ceil", "IsNan": "isnan", "IsInf": "isinf", "IsFinite": "isfinite"}
_BINARY: Final = {
    "AddV2": ("add", NUMBERS),
    "Add": ("add", SIGNED | FLOATS | COMPLEXES | {types.uint8}),
    "Sub": ("subtract", NUMBERS),
    "Mul": ("multiply", NUMBERS),
    "Maximum": ("maximum", REALS),
    "Minimum": ("minimum", REALS),
    "Atan2": ("atan2", FLOATS),
    "RealDiv": ("divide", FLOATS | COMPLEXES),
    "Div": ("divide", FLOATS | COMPLEXES),
    "Pow": ("pow", FLOATS | COMPLEXES),
    "Less": ("less", REALS),
    "LessEqual": ("less_equal", REALS),
    "Greater": ("greater", REALS),
    "GreaterEqual": ("greater_equal", REALS),
    "BitwiseAnd": ("bitwise_and", INTEGERS),
    "BitwiseOr": ("bitwise_or", INTEGERS),
    "BitwiseXor": ("bitwise_xor", INTEGERS),
}
_EQUALITY: Final = {"Equal": ("equal", False), "NotEqual": ("not_equal", True)}


def rsqrt(xp: Any, x: Any) -> Any:
    """1 / sqrt(x)"""
    return 1 / xp.sqrt(x)


def sigmoid(xp: Any, x: Any) -> Any:
    """1 / (1 + exp(-x))"""
    return 1 / (1 + xp.exp(-x))


def reciprocal(xp: object, x: Any) -> Any:
    """1 / x"""
    return 1 / x


def squared_difference(xp: object, x: Any, y: Any) -> Any:
    """(x - y) ** 2"""
    difference = x - y
    return difference * difference


def complex_squared_difference(xp: Any, x: Any, y: Any) -> Any:
    """|x - y| ** 2, still complex."""
    difference = x - y
    return difference * xp.conj(difference)


def zero_where_zero(xp: Any, selector: Any, result: Any) -> Any:
    """*result*, but 0 wherever *selector* is 0 (NaN and infinity included)."""
    return xp.where(selector == 0, xp.zeros_like(result), result)


def mul_no_nan(xp: Any, x: Any, y: Any) -> Any:
    """x * y, and 0 where y is 0."""
    return zero_where_zero(xp, y, x * y)


def div_no_nan(xp: Any, x: Any, y: Any) -> Any:
    """x / y, and 0 where y is 0."""
    return zero_where_zero(xp, y, x / y)


def xdivy(xp: Any, x: Any, y: Any) -> Any:
    """x / y, and 0 where x is 0."""
    return zero_where_zero(xp, x, x / y)


def xlogy(xp: Any, x: Any, y: Any) -> Any:
    """x * log(y), and 0 where x is 0."""
    return zero_where_zero(xp, x, x * xp.log(y))


def xlog1py(xp: Any, x: Any, y: Any) -> Any:
    """x * log(1 + y), and 0 where x is 0."""
    return zero_where_zero(xp, x, x * xp.log1p(y))


def integer_power(xp: Any, x: Any, y: Any) -> Any:
    """x ** y with wrap-around; InvalidArgumentError for a negative exponent."""
    if broadcast_size(x) and xp.any(y < 0):
        raise InvalidArgumentError("Integers to negative integer powers are not allowed")
    return xp.pow(x, xp.maximum(y, xp.zeros_like(y)))


def floor_quotient(xp: Any, x: Any, y: Any) -> Any:
    """floor(x / y) of floats."""
    return xp.floor(x / y)


def truncating_quotient(xp: Any, x: Any, y: Any) -> Any:
    """x / y of signed integers, rounded towards zero."""
    quotient = xp.floor_divide(x, y)
    is_rounded_down = (x - quotient * y != 0) & ((x < 0) != (y < 0))
    return quotient + xp.astype(is_rounded_down, quotient.dtype)


def no_zero(function: Kernel, error: type[OpError] = InvalidArgumentError) -> Kernel:
    """Integer *function* of a namespace and two arrays, with *error* where the divisor is zero."""

    def divide(xp: Any, x: Any, y: Any) -> Any:
        if xp.any(y == 0) and broadcast_size(x, y):
            raise error("Integer division by zero")
        return function(xp, x, y)

    return divide


def integer_floor_quotient(xp: Any, x: Any, y: Any) -> Any:
    """floor(x / y) of integers."""
    return xp.floor_divide(x, y)


def remainder(xp: Any, x: Any, y: Any) -> Any:
    """x - floor(x / y) * y"""
    return xp.remainder(x, y)


_COMPOSED_UNARY: Final = {
    "Rsqrt": (rsqrt, FLOATS | COMPLEXES),
    "Sigmoid": (sigmoid, FLOATS | COMPLEXES),
    "Reciprocal": (reciprocal, FLOATS | COMPLEXES),
    "Inv": (reciprocal, FLOATS | COMPLEXES),
}
_COMPOSED_BINARY: Final[tuple[tuple[str, Callable[..., Any], frozenset[types.DType]], ...]] = (
    ("SquaredDifference", squared_difference, FLOATS | {types.int32, types.int64}),
    ("SquaredDifference", complex_squared_difference, COMPLEXES),
    ("MulNoNan", mul_no_nan, FLOATS | COMPLEXES),
    ("DivNoNan", div_no_nan, FLOATS | COMPLEXES),
    ("Xdivy", xdivy, FLOATS | COMPLEXES),
    ("Xlogy", xlogy, FLOATS | COMPLEXES),
    ("Xlog1py", xlog1py, FLOATS | COMPLEXES),
    ("FloorDiv", floor_quotient, FLOATS),
    ("FloorMod", remainder, FLOATS),
)
# Of integers: computed as they are, whatever their size.
_INTEGER_BINARY: Final[tuple[tuple[str, Callable[..., Any], frozenset[types.DType]], ...]] = (
    ("Pow", integer_power, SIGNED),
    ("Div", no_zero(truncating_quotient), SIGNED),
    ("Div", no_zero(integer_floor_quotient), UNSIGNED),
    ("TruncateDiv", no_zero(truncating_quotient, InternalError), SIGNED),
    ("TruncateDiv", no_zero(integer_floor_quotient, InternalError), UNSIGNED),
    ("FloorDiv", no_zero(integer_floor_quotient), INTEGERS),
    ("FloorMod", no_zero(remainder), INTEGERS),
)


def register_elementwise(table: KernelTable) -> None:
    """Add the kernels of this module."""
    for op, name in _FLOAT_COMPLEX.items():
        table.add(op, partial(_standard, name), FLOATS | COMPLEXES)
    for op, name in _FLOAT.items():
        table.add(op, partial(_standard, name), FLOATS)
    table.add("Rint", partial(_standard, "round"), WIDE_FLOATS)
    table.add("Round", partial(_standard, "round"), FLOATS | {types.int32, types.int64})
    table.add("Abs", partial(_standard, "abs"), FLOATS | SIGNED)
    for op, name in {"Neg": "negative", "Sign": "sign"}.items():
        table.add(op, partial(_standard, name), FLOATS | SIGNED | COMPLEXES)
    table.add("Square", partial(_standard, "square"), NUMBERS)
    table.add("Invert", partial(_standard, "bitwise_invert"), INTEGERS)
    table.add("LogicalNot", partial(_standard, "logical_not"), attrs="")
    for op, (function, dtypes) in _COMPOSED_UNARY.items():
        table.add(op, partial(_composed_unary, function), dtypes)
    for op, (name, dtypes) in _BINARY.items():
        table.add(op, partial(_standard_binary, name), dtypes)
    for op, name in {"LogicalAnd": "logical_and", "LogicalOr": "logical_or"}.items():
        table.add(op, partial(_standard_binary, name), attrs="")
    for op, (name, answer) in _EQUALITY.items():
        table.add(op, partial(_equality, name, answer))
    for op, function, dtypes in _COMPOSED_BINARY:
        table.add(op, partial(_composed_binary, function), dtypes)
    for op, function, dtypes in _INTEGER_BINARY:
        table.add(op, partial(_composed_binary, function), dtypes, looks_at_values=True)
    table.add("AddN", _add_n, NUMBERS)
    table.add("ClipByValue", _clip_by_value, SIGNED | FLOATS | {types.uint8, types.uint16})
    table.add("Select", _select)
    table.add("SelectV2", _select_v2)


def _standard(name: str, library: ArrayLibrary, op: OpKernelConstruction) -> Kernel:
    function: Kernel = getattr(library.xp, name)
    return function


def _standard_binary(name: str, library: ArrayLibrary, op: OpKernelConstruction) -> Kernel:
    return explained(getattr(library.xp, name))


def _composed_unary(function: Kernel, library: ArrayLibrary, op: OpKernelConstruction) -> Kernel:
    own = library.functions.get(op.op)
    return in_float32(library, op, partial(function, library.xp)) if own is None else own


def _composed_binary(function: Kernel, library: ArrayLibrary, op: OpKernelConstruction) -> Kernel:
    return explained(in_float32(library, op, partial(function, library.xp)))


def _equality(name: str, answer: bool, library: ArrayLibrary, op: OpKernelConstruction) -> Kernel:
    xp = library.xp
    compare: Kernel = getattr(xp, name)
    if op.attr("incompatible_shape_error"):
        return explained(compare)

    def kernel(x: object, y: object) -> Any:
        try:
            broadcast_size(x, y)
        except ValueError:
            return xp.asarray(answer, device=library.device)
        return compare(x, y)

    return kernel


def _add_n(library: ArrayLibrary, op: OpKernelConstruction) -> Kernel:
    def add_n(*inputs: object) -> Any:
        check_same_shape(*inputs)
        return add_in_groups(*inputs)

    return add_n


def _clip_by_value(library: ArrayLibrary, op: OpKernelConstruction) -> Kernel:
    xp = library.xp

    def clip_by_value(t: Any, low: Any, high: Any) -> Any:
        for bound in (low, high):
            if bound.ndim:
                check_same_shape(t, bound)
        return xp.maximum(xp.minimum(t, high), low)

    return clip_by_value


def _select(library: ArrayLibrary, op: OpKernelConstruction) -> Kernel:
    xp = library.xp

    def select(condition: Any, t: Any, e: Any) -> Any:
        check_same_shape(t, e)
        if condition.ndim and tuple(condition.shape) != tuple(t.shape):
            if condition.ndim != 1 or not t.ndim or condition.shape[0] != t.shape[0]:
                raise InvalidArgumentError(
                    "'cond' must be a scalar, of the shape of 'then', or a vector as long as its first dimension, "
                    f"but received: {shape_text(condition)} vs. {shape_text(t)}"
                )
            condition = xp.reshape(condition, (condition.shape[0], *(1,) * (t.ndim - 1)))
        return xp.where(condition, t, e)

    return select


def _select_v2(library: ArrayLibrary, op: OpKernelConstruction) -> Kernel:
    return explained(library.xp.where, _check_select)


def _check_select(condition: object, t: object, e: object) -> None:
    try:
        broadcast_size(condition, t, e)
    except ValueError:
        raise InvalidArgumentError(
            f"condition {shape_text(condition)}, then {shape_text(t)}, and else {shape_text(e)} must be broadcastable"
        ) from None
