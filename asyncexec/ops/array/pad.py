"""Pad, PadV2, MirrorPad and MirrorPadGrad.

Rules: tensorflow/core/ops/array_ops.cc, pad_op.cc, mirror_pad_op.cc.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, Dim, TensorShape, unknown_shape
from asyncexec.ops.array.array_common import NUMBER, POD_STRING, boxing, check_memory, empty, integers, merge_dim, zeros

_PADDED = POD_STRING | {types.qint8, types.quint8, types.qint32}


def _paddings(c: InferenceContext) -> tuple[TensorShape, list[tuple[int, int]] | None]:
    """The shape of the input, its rank as far as paddings tell it; and the paddings where they are known."""
    given, shape, flat = c.input(0), c.with_rank(1, 2), integers(c, 1)
    merge_dim(shape[1], 2, "the second dimension of paddings")
    if flat is None:
        return given.with_rank(shape[0]) if shape[0] is not None else given, None
    pairs = list(zip(flat[::2], flat[1::2], strict=True))
    if any(low < 0 or high < 0 for low, high in pairs):
        raise InvalidArgumentError(f"Paddings must be non-negative: {pairs}")
    return given.with_rank(len(pairs)), pairs


def _padded_shape(c: InferenceContext) -> Sequence[TensorShape]:
    given, pairs = _paddings(c)
    if given.dims is None:
        return [UNKNOWN_SHAPE]
    if pairs is None:
        return [unknown_shape(len(given.dims))]
    sizes = zip(given.dims, pairs, strict=True)
    return [TensorShape(None if dim is None else dim + low + high for dim, (low, high) in sizes)]


def _unpadded_shape(c: InferenceContext) -> Sequence[TensorShape]:
    given, pairs = _paddings(c)
    if given.dims is None or pairs is None:
        return [UNKNOWN_SHAPE if given.rank is None else unknown_shape(given.rank)]
    dims: list[Dim] = [None if dim is None else dim - low - high for dim, (low, high) in zip(given, pairs, strict=True)]
    if any(dim is not None and dim < 0 for dim in dims):
        raise InvalidArgumentError(f"Paddings {pairs} are more than the input {given}")
    return [TensorShape(dims)]


register_op(
    "Pad",
    "input: T, paddings: Tpaddings -> output: T",
    "T: type; Tpaddings: {int32, int64} = int32",
    shape=_padded_shape,
)
register_op(
    "PadV2",
    "input: T, paddings: Tpaddings, constant_values: T -> output: T",
    "T: type; Tpaddings: {int32, int64} = int32",
    shape=_padded_shape,
)
_MIRROR_ATTRS = "T: type; Tpaddings: {int32, int64} = int32; mode: {'REFLECT', 'SYMMETRIC'}"
register_op("MirrorPad", "input: T, paddings: Tpaddings -> output: T", _MIRROR_ATTRS, shape=_padded_shape)
register_op("MirrorPadGrad", "input: T, paddings: Tpaddings -> output: T", _MIRROR_ATTRS, shape=_unpadded_shape)


def _pairs(x: Any, paddings: Any) -> list[tuple[int, int]]:
    if paddings.ndim != 2 or paddings.shape[1] != 2:
        raise InvalidArgumentError(f"paddings must be a matrix with 2 columns: {list(paddings.shape)}")
    pairs = [(low, high) for low, high in paddings.tolist()]
    if len(pairs) != x.ndim:
        raise InvalidArgumentError(
            f"The first dimension of paddings must be the rank of inputs: {len(pairs)}, {x.ndim}"
        )
    if any(low < 0 or high < 0 for low, high in pairs):
        raise InvalidArgumentError(f"Paddings must be non-negative: {pairs}")
    return pairs


def pad(x: ArrayOrScalar, paddings: Array, value: ArrayOrScalar) -> ArrayOrScalar:
    """*x* with *value* around it."""
    pairs = _pairs(x, paddings)
    if not any(map(any, pairs)):
        return x
    output = empty([dim + low + high for dim, (low, high) in zip(x.shape, pairs, strict=True)], x.dtype)
    output[...] = value
    output[tuple(slice(low, low + dim) for dim, (low, _) in zip(x.shape, pairs, strict=True))] = x
    return output


@register_kernel("Pad", dtypes={"T": _PADDED})
def _pad(c: OpKernelConstruction) -> Kernel:
    blank = zeros((), c.np_dtype("T"))
    return boxing(c, lambda x, paddings: pad(x, paddings, blank))


@register_kernel("PadV2", dtypes={"T": _PADDED})
def _pad_v2(c: OpKernelConstruction) -> Kernel:
    def pad_v2(x: Array, paddings: Array, value: ArrayOrScalar) -> ArrayOrScalar:
        if value.ndim:
            raise InvalidArgumentError(f"constant_values must be a scalar. Found: {list(value.shape)}")
        return pad(x, paddings, value)

    return boxing(c, pad_v2)


def _mirror_index(dim: int, low: int, high: int, edge: int) -> Array:
    """Which element of a dimension stands where once it is mirrored; the border is left out when *edge* is 1."""
    front = np.arange(low - 1 + edge, edge - 1, -1)
    back = np.arange(dim - 1 - edge, dim - 1 - edge - high, -1)
    return np.concatenate((front, np.arange(dim), back))


def _edge(c: OpKernelConstruction) -> int:
    return 1 if c.attr("mode") == b"REFLECT" else 0


def _check_mirrored(dim: int, low: int, high: int, edge: int) -> None:
    if max(low, high) > dim - edge and max(low, high) > 0:
        raise InvalidArgumentError(
            f"paddings must be no greater than the dimension size less {edge}: {low}, {high}, {dim}"
        )


def mirror_padded(x: Array, paddings: Array, mode: bytes) -> Array:
    """*x* with its mirror images around it; with the border in them unless *mode* is REFLECT."""
    edge, pairs = int(mode == b"REFLECT"), _pairs(x, paddings)
    check_memory([dim + low + high for dim, (low, high) in zip(x.shape, pairs, strict=True)], x.dtype)
    for axis, (low, high) in enumerate(pairs):
        _check_mirrored(x.shape[axis], low, high, edge)
        if low or high:
            x = x.take(_mirror_index(x.shape[axis], low, high, edge), axis)
    return x


@register_kernel("MirrorPad", dtypes={"T": _PADDED})
def _mirror_pad(c: OpKernelConstruction) -> Kernel:
    mode = c.attr("mode")
    return boxing(c, lambda x, paddings: mirror_padded(x, paddings, mode))


@register_kernel("MirrorPadGrad", dtypes={"T": NUMBER})
def _mirror_pad_grad(c: OpKernelConstruction) -> Kernel:
    edge = _edge(c)

    def mirror_pad_grad(x: object, paddings: object) -> object:
        for axis, (low, high) in enumerate(_pairs(x, paddings)):
            if low or high:
                x = _fold(x, axis, low, high, edge)
        return x

    return boxing(c, mirror_pad_grad)


def _fold(x: Any, axis: int, low: int, high: int, edge: int) -> Array:
    """The gradient of mirroring one axis: what fell on the mirrored parts is added where it came from."""
    parts = np.moveaxis(x, axis, 0)
    dim = parts.shape[0] - low - high
    if dim < 0:
        raise InvalidArgumentError(f"Paddings {low}, {high} are more than the dimension size {parts.shape[0]}")
    _check_mirrored(dim, low, high, edge)
    output = parts[low : low + dim].copy()
    output[edge : edge + low] += parts[:low][::-1]
    output[dim - edge - high : dim - edge] += parts[low + dim :][::-1]
    return np.moveaxis(output, 0, axis)
