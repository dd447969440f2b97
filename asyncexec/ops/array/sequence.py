"""Range, LinSpace, Cross, BroadcastGradientArgs
(``tensorflow/core/ops/math_ops.cc``, ``core/kernels/sequence_ops.cc``, ``cross_op.cc``, ``bcast_ops.cc``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import FailedPreconditionError, InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_function, register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.ops.array.array_common import check_memory
from asyncexec.ops.math.elementwise import FLOATS, WIDE_FLOATS, shape_text

_MAX_COUNT: Final = 2**63 - 1


def _scalar(name: str, value: Any) -> np.generic:
    if isinstance(value, np.generic):
        return value
    if np.size(value) != 1 or np.ndim(value) > 1:
        raise InvalidArgumentError(f"{name} must be a scalar, not shape {shape_text(value)}")
    return np.ravel(value)[0] if np.ndim(value) else value


def range_size(start: Any, limit: Any, delta: Any) -> int:
    """How many numbers there are from *start* on, *delta* apart, before *limit*."""
    if delta == 0:
        raise InvalidArgumentError(f"Requires delta != 0: {delta}")
    if delta > 0 and not start <= limit:
        raise InvalidArgumentError(f"Requires start <= limit when delta > 0: {start}/{limit}")
    if delta < 0 and not start >= limit:
        raise InvalidArgumentError(f"Requires start >= limit when delta < 0: {start}/{limit}")
    if isinstance(start, (np.integer, int)):
        distance, step = abs(int(limit) - int(start)), abs(int(delta))
        return -(-distance // step)
    size = abs(float((limit - start) / delta))
    if not size <= _MAX_COUNT:
        raise InvalidArgumentError(f"Requires ((limit - start) / delta) <= {_MAX_COUNT}")
    return math.ceil(size)


@register_kernel("Range", dtypes={"Tidx": FLOATS | {types.int32, types.int64}})
def _range(c: OpKernelConstruction) -> Kernel:
    dtype = c.np_dtype("Tidx")
    is_integer = c.attr("Tidx").is_integer

    def kernel(start: object, limit: object, delta: object) -> Any:
        start, limit, delta = _scalar("start", start), _scalar("limit", limit), _scalar("delta", delta)
        size = range_size(start, limit, delta)
        check_memory((size,), dtype)
        if is_integer:
            counted = np.arange(size, dtype=dtype)
            if delta != 1:
                counted *= delta
            if start != 0:
                counted += start
            return counted
        return start + np.arange(size).astype(dtype) * delta

    return kernel


def _range_shape(c: InferenceContext) -> Sequence[TensorShape]:
    for index in range(3):
        c.scalar(index)
    start, limit, delta = (c.value(index) for index in range(3))
    if start is None or limit is None or delta is None:
        return [TensorShape([None])]
    return [TensorShape([range_size(start, limit, delta)])]


register_op(
    "Range",
    "start: Tidx, limit: Tidx, delta: Tidx -> output: Tidx",
    "Tidx: {bfloat16, float16, float32, float64, int8, int16, int32, int64, uint16, uint32, uint64} = int32",
    shape=_range_shape,
)


@register_kernel("LinSpace", dtypes={"T": WIDE_FLOATS})
def _lin_space(c: OpKernelConstruction) -> Kernel:
    dtype = c.np_dtype("T")

    def kernel(start: Any, stop: Any, num: Any) -> ArrayOrScalar:
        for name, value in (("start", start), ("stop", stop), ("num", num)):
            if np.ndim(value):
                raise InvalidArgumentError(f"{name} must be a scalar, not shape {shape_text(value)}")
        if num <= 0:
            raise InvalidArgumentError(f"Requires num > 0: {num}")
        check_memory((int(num),), dtype)
        if num == 1:
            return np.array([start], dtype)
        result = start + np.arange(num, dtype=dtype) * ((stop - start) / dtype.type(num - 1))
        result[-1] = stop
        return result

    return kernel


def _lin_space_shape(c: InferenceContext) -> Sequence[TensorShape]:
    for index in range(3):
        c.scalar(index)
    num = c.int_value(2)
    if num is not None and num <= 0:
        raise InvalidArgumentError(f"Requires num > 0: {num}")
    return [TensorShape([num])]


register_op(
    "LinSpace",
    "start: T, stop: T, num: Tidx -> output: T",
    "T: {bfloat16, float16, float32, float64}; Tidx: {int32, int64} = int32",
    shape=_lin_space_shape,
)


def cross(a: Array, b: Array) -> Array:
    """The cross product of the 3-element vectors along the last axis."""
    if np.shape(a) != np.shape(b):
        raise InvalidArgumentError(f"Both inputs must be of same shape: {shape_text(a)} vs. {shape_text(b)}")
    if np.ndim(a) < 1:
        raise InvalidArgumentError(f"Input must be at least 1D, not {shape_text(a)}")
    if a.shape[-1] != 3:
        raise FailedPreconditionError("Cross-products are only defined for 3-element vectors.")
    after, before = [1, 2, 0], [2, 0, 1]
    return a[..., after] * b[..., before] - a[..., before] * b[..., after]


def _cross_shape(c: InferenceContext) -> Sequence[TensorShape]:
    a, b = c.input(0).with_rank_at_least(1), c.input(1).with_rank_at_least(1)
    for shape in (a, b):
        if shape.dims is not None and shape.dims[-1] not in (None, 3):
            raise InvalidArgumentError(f"Dimension must be 3 but is {shape.dims[-1]}")
    return [a.merge_with(b)]


register_op("Cross", "a: T, b: T -> product: T", "T: realnumbertype", shape=_cross_shape)
register_function("Cross", function=cross)


def broadcast_gradient_args(s0: Array, s1: Array) -> tuple[Array, Array]:
    """The axes that the gradients of two operands of shapes *s0* and *s1* are to be summed over."""
    for index, shape in enumerate((s0, s1)):
        if np.ndim(shape) != 1:
            raise InvalidArgumentError(f"In[{index}] must be a vector, not of shape {shape_text(shape)}")
    first, second = s0.tolist(), s1.tolist()
    if first == second:
        return s0[:0], s1[:0]
    rank = max(len(first), len(second))
    padded = zip([1] * (rank - len(first)) + first, [1] * (rank - len(second)) + second, strict=True)
    axes: tuple[list[int], list[int]] = ([], [])
    for axis, (x, y) in enumerate(padded):
        if x != y and 1 not in (x, y):
            raise InvalidArgumentError(f"Incompatible shapes: {first} vs. {second}")
        if x == 1:
            axes[0].append(axis)
        if y == 1:
            axes[1].append(axis)
    return np.array(axes[0], s0.dtype), np.array(axes[1], s1.dtype)


def _broadcast_gradient_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.vector(0)
    c.vector(1)
    return [TensorShape([None]), TensorShape([None])]


register_op(
    "BroadcastGradientArgs",
    "s0: T, s1: T -> r0: T, r1: T",
    "T: {int32, int64} = int32",
    shape=_broadcast_gradient_shape,
)
register_function("BroadcastGradientArgs", function=broadcast_gradient_args)
