"""Functions that make tensors and change their form: fill, reshape, transpose, tile, pad.

Names and arguments are those of TensorFlow's Python API (``tensorflow/python/ops/array_ops.py``).  A shape or a list
of sizes is a list of ints and integer scalars, or an integer vector.  The result has the dtype of the input unless the
function says otherwise.

Raises:
    InvalidArgumentError: shapes do not fit: while the graph is built where they are known, else when it runs.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.types import DType, as_dtype
from asyncexec.frontend import basic_functions as basic
from asyncexec.frontend.calls import (
    DTypeLike,
    TensorLike,
    composite,
    dtype_of,
    in_graph_of,
    static_rank,
    tensor_op,
    tensors_op,
)
from asyncexec.frontend.create_op import as_tensor, graph_of, graph_to_use
from asyncexec.graph.node import Tensor

_RANGE_DTYPES = (types.int32, types.int64, types.float32, types.float64)


def fill(dims: TensorLike, value: TensorLike, name: str | None = None) -> Tensor:
    """A tensor of shape *dims* with the scalar *value* in every place.

    >>> show(ax.fill([2, 2], 7))
    [[7 7]
     [7 7]]
    """
    return tensor_op("Fill", [size_vector(dims), value], name)


def zeros(shape: TensorLike, dtype: DTypeLike = types.float32, name: str | None = None) -> Tensor:
    """Zeros of *dtype*: 0, False or the empty string.

    >>> show(ax.zeros([3], ax.int32))
    [0 0 0]
    """
    wanted = as_dtype(dtype)
    with graph_of((shape,)):
        return fill(shape, as_tensor(_zero(wanted), wanted), name or "zeros")


def ones(shape: TensorLike, dtype: DTypeLike = types.float32, name: str | None = None) -> Tensor:
    """Ones of *dtype*: 1 or True.

    >>> show(ax.ones([3]))
    [1. 1. 1.]
    """
    wanted = as_dtype(dtype)
    with graph_of((shape,)):
        return fill(shape, as_tensor(True if wanted is types.bool else 1, wanted), name or "ones")


def _zero(dtype: DType) -> object:
    if dtype is types.string:
        return b""
    return False if dtype is types.bool else 0


def zeros_like(input: TensorLike, dtype: DTypeLike = None, name: str | None = None) -> Tensor:  # noqa: A002
    """Zeros of the shape of *input*, and of its dtype unless *dtype* is given.

    >>> show(ax.zeros_like([5.0, 6.0]))
    [0. 0.]
    """
    (tensor,) = in_graph_of([input])
    if dtype is None or as_dtype(dtype) is dtype_of(tensor):
        return tensor_op("ZerosLike", [tensor], name)
    return zeros(basic.shape(tensor), dtype, name or "zeros_like")


def ones_like(input: TensorLike, dtype: DTypeLike = None, name: str | None = None) -> Tensor:  # noqa: A002
    """Ones of the shape of *input*, and of its dtype unless *dtype* is given.

    >>> show(ax.ones_like([5, 6]))
    [1 1]
    """
    (tensor,) = in_graph_of([input])
    if dtype is None or as_dtype(dtype) is dtype_of(tensor):
        return tensor_op("OnesLike", [tensor], name)
    return ones(basic.shape(tensor), dtype, name or "ones_like")


def range(  # noqa: A001
    start: TensorLike,
    limit: TensorLike | None = None,
    delta: TensorLike = 1,
    dtype: DTypeLike = None,
    name: str | None = None,
) -> Tensor:
    """The numbers from *start* to *limit*, which is excluded, in steps of *delta*; with one argument from 0.

    They are of *dtype*, by default the widest of the arguments' (int32, int64, float32, float64).

    >>> show(ax.range(2, 10, 3))
    [2 5 8]
    """
    start, limit = (0, start) if limit is None else (start, limit)
    with composite(name, "range", [start, limit, delta]) as scope:
        bounds = in_graph_of([start, limit, delta])
        wanted = _widest([dtype_of(bound) for bound in bounds]) if dtype is None else as_dtype(dtype)
        return tensor_op("Range", [basic.cast(bound, wanted) for bound in bounds], scope)


def _widest(dtypes: Sequence[DType]) -> DType:
    for dtype in dtypes:
        if dtype not in _RANGE_DTYPES:
            return dtype
    return max(dtypes, key=_RANGE_DTYPES.index)


def linspace(start: TensorLike, stop: TensorLike, num: TensorLike, name: str | None = None) -> Tensor:
    """*num* floats at equal distances, the first *start* and the last *stop*.

    >>> show(ax.linspace(0.0, 1.0, 5))
    [0.   0.25 0.5  0.75 1.  ]
    """
    return tensor_op("LinSpace", [start, stop, num], name)


def reshape(tensor: TensorLike, shape: TensorLike, name: str | None = None) -> Tensor:
    """The same elements in another shape; one size may be -1, and is computed from the others.

    >>> show(ax.reshape([1, 2, 3, 4], [2, -1]))
    [[1 2]
     [3 4]]
    """
    return tensor_op("Reshape", [tensor, size_vector(shape)], name)


def expand_dims(input: TensorLike, axis: TensorLike, name: str | None = None) -> Tensor:  # noqa: A002
    """*input* with a new dimension of size 1 before dimension *axis* (-1: at the end).

    >>> show(ax.expand_dims([1, 2], 0))
    [[1 2]]
    """
    return tensor_op("ExpandDims", [input, axis], name)


def squeeze(
    input: TensorLike,  # noqa: A002
    axis: int | Sequence[int] | None = None,
    name: str | None = None,
) -> Tensor:
    """*input* without its dimensions of size 1: all of them, or those in *axis*, which must be of size 1.

    >>> show(ax.squeeze([[1, 2]]))
    [1 2]
    """
    axes = [axis] if isinstance(axis, int) else list(axis or ())
    return tensor_op("Squeeze", [input], name, squeeze_dims=axes)


def transpose(
    a: TensorLike, perm: TensorLike | None = None, conjugate: bool = False, name: str | None = None
) -> Tensor:
    """*a* with its dimensions in the order *perm*, by default reversed; complex numbers conjugated if *conjugate*.

    >>> show(ax.transpose([[1, 2], [3, 4]]))
    [[1 3]
     [2 4]]
    """
    (tensor,) = in_graph_of([a])
    op = "ConjugateTranspose" if conjugate and dtype_of(tensor).is_complex else "Transpose"
    if perm is None:
        with graph_to_use(tensor):
            perm = _reversed_dimensions(tensor)
    return tensor_op(op, [tensor, perm], name or "transpose")


def _reversed_dimensions(x: Tensor) -> object:
    if x.shape.rank is not None:
        return np.arange(x.shape.rank - 1, -1, -1, dtype=np.int32)
    rank = basic.rank(x)
    return tensor_op("Sub", [tensor_op("Sub", [rank, 1]), range(0, rank, 1)])


def matrix_transpose(a: TensorLike, conjugate: bool = False, name: str | None = None) -> Tensor:
    """*a* with its last two dimensions exchanged; its rank must be known.

    >>> show(ax.matrix_transpose([[1, 2], [3, 4]]))
    [[1 3]
     [2 4]]
    """
    (tensor,) = in_graph_of([a])
    rank = static_rank(tensor, "matrix_transpose")
    if rank < 2:
        raise InvalidArgumentError(f"{tensor.name!r} of shape {tensor.shape} is no matrix", node=tensor.op)
    return transpose(tensor, [*builtins.range(rank - 2), rank - 1, rank - 2], conjugate, name)


def tile(input: TensorLike, multiples: TensorLike, name: str | None = None) -> Tensor:  # noqa: A002
    """*input* repeated along each dimension as often as *multiples* says.

    >>> show(ax.tile([1, 2], [2]))
    [1 2 1 2]
    """
    return tensor_op("Tile", [input, multiples], name)


def broadcast_to(input: TensorLike, shape: TensorLike, name: str | None = None) -> Tensor:  # noqa: A002
    """*input* repeated along its missing dimensions and those of size 1 until it has *shape*.

    >>> show(ax.broadcast_to([1, 2], [2, 2]))
    [[1 2]
     [1 2]]
    """
    return tensor_op("BroadcastTo", [input, size_vector(shape)], name)


def reverse(tensor: TensorLike, axis: TensorLike, name: str | None = None) -> Tensor:
    """*tensor* with the order reversed along the dimensions *axis*, an int or a list of ints.

    >>> show(ax.reverse([1, 2, 3], 0))
    [3 2 1]
    """
    return tensor_op("ReverseV2", [tensor, [axis] if isinstance(axis, int) else axis], name)


def roll(input: TensorLike, shift: TensorLike, axis: TensorLike, name: str | None = None) -> Tensor:  # noqa: A002
    """*input* shifted by *shift* along *axis*; elements that leave at one end enter at the other.

    >>> show(ax.roll([1, 2, 3], 1, 0))
    [3 1 2]
    """
    return tensor_op("Roll", [input, shift, axis], name)


def pad(
    tensor: TensorLike,
    paddings: TensorLike,
    mode: str = "CONSTANT",
    constant_values: TensorLike = 0,
    name: str | None = None,
) -> Tensor:
    """*tensor* with borders.

    >>> show(ax.pad([1, 2], [[1, 2]]))
    [0 1 2 0 0]

    Args:
        tensor: of n dimensions.
        paddings: n pairs, the elements to add before and after.
        mode: ``CONSTANT``, ``REFLECT`` (mirrored, without the edge) or ``SYMMETRIC`` (mirrored, with it).
        constant_values: the scalar that fills constant borders.

    Raises:
        InvalidArgumentError: another mode; paddings that do not fit.
    """
    match mode.upper():
        case "CONSTANT":
            if not isinstance(constant_values, Tensor) and constant_values in (0, False):
                return tensor_op("Pad", [tensor, paddings], name)
            return tensor_op("PadV2", [tensor, paddings, constant_values], name)
        case "REFLECT" | "SYMMETRIC":
            return tensor_op("MirrorPad", [tensor, paddings], name, mode=mode.upper())
    raise InvalidArgumentError(f"the mode of pad is CONSTANT, REFLECT or SYMMETRIC, not {mode!r}")


def meshgrid(*args: TensorLike, indexing: str = "xy", name: str | None = None) -> list[Tensor]:
    """The coordinates of a grid with the vectors *args* as axes, one tensor for each.

    With *indexing* ``"xy"`` the first two dimensions are exchanged, as for images; with ``"ij"`` they are not.

    >>> show(*ax.meshgrid([1, 2], [3, 4]))
    [[1 2]
     [1 2]]
    [[3 3]
     [4 4]]
    """
    if indexing not in ("xy", "ij"):
        raise InvalidArgumentError(f"indexing is 'xy' or 'ij', not {indexing!r}")
    with composite(name, "meshgrid", args):
        vectors = [reshape(vector, [-1]) for vector in in_graph_of(args)]
        order = list(builtins.range(len(vectors)))
        if indexing == "xy" and len(vectors) > 1:
            order[:2] = 1, 0
        sizes = tensors_op("ShapeN", [vectors]) if vectors else []
        shape = tensor_op("ConcatV2", [[sizes[i] for i in order], 0]) if len(sizes) > 1 else sizes[0]
        return [
            broadcast_to(reshape(vector, [-1 if k == position else 1 for k in builtins.range(len(vectors))]), shape)
            for vector, position in zip(vectors, order, strict=True)
        ]


def sequence_mask(
    lengths: TensorLike, maxlen: TensorLike | None = None, dtype: DTypeLike = types.bool, name: str | None = None
) -> Tensor:
    """For each length n in *lengths*, a row whose first n of *maxlen* bools are true.

    *maxlen* is the largest length by default.

    >>> show(ax.sequence_mask([1, 3], 3))
    [[ True False False]
     [ True  True  True]]
    """
    with composite(name, "SequenceMask", [lengths, maxlen]) as scope:
        (counts,) = in_graph_of([lengths])
        if maxlen is None:
            maxlen = tensor_op("Max", [reshape(counts, [-1]), [0]])
            maxlen = tensor_op("Maximum", [maxlen, as_tensor(0, dtype_of(counts))])
        columns = range(as_tensor(0, dtype_of(counts)), basic.cast(maxlen, dtype_of(counts)), 1)
        mask = tensor_op("Less", [columns, expand_dims(counts, -1)])
        return basic.cast(mask, dtype, scope)


def size_vector(dims: TensorLike) -> Any:
    """A list of sizes as create_op takes it; a single int stands for one dimension, as in numpy."""
    if isinstance(dims, (int, np.integer)) and not isinstance(dims, bool):
        return [dims]
    return np.zeros(0, np.int32) if isinstance(dims, (list, tuple)) and not dims else dims
