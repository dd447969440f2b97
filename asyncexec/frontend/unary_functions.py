"""Functions of one tensor, element by element: arithmetic, exponentials, trigonometry, rounding, tests.

Names are those of ``tf.math``.  The result has the shape of *x* and, unless the function says otherwise, its dtype.

Raises:
    InvalidArgumentError: the op does not take the dtype of *x*.
"""

from __future__ import annotations

from asyncexec.framework import types
from asyncexec.frontend.calls import TensorLike, dtype_of, in_graph_of, tensor_op
from asyncexec.graph.node import Tensor


def negative(x: TensorLike, name: str | None = None) -> Tensor:
    """-x, for numbers.

    >>> show(ax.negative([1.0, -2.0]))
    [-1.  2.]
    """
    return tensor_op("Neg", [x], name)


def sign(x: TensorLike, name: str | None = None) -> Tensor:
    """-1, 0 or 1 by the sign of x; ``x / |x|`` for complex numbers.

    >>> show(ax.sign([-3, 0, 5]))
    [-1  0  1]
    """
    return tensor_op("Sign", [x], name)


def square(x: TensorLike, name: str | None = None) -> Tensor:
    """x * x.

    >>> show(ax.square([-3, 2]))
    [9 4]
    """
    return tensor_op("Square", [x], name)


def sqrt(x: TensorLike, name: str | None = None) -> Tensor:
    """The square root, for floating and complex numbers; NaN below zero.

    >>> show(ax.sqrt([4.0, 9.0]))
    [2. 3.]
    """
    return tensor_op("Sqrt", [x], name)


def rsqrt(x: TensorLike, name: str | None = None) -> Tensor:
    """1 / sqrt(x), for floating and complex numbers.

    >>> show(ax.rsqrt([4.0, 16.0]))
    [0.5  0.25]
    """
    return tensor_op("Rsqrt", [x], name)


def reciprocal(x: TensorLike, name: str | None = None) -> Tensor:
    """1 / x.

    >>> show(ax.reciprocal([2.0, 4.0]))
    [0.5  0.25]
    """
    return tensor_op("Reciprocal", [x], name)


def exp(x: TensorLike, name: str | None = None) -> Tensor:
    """e ** x, for floating and complex numbers.

    >>> show(ax.exp([0.0, 1.0]))
    [1.     2.7183]
    """
    return tensor_op("Exp", [x], name)


def expm1(x: TensorLike, name: str | None = None) -> Tensor:
    """e ** x - 1, exact for small x.

    >>> show(ax.expm1([0.0, 1.0]))
    [0.     1.7183]
    """
    return tensor_op("Expm1", [x], name)


def log(x: TensorLike, name: str | None = None) -> Tensor:
    """The natural logarithm, for floating and complex numbers; NaN below zero.

    >>> show(ax.log([1.0, 2.0]))
    [0.     0.6931]
    """
    return tensor_op("Log", [x], name)


def log1p(x: TensorLike, name: str | None = None) -> Tensor:
    """log(1 + x), exact for small x.

    >>> show(ax.log1p([0.0, 1.0]))
    [0.     0.6931]
    """
    return tensor_op("Log1p", [x], name)


def sin(x: TensorLike, name: str | None = None) -> Tensor:
    """The sine of x in radians.

    >>> show(ax.sin([0.0, 0.5]))
    [0.     0.4794]
    """
    return tensor_op("Sin", [x], name)


def cos(x: TensorLike, name: str | None = None) -> Tensor:
    """The cosine of x in radians.

    >>> show(ax.cos([0.0, 0.5]))
    [1.     0.8776]
    """
    return tensor_op("Cos", [x], name)


def tan(x: TensorLike, name: str | None = None) -> Tensor:
    """The tangent of x in radians.

    >>> show(ax.tan([0.0, 0.5]))
    [0.     0.5463]
    """
    return tensor_op("Tan", [x], name)


def asin(x: TensorLike, name: str | None = None) -> Tensor:
    """The arcsine in radians; NaN outside of [-1, 1].

    >>> show(ax.asin([0.0, 0.5]))
    [0.     0.5236]
    """
    return tensor_op("Asin", [x], name)


def acos(x: TensorLike, name: str | None = None) -> Tensor:
    """The arccosine in radians; NaN outside of [-1, 1].

    >>> show(ax.acos([1.0, 0.5]))
    [0.     1.0472]
    """
    return tensor_op("Acos", [x], name)


def atan(x: TensorLike, name: str | None = None) -> Tensor:
    """The arctangent in radians.

    >>> show(ax.atan([0.0, 1.0]))
    [0.     0.7854]
    """
    return tensor_op("Atan", [x], name)


def sinh(x: TensorLike, name: str | None = None) -> Tensor:
    """The hyperbolic sine.

    >>> show(ax.sinh([0.0, 1.0]))
    [0.     1.1752]
    """
    return tensor_op("Sinh", [x], name)


def cosh(x: TensorLike, name: str | None = None) -> Tensor:
    """The hyperbolic cosine.

    >>> show(ax.cosh([0.0, 1.0]))
    [1.     1.5431]
    """
    return tensor_op("Cosh", [x], name)


def tanh(x: TensorLike, name: str | None = None) -> Tensor:
    """The hyperbolic tangent.

    >>> show(ax.tanh([0.0, 1.0]))
    [0.     0.7616]
    """
    return tensor_op("Tanh", [x], name)


def asinh(x: TensorLike, name: str | None = None) -> Tensor:
    """The inverse hyperbolic sine.

    >>> show(ax.asinh([0.0, 1.0]))
    [0.     0.8814]
    """
    return tensor_op("Asinh", [x], name)


def acosh(x: TensorLike, name: str | None = None) -> Tensor:
    """The inverse hyperbolic cosine; NaN below 1.

    >>> show(ax.acosh([1.0, 2.0]))
    [0.    1.317]
    """
    return tensor_op("Acosh", [x], name)


def atanh(x: TensorLike, name: str | None = None) -> Tensor:
    """The inverse hyperbolic tangent; NaN outside of [-1, 1].

    >>> show(ax.atanh([0.0, 0.5]))
    [0.     0.5493]
    """
    return tensor_op("Atanh", [x], name)


def sigmoid(x: TensorLike, name: str | None = None) -> Tensor:
    """1 / (1 + e ** -x), for floating and complex numbers.

    >>> show(ax.sigmoid([0.0, 1.0]))
    [0.5    0.7311]
    """
    return tensor_op("Sigmoid", [x], name)


def erf(x: TensorLike, name: str | None = None) -> Tensor:
    """The error function, for floats.

    >>> show(ax.erf([0.0, 1.0]))
    [0.     0.8427]
    """
    return tensor_op("Erf", [x], name)


def erfc(x: TensorLike, name: str | None = None) -> Tensor:
    """1 - erf(x), for floats.

    >>> show(ax.erfc([0.0, 1.0]))
    [1.     0.1573]
    """
    return tensor_op("Erfc", [x], name)


def erfinv(x: TensorLike, name: str | None = None) -> Tensor:
    """The inverse of erf, for floats in (-1, 1).

    >>> show(ax.erfinv([0.0, 0.5]))
    [0.     0.4769]
    """
    return tensor_op("Erfinv", [x], name)


def lgamma(x: TensorLike, name: str | None = None) -> Tensor:
    """The logarithm of the absolute value of gamma(x), for floats.

    >>> show(ax.lgamma([1.0, 5.0]))
    [0.     3.1781]
    """
    return tensor_op("Lgamma", [x], name)


def digamma(x: TensorLike, name: str | None = None) -> Tensor:
    """The derivative of lgamma, for floats.

    >>> show(ax.digamma([1.0, 2.0]))
    [-0.5772  0.4228]
    """
    return tensor_op("Digamma", [x], name)


def floor(x: TensorLike, name: str | None = None) -> Tensor:
    """The largest integer not above x, for floats.

    >>> show(ax.floor([1.2, -1.2]))
    [ 1. -2.]
    """
    return tensor_op("Floor", [x], name)


def ceil(x: TensorLike, name: str | None = None) -> Tensor:
    """The smallest integer not below x, for floats.

    >>> show(ax.ceil([1.2, -1.2]))
    [ 2. -1.]
    """
    return tensor_op("Ceil", [x], name)


def round(x: TensorLike, name: str | None = None) -> Tensor:  # noqa: A001
    """The nearest integer; a half goes to the even one.  Integers stay as they are.

    >>> show(ax.round([0.5, 1.5, 2.6]))
    [0. 2. 3.]
    """
    return tensor_op("Round", [x], name)


def rint(x: TensorLike, name: str | None = None) -> Tensor:
    """The nearest integer as a float; a half goes to the even one.

    >>> show(ax.rint([0.5, 1.5, 2.6]))
    [0. 2. 3.]
    """
    return tensor_op("Rint", [x], name)


def is_nan(x: TensorLike, name: str | None = None) -> Tensor:
    """Whether x is NaN, as bool, for floats.

    >>> show(ax.is_nan([1.0, float("nan")]))
    [False  True]
    """
    return tensor_op("IsNan", [x], name)


def is_inf(x: TensorLike, name: str | None = None) -> Tensor:
    """Whether x is infinite, as bool, for floats.

    >>> show(ax.is_inf([1.0, float("inf")]))
    [False  True]
    """
    return tensor_op("IsInf", [x], name)


def is_finite(x: TensorLike, name: str | None = None) -> Tensor:
    """Whether x is neither infinite nor NaN, as bool, for floats.

    >>> show(ax.is_finite([1.0, float("inf")]))
    [ True False]
    """
    return tensor_op("IsFinite", [x], name)


def abs(x: TensorLike, name: str | None = None) -> Tensor:  # noqa: A001
    """The absolute value; of complex numbers a float of half the width.

    >>> show(ax.abs([-3, 2]))
    [3 2]
    """
    (tensor,) = in_graph_of([x])
    if dtype_of(tensor).is_complex:
        return tensor_op("ComplexAbs", [tensor], name, Tout=_part_dtype(tensor))
    return tensor_op("Abs", [tensor], name)


def real(input: TensorLike, name: str | None = None) -> Tensor:  # noqa: A002
    """The real part of complex numbers, a float of half the width; other numbers as they are.

    >>> show(ax.real([1 + 2j, 3 - 4j]))
    [1. 3.]
    """
    (tensor,) = in_graph_of([input])
    return tensor_op("Real", [tensor], name, Tout=_part_dtype(tensor)) if dtype_of(tensor).is_complex else tensor


def imag(input: TensorLike, name: str | None = None) -> Tensor:  # noqa: A002
    """The imaginary part of complex numbers, a float of half the width.

    >>> show(ax.imag([1 + 2j, 3 - 4j]))
    [ 2. -4.]
    """
    (tensor,) = in_graph_of([input])
    return tensor_op("Imag", [tensor], name, Tout=_part_dtype(tensor))


def angle(input: TensorLike, name: str | None = None) -> Tensor:  # noqa: A002
    """The argument of complex numbers in radians, a float of half the width.

    >>> show(ax.angle([1j, -1 + 0j]))
    [1.5708 3.1416]
    """
    (tensor,) = in_graph_of([input])
    return tensor_op("Angle", [tensor], name, Tout=_part_dtype(tensor))


def _part_dtype(x: Tensor) -> types.DType:
    return types.float64 if dtype_of(x) is types.complex128 else types.float32


def conj(x: TensorLike, name: str | None = None) -> Tensor:
    """The complex conjugate; x itself where it is real.

    >>> show(ax.conj([1 + 2j, 3 - 4j]))
    [1.-2.j 3.+4.j]
    """
    (tensor,) = in_graph_of([x])
    return tensor_op("Conj", [tensor], name) if dtype_of(tensor).is_complex else tensor


def logical_not(x: TensorLike, name: str | None = None) -> Tensor:
    """Not x, for bool.

    >>> show(ax.logical_not([True, False]))
    [False  True]
    """
    return tensor_op("LogicalNot", [x], name)


def invert(x: TensorLike, name: str | None = None) -> Tensor:
    """Each bit of x inverted, for integers.

    >>> show(ax.invert([0, 5]))
    [-1 -6]
    """
    return tensor_op("Invert", [x], name)
