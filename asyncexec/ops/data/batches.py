"""Datasets of batches: elements are gathered, and then joined by a kernel.

The joining is an op of its own, which runs as a step: so it is measured like any kernel, and goes to a worker thread
where that pays.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from asyncexec.framework.errors import DataLossError, InvalidArgumentError
from asyncexec.framework.function_runtime import FunctionCall, FunctionHandle
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import KernelRegistration
from asyncexec.framework.op_def import parse_op_def
from asyncexec.framework.op_registry import OpRegistration
from asyncexec.framework.ownership import keep
from asyncexec.framework.shape_inference import unknown
from asyncexec.framework.step_stats import current_trace
from asyncexec.framework.types import DType
from asyncexec.ops.data.dataset import (
    Dataset,
    Element,
    ElementIterator,
    Pipeline,
    as_dataset,
    dataset_op,
    declared,
    runtime_of,
    scalar_int,
)
from asyncexec.ops.data.maps import AheadMappedIterator, MappedIterator, is_deterministic, mapping
from asyncexec.ops.data.read_ahead import AUTOTUNED_CALLS, window_size


class GatheredIterator(ElementIterator):
    """Elements of *source*, *size* at a time: each element is a tuple of elements."""

    __slots__ = ("_drops_remainder", "_elements", "_has_ended", "_size", "_source")

    def __init__(self, source: ElementIterator, size: int, *, drops_remainder: bool) -> None:
        self._source, self._size, self._drops_remainder = source, size, drops_remainder
        self._elements: list[Element] = []
        self._has_ended = False

    async def next(self) -> Element | None:
        elements = self._elements
        while len(elements) < self._size and not self._has_ended:
            try:
                element = await self._source.next()
            except Exception as error:
                self._note(error)
                continue
            if element is None:
                self._has_ended = True
            else:
                elements.append(element)
        self._elements = []
        return self._gathered(elements)

    def _note(self, error: Exception) -> None:
        """An element has failed: those before it are dropped."""
        self._elements = []
        raise error

    def _gathered(self, elements: list[Element]) -> Element | None:
        """*elements* as an element, if they are enough."""
        if not elements or (self._drops_remainder and len(elements) < self._size):
            return None
        return tuple(elements)


class GatheredResultsIterator(GatheredIterator):
    """The same, where an element that fails takes its place: it fails with all others of its batch."""

    __slots__ = ("_error",)

    def __init__(self, source: ElementIterator, size: int, *, drops_remainder: bool) -> None:
        super().__init__(source, size, drops_remainder=drops_remainder)
        self._error: Exception | None = None

    def _note(self, error: Exception) -> None:
        self._error = self._error or error.with_traceback(None)
        self._elements.append(())

    def _gathered(self, elements: list[Element]) -> Element | None:
        failed, self._error = self._error, None
        if failed is not None:
            raise failed
        return super()._gathered(elements)


def shape_of(value: object) -> tuple[int, ...]:
    """The shape of a component; a Python object has none."""
    return value.shape if isinstance(value, np.ndarray) else ()


def stack(values: Sequence[Any], dtype: DType, index: int) -> Any:
    """The *values* of component *index*, all of one shape, as one array."""
    shape = shape_of(values[0])
    for number, value in enumerate(values):
        if shape_of(value) != shape:
            raise InvalidArgumentError(
                f"Cannot batch tensors with different shapes in component {index}. First element had shape "
                f"{list(shape)} and element {number} had shape {list(shape_of(value))}."
            )
    np_dtype = dtype.as_numpy_dtype
    if not shape and np_dtype.kind != "O":
        return np.array(values, np_dtype)
    joined = np.empty((len(values), *shape), np_dtype)
    if shape:
        np.stack(values, out=joined)
    else:
        for number, value in enumerate(values):
            joined[number] = value
    return joined


def _stack_all(dtypes: Sequence[DType]) -> Kernel:
    def kernel(elements: Sequence[Element]) -> list[Any]:
        parts = zip(*elements, strict=True)
        return [stack(values, dtype, index) for index, (values, dtype) in enumerate(zip(parts, dtypes, strict=True))]

    return kernel


@dataclass(frozen=True, slots=True, eq=False)
class Padding:
    """To what the components of elements are padded: sizes (-1: the largest that there is), and values."""

    shapes: Sequence[Sequence[int]]
    values: Sequence[Any]


def _pad_all(dtypes: Sequence[DType]) -> Kernel:
    def kernel(given: tuple[Padding, Sequence[Element]]) -> list[Any]:
        padding, elements = given
        parts = zip(*elements, padding.shapes, padding.values, strict=True)
        return [
            _pad(values, dtype, index, shape, fill)
            for index, (dtype, (*values, shape, fill)) in enumerate(zip(dtypes, parts, strict=True))
        ]

    return kernel


def _pad(values: Sequence[object], dtype: DType, index: int, shape: Sequence[int], fill: object) -> object:
    sizes = list(shape)
    for value in values:
        found = shape_of(value)
        if len(found) != len(shape):
            raise InvalidArgumentError(
                "All elements in a batch must have the same rank as the padded shape for component"
                f"{index}: expected rank {len(shape)} but got element with rank {len(found)}"
            )
        for axis, size in enumerate(found):
            if shape[axis] == -1:
                sizes[axis] = max(sizes[axis], size)
            elif size > shape[axis]:
                raise DataLossError(
                    f"Attempted to pad to a smaller size than the input element: dimension {axis} of component "
                    f"{index} is {size}, and {shape[axis]} padded."
                )
    joined = np.empty((len(values), *sizes), dtype.as_numpy_dtype)
    joined[...] = fill
    for number, value in enumerate(values):
        place: Any = (number, *map(slice, shape_of(value)))
        joined[place] = value
    return joined


def joining(name: str, make: Callable[[Sequence[DType]], Kernel]) -> OpRegistration:
    """An op, not in the registry, that joins elements."""
    registration = KernelRegistration(lambda c: make(c.attr("Tin")))
    op_def = parse_op_def(name, "elements: object -> joined: Tin", "Tin: list(type) >= 1")
    return OpRegistration(op_def, unknown, registration)


STACK: Final = joining("_StackElements", _stack_all)
PAD: Final = joining("_PadElements", _pad_all)


class Joiner:
    """Calls one of the joining ops for the node of *c*."""

    __slots__ = ("_c", "_handles", "_op")

    def __init__(self, c: OpKernelConstruction, op: OpRegistration) -> None:
        self._c, self._op = c, op
        self._handles: dict[tuple[DType, ...], FunctionHandle] = {}

    def of(self, dtypes: tuple[DType, ...]) -> Callable[[Any], Awaitable[Element]]:
        """What joins elements of *dtypes*."""
        c = self._c
        if dtypes not in self._handles:
            call = FunctionCall(c.name, None, c.device, dtypes, self._op, (), ())
            self._handles[dtypes] = runtime_of(c).instantiate(call)
        handle = self._handles[dtypes]

        async def join(elements: object) -> Element:
            trace = current_trace()
            return tuple(await handle.run(elements, (), () if trace is None else (trace,)))

        return join


def batch_cardinality(count: int, size: int, *, drops_remainder: bool) -> int:
    """How many batches *count* elements are."""
    if count < 0:
        return count
    return count // size if drops_remainder else -(-count // size)


def batch_size_of(value: object) -> int:
    """The size of a batch; InvalidArgumentError where it is not positive."""
    size = scalar_int(value, "batch_size")
    if size <= 0:
        raise InvalidArgumentError("Batch size must be greater than zero.")
    return size


@dataset_op("BatchDataset", "BatchDatasetV2")
def batch_dataset(c: OpKernelConstruction) -> Kernel:
    """Elements, stacked."""
    joiner = Joiner(c, STACK)

    def kernel(source: object, batch_size: object, drop_remainder: object = False) -> Dataset:
        dataset, size, drops = as_dataset(source), batch_size_of(batch_size), bool(drop_remainder)
        join = joiner.of(dataset.dtypes)

        def iterate(pipeline: Pipeline) -> ElementIterator:
            return MappedIterator(GatheredIterator(dataset.iterate(pipeline), size, drops_remainder=drops), join)

        count = batch_cardinality(dataset.cardinality, size, drops_remainder=drops)
        return Dataset("Batch", iterate, *declared(c), count)

    return kernel


@dataset_op("ParallelBatchDataset")
def parallel_batch_dataset(c: OpKernelConstruction) -> Kernel:
    """Elements, stacked, several batches at once."""
    joiner, is_ordered = Joiner(c, STACK), is_deterministic(c)

    def kernel(source: object, batch_size: object, num_parallel_calls: object, drop_remainder: object) -> Dataset:
        dataset, size, drops = as_dataset(source), batch_size_of(batch_size), bool(drop_remainder)
        calls = window_size(scalar_int(num_parallel_calls, "num_parallel_calls"), AUTOTUNED_CALLS, "num_parallel_calls")
        join = joiner.of(dataset.dtypes)

        def iterate(pipeline: Pipeline) -> ElementIterator:
            gathered = GatheredIterator(dataset.iterate(pipeline), size, drops_remainder=drops)
            return AheadMappedIterator(pipeline, gathered, join, calls, is_ordered=is_ordered)

        count = batch_cardinality(dataset.cardinality, size, drops_remainder=drops)
        return Dataset("ParallelBatch", iterate, *declared(c), count)

    return kernel


@dataset_op("MapAndBatchDataset", "ExperimentalMapAndBatchDataset")
def map_and_batch_dataset(c: OpKernelConstruction) -> Kernel:
    """A function of several elements at once, whose results are stacked."""
    make, joiner = mapping(c), Joiner(c, STACK)

    def kernel(source: object, *inputs: object) -> Dataset:
        *captured, batch_size, num_parallel_calls, drop_remainder = inputs
        dataset, function = make(source, captured)
        size, drops = batch_size_of(batch_size), bool(drop_remainder)
        calls = window_size(scalar_int(num_parallel_calls, "num_parallel_calls"), AUTOTUNED_CALLS, "num_parallel_calls")
        dtypes, shapes = declared(c)
        join = joiner.of(dtypes)

        def iterate(pipeline: Pipeline) -> ElementIterator:
            mapped = AheadMappedIterator(pipeline, dataset.iterate(pipeline), function, calls, is_ordered=True)
            return MappedIterator(GatheredResultsIterator(mapped, size, drops_remainder=drops), join)

        count = batch_cardinality(dataset.cardinality, size, drops_remainder=drops)
        return Dataset("MapAndBatch", iterate, dtypes, shapes, count)

    return kernel


@dataset_op("PaddedBatchDataset", "PaddedBatchDatasetV2")
def padded_batch_dataset(c: OpKernelConstruction) -> Kernel:
    """Elements, padded to one shape and stacked."""
    joiner, num = Joiner(c, PAD), c.attr("N")

    def kernel(source: object, batch_size: object, *inputs: object) -> Dataset:
        dataset, size = as_dataset(source), batch_size_of(batch_size)
        drops = bool(inputs[2 * num]) if len(inputs) > 2 * num else False
        padding = _padding(inputs[:num], inputs[num : 2 * num], dataset, tuple(c.attr("Toutput_types")))
        join = joiner.of(dataset.dtypes)

        def pad(elements: Element) -> Awaitable[Element]:
            return join((padding, elements))

        def iterate(pipeline: Pipeline) -> ElementIterator:
            return MappedIterator(GatheredIterator(dataset.iterate(pipeline), size, drops_remainder=drops), pad)

        count = batch_cardinality(dataset.cardinality, size, drops_remainder=drops)
        return Dataset("PaddedBatch", iterate, dataset.dtypes, tuple(c.attr("output_shapes")), count)

    return kernel


def _padding(shapes: Sequence[Any], values: Sequence[object], dataset: Dataset, dtypes: tuple[DType, ...]) -> Padding:
    if len(shapes) != len(dataset.dtypes):
        raise InvalidArgumentError(
            f"Number of padded shapes ({len(shapes)}) must match the number of components in the input dataset's "
            f"elements ({len(dataset.dtypes)})"
        )
    if dtypes != dataset.dtypes:
        raise InvalidArgumentError("Mismatched type between padding values and the input dataset's components")
    if any(np.ndim(shape) != 1 for shape in shapes):
        raise InvalidArgumentError("All padded shapes must be vectors")
    if any(shape_of(value) for value in values):
        raise InvalidArgumentError("All padding values must be scalars")
    return Padding([[int(size) for size in shape] for shape in shapes], tuple(map(keep, values)))
