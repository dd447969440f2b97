"""Tensors repeated: Tile, BroadcastTo, and the shapes that follow (BroadcastArgs).

Rules: tensorflow/core/ops/array_ops.cc, tile_ops.cc, broadcast_to_op.cc, bcast_ops.cc.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel_registry import register_function, register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, TensorShape
from asyncexec.framework.types import ALL_DTYPES, uint16
from asyncexec.ops.array.array_common import by_function, check_memory, empty, int_vector, merge_dim, product

_TILED = frozenset(ALL_DTYPES) - {uint16}


def _tile_shape(c: InferenceContext) -> Sequence[TensorShape]:
    given, multiples = c.input(0), c.value_as_shape(1)
    if c.input(1).rank not in (None, 1):
        raise InvalidArgumentError(f"multiples must be 1-D, not of shape {c.input(1)}")
    rank = given.rank if given.rank is not None else multiples.rank
    if rank is None:
        return [UNKNOWN_SHAPE]
    pairs = zip(given.with_rank(rank), multiples.with_rank(rank), strict=True)
    return [TensorShape(0 if 0 in pair else product(pair) for pair in pairs)]


register_op(
    "Tile",
    "input: T, multiples: Tmultiples -> output: T",
    "T: type; Tmultiples: {int32, int64} = int32",
    shape=_tile_shape,
)


def tile(x: ArrayOrScalar, multiples: Array) -> ArrayOrScalar:
    """*x* repeated *multiples* times along each dimension."""
    times = int_vector(multiples, "multiples")
    if len(times) != x.ndim:
        raise InvalidArgumentError(
            f"Expected multiples argument to be a vector of length {x.ndim} but got {len(times)}"
        )
    if times and min(times) < 0:
        raise InvalidArgumentError(f"Expected multiples >= 0, but got {times}")
    shape = [dim * count for dim, count in zip(x.shape, times, strict=True)]
    if shape == list(x.shape):
        return x
    check_memory(shape, x.dtype)
    interleaved = [size for dim, count in zip(x.shape, times, strict=True) for size in (count, dim)]
    result = np.empty(shape, x.dtype)
    result.reshape(interleaved)[...] = x.reshape([size for dim in x.shape for size in (1, dim)])
    return result


register_kernel("Tile", dtypes={"T": _TILED})(by_function(tile))


def _broadcast_to_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.vector(1)
    given, wanted = c.input(0), c.value_as_shape(1)
    if given.dims is None or wanted.dims is None:
        return [wanted]
    if len(given.dims) > len(wanted.dims):
        raise InvalidArgumentError(f"Input of rank {len(given.dims)} cannot be broadcast to rank {len(wanted.dims)}")
    lead = len(wanted.dims) - len(given.dims)
    sizes = zip(given.dims, wanted.dims[lead:], strict=True)
    tail = [merge_dim(target, None if dim == 1 else dim) for dim, target in sizes]
    return [TensorShape((*wanted.dims[:lead], *tail))]


register_op(
    "BroadcastTo",
    "input: T, shape: Tidx -> output: T",
    "T: type; Tidx: {int32, int64} = int32",
    shape=_broadcast_to_shape,
)


def broadcast_to(x: ArrayOrScalar, shape: Array) -> ArrayOrScalar:
    """*x* copied out to *shape*; InvalidArgumentError when it does not broadcast to it."""
    dims = int_vector(shape, "shape")
    if dims == list(x.shape):
        return x
    if x.ndim > len(dims):
        raise InvalidArgumentError(f"Incompatible shapes: {list(x.shape)} is of higher rank than {dims}")
    array = empty(dims, x.dtype)
    try:
        array[...] = x
    except ValueError:
        raise InvalidArgumentError(f"Incompatible shapes: {list(x.shape)} vs. {dims}") from None
    return array


register_kernel("BroadcastTo")(by_function(broadcast_to))


def _broadcast_args_shape(c: InferenceContext) -> Sequence[TensorShape]:
    x, y = c.vector(0)[0], c.vector(1)[0]
    return [TensorShape([None if x is None or y is None else max(x, y)])]


register_op("BroadcastArgs", "s0: T, s1: T -> r0: T", "T: {int32, int64} = int32", shape=_broadcast_args_shape)


def broadcast_args(s0: ArrayOrScalar, s1: ArrayOrScalar) -> ArrayOrScalar:
    """The shape that two shapes broadcast to."""
    a, b = int_vector(s0, "s0"), int_vector(s1, "s1")
    width = max(len(a), len(b))
    pairs = zip([1] * (width - len(a)) + a, [1] * (width - len(b)) + b, strict=True)
    result = []
    for x, y in pairs:
        if x != y and x != 1 and y != 1:
            raise InvalidArgumentError(f"Incompatible shapes: {a} vs. {b}")
        result.append(y if x == 1 else x)
    return np.array(result, s0.dtype)


register_function("BroadcastArgs", function=broadcast_args)
