"""Batch normalization over all axes but the channels, and its gradients (``fused_batch_norm_op.cc``); LRN.

In training, mean and variance are those of the batch; the running variance is corrected for the sample's size, the
saved one is not.  In inference the given statistics are passed on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar, NumpyDType
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, Dim, TensorShape
from asyncexec.framework.types import float32
from asyncexec.ops.array.windows import as_channels_first, channels_last, is_channels_first, pieces, widened
from asyncexec.ops.nn.bias import by_lines
from asyncexec.process.shards import share

_PIECE_BYTES: Final = 2**18  # of what two steps go over one after the other


def _channels(c: InferenceContext, x: TensorShape, vectors: range) -> tuple[TensorShape, Dim]:
    where = 1 if is_channels_first(c.attrs) else -1
    if x.dims is None:
        return x, None
    channel = TensorShape([x[where]])
    for index in vectors:
        vector = c.vector(index)
        if vector[0] != 0 or x[where] == 0:
            channel = channel.merge_with(vector)
    dims = x.as_list()
    dims[where] = channel[0]
    return TensorShape(dims), channel[0]


def image_rank(attrs: Mapping[str, Any]) -> int:
    """4, or 5 of a ``data_format`` of volumes."""
    return len(attrs["data_format"])


def batch_norm_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """The output like the input; one number a channel for each statistic; what the third reserve holds is not told."""
    x = c.with_rank(0, image_rank(c.attrs))
    statistics = range(1, 5) if not c.attr("is_training") else range(1, 3)
    shape, channels = _channels(c, x, statistics)
    vector = TensorShape([channels])
    return [shape, vector, vector, vector, vector, UNKNOWN_SHAPE][: c.num_outputs]


def batch_norm_grad_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """The gradient like the input; one number a channel for scale and offset; two empty reserves."""
    x = c.with_rank(0, image_rank(c.attrs)).merge_with(c.input(1))
    shape, channels = _channels(c, x, range(2, 5))
    vector = TensorShape([channels])
    return [shape, vector, vector, TensorShape([0]), TensorShape([0])]


def check_vectors(channels: int, **vectors: Array) -> None:
    """InvalidArgumentError unless each has one number a channel."""
    for name, vector in vectors.items():
        if vector.shape != (channels,):
            raise InvalidArgumentError(
                f"{name} must be 1-dimensional, with as many elements as the channels of x: "
                f"{list(vector.shape)} for {channels} channels"
            )


def normalized(x: Array, scale: Array, offset: Array, mean: Array, variance: Array, epsilon: float) -> Array:
    """*x*, channels-last, shifted and scaled by channel."""
    factor = scale / np.sqrt(variance + np.float32(epsilon))
    shift = offset - mean * factor
    if not x.flags.c_contiguous:
        y: Array = x * factor
        y += shift
        return y
    lines, factors, shifts = by_lines(x.reshape(-1, x.shape[-1]), factor, shift)
    out = np.empty(lines.shape, np.result_type(x, factor))

    def normalize(rows: slice) -> None:
        part = np.multiply(lines[rows], factors, out=out[rows])
        part += shifts

    share(normalize, list(pieces(out, _PIECE_BYTES)), out.nbytes)
    return out.reshape(x.shape)


def normalized_by_own(x: Array, scale: Array, offset: Array, epsilon: float) -> tuple[Array, Array, Array]:
    """*x*, channels-last, shifted and scaled by its own mean and variance in each channel; and these two."""
    channels, count = x.shape[-1], np.float32(x.size // x.shape[-1])
    lines = by_lines(x.reshape(-1, channels))[0]
    repeats = lines.shape[-1] // channels
    mean = lines.sum(0).reshape(repeats, channels).sum(0) / count
    out = lines - np.tile(mean, repeats)
    variance = np.einsum("ij,ij->j", out, out).reshape(repeats, channels).sum(0) / count
    out *= np.tile(scale / np.sqrt(variance + np.float32(epsilon)), repeats)
    out += np.tile(offset, repeats)
    return out.reshape(x.shape), mean, variance


class BatchNorm:
    """The kernel of FusedBatchNorm in its versions."""

    __slots__ = ("channels_first", "dtype", "epsilon", "factor", "is_training", "num_outputs", "rank", "vector_dtype")

    def __init__(self, op: OpKernelConstruction) -> None:
        self.epsilon: float = op.attr("epsilon")
        self.factor: np.float32 = np.float32(op.attr("exponential_avg_factor"))
        self.is_training: bool = op.attr("is_training")
        self.channels_first: bool = is_channels_first(op.attrs)
        self.dtype: NumpyDType = op.output_dtypes[0].as_numpy_dtype
        self.vector_dtype: NumpyDType = op.output_dtypes[1].as_numpy_dtype
        self.num_outputs: int = op.num_outputs
        self.rank = image_rank(op.attrs)

    def __call__(self, x: Array, scale: Array, offset: Array, mean: Array, variance: Array) -> tuple[object, ...]:
        if x.ndim != self.rank:
            raise InvalidArgumentError(f"input must be {self.rank}-dimensional, not of shape {list(x.shape)}")
        for name, vector in (("mean", mean), ("variance", variance)):
            if vector.ndim != 1:
                raise InvalidArgumentError(f"{name} must be 1-dimensional, not of shape {list(vector.shape)}")
        x = widened(channels_last(x) if self.channels_first else x)
        scale, offset, mean, variance = map(widened, (scale, offset, mean, variance))
        check_vectors(x.shape[-1], scale=scale, offset=offset)
        if not self.is_training or self.factor != 1:
            check_vectors(x.shape[-1], mean=mean, variance=variance)
        if not x.size:
            return self._empty(x)
        if not self.is_training:
            y = normalized(x, scale, offset, mean, variance, self.epsilon)
            return self._results(y, mean, variance, mean, variance)
        return self._train(x, scale, offset, mean, variance)

    def _train(
        self, x: Array, scale: Array, offset: Array, old_mean: Array, old_variance: Array
    ) -> tuple[ArrayOrScalar, ...]:
        y, mean, variance = normalized_by_own(x, scale, offset, self.epsilon)
        count = x.size // x.shape[-1]
        running_mean, running_variance = mean, variance * np.float32(count / max(1, count - 1))
        if self.factor != 1:
            keep = np.float32(1) - self.factor
            running_mean = keep * old_mean + self.factor * running_mean
            running_variance = keep * old_variance + self.factor * running_variance
        return self._results(y, running_mean, running_variance, mean, variance)

    def _empty(self, x: Array) -> tuple[ArrayOrScalar, ...]:
        nans = np.full(x.shape[-1], np.nan, np.float32)
        zeros = np.zeros(x.shape[-1], np.float32)
        return self._results(x, nans, nans, zeros, zeros)

    def _results(self, y: Array, *vectors: Array) -> tuple[ArrayOrScalar, ...]:
        y = as_channels_first(y) if self.channels_first else y
        dtype = self.vector_dtype
        values = (y.astype(self.dtype, copy=False), *(vector.astype(dtype, copy=False) for vector in vectors))
        return values if self.num_outputs == 5 else (*values, dtype.type(0))


@register_kernel("FusedBatchNorm", "FusedBatchNormV2")
@register_kernel("FusedBatchNormV3", dtypes={"U": [float32]})
def make_batch_norm(op: OpKernelConstruction) -> Kernel:
    """The kernel of FusedBatchNorm in its versions."""
    return BatchNorm(op)


@register_kernel("FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3")
def make_batch_norm_grad(op: OpKernelConstruction) -> Kernel:
    """The kernel of FusedBatchNormGrad in its versions."""
    epsilon = np.float32(op.attr("epsilon"))
    is_training, first = op.attr("is_training"), is_channels_first(op.attrs)
    rank = image_rank(op.attrs)
    dtype, vector_dtype = op.np_dtype("T"), op.output_dtypes[1].as_numpy_dtype

    def kernel(dy: Array, x: Array, scale: Array, mean: Array, variance: Array, _: object = None) -> tuple[Array, ...]:
        if dy.shape != x.shape or x.ndim != rank:
            raise InvalidArgumentError(
                f"x and y_backprop must have the same shape of rank {rank}: {list(x.shape)} vs. {list(dy.shape)}"
            )
        dy, x = (widened(channels_last(array) if first else array) for array in (dy, x))
        check_vectors(x.shape[-1], scale=scale, reserve_space_1=mean, reserve_space_2=variance)
        dx, dscale, doffset = batch_norm_grad(dy, x, scale, mean, variance + epsilon, is_training)
        dx = as_channels_first(dx) if first else dx
        nothing = np.zeros(0, vector_dtype)
        return (
            dx.astype(dtype, copy=False),
            dscale.astype(vector_dtype, copy=False),
            doffset.astype(vector_dtype, copy=False),
            nothing,
            nothing,
        )

    return kernel


def batch_norm_grad(
    dy: Array, x: Array, scale: Array, mean: Array, variance: Array, is_training: bool
) -> tuple[Array, Array, Array]:
    """The gradients of input, scale and offset; *variance* has the epsilon in it."""
    axes = tuple(range(x.ndim - 1))
    centred = x - mean
    deviation = np.sqrt(variance)
    doffset = dy.sum(axes)
    covered = (dy * centred).sum(axes)
    dx = dy
    if is_training:
        count = np.float32(max(1, x.size // max(1, x.shape[-1])))
        dx = dy - doffset / count - centred * (covered / count / variance)
    return dx * (scale / deviation), covered / deviation, doffset


@register_kernel("BatchNormWithGlobalNormalization")
def make_global_batch_norm(op: OpKernelConstruction) -> Kernel:
    """The kernel of BatchNormWithGlobalNormalization."""
    epsilon = op.attr("variance_epsilon")
    scaled = op.attr("scale_after_normalization")
    dtype = op.np_dtype("T")

    def kernel(t: Array, mean: Array, variance: Array, beta: Array, gamma: Array) -> Array:
        if t.ndim != 4:
            raise InvalidArgumentError(f"input must be 4-dimensional, not of shape {list(t.shape)}")
        check_vectors(t.shape[-1], mean=mean, variance=variance, beta=beta, gamma=gamma)
        factor = 1 / np.sqrt(variance + dtype.type(epsilon))
        if scaled:
            factor = factor * gamma
        y: Array = (t - mean) * factor + beta
        return y.astype(dtype, copy=False)

    return kernel


def global_batch_norm_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """The shape of the input, whose channels the vectors may tell."""
    x = c.with_rank(0, 4)
    channel = TensorShape([x[-1]])
    for index in range(1, 5):
        channel = channel.merge_with(c.vector(index))
    return [TensorShape([*x.as_list()[:-1], channel[0]])]


@register_kernel("LRN")
def make_lrn(op: OpKernelConstruction) -> Kernel:
    """The kernel of LRN: each cell divided by a power of the squares of the channels near it."""
    radius, dtype = op.attr("depth_radius"), op.np_dtype("T")
    bias, alpha, beta = (np.float32(op.attr(name)) for name in ("bias", "alpha", "beta"))
    if radius < 0:
        raise InvalidArgumentError(f"depth_radius = {radius} must not be negative")

    def kernel(x: Array) -> Array:
        if x.ndim != 4:
            raise InvalidArgumentError(f"in must be 4-dimensional, not of shape {list(x.shape)}")
        wide = widened(x)
        norm = bias + alpha * near_squares(wide, radius)
        y: Array = wide * norm**-beta
        return y.astype(dtype, copy=False)

    return kernel


def near_squares(x: Array, radius: int) -> Array:
    """The sum of the squares of the channels up to *radius* away."""
    return near_sums(x * x, radius)


def near_sums(x: Array, radius: int) -> Array:
    """The sum of the channels up to *radius* away."""
    total = x.copy()
    for distance in range(1, min(radius, x.shape[-1] - 1) + 1):
        total[..., distance:] += x[..., :-distance]
        total[..., :-distance] += x[..., distance:]
    return total


_INPUTS = "x: T, scale: {0}, offset: {0}, mean: {0}, variance: {0}"
_OUTPUTS = "y: T, batch_mean: {0}, batch_variance: {0}, reserve_space_1: {0}, reserve_space_2: {0}"
_GRAD_OUTPUTS = (
    "x_backprop: T, scale_backprop: {0}, offset_backprop: {0}, reserve_space_{1}: {0}, reserve_space_{2}: {0}"
)
_EPSILON = "; epsilon: float = 0.0001; "
_AVERAGE = "exponential_avg_factor: float = 1.0; "
_FORMAT = "data_format: {'NHWC', 'NCHW'} = 'NHWC'; is_training: bool = True"
_FORMAT_V3 = "data_format: {'NHWC', 'NCHW', 'NDHWC', 'NCDHW'} = 'NHWC'; is_training: bool = True"
_V2_TYPES = "T: {float16, bfloat16, float32}; U: {float32}"
_RESERVES = "reserve_space_1: {0}, reserve_space_2: {0}"

register_op(
    "FusedBatchNorm",
    _INPUTS.format("T") + " -> " + _OUTPUTS.format("T"),
    "T: {float32}" + _EPSILON + _AVERAGE + _FORMAT,
    shape=batch_norm_shape,
)
register_op(
    "FusedBatchNormV2",
    _INPUTS.format("U") + " -> " + _OUTPUTS.format("U"),
    _V2_TYPES + _EPSILON + _AVERAGE + _FORMAT,
    shape=batch_norm_shape,
)
register_op(
    "FusedBatchNormV3",
    _INPUTS.format("U") + " -> " + _OUTPUTS.format("U") + ", reserve_space_3: U",
    "T: {float16, bfloat16, float32}; U: {bfloat16, float32}" + _EPSILON + _AVERAGE + _FORMAT_V3,
    shape=batch_norm_shape,
)
register_op(
    "FusedBatchNormGrad",
    "y_backprop: T, x: T, scale: T, " + _RESERVES.format("T") + " -> " + _GRAD_OUTPUTS.format("T", 3, 4),
    "T: {float32}" + _EPSILON + _FORMAT,
    shape=batch_norm_grad_shape,
)
register_op(
    "FusedBatchNormGradV2",
    "y_backprop: T, x: T, scale: float32, " + _RESERVES.format("U") + " -> " + _GRAD_OUTPUTS.format("U", 3, 4),
    _V2_TYPES + _EPSILON + _FORMAT,
    shape=batch_norm_grad_shape,
)
register_op(
    "FusedBatchNormGradV3",
    "y_backprop: T, x: T, scale: float32, "
    + _RESERVES.format("U")
    + ", reserve_space_3: U -> "
    + _GRAD_OUTPUTS.format("U", 4, 5),
    _V2_TYPES + _EPSILON + _FORMAT_V3,
    shape=batch_norm_grad_shape,
)
register_op(
    "BatchNormWithGlobalNormalization",
    "t: T, m: T, v: T, beta: T, gamma: T -> result: T",
    "T: numbertype; variance_epsilon: float; scale_after_normalization: bool",
    shape=global_batch_norm_shape,
)
register_op(
    "LRN",
    "input: T -> output: T",
    "depth_radius: int = 5; bias: float = 1.0; alpha: float = 1.0; beta: float = 0.5; "
    "T: {float16, bfloat16, float32} = float32",
    shape=lambda c: [c.with_rank(0, 4)],
)
