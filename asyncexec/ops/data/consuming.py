"""Ops that take the elements of a dataset themselves: reduce, to_single_element, tables; and its cardinality."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import numpy as np

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.shape_inference import InferenceContext, no_outputs, scalars
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.ops.data.dataset import Dataset, ElementIterator, Pipeline, as_dataset
from asyncexec.ops.data.functions import FunctionAttr
from asyncexec.ops.data.iterators import check_element
from asyncexec.ops.op_list import register_listed_op
from asyncexec.ops.state.lookup import initializable


def _declared_shapes(c: InferenceContext) -> Sequence[TensorShape]:
    shapes: Sequence[TensorShape] = c.attr("output_shapes")
    return shapes


register_listed_op("ReduceDataset", _declared_shapes)
register_listed_op("DatasetToSingleElement", _declared_shapes)
register_listed_op("DatasetCardinality", scalars)
register_listed_op("ExperimentalDatasetCardinality", scalars)
register_listed_op("InitializeTableFromDataset", no_outputs)


@asynccontextmanager
async def iterated(c: OpKernelConstruction, dataset: Dataset) -> AsyncIterator[ElementIterator]:
    """An iterator over *dataset*; nothing of it goes on behind the block."""
    pipeline = Pipeline(c.resource_mgr.background)
    try:
        yield dataset.iterate(pipeline)
    finally:
        await pipeline.close()


@register_kernel("ReduceDataset", kind=KernelKind.ASYNC)
def reduce_dataset(c: OpKernelConstruction) -> Kernel:
    """What a function makes of a state and all elements, one after the other."""
    states = tuple(c.attr("Tstate"))
    function = FunctionAttr(c, "f", "Targuments", states)
    dtypes, shapes = c.attr("output_types"), c.attr("output_shapes")
    if tuple(dtypes) != states:
        raise InvalidArgumentError("The result does not match the expected types: the state is of other ones.")

    async def kernel(source: object, *inputs: object) -> tuple[Any, ...]:
        dataset, state = as_dataset(source), inputs[: len(states)]
        call = function.capture((*states, *dataset.dtypes), inputs[len(states) :])
        async with iterated(c, dataset) as elements:
            while (element := await elements.next()) is not None:
                state = await call(*state, *element)
        return check_element(state, dtypes, shapes)

    return kernel


@register_kernel("DatasetToSingleElement", kind=KernelKind.ASYNC)
def dataset_to_single_element(c: OpKernelConstruction) -> Kernel:
    """The only element."""
    dtypes, shapes = c.attr("output_types"), c.attr("output_shapes")

    async def kernel(source: object) -> tuple[Any, ...]:
        async with iterated(c, as_dataset(source)) as elements:
            element = await elements.next()
            if element is None:
                raise InvalidArgumentError("Dataset was empty.")
            if await elements.next() is not None:
                raise InvalidArgumentError("Dataset had more than one element.")
        return check_element(element, dtypes, shapes)

    return kernel


@register_kernel("DatasetCardinality", "ExperimentalDatasetCardinality")
def dataset_cardinality(c: OpKernelConstruction) -> Kernel:
    """How many elements there are, as far as that is known."""
    return lambda source: np.int64(as_dataset(source).cardinality)


@register_kernel("InitializeTableFromDataset", kind=KernelKind.ASYNC)
def initialize_table_from_dataset(c: OpKernelConstruction) -> Kernel:
    """Fill a table with elements that are a key and a value each."""

    async def kernel(handle: object, source: object) -> tuple[()]:
        table, dataset = initializable(handle), as_dataset(source)
        if dataset.dtypes != (table.key_dtype, table.value_dtype):
            raise InvalidArgumentError(
                f"Invalid dataset types: expected {table.key_dtype.name} and {table.value_dtype.name}, but got "
                f"{', '.join(dtype.name for dtype in dataset.dtypes)}"
            )
        pairs: list[tuple[object, object]] = []
        async with iterated(c, dataset) as elements:
            while (element := await elements.next()) is not None:
                for part in element:
                    if np.ndim(part):
                        raise InvalidArgumentError(
                            f"Invalid dataset: its components must be scalars, not of shape {list(np.shape(part))}"
                        )
                key, value = element
                pairs.append((_plain(key), _plain(value)))
        table.initialize(pairs)
        return ()

    return kernel


def _plain(value: object) -> object:
    return value.item() if isinstance(value, np.generic) else value
