"""Datasets of batches that are made of other batches, of windows, or as sparse tensors."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.errors import DataLossError, InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.types import DType, variant
from asyncexec.ops.data.batches import (
    STACK,
    GatheredIterator,
    Joiner,
    batch_cardinality,
    batch_size_of,
    joining,
    shape_of,
)
from asyncexec.ops.data.dataset import (
    Dataset,
    Element,
    ElementIterator,
    Pipeline,
    as_dataset,
    dataset_op,
    declared,
    scalar_int,
)
from asyncexec.ops.data.maps import MappedIterator
from asyncexec.ops.data.windows import check_batch
from asyncexec.ops.sparse.sparse_serialization import boxed_parts

_US_PER_S: Final = 1_000_000


class SlidingIterator(ElementIterator):
    """Windows over elements, as tuples of elements."""

    __slots__ = ("_buffer", "_drops_remainder", "_has_ended", "_num_to_drop", "_shift", "_source", "_span", "_stride")

    def __init__(self, source: ElementIterator, size: int, shift: int, stride: int, *, drops_remainder: bool) -> None:
        self._source, self._shift, self._stride, self._drops_remainder = source, shift, stride, drops_remainder
        self._span = (size - 1) * stride + 1
        self._buffer: deque[Element] = deque()
        self._num_to_drop = 0
        self._has_ended = False

    async def next(self) -> Element | None:
        buffer = self._buffer
        while len(buffer) < self._span and not self._has_ended:
            element = await self._source.next()
            if element is None:
                self._has_ended = True
            elif self._num_to_drop:
                self._num_to_drop -= 1
            else:
                buffer.append(element)
        if not buffer or (self._drops_remainder and len(buffer) < self._span):
            return None
        found = tuple(buffer[index] for index in range(0, len(buffer), self._stride))
        self._num_to_drop = max(0, self._shift - len(buffer))
        for _ in range(min(self._shift, len(buffer))):
            buffer.popleft()
        return found


@dataset_op("SlidingWindowDataset", "ExperimentalSlidingWindowDataset")
def sliding_window_dataset(c: OpKernelConstruction) -> Kernel:
    """Windows over the elements, stacked."""
    joiner, drops = Joiner(c, STACK), bool(c.attrs.get("drop_remainder", True))

    def kernel(source: object, window_size: object, window_shift: object, window_stride: object) -> Dataset:
        dataset = as_dataset(source)
        given = {"Window size": window_size, "Window shift": window_shift, "window_stride": window_stride}
        size, shift, stride = (scalar_int(value, name) for name, value in given.items())
        for name, length in zip(given, (size, shift, stride), strict=True):
            if length <= 0:
                raise InvalidArgumentError(f"{name} must be greater than zero.")
        join = joiner.of(dataset.dtypes)

        def iterate(pipeline: Pipeline) -> ElementIterator:
            windows = SlidingIterator(dataset.iterate(pipeline), size, shift, stride, drops_remainder=drops)
            return MappedIterator(windows, join)

        known = dataset.cardinality
        count = known if known < 0 else (known if drops else known + shift - 1) // shift
        return Dataset("SlidingWindow", iterate, *declared(c), count)

    return kernel


class SplitIterator(ElementIterator):
    """Each batch in so many parts."""

    __slots__ = ("_batch", "_num_parts", "_number", "_pipeline", "_source")

    def __init__(self, pipeline: Pipeline, source: ElementIterator, num_parts: int) -> None:
        self._pipeline, self._source, self._num_parts = pipeline, source, num_parts
        self._batch: Element = ()
        self._number = 0

    async def next(self) -> Element | None:
        if not self._number:
            batch = await self._source.next()
            if batch is None:
                return None
            for index, array in enumerate(batch):
                if not shape_of(array):
                    raise InvalidArgumentError(
                        "Cannot rebatch dataset: All components must have at least one dimension. Perhaps your input "
                        f"dataset is not batched? Component {index} is scalar."
                    )
            self._batch = batch
        if self._pipeline.is_late:
            await self._pipeline.pause()
        number = self._number
        self._number = (number + 1) % self._num_parts
        sizes = [-(-len(array) // self._num_parts) for array in self._batch]
        return tuple(array[size * number : size * (number + 1)] for array, size in zip(self._batch, sizes, strict=True))


@dataset_op("RebatchDataset", "ExperimentalRebatchDataset")
def rebatch_dataset(c: OpKernelConstruction) -> Kernel:
    """Each batch in parts, one for each replica."""

    def kernel(source: object, num_replicas: object) -> Dataset:
        dataset, count = as_dataset(source), scalar_int(num_replicas, "num_replicas")
        if count <= 0:
            raise InvalidArgumentError("num_replicas must be greater than zero.")
        return Dataset("Rebatch", lambda p: SplitIterator(p, dataset.iterate(p), count), *declared(c))

    return kernel


class RegatheredIterator(ElementIterator):
    """The rows of batches, in batches of other sizes: each element is a tuple of parts of batches."""

    __slots__ = ("_batch", "_drops_remainder", "_has_ended", "_index", "_parts", "_sizes", "_source", "_start")

    def __init__(self, source: ElementIterator, sizes: Sequence[int], *, drops_remainder: bool) -> None:
        self._source, self._sizes, self._drops_remainder = source, sizes, drops_remainder
        self._index = 0
        self._batch: Element | None = None
        self._start = 0  # in the batch
        self._parts: list[Element] = []
        self._has_ended = False

    async def next(self) -> Element | None:
        size, parts = self._sizes[self._index], self._parts
        if self._has_ended:
            return None
        while (missing := size - sum(len(part[0]) for part in parts)) > 0:
            if self._batch is None and not await self._pull():
                break
            assert self._batch is not None
            stop = min(self._start + missing, len(self._batch[0]))
            parts.append(tuple([array[self._start : stop] for array in self._batch]))
            self._start = stop
            if stop == len(self._batch[0]):
                self._batch = None
        self._parts = []
        self._index = (self._index + 1) % len(self._sizes)
        if size and (missing == size or (self._drops_remainder and missing > 0)):
            return None
        return tuple(parts)

    async def _pull(self) -> bool:
        """Take the next batch that has rows; whether there is one."""
        try:
            batch = await self._source.next()
            if batch is None:
                self._has_ended = True
                return False
            check_batch(batch)
        except Exception:
            self._parts = []
            raise
        self._batch, self._start = batch, 0
        return True


def _concatenate_all(dtypes: Sequence[DType]) -> Kernel:
    def kernel(parts: Sequence[Element]) -> list[Any]:
        return [arrays[0] if len(arrays) == 1 else np.concatenate(arrays) for arrays in zip(*parts, strict=True)]

    return kernel


_CONCATENATE: Final = joining("_ConcatenateElements", _concatenate_all)


@dataset_op("RebatchDatasetV2")
def rebatch_dataset_v2(c: OpKernelConstruction) -> Kernel:
    """The rows of batches, in batches of other sizes."""
    joiner = Joiner(c, _CONCATENATE)

    def kernel(source: object, batch_sizes: Any, drop_remainder: object) -> Dataset:
        dataset, drops = as_dataset(source), bool(drop_remainder)
        if np.ndim(batch_sizes) > 1:
            raise InvalidArgumentError("`batch_sizes` must be a scalar or a vector.")
        sizes = [int(size) for size in np.ravel(batch_sizes)]
        if not sizes or min(sizes) < 0 or not any(sizes):
            raise InvalidArgumentError(f"`batch_sizes` must be numbers of rows, not all 0, but they are {sizes}")
        dtypes, shapes = declared(c)
        empty = tuple(
            np.empty((0, *(size or 0 for size in (shape.dims or ())[1:])), dtype.as_numpy_dtype)
            for dtype, shape in zip(dtypes, shapes, strict=True)
        )
        concatenate = joiner.of(dtypes)

        async def join(parts: Element) -> Element:
            return await concatenate(parts) if parts else empty

        def iterate(pipeline: Pipeline) -> ElementIterator:
            parts = RegatheredIterator(dataset.iterate(pipeline), sizes, drops_remainder=drops)
            return MappedIterator(parts, join)

        return Dataset("RebatchV2", iterate, dtypes, shapes)

    return kernel


def _make_sparse(dtypes: Sequence[DType]) -> Kernel:
    def kernel(given: tuple[Sequence[int], DType, Sequence[Element]]) -> list[Any]:
        row_shape, dtype, elements = given
        arrays = [np.asarray(value, dtype.as_numpy_dtype) for (value,) in elements]
        sizes = [max(0, size) for size in row_shape]
        for array in arrays:
            if array.ndim != len(row_shape):
                raise InvalidArgumentError(
                    f"Input element had shape ({list(array.shape)}) that is incompatible with the row shape "
                    f"({list(row_shape)})."
                )
            for axis, size in enumerate(array.shape):
                if row_shape[axis] == -1:
                    sizes[axis] = max(sizes[axis], size)
                elif size > row_shape[axis]:
                    raise DataLossError(
                        f"Input element had shape ({list(array.shape)}) that is larger than the row shape "
                        f"({list(row_shape)})."
                    )
        indices = [
            np.column_stack(
                [np.full(array.size, number, np.int64), *(axis.ravel() for axis in np.indices(array.shape))]
            )
            for number, array in enumerate(arrays)
        ]
        places = np.concatenate(indices).astype(np.int64).reshape(-1, len(row_shape) + 1)
        values = np.concatenate([array.ravel() for array in arrays])
        return [boxed_parts(places, values, np.array([len(arrays), *sizes], np.int64), dtype)]

    return kernel


_SPARSE: Final = joining("_SparseElements", _make_sparse)


@dataset_op("DenseToSparseBatchDataset", "ExperimentalDenseToSparseBatchDataset")
def dense_to_sparse_batch_dataset(c: OpKernelConstruction) -> Kernel:
    """Elements of several sizes, as one sparse tensor, in its serialized form."""
    join = Joiner(c, _SPARSE).of((variant,))

    def kernel(source: object, batch_size: object, row_shape: Any) -> Dataset:
        dataset, size = as_dataset(source), batch_size_of(batch_size)
        if len(dataset.dtypes) != 1:
            raise InvalidArgumentError("DenseToSparseBatchDataset only supports inputs with a single component.")
        if np.ndim(row_shape) != 1:
            raise InvalidArgumentError("row_shape must be a vector")
        row, dtype = [int(length) for length in row_shape], dataset.dtypes[0]

        def make(elements: Element) -> Awaitable[Element]:
            return join((row, dtype, elements))

        def iterate(pipeline: Pipeline) -> ElementIterator:
            return MappedIterator(GatheredIterator(dataset.iterate(pipeline), size, drops_remainder=False), make)

        count = batch_cardinality(dataset.cardinality, size, drops_remainder=False)
        return Dataset("DenseToSparseBatch", iterate, *declared(c), count)

    return kernel


class SleepingIterator(ElementIterator):
    """The elements, each after a pause."""

    __slots__ = ("_pause_s", "_source")

    def __init__(self, source: ElementIterator, pause_s: float) -> None:
        self._source, self._pause_s = source, pause_s

    async def next(self) -> Element | None:
        await asyncio.sleep(self._pause_s)
        return await self._source.next()


@dataset_op("SleepDataset", "ExperimentalSleepDataset")
def sleep_dataset(c: OpKernelConstruction) -> Kernel:
    """The elements, each after a pause."""

    def kernel(source: object, sleep_microseconds: object) -> Dataset:
        dataset, pause = as_dataset(source), scalar_int(sleep_microseconds, "sleep_microseconds") / _US_PER_S
        return dataset.derived("Sleep", lambda p: SleepingIterator(dataset.iterate(p), pause))

    return kernel
