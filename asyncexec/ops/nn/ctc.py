"""CTCLoss and CTCLossV2: how unlikely labels are, given scores for each time, and the gradient of that.

Rules from ``tensorflow/core/ops/ctc_ops.cc``, ``core/kernels/ctc_loss_op.cc`` and
``core/util/ctc/ctc_loss_calculator.h``, after Graves, "Supervised Sequence Labelling with Recurrent Neural Networks",
section 7.3.  All paths through the labels, with a blank before and after each, are summed up forward and backward.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.ops.array.array_common import merge_dim
from asyncexec.ops.math.elementwise import WIDE_FLOATS

_IMPOSSIBLE: Final = -np.inf  # the logarithm of 0
_ATTRS: Final = (
    "preprocess_collapse_repeated: bool = False; ctc_merge_repeated: bool = True; "
    "ignore_longer_outputs_than_inputs: bool = False"
)


def _loss_shape(c: InferenceContext) -> Sequence[TensorShape]:
    inputs, indices, values, lengths = c.with_rank(0, 3), c.with_rank(1, 2), c.vector(2), c.vector(3)
    merge_dim(indices[0], values[0], "the lengths of labels_indices and labels_values")
    batch = merge_dim(inputs[1], lengths[0], "the batch sizes of inputs and sequence_length")
    return [TensorShape([batch]), TensorShape([inputs[0], batch, inputs[2]])]


register_op(
    "CTCLoss",
    "inputs: T, labels_indices: int64, labels_values: int32, sequence_length: int32 -> loss: T, gradient: T",
    f"{_ATTRS}; T: {{float32, float64}} = float32",
    shape=_loss_shape,
)
register_op(
    "CTCLossV2",
    "inputs: float32, labels_indices: int64, labels_values: int32, sequence_length: int32 -> loss: float32,"
    " gradient: float32",
    _ATTRS,
    shape=_loss_shape,
)


@register_kernel("CTCLoss", dtypes={"T": WIDE_FLOATS})
def _ctc_loss(construction: OpKernelConstruction) -> Kernel:
    return _loss_kernel(construction, blank=-1)


@register_kernel("CTCLossV2")
def _ctc_loss_v2(construction: OpKernelConstruction) -> Kernel:
    """The blank is the first class, as in cuDNN, for which TensorFlow made the op."""
    for attr, wanted in (
        ("preprocess_collapse_repeated", False),
        ("ctc_merge_repeated", True),
        ("ignore_longer_outputs_than_inputs", False),
    ):
        if construction.attr(attr) is not wanted:
            raise InvalidArgumentError(f"CTCLossV2 requires {attr} to be {str(wanted).lower()}")
    return _loss_kernel(construction, blank=0)


def _loss_kernel(construction: OpKernelConstruction, blank: int) -> Kernel:
    collapses = construction.attr("preprocess_collapse_repeated")
    merges = construction.attr("ctc_merge_repeated")
    skips_long = construction.attr("ignore_longer_outputs_than_inputs")

    def ctc_loss(inputs: Array, indices: Array, values: Array, lengths: Array) -> tuple[Array, Array]:
        _check(inputs, indices, values, lengths)
        classes = inputs.shape[2]
        labels = _labels_by_batch(indices, values, len(lengths))
        targets = [_target(labels[b], b, collapses, classes, blank % classes) for b in range(len(lengths))]
        for b, label in enumerate(labels):
            if not skips_long and len(label) > lengths[b]:
                raise InvalidArgumentError(
                    f"Not enough time for target transition sequence (required: {len(label)}, available: "
                    f"{lengths[b]}){b}You can turn this error into a warning by using the flag "
                    "ignore_longer_outputs_than_inputs"
                )
        loss, gradient = np.zeros(len(lengths), inputs.dtype), np.zeros_like(inputs)
        for b, length in enumerate(lengths.tolist()):
            if length and not (skips_long and len(labels[b]) > length):
                loss[b], gradient[:length, b] = _loss_of(
                    inputs[:length, b].astype(np.float64), targets[b], blank % classes, merges=merges
                )
        return loss, gradient

    return ctc_loss


def _check(inputs: Array, indices: Array, values: Array, lengths: Array) -> None:
    for name, value, rank, what in (
        ("inputs", inputs, 3, "a 3-Tensor"),
        ("sequence_length", lengths, 1, "a vector"),
        ("labels_indices", indices, 2, "a matrix"),
        ("labels_values", values, 1, "a vector"),
    ):
        if np.ndim(value) != rank:
            raise InvalidArgumentError(f"{name} is not {what}")
    max_time, batch_size, classes = inputs.shape
    if batch_size != len(lengths):
        raise InvalidArgumentError(
            f"len(sequence_length) != batch_size.  len(sequence_length):  {len(lengths)} batch_size: {batch_size}"
        )
    if indices.shape != (len(values), 2):
        raise InvalidArgumentError(
            "labels_indices and labels_values must contain the same number of rows, but saw shapes: "
            f"{TensorShape(indices.shape)} vs. {TensorShape(values.shape)}"
        )
    if not batch_size or not max_time or not classes:
        raise InvalidArgumentError(f"inputs must not be empty, but are of shape {TensorShape(inputs.shape)}")
    for b, length in enumerate(lengths.tolist()):
        if length > max_time:
            raise InvalidArgumentError(f"sequence_length({b}) <= {max_time}")
        if length < 0:
            raise InvalidArgumentError(f"seq_len({b}) < 0")


def _labels_by_batch(indices: Array, values: Array, batch_size: int) -> list[list[int]]:
    """The labels of each of the batch."""
    labels: list[list[int]] = [[] for _ in range(batch_size)]
    former = (-1, -1)
    for row, ((batch, place), value) in enumerate(zip(indices.tolist(), values.tolist(), strict=True)):
        if not 0 <= batch < batch_size or place < 0:
            raise InvalidArgumentError(
                f"label SparseTensor is not valid: indices[{row}] = [{batch},{place}] is out of bounds"
            )
        if (batch, place) <= former:
            what = "repeated" if (batch, place) == former else "out of order"
            raise InvalidArgumentError(f"label SparseTensor is not valid: indices[{row}] = [{batch},{place}] is {what}")
        former = (batch, place)
        labels[batch].append(value)
    return labels


def _target(label: list[int], batch: int, collapses: bool, classes: int, blank: int) -> list[int]:
    """The labels with a blank before each and after all; what follows the last class, which is no label, is dropped."""
    if not label:
        raise InvalidArgumentError(f"Labels length is zero in batch {batch}")
    kept: list[int] = []
    has_ended = False
    for place, value in enumerate(label):
        if collapses and place and value == label[place - 1]:
            continue
        if blank and value >= classes - 1:
            has_ended = True
        elif has_ended:
            raise InvalidArgumentError(
                f"Saw a non-null label (index >= num_classes - 1) following a null label, batch: {batch} num_classes: "
                f"{classes} labels: {','.join(map(str, label))} labels seen so far: {','.join(map(str, kept))}"
            )
        else:
            kept.append(value)
    for value in kept:
        if value < 0:
            raise InvalidArgumentError(
                f"All labels must be nonnegative integers, batch: {batch} labels: {','.join(map(str, kept))}"
            )
        if value >= classes:
            raise InvalidArgumentError(
                f"No label may be greater than num_classes. num_classes: {classes}, batch: {batch} labels: "
                f"{','.join(map(str, kept))}"
            )
    return [blank, *(item for value in kept for item in (value, blank))]


def _loss_of(scores: Array, target: list[int], blank: int, *, merges: bool) -> tuple[object, object]:
    """The loss of one of the batch, and its gradient by time and class."""
    highest = scores.max(axis=1, keepdims=True)
    probabilities = np.exp(scores - highest)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    labels = np.array(target)
    log_of_labels = np.log(probabilities[:, labels])
    # Whether a path may stay at a label, and may come to it past the blank before it.
    may_stay = np.full(len(labels), True) if merges else labels == blank
    may_skip = labels != blank
    may_skip[:2] = False
    if merges:
        may_skip[2:] &= labels[2:] != labels[:-2]
    forward = _sums(log_of_labels, may_stay, may_skip)
    # Backward is forward of what is reversed; a sum there lacks the label that it ends with.
    skips_back = np.concatenate((may_skip[2:], [False, False]))[: len(labels)]
    if not merges:
        skips_back = (labels != blank) & (np.arange(len(labels)) + 2 < len(labels))
    backward = _sums(log_of_labels[::-1, ::-1], may_stay[::-1], skips_back[::-1])[::-1, ::-1] - log_of_labels
    through = forward + np.where(np.isneginf(log_of_labels), _IMPOSSIBLE, backward)
    total = np.logaddexp.reduce(through[0], keepdims=True)[0]
    if total == _IMPOSSIBLE:
        return np.inf, probabilities
    by_class = np.full(scores.shape[::-1], _IMPOSSIBLE)
    np.logaddexp.at(by_class, labels, through.T)
    return -total, probabilities - np.exp(by_class.T - total)


def _sums(log_of_labels: Array, may_stay: Array, may_skip: Array) -> Array:
    """For each time and label, the logarithm of what all paths to it that can still end well add up to."""
    times, count = log_of_labels.shape
    sums = np.full((times, count), _IMPOSSIBLE)
    sums[0, :2] = log_of_labels[0, :2]
    for time in range(1, times):
        first, end = max(0, count - 2 * (times - time)), min(count, 2 * (time + 1))
        former = sums[time - 1]
        step = np.where(may_stay, former, _IMPOSSIBLE)
        step[1:] = np.logaddexp(step[1:], former[:-1])
        step[2:] = np.where(may_skip[2:], np.logaddexp(step[2:], former[:-2]), step[2:])
        sums[time, first:end] = (log_of_labels[time] + step)[first:end]
    return sums
