"""Conv2D and Conv3D (``tensorflow/core/ops/nn_ops.cc``).

TensorFlow's CPU kernels take channels-last tensors only; graphs made for other devices are channels-first, so both
layouts run here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import Dim, TensorShape
from asyncexec.ops.array.windows import (
    Axis,
    Windows,
    as_channels_first,
    channels_last,
    join_shape,
    make_windows,
    split_shape,
    widened,
)
from asyncexec.ops.nn.convolution_matmul import convolve
from asyncexec.ops.nn.native_convolution import NO_TAIL, NativeConvolution, Tail

CONV2D_ATTRS: Final = (
    "strides: list(int); use_cudnn_on_gpu: bool = True; padding: {'SAME', 'VALID', 'EXPLICIT'}; "
    "explicit_paddings: list(int) = []; data_format: {'NHWC', 'NCHW'} = 'NHWC'; "
    "dilations: list(int) = [1, 1, 1, 1]"
)
CONV3D_ATTRS: Final = (
    "strides: list(int) >= 5; padding: {'SAME', 'VALID'}; data_format: {'NDHWC', 'NCDHW'} = 'NDHWC'; "
    "dilations: list(int) = [1, 1, 1, 1, 1]"
)


def conv_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """The output of a convolution: one cell a window, one channel a filter."""
    rank = 3 if "3D" in c.op_def.name else 2
    windows = make_windows(c.attrs, rank)
    batch, sizes, depth = split_shape(c.input(0), windows.channels_first, rank)
    *kernel, filter_depth, out_depth = c.with_rank(1, rank + 2).as_list()
    check_depths(depth, filter_depth, out_depth)
    out = [windows.output_dim(i, size, kernel[i]) for i, size in enumerate(sizes)]
    return [join_shape(batch, out, out_depth, windows.channels_first)]


def check_depths(depth: Dim, filter_depth: Dim, out_depth: Dim) -> None:
    """InvalidArgumentError unless the channels divide into groups as the filter says."""
    if depth is None or filter_depth is None:
        return
    if depth % filter_depth if filter_depth else depth:
        raise InvalidArgumentError(
            f"Depth of input ({depth}) is not a multiple of input depth of filter ({filter_depth})"
        )
    groups = depth // filter_depth if filter_depth else 1
    if out_depth is not None and groups and out_depth % groups:
        raise InvalidArgumentError(
            f"Depth of output ({out_depth}) is not a multiple of the number of groups ({groups})"
        )


def checked_input(x: Array, filters: Array, rank: int) -> None:
    """InvalidArgumentError unless input and filter are what a convolution over *rank* axes takes."""
    for what, array in (("input", x), ("filter", filters)):
        if array.ndim != rank + 2:
            raise InvalidArgumentError(f"{what} must be {rank + 2}-dimensional, not of shape {list(array.shape)}")
    if 0 in filters.shape[:-1] and x.size:
        raise InvalidArgumentError(f"filter must not have zero elements: its shape is {list(filters.shape)}")


Compute = Callable[[Array, Array, Sequence[Axis]], Array]


class ConvolutionKernel:
    """Gives the convolution of an input with filters, in the type it is computed in.

    Args:
        windows: of the node.
        compute: gives it for arrays, channels last; check: raises if these do not fit.
        native: does the same by native code, where there is some.
    """

    def __init__(
        self, windows: Windows, check: Callable[[Array, Array], object], compute: Compute, native: NativeConvolution
    ) -> None:
        self._windows = windows
        self._check = check
        self._compute = compute
        self.native: NativeConvolution = native
        self._last: tuple[object, tuple[Axis, ...]] = (None, ())  # shapes, and the windows over them

    def __call__(self, x: Array, filters: Array) -> Array:
        """The convolution alone."""
        checked_input(x, filters, self._windows.rank)
        x, filters = widened(x), widened(filters)
        if self._windows.channels_first:
            x = channels_last(x)
        axes = self._axes(x, filters)
        out = self.native(x, filters, axes, NO_TAIL)
        if out is None:
            out = self._compute(x, filters, axes)
        return as_channels_first(out) if self._windows.channels_first else out

    def with_tail(self, x: Array, filters: Array, tail: Tail) -> Array | None:
        """The convolution and what follows, by native code; None if there is none for it."""
        if self.native.rule.find_native is None or self._windows.channels_first:
            return None
        checked_input(x, filters, self._windows.rank)
        return self.native(x, filters, self._axes(x, filters), tail)

    def _axes(self, x: Array, filters: Array) -> tuple[Axis, ...]:
        """The windows over *x*, channels last, if the *filters* fit."""
        shapes = x.shape, filters.shape
        known, axes = self._last
        if known != shapes:
            self._check(x, filters)
            axes = self._windows.axes(x.shape[1:-1], filters.shape[: self._windows.rank])
            self._last = shapes, axes
        return axes


def convolution_kernel(op: OpKernelConstruction, rank: int, compute: Compute = convolve) -> ConvolutionKernel:
    """What convolves for the node of *op*, over *rank* axes."""
    return ConvolutionKernel(make_windows(op.attrs, rank), _check_filters, compute, NativeConvolution())


def _check_filters(x: Array, filters: Array) -> None:
    check_depths(x.shape[-1], filters.shape[-2], filters.shape[-1])


def rounded(function: Callable[..., Array], op: OpKernelConstruction) -> Kernel:
    """*function*, its result rounded to the type of the node's output where it computes in a wider one."""
    dtype = op.output_dtypes[0]
    if dtype.name not in ("float16", "bfloat16"):
        return function
    np_dtype = dtype.as_numpy_dtype

    def kernel(*inputs: object) -> Array:
        return function(*inputs).astype(np_dtype)

    return kernel


def with_rule(kernel: Kernel, convolution: ConvolutionKernel) -> Kernel:
    """*kernel*, which calls *convolution*, for who makes native code."""
    kernel.layer_rule = convolution.native.rule  # type: ignore[attr-defined]
    return kernel


register_op(
    "Conv2D",
    "input: T, filter: T -> output: T",
    "T: {float16, bfloat16, float32, float64, int32}; " + CONV2D_ATTRS,
    shape=conv_shape,
)
register_op(
    "Conv3D",
    "input: T, filter: T -> output: T",
    "T: {float16, bfloat16, float32, float64}; " + CONV3D_ATTRS,
    shape=conv_shape,
)


@register_kernel("Conv2D", kind=KernelKind.EXPENSIVE)
def make_conv2d(op: OpKernelConstruction) -> Kernel:
    """The kernel of Conv2D."""
    convolution = convolution_kernel(op, 2)
    return with_rule(rounded(convolution, op), convolution)


@register_kernel("Conv3D", kind=KernelKind.EXPENSIVE)
def make_conv3d(op: OpKernelConstruction) -> Kernel:
    """The kernel of Conv3D."""
    return rounded(convolution_kernel(op, 3), op)
