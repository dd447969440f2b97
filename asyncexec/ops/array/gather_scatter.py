"""Picking rows and entries of a tensor by index, and writing them: Gather, GatherNd, ScatterNd, TensorScatter*.

Rules: tensorflow/core/ops/array_ops.cc, gather_op.cc, gather_nd_op.cc, scatter_nd_op.cc.  An index out of range is an
InvalidArgumentError, as on TensorFlow's CPU, unless ``bad_indices_policy`` is IGNORE; indices never count from the end.
"""

from __future__ import annotations

import math
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
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, TensorShape, unknown_shape
from asyncexec.ops.array.array_common import (
    NUMBER,
    PLAIN,
    POD,
    POD_STRING,
    REAL,
    boxing,
    by_function,
    canonical_axis,
    check_memory,
    int_vector,
    scalar_int,
    zeros,
)

_INDICES = frozenset({types.int32, types.int64})
_GATHERED = PLAIN | {types.resource, types.variant}
_IGNORE = b"IGNORE"
# numpy counts negative indices from the end; seen as these they are too large instead, which it checks anyway.
_UNSIGNED = {np.dtype(np.int16): np.dtype(np.uint16), np.dtype(np.int32): np.dtype(np.uint32)}


def _gather_shape(c: InferenceContext) -> Sequence[TensorShape]:
    params = c.input(0).with_rank_at_least(1)
    return [c.input(1).concatenate(params[1:])]


register_op(
    "Gather",
    "params: Tparams, indices: Tindices -> output: Tparams",
    "validate_indices: bool = True; Tparams: type; Tindices: {int32, int64}",
    shape=_gather_shape,
)


def _gather_v2_shape(c: InferenceContext) -> Sequence[TensorShape]:
    params, indices = c.input(0).with_rank_at_least(1), c.input(1)
    c.scalar(2)
    axis = c.int_value(2)
    if params.dims is None or indices.dims is None:
        return [UNKNOWN_SHAPE]
    batch_dims = _batch_dims(c.attr("batch_dims"), len(indices.dims), len(params.dims))
    if axis is None:
        return [unknown_shape(len(params.dims) + len(indices.dims) - 1 - batch_dims)]
    axis = canonical_axis(axis, len(params.dims))
    _check_batch_axis(batch_dims, axis)
    batch = params[:batch_dims].merge_with(indices[:batch_dims])
    return [TensorShape([*batch, *params[batch_dims:axis], *indices[batch_dims:], *params[axis + 1 :]])]


def _batch_dims(batch_dims: int, indices_rank: int, params_rank: int) -> int:
    if not -indices_rank <= batch_dims <= indices_rank:
        raise InvalidArgumentError(
            f"Expected batch_dims in the range [{-indices_rank}, {indices_rank}], got {batch_dims}"
        )
    batch_dims += indices_rank if batch_dims < 0 else 0
    if batch_dims >= params_rank:
        raise InvalidArgumentError(f"batch_dims ({batch_dims}) must be less than rank(params) ({params_rank}).")
    return batch_dims


def _check_batch_axis(batch_dims: int, axis: int) -> None:
    if axis < batch_dims:
        raise InvalidArgumentError(f"batch_dims ({batch_dims}) must be less than or equal to axis ({axis}).")


register_op(
    "GatherV2",
    "params: Tparams, indices: Tindices, axis: Taxis -> output: Tparams",
    "batch_dims: int = 0; Tparams: type; Tindices: {int16, int32, int64}; Taxis: {int32, int64}",
    shape=_gather_v2_shape,
)


def gather(params: Any, indices: Any, axis: int = 0) -> Any:
    """The parts of *params* at *indices* along *axis*."""
    if not params.ndim:
        raise InvalidArgumentError("params must be at least 1 dimensional")
    if not indices.ndim:
        if not 0 <= indices < params.shape[axis]:
            raise _not_in_range(indices, params.shape[axis])
        return params[indices] if axis == 0 else params[(*(slice(None),) * axis, indices)]
    unsigned = _UNSIGNED.get(indices.dtype)
    if unsigned is None and indices.size and indices.min() < 0:
        raise _not_in_range(indices, params.shape[axis])
    try:
        return params.take(indices if unsigned is None else indices.view(unsigned), axis)
    except IndexError:
        raise _not_in_range(indices, params.shape[axis]) from None


def _not_in_range(indices: Any, limit: int) -> InvalidArgumentError:
    bad = indices[(indices < 0) | (indices >= limit)] if indices.ndim else indices
    return InvalidArgumentError(f"indices = {np.ravel(bad)[:8].tolist()} is not in [0, {limit})")


register_kernel("Gather", dtypes={"Tparams": _GATHERED})(by_function(gather))


@register_kernel("GatherV2", dtypes={"Tparams": _GATHERED})
def _gather_v2(c: OpKernelConstruction) -> Kernel:
    batch_dims = c.attr("batch_dims")

    def gather_v2(params: Array, indices: ArrayOrScalar, axis: np.generic) -> object:
        return gather(params, indices, canonical_axis(scalar_int(axis, "axis"), params.ndim))

    def batch_gather(params: Array, indices: Array, axis: np.generic) -> Array:
        batch = _batch_dims(batch_dims, indices.ndim, params.ndim)
        where = canonical_axis(scalar_int(axis, "axis"), params.ndim)
        _check_batch_axis(batch, where)
        return gather_in_batches(params, indices, where, batch) if batch else gather(params, indices, where)

    def gather_in_range(params: Any, indices: object, axis: object) -> object:
        return params.take(indices, canonical_axis(scalar_int(axis, "axis"), params.ndim))

    if batch_dims:
        return boxing(c, batch_gather)
    kernel = boxing(c, gather_v2)
    kernel.if_usual = gather_in_range  # type: ignore[attr-defined]
    return kernel


def gather_in_batches(params: Array, indices: Array, axis: int, batch_dims: int) -> Array:
    """gather, batch by batch: the first *batch_dims* dimensions of both are the same."""
    batch, limit = params.shape[:batch_dims], params.shape[axis]
    if indices.shape[:batch_dims] != batch:
        raise InvalidArgumentError(
            f"params {list(params.shape)} and indices {list(indices.shape)} differ in batch dims"
        )
    if indices.size and (indices.min() < 0 or indices.max() >= limit):
        raise _not_in_range(indices, limit)
    outer, inner = params.shape[batch_dims:axis], params.shape[axis + 1 :]
    count, width = math.prod(batch), math.prod(outer)
    blocks = params.reshape(count, width, limit, math.prod(inner))
    picks = indices.reshape(count, 1, math.prod(indices.shape[batch_dims:]))
    found = blocks[np.arange(count)[:, None, None], np.arange(width)[:, None], picks]
    return as_value(found.reshape(batch + outer + indices.shape[batch_dims:] + inner))


def _gather_nd_shape(c: InferenceContext) -> Sequence[TensorShape]:
    params, indices = c.input(0), c.input(1).with_rank_at_least(1)
    if params.dims is None or indices.dims is None or indices.dims[-1] is None:
        return [UNKNOWN_SHAPE]
    depth = indices.dims[-1]
    if depth > len(params.dims):
        raise InvalidArgumentError(
            f"indices.shape[-1] must be <= params.rank, but saw indices {indices}, params {params}"
        )
    return [TensorShape(indices.dims[:-1] + params.dims[depth:])]


register_op(
    "GatherNd",
    "params: Tparams, indices: Tindices -> output: Tparams",
    "Tparams: type; Tindices: {int16, int32, int64}; bad_indices_policy: string = ''",
    shape=_gather_nd_shape,
)


def flat_rows(indices: Array, shape: Sequence[int]) -> tuple[Array, Array]:
    """Each index vector as a row number of an array whose first dimensions are *shape*; and which of them are wrong."""
    rows = np.zeros(indices.shape[:-1], np.int64)
    bad = np.zeros(indices.shape[:-1], np.bool_)
    for axis, size in enumerate(shape):
        entry = indices[..., axis].astype(np.int64)
        bad |= (entry < 0) | (entry >= size)
        rows *= size
        rows += entry
    return rows, bad


def _check_rows(indices: Array, bad: Array, shape: Sequence[int]) -> None:
    if bad.any():
        raise InvalidArgumentError(f"indices = {indices[bad][0].tolist()} does not index into shape {list(shape)}")


def _policy(c: OpKernelConstruction) -> bytes:
    policy: bytes = c.attr("bad_indices_policy")
    if policy not in (b"", b"DEFAULT", b"ERROR", _IGNORE):
        raise InvalidArgumentError(f"bad_indices_policy {policy!r} is none of '', 'DEFAULT', 'ERROR', 'IGNORE'")
    return policy


@register_kernel("GatherNd", dtypes={"Tparams": _GATHERED})
def _gather_nd(c: OpKernelConstruction) -> Kernel:
    ignores = _policy(c) == _IGNORE
    blank = zeros((), c.np_dtype("Tparams"))

    def gather_nd(params: Array, indices: Array) -> object:
        depth = _check_depth(params, indices)
        rows, bad = flat_rows(indices, params.shape[:depth])
        if not ignores:
            _check_rows(indices, bad, params.shape)
        rest = params.shape[depth:]
        if not rows.size or (ignores and bad.all()):
            return as_value(np.full(indices.shape[:-1] + rest, blank))
        blocks = params.reshape((math.prod(params.shape[:depth]), *rest))
        found = blocks[np.where(bad, 0, rows)]
        if ignores and bad.any():
            found[bad] = blank
        return as_value(found)

    return boxing(c, gather_nd)


def _check_depth(tensor: Array, indices: Array) -> int:
    if not indices.ndim:
        raise InvalidArgumentError("indices must be at least a vector")
    depth: int = indices.shape[-1]
    if depth > tensor.ndim:
        raise InvalidArgumentError(
            f"indices.shape[-1] must be <= params.rank, but saw indices of shape {list(indices.shape)} "
            f"and params of shape {list(tensor.shape)}"
        )
    return depth


def _scatter_check(indices: TensorShape, updates: TensorShape, output: TensorShape) -> None:
    """What ScatterNd and its kin demand of the three shapes, as far as they are known."""
    if indices.dims is None or updates.dims is None or not indices.dims or indices.dims[-1] is None:
        return
    outer, depth = len(indices.dims) - 1, indices.dims[-1]
    updates.with_rank_at_least(outer)[:outer].merge_with(indices[:outer])
    if output.dims is None or (depth > len(output.dims) and not output.is_fully_defined):
        return
    if depth > len(output.dims):
        raise InvalidArgumentError(f"indices.shape[-1] = {depth} exceeds the rank of the output {output}")
    updates[outer:].merge_with(output[depth:])


def _scatter_nd_shape(c: InferenceContext) -> Sequence[TensorShape]:
    indices, updates = c.input(0).with_rank_at_least(1), c.input(1).with_rank_at_least(1)
    c.vector(2)
    output = c.value_as_shape(2)
    if output.num_elements == 0 and (indices.num_elements or updates.num_elements):
        raise InvalidArgumentError("Indices and updates specified for empty output")
    _scatter_check(indices, updates, output)
    return [output]


def _tensor_scatter_shape(c: InferenceContext) -> Sequence[TensorShape]:
    output, indices, updates = (c.input(i).with_rank_at_least(1) for i in range(3))
    if output.num_elements == 0 and (indices.num_elements or updates.num_elements):
        raise InvalidArgumentError("Indices and updates specified for empty input")
    _scatter_check(indices, updates, output)
    return [output]


register_op(
    "ScatterNd",
    "indices: Tindices, updates: T, shape: Tindices -> output: T",
    "T: type; Tindices: {int16, int32, int64}; bad_indices_policy: string = ''",
    shape=_scatter_nd_shape,
)
register_op(
    "TensorScatterUpdate",
    "tensor: T, indices: Tindices, updates: T -> output: T",
    "T: type; Tindices: {int16, int32, int64, uint16}; bad_indices_policy: string = ''",
    shape=_tensor_scatter_shape,
)
for _op in ("TensorScatterAdd", "TensorScatterSub", "TensorScatterMax", "TensorScatterMin"):
    register_op(
        _op,
        "tensor: T, indices: Tindices, updates: T -> output: T",
        "T: type; Tindices: {int32, int64}; bad_indices_policy: string = ''",
        shape=_tensor_scatter_shape,
    )
register_op(
    "ScatterNdNonAliasingAdd",
    "input: T, indices: Tindices, updates: T -> output: T",
    "T: {float32, float64, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16,"
    " quint16, uint16, complex128, float16, uint32, uint64, bool}; Tindices: {int32, int64};"
    " bad_indices_policy: string = ''",
    shape=_tensor_scatter_shape,
)


def scatter_into(output: Array, indices: Array, updates: Array, combine: np.ufunc | None, ignores: bool) -> None:
    """Write *updates* into *output* at *indices*, or combine them one after the other; the order is theirs."""
    depth = _check_depth(output, indices)
    if updates.shape != indices.shape[:-1] + output.shape[depth:]:
        raise InvalidArgumentError(
            f"Must have updates.shape == indices.shape[:-1] + output.shape[{depth}:], got "
            f"updates {list(updates.shape)}, indices {list(indices.shape)}, output {list(output.shape)}"
        )
    rows, bad = flat_rows(indices, output.shape[:depth])
    if not ignores:
        _check_rows(indices, bad, output.shape)
    if depth == 0 and rows.size:
        raise InvalidArgumentError("indices.shape[-1] must be at least 1")
    rest = output.shape[depth:]
    blocks = output.reshape((math.prod(output.shape[:depth]), *rest))
    kept, values = rows.reshape(-1), updates.reshape((rows.size, *rest))
    if ignores and bad.any():
        good = ~bad.reshape(-1)
        kept, values = kept[good], values[good]
    if combine is None:
        blocks[kept] = values
    elif values.size > 64 * kept.size:
        for row, value in zip(kept.tolist(), values, strict=True):
            combine(blocks[row], value, out=blocks[row])
    else:
        combine.at(blocks, kept, values)


@register_kernel("ScatterNd", dtypes={"T": POD_STRING, "Tindices": _INDICES})
def _scatter_nd(c: OpKernelConstruction) -> Kernel:
    ignores, np_dtype = _policy(c) == _IGNORE, c.np_dtype("T")

    def scatter_nd(indices: Array, updates: Array, shape: Array) -> Array:
        dims = int_vector(shape, "Shape")
        check_memory(dims, np_dtype)
        if not indices.ndim or not updates.ndim:
            raise InvalidArgumentError("Indices and updates must be at least vectors")
        if math.prod(dims) == 0 and (indices.size or updates.size):
            raise InvalidArgumentError(f"Indices and updates specified for empty output of shape {dims}")
        output = zeros(dims, np_dtype)
        scatter_into(output, indices, updates, np.add, ignores)
        return as_value(output)

    return boxing(c, scatter_nd)


def _without_nan(updates: Array, combine: np.ufunc | None) -> Array:
    """*updates* with NaN replaced by what changes nothing: TensorFlow's maximum and minimum keep the element then."""
    if combine not in (np.maximum, np.minimum) or updates.dtype.kind not in "fV":
        return updates
    neutral = updates.dtype.type(-np.inf if combine is np.maximum else np.inf)
    return np.where(np.isnan(updates), neutral, updates)


def _tensor_scatter(c: OpKernelConstruction, combine: np.ufunc | None) -> Kernel:
    ignores = _policy(c) == _IGNORE

    def tensor_scatter(tensor: Array, indices: Array, updates: Array) -> Array:
        if not tensor.ndim or not updates.ndim:
            raise InvalidArgumentError("Tensor and updates must be at least 1-D")
        if not tensor.size and (indices.size or updates.size):
            raise InvalidArgumentError(f"Indices and updates specified for empty tensor of shape {list(tensor.shape)}")
        output = tensor.copy(order="C")
        scatter_into(output, indices, _without_nan(updates, combine), combine, ignores)
        return output

    return boxing(c, tensor_scatter)


for _op, _combine, _dtypes in (
    ("TensorScatterUpdate", None, POD_STRING),
    ("TensorScatterAdd", np.add, NUMBER),
    ("TensorScatterSub", np.subtract, NUMBER),
    ("TensorScatterMax", np.maximum, REAL),
    ("TensorScatterMin", np.minimum, REAL),
    ("ScatterNdNonAliasingAdd", np.add, POD),
):
    register_kernel(_op, dtypes={"T": _dtypes, "Tindices": _INDICES})(
        lambda c, combine=_combine: _tensor_scatter(c, combine)
    )
