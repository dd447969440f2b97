"""Activations, softmax and bias on any array library.

What they mean is told in asyncexec.ops (activation.py, bias.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from asyncexec.devices.array_library import ArrayLibrary
from asyncexec.devices.kernel_table import KernelTable, in_float32
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.ops.array.windows import is_channels_first
from asyncexec.ops.math.elementwise import FLOATS, NUMBERS, REALS
from asyncexec.ops.nn.activation import SELU_SCALE, SELU_SCALE_ALPHA
from asyncexec.ops.nn.bias import checked_bias


def relu(xp: Any, x: Any) -> Any:
    """*x*, not below zero."""
    return xp.maximum(x, xp.zeros_like(x))


def relu6(xp: Any, x: Any) -> Any:
    """*x* cut to the range from 0 to 6."""
    return xp.minimum(relu(xp, x), xp.full_like(x, 6))


def elu(xp: Any, x: Any) -> Any:
    """``exp(x) - 1`` below zero, *x* above."""
    return xp.where(x < 0, xp.expm1(x), x)


def selu(xp: Any, x: Any) -> Any:
    """The scaled exponential linear unit."""
    return xp.where(x < 0, SELU_SCALE_ALPHA * xp.expm1(x), SELU_SCALE * x)


def softplus(xp: Any, x: Any) -> Any:
    """``log(exp(x) + 1)`` without overflow."""
    return xp.logaddexp(x, xp.zeros_like(x))


def softsign(xp: Any, x: Any) -> Any:
    """``x / (|x| + 1)``."""
    return x / (xp.abs(x) + 1)


def softmax(xp: Any, x: Any) -> Any:
    """Exponentials along the last axis, divided by their sum."""
    if 0 in x.shape:
        return x
    e = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return e / xp.sum(e, axis=-1, keepdims=True)


def log_softmax(xp: Any, x: Any) -> Any:
    """The logarithm of ``softmax``."""
    if 0 in x.shape:
        return x
    shifted = x - xp.max(x, axis=-1, keepdims=True)
    return shifted - xp.log(xp.sum(xp.exp(shifted), axis=-1, keepdims=True))


_UNARY: Final[dict[str, tuple[Callable[..., Any], Any]]] = {
    "Relu": (relu, REALS),
    "Relu6": (relu6, REALS),
    "Elu": (elu, FLOATS),
    "Selu": (selu, FLOATS),
    "Softplus": (softplus, FLOATS),
    "Softsign": (softsign, FLOATS),
}
_LAST_AXIS: Final[dict[str, Callable[..., Any]]] = {"Softmax": softmax, "LogSoftmax": log_softmax}


def register_activations(table: KernelTable) -> None:
    """Add the kernels of this module."""
    for op, (function, dtypes) in _UNARY.items():
        table.add(op, partial(_unary, function), dtypes)
    for op, function in _LAST_AXIS.items():
        table.add(op, partial(_last_axis, function), FLOATS)
    table.add("LeakyRelu", _leaky_relu, FLOATS)
    table.add("BiasAdd BiasAddV1", _bias_add, NUMBERS)


def _unary(function: Kernel, library: ArrayLibrary, op: OpKernelConstruction) -> Kernel:
    own = library.functions.get(op.op)
    return in_float32(library, op, partial(function, library.xp)) if own is None else own


def _last_axis(function: Kernel, library: ArrayLibrary, op: OpKernelConstruction) -> Kernel:
    compute = _unary(function, library, op)

    def kernel(x: Any) -> Any:
        if not x.ndim:
            raise InvalidArgumentError("logits must have at least one dimension, not be a scalar")
        return compute(x)

    return kernel


def _leaky_relu(library: ArrayLibrary, op: OpKernelConstruction) -> Kernel:
    xp, alpha = library.xp, op.attr("alpha")
    choose = xp.maximum if alpha <= 1 else xp.minimum
    return in_float32(library, op, lambda x: choose(x, x * alpha))


def _bias_add(library: ArrayLibrary, op: OpKernelConstruction) -> Kernel:
    xp, first = library.xp, is_channels_first(op.attrs)

    def bias_add(value: Any, bias: Any) -> Any:
        checked_bias(value, bias, first)
        return value + (xp.reshape(bias, (-1, *(1,) * (value.ndim - 2))) if first else bias)

    return bias_add
