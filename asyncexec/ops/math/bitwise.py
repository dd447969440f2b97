"""Bitwise ops on integers (``tensorflow/core/ops/bitwise_ops.cc``, ``core/kernels/cwise_op_*shift.cc``)."""

from __future__ import annotations

import operator
from typing import Final

import numpy as np

from asyncexec.framework.arrays import ArrayOrScalar
from asyncexec.framework.kernel import Kernel
from asyncexec.ops.math.elementwise import INTEGER_ATTR, register_binary, register_unary

_FUNCTIONS: Final[dict[str, Kernel]] = {
    "BitwiseAnd": operator.and_,
    "BitwiseOr": operator.or_,
    "BitwiseXor": operator.xor,
}


def _shift_counts(x: ArrayOrScalar, y: ArrayOrScalar) -> ArrayOrScalar:
    """The counts that TensorFlow shifts by: not negative, less than the number of bits."""
    return np.clip(y, 0, x.dtype.type(8 * x.dtype.itemsize - 1))


def left_shift(x: ArrayOrScalar, y: ArrayOrScalar) -> ArrayOrScalar:
    """x << y, with y brought into 0 .. bits - 1."""
    return np.left_shift(x, _shift_counts(x, y))


def right_shift(x: ArrayOrScalar, y: ArrayOrScalar) -> ArrayOrScalar:
    """x >> y, with y brought into 0 .. bits - 1; the sign is kept."""
    return np.right_shift(x, _shift_counts(x, y))


for _name, _function in _FUNCTIONS.items():
    register_binary(_name, _function, INTEGER_ATTR, is_commutative=True)

register_binary("LeftShift", left_shift, INTEGER_ATTR)
register_binary("RightShift", right_shift, INTEGER_ATTR)
register_unary("Invert", operator.invert, INTEGER_ATTR)


def population_count(x: ArrayOrScalar) -> ArrayOrScalar:
    """How many bits of each element are set, of the two's complement for a negative one."""
    return np.bitwise_count(x.view(f"u{x.dtype.itemsize}"))


register_unary("PopulationCount", population_count, INTEGER_ATTR, signature="x: T -> y: uint8")
