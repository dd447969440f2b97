"""Comparisons, logic, bits, and the choice by a condition."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel
from asyncexec.ops.onnx.common import as_array, check_broadcast, of_one, of_two, refusing
from asyncexec.ops.onnx.onnx_kernels import OnnxNode, onnx_kernel

_BINARY: Final[dict[str, np.ufunc]] = {
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "And": np.logical_and,
    "Or": np.logical_or,
    "Xor": np.logical_xor,
    "BitwiseAnd": np.bitwise_and,
    "BitwiseOr": np.bitwise_or,
    "BitwiseXor": np.bitwise_xor,
}

for _op, _ufunc in _BINARY.items():
    onnx_kernel(_op, since=7)(of_two(_ufunc, None if _op.startswith("Bitwise") else 1))
onnx_kernel("Not")(of_one(np.logical_not))
onnx_kernel("BitwiseNot")(of_one(np.invert))
onnx_kernel("IsNaN")(of_one(np.isnan))


def equal(x: Any, y: Any) -> ArrayOrScalar:
    """Where elements are equal; strings are compared as bytes."""
    if isinstance(x, bytes) or isinstance(y, bytes):
        x, y = as_array(x), as_array(y)
    return np.equal(x, y)


onnx_kernel("Equal", since=7)(of_two(equal, 1))


@onnx_kernel("IsInf")
def make_is_inf(node: OnnxNode) -> Kernel:
    """The kernel of IsInf: infinities of both signs, of one, or of none."""
    negative, positive = bool(node.attr("detect_negative", 1)), bool(node.attr("detect_positive", 1))
    if negative and positive:
        return of_one(np.isinf)(node)
    if not negative and not positive:
        return of_one(lambda x: np.zeros(x.shape, np.bool_))(node)
    wanted = -np.inf if negative else np.inf
    return of_one(lambda x: np.equal(x, wanted))(node)


@onnx_kernel("BitShift")
def make_bit_shift(node: OnnxNode) -> Kernel:
    """The kernel of BitShift; of a shift by all bits or more the sign remains."""
    shifts = {"LEFT": np.left_shift, "RIGHT": np.right_shift}
    direction = node.text("direction")
    if direction not in shifts:
        raise InvalidArgumentError(f"direction must be LEFT or RIGHT, not {direction!r}")
    return of_two(shifts[direction])(node)


@onnx_kernel("Where")
@refusing
def make_where(node: OnnxNode) -> Kernel:
    """The kernel of Where: elements of one tensor or the other, all three broadcast."""

    def where(condition: ArrayOrScalar, x: Any, y: ArrayOrScalar) -> tuple[Any]:
        x, y = as_array(x), as_array(y)
        if x.dtype != y.dtype:
            raise InvalidArgumentError(f"X is {x.dtype.name} and Y is {y.dtype.name}, but both must be of one dtype")
        check_broadcast(x, y, condition)
        return (np.where(condition, x, y),)

    return where
