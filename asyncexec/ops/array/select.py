"""Select and SelectV2 (``tensorflow/core/ops/math_ops.cc``, ``core/kernels/cwise_op_select.cc``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction, as_value
from asyncexec.framework.kernel_registry import register_function, register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext, broadcast_shapes
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.ops.math.elementwise import NUMBERS, gives_scalar, shape_text

_SELECTABLE: Final = NUMBERS | {types.bool, types.string}
_OPAQUE: Final = frozenset({types.resource, types.variant, types.object})


def select(condition: Any, t: Any, e: Any) -> Any:
    """*t* where *condition*, else *e*; the condition is of their shape, a scalar, or a vector that chooses rows."""
    shape = np.shape(t)
    if np.shape(e) != shape:
        raise InvalidArgumentError(
            f"'then' and 'else' must have the same size, but received: {shape_text(t)} vs. {shape_text(e)}"
        )
    chosen = np.shape(condition)
    if chosen == ():
        return t if condition else e
    if chosen != shape:
        condition = _for_rows(condition, t)
    return np.where(condition, t, e)


def _for_rows(condition: Array, t: Array) -> ArrayOrScalar:
    rank = np.ndim(t)
    if condition.ndim != 1 or rank < 1 or len(condition) != len(t):
        raise InvalidArgumentError(
            "'cond' must be a scalar, of the shape of 'then', or a vector as long as its first dimension, "
            f"but received: {shape_text(condition)} vs. {shape_text(t)}"
        )
    return condition.reshape(-1, *(1,) * (rank - 1))


def select_v2(condition: ArrayOrScalar, t: Any, e: Any) -> ArrayOrScalar:
    """*t* where *condition*, else *e*; all three broadcast."""
    try:
        return as_value(np.where(condition, t, e))
    except ValueError:
        raise InvalidArgumentError(
            f"condition {shape_text(condition)}, then {shape_text(t)}, and else {shape_text(e)} must be broadcastable"
        ) from None


def choose(condition: object, t: object, e: object) -> Any:
    """*t* or *e*, for scalars."""
    return t if condition else e


def select_value(condition: Any, t: object, e: object) -> object:
    """*t* or *e*, whole."""
    if np.ndim(condition):
        raise InvalidArgumentError(f"a handle is chosen by a scalar, not by {shape_text(condition)}")
    return choose(condition, t, e)


@register_kernel("SelectV2", dtypes={"T": _SELECTABLE}, is_elementwise=True)
def _select_v2(c: OpKernelConstruction) -> Kernel:
    return choose if gives_scalar(c) else select_v2


def _select_shape(c: InferenceContext) -> Sequence[TensorShape]:
    condition, data = c.input(0), c.input(1).merge_with(c.input(2))
    if condition.rank is None or data.rank is None or condition.rank == 0:
        return [data]
    if condition.rank == 1:
        # A vector chooses among rows; the lengths must agree.
        if data.rank == 0:
            raise InvalidArgumentError(f"Shapes {condition} and {data} are not compatible: 'then' is a scalar")
        return [condition.merge_with(data[:1]).concatenate(data[1:])]
    return [condition.merge_with(data)]


def _select_v2_shape(c: InferenceContext) -> Sequence[TensorShape]:
    return [broadcast_shapes(c.input(0), broadcast_shapes(c.input(1), c.input(2)))]


register_op("Select", "condition: bool, t: T, e: T -> output: T", "T: type", shape=_select_shape)
register_op("SelectV2", "condition: bool, t: T, e: T -> output: T", "T: type", shape=_select_v2_shape)
register_function("Select", function=select, dtypes={"T": _SELECTABLE}, is_elementwise=True)
register_function("Select", "SelectV2", function=select_value, dtypes={"T": _OPAQUE})
