"""CTCGreedyDecoder and CTCBeamSearchDecoder: the labels that scores for each time tell of.

Rules from ``tensorflow/core/ops/ctc_ops.cc``, ``core/kernels/ctc_decoder_ops.cc`` and
``core/util/ctc/ctc_beam_search.h``.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.cancellation import raise_if_cancelled
from asyncexec.framework.errors import FailedPreconditionError, InvalidArgumentError
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.ops.array.array_common import merge_dim
from asyncexec.ops.math.elementwise import WIDE_FLOATS
from asyncexec.process.free_memory import check_room

_IMPOSSIBLE: Final = -math.inf  # the logarithm of 0
_ENTRY_BYTES: Final = 600  # of an entry of a beam, with its numbers and its places in the tree and in the heap
_PART: Final = 2**18  # entries that room is asked for at once


def _decoder_shape(c: InferenceContext) -> Sequence[TensorShape]:
    inputs, lengths = c.with_rank(0, 3), c.vector(1)
    batch = merge_dim(inputs[1], lengths[0], "the batch sizes of inputs and sequence_length")
    paths = c.attr("top_paths") if c.op_def.name == "CTCBeamSearchDecoder" else 1
    return [
        *[TensorShape([None, 2])] * paths,
        *[TensorShape([None])] * paths,
        *[TensorShape([2])] * paths,
        TensorShape([batch, paths]),
    ]


register_op(
    "CTCGreedyDecoder",
    "inputs: T, sequence_length: int32 -> decoded_indices: int64, decoded_values: int64, decoded_shape: int64,"
    " log_probability: T",
    "merge_repeated: bool = False; blank_index: int = -1; T: {float32, float64} = float32",
    shape=_decoder_shape,
)
register_op(
    "CTCBeamSearchDecoder",
    "inputs: T, sequence_length: int32 -> decoded_indices: top_paths * int64, decoded_values: top_paths * int64,"
    " decoded_shape: top_paths * int64, log_probability: T",
    "beam_width: int >= 1; top_paths: int >= 1; merge_repeated: bool = True; T: {float32, float64} = float32",
    shape=_decoder_shape,
)


def _check(inputs: Array, lengths: Array) -> None:
    if np.ndim(inputs) != 3:
        raise InvalidArgumentError("inputs is not a 3-Tensor")
    if not inputs.size:
        raise InvalidArgumentError("inputs must not be empty")
    if np.ndim(lengths) != 1:
        raise InvalidArgumentError("sequence_length is not a vector")
    max_time, batch_size, _ = inputs.shape
    if len(lengths) != batch_size:
        raise FailedPreconditionError(
            f"len(sequence_length) != batch_size.  len(sequence_length):  {len(lengths)} batch_size: {batch_size}"
        )
    for b, length in enumerate(lengths.tolist()):
        if length > max_time:
            raise FailedPreconditionError(f"sequence_length({b}) <= {max_time}")


def _sparse(sequences: Sequence[Sequence[int]]) -> tuple[Array, Array, Array]:
    """Sequences, one a row, as a sparse matrix."""
    lengths = [len(sequence) for sequence in sequences]
    indices = np.empty((sum(lengths), 2), np.int64)
    indices[:, 0] = np.repeat(np.arange(len(lengths)), lengths)
    indices[:, 1] = np.concatenate([np.arange(length) for length in lengths])
    values = np.array([label for sequence in sequences for label in sequence], np.int64)
    return indices, values, np.array([len(lengths), max(lengths)], np.int64)


@register_kernel("CTCGreedyDecoder", dtypes={"T": WIDE_FLOATS})
def _greedy_decoder(construction: OpKernelConstruction) -> Kernel:
    merges, blank_index = construction.attr("merge_repeated"), construction.attr("blank_index")

    def decode(inputs: Array, lengths: Array) -> tuple[Array, ...]:
        _check(inputs, lengths)
        classes = inputs.shape[2]
        blank = classes + blank_index if blank_index < 0 else blank_index
        if not 0 <= blank < classes:
            raise InvalidArgumentError(
                f"blank_index expected to be between {-classes} and {classes - 1} but was {blank_index}"
            )
        best = inputs.argmax(axis=2)
        within = np.arange(len(inputs))[:, None] < lengths
        kept = within & (best != blank)
        if merges:
            kept[1:] &= best[1:] != best[:-1]
        score = np.where(within, -inputs.max(axis=2), 0).sum(axis=0, dtype=inputs.dtype)
        sequences = [best[kept[:, b], b].tolist() for b in range(len(lengths))]
        return *_sparse(sequences), score[:, None]

    return decode


class _Entry:
    """A sequence of labels: its last one after those of its parent, and the logarithms of how likely it is.

    ``total`` is that of all paths to it, ``blank`` of those that end in a blank, ``label`` of those that do not; the
    ``old`` ones are of the time before.  It is in the beam unless its total is impossible.
    """

    __slots__ = ("blank", "children", "label", "last", "old_blank", "old_total", "parent", "total")

    def __init__(self, parent: _Entry | None, last: int) -> None:
        self.parent = parent
        self.last = last
        self.children: dict[int, _Entry] = {}
        self.total = self.blank = self.label = self.old_total = self.old_blank = _IMPOSSIBLE

    def clear(self) -> None:
        self.total = self.blank = self.label = _IMPOSSIBLE

    def labels(self, *, merges: bool) -> list[int]:
        """The sequence."""
        labels: list[int] = []
        entry, former = self, -1
        while entry.parent is not None:
            if not merges or entry.last != former:
                labels.append(entry.last)
            entry, former = entry.parent, entry.last
        return labels[::-1]


def _log_sum(a: float, b: float) -> float:
    if a == _IMPOSSIBLE or b == _IMPOSSIBLE:
        return max(a, b)
    return max(a, b) + math.log1p(math.exp(-abs(a - b)))


class _Beam:
    """The sequences that are most likely so far, at most *width*."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._leaves: list[tuple[float, int, _Entry]] = []  # a heap
        self._pushes = self._made = 0
        self._root = root = _Entry(None, -1)
        root.total = root.blank = 0.0
        self._push(root)

    def release(self) -> None:
        """Cut the tree, whose entries hold each other: else the garbage collector would have to find them."""
        entries = [self._root]
        while entries:
            children = entries.pop().children
            entries += children.values()
            children.clear()

    def _push(self, entry: _Entry) -> None:
        """Let *entry* in, and the least likely one out when there are too many."""
        self._pushes += 1
        if not self._pushes % 1024:
            raise_if_cancelled()
        item = (entry.total, -self._pushes, entry)
        if len(self._leaves) < self._width:
            heapq.heappush(self._leaves, item)
        elif item > self._leaves[0]:
            heapq.heapreplace(self._leaves, item)[2].clear()

    def entries(self) -> list[_Entry]:
        """The most likely first."""
        return [entry for _, _, entry in sorted(self._leaves, reverse=True)]

    def step(self, scores: Array) -> None:
        """Go on by one time, given the logarithms of the likelihoods of the labels and, last, of the blank."""
        *by_label, of_blank = scores.tolist()
        branches, self._leaves = self.entries(), []
        for entry in branches:
            entry.old_total, entry.old_blank = entry.total, entry.blank
        for entry in branches:
            parent = entry.parent
            if parent is not None:
                if parent.total != _IMPOSSIBLE:
                    former = parent.old_blank if entry.last == parent.last else parent.old_total
                    entry.label = _log_sum(entry.label, former)
                entry.label += by_label[entry.last]
            entry.blank = entry.old_total + of_blank
            entry.total = _log_sum(entry.blank, entry.label)
            self._push(entry)
        for entry in branches:
            if entry.old_total > self._least():
                self._grow(entry, scores[:-1])

    def _least(self) -> float:
        """How likely a new entry has to be at least."""
        return _IMPOSSIBLE if len(self._leaves) < self._width else self._leaves[0][0]

    def _grow(self, entry: _Entry, scores: Array) -> None:
        """Let in the children of *entry* that are likely enough."""
        totals = scores + entry.old_total
        if entry.last >= 0:
            totals[entry.last] = scores[entry.last] + entry.old_blank
        for label in np.flatnonzero(totals > self._least()).tolist():
            child = entry.children.get(label)
            if child is None:
                if not self._made % _PART and self._made:
                    check_room(_PART * _ENTRY_BYTES, "the beam grows by", self._made * _ENTRY_BYTES)
                self._made += 1
                child = entry.children[label] = _Entry(entry, label)
            total = float(totals[label])
            if child.total == _IMPOSSIBLE and total > self._least():
                child.total, child.blank, child.label = total, _IMPOSSIBLE, total
                self._push(child)


@register_kernel("CTCBeamSearchDecoder", kind=KernelKind.EXPENSIVE, dtypes={"T": WIDE_FLOATS})
def _beam_search_decoder(construction: OpKernelConstruction) -> Kernel:
    width, paths = construction.attr("beam_width"), construction.attr("top_paths")
    merges = construction.attr("merge_repeated")

    def decode(inputs: Array, lengths: Array) -> tuple[Array, ...]:
        _check(inputs, lengths)
        if paths > width:
            raise InvalidArgumentError("requested more paths than the beam width.")
        scores = inputs.astype(np.float64)
        scores -= scores.max(axis=2, keepdims=True)
        scores -= np.log(np.exp(scores).sum(axis=2, keepdims=True))
        likelihoods = np.empty((len(lengths), paths), inputs.dtype)
        sequences: list[list[list[int]]] = [[] for _ in range(paths)]
        for b, length in enumerate(lengths.tolist()):
            beam = _Beam(width)
            try:
                for time in range(length):
                    beam.step(scores[time, b])
                best = beam.entries()[:paths]
                if len(best) < paths:
                    raise InvalidArgumentError("Less leaves in the beam search than requested.")
                likelihoods[b] = [entry.total for entry in best]
                for path, entry in enumerate(best):
                    sequences[path].append(entry.labels(merges=merges))
            finally:
                beam.release()
        decoded = [_sparse(path) for path in sequences]
        indices, values, shapes = zip(*decoded, strict=True)
        return *indices, *values, *shapes, likelihoods

    return decode
