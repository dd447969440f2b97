"""Losses and what measures predictions (``tensorflow/core/ops/nn_ops.cc``: xent, sparse xent, L2Loss, InTopK)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_function, register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext, broadcast_shapes, scalars
from asyncexec.framework.tensor_shape import Dim, TensorShape
from asyncexec.ops.array.windows import compute_dtype
from asyncexec.ops.nn.activation import FLOATS

_least: Final[Any] = np.minimum.reduce  # in half the time of min(); numpy 2.5 types it with keepdims alone
_most: Final[Any] = np.maximum.reduce


def cross_entropy_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """One loss a row; the gradient has the shape of the logits."""
    shape = broadcast_shapes(c.input(0), c.input(1)).with_rank(2)
    return [TensorShape([shape[0]]), shape]


def sparse_cross_entropy_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """One loss a row; the gradient has the shape of the logits."""
    logits, labels = c.with_rank(0, 2), c.vector(1)
    batch: Dim = TensorShape([logits[0]]).merge_with(labels)[0]
    return [TensorShape([batch]), TensorShape([batch, logits[1]])]


def in_top_k_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """One answer a row."""
    batch = TensorShape([c.with_rank(0, 2)[0]]).merge_with(c.vector(1))
    if c.num_inputs == 3:
        c.scalar(2)
    return [batch]


def _log_sum(logits: Array) -> tuple[Array, Array, Array]:
    """Of each row: the logits less their largest, the exponentials of these, and the sum of the exponentials."""
    shifted = np.subtract(logits, np.maximum.reduce(logits, 1, keepdims=True), order="C")
    exponentials = np.exp(shifted)
    return shifted, exponentials, np.add.reduce(exponentials, 1, keepdims=True)


def cross_entropy(logits: Array, labels: Array) -> tuple[Array, Array]:
    """The cross entropy of each row, and its gradient."""
    if not logits.size:
        return np.zeros(len(logits), logits.dtype), np.zeros(logits.shape, logits.dtype)
    shifted, exponentials, total = _log_sum(logits)
    loss = (labels * (np.log(total) - shifted)).sum(1)
    return loss, exponentials / total - labels


def sparse_cross_entropy(logits: Array, labels: Array) -> tuple[Array, Array]:
    """The cross entropy of each row with all weight on one class, and its gradient."""
    shifted, exponentials, total = _log_sum(logits)
    places = np.arange(0, logits.size, logits.shape[1]) + labels
    loss = np.log(total[:, 0]) - shifted.take(places)
    gradient = np.divide(exponentials, total, exponentials)
    gradient.reshape(-1)[places] -= 1
    return loss, gradient


@register_kernel("SoftmaxCrossEntropyWithLogits")
def make_cross_entropy(op: OpKernelConstruction) -> Kernel:
    """The kernel of SoftmaxCrossEntropyWithLogits."""
    dtype = op.np_dtype("T")
    wide = compute_dtype(dtype)

    def kernel(logits: Array, labels: Array) -> tuple[Array, Array]:
        try:
            logits, labels = np.broadcast_arrays(logits, labels)
        except ValueError:
            raise InvalidArgumentError(
                f"logits and labels must be broadcastable: {list(logits.shape)} vs. {list(labels.shape)}"
            ) from None
        if logits.ndim != 2:
            raise InvalidArgumentError(f"logits and labels must be matrices, not of shape {list(logits.shape)}")
        loss, gradient = cross_entropy(logits.astype(wide, copy=False), labels.astype(wide, copy=False))
        return loss.astype(dtype, copy=False), gradient.astype(dtype, copy=False)

    return kernel


@register_kernel("SparseSoftmaxCrossEntropyWithLogits")
def make_sparse_cross_entropy(op: OpKernelConstruction) -> Kernel:
    """The kernel of SparseSoftmaxCrossEntropyWithLogits."""
    dtype = op.np_dtype("T")
    wide = compute_dtype(dtype)

    def kernel(logits: Array, labels: Array) -> tuple[Array, Array]:
        _check_labels(logits, labels)
        if not logits.size:
            return np.zeros(0, dtype), np.zeros(logits.shape, dtype)
        loss, gradient = sparse_cross_entropy(logits.astype(wide, copy=False), labels)
        return loss.astype(dtype, copy=False), gradient.astype(dtype, copy=False)

    return kernel


def _check_labels(logits: Array, labels: Array) -> None:
    if logits.ndim != 2 or labels.ndim != 1 or len(logits) != len(labels):
        raise InvalidArgumentError(
            "logits must be a matrix with a row for each label, not of shape "
            f"{list(logits.shape)} for labels of shape {list(labels.shape)}"
        )
    classes = logits.shape[1]
    if not classes:
        raise InvalidArgumentError("Must have at least one class, but got logits shape " + str(list(logits.shape)))
    if labels.size and not 0 <= _least(labels) <= _most(labels) < classes:
        outside = labels[(labels < 0) | (labels >= classes)]
        raise InvalidArgumentError(
            f"Received a label value of {outside[0]} which is outside the valid range of [0, {classes})"
        )


@register_kernel("L2Loss")
def make_l2_loss(op: OpKernelConstruction) -> Kernel:
    """The kernel of L2Loss: half the sum of squares."""
    dtype = op.np_dtype("T")
    wide = compute_dtype(dtype)

    def kernel(t: object) -> np.generic:
        flat = np.asarray(t, wide).reshape(-1)
        return dtype.type(np.sum(flat * flat) / 2)

    return kernel


def in_top_k(predictions: Array, targets: Array, k: Any) -> Array:
    """Whether the target class of each row is among its *k* likeliest; no for what is not finite or out of range."""
    if predictions.ndim != 2 or targets.ndim != 1:
        raise InvalidArgumentError(
            f"predictions must be 2-dimensional and targets 1-dimensional, not {list(predictions.shape)} "
            f"and {list(targets.shape)}"
        )
    if len(predictions) != len(targets):
        raise InvalidArgumentError(f"{len(predictions)} predictions do not go with {len(targets)} targets")
    if np.ndim(k):
        raise InvalidArgumentError(f"k must be 0-D, not of shape {list(np.shape(k))}")
    classes = predictions.shape[1]
    if not predictions.size:
        return np.zeros(len(targets), np.bool_)
    inside = (targets >= 0) & (targets < classes)
    score = predictions[np.arange(len(targets)), np.where(inside, targets, 0)]
    ahead = np.count_nonzero(predictions > score[:, None], axis=1)
    found: Array = inside & np.isfinite(predictions).all(1) & (ahead < k)
    return found


@register_kernel("InTopK")
def make_in_top_k(op: OpKernelConstruction) -> Kernel:
    """The kernel of InTopK."""
    k = op.attr("k")
    return lambda predictions, targets: in_top_k(predictions, targets, k)


register_op(
    "SoftmaxCrossEntropyWithLogits",
    "features: T, labels: T -> loss: T, backprop: T",
    FLOATS,
    shape=cross_entropy_shape,
)
register_op(
    "SparseSoftmaxCrossEntropyWithLogits",
    "features: T, labels: Tlabels -> loss: T, backprop: T",
    FLOATS + "; Tlabels: {int32, int64} = int64",
    shape=sparse_cross_entropy_shape,
)
register_op("L2Loss", "t: T -> output: T", FLOATS, shape=scalars)
register_op(
    "InTopK",
    "predictions: float32, targets: T -> precision: bool",
    "k: int; T: {int32, int64} = int32",
    shape=in_top_k_shape,
)
register_op(
    "InTopKV2",
    "predictions: float32, targets: T, k: T -> precision: bool",
    "T: {int32, int64} = int32",
    shape=in_top_k_shape,
)
register_function("InTopKV2", function=in_top_k)
