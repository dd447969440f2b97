"""Order among elements: TopK, NthElement, LowerBound, UpperBound.

Rules: tensorflow/core/ops/nn_ops.cc, array_ops.cc, topk_op.cc, nth_element_op.cc, searchsorted_op.cc.  Of equal
elements TopK gives the one of lower index first; its result is sorted with ``sorted=False`` too, where TensorFlow
promises no order; a NaN counts as the largest number, where TensorFlow's place for it depends on the other elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.arrays import Array, ArrayOrScalar, NumpyDType
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction, as_value
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, Dim, TensorShape
from asyncexec.ops.array.array_common import REAL, scalar_int, scalar_value

# From this many columns on, rows of which few are wanted are partitioned rather than sorted.
_MANY = 512


def _top_k_dims(given: TensorShape, k: Dim) -> Sequence[TensorShape]:
    given = given.with_rank_at_least(1)
    if k is not None and k < 0:
        raise InvalidArgumentError(f"Need k >= 0, got {k}")
    if given.dims is None:
        return [UNKNOWN_SHAPE, UNKNOWN_SHAPE]
    last = given.dims[-1]
    if k is not None and last is not None and last < k:
        raise InvalidArgumentError(f"input must have last dimension >= k = {k} but is {last}")
    return [TensorShape((*given.dims[:-1], k))] * 2


def _top_k_v2_shape(c: InferenceContext) -> Sequence[TensorShape]:
    return _top_k_dims(c.input(0), scalar_value(c, 1))


register_op(
    "TopK",
    "input: T -> values: T, indices: int32",
    "k: int >= 0; sorted: bool = True; T: realnumbertype",
    shape=lambda c: _top_k_dims(c.input(0), c.attr("k")),
)
register_op(
    "TopKV2",
    "input: T, k: Tk -> values: T, indices: index_type",
    "sorted: bool = True; T: realnumbertype; Tk: {int16, int32, int64} = int32;"
    " index_type: {int16, int32, int64} = int32",
    shape=_top_k_v2_shape,
)


def top_k(x: Any, k: int, index_dtype: NumpyDType | type) -> tuple[Array, Array]:
    """The *k* largest elements along the last dimension, largest first, and their indices."""
    if not x.ndim:
        raise InvalidArgumentError("input must be >= 1-D, got shape []")
    columns = x.shape[-1]
    if not 0 <= k <= columns:
        raise InvalidArgumentError(f"input must have at least k = {k} columns, and k must be >= 0. Had {columns}")
    if k == 1:
        indices = _first_largest(x)
    elif columns >= _MANY and 8 * k <= columns:
        rows = x.reshape(-1, columns)
        indices = np.array([_few_largest(row, k) for row in rows], np.int64).reshape((*x.shape[:-1], k))
    else:
        indices = _all_by_size(x)[..., :k]
    return np.take_along_axis(x, indices, -1), indices.astype(index_dtype)


def _first_largest(x: Any) -> Any:
    return _all_by_size(x)[..., :1] if _has_nan(x) else x.argmax(-1, keepdims=True)


def _has_nan(x: Array) -> bool:
    return x.dtype.kind in "fV" and bool(np.isnan(x).any())


def _all_by_size(x: Array) -> Any:
    """Indices by descending element; sorting backwards what stands backwards keeps equal ones in order."""
    return x.shape[-1] - 1 - np.argsort(x[..., ::-1], axis=-1, kind="stable")[..., ::-1]


def _few_largest(row: Any, k: int) -> Any:
    if not k or _has_nan(row):
        return _all_by_size(row)[:k]
    threshold = np.partition(row, row.size - k)[row.size - k]
    candidates = np.flatnonzero(row >= threshold)
    return candidates[_all_by_size(row[candidates])[:k]]


@register_kernel("TopK", dtypes={"T": REAL})
def _top_k(c: OpKernelConstruction) -> Kernel:
    k = c.attr("k")
    return lambda x: top_k(x, k, np.int32)


@register_kernel("TopKV2", dtypes={"T": REAL})
def _top_k_v2(c: OpKernelConstruction) -> Kernel:
    index_dtype = c.np_dtype("index_type")
    return lambda x, k: top_k(x, scalar_int(k, "k"), index_dtype)


@register_kernel("ApproxTopK", dtypes={"T": {types.float16, types.bfloat16, types.float32}})
def _approx_top_k(c: OpKernelConstruction) -> Kernel:
    """All elements are looked at, so that what is found is exact."""
    k, axis, largest = c.attr("k"), c.attr("reduction_dimension"), c.attr("is_max_k")

    def approx_top_k(x: Any) -> tuple[object, object]:
        if not -x.ndim <= axis < x.ndim:
            raise InvalidArgumentError(f"reduction_dimension {axis} is out of range for an input of rank {x.ndim}")
        rows = np.moveaxis(x, axis, -1)
        values, indices = top_k(rows if largest else -rows, k, np.int32)
        return np.moveaxis(values if largest else -values, -1, axis), np.moveaxis(indices, -1, axis)

    return approx_top_k


def _approx_top_k_shape(c: InferenceContext) -> Sequence[TensorShape]:
    dims, axis, k = c.input(0).with_rank_at_least(1).dims, c.attr("reduction_dimension"), c.attr("k")
    if dims is None:
        return [UNKNOWN_SHAPE] * 2
    if not -len(dims) <= axis < len(dims):
        raise InvalidArgumentError(f"reduction_dimension {axis} is out of range for an input of rank {len(dims)}")
    axis %= len(dims)
    if dims[axis] is not None and k > dims[axis]:
        raise InvalidArgumentError(f"input must have at least k = {k} elements in dimension {axis}, not {dims[axis]}")
    return [TensorShape([*dims[:axis], k, *dims[axis + 1 :]])] * 2


register_op(
    "ApproxTopK",
    "input: T -> values: T, indices: int32",
    "k: int >= 0; reduction_dimension: int = -1; recall_target: float = 0.95; is_max_k: bool = True; "
    "reduction_input_size_override: int = -1; aggregate_to_topk: bool = True; T: {bfloat16, float16, float32}",
    shape=_approx_top_k_shape,
)


def _nth_element_shape(c: InferenceContext) -> Sequence[TensorShape]:
    given, n = c.input(0).with_rank_at_least(1), scalar_value(c, 1)
    if n is not None and n < 0:
        raise InvalidArgumentError(f"Input n must be non-negative but is {n}")
    if given.dims is None:
        return [UNKNOWN_SHAPE]
    if n is not None and given.dims[-1] is not None and given.dims[-1] <= n:
        raise InvalidArgumentError(f"Input must have last dimension > n = {n} but is {given.dims[-1]}")
    return [given[:-1]]


register_op(
    "NthElement",
    "input: T, n: int32 -> values: T",
    "reverse: bool = False; T: realnumbertype",
    shape=_nth_element_shape,
)


@register_kernel("NthElement", dtypes={"T": REAL})
def _nth_element(c: OpKernelConstruction) -> Kernel:
    from_largest = c.attr("reverse")

    def nth_element(x: Array, n: np.generic) -> ArrayOrScalar:
        position = scalar_int(n, "N")
        if not x.ndim or not 0 <= position < x.shape[-1]:
            raise InvalidArgumentError(
                f"Input must be at least rank 1 and have more than n = {n} columns: {list(x.shape)}"
            )
        position = x.shape[-1] - 1 - position if from_largest else position
        return as_value(np.partition(x, position, axis=-1)[..., position])

    return nth_element


def _bound_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.with_rank(1, 2)[:1].merge_with(c.with_rank(0, 2)[:1])
    return [c.input(1)]


for _op in ("LowerBound", "UpperBound"):
    register_op(
        _op,
        "sorted_inputs: T, values: T -> output: out_type",
        "T: type; out_type: {int32, int64} = int32",
        shape=_bound_shape,
    )


def _bound(c: OpKernelConstruction, side: Literal["left", "right"]) -> Kernel:
    np_dtype = c.np_dtype("out_type")

    def bound(ordered: Array, values: Array) -> Array:
        if ordered.ndim != 2 or values.ndim != 2 or len(ordered) != len(values):
            raise InvalidArgumentError(
                f"sorted_inputs and values must be matrices of as many rows, not {list(ordered.shape)}"
                f" and {list(values.shape)}"
            )
        output = np.empty(values.shape, np_dtype)
        for row, (haystack, needles) in enumerate(zip(ordered, values, strict=True)):
            output[row] = np.searchsorted(haystack, needles, side)
        return output

    return bound


register_kernel("LowerBound", dtypes={"T": REAL})(lambda c: _bound(c, "left"))
register_kernel("UpperBound", dtypes={"T": REAL})(lambda c: _bound(c, "right"))
