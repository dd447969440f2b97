"""Datasets that call a function for each element: map, filter, take_while, scan."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from asyncexec.framework.errors import InvalidArgumentError, OutOfRangeError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.types import bool as bool_dtype
from asyncexec.ops.data.dataset import (
    INFINITE,
    UNKNOWN,
    Dataset,
    Element,
    ElementIterator,
    Peekable,
    Pipeline,
    as_dataset,
    dataset_op,
    declared,
    scalar_int,
)
from asyncexec.ops.data.functions import CapturedFunction, FunctionAttr, predicate_value
from asyncexec.ops.data.read_ahead import AUTOTUNED_CALLS, ReadAhead, window_size

Mapping: TypeAlias = Callable[[Element], Awaitable[Element]]
MakeMapping: TypeAlias = Callable[[Any, Sequence[Any]], tuple[Dataset, Mapping]]


class _NoMoreElementsError(Exception):
    """A function told that there are no more elements."""


class MappedIterator(ElementIterator):
    """What a function gives for each element."""

    __slots__ = ("_function", "_input")

    def __init__(self, source: ElementIterator, function: Mapping) -> None:
        self._input = Peekable(source)
        self._function = function

    async def next(self) -> Element | None:
        element = await self._input.peek()
        if element is None:
            return None
        try:
            with self._input.use():
                return await self._function(element)
        except _NoMoreElementsError:
            return None


class MappingFunction:
    """The function of a map.  Its OutOfRangeError ends the elements, unless there are to be as many as there were."""

    __slots__ = ("_function", "_preserves_cardinality")

    def __init__(self, function: CapturedFunction, *, preserves_cardinality: bool) -> None:
        self._function = function
        self._preserves_cardinality = preserves_cardinality

    async def __call__(self, element: Element) -> Element:
        try:
            return await self._function(*element)
        except OutOfRangeError as error:
            if not self._preserves_cardinality:
                raise _NoMoreElementsError from None
            raise InvalidArgumentError(f"Function invocation produced OutOfRangeError: {error.message}") from error


class AheadMappedIterator(ElementIterator):
    """The same, for several elements at once."""

    __slots__ = ("_ahead",)

    def __init__(
        self, pipeline: Pipeline, source: ElementIterator, function: Mapping, calls: int, *, is_ordered: bool
    ) -> None:
        self._ahead = ReadAhead(pipeline, source, calls, function, is_ordered=is_ordered)

    async def next(self) -> Element | None:
        try:
            result: Element | None = await self._ahead.next()
        except _NoMoreElementsError:
            return None
        return result


def is_deterministic(c: OpKernelConstruction) -> bool:
    """Whether elements stay in order, by the attrs of a node."""
    if "deterministic" in c.attrs:
        return bool(c.attr("deterministic") != b"false")
    return not c.attrs.get("sloppy", False)


@dataset_op("MapDataset", "ExperimentalMapDataset")
def map_dataset(c: OpKernelConstruction) -> Kernel:
    """A function of each element, one after the other."""
    make = mapping(c)

    def kernel(source: object, *captured: object) -> Dataset:
        dataset, function = make(source, captured)
        return Dataset("Map", lambda p: MappedIterator(dataset.iterate(p), function), *declared(c), dataset.cardinality)

    return kernel


def mapping(c: OpKernelConstruction) -> MakeMapping:
    """What makes a dataset and a mapping function of the first inputs of a node."""
    function = FunctionAttr(c, "f", "Targuments", c.attr("output_types"))
    preserves = bool(c.attrs.get("preserve_cardinality", False))

    def make(source: object, captured: Sequence[object]) -> tuple[Dataset, Mapping]:
        dataset = as_dataset(source)
        return dataset, MappingFunction(function.capture(dataset.dtypes, captured), preserves_cardinality=preserves)

    return make


@dataset_op("ParallelMapDataset", "ParallelMapDatasetV2")
def parallel_map_dataset(c: OpKernelConstruction) -> Kernel:
    """A function of several elements at once."""
    make, is_ordered = mapping(c), is_deterministic(c)

    def kernel(source: object, *inputs: object) -> Dataset:
        dataset, function = make(source, inputs[:-1])
        calls = window_size(scalar_int(inputs[-1], "num_parallel_calls"), AUTOTUNED_CALLS, "num_parallel_calls")

        def iterate(pipeline: Pipeline) -> ElementIterator:
            source = dataset.iterate(pipeline)
            return AheadMappedIterator(pipeline, source, function, calls, is_ordered=is_ordered)

        return Dataset("ParallelMap", iterate, *declared(c), dataset.cardinality)

    return kernel


class FilteredIterator(ElementIterator):
    """The elements for which a predicate holds; the first ones only, if it *ends* with the first other one."""

    __slots__ = ("_ends", "_has_ended", "_input", "_predicate")

    def __init__(self, source: ElementIterator, predicate: CapturedFunction, *, ends: bool = False) -> None:
        self._input = Peekable(source)
        self._predicate = predicate
        self._ends = ends
        self._has_ended = False

    async def next(self) -> Element | None:
        while not self._has_ended:
            element = await self._input.peek()
            if element is None:
                return None
            with self._input.use():
                is_taken = predicate_value(await self._predicate(*element), "TakeWhile" if self._ends else "Filter")
            if is_taken:
                return element
            self._has_ended = self._ends
        return None


def _filtering(c: OpKernelConstruction) -> Callable[[Any, Sequence[Any]], tuple[Dataset, CapturedFunction]]:
    predicate = FunctionAttr(c, "predicate", "Targuments", (bool_dtype,))

    def make(source: object, captured: Sequence[object]) -> tuple[Dataset, CapturedFunction]:
        dataset = as_dataset(source)
        return dataset, predicate.capture(dataset.dtypes, captured)

    return make


def _fewer(dataset: Dataset) -> int:
    """The cardinality of elements of *dataset* that a function chooses."""
    return dataset.cardinality if dataset.cardinality == INFINITE else UNKNOWN


@dataset_op("FilterDataset")
def filter_dataset(c: OpKernelConstruction) -> Kernel:
    """The elements for which a predicate holds."""
    make = _filtering(c)

    def kernel(source: object, *captured: object) -> Dataset:
        dataset, predicate = make(source, captured)
        return dataset.derived("Filter", lambda p: FilteredIterator(dataset.iterate(p), predicate), _fewer(dataset))

    return kernel


@dataset_op("TakeWhileDataset", "ExperimentalTakeWhileDataset")
def take_while_dataset(c: OpKernelConstruction) -> Kernel:
    """The elements before the first one for which a predicate does not hold."""
    make = _filtering(c)

    def kernel(source: object, *captured: object) -> Dataset:
        dataset, predicate = make(source, captured)
        return dataset.derived(
            "TakeWhile", lambda p: FilteredIterator(dataset.iterate(p), predicate, ends=True), UNKNOWN
        )

    return kernel


class AheadFilteredIterator(ElementIterator):
    """The elements for which a predicate holds, which is called for several at once."""

    __slots__ = ("_ahead",)

    def __init__(
        self, pipeline: Pipeline, source: ElementIterator, predicate: CapturedFunction, calls: int, *, is_ordered: bool
    ) -> None:
        async def call(element: Element) -> tuple[Element, bool]:
            return element, predicate_value(await predicate(*element), "Filter")

        self._ahead = ReadAhead(pipeline, source, calls, call, is_ordered=is_ordered)

    async def next(self) -> Element | None:
        while True:
            found: tuple[Element, bool] | None = await self._ahead.next()
            if found is None:
                return None
            if found[1]:
                return found[0]


@dataset_op("ParallelFilterDataset")
def parallel_filter_dataset(c: OpKernelConstruction) -> Kernel:
    """The elements for which a predicate holds, which is called for several at once."""
    make, is_ordered = _filtering(c), is_deterministic(c)

    def kernel(source: object, *inputs: object) -> Dataset:
        dataset, predicate = make(source, inputs[:-1])
        calls = window_size(scalar_int(inputs[-1], "num_parallel_calls"), AUTOTUNED_CALLS, "num_parallel_calls")

        def iterate(pipeline: Pipeline) -> ElementIterator:
            source = dataset.iterate(pipeline)
            return AheadFilteredIterator(pipeline, source, predicate, calls, is_ordered=is_ordered)

        return dataset.derived("ParallelFilter", iterate, _fewer(dataset))

    return kernel


class ScannedIterator(ElementIterator):
    """What a function gives for a state and an element, and passes the next state on."""

    __slots__ = ("_function", "_input", "_state")

    def __init__(self, source: ElementIterator, state: Sequence[object], function: MappingFunction) -> None:
        self._input = Peekable(source)
        self._state = tuple(state)
        self._function = function

    async def next(self) -> Element | None:
        element = await self._input.peek()
        if element is None:
            return None
        try:
            with self._input.use():
                outputs = await self._function((*self._state, *element))
        except _NoMoreElementsError:
            return None
        count = len(self._state)
        self._state = outputs[:count]
        return outputs[count:]


@dataset_op("ScanDataset", "ExperimentalScanDataset")
def scan_dataset(c: OpKernelConstruction) -> Kernel:
    """A function of a state and each element."""
    states = tuple(c.attr("Tstate"))
    function = FunctionAttr(c, "f", "Targuments", (*states, *c.attr("output_types")))
    preserves = bool(c.attr("preserve_cardinality"))

    def kernel(source: object, *inputs: object) -> Dataset:
        dataset, state = as_dataset(source), inputs[: len(states)]
        captured = function.capture((*states, *dataset.dtypes), inputs[len(states) :])
        call = MappingFunction(captured, preserves_cardinality=preserves)
        count = dataset.cardinality if preserves else UNKNOWN
        return Dataset("Scan", lambda p: ScannedIterator(dataset.iterate(p), state, call), *declared(c), count)

    return kernel
