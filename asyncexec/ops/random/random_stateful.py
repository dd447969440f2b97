"""Random ops with state: each run goes on where the last one ended (``tensorflow/core/ops/random_ops.cc``).

A node owns a Philox generator that lasts as long as the session.  A run reserves more of the stream than it needs, as
TensorFlow does, so that with the same seeds every run gives TensorFlow's numbers.  Both seeds 0 mean: seeded by the
operating system.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import ArrayOrScalar
from asyncexec.framework.kernel import Kernel, OpKernelConstruction, as_value
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import unchanged
from asyncexec.framework.types import bfloat16, float16, float32, float64, int32, int64
from asyncexec.ops.random.philox import Philox, blocks, from_seeds
from asyncexec.ops.random.random_categorical import draw_classes
from asyncexec.ops.random.random_distributions import FLOATS, normal, truncated_normal, uniform, uniform_int
from asyncexec.ops.random.random_shape import from_first_input, multinomial_shape, spelled_shape
from asyncexec.ops.random.random_stateless import check_range

BLOCKS_PER_OUTPUT: Final = 256
SEEDS: Final = "seed: int = 0; seed2: int = 0"

for _name in ("RandomUniform", "RandomStandardNormal", "TruncatedNormal"):
    register_op(
        _name,
        "shape: T -> output: dtype",
        f"{SEEDS}; dtype: {{float16, bfloat16, float32, float64}}; T: {{int32, int64}}",
        is_stateful=True,
        shape=from_first_input,
    )
register_op(
    "RandomUniformInt",
    "shape: T, minval: Tout, maxval: Tout -> output: Tout",
    f"{SEEDS}; Tout: {{int32, int64}}; T: {{int32, int64}}",
    is_stateful=True,
    shape=lambda c: [c.scalar(1), c.scalar(2)] and from_first_input(c),
)
register_op("RandomShuffle", "value: T -> output: T", f"{SEEDS}; T: type", is_stateful=True, shape=unchanged)
register_op(
    "Multinomial",
    "logits: T, num_samples: int32 -> output: output_dtype",
    f"{SEEDS}; T: realnumbertype; output_dtype: {{int32, int64}} = int64",
    is_stateful=True,
    shape=multinomial_shape,
)


class GuardedPhilox:
    """The generator of a node.  Runs of one node may overlap on several threads, so taking from it is locked."""

    def __init__(self, seed: int, seed2: int) -> None:
        if seed == 0 and seed2 == 0:
            seed, seed2 = (int.from_bytes(os.urandom(8), "little") for _ in range(2))
        self._generator = from_seeds(seed, seed2)
        self._lock = threading.Lock()

    def reserve(self, count: int) -> Philox:
        """The generator as it stands; it moves on by *count* blocks."""
        with self._lock:
            generator = self._generator
            self._generator = generator.skip(count)
        return generator

    def to_state(self) -> tuple[Mapping[str, int], Sequence[int]]:
        """What a checkpoint holds of it."""
        return {"key": self._generator.key, "counter": self._generator.counter}, []

    def from_state(self, about: Mapping[str, int], values: Sequence[object]) -> None:
        """Go on from where ``to_state`` was called."""
        with self._lock:
            self._generator = Philox(int(about["key"]), int(about["counter"]))


def node_generator(construction: OpKernelConstruction) -> GuardedPhilox:
    seed, seed2 = construction.attr("seed"), construction.attr("seed2")
    return construction.node_state(GuardedPhilox, lambda: GuardedPhilox(seed, seed2))


@register_kernel("RandomUniform", "RandomStandardNormal", "TruncatedNormal", dtypes={"dtype": FLOATS})
def random_numbers(construction: OpKernelConstruction) -> Kernel:
    """Numbers of a distribution, in the shape that the input spells."""
    distribution = {"RandomUniform": uniform, "RandomStandardNormal": normal}.get(construction.op, truncated_normal)
    sampler, itemsize = distribution(construction.attr("dtype")), construction.attr("dtype").itemsize
    state = node_generator(construction)

    def kernel(shape: object) -> Any:
        sizes = spelled_shape(shape, itemsize)
        count = int(np.prod(sizes, dtype=np.int64))
        return as_value(sampler(state.reserve(count * BLOCKS_PER_OUTPUT), count).reshape(sizes))

    return kernel


@register_kernel("RandomUniformInt", dtypes={"Tout": (int32, int64)})
def random_uniform_int(construction: OpKernelConstruction) -> Kernel:
    """Integers in [minval, maxval)."""
    dtype, state = construction.np_dtype("Tout"), node_generator(construction)

    def kernel(shape: object, low: np.generic, high: np.generic) -> Any:
        sizes = spelled_shape(shape, dtype.itemsize)
        count = int(np.prod(sizes, dtype=np.int64))
        if count == 0:
            return np.empty(sizes, dtype)
        check_range(low, high)
        generator = state.reserve(count * BLOCKS_PER_OUTPUT)
        return as_value(uniform_int(dtype, int(low), int(high))(generator, count).reshape(sizes))

    return kernel


@register_kernel("RandomShuffle")
def random_shuffle(construction: OpKernelConstruction) -> Kernel:
    """The rows in random order."""
    state = node_generator(construction)

    return lambda value: shuffled(value, state.reserve)


def shuffled(value: Any, reserve: Callable[[int], Philox]) -> ArrayOrScalar:
    """The rows of *value* in random order; ``reserve(blocks)`` gives the generator."""
    size = len(value) if np.ndim(value) else 0
    if size <= 1 or value.size <= 1:
        return value
    count = -(-(size - 1) // 4)
    words = blocks(reserve(count), count).reshape(-1)[: size - 1]
    jumps = words % np.arange(size, 1, -1, dtype=np.uint32)
    order = list(range(size))
    for place, jump in enumerate(jumps.tolist()):
        other = place + jump
        order[place], order[other] = order[other], order[place]
    return value[order]


@register_kernel("Multinomial", dtypes={"T": (bfloat16, float16, float32, float64)})
def multinomial(construction: OpKernelConstruction) -> Kernel:
    """Classes drawn by unnormalized log probabilities."""
    dtype, state = construction.np_dtype("output_dtype"), node_generator(construction)

    def kernel(logits: object, num_samples: object) -> Any:
        return draw_classes(logits, num_samples, dtype, lambda count: state.reserve(count * BLOCKS_PER_OUTPUT))

    return kernel
