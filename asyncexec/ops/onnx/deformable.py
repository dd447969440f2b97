"""DeformConv: a convolution whose window cells are each moved by an offset of their own."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.kernel import Kernel, KernelKind
from asyncexec.ops.array.windows import Axis
from asyncexec.ops.onnx.arrays import empty, need, need_shape, wide
from asyncexec.ops.onnx.channels_first import check_filters
from asyncexec.ops.onnx.interpolation import linear_taps, sample
from asyncexec.ops.onnx.onnx_kernels import OnnxNode, onnx_kernel
from asyncexec.ops.onnx.onnx_windows import make_onnx_windows


@onnx_kernel("DeformConv", since=19, kind=KernelKind.EXPENSIVE)
def make_deform_conv(node: OnnxNode) -> Kernel:
    """The kernel of DeformConv."""
    windows, groups = make_onnx_windows(node), node.attr("group", 1)
    offset_groups = node.attr("offset_group", 1)

    def kernel(x: Array, filters: Array, offset: Array, bias: object = None, mask: object = None) -> tuple[Array]:
        check_filters(x, filters, groups)
        axes = windows.axes(x.shape[2:], filters.shape[2:])
        need(
            offset_groups > 0 and not x.shape[1] % offset_groups,
            f"{x.shape[1]} channels are not in {offset_groups} offset groups",
        )
        outs, cells = [axis.out for axis in axes], math.prod(filters.shape[2:])
        need_shape(offset, (len(x), offset_groups * cells * len(axes), *outs), "offset")
        if mask is not None:
            need_shape(mask, (len(x), offset_groups * cells, *outs), "mask")
        if bias is not None:
            need_shape(bias, filters.shape[:1], "B")
        image = wide(x)
        moves = wide(offset).reshape(len(x), offset_groups, *filters.shape[2:], len(axes), *outs)
        factors = None if mask is None else wide(mask).reshape(len(x), offset_groups, *filters.shape[2:], *outs)
        weights = wide(filters).reshape(groups, len(filters) // groups, -1)
        out = empty((len(x), len(filters), *outs), image.dtype)
        columns = empty((x.shape[1], *filters.shape[2:], *outs), image.dtype)
        depth = x.shape[1] // offset_groups
        for n in range(len(x)):
            for g in range(offset_groups):
                part = slice(g * depth, (g + 1) * depth)
                columns[part] = sample(image[n, part], list(_places(axes, moves[n, g])), linear_taps)
                if factors is not None:
                    columns[part] *= factors[n, g]
            product = np.matmul(weights, columns.reshape(groups, -1, math.prod(outs)))
            out[n] = product.reshape(out.shape[1:])
        if bias is not None:
            out += wide(bias).reshape(-1, *(1,) * len(axes))
        return (out.astype(x.dtype, copy=False),)

    return kernel


def _places(axes: Sequence[Axis], moves: Array) -> Iterator[Array]:
    """Where each window cell is along each axis: [window..., out...]."""
    rank = len(axes)
    for i, axis in enumerate(axes):
        window = np.arange(axis.kernel).reshape(-1, *(1,) * (2 * rank - i - 1)) * axis.dilation
        out = np.arange(axis.out).reshape(-1, *(1,) * (rank - i - 1)) * axis.stride
        place = (window + out - axis.before).astype(moves.dtype) + moves[(slice(None),) * rank + (i,)]
        # What is far outside stays outside, whatever its number.
        yield np.clip(np.nan_to_num(place, nan=-2), -2, axis.size + 1)
