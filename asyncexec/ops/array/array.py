"""Ops about the shape of a tensor as a whole: Shape, Size, Reshape, Squeeze, Fill, Tile, BroadcastTo and the like.

Rules: tensorflow/core/ops/array_ops.cc and the kernels of the same names (shape_ops.h, reshape_op.h, tile_ops.cc).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from asyncexec.framework import types, variant_ops
from asyncexec.framework.arrays import Array, ArrayOrScalar, NumpyDType
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction, as_value
from asyncexec.framework.kernel_registry import register_function, register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext, scalars, unchanged
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, TensorShape
from asyncexec.ops.array.array_common import (
    POD,
    POD_STRING,
    boxed,
    boxing,
    by_function,
    canonical_axis,
    check_memory,
    has_boxes,
    int_vector,
)

_INT32_MAX = 2**31 - 1


def _shape_shapes(c: InferenceContext) -> Sequence[TensorShape]:
    return [TensorShape([shape.rank]) for shape in c.input_shapes]


register_op("Shape", "input: T -> output: out_type", "T: type; out_type: {int32, int64} = int32", shape=_shape_shapes)
register_op(
    "ShapeN",
    "input: N*T -> output: N*out_type",
    "N: int >= 1; T: type; out_type: {int32, int64} = int32",
    shape=_shape_shapes,
)
register_op("Size", "input: T -> output: out_type", "T: type; out_type: {int32, int64} = int32", shape=scalars)
register_op("Rank", "input: T -> output: int32", "T: type", shape=scalars)


def _sizes_as(np_dtype: NumpyDType) -> Kernel:
    """The shape of one array as a vector of *np_dtype*; InvalidArgumentError for a size that does not fit."""

    def sizes(x: ArrayOrScalar) -> Array:
        try:
            return np.array(x.shape, np_dtype)
        except OverflowError:
            raise InvalidArgumentError(f"Shape output type is 32-bit but the shape is {list(x.shape)}") from None

    return sizes


@register_kernel("Shape")
def _shape(c: OpKernelConstruction) -> Kernel:
    return boxing(c, _sizes_as(c.np_dtype("out_type")))


@register_kernel("ShapeN")
def _shape_n(c: OpKernelConstruction) -> Kernel:
    sizes = _sizes_as(c.np_dtype("out_type"))
    return boxing(c, lambda *inputs: tuple(sizes(x) for x in inputs))


@register_kernel("Size")
def _size(c: OpKernelConstruction) -> Kernel:
    out_type = c.np_dtype("out_type").type
    limit = int(np.iinfo(out_type).max)

    def size(x: ArrayOrScalar) -> Any:
        if x.size > limit:
            raise InvalidArgumentError(
                f"Number of elements was larger than representable by 32-bit output type: {x.size}"
            )
        return out_type(x.size)

    return boxing(c, size)


@register_kernel("Rank")
def _rank(c: OpKernelConstruction) -> Kernel:
    return boxing(c, lambda x: np.int32(x.ndim))


def _reshape_shape(c: InferenceContext) -> Sequence[TensorShape]:
    if c.value(1) is None:
        c.vector(1)
    return [reshaped(c.input(0), c.value_as_shape(1))]


def reshaped(given: TensorShape, wanted: TensorShape) -> TensorShape:
    """What *given* becomes when reshaped to *wanted*, whose one unknown size follows from the number of elements."""
    if given.dims is None or wanted.dims is None:
        return wanted
    unknown = [index for index, dim in enumerate(wanted.dims) if dim is None]
    free = [dim for dim in given.dims if dim is None]
    have, want = _known_elements(given), _known_elements(wanted)
    if not unknown and not free and have != want:
        raise InvalidArgumentError(
            f"Cannot reshape a tensor with {have} elements to shape {wanted} ({want} elements): input shape {given}"
        )
    if len(unknown) == 1 and not free and want:
        if have % want:
            raise InvalidArgumentError(f"Dimension size must be evenly divisible by {want} but is {have}: {given}")
        return TensorShape(have // want if dim is None else dim for dim in wanted.dims)
    if not unknown and len(free) == 1 and have and want % have:
        raise InvalidArgumentError(f"Dimension size must be evenly divisible by {have} but is {want}: {wanted}")
    return wanted


def _known_elements(shape: TensorShape) -> int:
    count = 1
    for dim in shape.as_list():
        count *= 1 if dim is None else dim
    return count


register_op(
    "Reshape", "tensor: T, shape: Tshape -> output: T", "T: type; Tshape: {int32, int64} = int32", shape=_reshape_shape
)


def reshape(x: Any, shape: object) -> Any:
    """*x* in *shape*, of which one size may be -1; InvalidArgumentError when the elements do not fit."""
    dims = int_vector(shape, "sizes input")
    try:
        result = x.reshape(dims)
    except ValueError:
        result = _reshape_empty(x, dims)
    if dims and min(dims) < -1:
        raise InvalidArgumentError(f"Size {dims.index(min(dims))} must be non-negative, not {min(dims)}")
    return result if dims else as_value(result)


def _reshape_empty(x: Array, dims: list[int]) -> object:
    """Reshape where numpy refuses: where nothing can be inferred TensorFlow infers from the sizes that are not 0."""
    if x.size or dims.count(-1) != 1 or 0 not in dims:
        raise InvalidArgumentError(
            f"Input to reshape is a tensor of shape {list(x.shape)} with {x.size} values, but it should become {dims}"
        )
    sizes, wanted = (math.prod(size for size in shape if size > 0) for shape in (x.shape, dims))
    return x.reshape([sizes // wanted if dim == -1 else dim for dim in dims])


register_kernel("Reshape")(by_function(reshape))


def _expand_dims_shape(c: InferenceContext) -> Sequence[TensorShape]:
    axis = c.int_value(1)
    dims = c.input(0).dims
    if dims is None or axis is None:
        return [UNKNOWN_SHAPE]
    axis = canonical_axis(axis, len(dims) + 1, "dim")
    return [TensorShape((*dims[:axis], 1, *dims[axis:]))]


register_op(
    "ExpandDims",
    "input: T, dim: Tdim -> output: T",
    "T: type; Tdim: {int32, int64} = int32",
    shape=_expand_dims_shape,
)


def expand_dims(x: ArrayOrScalar, dim: ArrayOrScalar) -> Array:
    """*x* with a dimension of size 1 put in at *dim*."""
    if dim.size != 1:
        raise InvalidArgumentError(f"'dim' must be a tensor with a single value, not of shape {list(dim.shape)}")
    axis = canonical_axis(dim.item(), x.ndim + 1, "dim")
    return x.reshape((*x.shape[:axis], 1, *x.shape[axis:]))


register_kernel("ExpandDims")(by_function(expand_dims))


def _squeeze_shape(c: InferenceContext) -> Sequence[TensorShape]:
    dims, squeezed = c.input(0).dims, c.attr("squeeze_dims")
    if dims is None or (not squeezed and None in dims):
        return [UNKNOWN_SHAPE]
    if not squeezed:
        return [TensorShape(dim for dim in dims if dim != 1)]
    axes = {canonical_axis(axis, len(dims), "squeeze_dims") for axis in squeezed}
    for axis in axes:
        if dims[axis] not in (None, 1):
            raise InvalidArgumentError(f"Can not squeeze dim[{axis}], expected a dimension of 1, got {dims[axis]}")
    return [TensorShape(dim for axis, dim in enumerate(dims) if axis not in axes)]


register_op("Squeeze", "input: T -> output: T", "T: type; squeeze_dims: list(int) >= 0 = []", shape=_squeeze_shape)


@register_kernel("Squeeze")
def _squeeze(c: OpKernelConstruction) -> Kernel:
    squeezed = c.attr("squeeze_dims") or None

    def squeeze(x: Any) -> object:
        if squeezed is None:
            return as_value(x.squeeze())
        try:
            return as_value(x.squeeze(axis=squeezed))
        except ValueError:
            return as_value(_squeeze_canonical(x, squeezed))

    return boxing(c, squeeze)


def _squeeze_canonical(x: Array, squeezed: tuple[int, ...]) -> object:
    """Squeeze where an axis may be named twice (numpy refuses that), and where the mistakes are told."""
    axes = {canonical_axis(axis, x.ndim, "squeeze_dims") for axis in squeezed}
    for axis in axes:
        if x.shape[axis] != 1:
            raise InvalidArgumentError(f"Can not squeeze dim[{axis}], expected a dimension of 1, got {x.shape[axis]}")
    return x.squeeze(axis=tuple(axes))


def _fill_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.vector(0)
    c.scalar(1)
    return [c.value_as_shape(0)]


register_op(
    "Fill",
    "dims: index_type, value: T -> output: T",
    "T: type; index_type: {int32, int64} = int32",
    shape=_fill_shape,
)


@register_kernel("Fill")
def _fill(c: OpKernelConstruction) -> Kernel:
    np_dtype = c.np_dtype("T")

    def fill(dims: ArrayOrScalar, value: ArrayOrScalar) -> Any:
        shape = int_vector(dims, "dims")
        if value.ndim:
            raise InvalidArgumentError(f"value must be a scalar, got shape {list(value.shape)}")
        check_memory(shape, np_dtype)
        array = np.empty(shape, np_dtype)
        array[...] = value
        return as_value(array)

    return boxing(c, fill)


register_op("ZerosLike", "x: T -> y: T", "T: type", shape=unchanged)
register_op(
    "OnesLike",
    "x: T -> y: T",
    "T: {bfloat16, float16, float32, float64, int8, uint8, int16, uint16, int32, uint32, int64, uint64, complex64,"
    " complex128, bool}",
    shape=unchanged,
)


@register_kernel("ZerosLike", dtypes={"T": POD_STRING})
def _zeros_like(c: OpKernelConstruction) -> Kernel:
    np_dtype = c.np_dtype("T")
    if np_dtype.kind == "O":
        return lambda x: np.full(x.shape, b"", object) if isinstance(x, np.ndarray) else b""
    zero = np_dtype.type(0)
    return lambda x: np.zeros(x.shape, np_dtype) if x.ndim else zero


def _zeros_like_variant(x: object) -> object:
    if isinstance(x, np.ndarray):
        raise InvalidArgumentError("ZerosLike non-scalar Tensor with dtype=DT_VARIANT is not supported.")
    return variant_ops.zeros_like(x)


register_function("ZerosLike", function=_zeros_like_variant, dtypes={"T": {types.variant}})


@register_kernel("OnesLike", dtypes={"T": POD})
def _ones_like(c: OpKernelConstruction) -> Kernel:
    np_dtype = c.np_dtype("T")
    one = np_dtype.type(1)
    return lambda x: np.ones(x.shape, np_dtype) if x.ndim else one


def _same(x: object) -> Any:
    return x


register_op("GuaranteeConst", "input: T -> output: T", "T: type", shape=unchanged, is_stateful=True)
register_op("Snapshot", "input: T -> output: T", "T: type", shape=unchanged)
register_function("GuaranteeConst", function=_same)
register_function("Snapshot", function=_same, dtypes={"T": POD})


register_op(
    "EnsureShape",
    "input: T -> output: T",
    "shape: shape; T: type",
    shape=lambda c: [c.input(0).merge_with(c.attr("shape"))],
)


@register_kernel("EnsureShape")
def _ensure_shape(c: OpKernelConstruction) -> Kernel:
    wanted: TensorShape = c.attr("shape")
    box = boxed if has_boxes(c.attr("T")) else _same

    def ensure_shape(x: object) -> object:
        if not wanted.accepts(box(x).shape):
            raise InvalidArgumentError(
                f"Shape of tensor {list(box(x).shape)} is not compatible with expected shape {wanted}"
            )
        return x

    return ensure_shape


register_op("InvertPermutation", "x: T -> y: T", "T: {int32, int64} = int32", shape=lambda c: [c.vector(0)])


def invert_permutation(x: Array) -> ArrayOrScalar:
    """y with ``y[x[i]] = i``; InvalidArgumentError unless *x* is a permutation of 0 ... n-1."""
    if x.ndim != 1:
        raise InvalidArgumentError(f"invert_permutation expects a 1D vector, not shape {list(x.shape)}")
    inverse = np.full(x.size, -1, x.dtype)
    if x.size and (x.min() < 0 or x.max() >= x.size):
        raise InvalidArgumentError(f"{x.tolist()} is not between 0 and {x.size}")
    inverse[x] = np.arange(x.size, dtype=x.dtype)
    if x.size and inverse.min() < 0:
        raise InvalidArgumentError(f"{x.tolist()} holds an index twice")
    return inverse


register_function("InvertPermutation", function=invert_permutation)
