"""EditDistance: how far sequences are from the true ones (``tensorflow/core/kernels/edit_distance_op.cc``)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InternalError, InvalidArgumentError
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, TensorShape
from asyncexec.ops.array.array_common import POD_STRING, check_memory
from asyncexec.ops.sparse.sparse_tensor import check_sparse, run_starts

# The sequences of a sparse tensor, by the indices of all dimensions but the last.
_Sequences = dict[tuple[int, ...], Any]


def _shape(c: InferenceContext) -> Sequence[TensorShape]:
    for place in (0, 3):
        c.with_rank(place, 2)
        c.vector(place + 1)
        c.vector(place + 2)
    hypothesis, truth = c.value_as_shape(2), c.value_as_shape(5)
    if hypothesis.dims is None or truth.dims is None:
        return [UNKNOWN_SHAPE]
    if len(hypothesis.dims) != len(truth.dims):
        raise InvalidArgumentError(f"Expected truth and hypothesis to have matching ranks: {truth} and {hypothesis}")
    pairs = zip(hypothesis.dims[:-1], truth.dims[:-1], strict=True)
    return [TensorShape([None if one is None or other is None else max(one, other) for one, other in pairs])]


register_op(
    "EditDistance",
    "hypothesis_indices: int64, hypothesis_values: T, hypothesis_shape: int64,"
    " truth_indices: int64, truth_values: T, truth_shape: int64 -> output: float32",
    "normalize: bool = True; T: type",
    shape=_shape,
)


@register_kernel("EditDistance", dtypes={"T": POD_STRING}, kind=KernelKind.EXPENSIVE)
def edit_distance(c: OpKernelConstruction) -> Kernel:
    """How many insertions, deletions and replacements there are, or how many for each element of the truth."""
    normalizes = c.attr("normalize")

    def kernel(*inputs: Array) -> Array:
        hypothesis, truth = inputs[:3], inputs[3:]
        for what, parts in (("hypothesis", hypothesis), ("truth", truth)):
            check_sparse(parts[0], parts[1], parts[2], what)
        if len(truth[2]) < 2 or len(truth[2]) != len(hypothesis[2]):
            raise InvalidArgumentError(
                "Expected truth and hypothesis of one rank, at least 2, but their shapes are: "
                f"{truth[2].tolist()} and {hypothesis[2].tolist()}"
            )
        shape = np.maximum(hypothesis[2], truth[2])[:-1].tolist()
        check_memory(shape, np.dtype(np.float32))
        found = np.zeros(shape, np.float32)
        guesses, truths = _sequences(*hypothesis[:2]), _sequences(*truth[:2])
        for place in {**guesses, **truths}:
            if any(not 0 <= index < size for index, size in zip(place, shape, strict=True)):
                raise InternalError(f"a sequence at {list(place)} is outside of the output of shape {shape}")
            found[place] = _distance_at(guesses.get(place), truths.get(place), normalizes)
        return found

    return kernel


def _sequences(indices: Array, values: Array) -> _Sequences:
    rows = indices[:, :-1]
    starts = run_starts(rows)
    ends = [*starts.tolist(), len(rows)]
    return {tuple(rows[begin].tolist()): values[begin:end] for begin, end in pairwise(ends)}


def _distance_at(guess: Any, truth: Array | None, normalizes: bool) -> float:
    if truth is None:
        return float("inf") if normalizes else len(guess)
    if guess is None:
        return 1 if normalizes else len(truth)
    distance = levenshtein(truth, guess)
    return distance / len(truth) if normalizes else distance


def levenshtein(one: Array, other: Array) -> int:
    """The distance of two vectors, a row of the table at a time: what a row gets by insertions is a running minimum."""
    steps = np.arange(len(one) + 1)
    row = steps
    for item in other:
        with_replacement = row[:-1] + np.asarray(one != item, np.int64)
        best = np.minimum(row[1:] + 1, with_replacement)
        row = np.minimum.accumulate(np.concatenate(([row[0] + 1], best)) - steps) + steps
    return int(row[-1])
