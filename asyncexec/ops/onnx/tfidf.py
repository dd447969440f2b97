"""TfIdfVectorizer: how often each n-gram of a pool is in each row."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, KernelKind
from asyncexec.ops.onnx.common import as_array, check_shape, refusing
from asyncexec.ops.onnx.onnx_kernels import OnnxNode, onnx_kernel

Gram = tuple[Hashable, ...]


def grams_of_pool(pool: Sequence[Hashable], starts: Sequence[int]) -> Iterator[Gram]:
    """The n-grams of *pool*, in which those of length n begin at ``starts[n - 1]``."""
    ends = [*starts[1:], len(pool)]
    for length, (start, end) in enumerate(zip(starts, ends, strict=True), 1):
        if not 0 <= start <= end <= len(pool) or (end - start) % length:
            raise InvalidArgumentError(f"ngram_counts {list(starts)} do not fit a pool of {len(pool)}")
        for place in range(start, end, length):
            yield tuple(pool[place : place + length])


def grams_of_row(row: Sequence[Hashable], lengths: range, max_skip: int) -> Iterator[Gram]:
    """The n-grams in *row* of each of *lengths*, of neighbours or with up to *max_skip* items between two."""
    for length in lengths:
        for step in range(1, 2 if length == 1 else max_skip + 2):
            span = (length - 1) * step
            if span >= len(row):
                break
            for start in range(len(row) - span):
                yield tuple(row[start : start + span + 1 : step])


@onnx_kernel("TfIdfVectorizer", since=9, kind=KernelKind.EXPENSIVE)
@refusing
def make_tfidf_vectorizer(node: OnnxNode) -> Kernel:
    """The kernel of TfIdfVectorizer."""
    mode, columns = node.text("mode"), node.attr("ngram_indexes", [])
    weights = np.array(node.attr("weights", []), np.float32)
    shortest, longest = node.attr("min_gram_length", 1), node.attr("max_gram_length", 1)
    pool = node.attr("pool_int64s") or node.attr("pool_strings") or []
    starts, max_skip = node.attr("ngram_counts", []), node.attr("max_skip_count", 0)
    grams = list(grams_of_pool(pool, starts))
    lengths = range(max(shortest, 1), min(longest, len(starts)) + 1)  # the pool has no longer ones
    if mode not in ("TF", "IDF", "TFIDF") or len(columns) != len(grams) or min(columns, default=-1) < 0:
        raise InvalidArgumentError(f"mode {mode!r} and {len(columns)} ngram_indexes do not fit {len(grams)} n-grams")
    column_of = dict(zip(grams, columns, strict=True))
    width = max(columns) + 1
    if weights.size and weights.size != len(grams):
        raise InvalidArgumentError(f"{weights.size} weights do not fit {len(grams)} n-grams")
    factors = np.ones(width, np.float32)
    if mode != "TF" and weights.size:
        factors[columns] = weights

    def tfidf_vectorizer(x: Any) -> tuple[Array]:
        x = as_array(x)
        if x.ndim > 2:
            raise InvalidArgumentError(f"the input must be of shape [C] or [N, C], not {list(x.shape)}")
        shape = (*x.shape[:-1], width)
        check_shape(shape, np.dtype(np.float32))
        result = np.zeros((len(x) if x.ndim == 2 else 1, width), np.float32)
        for row, counts in zip(x.reshape(len(result), -1).tolist(), result, strict=True):
            for gram in grams_of_row(row, lengths, max_skip):
                column = column_of.get(gram)
                if column is not None:
                    counts[column] += 1
        if mode == "IDF":
            result = (result > 0).astype(np.float32)
        return ((result * factors).reshape(shape),)

    return tfidf_vectorizer
