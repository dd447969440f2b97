"""InplaceUpdate, InplaceAdd, InplaceSub, Empty and DeepCopy (``tensorflow/core/kernels/inplace_ops.cc``).

Nothing is changed in place: an array that a kernel was given belongs to others, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction, as_value
from asyncexec.framework.kernel_registry import register_function, register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext, unchanged
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.ops.array.array_common import NUMBER, boxing, check_memory, int_vector, zeros


def _check_rows(x: Array, indices: Any, v: Array) -> None:
    if np.ndim(indices) != 1:
        raise InvalidArgumentError(f"i must be a vector. {list(np.shape(indices))}")
    if not x.ndim or x.ndim != v.ndim or x.shape[1:] != v.shape[1:] or len(indices) != len(v):
        raise InvalidArgumentError(
            f"x and v must have rows of one shape, and i as many as v has: {list(x.shape)}, {list(v.shape)}, "
            f"{list(indices.shape)}"
        )


def _put(rows: Array, index: ArrayOrScalar, values: Array) -> None:
    last = {row: number for number, row in enumerate(index.tolist())}  # the last of several stays
    rows[list(last)] = values[list(last.values())]


_CHANGES: Final[dict[str, Callable[[Any, Any, Any], None]]] = {
    "InplaceUpdate": _put,
    "InplaceAdd": np.add.at,
    "InplaceSub": np.subtract.at,
}


@register_kernel("InplaceUpdate")
@register_kernel("InplaceAdd", "InplaceSub", dtypes={"T": NUMBER})
def make_inplace(op: OpKernelConstruction) -> Kernel:
    """The kernel of InplaceUpdate, InplaceAdd and InplaceSub."""
    change = _CHANGES[op.op]

    def kernel(x: Any, indices: Any, v: Array) -> ArrayOrScalar:
        _check_rows(x, indices, v)
        changed = x.copy()
        if len(x):
            change(changed, indices % len(x), v)
        return changed

    return boxing(op, kernel)


@register_kernel("Empty")
def make_empty(op: OpKernelConstruction) -> Kernel:
    """The kernel of Empty, which is full of zeros whether or not it asks for them."""
    dtype = op.np_dtype("dtype")

    def kernel(shape: Array) -> ArrayOrScalar:
        if np.ndim(shape) != 1:
            raise InvalidArgumentError(f"shape must be a vector of int32, got shape {list(np.shape(shape))}")
        sizes = int_vector(shape, "shape")
        if any(size < 0 for size in sizes):
            raise InvalidArgumentError(f"sizes must not be negative: {list(sizes)}")
        check_memory(sizes, dtype)
        return as_value(zeros(tuple(sizes), dtype))

    return kernel


def deep_copy(x: object) -> object:
    """The kernel of DeepCopy."""
    return x.copy() if isinstance(x, np.ndarray) else x


def inplace_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """That of the first input."""
    return unchanged(c)


def empty_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """What the input spells."""
    return [c.value_as_shape(0)]


register_function("DeepCopy", function=deep_copy)
for _name in _CHANGES:
    register_op(_name, "x: T, i: int32, v: T -> y: T", "T: type", shape=inplace_shape)
register_op(
    "Empty", "shape: int32 -> output: dtype", "dtype: type; init: bool = False", is_stateful=True, shape=empty_shape
)
register_op("DeepCopy", "x: T -> y: T", "T: type", is_stateful=True, shape=unchanged)
