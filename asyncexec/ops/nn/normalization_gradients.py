"""LRNGrad and BatchNormWithGlobalNormalizationGrad (``lrn_op.cc``, ``batch_norm_op.cc``)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.ops.array.windows import widened
from asyncexec.ops.nn.normalization import check_vectors, near_squares, near_sums


@register_kernel("LRNGrad")
def make_lrn_grad(op: OpKernelConstruction) -> Kernel:
    """The kernel of LRNGrad."""
    radius, dtype = op.attr("depth_radius"), op.np_dtype("T")
    bias, alpha, beta = (np.float32(op.attr(name)) for name in ("bias", "alpha", "beta"))
    if radius < 0:
        raise InvalidArgumentError(f"depth_radius = {radius} must not be negative")

    def kernel(dy: Array, x: Array, y: Array) -> Array:
        if dy.ndim != 4 or x.shape != dy.shape or y.shape != dy.shape:
            raise InvalidArgumentError(
                f"input_grads, input_image and output_image must be 4-dimensional and alike, not "
                f"{list(dy.shape)}, {list(x.shape)}, {list(y.shape)}"
            )
        dy, x, y = widened(dy), widened(x), widened(y)
        norm = bias + alpha * near_squares(x, radius)
        dx: Array = dy * norm**-beta - 2 * alpha * beta * x * near_sums(dy * y / norm, radius)
        return dx.astype(dtype, copy=False)

    return kernel


@register_kernel("BatchNormWithGlobalNormalizationGrad")
def make_global_batch_norm_grad(op: OpKernelConstruction) -> Kernel:
    """The kernel of BatchNormWithGlobalNormalizationGrad."""
    epsilon, scaled, dtype = op.attr("variance_epsilon"), op.attr("scale_after_normalization"), op.np_dtype("T")

    def kernel(t: Array, mean: Array, variance: Array, gamma: Array, dy: Array) -> tuple[Array, ...]:
        if t.ndim != 4 or dy.shape != t.shape:
            raise InvalidArgumentError(
                f"input and backprop must be 4-dimensional and alike, not {list(t.shape)}, {list(dy.shape)}"
            )
        check_vectors(t.shape[-1], mean=mean, variance=variance, gamma=gamma)
        t, mean, variance, gamma, dy = map(widened, (t, mean, variance, gamma, dy))
        inverse = 1 / np.sqrt(variance + t.dtype.type(epsilon))
        factor = inverse * gamma if scaled else inverse
        offset = dy.sum((0, 1, 2))
        covered = (dy * (t - mean)).sum((0, 1, 2))
        slope = covered * (gamma if scaled else 1)
        found = (
            dy * factor,
            -offset * factor,
            slope * t.dtype.type(-0.5) * inverse**3,
            offset,
            covered * inverse if scaled else np.zeros_like(offset),
        )
        return tuple(value.astype(dtype, copy=False) for value in found)

    return kernel


def lrn_grad_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """That of all inputs."""
    return [c.with_rank(0, 4).merge_with(c.input(1)).merge_with(c.input(2))]


def global_grad_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """That of the input, and four vectors of its channels."""
    t = c.with_rank(0, 4).merge_with(c.input(4))
    channel = TensorShape([t[-1]])
    for index in (1, 2, 3):
        channel = channel.merge_with(c.vector(index))
    return [TensorShape([*t.as_list()[:-1], channel[0]]), *[channel] * 4]


register_op(
    "LRNGrad",
    "input_grads: T, input_image: T, output_image: T -> output: T",
    "depth_radius: int = 5; bias: float = 1.0; alpha: float = 1.0; beta: float = 0.5; "
    "T: {float16, bfloat16, float32} = float32",
    shape=lrn_grad_shape,
)
register_op(
    "BatchNormWithGlobalNormalizationGrad",
    "t: T, m: T, v: T, gamma: T, backprop: T -> dx: T, dm: T, dv: T, db: T, dg: T",
    "T: numbertype; variance_epsilon: float; scale_after_normalization: bool",
    shape=global_grad_shape,
)
