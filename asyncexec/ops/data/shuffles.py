"""Datasets in another order: shuffled, sampled, chosen among, and those that are remembered.

The order of shuffled elements is TensorFlow's, for given seeds: the buffer is filled, and each time one of the elements
of its first epoch goes out, chosen by the next number of the generator (``core/kernels/data/shuffle_dataset_op.cc``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.errors import InvalidArgumentError, UnimplementedError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_function
from asyncexec.framework.ownership import keep
from asyncexec.framework.process_bound import ProcessBound
from asyncexec.framework.shape_inference import no_outputs, scalars
from asyncexec.ops.data.dataset import (
    INFINITE,
    UNKNOWN,
    Dataset,
    Element,
    ElementIterator,
    Pipeline,
    as_dataset,
    dataset_op,
    declared,
    scalar_int,
)
from asyncexec.ops.data.parts import repeated_cardinality
from asyncexec.ops.data.seeds import NumberStream, SeedGenerator, seeds_of
from asyncexec.ops.data.windows import ListIterator
from asyncexec.ops.op_list import register_listed_op
from asyncexec.ops.string.string_elements import scalar_string

_MAX_EPOCHS: Final = 3  # that the buffer holds elements of at once
_UNBOUNDED: Final = 2**62


class _Slice:
    """The elements of an epoch in the buffer: those with numbers from *start* to *stop*."""

    __slots__ = ("start", "stop")

    def __init__(self, start: int) -> None:
        self.start = self.stop = start


class ShuffledIterator(ElementIterator):
    """The elements of a dataset, *count* times, in random order; each time with the next seeds of *generator*."""

    __slots__ = (
        "_buffer",
        "_dataset",
        "_epoch",
        "_generator",
        "_is_empty",
        "_most_epochs",
        "_num_elements",
        "_numbers",
        "_pipeline",
        "_size",
        "_slices",
        "_source",
    )

    def __init__(
        self, pipeline: Pipeline, dataset: Dataset, size: int, generator: SeedGenerator, count: int = 1
    ) -> None:
        self._pipeline, self._dataset, self._size, self._most_epochs = pipeline, dataset, size, count
        self._generator = generator
        self._numbers = NumberStream(*generator.next_seeds())
        self._buffer: dict[int, Element] = {}  # by number modulo the size
        self._slices: deque[_Slice] = deque()
        self._source: ElementIterator | None = None
        self._num_elements = 0
        self._epoch = 0
        self._is_empty = True  # no element has ever come

    async def next(self) -> Element | None:
        while self._has_room():
            if self._source is None:
                self._begin_epoch()
            assert self._source is not None
            element = await self._source.next()
            if element is not None:
                self._add(element)
                continue
            self._source = None
            if self._is_empty and self._most_epochs < 0:
                self._most_epochs = self._epoch
        if self._pipeline.is_late:
            await self._pipeline.pause()
        return self._take() if self._num_elements else None

    def _has_room(self) -> bool:
        if (self._source is None and self._epoch == self._most_epochs) or self._num_elements >= self._size:
            return False
        return len(self._slices) <= _MAX_EPOCHS or not self._num_elements

    def _begin_epoch(self) -> None:
        self._source = self._dataset.iterate(self._pipeline)
        self._epoch += 1
        self._slices.append(_Slice(self._slices[-1].stop if self._slices else 0))

    def _add(self, element: Element) -> None:
        last = self._slices[-1]
        self._buffer[last.stop % self._size] = element
        last.stop += 1
        self._num_elements += 1
        self._is_empty = False

    def _take(self) -> Element:
        while self._slices[0].start == self._slices[0].stop:
            self._slices.popleft()
            self._numbers = NumberStream(*self._generator.next_seeds())
        first = self._slices[0]
        chosen = (first.start + self._numbers.next() % (first.stop - first.start)) % self._size
        at_start = first.start % self._size
        buffer = self._buffer
        element, buffer[chosen] = buffer[chosen], buffer[at_start]
        del buffer[at_start]
        first.start += 1
        self._num_elements -= 1
        return element


def _buffer_size(value: object) -> int:
    size = scalar_int(value, "buffer_size")
    if size == UNKNOWN:
        return _UNBOUNDED
    if size <= 0:
        raise InvalidArgumentError(f"`buffer_size` must be greater than zero or -2, but got {size}.")
    return size


@dataset_op("ShuffleDataset", "ShuffleDatasetV2", "ShuffleDatasetV3")
def shuffle_dataset(c: OpKernelConstruction) -> Kernel:
    """The elements in random order."""
    varies, names = bool(c.attrs.get("reshuffle_each_iteration", True)), [arg.name for arg in c.op_def.inputs]

    def kernel(*inputs: object) -> Dataset:
        given = dict(zip(names, inputs, strict=True))
        dataset, size = as_dataset(given["input_dataset"]), _buffer_size(given["buffer_size"])
        seeds = seeds_of(given.get("seed", 0), given.get("seed2", 0))
        generator = SeedGenerator.of(given.get("seed_generator"), seeds, varies=varies)
        return dataset.derived("Shuffle", lambda p: ShuffledIterator(p, dataset, size, generator))

    return kernel


@dataset_op("ShuffleAndRepeatDataset", "ShuffleAndRepeatDatasetV2")
def shuffle_and_repeat_dataset(c: OpKernelConstruction) -> Kernel:
    """The elements several times, each time in another random order."""
    varies, names = bool(c.attr("reshuffle_each_iteration")), [arg.name for arg in c.op_def.inputs]

    def kernel(*inputs: object) -> Dataset:
        given = dict(zip(names, inputs, strict=True))
        dataset, size = as_dataset(given["input_dataset"]), _buffer_size(given["buffer_size"])
        times = scalar_int(given["count"], "count")
        if times <= 0 and times != INFINITE:
            raise InvalidArgumentError("`count` must be greater than zero or equal to -1.")
        seeds = seeds_of(given["seed"], given["seed2"])
        generator = SeedGenerator.of(given.get("seed_generator"), seeds, varies=varies)
        return dataset.derived(
            "ShuffleAndRepeat",
            lambda p: ShuffledIterator(p, dataset, size, generator, times),
            repeated_cardinality(dataset.cardinality, times),
        )

    return kernel


class SampledIterator(ElementIterator):
    """Each element with a probability."""

    __slots__ = ("_numbers", "_rate", "_source")

    def __init__(self, source: ElementIterator, rate: float, seeds: tuple[int, int]) -> None:
        self._source, self._rate = source, rate
        self._numbers = NumberStream(*seeds)

    async def next(self) -> Element | None:
        while True:
            element = await self._source.next()
            # The low 23 bits of the number are the mantissa of a float32 from 1 to 2.
            if element is None or (self._numbers.next() & 0x7FFFFF) / 0x800000 < self._rate:
                return element


@dataset_op("SamplingDataset")
def sampling_dataset(c: OpKernelConstruction) -> Kernel:
    """A random part of the elements."""

    def kernel(source: object, rate: Any, seed: object, seed2: object) -> Dataset:
        dataset, seeds = as_dataset(source), seeds_of(seed, seed2)
        if np.ndim(rate):
            raise InvalidArgumentError(f"rate must be a scalar, not of shape {list(np.shape(rate))}")
        part = float(rate)
        return dataset.derived("Sampling", lambda p: SampledIterator(dataset.iterate(p), part, seeds), UNKNOWN)

    return kernel


class DirectedIterator(ElementIterator):
    """Elements of several sources: of which, the selector tells for each."""

    __slots__ = ("_selected", "_selector", "_sources", "_stops_on_empty")

    def __init__(self, selector: ElementIterator, sources: Sequence[ElementIterator], *, stops_on_empty: bool) -> None:
        self._selector = selector
        self._sources: list[ElementIterator | None] = list(sources)
        self._stops_on_empty = stops_on_empty
        self._selected: int | None = None

    async def next(self) -> Element | None:
        while any(source is not None for source in self._sources):
            if self._selected is None:
                selection = await self._selector.next()
                if selection is None:
                    self._sources = []
                    return None
                self._selected = self._checked(int(selection[0]))
            source = self._sources[self._selected]
            if source is not None:
                try:
                    element = await source.next()
                except Exception:
                    self._selected = None
                    raise
                if element is not None:
                    self._selected = None
                    return element
                if self._stops_on_empty:
                    self._sources = []
                    return None
                self._sources[self._selected] = None
            self._selected = None
        return None

    def _checked(self, selected: int) -> int:
        if not 0 <= selected < len(self._sources):
            raise InvalidArgumentError(f"Selector index out of range: {selected} >= {len(self._sources)}")
        return selected


@dataset_op("DirectedInterleaveDataset", "ExperimentalDirectedInterleaveDataset")
def directed_interleave_dataset(c: OpKernelConstruction) -> Kernel:
    """Elements of several datasets, which another one chooses among."""
    stops = bool(c.attrs.get("stop_on_empty_dataset", False))

    def kernel(selector: object, *sources: object) -> Dataset:
        chooser, datasets = as_dataset(selector), [as_dataset(source) for source in sources]
        if [dtype.name for dtype in chooser.dtypes] != ["int64"] or not chooser.shapes[0].accepts(()):
            raise InvalidArgumentError("The selector input must be a dataset of scalar int64 elements.")
        if any(dataset.dtypes != datasets[0].dtypes for dataset in datasets):
            raise InvalidArgumentError("All inputs must have the same output_dtypes.")
        count = INFINITE if any(dataset.cardinality == INFINITE for dataset in datasets) else UNKNOWN

        def iterate(pipeline: Pipeline) -> ElementIterator:
            iterators = [dataset.iterate(pipeline) for dataset in datasets]
            return DirectedIterator(chooser.iterate(pipeline), iterators, stops_on_empty=stops)

        return Dataset("DirectedInterleave", iterate, *declared(c), count)

    return kernel


class UniqueIterator(ElementIterator):
    """The elements that have not come before."""

    __slots__ = ("_seen", "_source")

    def __init__(self, source: ElementIterator) -> None:
        self._source = source
        self._seen: set[object] = set()

    async def next(self) -> Element | None:
        while True:
            element = await self._source.next()
            if element is None:
                return None
            (value,) = element
            key = value
            if isinstance(value, np.ndarray):
                key = (value.shape, tuple(value.flat) if value.dtype == object else value.tobytes())
            if key not in self._seen:
                self._seen.add(key)
                return element


@dataset_op("UniqueDataset", "ExperimentalUniqueDataset")
def unique_dataset(c: OpKernelConstruction) -> Kernel:
    """Each element once."""

    def kernel(source: object) -> Dataset:
        dataset = as_dataset(source)
        if len(dataset.dtypes) != 1:
            raise InvalidArgumentError("UniqueDataset only supports inputs with a single component.")
        if dataset.dtypes[0].name not in ("int32", "int64", "string"):
            raise InvalidArgumentError(
                "UniqueDataset only supports inputs with a single `tf.int32`, `tf.int64`, or `tf.string` component."
            )
        return dataset.derived("Unique", lambda p: UniqueIterator(dataset.iterate(p)), UNKNOWN)

    return kernel


class MemoryCache(ProcessBound):
    """The elements of a dataset, once an iterator has come to their end."""

    __slots__ = ("elements",)

    def __init__(self) -> None:
        self.elements: Sequence[Element] | None = None


class RememberingIterator(ElementIterator):
    """The elements of *source*, which are in *cache* when it has come to their end."""

    __slots__ = ("_cache", "_elements", "_source")

    def __init__(self, source: ElementIterator, cache: MemoryCache) -> None:
        self._source, self._cache = source, cache
        self._elements: list[Element] = []

    async def next(self) -> Element | None:
        element = await self._source.next()
        if element is None:
            if self._cache.elements is None:
                self._cache.elements = self._elements
            return None
        element = tuple(map(keep, element))
        self._elements.append(element)
        return element


@dataset_op("CacheDataset", "CacheDatasetV2")
def cache_dataset(c: OpKernelConstruction) -> Kernel:
    """The same elements, which are made once."""

    def kernel(source: object, filename: object, handle: object = None) -> Dataset:
        dataset = as_dataset(source)
        if scalar_string(filename, "filename"):
            raise UnimplementedError("a dataset is cached in memory, not in files", hint="cache() without a filename")
        cache = handle if isinstance(handle, MemoryCache) else MemoryCache()

        def iterate(pipeline: Pipeline) -> ElementIterator:
            if cache.elements is not None:
                return ListIterator(pipeline, cache.elements)
            return RememberingIterator(dataset.iterate(pipeline), cache)

        return dataset.derived("Cache", iterate)

    return kernel


for _name in ("AnonymousMemoryCache", "DummyMemoryCache"):
    register_listed_op(_name, scalars)
register_listed_op("DeleteMemoryCache", no_outputs)
register_function("AnonymousMemoryCache", function=lambda: (MemoryCache(), None))
register_function("DummyMemoryCache", function=object)
register_function("DeleteMemoryCache", function=lambda handle, deleter: ())
