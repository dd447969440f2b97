"""Samplers of classes, by the words of a Philox stream, as in ``tensorflow/core/kernels/range_sampler.cc``.

A sampler takes as many words as its rejections want, so the words come in bulk from a ``Words``, in their order.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.ops.random.philox import Philox, blocks
from asyncexec.ops.random.random_distributions import each_of, unit_doubles_of, unit_floats_of

_MAX_TRIES: Final = 1 << 26  # for classes that are all different


class Words:
    """The words of a stream, one after another."""

    def __init__(self, generator: Philox) -> None:
        self._generator = generator
        self._rest = np.empty(0, np.uint32)

    def take(self, count: int) -> Any:
        """The next *count* words."""
        missing = -(-(count - len(self._rest)) // 4)
        if missing > 0:
            self._rest = np.concatenate([self._rest, blocks(self._generator, missing).reshape(-1)])
            self._generator = self._generator.skip(missing)
        taken, self._rest = self._rest[:count], self._rest[count:]
        return taken


def _least(limit: int, bits: int) -> int:
    """Below this a random number of so many bits is drawn again, so that the remainders by *limit* are uniform."""
    return 0 if limit & (limit - 1) == 0 else ((1 << bits) - 1) % limit + 1


def uniform_ints(words: Words, count: int, limit: int, *, is_wide: bool) -> Array:
    """*count* integers in [0, limit), of one word each or, when *is_wide*, two."""
    width = 2 if is_wide else 1
    least, found = _least(limit, 32 * width), np.empty(0, np.uint64)
    while len(found) < count:
        drawn = words.take(width * (count - len(found))).astype(np.uint64)
        if is_wide:
            drawn = drawn[::2] | drawn[1::2] << np.uint64(32)
        found = np.concatenate([found, drawn[drawn >= np.uint64(least)]])
    return (found % np.uint64(limit)).astype(np.int64)


class RangeSampler(ABC):
    """Draws classes of [0, size)."""

    def __init__(self, size: int) -> None:
        self.size: int = size

    @abstractmethod
    def draw(self, words: Words, count: int) -> Any:
        """*count* classes."""

    @abstractmethod
    def probabilities(self, classes: Any) -> Any:
        """The probability of each of *classes* (float32)."""

    def learn(self, classes: Any) -> None:  # noqa: B027 - most do not
        """Take in what the true classes are."""

    def num_possible(self) -> int:
        """How many classes may be drawn at all."""
        return self.size


class UniformSampler(RangeSampler):
    """Every class alike."""

    def draw(self, words: Words, count: int) -> Any:
        return uniform_ints(words, count, self.size, is_wide=True)

    def probabilities(self, classes: Array) -> Array:
        return np.full(np.shape(classes), np.float32(1.0 / self.size))


class LogUniformSampler(RangeSampler):
    """Class k by log((k + 2) / (k + 1)): classes are in the order of their frequency."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self._log_size = math.log1p(size)

    def draw(self, words: Words, count: int) -> Any:
        doubles = unit_doubles_of(words.take(2 * count).reshape(-1, 2))
        return (each_of(math.exp, doubles * self._log_size).astype(np.int64) - 1) % self.size

    def probabilities(self, classes: Array) -> Array:
        return (each_of(math.log, (classes + 2.0) / (classes + 1.0)) / self._log_size).astype(np.float32)


class UnigramSampler(RangeSampler):
    """By how often each class was a true one so far, and once more."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self._lock = Lock()
        self._weights = np.ones(size, np.int64)
        self._sums = np.cumsum(self._weights)

    def draw(self, words: Words, count: int) -> Any:
        sums = self._sums
        return np.searchsorted(sums, uniform_ints(words, count, int(sums[-1]), is_wide=False), side="right")

    def probabilities(self, classes: Array) -> Array:
        return self._weights[classes].astype(np.float32) / np.float32(self._sums[-1])

    def learn(self, classes: Array) -> None:
        with self._lock:
            weights = self._weights.copy()
            np.add.at(weights, classes[: max(0, 2**31 - 1 - int(self._sums[-1]))], 1)
            self._weights, self._sums = weights, np.cumsum(weights)

    def to_state(self) -> tuple[Mapping[str, object], Sequence[object]]:
        """What a checkpoint holds of it."""
        return {}, [self._weights]

    def from_state(self, about: Mapping[str, object], values: Sequence[Any]) -> None:
        """Have learned what ``to_state`` gave."""
        (weights,) = values
        with self._lock:
            self._weights, self._sums = weights, np.cumsum(weights)


class FixedUnigramSampler(RangeSampler):
    """By given weights, with Walker's method of aliases: each class shares its part of the line with one other."""

    def __init__(self, size: int, weights: Array) -> None:
        if len(weights) != size:
            raise InvalidArgumentError(f"range is {size}, must be equal to weights size  {len(weights)}")
        super().__init__(size)
        self._weights = weights
        self._total = np.add.accumulate(weights)[-1]  # one after another, in float32
        self._parts, self._others = _aliases(weights)

    def draw(self, words: Words, count: int) -> Any:
        least = np.uint32(_least(self.size, 32))
        pairs = words.take(2 * count)
        while (bad := np.flatnonzero(pairs[1::2] < least)).size:
            pairs = np.concatenate([np.delete(pairs, 2 * bad[0] + 1), words.take(1)])
        floats, places = unit_floats_of(pairs[::2]), pairs[1::2] % np.uint32(self.size)
        return np.where(floats < self._parts[places], places, self._others[places]).astype(np.int64)

    def probabilities(self, classes: Array) -> Array:
        return self._weights[classes] / self._total

    def num_possible(self) -> int:
        return int(np.count_nonzero(self._weights))


def _aliases(weights: Array) -> tuple[Array, Array]:
    """The part of each class that is its own, and which other one has the rest."""
    count = len(weights)
    parts: list[float] = ((weights * np.float32(count)).astype(np.float64) / weights.astype(np.float64).sum()).tolist()
    others = [-1] * count
    low = [index for index, part in enumerate(parts) if part < 1]
    high = [index for index, part in enumerate(parts) if not part < 1]
    while high and low:
        small, large = low.pop(), high.pop()
        others[small] = large
        parts[large] -= 1.0 - parts[small]
        (low if parts[large] < 1 else high).append(large)
    for index in (*high, *low):
        parts[index], others[index] = 1.0, index
    return np.array(parts, np.float32), np.array(others, np.int64)


def draw_all_different(sampler: RangeSampler, words: Words, count: int) -> tuple[Array | int, int]:
    """*count* different classes, in the order in which they came first, and how many draws it took."""
    if count > sampler.num_possible():
        raise InvalidArgumentError(f"{count} different classes are asked for of {sampler.num_possible()}")
    drawn = np.empty(0, np.int64)
    while len(drawn) < _MAX_TRIES:
        drawn = np.concatenate([drawn, sampler.draw(words, max(count, len(drawn)))])
        _, firsts = np.unique(drawn, return_index=True)
        if len(firsts) >= count:
            places = np.sort(firsts)[:count]
            return drawn[places], int(places[-1]) + 1
    raise InvalidArgumentError(f"{count} different classes have not been found in {_MAX_TRIES} draws")
