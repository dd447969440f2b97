"""Permutations and crops: StatelessShuffle, RandomIndexShuffle, RandomCrop.

RandomIndexShuffle permutes without a table: a block cipher of the index, asked again as long as it gives more than the
largest index.  The cipher is Simon with a few rounds (R. Beaulieu and others, "The Simon and Speck families of
lightweight block ciphers", 2013), as in ``tensorflow/core/kernels/random_index_shuffle.cc``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import FailedPreconditionError, InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction, as_value
from asyncexec.framework.kernel_registry import register_function, register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import SCALAR, TensorShape, unknown_shape
from asyncexec.ops.array.array_common import unique_rows
from asyncexec.ops.random.philox import Philox, block
from asyncexec.ops.random.random_stateful import SEEDS, node_generator, shuffled
from asyncexec.ops.random.random_stateless import generator_of_key

_INT: Final = "{int32, int64, uint32, uint64}"
_SEQUENCE: Final = 0x7369F885192C0EF5  # of bits, one for each round key
_LEAST_BLOCK: Final = 16  # bits; a smaller cipher shuffles badly
_MOST_ROUNDS: Final = 1024  # the cipher was made for 32 to 72; each takes time and memory for each index
_SMALL: Final = 1 << 14  # largest indices below this are far below what the cipher gives


def _shuffle_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.vector(1).merge_with([1])
    c.vector(2)
    c.scalar(3)
    return [c.input(0)]


def _index_shape(c: InferenceContext) -> Sequence[TensorShape]:
    index, seed, largest = c.input(0), c.input(1), c.input(2)
    if index.rank == 0 and seed.rank == 1 and largest.rank == 0:
        return [SCALAR]
    if index.rank is None or seed.rank is None or largest.rank is None:
        return [TensorShape(None)]
    return [unknown_shape(1)]


register_op(
    "StatelessShuffle",
    "value: T, key: uint64, counter: uint64, alg: int32 -> output: T",
    "T: type",
    shape=_shuffle_shape,
)
register_op(
    "RandomIndexShuffle",
    "index: dtype, seed: Tseed, max_index: dtype -> output: dtype",
    f"rounds: int = 4; dtype: {_INT}; Tseed: {_INT}",
    shape=_index_shape,
)
register_op(
    "RandomCrop",
    "image: T, size: int64 -> output: T",
    f"T: {{float32, float64, int16, int32, int64, int8, uint8}}; {SEEDS}",
    is_stateful=True,
    shape=lambda c: [c.value_as_shape(1).concatenate([c.with_rank(0, 3)[2]])],
)


def _stateless_shuffle(value: object, key: object, counter: object, alg: object) -> object:
    generator = generator_of_key(key, counter, alg)
    return shuffled(value, lambda _: generator)


register_function("StatelessShuffle", function=_stateless_shuffle)


@register_kernel("RandomIndexShuffle")
def random_index_shuffle(construction: OpKernelConstruction) -> Kernel:
    """Where each index comes to in a random permutation of those up to *max_index*."""
    rounds, dtype = construction.attr("rounds"), construction.np_dtype("dtype")
    if not 4 <= rounds <= _MOST_ROUNDS or rounds % 2:
        raise InvalidArgumentError(f"rounds must be even, at least 4 and at most {_MOST_ROUNDS}, not {rounds}")

    def kernel(index: Any, seed: Array, largest: ArrayOrScalar) -> ArrayOrScalar:
        count = max(np.size(index), np.size(largest), np.size(seed) // 3)
        _check_index(index, seed, largest, count)
        keys = np.broadcast_to(np.asarray(seed), (count, 3)).astype(np.uint32).astype(np.uint64)
        tops = np.broadcast_to(np.asarray(largest).astype(np.uint64), count)
        found = np.broadcast_to(np.asarray(index).astype(np.uint64), count).copy()
        for top in set(tops.tolist()):
            rows = np.flatnonzero(tops == top)
            found[rows] = _shuffled_indices(found[rows], keys[rows], top, rounds)
        is_scalar = np.ndim(index) == 0 and np.ndim(seed) == 1 and np.ndim(largest) == 0
        result = found.astype(dtype)
        return as_value(result.reshape(())) if is_scalar else result

    return kernel


def _check_index(index: Any, seed: Array, largest: ArrayOrScalar, count: int) -> None:
    for name, value in (("Index", index), ("Maxval", largest)):
        if np.shape(value) not in ((), (count,)):
            raise InvalidArgumentError(
                f"{name} must be a scalar or a vector of {count}, but is of shape {list(np.shape(value))}"
            )
    if np.shape(seed) not in ((3,), (count, 3)):
        raise InvalidArgumentError(
            f"Seed must be a vector of size [3] or a matrix of size [{count}, 3] but got {list(np.shape(seed))}"
        )
    for name, value in (("index", index), ("max_index", largest)):
        if np.any(np.asarray(value) < 0):
            raise InvalidArgumentError(f"{name} must be >= 0 but was {np.min(value)}")
    if np.any(np.asarray(index) > np.asarray(largest)):
        raise InvalidArgumentError(f"max_index must be >= index, but {np.min(largest)} < {np.max(index)}")


def _shuffled_indices(indices: Array, keys: Array, top: int, rounds: int) -> Array:
    """Where *indices* come to among those up to *top*, each with its own keys."""
    if top == 0:
        return np.zeros_like(indices)
    bits = math.ceil(math.log2(top))
    width = min(64, max(bits + bits % 2, _LEAST_BLOCK)) // 2
    if top < _SMALL:
        return _looked_up(indices, keys, top, rounds)
    schedule = _key_schedule(keys, width, rounds)
    result, open_rows = indices.copy(), np.arange(len(indices))
    while len(open_rows):
        result[open_rows] = _encrypted(result[open_rows], [key[open_rows] for key in schedule], width)
        open_rows = open_rows[result[open_rows] > np.uint64(top)]
    return result


def _looked_up(indices: Array, keys: Array, top: int, rounds: int) -> Array:
    """The same by a table of the whole cipher, as an index may take tens of thousands of rounds to come below *top*."""
    result = np.empty_like(indices)
    different, kinds = unique_rows(keys)
    for kind, key in enumerate(different):
        schedule = _key_schedule(key[None], _LEAST_BLOCK // 2, rounds)
        table = _encrypted(np.arange(1 << _LEAST_BLOCK, dtype=np.uint64), schedule, _LEAST_BLOCK // 2)
        for _ in range(_LEAST_BLOCK):  # each goes on twice as far as the one before
            table = np.where(table > np.uint64(top), table[table], table)
        rows = kinds == kind
        result[rows] = table[indices[rows]]
    return result


def _rotated_left(x: Any, by: int, width: int) -> Array:
    return ((x << np.uint64(by)) | (x >> np.uint64(width - by))) & np.uint64((1 << width) - 1)


def _key_schedule(keys: Array, width: int, rounds: int) -> list[Array]:
    """The key of each round, for each row."""
    mask = np.uint64((1 << width) - 1)
    constant, bits = np.uint64(0xFFFFFFFC) & mask, _SEQUENCE & int(mask)
    schedule: list[Array] = [keys[:, column] & mask for column in range(3)]
    for number in range(3, rounds):
        last = schedule[number - 1]
        turned = _rotated_left(last, width - 3, width) ^ _rotated_left(last, width - 4, width)
        schedule.append(constant ^ np.uint64(bits & 1) ^ schedule[number - 3] ^ turned)
        bits >>= 1
    return schedule


def _encrypted(values: Array, schedule: Sequence[Array], width: int) -> Array:
    mask = np.uint64((1 << width) - 1)
    left, right = (values >> np.uint64(width)) & mask, values & mask
    for first, second in zip(schedule[::2], schedule[1::2], strict=True):
        left = left ^ _mixed(right, width) ^ first
        right = right ^ _mixed(left, width) ^ second
    return (left << np.uint64(width)) | right


def _mixed(x: object, width: int) -> Any:
    return (_rotated_left(x, 1, width) & _rotated_left(x, 8 % width, width)) ^ _rotated_left(x, 2, width)


@register_kernel("RandomCrop")
def random_crop(construction: OpKernelConstruction) -> Kernel:
    """A random part of an image, of the size asked for."""
    state = node_generator(construction)

    def kernel(image: Array, size: Array) -> ArrayOrScalar:
        if np.ndim(image) != 3:
            raise InvalidArgumentError(f"input must be 3-dimensional, not of shape {list(np.shape(image))}")
        if np.shape(size) != (2,):
            raise InvalidArgumentError(f"size must be a vector of two, not of shape {list(np.shape(size))}")
        height, width = (int(side) for side in size)
        if min(height, width) < 0:
            raise InvalidArgumentError(f"size must not be negative: {[height, width]}")
        for name, has, wanted in (("width", image.shape[1], width), ("height", image.shape[0], height)):
            if has < wanted:
                raise FailedPreconditionError(f"{name} must be >= target_{name}: {name} = {has}, target = {wanted}")
        top, left = _corner(state.reserve(1), image.shape[0] - height, image.shape[1] - width)
        return image[top : top + height, left : left + width]

    return kernel


def _corner(generator: Philox, spare_height: int, spare_width: int) -> tuple[int, int]:
    words = iter(block(generator))
    left = next(words) % (spare_width + 1) if spare_width else 0
    top = next(words) % (spare_height + 1) if spare_height else 0
    return top, left
