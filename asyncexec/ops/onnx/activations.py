"""Activations, and Softmax with its kin.  Half-size floats are computed in float32 and rounded once."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.kernel import Kernel
from asyncexec.ops.math.error_function import erf_function
from asyncexec.ops.onnx.arrays import axis_of, elementwise, need, wide
from asyncexec.ops.onnx.common import check_broadcast
from asyncexec.ops.onnx.onnx_kernels import OnnxNode, onnx_kernel

_SELU_ALPHA: Final = 1.6732631921768188
_SELU_GAMMA: Final = 1.0507010221481323


def sigmoid(x: Array) -> Array:
    """``1 / (1 + exp(-x))``; the exponential overflows to infinity, which is right in the end."""
    out = np.negative(x)
    np.exp(out, out=out)
    out += 1
    return np.reciprocal(out, out=out)


@onnx_kernel("Relu")
def make_relu(node: OnnxNode) -> Kernel:
    """The kernel of Relu."""
    return lambda x: (np.maximum(x, x.dtype.type(0)),)


@onnx_kernel("Sigmoid")
def make_sigmoid(node: OnnxNode) -> Kernel:
    """The kernel of Sigmoid."""
    return elementwise(lambda x: sigmoid(np.atleast_1d(x)).reshape(x.shape))


@onnx_kernel("LeakyRelu")
def make_leaky_relu(node: OnnxNode) -> Kernel:
    """The kernel of LeakyRelu."""
    alpha = node.attr("alpha", 0.01)
    return elementwise(lambda x: np.where(x < 0, x * x.dtype.type(alpha), x))


@onnx_kernel("PRelu")
def make_prelu(node: OnnxNode) -> Kernel:
    """The kernel of PRelu: a slope of its own for each channel, broadcast to the input."""

    def kernel(x: Array, slope: ArrayOrScalar) -> tuple[Any]:
        slopes = np.asarray(slope)
        if node.opset < 9 and slopes.ndim == 1 and x.ndim > 1 and slopes.size == x.shape[1]:
            slopes = slopes.reshape(-1, *(1,) * (x.ndim - 2))
        check_broadcast(x, slopes)
        return (np.asarray(np.where(x < 0, x * slopes, x)).astype(x.dtype, copy=False),)

    return kernel


@onnx_kernel("Elu")
def make_elu(node: OnnxNode) -> Kernel:
    """The kernel of Elu."""
    alpha = node.attr("alpha", 1.0)
    return elementwise(lambda x: np.where(x < 0, x.dtype.type(alpha) * np.expm1(x), x))


@onnx_kernel("Celu", since=12)
def make_celu(node: OnnxNode) -> Kernel:
    """The kernel of Celu."""
    alpha = node.attr("alpha", 1.0)

    def celu(x: Array) -> Array:
        scale, zero = x.dtype.type(alpha), x.dtype.type(0)
        return np.asarray(np.maximum(x, zero) + np.minimum(scale * np.expm1(x / scale), zero))

    return elementwise(celu)


@onnx_kernel("Selu")
def make_selu(node: OnnxNode) -> Kernel:
    """The kernel of Selu."""
    alpha, gamma = node.attr("alpha", _SELU_ALPHA), node.attr("gamma", _SELU_GAMMA)
    return elementwise(
        lambda x: x.dtype.type(gamma) * np.where(x <= 0, x.dtype.type(alpha) * np.expm1(x), x),
    )


@onnx_kernel("Gelu", since=20)
def make_gelu(node: OnnxNode) -> Kernel:
    """The kernel of Gelu, exact or by tanh."""
    kind = node.text("approximate", "none")
    need(kind in ("none", "tanh"), f"approximate must be none or tanh, not {kind!r}")
    if kind == "tanh":
        factor = math.sqrt(2 / math.pi)

        def by_tanh(x: Array) -> object:
            of = x.dtype.type
            return of(0.5) * x * (of(1) + np.tanh(of(factor) * (x + of(0.044715) * x * x * x)))

        return elementwise(by_tanh)
    erf = erf_function()
    return elementwise(
        lambda x: x.dtype.type(0.5) * x * (x.dtype.type(1) + erf(x * x.dtype.type(math.sqrt(0.5)))),
    )


@onnx_kernel("HardSigmoid")
def make_hard_sigmoid(node: OnnxNode) -> Kernel:
    """The kernel of HardSigmoid."""
    return elementwise(hard_sigmoid(node.attr("alpha", 0.2), node.attr("beta", 0.5)))


def hard_sigmoid(alpha: float, beta: float) -> Callable[[Array], Array]:
    """The line ``alpha * x + beta``, cut to the range from 0 to 1."""

    def function(x: Array) -> Array:
        of = x.dtype.type
        return np.asarray(np.clip(x * of(alpha) + of(beta), of(0), of(1)))

    return function


@onnx_kernel("HardSwish", since=14)
def make_hard_swish(node: OnnxNode) -> Kernel:
    """The kernel of HardSwish."""
    line = hard_sigmoid(1 / 6, 0.5)
    return elementwise(lambda x: x * line(x))


@onnx_kernel("Swish", since=24)
def make_swish(node: OnnxNode) -> Kernel:
    """The kernel of Swish."""
    return elementwise(swish(node.attr("alpha", 1.0)))


def swish(alpha: float) -> Callable[[Array], Array]:
    """``x * sigmoid(alpha * x)``."""
    return lambda x: np.asarray(x / (1 + np.exp(x * x.dtype.type(-alpha))))


@onnx_kernel("SwiGLU", since=28)
def make_swiglu(node: OnnxNode) -> Kernel:
    """The kernel of SwiGLU: a gate through Swish, times a line of the same shape."""
    gate = swish(node.attr("alpha", 1.0))

    def kernel(a: Any, b: Any) -> tuple[object]:
        need(np.shape(a) == np.shape(b), f"A and B must have one shape, not {np.shape(a)} and {np.shape(b)}")
        return ((gate(wide(a)) * wide(b)).astype(a.dtype),)

    return kernel


@onnx_kernel("Mish", since=18)
def make_mish(node: OnnxNode) -> Kernel:
    """The kernel of Mish."""
    return elementwise(lambda x: x * np.tanh(np.logaddexp(x, x.dtype.type(0))))


@onnx_kernel("Softplus")
def make_softplus(node: OnnxNode) -> Kernel:
    """The kernel of Softplus."""
    return elementwise(lambda x: np.logaddexp(x, x.dtype.type(0)))


@onnx_kernel("Softsign")
def make_softsign(node: OnnxNode) -> Kernel:
    """The kernel of Softsign."""
    return elementwise(lambda x: x / (np.abs(x) + x.dtype.type(1)))


@onnx_kernel("ThresholdedRelu")
def make_thresholded_relu(node: OnnxNode) -> Kernel:
    """The kernel of ThresholdedRelu."""
    alpha = node.attr("alpha", 1.0)
    return elementwise(lambda x: np.where(x > x.dtype.type(alpha), x, x.dtype.type(0)))


@onnx_kernel("Shrink", since=9)
def make_shrink(node: OnnxNode) -> Kernel:
    """The kernel of Shrink."""
    bias, lambd = node.attr("bias", 0.0), node.attr("lambd", 0.5)
    return elementwise(lambda x: np.where(x < -lambd, x + bias, np.where(x > lambd, x - bias, 0)))


def softmax(x: Array, axis: int = -1) -> Array:
    """Exponentials along *axis*, divided by their sum."""
    if not x.size:
        return x
    out: Array = x - x.max(axis=axis, keepdims=True)
    np.exp(out, out=out)
    out /= out.sum(axis=axis, keepdims=True)
    return out


def log_softmax(x: Array, axis: int = -1) -> Array:
    """The logarithm of ``softmax``."""
    if not x.size:
        return x
    out: Array = x - x.max(axis=axis, keepdims=True)
    out -= np.log(np.exp(out).sum(axis=axis, keepdims=True))
    return out


def hardmax(x: Array, axis: int = -1) -> Array:
    """One at the first of the largest along *axis*, else zero."""
    out = np.zeros_like(x)
    if x.size:
        np.put_along_axis(out, np.expand_dims(x.argmax(axis), axis), 1, axis)
    return out


_FAMILY: Final[dict[str, Callable[..., Array]]] = {"Softmax": softmax, "LogSoftmax": log_softmax, "Hardmax": hardmax}


@onnx_kernel("Softmax", "LogSoftmax", "Hardmax", since=13)
def make_softmax(node: OnnxNode) -> Kernel:
    """The kernel of Softmax, LogSoftmax and Hardmax along one axis."""
    function, axis = _FAMILY[node.op_type], node.attr("axis", -1)

    def kernel(x: ArrayOrScalar) -> tuple[Any]:
        return (function(wide(x), axis_of(axis, x.ndim)).astype(x.dtype, copy=False),)

    return kernel


@onnx_kernel("Softmax", "LogSoftmax", "Hardmax")
def make_softmax_of_rows(node: OnnxNode) -> Kernel:
    """The kernel of Softmax, LogSoftmax and Hardmax before 13: the axes from one on count as a single one."""
    function, axis = _FAMILY[node.op_type], node.attr("axis", 1)

    def kernel(x: Any) -> tuple[object]:
        first = axis_of(axis, x.ndim, end=True)
        rows = wide(x).reshape(math.prod(x.shape[:first]), -1) if x.size else wide(x)
        return (function(rows, -1).reshape(x.shape).astype(x.dtype, copy=False),)

    return kernel
