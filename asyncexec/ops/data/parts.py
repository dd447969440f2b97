"""Datasets of a part of the elements of others, or of their elements together: take, skip, repeat, zip, concatenate."""

from __future__ import annotations

from collections.abc import Sequence

from asyncexec.framework.errors import (
    CancelledError,
    FailedPreconditionError,
    InvalidArgumentError,
    OpError,
    UnimplementedError,
)
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
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
from asyncexec.ops.data.read_ahead import AUTOTUNE, AUTOTUNED_BUFFER, ReadAhead


class TakenIterator(ElementIterator):
    """The first *count* elements."""

    __slots__ = ("_left", "_source")

    def __init__(self, source: ElementIterator, count: int) -> None:
        self._source: ElementIterator | None = source
        self._left = count

    async def next(self) -> Element | None:
        if self._source is None or not self._left:
            self._source = None
            return None
        element = await self._source.next()
        self._left -= 1
        if element is None:
            self._source = None
        return element


@dataset_op("TakeDataset")
def take_dataset(c: OpKernelConstruction) -> Kernel:
    """The first elements; all of them where the count is negative."""

    def kernel(source: object, count: object) -> Dataset:
        dataset, most = as_dataset(source), scalar_int(count, "count")
        if most < 0:
            return dataset
        known = dataset.cardinality
        left = known if known == UNKNOWN else most if known == INFINITE else min(most, known)
        return dataset.derived("Take", lambda p: TakenIterator(dataset.iterate(p), most), left if most else 0)

    return kernel


class SkippingIterator(ElementIterator):
    """The elements after the first *count*."""

    __slots__ = ("_left", "_source")

    def __init__(self, source: ElementIterator, count: int) -> None:
        self._source, self._left = source, count

    async def next(self) -> Element | None:
        while self._left:
            element = await self._source.next()
            if element is None:
                return None
            self._left -= 1
        return await self._source.next()


class NothingIterator(ElementIterator):
    """No elements."""

    __slots__ = ()

    async def next(self) -> Element | None:
        return None


@dataset_op("SkipDataset")
def skip_dataset(c: OpKernelConstruction) -> Kernel:
    """The elements after the first ones; none where the count is negative."""

    def kernel(source: object, count: object) -> Dataset:
        dataset, least = as_dataset(source), scalar_int(count, "count")
        if least < 0:
            return dataset.derived("Skip", lambda p: NothingIterator(), 0)
        left = dataset.cardinality if dataset.cardinality < 0 else max(0, dataset.cardinality - least)
        return dataset.derived("Skip", lambda p: SkippingIterator(dataset.iterate(p), least), left)

    return kernel


class RepeatedIterator(ElementIterator):
    """The elements of a dataset *count* times, or, where that is negative, until there are none.

    As in TensorFlow the next iterator is made as soon as one has ended, even after the last: each takes seeds.
    """

    __slots__ = ("_dataset", "_is_first", "_left", "_pipeline", "_source")

    def __init__(self, pipeline: Pipeline, dataset: Dataset, count: int) -> None:
        self._pipeline, self._dataset, self._left = pipeline, dataset, count
        self._source = dataset.iterate(pipeline) if count else NothingIterator()
        self._is_first = True  # whether no element has come from the iterator

    async def next(self) -> Element | None:
        while self._left:
            element = await self._source.next()
            if element is not None:
                self._is_first = False
                return element
            if self._left > 0:
                self._left -= 1
            elif self._is_first:
                self._left = 0
                break
            self._source = self._dataset.iterate(self._pipeline)
            self._is_first = True
            if self._pipeline.is_late:
                await self._pipeline.pause()
        self._source = NothingIterator()
        return None


@dataset_op("RepeatDataset")
def repeat_dataset(c: OpKernelConstruction) -> Kernel:
    """The elements several times, or for ever."""

    def kernel(source: object, count: object) -> Dataset:
        dataset, times = as_dataset(source), scalar_int(count, "count")
        known = repeated_cardinality(dataset.cardinality, times)
        return dataset.derived("Repeat", lambda p: RepeatedIterator(p, dataset, times), known)

    return kernel


def repeated_cardinality(count: int, times: int) -> int:
    """How many elements *count* of them are, *times* times."""
    if times < 0:
        return 0 if count == 0 else INFINITE
    if times == 0:
        return 0
    return count if count < 0 else count * times


class ConcatenatedIterator(ElementIterator):
    """The elements of one dataset, then those of another one."""

    __slots__ = ("_ahead", "_pipeline", "_source")

    def __init__(self, pipeline: Pipeline, datasets: Sequence[Dataset]) -> None:
        self._pipeline = pipeline
        self._ahead = list(datasets)
        self._source: ElementIterator | None = None

    async def next(self) -> Element | None:
        while self._source is not None or self._ahead:
            if self._source is None:
                self._source = self._ahead.pop(0).iterate(self._pipeline)
            element = await self._source.next()
            if element is not None:
                return element
            self._source = None
        return None


@dataset_op("ConcatenateDataset")
def concatenate_dataset(c: OpKernelConstruction) -> Kernel:
    """The elements of two datasets, one after the other."""

    def kernel(source: object, another: object) -> Dataset:
        both = [as_dataset(source), as_dataset(another)]
        if both[0].dtypes != both[1].dtypes:
            raise InvalidArgumentError(
                f"input dataset and dataset to concatenate have different output_types {both[0].dtypes} and "
                f"{both[1].dtypes}"
            )
        shapes = tuple(one.most_general(other) for one, other in zip(both[0].shapes, both[1].shapes, strict=True))
        counts = [dataset.cardinality for dataset in both]
        count = INFINITE if INFINITE in counts else UNKNOWN if UNKNOWN in counts else sum(counts)
        return Dataset("Concatenate", lambda p: ConcatenatedIterator(p, both), both[0].dtypes, shapes, count)

    return kernel


class ZippedIterator(ElementIterator):
    """The next elements of all sources, as one; until one of them ends."""

    __slots__ = ("_error", "_parts", "_sources")

    def __init__(self, sources: Sequence[ElementIterator]) -> None:
        self._sources = list(sources)
        self._parts: list[Element] = []  # one of each source that was asked
        self._error: Exception | None = None

    async def next(self) -> Element | None:
        parts = self._parts
        while len(parts) < len(self._sources):  # after an error, too: they stay in step
            try:
                part = await self._sources[len(parts)].next()
            except Exception as error:
                self._error = self._error or error.with_traceback(None)
                part = ()
            if part is None:
                self._sources = []
                break
            parts.append(part)
        self._parts = []
        failed, self._error = self._error, None
        if failed is not None:
            raise failed
        if not self._sources:
            return None
        return tuple([component for part in parts for component in part])


@dataset_op("ZipDataset")
def zip_dataset(c: OpKernelConstruction) -> Kernel:
    """The elements of several datasets side by side."""

    def kernel(*sources: object) -> Dataset:
        datasets = [as_dataset(source) for source in sources]
        counts = [dataset.cardinality for dataset in datasets]
        finite = [count for count in counts if count != INFINITE]
        count = INFINITE if not finite else UNKNOWN if UNKNOWN in finite else min(finite)
        return Dataset(
            "Zip",
            lambda p: ZippedIterator([dataset.iterate(p) for dataset in datasets]),
            tuple(dtype for dataset in datasets for dtype in dataset.dtypes),
            tuple(shape for dataset in datasets for shape in dataset.shapes),
            count,
        )

    return kernel


class ShardIterator(ElementIterator):
    """Each element whose number is *index* modulo *num_shards*."""

    __slots__ = ("_index", "_must_be_full", "_num_shards", "_number", "_source")

    def __init__(self, source: ElementIterator, num_shards: int, index: int, *, must_be_full: bool) -> None:
        self._source, self._num_shards, self._index, self._must_be_full = source, num_shards, index, must_be_full
        self._number = 0

    async def next(self) -> Element | None:
        while True:
            element = await self._source.next()
            if element is None:
                if self._must_be_full and self._number < self._num_shards:
                    raise InvalidArgumentError(
                        f"Could not apply FILE based sharding: the dataset only has {self._number} file(s), which is "
                        f"not enough for the required {self._num_shards} shards/workers."
                    )
                return None
            self._number += 1
            if (self._number - 1) % self._num_shards == self._index:
                return element


@dataset_op("ShardDataset")
def shard_dataset(c: OpKernelConstruction) -> Kernel:
    """One of so many equal parts."""
    must_be_full = bool(c.attr("require_non_empty"))

    def kernel(source: object, num_shards: object, index: object) -> Dataset:
        dataset = as_dataset(source)
        count, number = scalar_int(num_shards, "num_shards"), scalar_int(index, "index")
        if count <= 0:
            raise InvalidArgumentError(f"Number of shards must be greater than zero (currently num_shards = {count}).")
        if not 0 <= number < count:
            raise InvalidArgumentError(f"Index must be between 0 and {count - 1} (currently index = {number}).")
        known = dataset.cardinality
        left = known if known < 0 else known // count + (number < known % count)
        return dataset.derived(
            "Shard", lambda p: ShardIterator(dataset.iterate(p), count, number, must_be_full=must_be_full), left
        )

    return kernel


class CountedIterator(ElementIterator):
    """The elements of *source*, of which there must be *count*."""

    __slots__ = ("_count", "_number", "_source")

    def __init__(self, source: ElementIterator, count: int) -> None:
        self._source, self._count = source, count
        self._number = 0

    async def next(self) -> Element | None:
        element = await self._source.next()
        if element is not None:
            self._number += 1
            if 0 <= self._count < self._number:
                raise FailedPreconditionError(
                    f"Input dataset was expected to contain {_elements(self._count)} but contained at least "
                    f"{_elements(self._number)}."
                )
        elif self._count != UNKNOWN and self._number != self._count:
            wanted = "an infinite number of elements" if self._count == INFINITE else _elements(self._count)
            raise FailedPreconditionError(
                f"Input dataset was expected to contain {wanted} but contained only {_elements(self._number)}."
            )
        return element


def _elements(count: int) -> str:
    return f"{count} element{'' if count == 1 else 's'}"


@dataset_op("AssertCardinalityDataset")
def assert_cardinality_dataset(c: OpKernelConstruction) -> Kernel:
    """The elements, if there are as many as is said."""

    def kernel(source: object, cardinality: object) -> Dataset:
        dataset, count = as_dataset(source), scalar_int(cardinality, "cardinality")
        return dataset.derived("AssertCardinality", lambda p: CountedIterator(dataset.iterate(p), count), count)

    return kernel


class LenientIterator(ElementIterator):
    """The elements of *source* that can be had."""

    __slots__ = ("_pipeline", "_source")

    def __init__(self, pipeline: Pipeline, source: ElementIterator) -> None:
        self._pipeline, self._source = pipeline, source

    async def next(self) -> Element | None:
        while True:
            try:
                return await self._source.next()
            except CancelledError:
                raise
            except OpError:
                if self._pipeline.is_late:
                    await self._pipeline.pause()


@dataset_op("IgnoreErrorsDataset", "ExperimentalIgnoreErrorsDataset")
def ignore_errors_dataset(c: OpKernelConstruction) -> Kernel:
    """The elements without those that fail."""

    def kernel(source: object) -> Dataset:
        dataset = as_dataset(source)
        count = dataset.cardinality if dataset.cardinality == INFINITE else UNKNOWN
        return dataset.derived("IgnoreErrors", lambda p: LenientIterator(p, dataset.iterate(p)), count)

    return kernel


@dataset_op("PrefetchDataset")
def prefetch_dataset(c: OpKernelConstruction) -> Kernel:
    """The same elements, pulled before anybody asks for them."""

    def kernel(source: object, buffer_size: object) -> Dataset:
        dataset, size = as_dataset(source), scalar_int(buffer_size, "buffer_size")
        if size < AUTOTUNE:
            raise InvalidArgumentError(f"`buffer_size` must be >= 0 or -1, which lets it be chosen, not {size}")
        if not size:
            return dataset
        room = AUTOTUNED_BUFFER if size == AUTOTUNE else size
        return dataset.derived("Prefetch", lambda p: ReadAhead(p, dataset.iterate(p), room))

    return kernel


@dataset_op(
    "OptionsDataset",
    "ModelDataset",
    "OptimizeDataset",
    "OptimizeDatasetV2",
    "FinalizeDataset",
    "AssertNextDataset",
    "ExperimentalAssertNextDataset",
    "AssertPrevDataset",
    "RewriteDataset",
    "MaxIntraOpParallelismDataset",
    "ExperimentalMaxIntraOpParallelismDataset",
    "PrivateThreadPoolDataset",
    "ExperimentalPrivateThreadPoolDataset",
    "NonSerializableDataset",
    "ExperimentalNonSerializableDataset",
    "BytesProducedStatsDataset",
    "ExperimentalBytesProducedStatsDataset",
    "LatencyStatsDataset",
    "ExperimentalLatencyStatsDataset",
)
def same_dataset(c: OpKernelConstruction) -> Kernel:
    """The dataset itself: what the op says is about how TensorFlow runs it."""
    return lambda source, *_: as_dataset(source)


@dataset_op("WrapDatasetVariant", "UnwrapDatasetVariant")
def wrapped_dataset(c: OpKernelConstruction) -> Kernel:
    """The dataset itself, which needs no wrapping to be copied."""
    return as_dataset


@dataset_op("AutoShardDataset", "ExperimentalAutoShardDataset")
def auto_shard_dataset(c: OpKernelConstruction) -> Kernel:
    """The dataset itself, where there is one worker."""

    def kernel(source: object, num_workers: object, index: object) -> Dataset:
        if scalar_int(num_workers, "num_workers") != 1 or scalar_int(index, "index"):
            raise UnimplementedError("a dataset is not sharded among workers by itself", hint="use ShardDataset")
        return as_dataset(source)

    return kernel


@dataset_op("ChooseFastestDataset", "ExperimentalChooseFastestDataset")
def choose_fastest_dataset(c: OpKernelConstruction) -> Kernel:
    """The first of datasets that all have the same elements."""

    def kernel(*sources: object) -> Dataset:
        dataset = as_dataset(sources[0])
        dtypes, shapes = declared(c)
        return Dataset("ChooseFastest", dataset.iterate, dtypes, shapes, dataset.cardinality)

    return kernel
