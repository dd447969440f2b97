"""Pooling and its gradients (``tensorflow/core/ops/nn_ops.cc``, ``pooling_ops_common.cc``), both tensor layouts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError, UnimplementedError
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.ownership import freeze
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import TensorShape, unknown_shape
from asyncexec.framework.types import REAL_NUMBER_DTYPES
from asyncexec.ops.array.windows import (
    Axis,
    Windows,
    as_channels_first,
    channels_last,
    is_channels_first,
    join_shape,
    make_windows,
    split_shape,
    widened,
)
from asyncexec.ops.nn.convolution import rounded
from asyncexec.ops.nn.convolution_gradients import sizes_vector
from asyncexec.ops.nn.native_convolution import NO_TAIL, NativeConvolution
from asyncexec.ops.nn.pooling_windows import (
    average_pool,
    average_pool_grad,
    cell_counts,
    first_maxima,
    flat_indices,
    max_pool,
    max_pool_grad,
    max_pool_grad_all,
    max_pool_of_volumes,
)
from asyncexec.process.free_memory import check_array

Pool = Callable[[Array, Sequence[Axis]], Array]
_PLANE: Final = 2  # axes
_MOST_CELLS: Final = 32  # of a window that native code sums as they lie, and not axis by axis


class Pooling:
    """The windows of a pooling node: ksize, strides and padding, in the order of its data format."""

    __slots__ = ("depth", "ksize", "windows")

    def __init__(self, attrs: Mapping[str, Any], rank: int, *, average: bool = False) -> None:
        if attrs.get("data_format") == b"NCHW_VECT_C":
            raise InvalidArgumentError("Pooling takes NCHW_VECT_C on GPUs only")
        ksize, strides = list(attrs["ksize"]), list(attrs["strides"])
        channels = 1 if is_channels_first(attrs) else rank + 1
        self._check(ksize, strides, rank)
        self.depth: Any = ksize[channels]
        if self.depth > 1 or strides[channels] > 1:
            _check_depth_pooling(ksize, strides, channels, average)
        spatial = [size for i, size in enumerate(ksize) if i not in (0, channels)]
        self.ksize: tuple[int, ...] = tuple(int(size) for size in spatial)
        strides[channels] = 1
        self.windows: Windows = make_windows({**attrs, "strides": strides}, rank)
        for (before, after), size in zip(self.windows.explicit, self.ksize, strict=False):
            if max(before, after) >= size:
                raise InvalidArgumentError(f"padding {before}, {after} needs to be smaller than the window size {size}")

    @staticmethod
    def _check(ksize: Sequence[int], strides: Sequence[int], rank: int) -> None:
        for what, values in (("ksize", ksize), ("strides", strides)):
            if len(values) != rank + 2:
                raise InvalidArgumentError(f"Sliding window {what} must have {rank + 2} numbers, not {list(values)}")
            if any(value < 1 for value in values):
                raise InvalidArgumentError(f"Sliding window {what} must be positive: {list(values)}")
        if ksize[0] != 1 or strides[0] != 1:
            raise UnimplementedError("Pooling is not yet supported on the batch dimension.")

    def axes(self, sizes: Sequence[int]) -> tuple[Axis, ...]:
        """The windows over an input of those spatial *sizes*."""
        return self.windows.axes(sizes, self.ksize)

    def pool(self, x: Array, function: Pool) -> Array:
        """*function* of the windows of *x*, which comes and goes in the node's layout."""
        if x.ndim != self.windows.rank + 2:
            raise InvalidArgumentError(
                f"tensor_in must be {self.windows.rank + 2}-dimensional, not of shape {list(x.shape)}"
            )
        first = self.windows.channels_first
        x = channels_last(x) if first else x
        out = _pool_depth(x, self.depth) if self.depth > 1 else function(x, self.axes(x.shape[1:-1]))
        return as_channels_first(out) if first else out

    def shape(self, shape: TensorShape) -> TensorShape:
        """The shape that pooling gives of a tensor of that *shape*."""
        first, rank = self.windows.channels_first, self.windows.rank
        batch, sizes, depth = split_shape(shape, first, rank)
        out = [self.windows.output_dim(i, size, self.ksize[i]) for i, size in enumerate(sizes)]
        return join_shape(batch, out, None if depth is None else depth // self.depth, first)


def _check_depth_pooling(ksize: Sequence[int], strides: Sequence[int], channels: int, average: bool) -> None:
    if average:
        raise UnimplementedError("Non-spatial pooling is not yet supported.")
    if any(size > 1 for i, size in enumerate(ksize) if i != channels):
        raise UnimplementedError("MaxPooling supports exactly one of pooling across depth or across width/height.")
    if ksize[channels] != strides[channels]:
        raise UnimplementedError("Depthwise max pooling requires the depth window to equal the depth stride")


def _pool_depth(x: Array, depth: int) -> Array:
    if x.shape[-1] % depth:
        raise UnimplementedError(f"Depthwise max pooling requires the depth window {depth} to divide {x.shape[-1]}")
    largest: Array = x.reshape(*x.shape[:-1], x.shape[-1] // depth, depth).max(-1)
    return largest


def pool_rank(op_name: str) -> int:
    """The number of spatial axes that an op pools over."""
    return 3 if "3D" in op_name else 2


def pool_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """One cell a window."""
    rank = pool_rank(c.op_def.name)
    pooling = Pooling(c.attrs, rank, average=c.op_def.name.startswith("Avg"))
    return [pooling.shape(c.input(0))] * c.num_outputs


def pool_v2_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """One cell a window, where ksize and strides are known."""
    c.with_rank(0, 4)
    ksize, strides = c.value(1), c.value(2)
    if ksize is None or strides is None:
        return [unknown_shape(4)]
    return [Pooling(with_values(c.attrs, ksize, strides), 2).shape(c.input(0))]


def with_values(attrs: Mapping[str, object], ksize: Any, strides: Any) -> dict[str, object]:
    """The attrs of a pooling, of an op that takes its windows as inputs."""
    return {**attrs, "ksize": np.atleast_1d(ksize).tolist(), "strides": np.atleast_1d(strides).tolist()}


def grad_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """The shape of the pooled input."""
    return [c.with_rank(0, pool_rank(c.op_def.name) + 2)]


def sizes_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """The shape that the first input spells."""
    return [c.value_as_shape(0).with_rank(pool_rank(c.op_def.name) + 2)]


@register_kernel("MaxPool", "MaxPool3D", kind=KernelKind.EXPENSIVE, dtypes={"T": REAL_NUMBER_DTYPES})
def make_max_pool(op: OpKernelConstruction) -> Kernel:
    """The kernel of MaxPool and MaxPool3D."""
    pooling = Pooling(op.attrs, pool_rank(op.op))
    function = max_pool_of_volumes if op.op == "MaxPool3D" else max_pool
    return lambda x: pooling.pool(x, function)


@register_kernel("MaxPoolV2", kind=KernelKind.EXPENSIVE, dtypes={"T": REAL_NUMBER_DTYPES})
def make_max_pool_v2(op: OpKernelConstruction) -> Kernel:
    """The kernel of MaxPoolV2."""
    attrs = op.attrs
    return lambda x, ksize, strides: Pooling(with_values(attrs, ksize, strides), 2).pool(x, max_pool)


@register_kernel("AvgPool", "AvgPool3D", kind=KernelKind.EXPENSIVE)
def make_average_pool(op: OpKernelConstruction) -> Kernel:
    """The kernel of AvgPool and AvgPool3D."""
    pooling = Pooling(op.attrs, pool_rank(op.op), average=True)
    native = NativeConvolution(is_depthwise=True)

    def average(x: Array, axes: Sequence[Axis]) -> Array:
        total = _native_sum(native, x, axes)
        if total is None:
            return average_pool(x, axes)
        total /= cell_counts(axes, x.dtype)
        return total

    kernel = rounded(lambda x: pooling.pool(widened(x), average), op)
    kernel.layer_rule = native.rule  # type: ignore[attr-defined]
    return kernel


def _native_sum(native: NativeConvolution, x: Array, axes: Sequence[Axis]) -> Array | None:
    """The sum of the cells of each window, by native code; None if there is none for it."""
    size = math.prod(axis.kernel for axis in axes)
    if native.rule.find_native is None or len(axes) != _PLANE or size > _MOST_CELLS:
        return None
    return native(x, _ones(axes[0].kernel, axes[1].kernel, x.shape[-1]), axes, NO_TAIL)


@lru_cache(maxsize=32)
def _ones(height: int, width: int, channels: int) -> Array:
    ones: Array = freeze(np.ones((height, width, channels, 1), np.float32))
    return ones


@register_kernel("MaxPoolWithArgmax", kind=KernelKind.EXPENSIVE)
def make_max_pool_with_argmax(op: OpKernelConstruction) -> Kernel:
    """The kernel of MaxPoolWithArgmax."""
    pooling = Pooling(op.attrs, 2)
    if pooling.depth > 1:
        raise UnimplementedError("MaxPoolWithArgmax does not pool across depth")
    index_dtype = op.np_dtype("Targmax")
    with_batch = op.attr("include_batch_in_index")

    def kernel(x: Array) -> tuple[Array, Array]:
        if x.ndim != 4:
            raise InvalidArgumentError(f"tensor_in must be 4-dimensional, not of shape {list(x.shape)}")
        axes = pooling.axes(x.shape[1:-1])
        largest, winner = first_maxima(x, axes)
        indices = flat_indices(winner, x.shape, axes)
        if with_batch:
            image = int(np.prod(x.shape[1:]))
            indices += (np.arange(x.shape[0]) * image).reshape(-1, 1, 1, 1)
        return largest, indices.astype(index_dtype, copy=False)

    return kernel


def checked_max_grad(pooling: Pooling, x: Array, y: Array, grad: Array) -> Array:
    """The gradient of max pooling, given input, output and the output's gradient in the node's layout."""
    rank = pooling.windows.rank
    if x.ndim != rank + 2:
        raise InvalidArgumentError(f"orig_input must be {rank + 2}-dimensional, not of shape {list(x.shape)}")
    if pooling.depth > 1:
        raise UnimplementedError("the gradient of pooling across depth is not supported")
    first = pooling.windows.channels_first
    x, y, grad = (channels_last(array) if first else array for array in (x, y, grad))
    axes = pooling.axes(x.shape[1:-1])
    expected = (x.shape[0], *(axis.out for axis in axes), x.shape[-1])
    for what, array in (("orig_output", y), ("grad", grad)):
        if array.shape != expected:
            raise InvalidArgumentError(f"Expected {what} shape to be {list(expected)}, but got {list(array.shape)}")
    grad = widened(grad)
    out = max_pool_grad(widened(x), grad, axes) if rank == 2 else max_pool_grad_all(x, y, grad, axes)
    return as_channels_first(out) if first else out


@register_kernel("MaxPoolGrad", "MaxPool3DGrad", kind=KernelKind.EXPENSIVE)
def make_max_pool_grad(op: OpKernelConstruction) -> Kernel:
    """The kernel of MaxPoolGrad and MaxPool3DGrad."""
    return rounded(partial(checked_max_grad, Pooling(op.attrs, pool_rank(op.op))), op)


@register_kernel("MaxPoolGradV2", kind=KernelKind.EXPENSIVE)
def make_max_pool_grad_v2(op: OpKernelConstruction) -> Kernel:
    """The kernel of MaxPoolGradV2."""
    attrs = op.attrs

    def kernel(x: Array, y: Array, grad: Array, ksize: object, strides: object) -> Array:
        return checked_max_grad(Pooling(with_values(attrs, ksize, strides), 2), x, y, grad)

    return rounded(kernel, op)


@register_kernel("AvgPoolGrad", "AvgPool3DGrad", kind=KernelKind.EXPENSIVE)
def make_average_pool_grad(op: OpKernelConstruction) -> Kernel:
    """The kernel of AvgPoolGrad and AvgPool3DGrad."""
    rank = pool_rank(op.op)
    pooling = Pooling(op.attrs, rank, average=True)
    first = pooling.windows.channels_first

    def kernel(sizes: object, grad: Array) -> Array:
        shape = sizes_vector(sizes, rank + 2, "orig_input_shape")
        if grad.ndim != rank + 2:
            raise InvalidArgumentError(f"out_backprop must be {rank + 2}-dimensional, not of shape {list(grad.shape)}")
        if first:
            shape, grad = (shape[0], *shape[2:], shape[1]), channels_last(grad)
        check_array(shape, grad.dtype)
        axes = pooling.axes(shape[1:-1])
        expected = (shape[0], *(axis.out for axis in axes), shape[-1])
        if grad.shape != expected:
            raise InvalidArgumentError(f"Expected grad shape to be {list(expected)}, but got {list(grad.shape)}")
        out = average_pool_grad(widened(grad), axes)
        return as_channels_first(out) if first else out

    return rounded(kernel, op)


_MAX_TYPES: Final = (
    "T: {float16, bfloat16, float32, float64, int32, int64, uint8, int16, int8, uint16, qint8} = float32; "
)
_FLOATS: Final = "; T: {float16, bfloat16, float32, float64}"
_MAX3D_TYPES: Final = "; T: {float16, bfloat16, float32}"
_SIZES_2D: Final = "ksize: list(int) >= 4; strides: list(int) >= 4; "
_SIZES_3D: Final = "ksize: list(int) >= 5; strides: list(int) >= 5; "
_SAME_VALID: Final = "padding: {'SAME', 'VALID'}; "
_EXPLICIT: Final = "padding: {'SAME', 'VALID', 'EXPLICIT'}; explicit_paddings: list(int) = []; "
_FORMAT_2D: Final = "data_format: {'NHWC', 'NCHW'} = 'NHWC'"
_FORMAT_3D: Final = "data_format: {'NDHWC', 'NCDHW'} = 'NDHWC'"
_VECT_C: Final = "data_format: {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'"
_REAL: Final = "; T: realnumbertype = float32"
_GRAD: Final = "orig_input: T, orig_output: T, grad: T"

register_op("MaxPool", "input: T -> output: T", _MAX_TYPES + _SIZES_2D + _EXPLICIT + _VECT_C, shape=pool_shape)
register_op(
    "MaxPoolV2",
    "input: T, ksize: int32, strides: int32 -> output: T",
    _MAX_TYPES + _SAME_VALID + _VECT_C,
    shape=pool_v2_shape,
)
register_op("AvgPool", "value: T -> output: T", _SIZES_2D + _SAME_VALID + _FORMAT_2D + _FLOATS, shape=pool_shape)
register_op("AvgPool3D", "input: T -> output: T", _SIZES_3D + _SAME_VALID + _FORMAT_3D + _FLOATS, shape=pool_shape)
register_op("MaxPool3D", "input: T -> output: T", _SIZES_3D + _SAME_VALID + _FORMAT_3D + _MAX3D_TYPES, shape=pool_shape)
register_op(
    "MaxPoolWithArgmax",
    "input: T -> output: T, argmax: Targmax",
    _SIZES_2D
    + "Targmax: {int32, int64} = int64; padding: {'SAME', 'VALID'}; include_batch_in_index: bool = False; "
    + "T: realnumbertype",
    shape=pool_shape,
)
register_op("MaxPoolGrad", f"{_GRAD} -> output: T", _SIZES_2D + _EXPLICIT + _FORMAT_2D + _REAL, shape=grad_shape)
register_op(
    "MaxPoolGradV2",
    f"{_GRAD}, ksize: int32, strides: int32 -> output: T",
    _SAME_VALID + _FORMAT_2D + _REAL,
    shape=grad_shape,
)
register_op(
    "MaxPool3DGrad",
    "orig_input: TInput, orig_output: TInput, grad: T -> output: T",
    _SIZES_3D
    + _SAME_VALID
    + _FORMAT_3D
    + "; T: {float16, bfloat16, float32} = float32; TInput: {float16, bfloat16, float32} = float32",
    shape=grad_shape,
)
register_op(
    "AvgPoolGrad",
    "orig_input_shape: int32, grad: T -> output: T",
    _SIZES_2D + _SAME_VALID + _FORMAT_2D + _FLOATS,
    shape=sizes_shape,
)
register_op(
    "AvgPool3DGrad",
    "orig_input_shape: int32, grad: T -> output: T",
    _SIZES_3D + _SAME_VALID + _FORMAT_3D + _FLOATS,
    shape=sizes_shape,
)
