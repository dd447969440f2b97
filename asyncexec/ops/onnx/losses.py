"""NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss."""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.kernel import Kernel
from asyncexec.ops.onnx.activations import log_softmax
from asyncexec.ops.onnx.arrays import need, need_shape, wide
from asyncexec.ops.onnx.onnx_kernels import OnnxNode, onnx_kernel


def _reduction(node: OnnxNode) -> str:
    reduction = node.text("reduction", "mean")
    need(reduction in ("none", "mean", "sum"), f"reduction must be none, mean or sum, not {reduction!r}")
    return reduction


def _loss(log_prob: Array, target: Array, weight: object, reduction: str, ignored: int | None) -> Array:
    """The negative of what *log_prob* [batch, classes, ...] has for the classes in *target*, weighted."""
    need(log_prob.ndim >= 2, f"the input must have batch and classes, not shape {list(log_prob.shape)}")
    need_shape(target, (len(log_prob), *log_prob.shape[2:]), "target")
    classes = log_prob.shape[1]
    if weight is not None:
        need_shape(weight, (classes,), "weight")
    counts = np.ones(target.shape, np.bool_) if ignored is None else target != ignored
    labels = np.where(counts, target, 0)
    need(
        not labels.size or not counts.any() or (labels.min() >= 0 and labels.max() < classes),
        f"a class of target is none of {classes}",
    )
    if not classes:
        picked = np.zeros(target.shape, log_prob.dtype)
    else:
        picked = -np.take_along_axis(log_prob, np.expand_dims(labels, 1), 1)[:, 0]
    factors = counts.astype(log_prob.dtype) if weight is None else np.where(counts, wide(weight)[labels], 0)
    loss = np.where(counts, picked * factors, 0).astype(log_prob.dtype, copy=False)
    if reduction == "none":
        return loss
    total = loss.sum()
    return np.asarray(total if reduction == "sum" else total / factors.sum(dtype=log_prob.dtype))


@onnx_kernel("NegativeLogLikelihoodLoss", since=12)
def make_negative_log_likelihood_loss(node: OnnxNode) -> Kernel:
    """The kernel of NegativeLogLikelihoodLoss."""
    reduction, ignored = _reduction(node), node.attr("ignore_index")
    return lambda x, target, weight=None: (_loss(wide(x), target, weight, reduction, ignored).astype(x.dtype),)


@onnx_kernel("SoftmaxCrossEntropyLoss", since=12)
def make_softmax_cross_entropy_loss(node: OnnxNode) -> Kernel:
    """The kernel of SoftmaxCrossEntropyLoss, with the logarithms of the probabilities where the node asks for them."""
    reduction, ignored = _reduction(node), node.attr("ignore_index")

    def kernel(scores: Array, labels: Array, weight: object = None) -> tuple[Any, ...]:
        need(scores.ndim >= 2, f"scores must have batch and classes, not shape {list(scores.shape)}")
        log_prob = log_softmax(wide(scores), 1)
        loss = _loss(log_prob, labels, weight, reduction, ignored)
        return (loss.astype(scores.dtype), log_prob.astype(scores.dtype, copy=False))[: node.num_outputs]

    return kernel
