"""Functions that reduce dimensions, and cumulative sums and products along one.

Names and arguments are those of ``tf.math`` (``tensorflow/python/ops/math_ops.py``).  *axis* is an int or a list of
ints; negative ones count from the end, and None stands for all dimensions.  *keepdims* keeps a reduced dimension with
size 1.

Raises:
    InvalidArgumentError: an axis does not exist, or the op does not take the dtype.
"""

from __future__ import annotations

import builtins
from typing import Any, TypeAlias

from asyncexec.framework import types
from asyncexec.framework.errors import InvalidTypeError
from asyncexec.framework.types import as_dtype
from asyncexec.frontend import array_functions as array
from asyncexec.frontend import basic_functions as basic
from asyncexec.frontend import math_functions as math
from asyncexec.frontend import unary_functions as unary
from asyncexec.frontend.calls import (
    DTypeLike,
    TensorLike,
    composite,
    dtype_of,
    in_graph_of,
    tensor_op,
)
from asyncexec.frontend.create_op import graph_to_use
from asyncexec.graph.node import Tensor

Axis: TypeAlias = Any  # int, list of ints, integer tensor, or None


def _reduce(op: str, x: TensorLike, axis: Axis, keepdims: bool, name: str | None) -> Tensor:
    (tensor,) = in_graph_of([x])
    with graph_to_use(tensor):
        return tensor_op(op, [tensor, axes_of(tensor, axis)], name, keep_dims=keepdims)


def axes_of(x: Tensor, axis: Axis) -> Any:
    if axis is not None:
        return list(axis) if isinstance(axis, tuple) else axis
    if x.shape.rank is not None:
        return list(builtins.range(x.shape.rank))
    return array.range(0, basic.rank(x), 1)


def reduce_sum(input_tensor: TensorLike, axis: Axis = None, keepdims: bool = False, name: str | None = None) -> Tensor:
    """The sum of numbers; 0 if there are none.

    >>> show(ax.reduce_sum([[1, 2], [3, 4]], axis=0))
    [4 6]
    """
    return _reduce("Sum", input_tensor, axis, keepdims, name)


def reduce_prod(input_tensor: TensorLike, axis: Axis = None, keepdims: bool = False, name: str | None = None) -> Tensor:
    """The product of numbers; 1 if there are none.

    >>> show(ax.reduce_prod([[1, 2], [3, 4]], axis=1))
    [ 2 12]
    """
    return _reduce("Prod", input_tensor, axis, keepdims, name)


def reduce_mean(input_tensor: TensorLike, axis: Axis = None, keepdims: bool = False, name: str | None = None) -> Tensor:
    """The mean of numbers, in their own dtype; integers are divided as integers.

    >>> show(ax.reduce_mean([[1.0, 2.0], [3.0, 4.0]], axis=1))
    [1.5 3.5]
    """
    return _reduce("Mean", input_tensor, axis, keepdims, name)


def reduce_max(input_tensor: TensorLike, axis: Axis = None, keepdims: bool = False, name: str | None = None) -> Tensor:
    """The largest of real numbers; the lowest value of the dtype if there are none.

    >>> show(ax.reduce_max([[1, 2], [3, 4]], axis=0))
    [3 4]
    """
    return _reduce("Max", input_tensor, axis, keepdims, name)


def reduce_min(input_tensor: TensorLike, axis: Axis = None, keepdims: bool = False, name: str | None = None) -> Tensor:
    """The smallest of real numbers; the highest value of the dtype if there are none.

    >>> show(ax.reduce_min([[1, 2], [3, 4]], axis=0))
    [1 2]
    """
    return _reduce("Min", input_tensor, axis, keepdims, name)


def reduce_all(input_tensor: TensorLike, axis: Axis = None, keepdims: bool = False, name: str | None = None) -> Tensor:
    """Whether all of the bools are true; True if there are none.

    >>> show(ax.reduce_all([[True, False], [True, True]], axis=1))
    [False  True]
    """
    return _reduce("All", input_tensor, axis, keepdims, name)


def reduce_any(input_tensor: TensorLike, axis: Axis = None, keepdims: bool = False, name: str | None = None) -> Tensor:
    """Whether any of the bools is true; False if there are none.

    >>> show(ax.reduce_any([[False, False], [True, False]], axis=1))
    [False  True]
    """
    return _reduce("Any", input_tensor, axis, keepdims, name)


def reduce_euclidean_norm(
    input_tensor: TensorLike, axis: Axis = None, keepdims: bool = False, name: str | None = None
) -> Tensor:
    """The square root of the sum of squares of numbers.

    >>> show(ax.reduce_euclidean_norm([[3.0, 4.0], [6.0, 8.0]], axis=1))
    [ 5. 10.]
    """
    return _reduce("EuclideanNorm", input_tensor, axis, keepdims, name)


def reduce_logsumexp(
    input_tensor: TensorLike, axis: Axis = None, keepdims: bool = False, name: str | None = None
) -> Tensor:
    """log(sum(exp(x))) of floats, without overflow where x is large.

    >>> show(ax.reduce_logsumexp([[0.0, 0.0]], axis=1))
    [0.6931]
    """
    with composite(name, "ReduceLogSumExp", [input_tensor]) as scope:
        (x,) = in_graph_of([input_tensor])
        peak = reduce_max(x, axis, keepdims=True)
        peak = basic.stop_gradient(math.where(unary.is_finite(peak), peak, array.zeros_like(peak)))
        total = unary.log(reduce_sum(unary.exp(math.subtract(x, peak)), axis, keepdims))
        if not keepdims:
            peak = array.reshape(peak, basic.shape(total))
        return math.add(total, peak, scope)


def reduce_variance(
    input_tensor: TensorLike, axis: Axis = None, keepdims: bool = False, name: str | None = None
) -> Tensor:
    """The mean squared distance from the mean, of floating or complex numbers; InvalidTypeError for integers.

    >>> show(ax.reduce_variance([[1.0, 3.0], [2.0, 2.0]], axis=1))
    [1. 0.]
    """
    with composite(name, "reduce_variance", [input_tensor]) as scope:
        (x,) = in_graph_of([input_tensor])
        if dtype_of(x).is_integer:
            raise InvalidTypeError(f"reduce_variance takes floats, not {dtype_of(x).name}", hint="use ax.cast")
        distance = math.subtract(x, reduce_mean(x, axis, keepdims=True))
        if dtype_of(x).is_complex:
            squares = unary.real(math.multiply(distance, unary.conj(distance)))
        else:
            squares = unary.square(distance)
        return reduce_mean(squares, axis, keepdims, scope)


def reduce_std(input_tensor: TensorLike, axis: Axis = None, keepdims: bool = False, name: str | None = None) -> Tensor:
    """The square root of the variance, of floating or complex numbers; InvalidTypeError for integers.

    >>> show(ax.reduce_std([[1.0, 5.0], [2.0, 2.0]], axis=1))
    [2. 0.]
    """
    with composite(name, "reduce_std", [input_tensor]) as scope:
        return unary.sqrt(reduce_variance(input_tensor, axis, keepdims), scope)


def moments(x: TensorLike, axes: Axis, keepdims: bool = False, name: str | None = None) -> tuple[Tensor, Tensor]:
    """The mean and the variance over *axes*.

    >>> show(*ax.moments([[1.0, 3.0], [2.0, 2.0]], axes=[1]))
    [2. 2.]
    [1. 0.]
    """
    with composite(name, "moments", [x]):
        (tensor,) = in_graph_of([x])
        mean = reduce_mean(tensor, axes, keepdims=True)
        variance = reduce_mean(math.squared_difference(tensor, basic.stop_gradient(mean)), axes, keepdims=True)
        if keepdims:
            return mean, variance
        axis = [axes] if isinstance(axes, int) else list(axes)
        return array.squeeze(mean, axis), array.squeeze(variance, axis)


def argmax(
    input: TensorLike,  # noqa: A002
    axis: object = 0,
    output_type: DTypeLike = types.int64,
    name: str | None = None,
) -> Tensor:
    """The index of the largest element along *axis* as *output_type*; the first one if several are equal.

    >>> show(ax.argmax([[1, 5, 2], [7, 3, 0]], axis=1))
    [1 0]
    """
    return tensor_op("ArgMax", [input, axis], name, output_type=as_dtype(output_type))


def argmin(
    input: TensorLike,  # noqa: A002
    axis: object = 0,
    output_type: DTypeLike = types.int64,
    name: str | None = None,
) -> Tensor:
    """The index of the smallest element along *axis* as *output_type*; the first one if several are equal.

    >>> show(ax.argmin([[1, 5, 2], [7, 3, 0]], axis=1))
    [0 2]
    """
    return tensor_op("ArgMin", [input, axis], name, output_type=as_dtype(output_type))


def cumsum(
    x: TensorLike, axis: object = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None
) -> Tensor:
    """Running sums along *axis*: without the element itself if *exclusive*, from the end if *reverse*.

    >>> show(ax.cumsum([1, 2, 3]), ax.cumsum([1, 2, 3], exclusive=True))
    [1 3 6]
    [0 1 3]
    """
    return tensor_op("Cumsum", [x, axis], name, exclusive=exclusive, reverse=reverse)


def cumprod(
    x: TensorLike, axis: object = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None
) -> Tensor:
    """Running products along *axis*: without the element itself if *exclusive*, from the end if *reverse*.

    >>> show(ax.cumprod([1, 2, 3]))
    [1 2 6]
    """
    return tensor_op("Cumprod", [x, axis], name, exclusive=exclusive, reverse=reverse)
