"""Normalizations: of batches, layers, groups and instances, and to a norm of one."""

from __future__ import annotations

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.kernel import Kernel
from asyncexec.ops.array.array_common import mean_of
from asyncexec.ops.pnnx.pnnx_kernels import PnnxNode, pnnx_kernel

_DIMS = (1, 2, 3)


def _per_channel(values: Array, x: Array) -> Array:
    """*values*, one a channel, for arithmetic with *x*."""
    return values.reshape(-1, *(1 for _ in x.shape[2:]))


def _normalized(x: Array, axes: tuple[int, ...], eps: float) -> Array:
    """*x* less its mean along *axes*, by its standard deviation."""
    out = x - mean_of(x, axis=axes, keepdims=True)
    variance = mean_of(np.square(out), axis=axes, keepdims=True)
    variance += eps
    out /= np.sqrt(variance, out=variance)
    return out


@pnnx_kernel(*(f"nn.BatchNorm{dims}d" for dims in _DIMS))
def _batch_norm(node: PnnxNode) -> Kernel:
    mean, variance = node.array("running_mean"), node.array("running_var")
    scale = 1 / np.sqrt(variance + np.asarray(node.number("eps", 1e-5), variance.dtype))
    if node.param("affine", True):
        scale = scale * node.array("weight")
    shift = -mean * scale
    if node.param("affine", True):
        shift = shift + node.array("bias")

    def normalize(x: Array) -> Array:
        out = x * _per_channel(scale, x)
        out += _per_channel(shift, x)
        return out

    return normalize


@pnnx_kernel("F.batch_norm")
def _batch_norm_function(node: PnnxNode) -> Kernel:
    eps = node.number("eps", 1e-5)
    order = node.in_order("input", "running_mean", "running_var", "weight", "bias")

    def normalize(*inputs: object) -> Array:
        x, mean, variance, weight, bias = order(inputs)
        scale = 1 / np.sqrt(variance + np.asarray(eps, variance.dtype))
        scale = scale if weight is None else scale * weight
        shift = -mean * scale if bias is None else bias - mean * scale
        return np.asarray(x * _per_channel(scale, x) + _per_channel(shift, x))

    return normalize


@pnnx_kernel("nn.LayerNorm", "F.layer_norm")
def _layer_norm(node: PnnxNode) -> Kernel:
    axes = tuple(range(-len(node.integers("normalized_shape")), 0))
    eps = node.number("eps", 1e-5)
    weight, bias = node.find_array("weight"), node.find_array("bias")
    order = node.in_order("input", "weight", "bias")

    def normalize(*inputs: object) -> Array:
        x, scale, shift = order(inputs)
        scale, shift = weight if scale is None else scale, bias if shift is None else shift
        out = _normalized(x, axes, eps)
        if scale is not None:
            out *= scale
        if shift is not None:
            out += shift
        return out

    return normalize


@pnnx_kernel("nn.RMSNorm", "F.rms_norm")
def _rms_norm(node: PnnxNode) -> Kernel:
    axes = tuple(range(-len(node.integers("normalized_shape")), 0))
    weight, order = node.find_array("weight"), node.in_order("input", "weight")
    eps = node.param("eps")

    def normalize(*inputs: object) -> Array:
        x, scale = order(inputs)
        scale = weight if scale is None else scale
        least = np.finfo(x.dtype).eps if eps is None else eps
        out = x / np.sqrt(mean_of(np.square(x), axis=axes, keepdims=True) + np.asarray(least, x.dtype))
        return np.asarray(out if scale is None else out * scale)

    return normalize


@pnnx_kernel("nn.GroupNorm", "F.group_norm")
def _group_norm(node: PnnxNode) -> Kernel:
    groups, eps = node.integer("num_groups"), node.number("eps", 1e-5)
    weight, bias = node.find_array("weight"), node.find_array("bias")
    order = node.in_order("input", "weight", "bias")

    def normalize(*inputs: object) -> Array:
        x, scale, shift = order(inputs)
        scale, shift = weight if scale is None else scale, bias if shift is None else shift
        parts = x.reshape(x.shape[0], groups, -1)
        return _with_affine(_normalized(parts, (2,), eps).reshape(x.shape), scale, shift)

    return normalize


def _with_affine(out: Array, weight: Array | None, bias: Array | None) -> Array:
    if weight is not None:
        out *= _per_channel(weight, out)
    if bias is not None:
        out += _per_channel(bias, out)
    return out


@pnnx_kernel(*(f"nn.InstanceNorm{dims}d" for dims in _DIMS), "F.instance_norm")
def _instance_norm(node: PnnxNode) -> Kernel:
    eps = node.number("eps", 1e-5)
    weight, bias = node.find_array("weight"), node.find_array("bias")
    mean, variance = node.find_array("running_mean"), node.find_array("running_var")

    def normalize(x: Array) -> Array:
        if mean is not None and variance is not None:
            scale = 1 / np.sqrt(variance + np.asarray(eps, variance.dtype))
            out = (x - _per_channel(mean, x)) * _per_channel(scale, x)
        else:
            out = _normalized(x, tuple(range(2, x.ndim)), eps)
        return _with_affine(out, weight, bias)

    return normalize


@pnnx_kernel("nn.LocalResponseNorm", "F.local_response_norm")
def _local_response_norm(node: PnnxNode) -> Kernel:
    size, k = node.integer("size"), node.number("k", 1.0)
    alpha, beta = node.number("alpha", 1e-4), node.number("beta", 0.75)

    def normalize(x: Array) -> Array:
        channels, before = x.shape[1], size // 2
        total = np.zeros((x.shape[0], channels + 1, *x.shape[2:]), x.dtype)
        np.cumsum(np.square(x), axis=1, out=total[:, 1:])
        index = np.arange(channels)
        low, high = np.maximum(index - before, 0), np.minimum(index - before + size, channels)
        mean = (total[:, high] - total[:, low]) / size
        return np.asarray(x / np.power(mean * alpha + k, beta))

    return normalize


@pnnx_kernel("F.normalize")
def _normalize(node: PnnxNode) -> Kernel:
    order, axis, eps = node.number("p", 2.0), node.integer("dim", 1), node.number("eps", 1e-12)

    def normalize(x: Array) -> Array:
        size = np.sum(np.abs(x) ** order, axis=axis, keepdims=True) ** (1 / order)
        return np.asarray(x / np.maximum(size, np.asarray(eps, x.dtype)))

    return normalize
