"""Datasets that are made of tensors and numbers: ranges, slices of tensors, random numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from asyncexec.framework.errors import InvalidArgumentError, OutOfRangeError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction, as_value
from asyncexec.framework.ownership import keep
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.ops.data.dataset import (
    INFINITE,
    Dataset,
    Element,
    ElementIterator,
    Pipeline,
    dataset_op,
    declared,
    runtime_of,
    scalar_int,
)
from asyncexec.ops.data.functions import CapturedFunction, FunctionAttr
from asyncexec.ops.data.seeds import NumberStream, SeedGenerator, seeds_of


class IndexedIterator(ElementIterator):
    """The elements that *get* gives for 0, 1, ... below *count*."""

    __slots__ = ("_count", "_get", "_index", "_pipeline")

    def __init__(self, pipeline: Pipeline, count: int, get: Callable[[int], Element]) -> None:
        self._pipeline, self._count, self._get = pipeline, count, get
        self._index = 0

    async def next(self) -> Element | None:
        if self._pipeline.is_late:
            await self._pipeline.pause()
        index = self._index
        if index >= self._count:
            return None
        self._index = index + 1
        return self._get(index)


def indexed(c: OpKernelConstruction, kind: str, count: int, get: Callable[[int], Element]) -> Dataset:
    """The dataset of what *get* gives for the numbers below *count*."""
    return Dataset(kind, lambda pipeline: IndexedIterator(pipeline, count, get), *declared(c), count)


@dataset_op("RangeDataset")
def range_dataset(c: OpKernelConstruction) -> Kernel:
    """The numbers of a range, each a scalar."""
    kind = c.attr("output_types")[0].as_numpy_dtype.type

    def kernel(start: object, stop: object, step: object) -> Dataset:
        first, last, by = scalar_int(start, "start"), scalar_int(stop, "stop"), scalar_int(step, "step")
        if not by:
            raise InvalidArgumentError("step must be a non-zero integer.")
        numbers = range(first, last, by)
        return indexed(c, "Range", len(numbers), lambda index: (kind(numbers[index]),))

    return kernel


@dataset_op("TensorDataset")
def tensor_dataset(c: OpKernelConstruction) -> Kernel:
    """One element: the tensors."""

    def kernel(*components: object) -> Dataset:
        element = tuple(map(keep, components))
        count = 1
        return Dataset(
            "Tensor",
            lambda pipeline: IndexedIterator(pipeline, count, lambda _: element),
            tuple(c.attr("Toutput_types")),
            tuple(c.attr("output_shapes")),
            count,
        )

    return kernel


@dataset_op("TensorSliceDataset")
def tensor_slice_dataset(c: OpKernelConstruction) -> Kernel:
    """The slices of tensors along their first dimension."""
    dtypes, shapes = tuple(c.attr("Toutput_types")), tuple(c.attr("output_shapes"))

    def kernel(*components: object) -> Dataset:
        arrays = tuple(map(keep, components))
        count = _num_slices(arrays)

        def element(index: int) -> Element:
            return tuple([as_value(array[index]) for array in arrays])

        return Dataset("TensorSlice", lambda pipeline: IndexedIterator(pipeline, count, element), dtypes, shapes, count)

    return kernel


def _num_slices(arrays: Sequence[Any]) -> int:
    if any(not np.ndim(array) for array in arrays):
        raise InvalidArgumentError("All components must be at least 1-dimensional")
    counts = {len(array) for array in arrays}
    if len(counts) > 1:
        raise InvalidArgumentError("All components must have the same size in the 0th dimension")
    return counts.pop()


@dataset_op("ListDataset")
def list_dataset(c: OpKernelConstruction) -> Kernel:
    """The elements whose components are given one after the other."""
    dtypes, _ = declared(c)
    given, size = tuple(c.attr("Tinput_types")), len(dtypes)
    if len(given) % size or given != dtypes * (len(given) // size):
        raise InvalidArgumentError(
            f"Number of tensors should be a multiple of {size}, each of the output types, but there are {len(given)}"
        )

    def kernel(*components: object) -> Dataset:
        kept = tuple(map(keep, components))
        return indexed(c, "List", len(kept) // size, lambda index: kept[index * size : (index + 1) * size])

    return kernel


@dataset_op("SparseTensorSliceDataset")
def sparse_tensor_slice_dataset(c: OpKernelConstruction) -> Kernel:
    """The slices of a sparse tensor along its first dimension, each as indices, values and shape."""

    def kernel(indices: Any, values: Any, dense_shape: Any) -> Dataset:
        _check_sparse(indices, values, dense_shape)
        indices, values = keep(indices), keep(values)
        rest = keep(np.asarray(dense_shape[1:]))
        count = int(dense_shape[0])
        bounds = np.searchsorted(indices[:, 0], np.arange(min(count, int(indices[-1, 0]) + 1 if len(indices) else 0)))

        def element(index: int) -> Element:
            start = int(bounds[index]) if index < len(bounds) else len(indices)
            stop = int(bounds[index + 1]) if index + 1 < len(bounds) else len(indices)
            return indices[start:stop, 1:], values[start:stop], rest

        dtypes = (c.input_dtypes[0], c.input_dtypes[1], c.input_dtypes[2])
        rank = len(rest)
        return Dataset(
            "SparseTensorSlice",
            lambda pipeline: IndexedIterator(pipeline, count, element),
            dtypes,
            (TensorShape([None, rank]), TensorShape([None]), TensorShape([rank])),
            count,
        )

    return kernel


def _check_sparse(indices: Any, values: Any, dense_shape: Any) -> None:
    if np.ndim(indices) != 2:
        raise InvalidArgumentError(f"Input indices must be a matrix. Got: {list(np.shape(indices))}")
    if np.ndim(values) != 1:
        raise InvalidArgumentError(f"Input values must be a vector. Got: {list(np.shape(values))}")
    if np.ndim(dense_shape) != 1:
        raise InvalidArgumentError(f"Input shape must be a vector. Got: {list(np.shape(dense_shape))}")
    if len(indices) != len(values):
        raise InvalidArgumentError(
            f"Number of values must match first dimension of indices. Got {len(values)} values, "
            f"indices shape: {list(indices.shape)}"
        )
    if indices.shape[1] != len(dense_shape):
        raise InvalidArgumentError(
            f"Number of dimensions must match second dimension of indices. Got {len(dense_shape)} dimensions, "
            f"indices shape: {list(indices.shape)}"
        )
    if not len(dense_shape):
        raise InvalidArgumentError("The shape argument requires at least one element.")
    if np.any(indices < 0) or np.any(indices >= dense_shape):
        raise InvalidArgumentError("an index lies outside of the dense shape")
    if np.any(np.diff(indices[:, 0]) < 0):
        raise InvalidArgumentError("The SparseTensor must be ordered in the batch dimension.")


class RandomIterator(ElementIterator):
    """Random numbers without end."""

    __slots__ = ("_numbers", "_pipeline")

    def __init__(self, pipeline: Pipeline, generator: SeedGenerator) -> None:
        self._pipeline = pipeline
        self._numbers = NumberStream(*generator.next_seeds())

    async def next(self) -> Element | None:
        if self._pipeline.is_late:
            await self._pipeline.pause()
        return (np.int64(self._numbers.next()),)


@dataset_op("RandomDataset", "RandomDatasetV2", "ExperimentalRandomDataset")
def random_dataset(c: OpKernelConstruction) -> Kernel:
    """Random numbers of 32 bits, as int64."""
    varies = bool(c.attrs.get("rerandomize_each_iteration", False))

    def kernel(seed: object, seed2: object, handle: object = None) -> Dataset:
        generator = SeedGenerator.of(handle, seeds_of(seed, seed2), varies=varies)
        return Dataset("Random", lambda pipeline: RandomIterator(pipeline, generator), *declared(c), INFINITE)

    return kernel


class GeneratedIterator(ElementIterator):
    """What a function gives for a state, until it raises OutOfRangeError; then another function ends the state."""

    __slots__ = ("_finalize", "_has_ended", "_init", "_next", "_pipeline", "_state")

    def __init__(
        self, pipeline: Pipeline, init: CapturedFunction, following: CapturedFunction, finalize: CapturedFunction
    ) -> None:
        self._pipeline, self._init, self._next, self._finalize = pipeline, init, following, finalize
        self._state: Element | None = None
        self._has_ended = False

    async def next(self) -> Element | None:
        if self._pipeline.is_late:
            await self._pipeline.pause()
        if self._has_ended:
            return None
        if self._state is None:
            self._state = await self._init()
        try:
            return await self._next(*self._state)
        except OutOfRangeError:
            self._has_ended = True
        await self._finalize(*self._state)
        return None


@dataset_op("GeneratorDataset")
def generator_dataset(c: OpKernelConstruction) -> Kernel:
    """What functions of the graph generate."""
    runtime = runtime_of(c)
    states = runtime.output_dtypes(c.attr("init_func"))
    ends = runtime.output_dtypes(c.attr("finalize_func"))
    outputs = {"init": states, "next": c.attr("output_types"), "finalize": ends}
    functions = {name: FunctionAttr(c, f"{name}_func", f"T{name}_func_args", given) for name, given in outputs.items()}

    def kernel(*inputs: object) -> Dataset:
        captured = iter(inputs)
        calls = [
            function.capture(() if name == "init" else states, [next(captured) for _ in c.attr(f"T{name}_func_args")])
            for name, function in functions.items()
        ]
        return Dataset("Generator", lambda pipeline: GeneratedIterator(pipeline, *calls), *declared(c))

    return kernel
