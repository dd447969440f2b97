"""Slice and the StridedSlice family: masks, new axes, shrunk axes, an ellipsis, negative strides, clamping.

Rules: tensorflow/core/util/strided_slice_op.cc (what a spec means and which static shape follows from it),
slice_op.cc, strided_slice_op.cc.  TensorFlow's spec means the same as numpy's basic indexing once masked ends are
None, so kernels translate it entry by entry and leave clamping to numpy; only the shape function computes intervals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction, as_value
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, Dim, TensorShape, unknown_shape
from asyncexec.framework.types import ALL_DTYPES
from asyncexec.ops.array.array_common import PLAIN, boxing, by_function, int_vector, integers, zeros

_NOT_16_BIT_QUANTIZED = frozenset(dtype for dtype in ALL_DTYPES if dtype.name not in ("qint16", "quint16"))
Index: TypeAlias = tuple[Any, ...]


def _slice_shape(c: InferenceContext) -> Sequence[TensorShape]:
    begin_shape = c.vector(1).merge_with(c.vector(2))
    given, begin, size = c.input(0), integers(c, 1), integers(c, 2)
    rank = given.rank if given.rank is not None else begin_shape[0]
    if rank is None:
        return [UNKNOWN_SHAPE]
    begin_shape.merge_with([rank])
    if size is None:
        sizes = c.value_as_shape(2)
        return [sizes.with_rank(rank) if sizes.dims is not None else unknown_shape(rank)]
    dims = given.as_list() if given.dims is not None else [None] * rank
    begins: list[int | None] = [None] * rank if begin is None else list(begin)
    return [TensorShape(map(_sliced_dim, dims, begins, size))]


def _sliced_dim(dim: Dim, begin: int | None, size: int) -> Dim:
    if size < -1 or (dim is not None and begin is not None and begin < 0):
        raise InvalidArgumentError(f"a slice begins at 0 or later and is of size -1 or more, not {begin}, {size}")
    if dim is not None and begin is not None:
        if begin > dim or begin + size > dim:
            raise InvalidArgumentError(f"Expected begin in [0, {dim}] and begin + size too, but got {begin}, {size}")
        return dim - begin if size == -1 else size
    return None if size == -1 else size


register_op(
    "Slice",
    "input: T, begin: Index, size: Index -> output: T",
    "T: type; Index: {int32, int64}",
    shape=_slice_shape,
)


def slice_tensor(x: Any, begin: Array, size: Array) -> ArrayOrScalar:
    """The part of *x* that begins at *begin* and is of *size* (-1: to the end)."""
    begins, sizes = int_vector(begin, "begin"), int_vector(size, "size")
    if not len(begins) == len(sizes) == x.ndim:
        raise InvalidArgumentError(
            f"Expected begin and size arguments to be 1-D tensors of size {x.ndim}, but got {len(begins)}, {len(sizes)}"
        )
    index = []
    for axis, (start, length, dim) in enumerate(zip(begins, sizes, x.shape, strict=True)):
        stop = dim if length == -1 else start + length
        if not 0 <= start <= dim or not start <= stop <= dim:
            raise InvalidArgumentError(
                f"Expected begin[{axis}] in [0, {dim}] and size[{axis}] in [0, {dim - start}], got {start} and {length}"
            )
        index.append(slice(start, stop))
    return x[tuple(index)] if index else x


register_kernel("Slice", dtypes={"T": PLAIN})(by_function(slice_tensor))


@dataclass(frozen=True, slots=True)
class Masks:
    """The five bit masks of a strided slice: bit i speaks of entry i of begin, end and strides."""

    begin: int
    end: int
    ellipsis: int
    new_axis: int
    shrink_axis: int

    @staticmethod
    def of(attrs: Mapping[str, Any]) -> Masks:
        masks = Masks(*(attrs[f"{name}_mask"] for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")))
        if masks.ellipsis & (masks.ellipsis - 1):
            raise InvalidArgumentError("Multiple ellipses in slice spec not allowed")
        return masks


def spec_to_index(begin: Any, end: Any, strides: Any, masks: Masks) -> Index:
    """The numpy index that a strided slice spec means."""
    if not (begin.ndim == end.ndim == strides.ndim == 1 and begin.size == end.size == strides.size < 32):
        raise InvalidArgumentError(
            "Expected begin, end, and strides to be 1D equal size tensors, but got shapes "
            f"{list(begin.shape)}, {list(end.shape)}, and {list(strides.shape)} instead."
        )
    index: list[object] = []
    bit = 1
    for start, stop, stride in zip(begin.tolist(), end.tolist(), strides.tolist(), strict=True):
        if masks.ellipsis & bit:
            index.append(Ellipsis)
        elif masks.new_axis & bit:
            index.append(None)
        elif masks.shrink_axis & bit:
            if stride <= 0:
                raise _bad_stride(stride)
            index.append(start)
        else:
            if stride == 0:
                raise _bad_stride(stride)
            index.append(slice(None if masks.begin & bit else start, None if masks.end & bit else stop, stride))
        bit += bit
    return tuple(index)


def _bad_stride(stride: int) -> InvalidArgumentError:
    if stride == 0:
        return InvalidArgumentError("strides must be non-zero")
    return InvalidArgumentError(f"only stride 1 allowed on non-range indexing, not {stride}")


def _out_of_bounds(index: Index, x: ArrayOrScalar) -> InvalidArgumentError:
    return InvalidArgumentError(f"slice index {list(index)} is out of bounds for shape {list(x.shape)}")


def _strided_slice_shape(c: InferenceContext) -> Sequence[TensorShape]:
    sparse = c.vector(1).merge_with(c.vector(2)).merge_with(c.vector(3))
    given, strides = c.input(0), integers(c, 3)
    if given.dims is None or sparse[0] is None or strides is None:
        return [UNKNOWN_SHAPE]
    return [strided_shape(given.dims, integers(c, 1), integers(c, 2), strides, Masks.of(c.attrs))]


def strided_shape(
    dims: Sequence[Dim], begin: list[int] | None, end: list[int] | None, strides: list[int], masks: Masks
) -> TensorShape:
    """The shape that a strided slice of an array of *dims* has, as far as it is known."""
    result: list[Dim] = []
    axis = 0
    for entry, stride in enumerate(strides):
        bit = 1 << entry
        if masks.ellipsis & bit:
            stop = _end_of_ellipsis(entry, len(strides), len(dims), masks)
            result += dims[axis:stop]
            axis = max(axis, stop)
        elif masks.new_axis & bit:
            result.append(1)
        else:
            if axis >= len(dims):
                raise InvalidArgumentError(
                    f"Index out of range using input dim {axis}; input has only {len(dims)} dims"
                )
            bounds = None if begin is None or end is None else (begin[entry], end[entry])
            if masks.shrink_axis & bit:
                _check_shrunk(dims[axis], bounds, stride)
            else:
                result.append(_interval(dims[axis], bounds, stride, bool(masks.begin & bit), bool(masks.end & bit)))
            axis += 1
    return TensorShape((*result, *dims[axis:]))


def _end_of_ellipsis(entry: int, entries: int, rank: int, masks: Masks) -> int:
    """The dimension at which the ellipsis at *entry* ends: later entries that are no new axes take one each."""
    later = range(entry + 1, entries)
    return min(rank - sum(1 for i in later if not masks.new_axis >> i & 1), rank)


def _check_shrunk(dim: Dim, bounds: tuple[int, int] | None, stride: int) -> None:
    if stride == 0 or (stride < 0 and dim is not None):
        raise _bad_stride(stride)
    if dim is not None and bounds is not None and not -dim <= bounds[0] < dim:
        raise InvalidArgumentError(f"slice index {bounds[0]} of a dimension of size {dim} out of bounds.")


def _interval(dim: Dim, bounds: tuple[int, int] | None, stride: int, from_first: bool, to_last: bool) -> Dim:
    if stride == 0:
        raise _bad_stride(stride)
    if dim is None:
        return None
    if bounds is None:
        return len(range(dim)[::stride]) if from_first and to_last and dim > 0 else None
    return len(range(dim)[slice(None if from_first else bounds[0], None if to_last else bounds[1], stride)])


_MASKS = (
    "; begin_mask: int = 0; end_mask: int = 0; ellipsis_mask: int = 0; new_axis_mask: int = 0"
    "; shrink_axis_mask: int = 0"
)

register_op(
    "StridedSlice",
    "input: T, begin: Index, end: Index, strides: Index -> output: T",
    "T: type; Index: {int16, int32, int64}" + _MASKS,
    shape=_strided_slice_shape,
)


def _is_constant(array: object) -> bool:
    """Whether nobody can change *array*."""
    while isinstance(array, np.ndarray):
        if array.flags.writeable:
            return False
        array = array.base
    return array is None or isinstance(array, bytes)


@register_kernel("StridedSlice", dtypes={"T": _NOT_16_BIT_QUANTIZED})
def _strided_slice(c: OpKernelConstruction) -> Kernel:
    masks = Masks.of(c.attrs)
    known: tuple[object, object, object, Index] = (None, None, None, ())  # constants, and the index that they mean

    def strided_slice(x: Any, begin: object, end: object, strides: object) -> object:
        nonlocal known
        last_begin, last_end, last_strides, index = known
        if begin is not last_begin or end is not last_end or strides is not last_strides:
            index = spec_to_index(begin, end, strides, masks)
            if all(map(_is_constant, (begin, end, strides))):
                known = (begin, end, strides, index)
        try:
            return as_value(x[index])
        except IndexError:
            raise _out_of_bounds(index, x) from None

    return boxing(c, strided_slice)


register_op(
    "StridedSliceGrad",
    "shape: Index, begin: Index, end: Index, strides: Index, dy: T -> output: T",
    "T: type; Index: {int32, int64}" + _MASKS,
    shape=lambda c: [c.value_as_shape(0)],
)


@register_kernel("StridedSliceGrad", dtypes={"T": _NOT_16_BIT_QUANTIZED})
def _strided_slice_grad(c: OpKernelConstruction) -> Kernel:
    masks, np_dtype = Masks.of(c.attrs), c.np_dtype("T")

    def strided_slice_grad(shape: Array, begin: Array, end: Array, strides: Any, dy: Any) -> Array:
        output = zeros(int_vector(shape, "shape"), np_dtype)
        part = _part(output, begin, end, strides, masks)
        if part.shape != dy.shape:
            raise InvalidArgumentError(f"shape of dy was {list(dy.shape)} instead of {list(part.shape)}")
        part[...] = dy
        return as_value(output)

    return boxing(c, strided_slice_grad)


def _part(array: Any, begin: object, end: object, strides: object, masks: Masks) -> Any:
    """The strided slice of *array* as a view that can be written, 0-d too."""
    index = spec_to_index(begin, end, strides, masks)
    try:
        return array[index] if Ellipsis in index else array[(*index, ...)]
    except IndexError:
        raise _out_of_bounds(index, array) from None


def _strided_update_shape(c: InferenceContext) -> Sequence[TensorShape]:
    _strided_slice_shape(c)
    return [c.input(0)]


register_op(
    "TensorStridedSliceUpdate",
    "input: T, begin: Index, end: Index, strides: Index, value: T -> output: T",
    "T: type; Index: {int32, int64}" + _MASKS,
    shape=_strided_update_shape,
)


@register_kernel("TensorStridedSliceUpdate", dtypes={"T": _NOT_16_BIT_QUANTIZED})
def _tensor_strided_slice_update(c: OpKernelConstruction) -> Kernel:
    return boxing(c, strided_update(Masks.of(c.attrs)))


def strided_update(masks: Masks) -> Kernel:
    """The kernel that gives a copy of an array, a strided slice of it replaced by a value that broadcasts."""

    def update(x: object, begin: object, end: object, strides: object, value: Any) -> Array:
        output = np.array(x)
        part = _part(output, begin, end, strides, masks)
        try:
            part[...] = value if part.size else 0
        except ValueError:
            raise InvalidArgumentError(
                f"a value of {list(value.shape)} does not broadcast to {list(part.shape)}"
            ) from None
        return as_value(output)

    return update
