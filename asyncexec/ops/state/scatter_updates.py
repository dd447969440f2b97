"""Scattering into a copy of a value: what the Scatter ops of both kinds of variables share.

Rules from ``tensorflow/core/kernels/scatter_op.cc``, ``resource_variable_ops.cc`` and ``scatter_nd_op.cc``.
Duplicate indices are applied one after another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import TensorShape

# Applies updates (one a row, or one for all) to the rows of an array, in place.
Apply: TypeAlias = Callable[[Array, Array, Any], None]


def _replace(target: Array, rows: Array, updates: object) -> None:
    target[rows] = updates


def _subtract(target: Array, rows: Array, updates: ArrayOrScalar) -> None:
    """Of truth values, as of numbers of one bit."""
    (np.logical_xor if target.dtype.kind == "b" else np.subtract).at(target, rows, updates)


def _divide(target: Array, rows: Array, updates: ArrayOrScalar) -> None:
    if target.dtype.kind not in "iu":
        np.true_divide.at(target, rows, updates)
        return
    if not np.all(updates):
        raise InvalidArgumentError("Integer division by zero")
    many = np.broadcast_to(updates, (len(rows), *target.shape[1:]))
    for row, update in zip(rows, many, strict=True):
        old = target[row]
        target[row] = (old - np.fmod(old, update)) // update


APPLY: Final[dict[str, Apply]] = {
    "Update": _replace,
    "Add": np.add.at,
    "Sub": _subtract,
    "Mul": np.multiply.at,
    "Div": _divide,
    "Min": np.minimum.at,
    "Max": np.maximum.at,
}


def scatter(apply: Apply, value: ArrayOrScalar, indices: Any, updates: Any) -> Array:
    """A copy of *value* in which the slices that *indices* name along axis 0 are updated."""
    shape, wanted = np.shape(value), np.shape(indices) + np.shape(value)[1:]
    if not shape:
        raise InvalidArgumentError("params must be at least 1-D, got shape []")
    if np.shape(updates) not in ((), wanted):
        raise InvalidArgumentError(
            "Must have updates.shape = indices.shape + params.shape[1:] or updates.shape = [], got updates.shape "
            f"{TensorShape(np.shape(updates))}, indices.shape {TensorShape(np.shape(indices))}, "
            f"params.shape {TensorShape(shape)}"
        )
    rows = checked_rows(indices, shape[0])
    target = np.array(value, order="C")
    apply(target, rows, np.reshape(updates, (len(rows), *shape[1:])) if np.shape(updates) else updates)
    return target


def checked_rows(indices: ArrayOrScalar, size: int) -> Array:
    """*indices*, flat; InvalidArgumentError naming the first that is not in [0, size)."""
    rows = np.asarray(indices).reshape(-1)
    bad = (rows < 0) | (rows >= size)
    if bad.any():
        at = int(np.argmax(bad))
        where = ",".join(map(str, np.unravel_index(at, np.shape(indices)))) if np.ndim(indices) else ""
        raise InvalidArgumentError(f"indices[{where}] = {rows[at]} is not in [0, {size})")
    return rows


def scatter_nd(apply: Apply, value: Any, indices: Any, updates: Any, *, skips_bad: bool = False) -> Array:
    """A copy of *value* in which the slices that the rows of *indices* name are updated."""
    shape, index_shape, update_shape = np.shape(value), np.shape(indices), np.shape(updates)
    if not index_shape or not update_shape:
        raise InvalidArgumentError(
            f"indices and updates must be at least vectors, not of shapes {TensorShape(index_shape)} and "
            f"{TensorShape(update_shape)}"
        )
    if not np.size(indices) and np.size(updates):
        raise InvalidArgumentError(f"Updates specified for no indices: indices shape {TensorShape(index_shape)}")
    depth = index_shape[-1]
    if depth > len(shape):
        raise InvalidArgumentError(f"indices of depth {depth} are too deep for a tensor of shape {TensorShape(shape)}")
    if update_shape != index_shape[:-1] + shape[depth:]:
        raise InvalidArgumentError(
            f"updates of shape {TensorShape(update_shape)} do not fit indices of shape {TensorShape(index_shape)} "
            f"into a tensor of shape {TensorShape(shape)}"
        )
    rows, is_good = flat_rows(indices, shape, skips_bad=skips_bad)
    target = np.array(value, order="C")
    flat_target = target.reshape(math.prod(shape[:depth]), *shape[depth:])
    apply(flat_target, rows, np.reshape(updates, (len(is_good), *shape[depth:]))[is_good])
    return target


def flat_rows(indices: Array, shape: tuple[int, ...], *, skips_bad: bool = False) -> tuple[Array, Array]:
    """Rows of *indices* as single numbers over the leading dimensions of *shape*, and which rows were within it."""
    depth = np.shape(indices)[-1]
    points = np.asarray(indices, np.int64).reshape(math.prod(np.shape(indices)[:-1]), depth)
    sizes = np.array(shape[:depth], np.int64)
    is_good: Array = np.all((points >= 0) & (points < sizes), axis=1)
    if not (skips_bad or is_good.all()):
        at = int(np.argmin(is_good))
        where = ",".join(map(str, np.unravel_index(at, np.shape(indices)[:-1])))
        point = _listed(points[at])
        raise InvalidArgumentError(f"indices[{where}] = {point} does not index into shape {TensorShape(shape)}")
    strides = np.ones(depth, np.int64)
    strides[:-1] = np.cumprod(sizes[:0:-1])[::-1]
    return points[is_good] @ strides, is_good


def _listed(point: Sequence[int]) -> str:
    return "[" + ",".join(map(str, point)) + "]"


def nd_shape(c: InferenceContext) -> TensorShape:
    """The shape of input 0 of a ScatterNd op, with the static checks of its indices and updates."""
    target = c.input(0)
    indices, updates = c.input(1).with_rank_at_least(1), c.input(2).with_rank_at_least(1)
    if target.num_elements == 0 and (indices.num_elements or 0) and (updates.num_elements or 0):
        raise InvalidArgumentError("Indices and updates specified for empty input")
    if indices.dims is None or updates.dims is None:
        return target
    outer = len(indices.dims) - 1
    updates[:outer].merge_with(indices[:-1])
    depth = indices[-1]
    if depth is not None and target.dims is not None and depth <= len(target.dims):
        updates[outer:].merge_with(target[depth:])
    return target
