"""Activations, as layers and as functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.kernel import Kernel
from asyncexec.ops.pnnx.arithmetic import load_erf, sigmoid
from asyncexec.ops.pnnx.pnnx_kernels import PnnxNode, pnnx_kernel

_ROOT_OF_HALF: Final = float(np.sqrt(0.5))
_ROOT_OF_TWO_OVER_PI: Final = float(np.sqrt(2 / np.pi))


def _softplus(x: Array) -> Array:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _relu6(x: Array) -> Array:
    return np.clip(x, 0, 6)


def _hardsigmoid(x: Array) -> Array:
    return np.clip(x + 3, 0, 6) / 6


def _hardswish(x: Array) -> Array:
    out = np.clip(x + 3, 0, 6)
    out *= x
    out /= 6
    return out


def _silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def softmax(x: Array, axis: int) -> Array:
    """exp(x) by its sum along *axis*."""
    out = np.exp(x - np.max(x, axis=axis, keepdims=True))
    out /= np.sum(out, axis=axis, keepdims=True)
    return out


def _log_softmax(x: Array, axis: int) -> Array:
    low = x - np.max(x, axis=axis, keepdims=True)
    return low - np.log(np.sum(np.exp(low), axis=axis, keepdims=True))


_PLAIN: Final[dict[str, Callable[[Any], object]]] = {
    "relu": lambda x: np.maximum(x, 0),
    "relu6": _relu6,
    "hardsigmoid": _hardsigmoid,
    "hardswish": _hardswish,
    "logsigmoid": lambda x: -_softplus(-x),
    "mish": lambda x: x * np.tanh(_softplus(x)),
    "selu": lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(np.minimum(x, 0))),
    "sigmoid": sigmoid,
    "silu": _silu,
    "softsign": lambda x: x / (1 + np.abs(x)),
    "tanh": np.tanh,
    "tanhshrink": lambda x: x - np.tanh(x),
}
_LAYERS: Final = {
    "ReLU": "relu",
    "ReLU6": "relu6",
    "Hardsigmoid": "hardsigmoid",
    "Hardswish": "hardswish",
    "LogSigmoid": "logsigmoid",
    "Mish": "mish",
    "SELU": "selu",
    "Sigmoid": "sigmoid",
    "SiLU": "silu",
    "Softsign": "softsign",
    "Tanh": "tanh",
    "Tanhshrink": "tanhshrink",
}


@pnnx_kernel(*(f"nn.{name}" for name in _LAYERS), *(f"F.{name}" for name in _PLAIN), "torch.relu")
def _activation(node: PnnxNode) -> Kernel:
    name = node.type.partition(".")[2]
    function = _PLAIN[_LAYERS.get(name, name)]
    return lambda x: function(x)  # not itself: to np.tanh, a second input is an array to write to


@pnnx_kernel("nn.GELU", "F.gelu")
def _gelu(node: PnnxNode) -> Kernel:
    if node.param("approximate") == "tanh":
        return lambda x: x * 0.5 * (1 + np.tanh(_ROOT_OF_TWO_OVER_PI * (x + 0.044715 * x * x * x)))

    erf = load_erf()

    def gelu(x: Array) -> Array:
        out = erf(x * _ROOT_OF_HALF)
        out += 1
        out *= x
        out *= 0.5
        return np.asarray(out)

    return gelu


@pnnx_kernel("nn.LeakyReLU", "F.leaky_relu")
def _leaky_relu(node: PnnxNode) -> Kernel:
    slope = node.number("negative_slope", 0.01)
    return lambda x: np.where(x > 0, x, x * slope)


@pnnx_kernel("nn.PReLU", "F.prelu")
def _prelu(node: PnnxNode) -> Kernel:
    layer = node.array("weight") if node.type == "nn.PReLU" else None

    def prelu(x: Array, weight: Array | None = layer) -> Array:
        slope = np.asarray(weight)
        if slope.size > 1:
            slope = slope.reshape(-1, *(1 for _ in x.shape[2:]))
        return np.where(x > 0, x, x * slope)

    return prelu


@pnnx_kernel("nn.ELU", "F.elu", "nn.CELU", "F.celu")
def _elu(node: PnnxNode) -> Kernel:
    alpha = node.number("alpha", 1.0)
    inner = alpha if "c" in node.type.lower() else 1.0
    return lambda x: np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0) / inner))


@pnnx_kernel("nn.Hardtanh", "F.hardtanh")
def _hardtanh(node: PnnxNode) -> Kernel:
    low, high = node.number("min_val", -1.0), node.number("max_val", 1.0)
    return lambda x: np.clip(x, low, high)


@pnnx_kernel("nn.Softplus", "F.softplus")
def _softplus_kernel(node: PnnxNode) -> Kernel:
    beta, threshold = node.number("beta", 1.0), node.number("threshold", 20.0)
    return lambda x: np.where(x * beta > threshold, x, _softplus(x * beta) / beta)


@pnnx_kernel("nn.Threshold", "F.threshold")
def _threshold(node: PnnxNode) -> Kernel:
    threshold, value = node.number("threshold", 0.0), node.number("value", 0.0)
    return lambda x: np.where(x > threshold, x, np.asarray(value, x.dtype))


@pnnx_kernel("nn.Softmax", "F.softmax", "nn.Softmax2d", "nn.LogSoftmax", "F.log_softmax", "nn.Softmin", "F.softmin")
def _softmax(node: PnnxNode) -> Kernel:
    axis = -3 if node.type == "nn.Softmax2d" else node.integer("dim")
    if "log" in node.type.lower():
        return lambda x: _log_softmax(x, axis)
    return lambda x: softmax(-x if node.type.endswith("min") else x, axis)


@pnnx_kernel("nn.GLU", "F.glu")
def _glu(node: PnnxNode) -> Kernel:
    axis = node.integer("dim", -1)

    def glu(x: Array) -> Array:
        value, gate = np.split(x, 2, axis)
        return value * np.asarray(sigmoid(gate))

    return glu
