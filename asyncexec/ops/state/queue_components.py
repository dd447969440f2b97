"""The components of queue elements: checked on the way in, put together to batches on the way out.

Rules from ``tensorflow/core/kernels/queue_base.cc`` and ``padding_fifo_queue.cc``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import as_value
from asyncexec.framework.ownership import keeper
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import DType, string
from asyncexec.ops.state.queue_state import Element, PaddingFIFOQueue, Queue
from asyncexec.process.free_memory import check_array


def checked_element(queue: Queue, components: Sequence[object]) -> Element:
    """*components* as an element of *queue*; InvalidArgumentError when a shape does not fit."""
    for index, wanted in enumerate(queue.component_shapes):
        _require_shape(index, wanted, _shape_of(queue.component_dtypes[index], components[index]))
    return tuple(_kept(queue, components))


def checked_elements(queue: Queue, components: Sequence[Any]) -> list[Element]:
    """The elements that stand along the first dimension of *components*."""
    components = list(map(_rows, queue.component_dtypes, components))
    first = np.shape(components[0])
    size = first[0] if first else 0
    shapes = queue.component_shapes or (TensorShape(None),) * len(components)
    for index, wanted in enumerate(shapes):
        shape = np.shape(components[index])
        if not shape:
            raise InvalidArgumentError(f"Shape mismatch in tuple component {index}. Expected at least a vector, got []")
        _require_shape(index, TensorShape([size]).concatenate(wanted), shape)
        if shape[0] != size:
            raise InvalidArgumentError(
                f"All input tensors must have the same size in the 0th dimension. Component {index} has {shape[0]}, "
                f"and should have {size}"
            )
    kept = _kept(queue, components)
    return [tuple(as_value(component[row]) for component in kept) for row in range(size)]


def _shape_of(dtype: DType, value: Any) -> tuple[int, ...]:
    """The shape of *value*: an array of Python objects has one, any other Python object has none of its own."""
    return () if dtype.is_opaque and not _is_object_array(value) else np.shape(value)


def _rows(dtype: DType, value: object) -> object:
    """*value*, with the items of a Python sequence as rows where the components are Python objects."""
    if not dtype.is_opaque or not isinstance(value, (list, tuple)):
        return value
    rows = np.empty(len(value), object)
    for row, item in enumerate(value):
        rows[row] = item
    return rows


def _is_object_array(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == np.object_


def _kept(queue: Queue, components: Sequence[object]) -> list[Any]:
    """*components* for keeping: they outlive the step that brings them."""
    return [keeper(dtype)(value) for dtype, value in zip(queue.component_dtypes, components, strict=True)]


def _require_shape(index: int, wanted: TensorShape, got: tuple[int, ...]) -> None:
    if not wanted.accepts(got):
        raise InvalidArgumentError(
            f"Shape mismatch in tuple component {index}. Expected {wanted}, got {TensorShape(got)}"
        )


def batched(queue: Queue, elements: Sequence[Element]) -> tuple[object, ...]:
    """Each component of *elements*, stacked; padded with zeros (empty strings, None) where the queue pads."""
    columns = zip(*elements, strict=True)
    if isinstance(queue, PaddingFIFOQueue):
        return tuple(_padded(dtype, column) for dtype, column in zip(queue.component_dtypes, columns, strict=True))
    return tuple(_stacked(dtype, column) for dtype, column in zip(queue.component_dtypes, columns, strict=True))


def _stacked(dtype: DType, column: Sequence[object]) -> object:
    batch = np.empty((len(column), *_shape_of(dtype, column[0])), dtype.as_numpy_dtype)
    for row, value in enumerate(column):
        batch[row] = value
    return batch


def _padded(dtype: DType, column: Sequence[object]) -> Any:
    sizes = tuple(map(max, zip(*(_shape_of(dtype, value) for value in column), strict=True)))
    shape = (len(column), *sizes)
    check_array(shape, dtype.as_numpy_dtype)
    batch = np.zeros(shape, dtype.as_numpy_dtype)
    if batch.dtype == np.object_:
        batch.fill(b"" if dtype is string else None)
    for row, value in enumerate(column):
        where: tuple[Any, ...] = (row, *map(slice, _shape_of(dtype, value)))
        batch[where] = value
    return batch


def empty_batch(queue: Queue) -> tuple[object, ...]:
    """A batch of no elements; an unknown size counts as 0."""
    return tuple(
        np.empty((0, *(dim or 0 for dim in shape.as_list())), dtype.as_numpy_dtype)
        for dtype, shape in zip(queue.component_dtypes, queue.component_shapes, strict=True)
    )
