"""SparseSegmentSum and its kin: rows picked by index, then reduced by segment
(``tensorflow/core/ops/math_ops.cc``, ``core/kernels/segment_reduction_ops_impl.h``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel
from asyncexec.framework.kernel_registry import register_function
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, TensorShape
from asyncexec.ops.array.array_common import check_memory
from asyncexec.ops.math.elementwise import FLOATS, REALS, shape_text
from asyncexec.ops.math.segment import check_sorted, divide_rows, reduce_sorted, segment_counts

# What a row's sum is divided by, given how many rows were added up; None: nothing.
Divisor = Callable[[Any], Any] | None


def _count(counts: object) -> Any:
    return counts


def _check_inputs(data: Array, indices: Array, ids: Array) -> None:
    if np.ndim(indices) != 1 or np.ndim(ids) != 1:
        raise InvalidArgumentError(
            f"indices and segment_ids should be vectors, not {shape_text(indices)} and {shape_text(ids)}"
        )
    if len(indices) != len(ids):
        raise InvalidArgumentError(f"segment_ids and indices should have same size: {len(ids)} vs. {len(indices)}")
    if np.ndim(data) < 1:
        raise InvalidArgumentError("Shape must be at least rank 1")
    check_sorted(ids)
    _check_indices(indices, len(data))


def _check_indices(indices: Array, limit: int) -> None:
    outside = np.flatnonzero((indices < 0) | (indices >= limit))
    if len(outside):
        at = outside[0]
        raise InvalidArgumentError(f"Bad: indices[{at}] == {indices[at]} out of range [0, {limit})")


def _reduce(data: Array, indices: Array, ids: Array, rows: int, divisor: Divisor) -> Array:
    check_memory((rows, *data.shape[1:]), data.dtype)
    wide = data.dtype if data.dtype.itemsize > 2 or data.dtype.kind in "iu" else np.dtype(np.float32)
    total = reduce_sorted(np.add, data[indices].astype(wide, copy=False), ids, rows, 0)
    if divisor is not None:
        total = divide_rows(total, divisor(segment_counts(ids, rows)))
    return total.astype(data.dtype, copy=False)


def _kernel(divisor: Divisor) -> Kernel:
    def kernel(data: Array, indices: Array, ids: Array) -> Array:
        _check_inputs(data, indices, ids)
        return _reduce(data, indices, ids, int(ids[-1]) + 1 if len(ids) else 0, divisor)

    return kernel


def _kernel_with_num_segments(divisor: Divisor) -> Kernel:
    def kernel(data: Array, indices: Array, ids: Array, num_segments: Any) -> Array:
        if np.ndim(num_segments):
            raise InvalidArgumentError(f"num_segments should be a scalar, not shape {shape_text(num_segments)}")
        if num_segments < 0:
            raise InvalidArgumentError(f"segment ids must be >= 0: num_segments is {num_segments}")
        _check_inputs(data, indices, ids)
        if len(ids) and ids[-1] >= num_segments:
            raise InvalidArgumentError(f"segment ids must be < num_segments: {ids[-1]} >= {num_segments}")
        return _reduce(data, indices, ids, int(num_segments), divisor)

    return kernel


def _gradient_kernel(divisor: Divisor) -> Kernel:
    def kernel(grad: Array, indices: Array, ids: Array, output_dim0: np.generic) -> Array:
        if np.ndim(output_dim0):
            raise InvalidArgumentError(f"output_dim0 should be a scalar, not shape {shape_text(output_dim0)}")
        _check_inputs(grad, ids, np.zeros(len(indices), np.int64))
        _check_indices(indices, int(output_dim0))
        wide = grad.astype(np.float32) if grad.dtype.itemsize == 2 else grad
        if divisor is not None:
            wide = divide_rows(wide, divisor(segment_counts(ids, len(grad))))
        order = np.argsort(indices, kind="stable")
        check_memory((int(output_dim0), *grad.shape[1:]), grad.dtype)
        total = reduce_sorted(np.add, wide[ids[order]], indices[order], int(output_dim0), 0)
        return total.astype(grad.dtype, copy=False)

    return kernel


def _unique_gradient_kernel(divisor: Divisor) -> Kernel:
    """The rows of the gradient that are not zero, and which they are."""
    gradient = _gradient_kernel(divisor)

    def kernel(grad: Array, indices: Array, ids: Array, dense_output_dim0: np.generic) -> tuple[Array, Array]:
        if np.ndim(dense_output_dim0):
            raise InvalidArgumentError(f"dense_output_dim0 should be a scalar, not {shape_text(dense_output_dim0)}")
        _check_inputs(grad, ids, np.zeros(len(indices), np.int64))
        _check_indices(indices, int(dense_output_dim0))
        found, places = np.unique(indices, return_inverse=True)
        return gradient(grad, places.ravel(), ids, np.int32(len(found))), found

    return kernel


def _unique_shape(c: InferenceContext) -> Sequence[TensorShape]:
    data = c.input(0).with_rank_at_least(1)
    c.vector(1).merge_with(c.vector(2))
    c.scalar(3)
    rows = UNKNOWN_SHAPE if data.dims is None else TensorShape([None]).concatenate(data[1:])
    return [rows, TensorShape([None])]


def _shape(c: InferenceContext) -> Sequence[TensorShape]:
    data = c.input(0).with_rank_at_least(1)
    c.vector(1).merge_with(c.vector(2))
    return [UNKNOWN_SHAPE if data.dims is None else TensorShape([None]).concatenate(data[1:])]


def _sized_shape(c: InferenceContext) -> Sequence[TensorShape]:
    data = c.input(0).with_rank_at_least(1)
    c.vector(1).merge_with(c.vector(2))
    c.scalar(3)
    rows = c.int_value(3)
    if rows is not None and rows < 0:
        raise InvalidArgumentError(f"Cannot specify a negative value: {rows}")
    return [UNKNOWN_SHAPE if data.dims is None else TensorShape([rows]).concatenate(data[1:])]


_INDEX_ATTRS: Final = "Tidx: {int32, int64} = int32; Tsegmentids: {int32, int64} = int32"
_FORWARD_ATTRS: Final = f"{_INDEX_ATTRS}; sparse_gradient: bool = False"
_FLOAT_ATTR: Final = "T: {bfloat16, float16, float32, float64}"
_INPUTS: Final = "indices: Tidx, segment_ids: Tsegmentids"

_DIVISORS: Final[dict[str, Divisor]] = {"Sum": None, "Mean": _count, "SqrtN": np.sqrt}
for _name, _divisor in _DIVISORS.items():
    _op = f"SparseSegment{_name}"
    _type = "T: realnumbertype" if _divisor is None else _FLOAT_ATTR
    _dtypes = {"T": REALS if _divisor is None else FLOATS}
    register_op(_op, f"data: T, {_INPUTS} -> output: T", f"{_type}; {_FORWARD_ATTRS}", shape=_shape)
    register_function(_op, function=_kernel(_divisor), dtypes=_dtypes)
    register_op(
        f"{_op}WithNumSegments",
        f"data: T, {_INPUTS}, num_segments: Tnumsegments -> output: T",
        f"{_type}; {_FORWARD_ATTRS}; Tnumsegments: {{int32, int64}} = int32",
        shape=_sized_shape,
    )
    register_function(f"{_op}WithNumSegments", function=_kernel_with_num_segments(_divisor), dtypes=_dtypes)
    register_op(
        f"{_op}Grad",
        f"grad: T, {_INPUTS}, output_dim0: int32 -> output: T",
        f"{_FLOAT_ATTR}; {_INDEX_ATTRS}",
        shape=_sized_shape,
    )
    register_function(f"{_op}Grad", function=_gradient_kernel(_divisor), dtypes={"T": FLOATS})
    register_op(
        f"{_op}GradV2",
        f"grad: T, {_INPUTS}, dense_output_dim0: int32 -> output: T, sorted_unique_indices: Tidx",
        f"{_FLOAT_ATTR}; {_INDEX_ATTRS}",
        shape=_unique_shape,
    )
    register_function(f"{_op}GradV2", function=_unique_gradient_kernel(_divisor), dtypes={"T": FLOATS})
