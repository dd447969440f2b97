"""Reductions over axes (``tensorflow/core/ops/math_ops.cc``, ``core/kernels/reduction_ops_*.cc``).

The axes are an input: a scalar or a list, negative ones counted from the end, each at most once.  An empty list
reduces nothing.  The small floats are summed in float32; integers wrap around, except that Mean sums them in 64 bits
and rounds towards zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.arrays import ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.ownership import is_frozen
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, TensorShape, unknown_shape
from asyncexec.framework.types import DType
from asyncexec.ops.math.elementwise import NUMBERS, REALS, SMALL_FLOATS

Axes: TypeAlias = tuple[int, ...]
# (input, axes, keep_dims) -> output
Reduce: TypeAlias = Callable[[Any, Axes, bool], Any]

_SIGNATURE: Final = "input: T, reduction_indices: Tidx -> output: T"
_NUMBER_ATTRS: Final = "keep_dims: bool = False; T: numbertype; Tidx: {int32, int64} = int32"
_ORDERED_ATTRS: Final = (
    "keep_dims: bool = False; T: {float32, float64, int32, uint8, int16, int8, int64, bfloat16, uint16, float16, "
    "uint32, uint64, qint8, quint8, qint32, qint16, quint16}; Tidx: {int32, int64} = int32"
)


_add_reduce: Final[Any] = np.add.reduce


def normalized_axes(axes: Any, rank: int) -> Axes:
    """The *axes* of a tensor of *rank*, from 0 up; InvalidArgumentError for one that is not there or comes twice."""
    given = axes.tolist() if axes.ndim == 1 else np.ravel(axes).tolist() if axes.ndim else (int(axes),)
    found: list[int] = []
    for axis in given:
        if not -rank <= axis < rank:
            raise InvalidArgumentError(f"Invalid reduction dimension ({axis} for input with {rank} dimension(s))")
        found.append(axis % rank)
    if len(set(found)) < len(found):
        raise InvalidArgumentError(f"Invalid reduction arguments: Axes contains duplicate dimension: {found}")
    return tuple(found)


def _reduction_shape(c: InferenceContext) -> Sequence[TensorShape]:
    shape = c.input(0)
    axes_rank = c.input(1).with_rank_at_most(1).rank
    keep_dims, axes = c.attr("keep_dims"), c.value(1)
    if shape.dims is None:
        return [TensorShape(()) if axes_rank == 0 and shape.rank == 1 else UNKNOWN_SHAPE]
    rank = len(shape.dims)
    if axes is None:
        return [unknown_shape(rank) if keep_dims else UNKNOWN_SHAPE]
    reduced = _static_axes(axes, rank)
    if keep_dims:
        return [TensorShape(1 if axis in reduced else size for axis, size in enumerate(shape.dims))]
    return [TensorShape(size for axis, size in enumerate(shape.dims) if axis not in reduced)]


def _static_axes(axes: ArrayOrScalar, rank: int) -> set[int]:
    found = set()
    for axis in np.ravel(axes).tolist():
        if not -rank <= axis < rank:
            raise InvalidArgumentError(f"Invalid reduction dimension {axis} for input with {rank} dimensions.")
        found.add(axis % rank)
    return found


def _sum(dtype: DType) -> Reduce:
    return _by_ufunc(np.add, dtype)


def _prod(dtype: DType) -> Reduce:
    return _by_ufunc(np.multiply, dtype)


def _by_ufunc(ufunc: np.ufunc, dtype: DType) -> Reduce:
    np_dtype, reduce = dtype.as_numpy_dtype, ufunc.reduce
    if dtype in SMALL_FLOATS:
        wide = np.dtype(np.float32)
        return lambda x, axes, keep: reduce(x.astype(wide), axes, keepdims=keep).astype(np_dtype)
    return lambda x, axes, keep: reduce(x, axes, np_dtype, keepdims=keep)


def _mean(dtype: DType) -> Reduce:
    np_dtype = dtype.as_numpy_dtype
    if dtype.is_integer:
        wide: Any = np.uint64 if dtype.is_unsigned else np.int64

        def mean_of_integers(x: object, axes: Axes, keep: bool) -> object:
            total = _add_reduce(x, axes, wide, keepdims=keep)
            count = wide(max(_count(x, axes), 1))
            return ((total - np.fmod(total, count)) // count).astype(np_dtype)

        return mean_of_integers
    accumulator = np.dtype(np.float32) if dtype in SMALL_FLOATS else np_dtype

    def mean(x: ArrayOrScalar, axes: Axes, keep: bool) -> ArrayOrScalar:
        total = _add_reduce(x.astype(accumulator, copy=False), axes, keepdims=keep)
        return (total / accumulator.type(_count(x, axes))).astype(np_dtype, copy=False)

    def mean_of_complex(x: object, axes: Axes, keep: bool) -> object:
        total = _add_reduce(x, axes, keepdims=keep)
        return total / np_dtype.type(max(_count(x, axes), 1))

    return mean_of_complex if dtype.is_complex else mean


def _count(x: Any, axes: Axes) -> int:
    count = 1
    for axis in axes:
        count *= x.shape[axis]
    return count


def _max(dtype: DType) -> Reduce:
    return _by_ordering(np.maximum, lowest(dtype))


def _min(dtype: DType) -> Reduce:
    return _by_ordering(np.minimum, highest(dtype))


def _by_ordering(ufunc: np.ufunc, initial: object) -> Reduce:
    reduce = ufunc.reduce
    return lambda x, axes, keep: reduce(x, axes, keepdims=keep, initial=initial)


def lowest(dtype: DType) -> np.generic:
    """What the maximum of nothing is."""
    np_dtype = dtype.as_numpy_dtype
    return np_dtype.type(-np.inf) if dtype.is_floating else np_dtype.type(np.iinfo(np_dtype).min)


def highest(dtype: DType) -> np.generic:
    """What the minimum of nothing is."""
    np_dtype = dtype.as_numpy_dtype
    return np_dtype.type(np.inf) if dtype.is_floating else np_dtype.type(np.iinfo(np_dtype).max)


def _euclidean_norm(dtype: DType) -> Reduce:
    np_dtype = dtype.as_numpy_dtype
    wide = np.dtype(np.float32) if dtype in SMALL_FLOATS else np_dtype
    root = np.dtype(np.float64) if dtype.is_integer else wide

    def squared(x: Any) -> ArrayOrScalar:
        # The small floats are squared as they are; the product of a complex number and its conjugate is real.
        return x * x if not dtype.is_complex else x.real * x.real + x.imag * x.imag

    def norm(x: object, axes: Axes, keep: bool) -> ArrayOrScalar:
        squares = _add_reduce(squared(x), axes, None if dtype.is_complex else wide, keepdims=keep)
        if wide is not np_dtype and dtype in SMALL_FLOATS:
            squares = squares.astype(np_dtype).astype(wide)
        return np.sqrt(squares.astype(root, copy=False)).astype(np_dtype, copy=False)

    return norm


def _register(name: str, attrs: str, make_reduce: Callable[[DType], Reduce], dtypes: frozenset[DType]) -> None:
    register_op(name, _SIGNATURE, attrs, shape=_reduction_shape)

    @register_kernel(name, dtypes={"T": dtypes})
    def make(c: OpKernelConstruction) -> Kernel:
        return _over_axes(make_reduce(c.attr("T")), c.attr("keep_dims"))


def _over_axes(reduce: Reduce, keep_dims: bool) -> Kernel:
    last: tuple[object, int, Axes] = None, 0, ()  # mostly the axes are a constant

    def kernel(x: Any, axes: object) -> ArrayOrScalar:
        nonlocal last
        known, known_rank, found = last
        rank = np.ndim(x)
        if axes is not known or rank != known_rank:
            found = normalized_axes(axes, rank)
            if isinstance(axes, np.ndarray) and is_frozen(axes):
                last = axes, rank, found
        return reduce(x, found, keep_dims)

    return kernel


_register("Sum", _NUMBER_ATTRS, _sum, NUMBERS)
_register("Prod", _NUMBER_ATTRS, _prod, NUMBERS)
_register("Mean", _NUMBER_ATTRS, _mean, NUMBERS)
_register("EuclideanNorm", _NUMBER_ATTRS, _euclidean_norm, NUMBERS)
_register("Max", _ORDERED_ATTRS, _max, REALS)
_register("Min", _ORDERED_ATTRS, _min, REALS)


def _register_logical(name: str, ufunc: np.ufunc) -> None:
    register_op(
        name,
        "input: bool, reduction_indices: Tidx -> output: bool",
        "keep_dims: bool = False; Tidx: {int32, int64} = int32",
        shape=_reduction_shape,
    )

    @register_kernel(name)
    def make(c: OpKernelConstruction) -> Kernel:
        return _over_axes(_by_ufunc(ufunc, types.bool), c.attr("keep_dims"))


_register_logical("All", np.logical_and)
_register_logical("Any", np.logical_or)
