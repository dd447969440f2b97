"""Blocks of space moved into depth or into the batch and back: SpaceToDepth, DepthToSpace, SpaceToBatch(ND), ...

Rules: tensorflow/core/ops/array_ops.cc, spacetodepth_op.cc, depthtospace_op.cc, spacetobatch_op.cc, batchtospace_op.cc.
"""

from __future__ import annotations

import math
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
from asyncexec.ops.array.array_common import POD_STRING, REAL, boxing, int_vector, integers, merge_dim, zeros

_MOVABLE = POD_STRING | {types.resource, types.variant}
_DEPTH_ATTRS = "T: type; block_size: int >= 2; data_format: {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'"


def _times(dim: Dim, factor: int) -> Dim:
    return None if dim is None else dim * factor


def _divided(dim: Dim, factor: int) -> Dim:
    if dim is None:
        return None
    if factor < 1 or dim % factor:
        raise InvalidArgumentError(f"Dimension size must be evenly divisible by {factor} but is {dim}")
    return dim // factor


def _axes(c: InferenceContext) -> tuple[int, int, int, int]:
    """Where batch, height, width and channels stand."""
    return (0, 1, 2, 3) if c.attr("data_format") == b"NHWC" else (0, 2, 3, 1)


def _image(c: InferenceContext) -> list[Dim]:
    dims = c.input(0).with_rank(5 if c.attr("data_format") == b"NCHW_VECT_C" else 4)
    return dims.as_list()


def _space_to_depth_shape(c: InferenceContext) -> Sequence[TensorShape]:
    dims, block = _image(c), c.attr("block_size")
    _, height, width, channels = _axes(c)
    dims[height], dims[width] = _divided(dims[height], block), _divided(dims[width], block)
    dims[channels] = _times(dims[channels], block * block)
    return [TensorShape(dims)]


def _depth_to_space_shape(c: InferenceContext) -> Sequence[TensorShape]:
    dims, block = _image(c), c.attr("block_size")
    _, height, width, channels = _axes(c)
    dims[height], dims[width] = _times(dims[height], block), _times(dims[width], block)
    dims[channels] = _divided(dims[channels], block * block)
    return [TensorShape(dims)]


register_op("SpaceToDepth", "input: T -> output: T", _DEPTH_ATTRS, shape=_space_to_depth_shape)
register_op("DepthToSpace", "input: T -> output: T", _DEPTH_ATTRS, shape=_depth_to_space_shape)


def _block_size(c: OpKernelConstruction) -> int:
    if c.attr("data_format") != b"NHWC":
        raise InvalidArgumentError(
            f"Only NHWC data_format supported on CPU. Got {c.attr('data_format').decode('utf-8', 'replace')}"
        )
    block: int = c.attr("block_size")
    return block


def _check_image(x: Array) -> None:
    if x.ndim != 4:
        raise InvalidArgumentError(f"Input rank should be 4 instead of {x.ndim}")


@register_kernel("SpaceToDepth", dtypes={"T": _MOVABLE | {types.qint8}})
def _space_to_depth(c: OpKernelConstruction) -> Kernel:
    block = _block_size(c)

    def space_to_depth(x: Array) -> Array:
        _check_image(x)
        batch, height, width, depth = x.shape
        if height % block or width % block:
            raise InvalidArgumentError(f"Image width {width} and height {height} should be divisible by {block}")
        blocks = x.reshape(batch, height // block, block, width // block, block, depth)
        return blocks.transpose(0, 1, 3, 2, 4, 5).reshape(batch, height // block, width // block, depth * block * block)

    return boxing(c, space_to_depth)


@register_kernel("DepthToSpace", dtypes={"T": _MOVABLE})
def _depth_to_space(c: OpKernelConstruction) -> Kernel:
    block = _block_size(c)

    def depth_to_space(x: Array) -> Array:
        _check_image(x)
        batch, height, width, depth = x.shape
        if depth % (block * block):
            raise InvalidArgumentError(f"Input depth dimension {depth} should be divisible by {block * block}")
        blocks = x.reshape(batch, height, width, block, block, depth // (block * block))
        return blocks.transpose(0, 1, 3, 2, 4, 5).reshape(
            batch, height * block, width * block, depth // (block * block)
        )

    return boxing(c, depth_to_space)


def _nd_shape(
    c: InferenceContext,
    given: TensorShape,
    block_shape: Sequence[int] | None,
    block_rank: Dim,
    pads_index: int,
    to_batch: bool,
) -> Sequence[TensorShape]:
    pads_shape = c.input(pads_index).with_rank(2)
    merge_dim(pads_shape[1], 2, "the second dimension of paddings or crops")
    block_rank = merge_dim(block_rank, pads_shape[0], "the length of block_shape and of paddings or crops")
    if block_rank is None:
        return [unknown_shape(given.rank) if given.rank is not None else UNKNOWN_SHAPE]
    given.with_rank_at_least(block_rank + 1)
    if given.dims is None:
        return [UNKNOWN_SHAPE]
    flat = integers(c, pads_index)
    pads = None if flat is None else list(zip(flat[::2], flat[1::2], strict=True))
    if pads is not None:
        _check_pads(pads)
    dims: list[Dim] = given.as_list()
    for axis in range(1, block_rank + 1):
        block = None if block_shape is None else block_shape[axis - 1]
        pad = None if pads is None else pads[axis - 1]
        dims[axis] = _nd_dim(dims[axis], block, pad, to_batch)
    if block_shape is None:
        dims[0] = None
    else:
        count = _checked_blocks(block_shape)
        dims[0] = _times(dims[0], count) if to_batch else _divided(dims[0], count)
    return [TensorShape(dims)]


def _nd_dim(dim: Dim, block: int | None, pad: tuple[int, int] | None, to_batch: bool) -> Dim:
    """What becomes of a spatial dimension: padded and cut into blocks; or, the other way, joined and cropped."""
    if dim is None or block is None or pad is None:
        return None
    if to_batch:
        return _divided(dim + sum(pad), block)
    cropped = dim * block - sum(pad)
    if cropped < 0:
        raise InvalidArgumentError(f"cropped size {cropped} must be non-negative")
    return cropped


def _check_pads(pads: Sequence[tuple[int, int]]) -> None:
    if any(low < 0 or high < 0 for low, high in pads):
        raise InvalidArgumentError(f"paddings and crops cannot be negative: {list(pads)}")


def _checked_blocks(block_shape: Sequence[int]) -> int:
    if any(block < 1 for block in block_shape):
        raise InvalidArgumentError(f"block_shape must be positive, got {list(block_shape)}")
    return math.prod(block_shape)


def _block_vector_shape(to_batch: bool) -> Any:
    def shape(c: InferenceContext) -> Sequence[TensorShape]:
        return _nd_shape(c, c.input(0), integers(c, 1), c.vector(1)[0], 2, to_batch)

    return shape


def _block_attr_shape(to_batch: bool) -> Any:
    def shape(c: InferenceContext) -> Sequence[TensorShape]:
        return _nd_shape(c, c.with_rank(0, 4), [c.attr("block_size")] * 2, 2, 1, to_batch)

    return shape


register_op(
    "SpaceToBatch",
    "input: T, paddings: Tpaddings -> output: T",
    "T: type; Tpaddings: {int32, int64} = int32; block_size: int >= 2",
    shape=_block_attr_shape(True),
)
register_op(
    "SpaceToBatchND",
    "input: T, block_shape: Tblock_shape, paddings: Tpaddings -> output: T",
    "T: type; Tblock_shape: {int32, int64} = int32; Tpaddings: {int32, int64} = int32",
    shape=_block_vector_shape(True),
)
register_op(
    "BatchToSpace",
    "input: T, crops: Tidx -> output: T",
    "T: type; block_size: int >= 2; Tidx: {int32, int64} = int32",
    shape=_block_attr_shape(False),
)
register_op(
    "BatchToSpaceND",
    "input: T, block_shape: Tblock_shape, crops: Tcrops -> output: T",
    "T: type; Tblock_shape: {int32, int64} = int32; Tcrops: {int32, int64} = int32",
    shape=_block_vector_shape(False),
)


def _pairs(x: Any, blocks: Sequence[int], pads: Any) -> list[tuple[int, int]]:
    """The rows of *pads*, checked against *x* and *blocks*."""
    if x.ndim < 1 + len(blocks):
        raise InvalidArgumentError(f"input rank should be >= {1 + len(blocks)} instead of {x.ndim}")
    if pads.shape != (len(blocks), 2):
        raise InvalidArgumentError(f"paddings and crops should have shape [{len(blocks)}, 2], not {list(pads.shape)}")
    pairs = [(low, high) for low, high in pads.tolist()]
    _check_pads(pairs)
    _checked_blocks(blocks)
    return pairs


def space_to_batch(x: Array, blocks: Sequence[int], paddings: Array) -> Array:
    """*x* padded with zeros, its blocks of space dealt out over the batch."""
    pairs, count = _pairs(x, blocks, paddings), len(blocks)
    sizes = [dim + low + high for dim, (low, high) in zip(x.shape[1:], pairs, strict=False)]
    if any(size % block for size, block in zip(sizes, blocks, strict=True)):
        raise InvalidArgumentError(f"padded_shape {sizes} is not divisible by block_shape {list(blocks)}")
    padded = x
    if any(map(any, pairs)):
        padded = zeros((x.shape[0], *sizes, *x.shape[1 + count :]), x.dtype)
        padded[(slice(None), *(slice(low, low + dim) for dim, (low, _) in zip(x.shape[1:], pairs, strict=False)))] = x
    cells = [size // block for size, block in zip(sizes, blocks, strict=True)]
    parted = padded.reshape(
        [x.shape[0], *np.ravel(list(zip(cells, blocks, strict=True))).astype(int), *x.shape[1 + count :]]
    )
    order = [*range(2, 2 * count + 1, 2), 0, *range(1, 2 * count, 2), *range(2 * count + 1, parted.ndim)]
    return parted.transpose(order).reshape([x.shape[0] * math.prod(blocks), *cells, *x.shape[1 + count :]])


def batch_to_space(x: Array, blocks: Sequence[int], crops: ArrayOrScalar) -> Array:
    """The blocks of space that were dealt out over the batch of *x* joined again, and cropped."""
    pairs, count = _pairs(x, blocks, crops), len(blocks)
    batch, rest = divmod(x.shape[0], math.prod(blocks))
    if rest:
        raise InvalidArgumentError(
            f"Input batch dimension ({x.shape[0]}) is not divisible by product of {list(blocks)}"
        )
    cells, inner = x.shape[1 : 1 + count], x.shape[1 + count :]
    sizes = [cell * block for cell, block in zip(cells, blocks, strict=True)]
    if any(low + high > size for size, (low, high) in zip(sizes, pairs, strict=True)):
        raise InvalidArgumentError(f"cropped size must be non-negative: {sizes} less {pairs}")
    parted = x.reshape([*blocks, batch, *cells, *inner])
    order = [count, *(axis for i in range(count) for axis in (count + 1 + i, i)), *range(2 * count + 1, parted.ndim)]
    joined = parted.transpose(order).reshape([batch, *sizes, *inner])
    return joined[(slice(None), *(slice(low, size - high) for size, (low, high) in zip(sizes, pairs, strict=True)))]


@register_kernel("SpaceToBatchND", dtypes={"T": REAL})
def _space_to_batch_nd(c: OpKernelConstruction) -> Kernel:
    return lambda x, block_shape, paddings: space_to_batch(x, int_vector(block_shape, "block_shape"), paddings)


@register_kernel("BatchToSpaceND", dtypes={"T": REAL})
def _batch_to_space_nd(c: OpKernelConstruction) -> Kernel:
    return lambda x, block_shape, crops: batch_to_space(x, int_vector(block_shape, "block_shape"), crops)


@register_kernel("SpaceToBatch", dtypes={"T": REAL})
def _space_to_batch(c: OpKernelConstruction) -> Kernel:
    blocks = (c.attr("block_size"),) * 2
    return lambda x, paddings: space_to_batch(x, blocks, paddings)


@register_kernel("BatchToSpace", dtypes={"T": REAL})
def _batch_to_space(c: OpKernelConstruction) -> Kernel:
    blocks = (c.attr("block_size"),) * 2
    return lambda x, crops: batch_to_space(x, blocks, crops)
