"""Conv, ConvTranspose, Col2Im, CausalConvWithState, and the convolutions of quantized values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.kernel import Kernel, KernelKind
from asyncexec.ops.array.windows import Axis
from asyncexec.ops.onnx.activations import swish
from asyncexec.ops.onnx.arrays import empty, need, need_rank, need_shape, wide, zeros
from asyncexec.ops.onnx.channels_first import add_columns, check_filters, convolve
from asyncexec.ops.onnx.onnx_kernels import OnnxNode, onnx_kernel
from asyncexec.ops.onnx.onnx_windows import OnnxWindows, make_onnx_windows
from asyncexec.ops.onnx.quantization import saturated


@onnx_kernel("Conv", kind=KernelKind.EXPENSIVE)
def make_conv(node: OnnxNode) -> Kernel:
    """The kernel of Conv."""
    windows, groups = make_onnx_windows(node), node.attr("group", 1)

    def kernel(x: Array, filters: Array, bias: Array | None = None) -> tuple[Array]:
        check_filters(x, filters, groups)
        axes = windows.axes(x.shape[2:], filters.shape[2:])
        if bias is not None:
            need_shape(bias, filters.shape[:1], "B")
        out = convolve(wide(x), wide(filters), axes, groups)
        if bias is not None:
            out += wide(bias).reshape(-1, *(1,) * len(axes))
        return (out.astype(x.dtype, copy=False),)

    return kernel


@onnx_kernel("ConvInteger", since=10, kind=KernelKind.EXPENSIVE)
def make_conv_integer(node: OnnxNode) -> Kernel:
    """The kernel of ConvInteger: int32 sums of what is left after the zero points are taken off."""
    windows, groups = make_onnx_windows(node), node.attr("group", 1)

    def kernel(x: Array, filters: Array, x_zero: object = None, w_zero: object = None) -> tuple[Array]:
        return (_quantized(windows, groups, x, filters, x_zero, w_zero).astype(np.int64).astype(np.int32),)

    return kernel


def _quantized(windows: OnnxWindows, groups: int, x: Array, filters: Array, x_zero: Any, w_zero: object) -> Array:
    """The convolution of integers, exact in float64."""
    check_filters(x, filters, groups)
    axes = windows.axes(x.shape[2:], filters.shape[2:])
    shifted, weights = x.astype(np.float64), filters.astype(np.float64)
    if x_zero is not None:
        need(np.size(x_zero) == 1, "x_zero_point must be one number")
        shifted -= np.float64(np.reshape(x_zero, ()))
    if w_zero is not None:
        weights -= by_filter(w_zero, filters).astype(np.float64)
    return convolve(shifted, weights, axes, groups)


def by_filter(values: object, filters: Array) -> Array:
    """One number, or one a filter, so that they broadcast against *filters*."""
    array = np.asarray(values)
    need(array.size in (1, len(filters)), f"there must be 1 or {len(filters)} numbers, not {array.size}")
    return array.reshape(-1, *(1,) * (filters.ndim - 1))


@onnx_kernel("QLinearConv", since=10, kind=KernelKind.EXPENSIVE)
def make_qlinear_conv(node: OnnxNode) -> Kernel:
    """The kernel of QLinearConv: quantized in, quantized out, one rounding."""
    windows, groups = make_onnx_windows(node), node.attr("group", 1)

    def kernel(
        x: Array,
        x_scale: Any,
        x_zero: object,
        filters: Array,
        w_scale: object,
        w_zero: object,
        y_scale: Any,
        y_zero: Any,
        bias: Array | None = None,
    ) -> tuple[Array]:
        sums = _quantized(windows, groups, x, filters, x_zero, w_zero)
        spatial = (1,) * (x.ndim - 2)
        if bias is not None:
            need_shape(bias, filters.shape[:1], "B")
            sums += bias.astype(np.float64).reshape(-1, *spatial)
        factor = by_filter(np.float32(x_scale) * np.asarray(w_scale, np.float32) / np.float32(y_scale), filters)
        scaled = np.rint(sums.astype(np.float32) * factor.reshape(-1, *spatial))
        return (saturated(scaled + np.float32(y_zero), y_zero.dtype),)

    return kernel


@onnx_kernel("CausalConvWithState", since=27, kind=KernelKind.EXPENSIVE)
def make_causal_conv(node: OnnxNode) -> Kernel:
    """The kernel of CausalConvWithState: each channel by itself, over what came before and the input."""
    activation = node.text("activation", "none")
    need(activation in ("none", "silu", "swish"), f"activation must be none, silu or swish, not {activation!r}")
    gate = swish(1.0)

    def kernel(x: Array, filters: Array, bias: object = None, past: object = None) -> tuple[Array, Array]:
        need_rank(x, 3, "input")
        need_rank(filters, 3, "weight")
        check_filters(x, filters, x.shape[1])
        need_shape(filters, (x.shape[1], 1, filters.shape[2]), "weight")
        before = filters.shape[2] - 1
        if past is not None:
            need_shape(past, (*x.shape[:2], before), "past_state")
        else:
            past = zeros((*x.shape[:2], before), x.dtype)
        cells = np.concatenate([past, x], axis=2)
        axes = (Axis(cells.shape[2], before + 1, 1, 1, x.shape[2], 0, 0),)
        out = convolve(wide(cells), wide(filters), axes, x.shape[1])
        if bias is not None:
            out += wide(bias).reshape(-1, 1)
        out = out.astype(x.dtype, copy=False)
        if activation != "none":
            out = gate(wide(out)).astype(x.dtype, copy=False)
        return out, cells[:, :, cells.shape[2] - before :]

    return kernel


@onnx_kernel("ConvTranspose", kind=KernelKind.EXPENSIVE)
def make_conv_transpose(node: OnnxNode) -> Kernel:
    """The kernel of ConvTranspose: each input cell adds its filter, weighted, to the output."""
    windows, groups = make_onnx_windows(node), node.attr("group", 1)

    def kernel(x: Array, filters: Array, bias: Array | None = None) -> tuple[Array]:
        need(x.ndim == filters.ndim > 2, f"X and W must have one rank above 2, not {x.shape} and {filters.shape}")
        need(
            groups > 0 and x.shape[1] == filters.shape[0] and not x.shape[1] % groups,
            f"X of shape {list(x.shape)} and W of shape {list(filters.shape)} do not fit {groups} groups",
        )
        depth, batch = filters.shape[1] * groups, len(x)
        if bias is not None:
            need_shape(bias, (depth,), "B")
        axes = _transposed_axes(node, windows, x.shape[2:], filters.shape[2:])
        total = zeros((batch, depth, *(axis.size for axis in axes)), wide(x[:0]).dtype)
        if x.size and filters.size and total.size:
            weights = wide(filters).reshape(groups, filters.shape[0] // groups, -1).swapaxes(1, 2)
            cells = wide(x).reshape(batch, groups, x.shape[1] // groups, -1)
            columns = empty((batch, groups, weights.shape[1], cells.shape[3]), total.dtype)
            np.matmul(weights, cells, out=columns)
            add_columns(columns.reshape(batch, depth, *filters.shape[2:], *x.shape[2:]), axes, total)
        if bias is not None:
            total += wide(bias).reshape(-1, *(1,) * len(axes))
        return (total.astype(x.dtype, copy=False),)

    return kernel


def _transposed_axes(
    node: OnnxNode, windows: OnnxWindows, sizes: Sequence[int], kernel: Sequence[int]
) -> tuple[Axis, ...]:
    """The windows over the output, one for each cell of the input."""
    rank = len(sizes)
    need(all(one > 0 for one in kernel), f"a filter must not be empty: {list(kernel)}")
    if windows.kernel:
        need(windows.kernel == tuple(kernel), f"kernel_shape is {list(windows.kernel)}, the filter's {list(kernel)}")
    strides, dilations = windows.numbers("strides", rank), windows.numbers("dilations", rank)
    extra = tuple(node.attr("output_padding", ())) or (0,) * rank
    pads = windows.pads or (0,) * 2 * rank
    wanted = tuple(node.attr("output_shape", ()))[-rank:]
    same = windows.auto_pad.startswith("SAME")
    need(len(extra) == rank and len(pads) == 2 * rank, f"output_padding and pads must be for {rank} axes")
    need(not wanted or len(wanted) == rank, f"output_shape must have {rank} numbers, not {list(wanted)}")
    axes = []
    for i, (size, window, stride, dilation) in enumerate(zip(sizes, kernel, strides, dilations, strict=True)):
        full = (size - 1) * stride + (window - 1) * dilation + 1 + extra[i]
        if wanted or same:
            out = wanted[i] if wanted else size * stride
            pad = max(0, full - out)
            before = pad // 2 if windows.auto_pad == "SAME_UPPER" else pad - pad // 2
        else:
            before = 0 if windows.auto_pad == "VALID" else pads[i]
            out = full - before - (0 if windows.auto_pad == "VALID" else pads[rank + i])
        need(out >= 0, f"the output would have {out} cells along axis {i + 2}")
        axes.append(Axis(out, window, stride, dilation, size, before, 0))
    return tuple(axes)


@onnx_kernel("Col2Im", since=18)
def make_col2im(node: OnnxNode) -> Kernel:
    """The kernel of Col2Im: the sum of blocks laid over an image."""
    windows = make_onnx_windows(node)

    def kernel(x: Array, image_shape: Array, block_shape: Array) -> tuple[Array]:
        need_rank(x, 3, "input")
        sizes, block = [int(n) for n in image_shape], [int(n) for n in block_shape]
        need(all(n >= 0 for n in sizes) and all(n > 0 for n in block), "image_shape and block_shape must be positive")
        axes = windows.axes(sizes, block)
        cells, count = math.prod(block), math.prod(axis.out for axis in axes)
        need(not x.shape[1] % cells, f"{x.shape[1]} rows are not blocks of {cells} cells")
        need(x.shape[2] == count, f"there are {x.shape[2]} blocks, and {count} of them in the image")
        depth = x.shape[1] // cells
        columns = wide(x).reshape(len(x), depth, *block, *(axis.out for axis in axes))
        total = add_columns(columns, axes, zeros((len(x), depth, *sizes), columns.dtype))
        return (total.astype(x.dtype, copy=False),)

    return kernel
