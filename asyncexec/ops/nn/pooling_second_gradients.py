"""Second gradients of max pooling, and the gradient by the places that MaxPoolWithArgmax told.

Rules from ``tensorflow/core/kernels/maxpooling_op.cc``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError, UnimplementedError
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import TensorShape, unknown_shape
from asyncexec.ops.array.windows import Axis, as_channels_first, channels_last
from asyncexec.ops.nn.depthwise import taps
from asyncexec.ops.nn.pooling import Pooling, grad_shape, pool_rank, pool_shape, with_values


def _at_maxima(x: Array, y: Array, grad: Array, axes: Sequence[Axis]) -> Array:
    """*grad* where each window of *x* first has its maximum, which is in *y*."""
    out = np.zeros_like(y)
    found = np.zeros(y.shape, np.bool_)
    for _, to, cells in taps(axes):
        where, seen = (slice(None), *to), (slice(None), *cells)
        fresh = (x[seen] == y[where]) & ~found[where]
        np.copyto(out[where], grad[seen], where=fresh)
        found[where] |= fresh
    return out


def second_gradient(pooling: Pooling, x: Array, y: Array, grad: Array) -> Array:
    """The gradient, to the output's gradient, of the gradient of max pooling."""
    rank = pooling.windows.rank
    if x.ndim != rank + 2:
        raise InvalidArgumentError(f"orig_input must be {rank + 2}-dimensional, not of shape {list(x.shape)}")
    if pooling.depth > 1:
        raise UnimplementedError("the gradient of pooling across depth is not supported")
    first = pooling.windows.channels_first
    x, y, grad = (channels_last(array) if first else array for array in (x, y, grad))
    axes = pooling.axes(x.shape[1:-1])
    expected = (x.shape[0], *(axis.out for axis in axes), x.shape[-1])
    for what, array, shape in (("orig_output", y, expected), ("grad", grad, x.shape)):
        if array.shape != shape:
            raise InvalidArgumentError(f"Expected {what} shape to be {list(shape)}, but got {list(array.shape)}")
    out = _at_maxima(x, y, grad, axes)
    return as_channels_first(out) if first else out


@register_kernel("MaxPoolGradGrad", "MaxPool3DGradGrad", kind=KernelKind.EXPENSIVE)
def make_second_gradient(op: OpKernelConstruction) -> Kernel:
    """The kernel of MaxPoolGradGrad and MaxPool3DGradGrad."""
    pooling = Pooling(op.attrs, pool_rank(op.op))
    return lambda x, y, grad: second_gradient(pooling, x, y, grad)


@register_kernel("MaxPoolGradGradV2", kind=KernelKind.EXPENSIVE)
def make_second_gradient_v2(op: OpKernelConstruction) -> Kernel:
    """The kernel of MaxPoolGradGradV2."""
    attrs = op.attrs

    def kernel(x: Array, y: Array, grad: Array, ksize: object, strides: object) -> Array:
        return second_gradient(Pooling(with_values(attrs, ksize, strides), 2), x, y, grad)

    return kernel


@register_kernel("MaxPoolGradWithArgmax", kind=KernelKind.EXPENSIVE)
def make_gradient_with_argmax(op: OpKernelConstruction) -> Kernel:
    """The kernel of MaxPoolGradWithArgmax."""
    pooling, has_batch = Pooling(op.attrs, 2), op.attr("include_batch_in_index")

    def kernel(x: Array, grad: Array, argmax: Array) -> Array:
        if x.ndim != 4:
            raise InvalidArgumentError(f"tensor_in must be 4-dimensional, not of shape {list(x.shape)}")
        expected = (x.shape[0], *(axis.out for axis in pooling.axes(x.shape[1:-1])), x.shape[-1])
        if grad.shape != expected or argmax.shape != expected:
            raise InvalidArgumentError(
                f"Expected grad and argmax of shape {list(expected)}, but got {list(grad.shape)}, {list(argmax.shape)}"
            )
        image = x.size // max(1, len(x))
        places, limit = argmax.astype(np.int64), x.size if has_batch else image
        if ((places < 0) | (places >= limit)).any():
            raise InvalidArgumentError(f"argmax has places that are not in their image of {image} cells")
        if not has_batch:
            places = places + (np.arange(len(x)) * image).reshape(-1, 1, 1, 1)
        total = np.zeros(x.size, x.dtype)
        np.add.at(total, places.ravel(), grad.ravel())
        return total.reshape(x.shape)

    return kernel


def second_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """That of what is pooled to."""
    return [pool_shape(c)[0].merge_with(c.input(1))]


def second_v2_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """That of the output of the pooling."""
    return [c.input(1).merge_with(unknown_shape(4))]


_2D: Final = "ksize: list(int) >= 4; strides: list(int) >= 4; padding: {'SAME', 'VALID'}"
_3D: Final = "ksize: list(int) >= 5; strides: list(int) >= 5; padding: {'SAME', 'VALID'}"
_GRAD: Final = "orig_input: T, orig_output: T, grad: T"
_LAYOUT: Final = "data_format: {'NHWC', 'NCHW'} = 'NHWC'; T: realnumbertype"
register_op("MaxPoolGradGrad", f"{_GRAD} -> output: T", f"{_2D}; {_LAYOUT}", shape=second_shape)
register_op(
    "MaxPoolGradGradV2",
    f"{_GRAD}, ksize: int32, strides: int32 -> output: T",
    f"padding: {{'SAME', 'VALID'}}; {_LAYOUT}",
    shape=second_v2_shape,
)
register_op(
    "MaxPool3DGradGrad",
    f"{_GRAD} -> output: T",
    f"{_3D}; data_format: {{'NDHWC', 'NCDHW'}} = 'NDHWC'; T: realnumbertype",
    shape=second_shape,
)
register_op(
    "MaxPoolGradWithArgmax",
    "input: T, grad: T, argmax: Targmax -> output: T",
    f"{_2D}; include_batch_in_index: bool = False; Targmax: {{int32, int64}}; T: realnumbertype",
    shape=grad_shape,
)
