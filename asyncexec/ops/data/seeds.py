"""Random numbers of datasets, to the bit those of TensorFlow, and generators of the seeds of their iterators.

Rules from ``core/kernels/data/random_seed_ops.cc`` and ``core/lib/random/random_distributions.h``
(``SingleSampleAdapter``): the uint32 of a Philox generator, one by one.
"""

from __future__ import annotations

import secrets
from typing import Any, Final

import numpy as np

from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_function, register_kernel
from asyncexec.framework.process_bound import ProcessBound
from asyncexec.framework.shape_inference import no_outputs, scalars
from asyncexec.ops.data.dataset import scalar_int
from asyncexec.ops.op_list import register_listed_op
from asyncexec.ops.random.philox import Philox, blocks, from_seeds

_BLOCKS: Final = 64  # drawn at once


class NumberStream:
    """The uint32 of the generator with these seeds, one by one."""

    __slots__ = ("_ahead", "_generator")

    def __init__(self, seed: int, seed2: int) -> None:
        self._generator: Philox = from_seeds(seed, seed2)
        self._ahead: list[int] = []  # the next is the last

    def next(self) -> int:
        """The next number."""
        if not self._ahead:
            self._ahead = blocks(self._generator, _BLOCKS).ravel()[::-1].tolist()
            self._generator = self._generator.skip(_BLOCKS)
        return self._ahead.pop()


def seeds_of(seed: object, seed2: object) -> tuple[int, int]:
    """The seeds of a dataset; random ones where both are 0."""
    seeds = scalar_int(seed, "seed"), scalar_int(seed2, "seed2")
    return (secrets.randbits(64), secrets.randbits(64)) if seeds == (0, 0) else seeds


class SeedGenerator(ProcessBound):
    """Seeds for the iterators of a dataset: other ones for each, or the same for all."""

    __slots__ = ("_numbers", "_seeds")

    def __init__(self, seeds: tuple[int, int], *, varies: bool) -> None:
        self._seeds = seeds
        self._numbers = NumberStream(*seeds) if varies else None

    @classmethod
    def of(cls, handle: Any, seeds: tuple[int, int], *, varies: bool) -> SeedGenerator:
        """The generator that *handle* is, or else a new one."""
        return handle if isinstance(handle, cls) else cls(seeds, varies=varies)

    def next_seeds(self) -> tuple[int, int]:
        """The seeds of the next iterator."""
        if self._numbers is None:
            return self._seeds
        return self._numbers.next(), self._numbers.next()


class Dummy(ProcessBound):
    """What stands where a dataset is to have a resource of its own."""

    __slots__ = ()


for _name in ("AnonymousSeedGenerator", "AnonymousRandomSeedGenerator", "DummySeedGenerator", "DummyIterationCounter"):
    register_listed_op(_name, scalars)
for _name in ("DeleteSeedGenerator", "DeleteRandomSeedGenerator"):
    register_listed_op(_name, no_outputs)
    register_function(_name, function=lambda handle, deleter: ())
register_function("DummySeedGenerator", "DummyIterationCounter", function=Dummy)


@register_kernel("AnonymousSeedGenerator")
def anonymous_seed_generator(c: OpKernelConstruction) -> Kernel:
    """A generator that several datasets may share."""

    def kernel(seed: object, seed2: object, reshuffle: object) -> tuple[SeedGenerator, None]:
        return SeedGenerator(seeds_of(seed, seed2), varies=bool(np.bool_(reshuffle))), None

    return kernel


@register_kernel("AnonymousRandomSeedGenerator")
def anonymous_random_seed_generator(c: OpKernelConstruction) -> Kernel:
    """The same, always with other seeds for each iterator."""
    return lambda seed, seed2: (SeedGenerator(seeds_of(seed, seed2), varies=True), None)
