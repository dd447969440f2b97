"""Neural networks: activations, softmax and losses, normalization.

Names and arguments are those of ``tf.nn`` (``tensorflow/python/ops/nn_ops.py``, ``nn_impl.py``).  Unless the function
says otherwise, the input has floats, and the result has its dtype and shape.

Raises:
    InvalidArgumentError: the op does not take the dtype; shapes do not fit; or, when the graph runs, a label is out of
        range.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.frontend import array_functions as array
from asyncexec.frontend import basic_functions as basic
from asyncexec.frontend import math_functions as math
from asyncexec.frontend import unary_functions as unary
from asyncexec.frontend.calls import TensorLike, composite, dtype_of, in_graph_of, static_rank, tensor_op, tensors_op
from asyncexec.frontend.create_op import as_tensor, holds_tensor
from asyncexec.frontend.reduction_functions import moments, reduce_sum
from asyncexec.graph.node import Tensor

_SQRT_2: Final = 1.4142135623730951
_SQRT_2_OVER_PI: Final = 0.7978845608028654


def relu(features: TensorLike, name: str | None = None) -> Tensor:
    """max(x, 0), for real numbers.

    >>> show(ax.relu([-1.0, 2.0]))
    [0. 2.]
    """
    return tensor_op("Relu", [features], name)


def relu6(features: TensorLike, name: str | None = None) -> Tensor:
    """min(max(x, 0), 6), for real numbers.

    >>> show(ax.relu6([-1.0, 7.0]))
    [0. 6.]
    """
    return tensor_op("Relu6", [features], name)


def leaky_relu(features: TensorLike, alpha: float = 0.2, name: str | None = None) -> Tensor:
    """x where it is positive and *alpha* x elsewhere.

    >>> show(ax.leaky_relu([-1.0, 2.0]))
    [-0.2  2. ]
    """
    return tensor_op("LeakyRelu", [features], name, alpha=alpha)


def elu(features: TensorLike, name: str | None = None) -> Tensor:
    """x where it is positive and e ** x - 1 elsewhere.

    >>> show(ax.elu([-1.0, 2.0]))
    [-0.6321  2.    ]
    """
    return tensor_op("Elu", [features], name)


def selu(features: TensorLike, name: str | None = None) -> Tensor:
    """elu scaled so that it keeps mean 0 and variance 1.

    >>> show(ax.selu([-1.0, 1.0]))
    [-1.1113  1.0507]
    """
    return tensor_op("Selu", [features], name)


def softplus(features: TensorLike, name: str | None = None) -> Tensor:
    """log(1 + e ** x).

    >>> show(ax.softplus([0.0, 1.0]))
    [0.6931 1.3133]
    """
    return tensor_op("Softplus", [features], name)


def softsign(features: TensorLike, name: str | None = None) -> Tensor:
    """``x / (1 + |x|)``.

    >>> show(ax.softsign([-1.0, 3.0]))
    [-0.5   0.75]
    """
    return tensor_op("Softsign", [features], name)


def gelu(features: TensorLike, approximate: bool = False, name: str | None = None) -> Tensor:
    """x times the probability that a normal variable is below x; with tanh if *approximate*, else with erf.

    >>> show(ax.gelu([-1.0, 1.0]))
    [-0.1587  0.8413]
    """
    with composite(name, "Gelu", [features]) as scope:
        (x,) = in_graph_of([features])
        if approximate:
            cubic = math.add(x, math.multiply(0.044715, math.multiply(math.multiply(x, x), x)))
            curve = unary.tanh(math.multiply(_SQRT_2_OVER_PI, cubic))
        else:
            curve = unary.erf(math.truediv(x, _SQRT_2))
        return math.multiply(math.multiply(0.5, x), math.add(1.0, curve), scope)


def silu(features: TensorLike, beta: float = 1.0, name: str | None = None) -> Tensor:
    """x sigmoid(*beta* x).

    >>> show(ax.silu([0.0, 1.0]))
    [0.     0.7311]
    """
    with composite(name, "silu", [features]) as scope:
        (x,) = in_graph_of([features])
        return math.multiply(x, unary.sigmoid(x if beta == 1.0 else math.multiply(beta, x)), scope)


def swish(features: TensorLike, beta: float = 1.0, name: str | None = None) -> Tensor:
    """x sigmoid(*beta* x); the same as silu.

    >>> show(ax.swish([0.0, 1.0]))
    [0.     0.7311]
    """
    return silu(features, beta, name or "swish")


def softmax(logits: TensorLike, axis: int = -1, name: str | None = None) -> Tensor:
    """exp(x) / sum(exp(x)) along *axis*.

    >>> show(ax.softmax([0.0, 0.0]))
    [0.5 0.5]
    """
    return _along_axis("Softmax", logits, axis, name)


def log_softmax(logits: TensorLike, axis: int = -1, name: str | None = None) -> Tensor:
    """The logarithm of softmax along *axis*.

    >>> show(ax.log_softmax([0.0, 0.0]))
    [-0.6931 -0.6931]
    """
    return _along_axis("LogSoftmax", logits, axis, name)


def _along_axis(op: str, logits: TensorLike, axis: int, name: str | None) -> Tensor:
    """*op*, which works along the last dimension, along another."""
    (x,) = in_graph_of([logits])
    if axis == -1 or (x.shape.rank is not None and axis == x.shape.rank - 1):
        return tensor_op(op, [x], name)
    perm = _axis_last(x, axis)
    with composite(name, op.lower(), [x]) as scope:
        return array.transpose(tensor_op(op, [array.transpose(x, perm)]), perm, name=scope)


def _axis_last(x: Tensor, axis: int) -> list[int]:
    rank = static_rank(x, "an axis that is not the last")
    if not -rank <= axis < rank:
        raise InvalidArgumentError(f"{x.name!r} of shape {x.shape} has no dimension {axis}", node=x.op)
    perm = list(range(rank))
    perm[axis], perm[-1] = perm[-1], perm[axis]
    return perm


def softmax_cross_entropy_with_logits(
    labels: TensorLike, logits: TensorLike, axis: int = -1, name: str | None = None
) -> Tensor:
    """-sum(labels log(softmax(logits))) along *axis*; *labels* are probabilities.  The result has no *axis*.

    >>> show(ax.softmax_cross_entropy_with_logits(labels=[[1.0, 0.0]], logits=[[0.0, 0.0]]))
    [0.6931]
    """
    with composite(name, "softmax_cross_entropy_with_logits", [labels, logits]) as scope:
        (x,) = in_graph_of([logits])
        (wanted,) = in_graph_of([basic.cast(labels, dtype_of(x))])
        if axis != -1:
            perm = _axis_last(x, axis)
            x, wanted = array.transpose(x, perm), array.transpose(wanted, perm)
        return _row_losses(
            x, scope, lambda rows: ("SoftmaxCrossEntropyWithLogits", [rows, array.reshape(wanted, basic.shape(rows))])
        )


def sparse_softmax_cross_entropy_with_logits(labels: TensorLike, logits: TensorLike, name: str | None = None) -> Tensor:
    """-log(softmax(logits)) at the classes in *labels*, int32 or int64, with one dimension less.

    >>> show(ax.sparse_softmax_cross_entropy_with_logits(labels=[0], logits=[[0.0, 0.0]]))
    [0.6931]
    """
    with composite(name, "sparse_softmax_cross_entropy_with_logits", [labels, logits]) as scope:
        wanted, x = in_graph_of([labels, logits])
        return _row_losses(
            x, scope, lambda rows: ("SparseSoftmaxCrossEntropyWithLogits", [rows, array.reshape(wanted, [-1])])
        )


def _row_losses(x: Tensor, scope: str, op_of: Callable[[Tensor], tuple[str, list[Tensor]]]) -> Tensor:
    """The losses of a matrix of logits, one a row, in the shape that *x* has without its last dimension."""
    is_matrix = x.shape.rank == 2
    rows = x if is_matrix else array.reshape(x, tensor_op("ConcatV2", [[[-1], basic.shape(x)[-1:]], 0]))
    op, inputs = op_of(rows)
    loss = tensors_op(op, inputs, scope if is_matrix else None)[0]
    if is_matrix:
        return loss
    loss = array.reshape(loss, basic.shape(x)[:-1], scope)
    loss.set_shape(x.shape[:-1])
    return loss


def sigmoid_cross_entropy_with_logits(labels: TensorLike, logits: TensorLike, name: str | None = None) -> Tensor:
    """-labels log(sigmoid(logits)) - (1 - labels) log(1 - sigmoid(logits)), without overflow.

    >>> show(ax.sigmoid_cross_entropy_with_logits(labels=[1.0, 0.0], logits=[0.0, 0.0]))
    [0.6931 0.6931]
    """
    with composite(name, "logistic_loss", [labels, logits]) as scope:
        (x,) = in_graph_of([logits])
        positive = math.maximum(x, 0.0)
        spread = unary.log1p(unary.exp(unary.negative(unary.abs(x))))
        return math.add(math.subtract(positive, math.multiply(x, labels)), spread, scope)


def l2_loss(t: TensorLike, name: str | None = None) -> Tensor:
    """Half the sum of squares, a scalar.

    >>> show(ax.l2_loss([3.0, 4.0]))
    12.5
    """
    return tensor_op("L2Loss", [t], name)


def l2_normalize(x: TensorLike, axis: object = None, epsilon: float = 1e-12, name: str | None = None) -> Tensor:
    """x divided by its Euclidean norm along *axis* (at least sqrt(*epsilon*)).

    >>> show(ax.l2_normalize([3.0, 4.0]))
    [0.6 0.8]
    """
    with composite(name, "l2_normalize", [x]) as scope:
        (tensor,) = in_graph_of([x])
        squares = reduce_sum(unary.square(tensor), axis, keepdims=True)
        return math.multiply(tensor, unary.rsqrt(math.maximum(squares, epsilon)), scope)


def in_top_k(targets: TensorLike, predictions: TensorLike, k: TensorLike, name: str | None = None) -> Tensor:
    """For each row of *predictions* (float32), whether its target class is among its *k* largest values.

    >>> show(ax.in_top_k([1, 0], [[0.1, 0.9], [0.1, 0.9]], 1))
    [ True False]
    """
    with composite(name, "in_top_k", [targets, predictions, k]) as scope:
        (wanted,) = in_graph_of([targets])
        return tensor_op("InTopKV2", [predictions, wanted, basic.cast(k, dtype_of(wanted))], scope)


def bias_add(value: TensorLike, bias: TensorLike, data_format: str = "NHWC", name: str | None = None) -> Tensor:
    """*value* plus the vector *bias* along the channels: the last dimension, or the second with ``"NCHW"``.

    >>> show(ax.bias_add([[1.0, 2.0]], [10.0, 20.0]))
    [[11. 22.]]
    """
    layout = "NCHW" if data_format.startswith("NC") else "NHWC"
    return tensor_op("BiasAdd", [value, bias], name, data_format=layout)


def batch_normalization(
    x: TensorLike,
    mean: TensorLike,
    variance: TensorLike,
    offset: TensorLike | None,
    scale: TensorLike | None,
    variance_epsilon: float,
    name: str | None = None,
) -> Tensor:
    """(x - mean) / sqrt(variance + variance_epsilon) * scale + offset, all broadcast; no offset or scale where None.

    >>> show(ax.batch_normalization([1.0, 3.0], 2.0, 1.0, None, 10.0, 0.0))
    [-10.  10.]
    """
    with composite(name, "batchnorm", [x, mean, variance, offset, scale]) as scope:
        (data,) = in_graph_of([x])
        center, spread = (m if holds_tensor(m) else as_tensor(m, dtype_of(data)) for m in (mean, variance))
        factor = unary.rsqrt(math.add(spread, variance_epsilon))
        if scale is not None:
            factor = math.multiply(factor, scale)
        shift = math.multiply(center, factor)
        shift = unary.negative(shift) if offset is None else math.subtract(offset, shift)
        return math.add(
            math.multiply(data, basic.cast(factor, dtype_of(data))), basic.cast(shift, dtype_of(data)), scope
        )


def layer_norm(
    x: TensorLike,
    scale: TensorLike | None = None,
    offset: TensorLike | None = None,
    axis: object = -1,
    epsilon: float = 1e-5,
    name: str | None = None,
) -> Tensor:
    """*x* normalized to mean 0 and variance 1 over *axis*, then times *scale* plus *offset*.

    >>> show(ax.layer_norm([[1.0, 3.0]], epsilon=0.0))
    [[-1.  1.]]
    """
    with composite(name, "layer_norm", [x, scale, offset]) as scope:
        (data,) = in_graph_of([x])
        mean, variance = moments(data, axis, keepdims=True)
        return batch_normalization(data, mean, variance, offset, scale, epsilon, scope)
