"""Joining tensors and taking them apart: Concat, Split, Pack, Unpack and their kin.

Rules: tensorflow/core/ops/array_ops.cc, concat_op.cc, split_op.cc, split_v_op.cc, pack_op.cc, unpack_op.cc.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction, as_value
from asyncexec.framework.kernel_registry import register_function, register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, Dim, TensorShape, unknown_shape
from asyncexec.framework.types import ALL_DTYPES, resource, variant
from asyncexec.ops.array.array_common import PLAIN, POD_STRING, boxing, canonical_axis, check_memory, int_vector, plus

_NOT_QUANTIZED = frozenset(dtype for dtype in ALL_DTYPES if not dtype.name.startswith(("qint", "quint16")))
_PACKABLE = PLAIN | {resource, variant}
_FEW: Final = 16  # parts of a Split: what to take for so many is kept


def concat_shape(shapes: Sequence[TensorShape], axis: int | None) -> TensorShape:
    """The shape of *shapes* put together along *axis*, as far as it is known."""
    ranks = {shape.rank for shape in shapes} - {None}
    if not ranks:
        return UNKNOWN_SHAPE
    rank = max(rank for rank in ranks if rank is not None)
    shapes = [shape.with_rank(rank) for shape in shapes]
    if rank == 0:
        raise InvalidArgumentError("Can't concatenate scalars (use tf.stack instead)")
    if axis is None:
        return unknown_shape(rank)
    axis = canonical_axis(axis, rank, "concat axis")
    total: Dim = 0
    rest = unknown_shape(rank - 1)
    for shape in shapes:
        dims = tuple(shape)
        total = plus(total, dims[axis])
        rest = rest.merge_with(dims[:axis] + dims[axis + 1 :])
    return TensorShape((*rest[:axis], total, *rest[axis:]))


def _concat_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.scalar(0)
    return [concat_shape(c.input_shapes[1:], c.int_value(0))]


def _concat_v2_shape(c: InferenceContext) -> Sequence[TensorShape]:
    last = c.num_inputs - 1
    c.scalar(last)
    return [concat_shape(c.input_shapes[:last], c.int_value(last))]


register_op("Concat", "concat_dim: int32, values: N*T -> output: T", "N: int >= 2; T: type", shape=_concat_shape)
register_op(
    "ConcatV2",
    "values: N*T, axis: Tidx -> output: T",
    "N: int >= 2; T: type; Tidx: {int32, int64} = int32",
    shape=_concat_v2_shape,
)


def concat(values: Sequence[Any], axis: Any) -> Array:
    """*values* joined along *axis*; InvalidArgumentError when they do not fit together."""
    try:
        return np.concatenate(values, axis)
    except (ValueError, TypeError):
        raise InvalidArgumentError(
            f"ConcatOp : Dimensions of inputs should match along all but axis {axis}: "
            f"{[list(value.shape) for value in values]}"
        ) from None


@register_kernel("Concat", dtypes={"T": PLAIN})
def _concat(c: OpKernelConstruction) -> Kernel:
    return boxing(c, lambda axis, *values: concat(values, axis))


@register_kernel("ConcatV2", dtypes={"T": PLAIN})
def _concat_v2(c: OpKernelConstruction) -> Kernel:
    return boxing(c, lambda *inputs: concat(inputs[:-1], inputs[-1]))


def _concat_offset_shape(c: InferenceContext) -> Sequence[TensorShape]:
    for shape in c.input_shapes[1:]:
        shape.with_rank(1)
    return c.input_shapes[1:]


register_op(
    "ConcatOffset",
    "concat_dim: int32, shape: N*shape_type -> offset: N*shape_type",
    "N: int >= 2; shape_type: {int32, int64} = int32",
    shape=_concat_offset_shape,
)


def concat_offset(concat_dim: np.generic, *shapes: Any) -> tuple[object, ...]:
    """Where each of the arrays of those shapes begins in their concatenation."""
    if concat_dim.ndim:
        raise InvalidArgumentError(f"Concat dim tensor should be a scalar, but got shape {list(concat_dim.shape)}")
    first = int_vector(shapes[0], "input 0")
    axis = canonical_axis(int(concat_dim), len(first), "Concat dim")
    offset = 0
    offsets = []
    for index, shape in enumerate(shapes):
        dims = int_vector(shape, f"input {index}")
        if dims[:axis] != first[:axis] or dims[axis + 1 :] != first[axis + 1 :] or len(dims) != len(first):
            raise InvalidArgumentError(
                f"All dimensions except {axis} must match. Input {index} has shape {dims}: {first}"
            )
        begin = np.zeros(len(first), shape.dtype)
        begin[axis] = offset
        offset += dims[axis]
        offsets.append(begin)
    return tuple(offsets)


register_function("ConcatOffset", function=concat_offset)


def _split_shape(c: InferenceContext) -> Sequence[TensorShape]:
    count, given = c.attr("num_split"), c.input(1)
    axis = c.int_value(0)
    if given.dims is None:
        return [UNKNOWN_SHAPE] * count
    if axis is None:
        return [unknown_shape(len(given.dims))] * count
    dims = given.as_list()
    axis = canonical_axis(axis, len(dims), "split_dim")
    size = dims[axis]
    if size is not None:
        if size % count:
            raise InvalidArgumentError(f"Dimension size must be evenly divisible by {count} but is {size}")
        dims[axis] = size // count
    return [TensorShape(dims)] * count


register_op(
    "Split",
    "split_dim: int32, value: T -> output: num_split*T",
    "num_split: int >= 1; T: type",
    shape=_split_shape,
)


@register_kernel("Split", dtypes={"T": _NOT_QUANTIZED})
def _split(c: OpKernelConstruction) -> Kernel:
    count: int = c.attr("num_split")

    def split(split_dim: ArrayOrScalar, value: Array) -> Any:
        if split_dim.ndim:
            raise InvalidArgumentError(f"split_dim must be a scalar but has rank {split_dim.ndim}")
        axis = canonical_axis(int(split_dim), value.ndim, "split_dim")
        size, rest = divmod(value.shape[axis], count)
        if rest:
            raise InvalidArgumentError(
                f"Number of ways to split should evenly divide the split dimension, but got split_dim {axis} "
                f"(size = {value.shape[axis]}) and num_split {count}"
            )
        parts = _known_parts(axis, size, count) if count <= _FEW else _equal_parts(axis, size, count)
        return tuple([value[part] for part in parts])

    return boxing(c, split)


def _equal_parts(axis: int, size: int, count: int) -> list[tuple[slice, ...]]:
    """What to take for each of *count* parts of *size* along *axis*."""
    lead = (slice(None),) * axis
    return [(*lead, slice(i * size, i * size + size)) for i in range(count)]


_known_parts: Final = lru_cache(256)(_equal_parts)


def _split_v_shape(c: InferenceContext) -> Sequence[TensorShape]:
    count, given = c.attr("num_split"), c.input(0)
    axis, sizes = c.int_value(2), c.value(1)
    c.vector(1)
    if given.dims is None:
        return [UNKNOWN_SHAPE] * count
    if axis is None:
        return [unknown_shape(len(given.dims))] * count
    dims = given.as_list()
    axis = canonical_axis(axis, len(dims), "split_dim")
    if sizes is None:
        parts: list[Dim] = [dims[axis] if count == 1 else None] * count
    else:
        parts = list(_split_sizes([int(size) for size in sizes], dims[axis], count))
    return [TensorShape((*dims[:axis], part, *dims[axis + 1 :])) for part in parts]


def _split_sizes(sizes: Sequence[int], total: Dim, count: int) -> Sequence[Dim]:
    """*sizes* with the one that is -1 (if any) worked out from *total*."""
    if len(sizes) != count:
        raise InvalidArgumentError(f"Length of size_splits should be equal to num_outputs ({count}), got {len(sizes)}")
    missing = [index for index, size in enumerate(sizes) if size == -1]
    known = sum(size for size in sizes if size != -1)
    if len(missing) > 1 or any(size < -1 for size in sizes):
        raise InvalidArgumentError(f"split sizes must be non-negative, only one of them may be -1: {list(sizes)}")
    if total is None:
        return [None if size == -1 else size for size in sizes]
    if known > total or (known < total and not missing):
        raise InvalidArgumentError(f"can't split axis of size {total} into pieces of size {list(sizes)}")
    return [total - known if size == -1 else size for size in sizes]


register_op(
    "SplitV",
    "value: T, size_splits: Tlen, split_dim: int32 -> output: num_split*T",
    "num_split: int >= 1; T: type; Tlen: {int8, int32, int64} = int64",
    shape=_split_v_shape,
)


@register_kernel("SplitV", dtypes={"T": _NOT_QUANTIZED})
def _split_v(c: OpKernelConstruction) -> Kernel:
    count: int = c.attr("num_split")

    def split_v(value: Array, size_splits: Array, split_dim: np.generic) -> object:
        if split_dim.size != 1:
            raise InvalidArgumentError(f"split_dim_tensor must have exactly one element, not shape {split_dim.shape}")
        axis = canonical_axis(split_dim.item(), value.ndim, "split_dim")
        wanted = int_vector(size_splits, "size_splits")
        if len(wanted) == 1 and wanted[0] != value.shape[axis]:
            raise InvalidArgumentError(
                f"the only output must be of the input's size {value.shape[axis]}, not {wanted[0]}"
            )
        sizes = _split_sizes(wanted, value.shape[axis], count)
        lead = (slice(None),) * axis
        parts, start = [], 0
        for size in sizes:
            stop = start + (size or 0)
            parts.append(value[(*lead, slice(start, stop))])
            start = stop
        return tuple(parts)

    return boxing(c, split_v)


def _pack_shape(c: InferenceContext) -> Sequence[TensorShape]:
    shape = c.input(0)
    for other in c.input_shapes[1:]:
        shape = shape.merge_with(other)
    if shape.dims is None:
        return [UNKNOWN_SHAPE]
    axis = canonical_axis(c.attr("axis"), len(shape.dims) + 1)
    return [TensorShape((*shape.dims[:axis], c.attr("N"), *shape.dims[axis:]))]


register_op("Pack", "values: N*T -> output: T", "N: int >= 1; T: type; axis: int = 0", shape=_pack_shape)


@register_kernel("Pack", dtypes={"T": _PACKABLE})
def _pack(c: OpKernelConstruction) -> Kernel:
    axis, np_dtype = c.attr("axis"), c.np_dtype("T")
    if np_dtype.kind == "O":
        return boxing(c, lambda *values: _stack(values, axis))
    if axis:
        return lambda *values: _stack(values, axis)

    def pack(*values: object) -> Array:
        try:
            return np.array(values, np_dtype)
        except (ValueError, TypeError):
            raise _unlike(values) from None

    return pack


def _stack(values: tuple[Any, ...], axis: int) -> Array:
    """*values*, all of one shape, along a new *axis*."""
    axis = canonical_axis(axis, values[0].ndim + 1)
    if any(value.shape != values[0].shape for value in values):
        raise _unlike(values)
    slot = (slice(None),) * axis + (None,)
    return np.concatenate([np.asarray(value)[slot] for value in values], axis)


def _unlike(values: Sequence[Any]) -> InvalidArgumentError:
    return InvalidArgumentError(f"Shapes of all inputs must match: {[list(value.shape) for value in values]}")


def _unpack_shape(c: InferenceContext) -> Sequence[TensorShape]:
    given, count = c.input(0), c.attr("num")
    if given.dims is None:
        return [UNKNOWN_SHAPE] * count
    axis = canonical_axis(c.attr("axis"), len(given.dims))
    if given.dims[axis] not in (None, count):
        raise InvalidArgumentError(f"Dimension must be {count} but is {given.dims[axis]}: input shape {given}")
    return [TensorShape(given.dims[:axis] + given.dims[axis + 1 :])] * count


register_op("Unpack", "value: T -> output: num*T", "num: int >= 0; T: type; axis: int = 0", shape=_unpack_shape)


@register_kernel("Unpack", dtypes={"T": _NOT_QUANTIZED})
def _unpack(c: OpKernelConstruction) -> Kernel:
    count, axis = c.attr("num"), c.attr("axis")

    def unpack(value: Any) -> object:
        lead = (slice(None),) * canonical_axis(axis, value.ndim)
        if value.shape[axis] != count:
            raise InvalidArgumentError(f"Input shape axis {axis} must equal {count}, got shape {list(value.shape)}")
        if len(lead) == 0:
            return tuple(value)
        return tuple(as_value(value[(*lead, index)]) for index in range(count))

    return boxing(c, unpack)


def _parallel_concat_shape(c: InferenceContext) -> Sequence[TensorShape]:
    wanted: TensorShape = c.attr("shape")
    if not wanted.is_fully_defined:
        raise InvalidArgumentError("shape attr must be fully defined.")
    if wanted.rank == 0 or wanted[0] != c.attr("N"):
        raise InvalidArgumentError(f"the first dimension of the shape attr {wanted} must be N = {c.attr('N')}")
    for shape in c.input_shapes:
        if shape.dims is not None and (not shape.dims or shape.dims[0] not in (None, 1)):
            raise InvalidArgumentError(f"Size of first dimension must be 1, not {shape}")
        shape.merge_with([1, *wanted.as_list()[1:]])
    return [wanted]


register_op(
    "ParallelConcat",
    "values: N*T -> output: T",
    "N: int >= 1; T: type; shape: shape",
    shape=_parallel_concat_shape,
)


@register_kernel("ParallelConcat", dtypes={"T": POD_STRING})
def _parallel_concat(c: OpKernelConstruction) -> Kernel:
    wanted = c.attr("shape").as_tuple()
    check_memory(wanted, c.np_dtype("T"))
    row = (1, *wanted[1:])

    def parallel_concat(*values: Array) -> Array:
        if any(value.shape != row for value in values):
            raise _unlike(values)
        return np.concatenate(values)

    return boxing(c, parallel_concat)
