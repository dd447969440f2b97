"""Normalizations and Dropout.  Half-size floats are computed in float32 and rounded once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from asyncexec.framework.arrays import Array, NumpyDType
from asyncexec.framework.kernel import Kernel, KernelKind
from asyncexec.ops.array.array_common import mean_of
from asyncexec.ops.onnx.arrays import axis_of, dtype_of_code, need, need_shape, wide
from asyncexec.ops.onnx.onnx_kernels import OnnxNode, onnx_kernel


def _moments(x: Array, axes: tuple[int, ...]) -> tuple[Array, Array]:
    """Mean and variance along *axes*, which are kept."""
    mean = mean_of(x, axes, keepdims=True)
    centered = x - mean
    centered *= centered
    return mean, mean_of(centered, axes, keepdims=True)


def _normalized(x: Array, axes: tuple[int, ...], epsilon: float) -> tuple[Array, Array, Array]:
    """*x* with mean zero and variance one along *axes*; the mean, and what the rest was multiplied with."""
    mean = mean_of(x, axes, keepdims=True)
    out = x - mean
    factor = 1 / np.sqrt(mean_of(out * out, axes, keepdims=True) + x.dtype.type(epsilon))
    out *= factor
    return out, mean, factor


def _by_channel(values: Array, rank: int) -> Array:
    return wide(values).reshape(-1, *(1,) * (rank - 2))


@onnx_kernel("BatchNormalization", since=6, kind=KernelKind.EXPENSIVE)
def make_batch_normalization(node: OnnxNode) -> Kernel:
    """The kernel of BatchNormalization; before 14 it trains where the node names more outputs than one."""
    epsilon, momentum = node.attr("epsilon", 1e-5), node.attr("momentum", 0.9)
    trains = bool(node.attr("training_mode", 0)) if node.opset >= 14 else node.num_outputs > 1
    by_cell = node.opset < 9 and not node.attr("spatial", 1)

    def kernel(x: Array, scale: Array, bias: Array, mean: Array, var: Array) -> tuple[Array, ...]:
        need(x.ndim > 0, "X must have an axis for the batch")
        want = x.shape[1:] if by_cell else x.shape[1:2] or (1,)
        for what, array in (("scale", scale), ("B", bias), ("mean", mean), ("var", var)):
            need_shape(array, want, what)
        cells = wide(x)

        def spread(values: Array) -> Array:
            return np.asarray(wide(values) if by_cell else _by_channel(values, max(x.ndim, 2)))

        if not trains:
            return (_scaled(cells, spread, scale, bias, mean, var, epsilon).astype(x.dtype, copy=False),)
        axes = (0,) if by_cell else (0, *range(2, x.ndim))
        found_mean, found_var = (one.reshape(want) for one in _moments(cells, axes))
        y = _scaled(cells, spread, scale, bias, found_mean, found_var, epsilon).astype(x.dtype, copy=False)
        kept = [
            (wide(old) * momentum + new * (1 - momentum)).astype(old.dtype)
            for old, new in ((mean, found_mean), (var, found_var))
        ]
        saved = [found_mean.astype(mean.dtype), found_var.astype(var.dtype)]
        return (y, *kept, *saved)[: node.num_outputs]

    return kernel


def _scaled(
    x: Array, spread: Callable[[Array], Array], scale: Array, bias: Array, mean: Array, var: Array, epsilon: float
) -> Array:
    factor = wide(scale) / np.sqrt(wide(var) + wide(var).dtype.type(epsilon))
    out: Array = x * spread(factor).astype(x.dtype, copy=False)
    out += spread(wide(bias) - wide(mean) * factor).astype(x.dtype, copy=False)
    return out


@onnx_kernel("InstanceNormalization", since=6, kind=KernelKind.EXPENSIVE)
def make_instance_normalization(node: OnnxNode) -> Kernel:
    """The kernel of InstanceNormalization: each channel of each image by itself."""
    epsilon = node.attr("epsilon", 1e-5)

    def kernel(x: Array, scale: Array, bias: Array) -> tuple[Array]:
        need(x.ndim > 2, f"input must have batch, channels and spatial axes, not shape {list(x.shape)}")
        need_shape(scale, x.shape[1:2], "scale")
        need_shape(bias, x.shape[1:2], "B")
        out, _, _ = _normalized(wide(x), tuple(range(2, x.ndim)), epsilon)
        out *= _by_channel(scale, x.ndim)
        out += _by_channel(bias, x.ndim)
        return (out.astype(x.dtype, copy=False),)

    return kernel


@onnx_kernel("GroupNormalization", since=18, kind=KernelKind.EXPENSIVE)
def make_group_normalization(node: OnnxNode) -> Kernel:
    """The kernel of GroupNormalization; before 21 scale and bias are for groups, since then for channels."""
    groups, epsilon = node.attr("num_groups", 0), node.attr("epsilon", 1e-5)
    by_group = node.opset < 21
    need(groups > 0, f"num_groups must be positive: {groups}")

    def kernel(x: Array, scale: Array, bias: Array) -> tuple[Array]:
        need(x.ndim >= 2 and not x.shape[1] % groups, f"shape {list(x.shape)} has no channels in {groups} groups")
        want = groups if by_group else x.shape[1]
        need_shape(scale, (want,), "scale")
        need_shape(bias, (want,), "bias")
        parts = wide(x).reshape(len(x), groups, -1)
        out, _, _ = _normalized(parts, (2,), epsilon)
        out = out.reshape(len(x), want, -1)
        out *= wide(scale).reshape(-1, 1)
        out += wide(bias).reshape(-1, 1)
        return (out.reshape(x.shape).astype(x.dtype, copy=False),)

    return kernel


def _last_axes(x: Array, axis: int) -> tuple[int, ...]:
    return tuple(range(axis_of(axis, x.ndim), x.ndim))


def _stash(node: OnnxNode, x: Array) -> NumpyDType:
    """The type to compute in."""
    return np.dtype(np.float64) if x.dtype == np.float64 else np.dtype(np.float32)


@onnx_kernel("LayerNormalization", since=17, kind=KernelKind.EXPENSIVE)
def make_layer_normalization(node: OnnxNode) -> Kernel:
    """The kernel of LayerNormalization, with mean and inverse deviation in the type that the node says."""
    axis, epsilon = node.attr("axis", -1), node.attr("epsilon", 1e-5)
    stash = dtype_of_code(node.attr("stash_type", 1))

    def kernel(x: Array, scale: Array, bias: Array | None = None) -> tuple[Array, ...]:
        axes = _last_axes(x, axis)
        out, mean, factor = _normalized(x.astype(_stash(node, x), copy=False), axes, epsilon)
        out = _times(out, scale, x.shape)
        if bias is not None:
            out = out + _fitting(bias, x.shape, "B").astype(out.dtype, copy=False)
        return (out.astype(x.dtype, copy=False), mean.astype(stash), factor.astype(stash))[: node.num_outputs]

    return kernel


def _fitting(values: Array, shape: Sequence[int], what: str) -> Array:
    """*values*, which must broadcast to *shape*."""
    given = np.shape(values)
    fits = len(given) <= len(shape) and all(a in (1, b) for a, b in zip(reversed(given), reversed(shape), strict=False))
    need(fits, f"{what} of shape {list(given)} does not broadcast to {list(shape)}")
    return np.asarray(values)


def _times(out: Array, scale: Array, shape: Sequence[int]) -> Array:
    out *= _fitting(scale, shape, "scale").astype(out.dtype, copy=False)
    return out


@onnx_kernel("RMSNormalization", since=23, kind=KernelKind.EXPENSIVE)
def make_rms_normalization(node: OnnxNode) -> Kernel:
    """The kernel of RMSNormalization: divided by the root of the mean square, nothing taken off."""
    axis, epsilon = node.attr("axis", -1), node.attr("epsilon", 1e-5)

    def kernel(x: Array, scale: Array) -> tuple[Array]:
        cells = x.astype(_stash(node, x), copy=False)
        squares = mean_of(cells * cells, _last_axes(x, axis), keepdims=True)
        out = cells / np.sqrt(squares + cells.dtype.type(epsilon))
        return (_times(out, scale, x.shape).astype(x.dtype, copy=False),)

    return kernel


@onnx_kernel("LpNormalization")
def make_lp_normalization(node: OnnxNode) -> Kernel:
    """The kernel of LpNormalization; zeros stay zeros."""
    axis, p = node.attr("axis", -1), node.attr("p", 2)
    need(p in (1, 2), f"p must be 1 or 2, not {p}")

    def kernel(x: Array) -> tuple[Array]:
        cells, along = wide(x), axis_of(axis, x.ndim)
        if p == 1:
            norm = np.abs(cells).sum(axis=along, keepdims=True)
        else:
            norm = np.sqrt((cells * cells).sum(axis=along, keepdims=True))
        return ((cells / np.where(norm == 0, norm.dtype.type(1), norm)).astype(x.dtype, copy=False),)

    return kernel


@onnx_kernel("MeanVarianceNormalization", since=9)
def make_mean_variance_normalization(node: OnnxNode) -> Kernel:
    """The kernel of MeanVarianceNormalization."""
    axes = tuple(node.attr("axes", (0, 2, 3)))

    def kernel(x: Array) -> tuple[Array]:
        along = tuple(axis_of(axis, x.ndim) for axis in axes)
        need(len(set(along)) == len(along), f"axes repeat: {list(axes)}")
        cells = wide(x)
        mean, var = _moments(cells, along)
        return (((cells - mean) / (np.sqrt(var) + cells.dtype.type(1e-9))).astype(x.dtype, copy=False),)

    return kernel


@onnx_kernel("LRN", kind=KernelKind.EXPENSIVE)
def make_lrn(node: OnnxNode) -> Kernel:
    """The kernel of LRN: divided by a power of the squares in channels nearby."""
    alpha, beta, bias = node.attr("alpha", 1e-4), node.attr("beta", 0.75), node.attr("bias", 1.0)
    size = node.attr("size", 0)
    need(size > 0, f"size must be positive: {size}")
    before, after = (size - 1) // 2, size // 2

    def kernel(x: Array) -> tuple[Array]:
        need(x.ndim >= 2, f"X must have channels, not shape {list(x.shape)}")
        cells = wide(x)
        squares, depth = cells * cells, x.shape[1]
        sums = np.zeros_like(squares)
        for shift in range(-min(before, depth), min(after, depth) + 1):
            to = slice(max(0, -shift), min(depth, depth - shift))
            sums[:, to] += squares[:, max(0, shift) : min(depth, depth + shift)]
        of = cells.dtype.type
        return ((cells / np.power(of(bias) + of(alpha / size) * sums, of(beta))).astype(x.dtype, copy=False),)

    return kernel


@onnx_kernel("Dropout", since=12)
def make_dropout(node: OnnxNode) -> Kernel:
    """The kernel of Dropout: does nothing unless its input ``training_mode`` is true."""
    seed = node.attr("seed")

    def kernel(x: Any, ratio: Any = None, training: Any = None) -> tuple[Any, ...]:
        share = 0.5 if ratio is None else float(np.reshape(ratio, ()))
        need(0 <= share < 1, f"ratio must be at least 0 and below 1, not {share}")
        if training is None or not np.reshape(training, ())[()] or not share:
            return (x, np.ones(np.shape(x), np.bool_))[: node.num_outputs]
        random = np.random.RandomState(None if seed is None else int(seed) % 2**32)
        mask = random.uniform(0, 1, np.shape(x)) >= share
        cells = wide(x)
        kept = cells * mask * cells.dtype.type(1 / (1 - share))
        return (kept.astype(x.dtype, copy=False), np.asarray(mask))[: node.num_outputs]

    return kernel


@onnx_kernel("Dropout", since=7)
def make_dropout_of_inference(node: OnnxNode) -> Kernel:
    """The kernel of Dropout before 12: gives its input, and a mask of ones."""

    def kernel(x: Any) -> tuple[object, ...]:
        mask_dtype = np.bool_ if node.opset >= 10 else x.dtype
        return (x, np.ones(np.shape(x), mask_dtype))[: node.num_outputs]

    return kernel
