"""Which elements there are: Where, Unique (all versions) and ListDiff.

Rules: tensorflow/core/ops/array_ops.cc, where_op.cc, unique_op.cc, listdiff_op.cc.  Unique elements come in the order
of their first appearance; 0.0 and -0.0 are the same, a NaN is never the same as another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_function, register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, TensorShape
from asyncexec.ops.array.array_common import POD, REAL, boxing, canonical_axis, int_vector, integers

_COMPARABLE = REAL | {types.bool, types.string}
# Up to this many elements a dict is faster than sorting.
_FEW = 256
_VECTOR = TensorShape([None])

register_op(
    "Where",
    "input: T -> index: int64",
    "T: {float32, float64, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16,"
    " quint16, uint16, complex128, float16, uint32, uint64, bool} = bool",
    shape=lambda c: [TensorShape([None, c.input(0).rank])],
)


def where(x: ArrayOrScalar) -> Any:
    """The indices of the elements that are not zero, in order."""
    if not x.ndim:
        raise InvalidArgumentError("WhereOp: the input must have at least one dimension")
    return np.argwhere(x)


register_function("Where", function=where, dtypes={"T": POD - {types.float16}})


def _unique_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.vector(0)
    return [_VECTOR, c.input(0), _VECTOR][: c.num_outputs]


def _unique_v2_shape(c: InferenceContext) -> Sequence[TensorShape]:
    given, axes_shape, axes = c.input(0), c.vector(1), integers(c, 1)
    if given.dims is None:
        return [UNKNOWN_SHAPE, _VECTOR, _VECTOR][: c.num_outputs]
    if axes_shape[0] == 0:
        return [_VECTOR, given.with_rank(1), _VECTOR][: c.num_outputs]
    if axes is None:
        return [TensorShape([None] * len(given.dims)), _VECTOR, _VECTOR][: c.num_outputs]
    if len(axes) != 1:
        raise InvalidArgumentError(f"axis does not support input tensors larger than 1 element: {axes}")
    axis = canonical_axis(axes[0], len(given.dims))
    unique = TensorShape((*given.dims[:axis], None, *given.dims[axis + 1 :]))
    return [unique, TensorShape([given.dims[axis]]), _VECTOR][: c.num_outputs]


_V1_ATTRS = "T: type; out_idx: {int32, int64} = int32"
_V2_ATTRS = "T: type; Taxis: {int32, int64} = int64; out_idx: {int32, int64} = int32"
register_op("Unique", "x: T -> y: T, idx: out_idx", _V1_ATTRS, shape=_unique_shape)
register_op("UniqueWithCounts", "x: T -> y: T, idx: out_idx, count: out_idx", _V1_ATTRS, shape=_unique_shape)
register_op("UniqueV2", "x: T, axis: Taxis -> y: T, idx: out_idx", _V2_ATTRS, shape=_unique_v2_shape)
register_op(
    "UniqueWithCountsV2",
    "x: T, axis: Taxis -> y: T, idx: out_idx, count: out_idx",
    _V2_ATTRS,
    shape=_unique_v2_shape,
)


def number_by_first(items: Array) -> tuple[Array, Array]:
    """Where each different item of a vector first stands, in that order; and for each item the number of its like."""
    if items.size <= _FEW or items.dtype.kind in "OV":
        return _number_by_dict(items.tolist())
    _, first, inverse = np.unique(items, return_index=True, return_inverse=True, equal_nan=False)
    order = np.argsort(first)
    rank = np.empty(order.size, np.int64)
    rank[order] = np.arange(order.size)
    return first[order], rank[inverse]


def _number_by_dict(items: Sequence[object]) -> tuple[Array, Array]:
    seen: dict[object, int] = {}
    numbers = [seen.setdefault(item, len(seen)) for item in items]
    first = np.full(len(seen), len(items), np.int64)
    np.minimum.at(first, numbers, np.arange(len(items)))
    return first, np.array(numbers, np.int64)


def _slices_as_items(x: Array, axis: int) -> list[object]:
    """For each slice of *x* across *axis* something that is equal just when the slices are."""
    rows = np.moveaxis(x, axis, 0).reshape(x.shape[axis], math.prod(x.shape[:axis] + x.shape[axis + 1 :]))
    return [tuple(row) for row in rows.tolist()]


def unique(x: Any, axes: Sequence[int]) -> tuple[Any, Any, int]:
    """The different elements (slices, when *x* is no vector), and for each of *x* the number of its like."""
    if len(axes) > 1:
        raise InvalidArgumentError(f"axis does not support input tensors larger than 1 element: {list(axes)}")
    if not axes and x.ndim != 1:
        raise InvalidArgumentError("unique expects a 1D vector.")
    axis = canonical_axis(axes[0], x.ndim) if axes else 0
    first, numbers = number_by_first(x) if x.ndim == 1 else _number_by_dict(_slices_as_items(x, axis))
    return x.take(first, axis), numbers, first.size


def _unique_kernel(c: OpKernelConstruction) -> Kernel:
    np_dtype, counts = c.np_dtype("out_idx"), c.num_outputs == 3

    def kernel(x: object, axis: object = None) -> Any:
        y, numbers, size = unique(x, () if axis is None else int_vector(axis, "axis"))
        if not counts:
            return y, numbers.astype(np_dtype)
        return y, numbers.astype(np_dtype), np.bincount(numbers, minlength=size).astype(np_dtype)

    return boxing(c, kernel)


register_kernel("Unique", "UniqueV2", "UniqueWithCounts", "UniqueWithCountsV2", dtypes={"T": _COMPARABLE})(
    _unique_kernel
)


def _list_diff_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.vector(0)
    c.vector(1)
    return [_VECTOR, _VECTOR]


register_op(
    "ListDiff",
    "x: T, y: T -> out: T, idx: out_idx",
    "T: type; out_idx: {int32, int64} = int32",
    shape=_list_diff_shape,
)


@register_kernel("ListDiff", dtypes={"T": REAL | {types.string}})
def _list_diff(c: OpKernelConstruction) -> Kernel:
    np_dtype = c.np_dtype("out_idx")

    def list_diff(x: Array, y: Array) -> object:
        if x.ndim != 1 or y.ndim != 1:
            raise InvalidArgumentError(f"x and y should be 1D vectors, not {list(x.shape)} and {list(y.shape)}")
        if x.size + y.size <= _FEW or x.dtype.kind in "OV":
            taken = set(y.tolist())
            kept = np.array([index for index, item in enumerate(x.tolist()) if item not in taken], np_dtype)
        else:
            kept = np.flatnonzero(~np.isin(x, y)).astype(np_dtype)
        return x[kept], kept

    return boxing(c, list_diff)
