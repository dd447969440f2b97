"""Datasets of groups: elements with the same key, reduced, or as windows of their own."""

from __future__ import annotations

import numpy as np

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.types import int64, variant
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
    runtime_of,
)
from asyncexec.ops.data.functions import CapturedFunction, FunctionAttr
from asyncexec.ops.data.nesting import opened
from asyncexec.ops.data.windows import window_of


def _int64(outputs: Element, function: str) -> int:
    (value,) = outputs
    if np.size(value) != 1:
        raise InvalidArgumentError(f"`{function}` must return a scalar int64.")
    return int(np.asarray(value).reshape(()))


class GroupedIterator(ElementIterator):
    """What is made of groups of elements: of each group of a key, as soon as it is large enough."""

    __slots__ = (
        "_current",
        "_dataset",
        "_full",
        "_groups",
        "_has_ended",
        "_input",
        "_key",
        "_pipeline",
        "_reduce",
        "_size_of",
        "_sizes",
    )

    def __init__(
        self,
        pipeline: Pipeline,
        dataset: Dataset,
        key: CapturedFunction,
        reduce: CapturedFunction,
        size_of: CapturedFunction,
    ) -> None:
        self._pipeline, self._dataset, self._key, self._reduce, self._size_of = pipeline, dataset, key, reduce, size_of
        self._input = Peekable(dataset.iterate(pipeline))
        self._groups: dict[int, list[Element]] = {}
        self._sizes: dict[int, int] = {}
        self._current: ElementIterator | None = None
        self._full: int | None = None  # the key of the group to give next
        self._has_ended = False

    async def next(self) -> Element | None:
        while True:
            if self._current is not None:
                element = await self._current.next()
                if element is not None:
                    return element
                self._current = None
            while self._full is None and not self._has_ended:
                await self._pull()
            if self._full is None:
                if not self._groups:
                    return None
                self._full = min(self._groups)
            await self._flush(self._full)

    async def _pull(self) -> None:
        """Put the next element into its group."""
        element = await self._input.peek()
        if element is None:
            self._has_ended = True
            return
        with self._input.use():
            key = _int64(await self._key(*element), "key_func")
            if key not in self._sizes:
                size = _int64(await self._size_of(np.int64(key)), "window_size_func")
                if size <= 0:
                    raise InvalidArgumentError(f"Window size must be greater than zero, but got {size}.")
                self._sizes[key] = size
            group = self._groups.setdefault(key, [])
            group.append(element)
            if len(group) == self._sizes[key]:
                self._full = key

    async def _flush(self, key: int) -> None:
        """Begin with what is made of the group of *key*."""
        window = window_of(tuple(self._groups[key]), self._dataset)
        try:
            self._current = (await opened(self._reduce, (np.int64(key), window))).iterate(self._pipeline)
        except Exception:
            self._full = None
            del self._groups[key]
            raise
        self._full = None
        del self._groups[key]


@dataset_op("GroupByWindowDataset", "ExperimentalGroupByWindowDataset")
def group_by_window_dataset(c: OpKernelConstruction) -> Kernel:
    """The elements of the datasets that a function makes of groups of elements."""
    names = ("key_func", "reduce_func", "window_size_func")
    outputs = ((int64,), (variant,), (int64,))
    functions = [
        FunctionAttr(c, name, f"T{name}_other_arguments", given) for name, given in zip(names, outputs, strict=True)
    ]
    counts = [len(c.attr(f"T{name}_other_arguments")) for name in names]

    def kernel(source: object, *inputs: object) -> Dataset:
        dataset, captured = as_dataset(source), iter(inputs)
        arguments = (dataset.dtypes, (int64, variant), (int64,))
        key, reduce, size_of = (
            function.capture(dtypes, [next(captured) for _ in range(count)])
            for function, dtypes, count in zip(functions, arguments, counts, strict=True)
        )
        known = INFINITE if dataset.cardinality == INFINITE else UNKNOWN
        return Dataset(
            "GroupByWindow", lambda p: GroupedIterator(p, dataset, key, reduce, size_of), *declared(c), known
        )

    return kernel


class ReducedIterator(ElementIterator):
    """What the elements of each key are reduced to, in the order of the keys."""

    __slots__ = ("_finalize", "_init", "_input", "_key", "_keys", "_pipeline", "_reduce", "_states")

    def __init__(
        self,
        pipeline: Pipeline,
        source: ElementIterator,
        key: CapturedFunction,
        init: CapturedFunction,
        reduce: CapturedFunction,
        finalize: CapturedFunction,
    ) -> None:
        self._key, self._init, self._reduce, self._finalize = key, init, reduce, finalize
        self._pipeline, self._input = pipeline, Peekable(source)
        self._states: dict[int, Element] = {}
        self._keys: list[int] | None = None  # those to come, the next one last

    async def next(self) -> Element | None:
        while self._keys is None:
            element = await self._input.peek()
            if element is None:
                self._keys = sorted(self._states, reverse=True)
                break
            with self._input.use():
                key = _int64(await self._key(*element), "key_func")
                if key not in self._states:
                    self._states[key] = await self._init(np.int64(key))
                self._states[key] = await self._reduce(*self._states[key], *element)
        if not self._keys:
            return None
        if self._pipeline.is_late:
            await self._pipeline.pause()
        result = await self._finalize(*self._states[self._keys[-1]])
        self._keys.pop()
        return result


@dataset_op("GroupByReducerDataset", "ExperimentalGroupByReducerDataset")
def group_by_reducer_dataset(c: OpKernelConstruction) -> Kernel:
    """What functions reduce the elements of each key to."""
    names = ("key_func", "init_func", "reduce_func", "finalize_func")
    states = runtime_of(c).output_dtypes(c.attr("init_func"))
    outputs = ((int64,), states, states, c.attr("output_types"))
    functions = [
        FunctionAttr(c, name, f"T{name}_other_arguments", given) for name, given in zip(names, outputs, strict=True)
    ]
    counts = [len(c.attr(f"T{name}_other_arguments")) for name in names]

    def kernel(source: object, *inputs: object) -> Dataset:
        dataset, captured = as_dataset(source), iter(inputs)
        arguments = (dataset.dtypes, (int64,), (*states, *dataset.dtypes), states)
        calls = [
            function.capture(dtypes, [next(captured) for _ in range(count)])
            for function, dtypes, count in zip(functions, arguments, counts, strict=True)
        ]
        return Dataset("GroupByReducer", lambda p: ReducedIterator(p, dataset.iterate(p), *calls), *declared(c))

    return kernel
