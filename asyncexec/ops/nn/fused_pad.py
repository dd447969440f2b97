"""FusedPadConv2D and FusedResizeAndPadConv2D: mirrored at the edges, then convolved.

Rules from ``tensorflow/core/kernels/conv_ops_fused_image_transform.cc``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import Dim, TensorShape
from asyncexec.ops.array.pad import mirror_padded
from asyncexec.ops.array.windows import make_windows, widened
from asyncexec.ops.image.image_resize import resized_linearly
from asyncexec.ops.nn.convolution import check_depths, convolution_kernel, rounded


def _check_paddings(paddings: Array) -> None:
    if paddings.shape != (4, 2):
        raise InvalidArgumentError(f"paddings must be a matrix of 4 by 2, not of shape {list(paddings.shape)}")
    if paddings[0].any() or paddings[3].any():
        raise InvalidArgumentError("paddings of the batch and the channels must be zero")


@register_kernel("FusedPadConv2D", "FusedResizeAndPadConv2D", kind=KernelKind.EXPENSIVE)
def make_padded_convolution(op: OpKernelConstruction) -> Kernel:
    """The kernel of FusedPadConv2D and FusedResizeAndPadConv2D."""
    convolve, mode = convolution_kernel(op, 2), op.attr("mode")
    align = bool(op.attrs.get("resize_align_corners"))

    def kernel(x: Array, *inputs: Array) -> Array:
        *size, paddings, filters = inputs
        if x.ndim != 4:
            raise InvalidArgumentError(f"input must be 4-dimensional, not of shape {list(x.shape)}")
        _check_paddings(paddings)
        if size:
            x = resized_linearly(x, size[0], align, False).astype(widened(x).dtype, copy=False)
        return convolve(mirror_padded(x, paddings, mode), filters)

    return rounded(kernel, op)


def padded_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """One cell a window of the padded image, one channel a filter."""
    batch, *sides, depth = c.with_rank(0, 4).as_list()
    last = c.num_inputs - 1
    paddings = c.value(last - 1)
    if c.num_inputs == 4:
        size = c.value(1)
        sides = [None, None] if size is None else [int(side) for side in size]
    c.with_rank(last - 1, 2)
    padded: list[Dim] = [None, None]
    if paddings is not None and paddings.shape == (4, 2):
        padded = [None if side is None else side + int(paddings[1 + i].sum()) for i, side in enumerate(sides)]
    *kernel, filter_depth, out_depth = c.with_rank(last, 4).as_list()
    check_depths(depth, filter_depth, out_depth)
    windows = make_windows(c.attrs, 2)
    out = [windows.output_dim(i, side, kernel[i]) for i, side in enumerate(padded)]
    return [TensorShape([batch, *out, out_depth])]


_ATTRS: Final = "mode: {'REFLECT', 'SYMMETRIC'}; strides: list(int); padding: {'SAME', 'VALID'}"
register_op(
    "FusedPadConv2D",
    "input: T, paddings: int32, filter: T -> output: T",
    "T: {float16, bfloat16, float32, float64}; " + _ATTRS,
    shape=padded_shape,
)
register_op(
    "FusedResizeAndPadConv2D",
    "input: T, size: int32, paddings: int32, filter: T -> output: T",
    "T: {float16, float32, float64}; resize_align_corners: bool = False; " + _ATTRS,
    shape=padded_shape,
)
