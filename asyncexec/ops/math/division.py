"""Division and remainder (``tensorflow/core/kernels/cwise_op_div.cc``, ``cwise_op_floor_div.cc``, ``cwise_op_mod.cc``).

Division of integers by zero is an error, with the status code of each op in TensorFlow: Internal for TruncateDiv and
TruncateMod, InvalidArgument for the others.  Nothing is divided, and nothing fails, when the result is empty.
"""

from __future__ import annotations

import operator
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import ArrayOrScalar
from asyncexec.framework.errors import InternalError, InvalidArgumentError, OpError
from asyncexec.framework.kernel import Kernel
from asyncexec.framework.types import DType, int32, int64
from asyncexec.ops.math.binary_math import ARITHMETIC_ATTR
from asyncexec.ops.math.elementwise import (
    COMPLEXES,
    FLOATS,
    INTEGERS,
    SIGNED,
    UNSIGNED,
    WIDE_FLOATS,
    register_binary,
    register_binary_kernel,
)

WITH_CHECK: Final[dict[Kernel, Kernel]] = {}  # kernels that refuse to divide by zero, and what they call else
_MOD_ATTR: Final = "T: {int32, int64, float16, bfloat16, float32, float64}"


def truncating_quotient(x: ArrayOrScalar, y: ArrayOrScalar) -> ArrayOrScalar:
    """x / y of integers, rounded towards zero."""
    return (x - np.fmod(x, y)) // y


def floor_quotient(x: Any, y: Any) -> ArrayOrScalar:
    """floor(x / y) of floats: not numpy's ``//``, which differs where x / y rounds up to an integer."""
    return np.floor(x / y)


def truncated_quotient(x: Any, y: Any) -> ArrayOrScalar:
    """trunc(x / y) of floats."""
    return np.trunc(x / y)


def _by_zero(error: type[OpError]) -> OpError:
    return error("Integer division by zero")


def no_zero(function: Kernel, error: type[OpError] = InvalidArgumentError) -> Kernel:
    """Integer *function*, with *error* where the divisor is zero."""

    def kernel(x: object, y: ArrayOrScalar) -> ArrayOrScalar:
        result = function(x, y)
        if not np.all(y) and np.size(result):
            raise _by_zero(error)
        return result

    WITH_CHECK[kernel] = function
    return kernel


def no_zero_scalar(function: Kernel, error: type[OpError] = InvalidArgumentError) -> Kernel:
    """The same for scalars."""

    def kernel(x: object, y: object) -> np.generic:
        if not y:
            raise _by_zero(error)
        return function(x, y)

    WITH_CHECK[kernel] = function
    return kernel


def _register_integers(
    name: str, function: Kernel, dtypes: frozenset[DType], error: type[OpError] = InvalidArgumentError
) -> None:
    scalar_function = no_zero_scalar(function, error)
    register_binary_kernel(name, no_zero(function, error), dtypes, scalar_function=scalar_function)


register_binary("RealDiv", operator.truediv, ARITHMETIC_ATTR, FLOATS | COMPLEXES)
register_binary("Div", operator.truediv, ARITHMETIC_ATTR, FLOATS | COMPLEXES)
_register_integers("Div", truncating_quotient, SIGNED)
_register_integers("Div", operator.floordiv, UNSIGNED)
register_binary("TruncateDiv", truncated_quotient, ARITHMETIC_ATTR, FLOATS)
_register_integers("TruncateDiv", truncating_quotient, SIGNED, InternalError)
_register_integers("TruncateDiv", operator.floordiv, UNSIGNED, InternalError)
register_binary("FloorDiv", floor_quotient, ARITHMETIC_ATTR, FLOATS)
_register_integers("FloorDiv", operator.floordiv, INTEGERS)
register_binary("FloorMod", operator.mod, "T: realnumbertype", FLOATS)
_register_integers("FloorMod", operator.mod, INTEGERS)
register_binary("Mod", np.fmod, _MOD_ATTR, WIDE_FLOATS)
_register_integers("Mod", np.fmod, frozenset({int32, int64}))
register_binary("TruncateMod", np.fmod, _MOD_ATTR, WIDE_FLOATS)
_register_integers("TruncateMod", np.fmod, frozenset({int32, int64}), InternalError)
