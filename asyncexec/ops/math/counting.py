"""Bincount, DenseBincount, HistogramFixedWidth, Bucketize
(``tensorflow/core/ops/math_ops.cc``, ``core/kernels/bincount_op.cc``, ``histogram_op.cc``, ``bucketize_op.cc``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_function, register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext, unchanged
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, TensorShape
from asyncexec.ops.array.array_common import check_memory
from asyncexec.ops.math.elementwise import shape_text
from asyncexec.ops.sparse.sparse_tensor import check_bounds, check_sparse

_WEIGHT_TYPES: Final = "T: {int32, int64, float32, float64}"


def _check_weights(values: ArrayOrScalar, weights: ArrayOrScalar) -> None:
    if np.size(weights) and np.shape(weights) != np.shape(values):
        raise InvalidArgumentError(
            "`weights` must be the same shape as `arr` or a length-0 `Tensor`, in which case it acts as all weights "
            f"equal to 1. Received {shape_text(weights)}"
        )


def _checked_bins(values: Any, size: Any, weights: Array) -> int:
    if np.ndim(size):
        raise InvalidArgumentError(f"Shape must be rank 0 but is rank {np.ndim(size)}: size has {shape_text(size)}")
    if size < 0:
        raise InvalidArgumentError(f"size ({size}) must be non-negative")
    if np.size(weights) != np.size(values):
        _check_weights(values, weights)
    if np.any(values < 0):
        raise InvalidArgumentError("Input arr must be non-negative!")
    check_memory((int(size),), weights.dtype)
    return int(size)


def _count(values: Any, bins: int, weights: Array) -> Array:
    """How often each of the numbers below *bins* stands in the vector *values*, or the sum of its weights."""
    kept = values < bins
    result = np.zeros(bins, weights.dtype)
    np.add.at(result, values[kept], weights[kept] if np.size(weights) else weights.dtype.type(1))
    return result


def bincount(values: Any, size: object, weights: Any) -> Array:
    """Count the *values* of any shape, as one vector; those not below *size* are left out."""
    bins = _checked_bins(values, size, weights)
    return _count(np.ravel(values), bins, np.ravel(weights))


def dense_bincount(values: Any, size: np.generic, weights: Any) -> ArrayOrScalar:
    """Count the *values* of a vector, or of each row of a matrix."""
    _check_weights(values, weights)
    bins = _checked_bins(values, size, weights)
    if np.ndim(values) > 2:
        raise InvalidArgumentError(f"Shape must be at most rank 2 but is rank {np.ndim(values)}")
    if np.ndim(values) < 2:
        return _count(np.ravel(values), bins, np.ravel(weights))
    rows = len(values)
    check_memory((rows, bins), weights.dtype)
    cells = np.where(values < bins, values.astype(np.int64) + bins * np.arange(rows)[:, None], rows * bins)
    return _count(np.ravel(cells), rows * bins, np.ravel(weights)).reshape(rows, bins)


def dense_presence(values: ArrayOrScalar, size: np.generic, weights: Any) -> ArrayOrScalar:
    """1 where a number stands among the *values*, else 0."""
    _check_weights(values, weights)
    counts = dense_bincount(values, size, weights[:0] if np.ndim(weights) else weights)
    return (counts != 0).astype(weights.dtype)


@register_kernel("DenseBincount")
def _dense_bincount(c: OpKernelConstruction) -> Kernel:
    return dense_presence if c.attr("binary_output") else dense_bincount


def _bins(c: InferenceContext) -> int | None:
    c.scalar(1)
    size = c.int_value(1)
    if size is not None and size < 0:
        raise InvalidArgumentError(f"size ({size}) must be non-negative")
    return size


def _bincount_shape(c: InferenceContext) -> Sequence[TensorShape]:
    return [TensorShape([_bins(c)])]


def _dense_bincount_shape(c: InferenceContext) -> Sequence[TensorShape]:
    shape, size = c.input(0).with_rank_at_most(2), _bins(c)
    if shape.dims is None:
        return [UNKNOWN_SHAPE]
    return [TensorShape([size]) if len(shape.dims) < 2 else TensorShape([shape.dims[0], size])]


register_op("Bincount", "arr: int32, size: int32, weights: T -> bins: T", _WEIGHT_TYPES, shape=_bincount_shape)
register_function("Bincount", function=bincount)
register_op(
    "DenseBincount",
    "input: Tidx, size: Tidx, weights: T -> output: T",
    f"Tidx: {{int32, int64}}; {_WEIGHT_TYPES}; binary_output: bool = False",
    shape=_dense_bincount_shape,
)


@register_kernel("HistogramFixedWidth")
def _histogram(c: OpKernelConstruction) -> Kernel:
    out_type = c.np_dtype("dtype")

    def kernel(values: ArrayOrScalar, value_range: Array, nbins: Any) -> ArrayOrScalar:
        if np.shape(value_range) != (2,):
            raise InvalidArgumentError(f"value_range should be a vector of 2 elements, not {shape_text(value_range)}")
        if np.ndim(nbins):
            raise InvalidArgumentError(f"nbins should be a scalar, not of shape {shape_text(nbins)}")
        if nbins <= 0:
            raise InvalidArgumentError(f"nbins should be a positive number, but got '{nbins}'")
        low, high = value_range
        if not low < high:
            raise InvalidArgumentError(
                f"value_range should satisfy value_range[0] < value_range[1], but got '[{low}, {high}]'"
            )
        check_memory((int(nbins),), out_type)
        if np.any(np.isnan(values)):
            raise InvalidArgumentError("Histogram values must not contain NaN")
        cells = _cells(np.ravel(values), low, high, int(nbins))
        return np.bincount(cells, minlength=int(nbins)).astype(out_type)

    return kernel


def _cells(values: ArrayOrScalar, low: np.generic, high: np.generic, nbins: int) -> Any:
    step = (float(high) - float(low)) / nbins
    places = (np.clip(values, low, high).astype(np.float64) - float(low)) / step
    return np.clip(places, 0, nbins - 1).astype(np.int64)


def _histogram_shape(c: InferenceContext) -> Sequence[TensorShape]:
    value_range = c.vector(1)
    if value_range.dims is not None and value_range.dims[0] not in (None, 2):
        raise InvalidArgumentError(f"value_range must have 2 elements, not {value_range.dims[0]}")
    c.scalar(2)
    nbins = c.int_value(2)
    if nbins is not None and nbins <= 0:
        raise InvalidArgumentError(f"Requires nbins > 0: {nbins}")
    return [TensorShape([nbins])]


register_op(
    "HistogramFixedWidth",
    "values: T, value_range: T, nbins: int32 -> out: dtype",
    "T: {int32, int64, float32, float64}; dtype: {int32, int64} = int32",
    shape=_histogram_shape,
)


@register_kernel("Bucketize")
def _bucketize(c: OpKernelConstruction) -> Kernel:
    boundaries = np.array(c.attr("boundaries"), np.float32)
    if np.any(boundaries[1:] < boundaries[:-1]):
        raise InvalidArgumentError(f"Expected sorted boundaries, not {boundaries.tolist()}")
    wide = boundaries.astype(np.float64)
    as_double = c.attr("T") in (types.int64, types.float64)

    def kernel(x: ArrayOrScalar) -> ArrayOrScalar:
        found = np.searchsorted(wide if as_double else boundaries, x, side="right")
        return found.astype(np.int32)

    return kernel


register_op(
    "Bucketize",
    "input: T -> output: int32",
    "T: {int32, int64, float32, float64}; boundaries: list(float)",
    shape=unchanged,
)


def _sparse_bincount_shape(c: InferenceContext) -> Sequence[TensorShape]:
    shape, bins = c.value_as_shape(2), c.int_value(3)
    if bins is not None and bins < 0:
        raise InvalidArgumentError(f"size ({bins}) must be non-negative")
    if shape.dims is None:
        return [UNKNOWN_SHAPE]
    return [TensorShape([*shape.dims[:-1], bins])]


register_op(
    "SparseBincount",
    "indices: int64, values: Tidx, dense_shape: int64, size: Tidx, weights: T -> output: T",
    f"Tidx: {{int32, int64}}; {_WEIGHT_TYPES}; binary_output: bool = False",
    shape=_sparse_bincount_shape,
)


@register_kernel("SparseBincount")
def sparse_bincount(c: OpKernelConstruction) -> Kernel:
    """Count the values of a sparse vector, or of each row of a sparse matrix, where those below 0 are left out."""
    is_binary = c.attr("binary_output")

    def kernel(indices: Array, values: Array, shape: Array, size: np.generic, weights: Array) -> Array:
        check_sparse(indices, values, shape)
        check_bounds(indices, shape)
        if len(shape) not in (1, 2):
            raise InvalidArgumentError(f"a sparse vector or matrix is needed, not one of shape {shape.tolist()}")
        bins = _checked_bins(values if len(shape) == 1 else np.maximum(values, 0), size, weights)
        rows = int(shape[0]) if len(shape) == 2 else 1
        check_memory((rows, bins), weights.dtype)
        kept = (values >= 0) & (values < bins)
        row = indices[kept, 0] if len(shape) == 2 else np.zeros(np.count_nonzero(kept), np.int64)
        found = np.zeros((rows, bins), weights.dtype)
        if is_binary:
            found[row, values[kept]] = 1
        else:
            np.add.at(found, (row, values[kept]), weights[kept] if np.size(weights) else weights.dtype.type(1))
        return found if len(shape) == 2 else found[0]

    return kernel
