"""The same elements in another order: Transpose, Reverse, ReverseSequence, Roll.

Rules: tensorflow/core/ops/array_ops.cc, transpose_op.cc, reverse_op.cc, reverse_sequence_op.cc, roll_op.cc.
Transposed and reversed results are views.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction, as_value
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, Dim, TensorShape, unknown_shape
from asyncexec.ops.array.array_common import (
    POD_STRING,
    boxing,
    by_function,
    canonical_axis,
    int_vector,
    integers,
    merge_dim,
)

_MOVABLE = POD_STRING | {types.resource, types.variant, types.float8_e4m3fn, types.float8_e5m2}


def _transpose_shape(c: InferenceContext) -> Sequence[TensorShape]:
    given, perm_shape, perm = c.input(0), c.input(1), integers(c, 1)
    length = len(perm) if perm is not None else perm_shape[0] if perm_shape.rank == 1 else None
    rank = given.rank if given.rank is not None else length
    if rank is None:
        return [UNKNOWN_SHAPE]
    given = given.with_rank(rank)
    perm_shape.merge_with([rank])
    if perm is None:
        return [unknown_shape(rank) if rank > 1 else given]
    return [TensorShape(given[canonical_axis(axis, rank, "perm")] for axis in perm)]


for _op in ("Transpose", "ConjugateTranspose"):
    register_op(_op, "x: T, perm: Tperm -> y: T", "T: type; Tperm: {int32, int64} = int32", shape=_transpose_shape)


def transpose(x: Any, perm: Array) -> Any:
    """*x* with its dimensions in the order of *perm*."""
    axes = int_vector(perm, "perm")
    try:
        return x.transpose(axes) if x.ndim else as_value(np.asarray(x).transpose(axes))
    except ValueError:
        raise InvalidArgumentError(f"perm {axes} is not a permutation of the dimensions of {list(x.shape)}") from None


register_kernel("Transpose", dtypes={"T": _MOVABLE})(by_function(transpose))


@register_kernel("ConjugateTranspose", dtypes={"T": _MOVABLE})
def _conjugate_transpose(c: OpKernelConstruction) -> Kernel:
    if c.attr("T").is_complex:
        return lambda x, perm: np.conjugate(transpose(x, perm))
    return boxing(c, transpose)


def _reverse_v2_shape(c: InferenceContext) -> Sequence[TensorShape]:
    given, axes = c.input(0), integers(c, 1)
    c.vector(1)
    if given.dims is not None and axes is not None:
        _reversed_axes(axes, len(given.dims))
    return [given]


def _reversed_axes(axes: Sequence[int], rank: int) -> set[int]:
    found = {canonical_axis(axis, rank) for axis in axes}
    if len(found) < len(axes):
        raise InvalidArgumentError(f"axis specified more than once: {list(axes)}")
    return found


def _reverse_shape(c: InferenceContext) -> Sequence[TensorShape]:
    given, dims = c.input(0), c.vector(1)
    if dims[0] is None:
        return [given]
    if dims[0] > 8:
        raise InvalidArgumentError(f"reverse does not work on tensors with more than 8 dimensions: {dims[0]}")
    return [given.with_rank(dims[0])]


_REVERSIBLE = (
    "uint8, int8, uint16, int16, int32, uint32, int64, uint64, bool, bfloat16, float16, float32, float64, complex64,"
    " complex128, string"
)
register_op(
    "ReverseV2",
    "tensor: T, axis: Tidx -> output: T",
    "Tidx: {int32, int64} = int32; T: {" + _REVERSIBLE + "}",
    shape=_reverse_v2_shape,
)
register_op("Reverse", "tensor: T, dims: bool -> output: T", "T: {" + _REVERSIBLE + "}", shape=_reverse_shape)

_BACKWARDS, _WHOLE = slice(None, None, -1), slice(None)


def reverse_v2(x: Any, axis: Array) -> ArrayOrScalar:
    """*x* backwards along each of the axes named."""
    axes = _reversed_axes(int_vector(axis, "axis"), x.ndim)
    return x[tuple(_BACKWARDS if i in axes else _WHOLE for i in range(x.ndim))] if axes else x


def reverse(x: Any, dims: Array) -> ArrayOrScalar:
    """*x* backwards along each dimension where *dims* says so."""
    flags = int_vector(dims, "dims")
    if len(flags) != x.ndim:
        raise InvalidArgumentError(
            f"'dims' must have the same number of values as 'input' has dimensions: {len(flags)}"
        )
    return x[tuple(_BACKWARDS if flag else _WHOLE for flag in flags)] if any(flags) else x


register_kernel("ReverseV2", dtypes={"T": POD_STRING})(by_function(reverse_v2))
register_kernel("Reverse", dtypes={"T": POD_STRING})(by_function(reverse))


def _reverse_sequence_shape(c: InferenceContext) -> Sequence[TensorShape]:
    given, lengths = c.input(0), c.vector(1)
    batch_dim, seq_dim = c.attr("batch_dim"), c.attr("seq_dim")
    if given.dims is None:
        return [UNKNOWN_SHAPE]
    _check_sequence_dims(batch_dim, seq_dim, len(given.dims))
    dims: list[Dim] = given.as_list()
    dims[batch_dim] = merge_dim(dims[batch_dim], lengths[0], "batch_dim and the length of seq_lens")
    return [TensorShape(dims)]


def _check_sequence_dims(batch_dim: int, seq_dim: int, rank: int) -> None:
    if not (0 <= batch_dim < rank and 0 <= seq_dim < rank):
        raise InvalidArgumentError(f"batch_dim {batch_dim} and seq_dim {seq_dim} must be in [0, {rank})")


register_op(
    "ReverseSequence",
    "input: T, seq_lengths: Tlen -> output: T",
    "seq_dim: int; batch_dim: int = 0; T: type; Tlen: {int32, int64} = int64",
    shape=_reverse_sequence_shape,
)


@register_kernel("ReverseSequence", dtypes={"T": POD_STRING})
def _reverse_sequence(c: OpKernelConstruction) -> Kernel:
    batch_dim, seq_dim = c.attr("batch_dim"), c.attr("seq_dim")

    def reverse_sequence(x: Array, seq_lengths: Array) -> Array:
        _check_sequence_dims(batch_dim, seq_dim, x.ndim)
        if batch_dim == seq_dim:
            raise InvalidArgumentError(f"batch_dim == seq_dim == {seq_dim}")
        lengths = int_vector(seq_lengths, "seq_lens")
        size = x.shape[seq_dim]
        if len(lengths) != x.shape[batch_dim]:
            raise InvalidArgumentError(
                f"Length of seq_lens != input.dims({batch_dim}): {len(lengths)}, {list(x.shape)}"
            )
        if any(not 0 <= length <= size for length in lengths):
            raise InvalidArgumentError(f"seq_lens must be between 0 and {size}: {lengths}")
        output = x.copy()
        source, target = (np.moveaxis(array, (batch_dim, seq_dim), (0, 1)) for array in (x, output))
        for row, length in enumerate(lengths):
            target[row, :length] = source[row, :length][::-1]
        return output

    return boxing(c, reverse_sequence)


def _roll_shape(c: InferenceContext) -> Sequence[TensorShape]:
    given = c.input(0).with_rank_at_least(1)
    c.input(1).with_rank_at_most(1).merge_with(c.input(2).with_rank_at_most(1))
    return [given]


register_op(
    "Roll",
    "input: T, shift: Tshift, axis: Taxis -> output: T",
    "T: type; Tshift: {int32, int64}; Taxis: {int32, int64}",
    shape=_roll_shape,
)


def roll(x: Array, shift: ArrayOrScalar, axis: ArrayOrScalar) -> Array:
    """*x* shifted along each axis named, what leaves at one end coming in at the other."""
    if not x.ndim:
        raise InvalidArgumentError("input must be 1-D or higher")
    if shift.ndim > 1 or shift.shape != axis.shape:
        raise InvalidArgumentError(
            f"shift and axis must be scalars or 1-D of one size, not {list(shift.shape)} and {list(axis.shape)}"
        )
    axes = [canonical_axis(item, x.ndim) for item in np.ravel(axis).tolist()]
    return np.roll(x, np.ravel(shift).tolist(), axes)


register_kernel("Roll", dtypes={"T": POD_STRING | {types.resource, types.variant}})(by_function(roll))
