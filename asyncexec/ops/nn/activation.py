"""Activations and their gradients (``tensorflow/core/ops/nn_ops.cc``, kernels ``relu_op``, ``softplus_op``, ...).

Half-size floats are computed in float32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

import numpy as np

from asyncexec.framework.array_address import address_of
from asyncexec.framework.arrays import Array, ArrayOrScalar, NumpyDType
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction, as_value
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.layer_rule import LayerRule, NativeLayers
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext, merged, unchanged
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import REAL_NUMBER_DTYPES
from asyncexec.ops.array.windows import compute_dtype
from asyncexec.process.shards import share

FLOATS: Final = "T: {float16, bfloat16, float32, float64}"
_MANY: Final = 2**14  # elements
_FEW_ROWS: Final = 8
_LONG: Final = 1024  # elements in a row
_TILE: Final = 2**16  # elements
SELU_SCALE: Final = 1.0507009873554805
SELU_SCALE_ALPHA: Final = 1.7580993408473768


def in_float32(function: Kernel, np_dtype: NumpyDType) -> Kernel:
    """*function*, computed in float32 when *np_dtype* is a half-size float."""
    wide = compute_dtype(np_dtype)
    if wide == np_dtype:
        return function

    def kernel(*inputs: Array) -> Array:
        return function(*(value.astype(wide) for value in inputs)).astype(np_dtype)

    return kernel


def select(condition: ArrayOrScalar, a: ArrayOrScalar, b: ArrayOrScalar) -> ArrayOrScalar:
    """*a* where *condition* holds, *b* elsewhere: ``np.where``, but without a branch for each of many numbers."""
    if condition.size <= _MANY or any(array.dtype != np.float32 or not array.flags.c_contiguous for array in (a, b)):
        return as_value(np.where(condition, a, b))
    out = np.empty(a.shape, a.dtype)
    bits = [array.reshape(-1).view(np.int32) for array in (a, b, out)]
    holds = condition.reshape(-1).view(np.int8)
    for start in range(0, condition.size, _MANY):
        first, second, result = (array[start : start + _MANY] for array in bits)
        np.bitwise_xor(first, second, out=result)
        result &= -holds[start : start + _MANY].astype(np.int32)
        result ^= second
    return out


def relu6(x: ArrayOrScalar) -> ArrayOrScalar:
    """*x* cut to the range from 0 to 6."""
    dtype = x.dtype.type
    return np.minimum(np.maximum(x, dtype(0)), dtype(6))


def elu(x: Any) -> ArrayOrScalar:
    """``exp(x) - 1`` below zero, *x* above."""
    return select(x < 0, np.expm1(x), x)


def selu(x: Any) -> ArrayOrScalar:
    """The scaled exponential linear unit."""
    scale, scale_alpha = x.dtype.type(SELU_SCALE), x.dtype.type(SELU_SCALE_ALPHA)
    return select(x < 0, scale_alpha * np.expm1(x), scale * x)


def softplus(x: ArrayOrScalar) -> ArrayOrScalar:
    """``log(exp(x) + 1)`` without overflow."""
    return np.logaddexp(x, x.dtype.type(0))


def softsign(x: Any) -> ArrayOrScalar:
    """``x / (|x| + 1)``."""
    return x / (abs(x) + x.dtype.type(1))


def leaky_relu(alpha: float) -> Kernel:
    """A function that gives *x* above zero, ``alpha * x`` below."""
    if alpha == 0:  # infinity times nothing is NaN
        return lambda x: as_value(np.where(x > 0, x, x * x.dtype.type(0)))
    choose = np.maximum if alpha <= 1 else np.minimum

    def kernel(x: Any) -> ArrayOrScalar:
        return choose(x, x * x.dtype.type(alpha))

    return kernel


def softmax(x: Array) -> ArrayOrScalar:
    """Exponentials along the last axis, divided by their sum."""
    if not x.size:
        return x
    if x.size > _MANY and x.shape[-1] <= _LONG:
        return _by_rows(_softmax_rows, x)
    e = np.exp(x - x.max(-1, keepdims=True))
    e /= e.sum(-1, keepdims=True)
    return e


def log_softmax(x: Array) -> ArrayOrScalar:
    """The logarithm of ``softmax``."""
    if not x.size:
        return x
    if x.size > _MANY and x.shape[-1] <= _LONG:
        return _by_rows(_log_softmax_rows, x)
    shifted = x - x.max(-1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(-1, keepdims=True))
    return shifted


def _by_rows(function: Callable[[Any, Any, Any], None], x: Array) -> ArrayOrScalar:
    """What *function* writes for the rows of *x* and their maxima, for as many at a time as stay in the cache."""
    out = np.empty(x.shape, x.dtype)
    length = x.shape[-1]
    rows, results = x.reshape(-1, length), out.reshape(-1, length)
    step = min(len(rows), _TILE // length)
    starts = np.arange(0, step * length, length)

    def write(start: int) -> None:
        part = rows[start : start + step]
        # ``max`` takes three times as long for short rows.
        maxima = np.maximum.reduceat(part.reshape(-1), starts[: len(part)])
        function(part, maxima[:, None], results[start : start + step])

    share(write, range(0, len(rows), step), out.nbytes)
    return out


def _softmax_rows(x: ArrayOrScalar, maxima: Any, out: Any) -> None:
    np.subtract(x, maxima, out=out)
    np.exp(out, out=out)
    np.multiply(out, x.dtype.type(1) / np.einsum("ij->i", out)[:, None], out=out)


def _log_softmax_rows(x: ArrayOrScalar, maxima: Any, out: Any) -> None:
    np.subtract(x, maxima, out=out)
    np.subtract(out, np.log(np.einsum("ij->i", np.exp(out)))[:, None], out=out)


def relu_grad(grad: Any, x: Any) -> ArrayOrScalar:
    """*grad* where *x* is above zero."""
    return grad * (x > 0)


def relu6_grad(grad: Any, x: Any) -> ArrayOrScalar:
    """*grad* where *x* is between 0 and 6."""
    return grad * ((x > 0) & (x < 6))


def elu_grad(grad: ArrayOrScalar, y: Any) -> ArrayOrScalar:
    """The gradient of ``elu``, given its result *y*."""
    return select(y < 0, (y + y.dtype.type(1)) * grad, grad)


def selu_grad(grad: object, y: Any) -> ArrayOrScalar:
    """The gradient of ``selu``, given its result *y*."""
    scale, scale_alpha = y.dtype.type(SELU_SCALE), y.dtype.type(SELU_SCALE_ALPHA)
    return select(y < 0, (y + scale_alpha) * grad, grad * scale)


def softplus_grad(grad: ArrayOrScalar, x: Any) -> ArrayOrScalar:
    """The gradient of ``softplus``."""
    return grad / (np.exp(-x) + x.dtype.type(1))


def softsign_grad(grad: ArrayOrScalar, x: Any) -> ArrayOrScalar:
    """The gradient of ``softsign``."""
    root = abs(x) + x.dtype.type(1)
    return grad / (root * root)


def leaky_relu_grad(alpha: float) -> Kernel:
    """The gradient of ``leaky_relu``, as a function of gradient and input."""

    def kernel(grad: Any, x: Any) -> ArrayOrScalar:
        return select(x > 0, grad, grad * grad.dtype.type(alpha))

    return kernel


def same_shape(function: Kernel) -> Kernel:
    """*function* of two tensors that must have the same shape."""

    def kernel(a: ArrayOrScalar, b: ArrayOrScalar) -> ArrayOrScalar:
        if a.shape != b.shape:
            raise InvalidArgumentError(f"Inputs must have the same shape: {list(a.shape)} vs. {list(b.shape)}")
        return function(a, b)

    return kernel


def last_axis_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """The shape of the input, which must not be a scalar."""
    return [c.input(0).with_rank_at_least(1)]


def _last_axis(function: Kernel) -> Kernel:
    def kernel(x: ArrayOrScalar) -> Array:
        if not x.ndim:
            raise InvalidArgumentError("logits must have at least one dimension, not be a scalar")
        return function(x)

    return kernel


UNARY: Final[dict[str, Callable[[Any], object]]] = {
    "Elu": elu,
    "Selu": selu,
    "Softplus": softplus,
    "Softsign": softsign,
    "Relu6": relu6,
}
GRADIENTS: Final[dict[str, tuple[str, Callable[[Any, Any], object]]]] = {
    "ReluGrad": ("features", relu_grad),
    "Relu6Grad": ("features", relu6_grad),
    "EluGrad": ("outputs", elu_grad),
    "SeluGrad": ("outputs", selu_grad),
    "SoftplusGrad": ("features", softplus_grad),
    "SoftsignGrad": ("features", softsign_grad),
}
_ALPHA = "alpha: float = 0.200000003; T: {float16, bfloat16, float32, float64} = float32"
_UNARY_SIGNATURE = "features: T -> activations: T"
_RELU_TYPES = "float32, float64, int32, uint8, int16, int8, int64, bfloat16, uint16, float16, uint32, uint64, qint8"

register_op("Relu", _UNARY_SIGNATURE, f"T: {{{_RELU_TYPES}}}", shape=unchanged)
register_op("LeakyRelu", _UNARY_SIGNATURE, _ALPHA, shape=unchanged)
register_op("LeakyReluGrad", "gradients: T, features: T -> backprops: T", _ALPHA, shape=merged)
register_op("Softmax", "logits: T -> softmax: T", FLOATS, shape=last_axis_shape)
register_op("LogSoftmax", "logits: T -> logsoftmax: T", FLOATS, shape=last_axis_shape)
for _name in UNARY:
    register_op(_name, _UNARY_SIGNATURE, "T: realnumbertype" if _name == "Relu6" else FLOATS, shape=unchanged)
for _name, (_second, _) in GRADIENTS.items():
    _types = "T: realnumbertype" if _name.startswith("Relu") else FLOATS
    register_op(_name, f"gradients: T, {_second}: T -> backprops: T", _types, shape=merged)


@cache
def relu(np_dtype: NumpyDType) -> Kernel:
    """What gives *x* above zero, else zero: one kernel for all nodes of a dtype."""
    zero = np_dtype.type(0)

    def kernel(x: Any) -> ArrayOrScalar:
        # numpy is twice as quick with two arrays as with an array and a scalar; the zeros of one row do for all.
        is_worth_it = x.size > _MANY and len(x) >= _FEW_ROWS
        return np.maximum(x, np.zeros(x.shape[1:], np_dtype) if is_worth_it else zero)

    return kernel


@register_kernel("Relu", dtypes={"T": REAL_NUMBER_DTYPES}, is_elementwise=True)
def make_relu(op: OpKernelConstruction) -> Kernel:
    """The kernel of Relu."""
    return relu(op.np_dtype("T"))


@register_kernel(*UNARY, is_elementwise=True)
def make_activation(op: OpKernelConstruction) -> Kernel:
    """The kernel of an activation without attrs."""
    return in_float32(UNARY[op.op], op.np_dtype("T"))


@register_kernel(*GRADIENTS, is_elementwise=True)
def make_activation_gradient(op: OpKernelConstruction) -> Kernel:
    """The kernel of the gradient of an activation without attrs."""
    return same_shape(in_float32(GRADIENTS[op.op][1], op.np_dtype("T")))


@register_kernel("LeakyRelu", is_elementwise=True)
def make_leaky_relu(op: OpKernelConstruction) -> Kernel:
    """The kernel of LeakyRelu."""
    return in_float32(leaky_relu(op.attr("alpha")), op.np_dtype("T"))


@register_kernel("LeakyReluGrad", is_elementwise=True)
def make_leaky_relu_grad(op: OpKernelConstruction) -> Kernel:
    """The kernel of LeakyReluGrad."""
    return same_shape(in_float32(leaky_relu_grad(op.attr("alpha")), op.np_dtype("T")))


@register_kernel("LogSoftmax")
def make_log_softmax(op: OpKernelConstruction) -> Kernel:
    """The kernel of LogSoftmax."""
    return _last_axis(in_float32(log_softmax, op.np_dtype("T")))


@register_kernel("Softmax")
def make_softmax(op: OpKernelConstruction) -> Kernel:
    """The kernel of Softmax."""
    rule = LayerRule()

    def by_rows(x: Array) -> ArrayOrScalar:
        code = rule.code_for(x, sums=True)
        return softmax(x) if code is None else _native_softmax(np.ascontiguousarray(x), code)

    kernel = _last_axis(in_float32(by_rows, op.np_dtype("T")))
    kernel.layer_rule = rule  # type: ignore[attr-defined]
    return kernel


def _native_softmax(x: Array, code: NativeLayers) -> Array:
    out = np.empty(x.shape, x.dtype)
    length = x.shape[-1]
    num_rows, row = x.size // length, length * x.itemsize
    step = max(1, _TILE // length)

    def write(start: int) -> None:
        offset = start * row
        numbers = (at + offset, at_out + offset, min(step, num_rows - start), row, length)
        code.activate("softmax", numbers)

    at, at_out = address_of(x), address_of(out)
    share(write, range(0, num_rows, step), out.nbytes)
    return out
