"""Gradients of elementwise ops, given the op's own result (``tensorflow/core/kernels/cwise_ops_gradients.h``)."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import ArrayOrScalar
from asyncexec.framework.kernel import Kernel
from asyncexec.framework.kernel_registry import register_function
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import unchanged
from asyncexec.ops.math.elementwise import COMPLEXES, FLOAT_COMPLEX_ATTR, FLOATS, same_size


def sqrt_grad(y: Any, dy: ArrayOrScalar) -> ArrayOrScalar:
    """dy / (2 y)"""
    return dy / (y + y)


def rsqrt_grad(y: Any, dy: ArrayOrScalar) -> ArrayOrScalar:
    """-dy y**3 / 2"""
    return (dy * y) * (y * y) / -2


def reciprocal_grad(y: Any, dy: Any) -> ArrayOrScalar:
    """-dy y**2"""
    return -dy * (y * y)


def sigmoid_grad(y: Any, dy: ArrayOrScalar) -> ArrayOrScalar:
    """dy y (1 - y)"""
    return dy * y * (1 - y)


def tanh_grad(y: Any, dy: ArrayOrScalar) -> ArrayOrScalar:
    """dy (1 - y**2)"""
    return dy * (1 - y * y)


def zero_of_zero(function: Kernel) -> Kernel:
    """*function*, but zero where the gradient is zero, whatever y is."""

    def kernel(y: ArrayOrScalar, dy: ArrayOrScalar) -> ArrayOrScalar:
        result, is_zero = function(y, dy), np.equal(dy, 0)
        return np.where(is_zero, result.dtype.type(0), result)[()] if np.any(is_zero) else result

    return kernel


def conjugated(function: Kernel) -> Kernel:
    """*function* of the conjugate of y."""
    return lambda y, dy: function(np.conj(y), dy)


# op -> (function, whether the gradient of complex numbers conjugates y: TensorFlow's Sigmoid and Tanh do not)
_FUNCTIONS: Final[dict[str, tuple[Kernel, bool]]] = {
    "SqrtGrad": (zero_of_zero(sqrt_grad), True),
    "RsqrtGrad": (zero_of_zero(rsqrt_grad), True),
    "InvGrad": (zero_of_zero(reciprocal_grad), True),
    "ReciprocalGrad": (zero_of_zero(reciprocal_grad), True),
    "SigmoidGrad": (sigmoid_grad, False),
    "TanhGrad": (tanh_grad, False),
}

for _name, (_function, _conjugates) in _FUNCTIONS.items():
    register_op(_name, "y: T, dy: T -> z: T", FLOAT_COMPLEX_ATTR, shape=unchanged)
    register_function(_name, function=same_size(_function), dtypes={"T": FLOATS})
    _of_complex = conjugated(_function) if _conjugates else _function
    register_function(_name, function=same_size(_of_complex), dtypes={"T": COMPLEXES})
