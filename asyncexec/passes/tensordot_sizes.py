"""The sizes in a Tensordot of a value one of whose sizes is not known, without reckoning them at each call.

``tf.tensordot``, which a Dense layer of Keras is on more than two axes, reshapes its input to a matrix, multiplies, and
reshapes the product.  Both shapes come from the shape of the input by some small nodes (``tensordot`` in TensorFlow's
``python/ops/math_ops.py``).  They take as many elements as there are, whatever the unknown size is, so that one -1 says
it all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from asyncexec.graph.node import Node, Tensor
from asyncexec.passes.onnx_emitter import Emitter

_UNKNOWN = -1


class _Some(NamedTuple):
    """Sizes: those of *whole* along *axes*."""

    whole: Tensor
    axes: tuple[int, ...]


def sizes_of_tensordot(e: Emitter, node: Node) -> list[int] | None:
    """The sizes that *node*, a Reshape, gives, of which one may be -1; None if it is no part of a Tensordot."""
    found = _of_matrix(e, node)
    if found is not None:
        return [_UNKNOWN, found[1]]
    return _of_product(e, node)


def _of_matrix(e: Emitter, node: Node) -> tuple[_Some, int] | None:
    """What the rows of a matrix are, and the number of its columns, where *node* makes one of a whole value."""
    pack = _made(e, node.inputs[1], "Pack")
    rows = None if pack is None or len(pack.inputs) != 2 else _product(e, pack.inputs[0])
    if pack is None or rows is None or not _is_same(rows.whole, _without_transposes(e, node.inputs[0])):
        return None
    others = [dim for axis, dim in enumerate(rows.whole.shape.dims or ()) if axis not in rows.axes]
    known = [dim for dim in others if dim]
    num_columns, given, columns = math.prod(known), e.constant(pack.inputs[1]), _product(e, pack.inputs[1])
    if len(known) < len(others):
        return None
    if columns is not None:
        is_rest = _is_same(columns.whole, rows.whole) and not set(columns.axes) & set(rows.axes)
        return (rows, num_columns) if is_rest and len(columns.axes) == len(others) else None
    return (rows, num_columns) if given is not None and not given.ndim and given == num_columns else None


def _of_product(e: Emitter, node: Node) -> list[int] | None:
    """The sizes, where *node* gives a product of such a matrix as its shape what is free, and the number of columns."""
    concat, product = _made(e, node.inputs[1], "ConcatV2"), _made(e, node.inputs[0], "MatMul")
    if concat is None or product is None or len(concat.inputs) != 3 or product.attrs.get("transpose_a"):
        return None
    matrix = _made(e, product.inputs[0], "Reshape")
    found = None if matrix is None else _of_matrix(e, matrix)
    free, columns, axis = _sizes(e, concat.inputs[0]), e.constant(concat.inputs[1]), e.constant(concat.inputs[2])
    num_columns = (node.inputs[0].shape.dims or (None,))[-1]
    if found is None or free is None or columns is None or axis is None or int(axis):
        return None
    if not _is_same(free.whole, found[0].whole) or free.axes != found[0].axes:
        return None
    if not num_columns or columns.tolist() != [num_columns]:
        return None
    dims = free.whole.shape.dims or ()
    sizes = [_UNKNOWN if dims[axis] is None else dims[axis] or 0 for axis in free.axes]
    return [*sizes, num_columns] if sizes.count(_UNKNOWN) <= 1 and 0 not in sizes else None


def _product(e: Emitter, tensor: Tensor) -> _Some | None:
    """What *tensor* gives the product of the sizes of."""
    prod = _made(e, tensor, "Prod")
    axes = None if prod is None else e.constant(prod.inputs[1])
    is_of_all = (
        prod is not None and axes is not None and axes.ravel().tolist() == [0] and not prod.attrs.get("keep_dims")
    )
    return _sizes(e, prod.inputs[0]) if prod is not None and is_of_all else None


def _sizes(e: Emitter, tensor: Tensor) -> _Some | None:
    """What *tensor* gives the sizes of: a Gather of some axes, each once, of a Shape."""
    gather = _made(e, tensor, "GatherV2")
    shape = None if gather is None else _made(e, gather.inputs[0], "Shape")
    if gather is None or shape is None or gather.attrs.get("batch_dims"):
        return None
    whole, axes, axis = shape.inputs[0], e.constant(gather.inputs[1]), e.constant(gather.inputs[2])
    rank = whole.shape.rank
    if axes is None or axes.ndim != 1 or axis is None or int(axis) or rank is None:
        return None
    numbers: Sequence[int] = axes.tolist()
    is_each_once = len(set(numbers)) == len(numbers) and all(0 <= number < rank for number in numbers)
    return _Some(whole, tuple(numbers)) if is_each_once else None


def _without_transposes(e: Emitter, tensor: Tensor) -> Tensor:
    """What *tensor* has the elements of."""
    while (transpose := _made(e, tensor, "Transpose")) is not None:
        tensor = transpose.inputs[0]
    return tensor


def _made(e: Emitter, tensor: Tensor, op: str) -> Node | None:
    """The node that makes *tensor*, if it is an *op* and nothing is fed in its place."""
    return tensor.op if tensor.op.op == op and not e.is_fed(tensor) else None


def _is_same(one: Tensor, other: Tensor) -> bool:
    return (one.op, one.index) == (other.op, other.index)
