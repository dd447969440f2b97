"""Reductions of segments of rows (``tensorflow/core/ops/math_ops.cc``, ``core/kernels/segment_reduction_ops_impl.h``).

The ids of ``Segment*`` ascend; an id that is left out gives a row of the neutral element of Sum or Prod, zeros for
the others.  The ids of ``UnsortedSegment*`` come in any order and any shape, and rows with a negative id are dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.extras import require
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext, ShapeFunction
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, TensorShape
from asyncexec.framework.types import DType, bfloat16
from asyncexec.ops.array.array_common import check_memory
from asyncexec.ops.math.elementwise import NUMBERS, REALS, shape_text


def reduce_sorted(ufunc: np.ufunc, data: Array, ids: Array, rows: int, fill: object, *, is_mean: bool = False) -> Array:
    """Row i of the result is *ufunc* over the rows of *data* whose id is i, of *rows* in all; *fill* where none is.

    For a mean, what *ufunc* gives is divided by the number of these rows.
    """
    shape = (rows, *data.shape[1:])
    result = np.full(shape, fill, data.dtype) if fill else np.zeros(shape, data.dtype)  # which takes no memory as yet
    if len(ids):
        starts = np.flatnonzero(np.concatenate(([True], ids[1:] != ids[:-1])))
        if data.dtype.itemsize == 2 and data.dtype.kind in "fV":
            reduced = ufunc.reduceat(data.astype(np.float32), starts, axis=0).astype(data.dtype)
        else:
            reduced = ufunc.reduceat(data, starts, axis=0, dtype=data.dtype)
        result[ids[starts]] = divide_rows(reduced, np.diff(starts, append=len(ids))) if is_mean else reduced
    return result


def check_sorted(ids: Array) -> None:
    """InvalidArgumentError unless the *ids* ascend from 0 or more."""
    if len(ids):
        if ids[0] < 0:
            raise InvalidArgumentError(
                f"Segment id {ids[0]} out of range, possibly because 'segment_ids' is not sorted"
            )
        if np.any(ids[1:] < ids[:-1]):
            raise InvalidArgumentError("segment ids are not increasing")


def divide_rows(total: Array, divisor: Array) -> Array:
    """Each row of *total* by its element of *divisor*; integers are rounded towards zero."""
    divisor = divisor.astype(total.dtype).reshape(-1, *(1,) * (total.ndim - 1))
    if total.dtype.kind in "iu":
        return (total - np.fmod(total, divisor)) // divisor
    return total / divisor


def segment_counts(ids: Array, rows: int) -> Array:
    """How many *ids* there are of each row, at least 1."""
    return np.maximum(np.bincount(ids, minlength=rows), 1)


def _check_segment_inputs(data: Array, ids: Array) -> None:
    if np.ndim(data) < 1:
        raise InvalidArgumentError("input must be at least rank 1")
    if np.ndim(ids) != 1:
        raise InvalidArgumentError(f"segment_ids should be a vector, not of shape {shape_text(ids)}")
    if len(ids) != len(data):
        raise InvalidArgumentError(
            f"segment_ids should be the same size as dimension 0 of input: {len(ids)} vs. {len(data)}"
        )
    check_sorted(ids)


def _segment_kernel(ufunc: np.ufunc, fill: int, *, is_mean: bool = False) -> Kernel:
    def kernel(data: Array, ids: Array) -> Array:
        _check_segment_inputs(data, ids)
        rows = int(ids[-1]) + 1 if len(ids) else 0
        check_memory((rows, *data.shape[1:]), data.dtype)
        return reduce_sorted(ufunc, data, ids, rows, fill, is_mean=is_mean)

    return kernel


def _segment_shape(c: InferenceContext) -> Sequence[TensorShape]:
    data = c.input(0).with_rank_at_least(1)
    c.vector(1)
    return [UNKNOWN_SHAPE if data.dims is None else TensorShape([None]).concatenate(data[1:])]


_NUMBER_ATTRS: Final = "T: numbertype; Tindices: {int32, int64}"
_REAL_ATTRS: Final = "T: realnumbertype; Tindices: {int32, int64}"


def _register_sorted(name: str, attrs: str, dtypes: frozenset[DType], kernel: Kernel) -> None:
    register_op(name, "data: T, segment_ids: Tindices -> output: T", attrs, shape=_segment_shape)
    register_kernel(name, dtypes={"T": dtypes})(lambda c: kernel)


_register_sorted("SegmentSum", _NUMBER_ATTRS, NUMBERS, _segment_kernel(np.add, 0))
_register_sorted("SegmentMean", _NUMBER_ATTRS, NUMBERS, _segment_kernel(np.add, 0, is_mean=True))
_register_sorted("SegmentProd", _NUMBER_ATTRS, NUMBERS, _segment_kernel(np.multiply, 1))
_register_sorted("SegmentMax", _REAL_ATTRS, REALS, _segment_kernel(np.maximum, 0))
_register_sorted("SegmentMin", _REAL_ATTRS, REALS, _segment_kernel(np.minimum, 0))


def scalar_num_segments(num_segments: Any) -> int:
    """*num_segments* as an int; InvalidArgumentError unless it is a scalar and not negative."""
    if np.ndim(num_segments):
        raise InvalidArgumentError(f"num_segments should be a scalar, not shape {shape_text(num_segments)}")
    if num_segments < 0:
        raise InvalidArgumentError(f"Input num_segments == {num_segments} must not be negative.")
    return int(num_segments)


def _unsorted_kernel(ufunc: np.ufunc, fill: object) -> Kernel:
    def kernel(data: ArrayOrScalar, ids: ArrayOrScalar, num_segments: ArrayOrScalar) -> Array:
        rows = scalar_num_segments(num_segments)
        ids_shape = np.shape(ids)
        if np.shape(data)[: len(ids_shape)] != ids_shape:
            raise InvalidArgumentError(
                f"data.shape = {shape_text(data)} does not start with segment_ids.shape = {shape_text(ids)}"
            )
        row_shape = np.shape(data)[len(ids_shape) :]
        flat_ids = np.ravel(ids)
        check_memory((rows, *row_shape), data.dtype)
        if np.any(flat_ids >= rows):
            raise InvalidArgumentError(f"segment_ids: {flat_ids.max()} is out of range [0, {rows})")
        order = np.argsort(flat_ids, kind="stable")
        order = order[np.count_nonzero(flat_ids < 0) :]
        return reduce_sorted(ufunc, np.reshape(data, (len(flat_ids), *row_shape))[order], flat_ids[order], rows, fill)

    return kernel


def _unsorted_shape(c: InferenceContext) -> Sequence[TensorShape]:
    data, ids = c.input(0), c.input(1)
    c.scalar(2)
    if data.dims is None or ids.dims is None:
        return [UNKNOWN_SHAPE]
    rows = c.int_value(2)
    if rows is not None and rows < 0:
        raise InvalidArgumentError(f"num_segments must not be negative, but is {rows}")
    data[: len(ids.dims)].merge_with(ids)
    return [TensorShape([rows]).concatenate(data[len(ids.dims) :])]


def _lowest_finite(dtype: DType) -> object:
    return _limits(dtype).min


def _highest_finite(dtype: DType) -> object:
    return _limits(dtype).max


def _limits(dtype: DType) -> Any:
    if dtype is bfloat16:
        return require("ml_dtypes", extra="ops").finfo(dtype.as_numpy_dtype)
    return np.finfo(dtype.as_numpy_dtype) if dtype.is_floating else np.iinfo(dtype.as_numpy_dtype)


_UNSORTED_SIGNATURE: Final = "data: T, segment_ids: Tindices, num_segments: Tnumsegments -> output: T"
_UNSORTED_ATTRS: Final = "; Tindices: {int32, int64}; Tnumsegments: {int32, int64} = int32"


def _sorted_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.vector(1)
    return _unsorted_shape(c)


def _register_unsorted(
    name: str,
    attrs: str,
    dtypes: frozenset[DType],
    ufunc: np.ufunc,
    fill: object,
    shape: ShapeFunction = _unsorted_shape,
) -> None:
    register_op(name, _UNSORTED_SIGNATURE, attrs, shape=shape)

    @register_kernel(name, dtypes={"T": dtypes})
    def make(c: OpKernelConstruction) -> Kernel:
        return _unsorted_kernel(ufunc, fill(c.attr("T")) if callable(fill) else fill)


_SUM_ATTRS: Final = "T: numbertype; Tindices: {int16, int32, int64}; Tnumsegments: {int32, int64} = int32"
_register_unsorted("UnsortedSegmentSum", _SUM_ATTRS, NUMBERS, np.add, 0)
_register_unsorted("UnsortedSegmentProd", "T: numbertype" + _UNSORTED_ATTRS, NUMBERS, np.multiply, 1)
_register_unsorted("UnsortedSegmentMax", "T: realnumbertype" + _UNSORTED_ATTRS, REALS, np.maximum, _lowest_finite)
_register_unsorted("UnsortedSegmentMin", "T: realnumbertype" + _UNSORTED_ATTRS, REALS, np.minimum, _highest_finite)
# Those with a number of segments take a vector of ids, in any order, as what XLA makes of them does.
for _name, _dtypes, _ufunc, _fill in (
    ("SegmentSumV2", NUMBERS, np.add, 0),
    ("SegmentProdV2", NUMBERS, np.multiply, 1),
    ("SegmentMaxV2", REALS, np.maximum, _lowest_finite),
    ("SegmentMinV2", REALS, np.minimum, _highest_finite),
):
    _kind = "numbertype" if _dtypes is NUMBERS else "realnumbertype"
    _register_unsorted(_name, f"T: {_kind}{_UNSORTED_ATTRS}", _dtypes, _ufunc, _fill, _sorted_shape)
