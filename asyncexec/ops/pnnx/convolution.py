"""Convolutions, and their transposes, on [batch, channels, ...] with filters [out, in / groups, ...].

Filters of a single cell are one matrix product.  A depthwise convolution sums products of the input, shifted, with one
weight a channel.  Any other copies what the windows see to the columns of a matrix, some rows of the output at a time,
so that the columns stay in the cache, and multiplies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, KernelKind
from asyncexec.ops.pnnx.pnnx_kernels import PnnxNode, pnnx_kernel
from asyncexec.ops.pnnx.windows import Pads, num_windows, padded, taps, with_batch
from asyncexec.process.free_memory import check_array

_COLUMN_BYTES: Final = 2**21
_BLOCK_BYTES: Final = 2**18


@dataclass(frozen=True, slots=True)
class Convolution:
    """How a convolution goes over its input."""

    stride: tuple[int, ...]
    pads: Pads
    dilation: tuple[int, ...]
    groups: int
    mode: str = "zeros"

    def __call__(self, x: Array, weight: Array, bias: Array | None) -> Array:
        """The convolution of *x*; InvalidArgumentError when the shapes do not fit."""
        x, is_single = with_batch(x, weight.ndim - 2)
        if x.shape[1] != weight.shape[1] * self.groups or weight.shape[0] % self.groups:
            raise InvalidArgumentError(
                f"filters of shape {list(weight.shape)} in {self.groups} groups do not fit input {list(x.shape)}"
            )
        window = weight.shape[2:]
        sizes = [
            num_windows(*each) for each in zip(x.shape[2:], window, self.stride, self.dilation, self.pads, strict=True)
        ]
        check_array((x.shape[0], weight.shape[0], *sizes), x.dtype)
        x = padded(x, self.pads, self.mode)
        if all(size == 1 for size in window):
            out = self._pointwise(x, weight)
        elif self.groups == x.shape[1]:
            out = self._depthwise(x, weight, sizes)
        else:
            out = self._by_columns(x, weight, sizes)
        if bias is not None:
            out += bias.reshape(-1, *(1 for _ in window))
        return out[0] if is_single else out

    def _pointwise(self, x: Any, weight: Array) -> Array:
        x = x[(..., *(slice(None, None, step) for step in self.stride))]
        batch, _, *sizes = x.shape
        parts = np.ascontiguousarray(x).reshape(batch, self.groups, -1, int(np.prod(sizes)))
        filters = weight.reshape(self.groups, -1, weight.shape[1])
        return np.matmul(filters, parts).reshape(batch, weight.shape[0], *sizes)

    def _depthwise(self, x: Array, weight: Any, sizes: Sequence[int]) -> Array:
        multiple = weight.shape[0] // x.shape[1]
        out = np.empty((x.shape[0], weight.shape[0], *sizes), np.result_type(x, weight))
        ones = (1,) * len(sizes)
        step = max(1, _BLOCK_BYTES // max(1, int(np.prod(sizes)) * out.itemsize))
        scratch = np.empty((min(step, weight.shape[0]), *sizes), out.dtype)
        if multiple > 1:
            x = np.repeat(x, multiple, axis=1)
        for image, start in product(range(x.shape[0]), range(0, weight.shape[0], step)):
            channels = slice(start, start + step)
            total = out[image, channels]
            products = scratch[: len(total)]
            seen = taps(x[image, channels], weight.shape[2:], self.stride, self.dilation, sizes)
            for number, (place, cells) in enumerate(seen):
                factor = weight[(channels, 0, *place)].reshape(-1, *ones)
                np.multiply(cells, factor, out=products if number else total)
                if number:
                    total += products
        return out

    def _by_columns(self, x: Array, weight: Array, sizes: Sequence[int]) -> Array:
        batch, channels = x.shape[:2]
        window, rest = weight.shape[2:], sizes[1:]
        out = np.empty((batch, weight.shape[0], *sizes), np.result_type(x, weight))
        results = out.reshape(batch, self.groups, -1, *sizes)
        filters = weight.reshape(self.groups, weight.shape[0] // self.groups, -1)
        row_bytes = channels * int(np.prod(window)) * int(np.prod(rest)) * x.itemsize
        step = max(1, min(sizes[0], _COLUMN_BYTES // max(1, row_bytes)))
        columns = np.empty((channels, *window, step, *rest), x.dtype)
        first_stride, reach = self.stride[0], self.dilation[0] * (window[0] - 1) + 1
        for image, start in product(range(batch), range(0, sizes[0], step)):
            rows = min(step, sizes[0] - start)
            part: Any = columns if rows == step else np.empty((channels, *window, rows, *rest), x.dtype)
            band = x[image, :, start * first_stride : (start + rows - 1) * first_stride + reach]
            for place, cells in taps(band, window, self.stride, self.dilation, [rows, *rest]):
                part[(slice(None), *place)] = cells
            flat = part.reshape(self.groups, filters.shape[2], -1)
            results[image, :, :, start : start + rows] = np.matmul(filters, flat).reshape(
                self.groups, filters.shape[1], rows, *rest
            )
        return out


@dataclass(frozen=True, slots=True)
class TransposedConvolution:
    """How the gradient of a convolution goes, with filters [in, out / groups, ...]."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    output_padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    def __call__(self, x: Array, weight: Array, bias: Array | None) -> Array:
        """The transposed convolution of *x*; InvalidArgumentError when the shapes do not fit."""
        x, is_single = with_batch(x, weight.ndim - 2)
        window = weight.shape[2:]
        if x.shape[1] != weight.shape[0] or x.shape[1] % self.groups:
            raise InvalidArgumentError(
                f"filters of shape {list(weight.shape)} in {self.groups} groups do not fit input {list(x.shape)}"
            )
        if min(*self.stride, *self.dilation, *x.shape) < 1:
            raise InvalidArgumentError("strides, dilations and sizes are at least 1")
        batch, channels, *sizes = x.shape
        whole = [
            (size - 1) * s + d * (k - 1) + 1 + more
            for size, s, d, k, more in zip(sizes, self.stride, self.dilation, window, self.output_padding, strict=True)
        ]
        outputs = weight.shape[1]
        check_array((batch, self.groups * outputs, *whole), x.dtype)
        check_array((batch, self.groups * outputs, *window, *sizes), x.dtype)
        filters = weight.reshape(self.groups, channels // self.groups, -1).transpose(0, 2, 1)
        products = np.matmul(filters, x.reshape(batch, self.groups, channels // self.groups, -1))
        products = products.reshape(batch, self.groups * outputs, *window, *sizes)
        out = np.zeros((batch, self.groups * outputs, *whole), products.dtype)
        for place, cells in taps(out, window, self.stride, self.dilation, sizes):
            cells += products[(slice(None), slice(None), *place)]
        out = padded(out, [(-pad, -pad) for pad in self.padding])
        if bias is not None:
            out = out + bias.reshape(-1, *(1 for _ in window))
        return out[0] if is_single else out


def _padding(node: PnnxNode, window: Sequence[int], dilation: Sequence[int]) -> Pads:
    value = node.param("padding", 0)
    if value == "valid":
        return [(0, 0)] * len(window)
    if value == "same":
        totals = [d * (k - 1) for k, d in zip(window, dilation, strict=True)]
        return [(total // 2, total - total // 2) for total in totals]
    return [(pad, pad) for pad in node.integers("padding", 0, len(window))]


def _convolution(node: PnnxNode, window: Sequence[int]) -> Convolution:
    dims = len(window)
    dilation = node.integers("dilation", 1, dims)
    groups = node.integer("groups", 1)
    if groups < 1 or min(dilation) < 1 or min(node.integers("stride", 1, dims)) < 1:
        raise node.error("strides, dilations and groups are at least 1")
    mode = node.param("padding_mode", "zeros")
    return Convolution(node.integers("stride", 1, dims), _padding(node, window, dilation), dilation, groups, mode)


@pnnx_kernel("nn.Conv1d", "nn.Conv2d", "nn.Conv3d", kind=KernelKind.EXPENSIVE)
def _conv_layer(node: PnnxNode) -> Kernel:
    weight, bias = _filters(node)
    convolve = _convolution(node, weight.shape[2:])
    return lambda x: convolve(x, weight, bias)


def _filters(node: PnnxNode) -> tuple[Array, Array | None]:
    weight = node.array("weight")
    dims = int(node.type[-2])
    if weight.ndim != dims + 2:
        raise node.error(f"filters of shape {list(weight.shape)} are not of {dims} dimensions")
    bias = node.array("bias") if node.param("bias") else None
    return weight, bias


@pnnx_kernel("F.conv1d", "F.conv2d", "F.conv3d", kind=KernelKind.EXPENSIVE)
def _conv(node: PnnxNode) -> Kernel:
    convolve = _convolution(node, (1,) * int(node.type[-2]))
    order = node.in_order("input", "weight", "bias")

    def conv(*inputs: object) -> Array:
        x, weight, bias = order(inputs)
        if node.param("padding") == "same":
            return _convolution(node, weight.shape[2:])(x, weight, bias)
        return convolve(x, weight, bias)

    return conv


def _transposed(node: PnnxNode, dims: int) -> TransposedConvolution:
    return TransposedConvolution(
        node.integers("stride", 1, dims),
        node.integers("padding", 0, dims),
        node.integers("output_padding", 0, dims),
        node.integers("dilation", 1, dims),
        max(1, node.integer("groups", 1)),
    )


@pnnx_kernel("nn.ConvTranspose1d", "nn.ConvTranspose2d", "nn.ConvTranspose3d", kind=KernelKind.EXPENSIVE)
def _conv_transpose_layer(node: PnnxNode) -> Kernel:
    weight, bias = _filters(node)
    convolve = _transposed(node, weight.ndim - 2)
    return lambda x: convolve(x, weight, bias)


@pnnx_kernel("F.conv_transpose1d", "F.conv_transpose2d", "F.conv_transpose3d", kind=KernelKind.EXPENSIVE)
def _conv_transpose(node: PnnxNode) -> Kernel:
    convolve = _transposed(node, int(node.type[-2]))
    order = node.in_order("input", "weight", "bias")
    return lambda *inputs: convolve(*order(inputs))
