"""Comparisons and logic (``tensorflow/core/ops/math_ops.cc``, ``core/kernels/cwise_op_equal_to_*.cc`` and others)."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext, broadcast_shapes, merged
from asyncexec.framework.tensor_shape import SCALAR, UNKNOWN_SHAPE, TensorShape
from asyncexec.ops.math.elementwise import (
    NUMBERS,
    WIDE_FLOATS,
    checked,
    gives_scalar,
    register_binary,
    register_unary,
    shape_text,
)

_BOOL_SIGNATURE: Final = "x: T, y: T -> z: bool"
_QUANTIZED: Final = frozenset({types.qint8, types.quint8, types.qint16, types.quint16, types.qint32})
_PLAIN: Final = NUMBERS | _QUANTIZED | {types.bool}
_ORDERINGS: Final[dict[str, Kernel]] = {
    "Less": operator.lt,
    "LessEqual": operator.le,
    "Greater": operator.gt,
    "GreaterEqual": operator.ge,
}

for _name, _function in _ORDERINGS.items():
    register_binary(_name, _function, "T: realnumbertype", signature=_BOOL_SIGNATURE)

register_binary("LogicalAnd", operator.and_, "", signature="x: bool, y: bool -> z: bool", is_commutative=True)
register_binary("LogicalOr", operator.or_, "", signature="x: bool, y: bool -> z: bool", is_commutative=True)
register_unary("LogicalNot", operator.invert, "", signature="x: bool -> y: bool")


def _equality_shape(c: InferenceContext) -> Sequence[TensorShape]:
    x, y = c.input(0), c.input(1)
    if c.attr("incompatible_shape_error"):
        return [broadcast_shapes(x, y)]
    try:
        shape = broadcast_shapes(x, y)
    except InvalidArgumentError:
        return [SCALAR]
    return [shape if _surely_broadcast(x, y) else UNKNOWN_SHAPE]


def _surely_broadcast(x: TensorShape, y: TensorShape) -> bool:
    """Whether two shapes that may broadcast do so whatever their unknown sizes are."""
    if x.dims is None or y.dims is None:
        return False
    pairs = zip(reversed(x.dims), reversed(y.dims), strict=False)
    return all(1 in pair or None not in pair for pair in pairs)


def tolerant(function: Kernel, answer: bool) -> Kernel:
    """*function*, but the scalar *answer* for two tensors whose shapes do not broadcast."""
    unequal = np.bool_(answer)

    def kernel(x: object, y: object) -> ArrayOrScalar:
        try:
            return function(x, y)
        except ValueError:
            return unequal

    return kernel


def equal_strings(x: Array | bytes, y: Array | bytes) -> ArrayOrScalar:
    """Where strings are equal."""
    return np.equal(x, y) if isinstance(x, np.ndarray) or isinstance(y, np.ndarray) else np.bool_(x == y)


def unequal_strings(x: Array | bytes, y: Array | bytes) -> ArrayOrScalar:
    """Where strings differ."""
    return np.not_equal(x, y) if isinstance(x, np.ndarray) or isinstance(y, np.ndarray) else np.bool_(x != y)


def _register_equality(name: str, function: Kernel, of_strings: Kernel, answer: bool) -> None:
    register_op(
        name,
        _BOOL_SIGNATURE,
        "T: type; incompatible_shape_error: bool = True",
        shape=_equality_shape,
        is_commutative=True,
    )

    @register_kernel(name, dtypes={"T": _PLAIN | {types.string}}, is_elementwise=True)
    def make(c: OpKernelConstruction) -> Kernel:
        compare = of_strings if c.attr("T") is types.string else function
        if gives_scalar(c) and c.attr("incompatible_shape_error"):
            return compare
        return checked(compare) if c.attr("incompatible_shape_error") else tolerant(compare, answer)


_register_equality("Equal", operator.eq, equal_strings, False)
_register_equality("NotEqual", operator.ne, unequal_strings, True)


@register_kernel("ApproximateEqual", dtypes={"T": WIDE_FLOATS})
def _approximate_equal(c: OpKernelConstruction) -> Kernel:
    tolerance = c.np_dtype("T").type(c.attr("tolerance"))

    def kernel(x: Any, y: Any) -> ArrayOrScalar:
        if np.shape(x) != np.shape(y):
            raise InvalidArgumentError(
                f"x and y must be of the same shape. x shape: {shape_text(x)}. y shape: {shape_text(y)}"
            )
        return abs(x - y) < tolerance

    return kernel


register_op(
    "ApproximateEqual",
    _BOOL_SIGNATURE,
    "T: numbertype; tolerance: float = 1e-05",
    shape=merged,
    is_commutative=True,
)
