"""Datasets of some elements of others: windows, and the rows of batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction, as_value
from asyncexec.ops.data.batches import shape_of
from asyncexec.ops.data.dataset import (
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


class ListIterator(ElementIterator):
    """The elements of a list."""

    __slots__ = ("_elements", "_index", "_pipeline")

    def __init__(self, pipeline: Pipeline, elements: Sequence[Element]) -> None:
        self._pipeline, self._elements = pipeline, elements
        self._index = 0

    async def next(self) -> Element | None:
        if self._pipeline.is_late:
            await self._pipeline.pause()
        self._index += 1
        return self._elements[self._index - 1] if self._index <= len(self._elements) else None


def window_of(elements: Sequence[Element], like: Dataset) -> Dataset:
    """A dataset of *elements*, which were some of those of *like*."""
    return like.derived("Window", lambda p: ListIterator(p, elements), len(elements))


class WindowIterator(ElementIterator):
    """Windows over elements: each *stride*-th of so many that follow one another, as datasets of one component each."""

    __slots__ = ("_buffer", "_dataset", "_drops_remainder", "_num_to_drop", "_shift", "_source", "_span", "_stride")

    def __init__(
        self, pipeline: Pipeline, dataset: Dataset, size: int, shift: int, stride: int, *, drops_remainder: bool
    ) -> None:
        self._dataset, self._shift, self._stride = dataset, shift, stride
        self._drops_remainder = drops_remainder
        self._span = (size - 1) * stride + 1
        self._source: ElementIterator | None = dataset.iterate(pipeline)
        self._buffer: deque[Element | Exception] = deque()
        self._num_to_drop = 0  # of the elements that come, before the next window

    async def next(self) -> Element | None:
        buffer = self._buffer
        while self._num_to_drop and self._source is not None:
            await self._pull()
            if buffer:
                buffer.clear()
                self._num_to_drop -= 1
        while len(buffer) < self._span and self._source is not None:
            await self._pull()
        if not buffer or (self._drops_remainder and len(buffer) < self._span):
            return None
        found = [buffer[index] for index in range(0, len(buffer), self._stride)]
        self._num_to_drop = max(0, self._shift - len(buffer))
        for _ in range(min(self._shift, len(buffer))):
            buffer.popleft()
        elements: list[Element] = []
        for each in found:
            if isinstance(each, Exception):
                raise each
            elements.append(each)
        return tuple(
            window_of([(element[index],) for element in elements], self._component(index))
            for index in range(len(self._dataset.dtypes))
        )

    def _component(self, index: int) -> Dataset:
        dataset = self._dataset
        return Dataset("Window", dataset.iterate, (dataset.dtypes[index],), (dataset.shapes[index],))

    async def _pull(self) -> None:
        assert self._source is not None
        try:
            element = await self._source.next()
        except Exception as error:
            self._buffer.append(error.with_traceback(None))
            return
        if element is None:
            self._source = None
        else:
            self._buffer.append(element)


@dataset_op("WindowDataset")
def window_dataset(c: OpKernelConstruction) -> Kernel:
    """Windows over the elements, as datasets."""

    def kernel(source: object, size: object, shift: object, stride: object, drop_remainder: object) -> Dataset:
        dataset, drops = as_dataset(source), bool(drop_remainder)
        lengths = [scalar_int(value, name) for value, name in ((size, "size"), (shift, "shift"), (stride, "stride"))]
        for name, length in zip(("size", "shift", "stride"), lengths, strict=True):
            if length <= 0:
                raise InvalidArgumentError(f"Window {name} must be greater than zero.")
        num, by, stride_length = lengths
        span = (num - 1) * stride_length + 1
        known = dataset.cardinality
        count = known
        if known >= 0:
            count = (max(0, (known - span) // by + 1) if known >= span else 0) if drops else -(-known // by)

        def iterate(pipeline: Pipeline) -> ElementIterator:
            return WindowIterator(pipeline, dataset, num, by, stride_length, drops_remainder=drops)

        return Dataset("Window", iterate, *declared(c), count)

    return kernel


class UnbatchedIterator(ElementIterator):
    """The slices of each element along its first dimension."""

    __slots__ = ("_batch", "_index", "_pipeline", "_source")

    def __init__(self, pipeline: Pipeline, source: ElementIterator) -> None:
        self._pipeline, self._source = pipeline, source
        self._batch: Element | None = None
        self._index = 0

    async def next(self) -> Element | None:
        while self._batch is None or self._index >= len(self._batch[0]):
            self._batch = None
            batch = await self._source.next()
            if batch is None:
                return None
            check_batch(batch)
            self._batch, self._index = batch, 0
        if self._pipeline.is_late:
            await self._pipeline.pause()
        index = self._index
        self._index += 1
        return tuple([as_value(array[index]) for array in self._batch])


def check_batch(batch: Element) -> None:
    """InvalidArgumentError unless all components of *batch* have the same number of rows."""
    sizes = [shape_of(array)[:1] for array in batch]
    if () in sizes:
        raise InvalidArgumentError("Input element must have a non-scalar value in each component.")
    for index, size in enumerate(sizes):
        if size != sizes[0]:
            raise InvalidArgumentError(
                f"Input element must have the same batch size in each component. Component 0 had size {sizes[0][0]} "
                f"but component {index} had size {size[0]}."
            )


@dataset_op("UnbatchDataset", "ExperimentalUnbatchDataset")
def unbatch_dataset(c: OpKernelConstruction) -> Kernel:
    """The rows of the elements."""

    def kernel(source: object) -> Dataset:
        dataset = as_dataset(source)
        sizes = {shape.dims[0] for shape in dataset.shapes if shape.dims}
        rows = sizes.pop() if len(sizes) == 1 else None
        known = dataset.cardinality
        count = known if known < 0 else UNKNOWN if rows is None else known * rows
        return Dataset("Unbatch", lambda p: UnbatchedIterator(p, dataset.iterate(p)), *declared(c), count)

    return kernel
