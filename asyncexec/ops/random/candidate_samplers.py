"""Candidate samplers: classes beside the true ones, for losses over many classes.

Rules from ``tensorflow/core/ops/candidate_sampling_ops.cc`` and ``core/kernels/candidate_sampler_ops.cc``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError, ResourceExhaustedError
from asyncexec.framework.file_access import named_path
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import TensorShape, unknown_shape
from asyncexec.ops.io.files import read_whole
from asyncexec.ops.random.random_stateful import SEEDS, node_generator
from asyncexec.ops.random.range_samplers import (
    FixedUnigramSampler,
    LogUniformSampler,
    RangeSampler,
    UniformSampler,
    UnigramSampler,
    Words,
    draw_all_different,
)

_WORDS_RESERVED: Final = 2048  # of each candidate
_MAX_CLASSES: Final = 2**28  # that a sampler keeps weights of
_MAX_SAMPLED: Final = 2**28
_LOWEST: Final = np.finfo(np.float32).min

_ARGUMENTS: Final = (
    "true_classes: int64 -> sampled_candidates: int64, true_expected_count: float32, sampled_expected_count: float32"
)
_COUNTS: Final = "num_true: int >= 1; num_sampled: int >= 1; unique: bool"


def _sampler_shape(c: InferenceContext) -> Sequence[TensorShape]:
    rows = c.with_rank(0, 2)[0]
    sampled = TensorShape([c.attr("num_sampled")])
    return [sampled, TensorShape([rows, c.attr("num_true")]), sampled]


def _hits_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.with_rank(0, 2)[1:].merge_with([c.attr("num_true")])
    c.vector(1)
    return [unknown_shape(1)] * 3


for _op in ("Uniform", "LogUniform", "LearnedUnigram", "ThreadUnsafeUnigram"):
    register_op(
        f"{_op}CandidateSampler",
        _ARGUMENTS,
        f"{_COUNTS}; range_max: int >= 1; {SEEDS}",
        is_stateful=True,
        shape=_sampler_shape,
    )
register_op(
    "FixedUnigramCandidateSampler",
    _ARGUMENTS,
    f"{_COUNTS}; range_max: int >= 1; vocab_file: string = ''; distortion: float = 1.0; num_reserved_ids: int = 0; "
    f"num_shards: int >= 1 = 1; shard: int >= 0 = 0; unigrams: list(float) = []; {SEEDS}",
    is_stateful=True,
    touches_outside=True,
    shape=_sampler_shape,
)
register_op("AllCandidateSampler", _ARGUMENTS, f"{_COUNTS}; {SEEDS}", is_stateful=True, shape=_sampler_shape)
register_op(
    "ComputeAccidentalHits",
    "true_classes: int64, sampled_candidates: int64 -> indices: int32, ids: int64, weights: float32",
    f"num_true: int; {SEEDS}",
    shape=_hits_shape,
)


def _expected(probabilities: Array, count: int, num_tries: int) -> Array:
    """How often a class of each probability is expected among the sampled ones."""
    if num_tries == count:
        return probabilities * np.float32(count)
    logarithms = np.log1p(-probabilities.astype(np.float64)).astype(np.float32)
    return -np.expm1((np.float32(num_tries) * logarithms).astype(np.float64)).astype(np.float32)


def _checked_classes(classes: Any, num_true: int, size: int) -> Array:
    if np.ndim(classes) != 2:
        raise InvalidArgumentError(f"true_classes must be a matrix, not of shape {list(np.shape(classes))}")
    if classes.shape[1] != num_true:
        raise InvalidArgumentError(f"true_classes must have {num_true} columns, not {classes.shape[1]}")
    wrong = (classes < 0) | (classes >= size)
    if wrong.any():
        raise InvalidArgumentError(f"`true_candidate` out of range [0, {size}), received {classes[wrong][0]}")
    return classes


def _sampling(construction: OpKernelConstruction, sampler_of: Callable[[], RangeSampler], size: int) -> Kernel:
    num_true, count = construction.attr("num_true"), construction.attr("num_sampled")
    is_unique = construction.attr("unique")
    state = node_generator(construction)
    if is_unique and count > size:
        raise InvalidArgumentError("Sampler's range is too small.", op=construction.op)
    if count > _MAX_SAMPLED:
        raise ResourceExhaustedError(f"{count} candidates take too much memory", op=construction.op)

    def kernel(classes: Array) -> tuple[Any, Array, Array]:
        _checked_classes(classes, num_true, size)
        sampler = sampler_of()
        words = Words(state.reserve(-(-_WORDS_RESERVED * count // 4)))
        if is_unique:
            sampled, num_tries = draw_all_different(sampler, words, count)
        else:
            sampled, num_tries = sampler.draw(words, count), count
        truly, falsely = (_expected(sampler.probabilities(of), count, num_tries) for of in (classes, sampled))
        sampler.learn(classes.reshape(-1))
        return sampled, truly, falsely

    return kernel


@register_kernel("UniformCandidateSampler")
def uniform_candidate_sampler(construction: OpKernelConstruction) -> Kernel:
    """Candidates that are all alike."""
    size = construction.attr("range_max")
    sampler = UniformSampler(size)
    return _sampling(construction, lambda: sampler, size)


@register_kernel("LogUniformCandidateSampler")
def log_uniform_candidate_sampler(construction: OpKernelConstruction) -> Kernel:
    """Candidates by Zipf's law."""
    size = construction.attr("range_max")
    sampler = LogUniformSampler(size)
    return _sampling(construction, lambda: sampler, size)


@register_kernel("LearnedUnigramCandidateSampler", "ThreadUnsafeUnigramCandidateSampler")
def learned_unigram_candidate_sampler(construction: OpKernelConstruction) -> Kernel:
    """Candidates by how often they were true classes in earlier runs."""
    size, manager = construction.attr("range_max"), construction.resource_mgr
    if size > _MAX_CLASSES:
        raise ResourceExhaustedError(f"weights of {size} classes take too much memory", op=construction.op)
    sampler = manager.lookup_or_create(UnigramSampler, "_candidates", construction.name, lambda: UnigramSampler(size))
    return _sampling(construction, lambda: sampler, size)


@register_kernel("FixedUnigramCandidateSampler", is_expensive=True)
def fixed_unigram_candidate_sampler(construction: OpKernelConstruction) -> Kernel:
    """Candidates by the weights of a file, the last column of each line, or of an attr."""
    size, unigrams, vocab_file = (construction.attr(name) for name in ("range_max", "unigrams", "vocab_file"))
    if bool(unigrams) == bool(vocab_file):
        given = "only provide one of vocab_file and" if unigrams else "provide either vocab_file or"
        raise InvalidArgumentError(f"Must {given} unigrams.", op=construction.op)
    if size > _MAX_CLASSES:
        raise ResourceExhaustedError(f"weights of {size} classes take too much memory", op=construction.op)
    if unigrams:
        fixed = FixedUnigramSampler(size, _weights(construction, unigrams))
        return _sampling(construction, lambda: fixed, size)
    found: list[FixedUnigramSampler] = []  # once the file is read

    def sampler() -> RangeSampler:
        if not found:
            path = construction.resource_mgr.files.path(construction.op, named_path(vocab_file))
            found.append(FixedUnigramSampler(size, _weights(construction, _column(read_whole(path)))))
        return found[0]

    return _sampling(construction, sampler, size)


def _column(data: bytes) -> list[float]:
    weights = []
    for number, line in enumerate(data.splitlines()):
        try:
            weights.append(float(line.rpartition(b",")[2]))
        except ValueError:
            raise InvalidArgumentError(f"Wrong vocabulary format at line {number}: {line[:80]!r}") from None
    return weights


def _weights(construction: OpKernelConstruction, unigrams: Sequence[float]) -> Array:
    """The weights of the classes of this shard; reserved ones have none."""
    reserved, shards, shard = (construction.attr(name) for name in ("num_reserved_ids", "num_shards", "shard"))
    if not 0 <= reserved <= construction.attr("range_max") * shards:
        raise InvalidArgumentError(f"num_reserved_ids must be in [0, range_max * num_shards], not {reserved}")
    none = np.zeros(len(range(shard, reserved, shards)), np.float32)
    ids = len(none) + np.arange(len(unigrams))
    mine = np.asarray(unigrams, np.float32)[ids % shards == shard]
    if np.any(~np.isfinite(mine) | (mine < 0)):
        raise InvalidArgumentError(f"weights must be finite and not negative: {mine[~(mine >= 0)][:4].tolist()}")
    distortion = np.float32(construction.attr("distortion"))
    weights = np.array([math.pow(weight, distortion) if weight or distortion > 0 else 0.0 for weight in mine.tolist()])
    if not weights.any():
        raise InvalidArgumentError("all weights are 0")
    return np.concatenate([none, weights.astype(np.float32)])


@register_kernel("AllCandidateSampler")
def all_candidate_sampler(construction: OpKernelConstruction) -> Kernel:
    """All classes."""
    num_true, count = construction.attr("num_true"), construction.attr("num_sampled")
    if count > _MAX_SAMPLED:
        raise ResourceExhaustedError(f"{count} candidates take too much memory", op=construction.op)

    def kernel(classes: object) -> tuple[Any, object, object]:
        ones = np.ones(_checked_classes(classes, num_true, count).shape, np.float32)
        return np.arange(count, dtype=np.int64), ones, np.ones(count, np.float32)

    return kernel


@register_kernel("ComputeAccidentalHits")
def compute_accidental_hits(construction: OpKernelConstruction) -> Kernel:
    """Where true classes are among the sampled ones, with weights that take them out of a softmax."""
    num_true = construction.attr("num_true")

    def kernel(classes: Array, sampled: Array) -> tuple[Any, object, object]:
        if np.ndim(classes) != 2 or classes.shape[1] != num_true:
            raise InvalidArgumentError(
                f"true_candidates must be a batch_size * num_true matrix, not of shape {list(np.shape(classes))}"
            )
        if np.ndim(sampled) != 1:
            raise InvalidArgumentError(f"sampled_candidates must be a vector, not of shape {list(np.shape(sampled))}")
        order = np.argsort(sampled, kind="stable")
        flat = classes.reshape(-1)
        ends = np.searchsorted(sampled[order], flat, side="right")
        places = order[np.maximum(ends - 1, 0)] if len(order) else np.zeros(len(flat), np.int64)
        hits = np.flatnonzero(ends > 0)
        hits = hits[sampled[places[hits]] == flat[hits]]
        weights = np.full(len(hits), _LOWEST)
        return (hits // max(1, num_true)).astype(np.int32), places[hits].astype(np.int64), weights

    return kernel
