"""Components of queue elements: every queue takes and gives every dtype at every rank, one by one and in batches.

A batch is the stack of its elements; PaddingFIFOQueue pads them with zeros, empty strings or None up to the largest
size of each dimension, as TensorFlow does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.errors import InvalidArgumentError
from tests.running import import_all_names

QUEUES = ["FIFOQueue", "PaddingFIFOQueue", "PriorityQueue", "RandomShuffleQueue"]
DTYPES = [
    *("bool", "float16", "bfloat16", "float32", "float64", "complex64", "complex128", "string"),
    *("int4", "int8", "int16", "int32", "int64", "uint4", "uint8", "uint16", "uint32", "uint64"),
    *("qint8", "quint8", "qint16", "quint16", "qint32"),
]
# The shape that the queue declares, and the shapes of three elements.
FIXED = [([], [(), (), ()]), ([2], [(2,)] * 3), ([0], [(0,)] * 3), ([2, 1, 3], [(2, 1, 3)] * 3)]
VARYING = [
    ([None], [(1,), (0,), (3,)]),
    ([None], [(0,), (0,), (0,)]),
    ([None, 2], [(1, 2), (2, 2), (0, 2)]),
    ([None, None], [(1, 3), (2, 1), (0, 0)]),
    ([2, None, 0], [(2, 1, 0), (2, 0, 0), (2, 2, 0)]),
]


@pytest.fixture(scope="module", autouse=True)
def all_names() -> None:
    import_all_names()
    ax.bfloat16.as_numpy_dtype  # noqa: B018 - imports ml_dtypes


def element(dtype: str, shape: tuple[int, ...], first: int) -> Any:
    """An array, or scalar, of that *dtype* and *shape* with the values *first*, *first* + 1, ..."""
    numbers = np.arange(first, first + int(np.prod(shape)))
    if dtype == "string":
        values = np.array([b"%d" % number for number in numbers], object)
    else:
        values = numbers.astype(ax.as_dtype(dtype).as_numpy_dtype)
    return values.reshape(shape)[()]


def padded_stack(elements: list[Any]) -> Any:
    """*elements* along a new first dimension, each padded at its ends to the largest sizes."""
    arrays = [np.asarray(each, object if isinstance(each, bytes) else None) for each in elements]
    sizes = np.max([array.shape for array in arrays], axis=0, initial=0).astype(int)
    nothing = b"" if arrays[0].dtype == object else 0
    return np.stack(
        [
            np.pad(
                array, [(0, size - own) for size, own in zip(sizes, array.shape, strict=True)], constant_values=nothing
            )
            if array.ndim
            else array
            for array in arrays
        ]
    )


def make(kind: str, dtypes: list[str], shapes: list[list[int | None]]) -> Any:
    if kind == "RandomShuffleQueue":
        return ax.RandomShuffleQueue(10, 0, dtypes, shapes)
    return getattr(ax, kind)(10, dtypes, shapes)


def assert_same(got: Any, expected: Any) -> None:
    got, expected = (np.asarray(each, object if isinstance(each, bytes) else None) for each in (got, expected))
    assert (got.dtype, got.shape, got.tolist()) == (expected.dtype, expected.shape, expected.tolist())


# RandomShuffleQueue gives its elements in any order: they are all equal there.
CASES = [(kind, *shapes) for kind in QUEUES for shapes in FIXED + (VARYING if kind == "PaddingFIFOQueue" else [])]


@pytest.mark.one_of("loop")
@pytest.mark.parametrize("how", ["dequeue", "dequeue_many", "dequeue_up_to"])
@pytest.mark.parametrize(("kind", "declared", "shapes"), CASES)
async def test_every_dtype_at_every_rank(
    kind: str, declared: list[int | None], shapes: list[tuple[int, ...]], how: str
) -> None:
    firsts = [0, 0, 0] if kind == "RandomShuffleQueue" else [0, 1, 2]
    elements = [[element(dtype, *each) for dtype in DTYPES] for each in zip(shapes, firsts, strict=True)]
    with ax.Graph() as graph:
        queue = make(kind, DTYPES, [declared] * len(DTYPES))
        fed = [ax.placeholder(dtype) for dtype in queue.dtypes]
        add = queue.enqueue(fed)
        taken = queue.dequeue() if how == "dequeue" else getattr(queue, how)(3)
    async with ax.Session(graph) as session:
        for number, components in enumerate(elements):
            priority = [number] if kind == "PriorityQueue" else []
            await session.run(add, dict(zip(fed, priority + components, strict=True)))
        stacked = [padded_stack(list(column)) for column in zip(*elements, strict=True)]
        for expected in elements if how == "dequeue" else [stacked]:
            for got, want in zip((await session.run(taken))[-len(DTYPES) :], expected, strict=True):
                assert_same(got, want)


@pytest.mark.parametrize(("declared", "shapes"), FIXED)
@pytest.mark.parametrize("kind", ["FIFOQueue", "PaddingFIFOQueue"])
async def test_rows_of_every_dtype_at_every_rank(
    kind: str, declared: list[int | None], shapes: list[tuple[int, ...]]
) -> None:
    rows = [padded_stack([element(dtype, shape, i) for i, shape in enumerate(shapes)]) for dtype in DTYPES]
    with ax.Graph() as graph:
        queue = make(kind, DTYPES, [declared] * len(DTYPES))
        fed = [ax.placeholder(dtype) for dtype in DTYPES]
        add, close = queue.enqueue_many(fed), queue.close()
        first, rest = queue.dequeue_many(2), queue.dequeue_up_to(2)
    async with ax.Session(graph) as session:
        await session.run(add, dict(zip(fed, rows, strict=True)))
        await session.run(close)
        for fetch, part in ((first, slice(2)), (rest, slice(2, None))):
            for got, want in zip(await session.run(fetch), rows, strict=True):
                assert_same(got, want[part])


@pytest.mark.parametrize("value", [{"a": 1}, [1, 2], (1,), "text", None, 5, np.arange(3)], ids=repr)
@pytest.mark.parametrize("kind", ["FIFOQueue", "PaddingFIFOQueue"])
async def test_a_python_object_is_a_scalar(kind: str, value: Any) -> None:
    with ax.Graph() as graph:
        queue = make(kind, ["object"], [[]])
        fed = ax.placeholder(ax.object)
        add, add_rows = queue.enqueue(fed), queue.enqueue_many(fed)
        one, many = queue.dequeue(), queue.dequeue_many(3)
    async with ax.Session(graph) as session:
        await session.run(add, {fed: value})
        await session.run(add, {fed: value})
        await session.run(add_rows, {fed: [value, value]})
        first = await session.run(one)
        batch = await session.run(many)
    assert batch.shape == (3,)
    assert batch.dtype == object
    for each in (first, *batch):
        assert type(each) is type(value)
        assert repr(each) == repr(value)


async def test_a_padding_queue_pads_arrays_of_objects_with_none() -> None:
    with ax.Graph() as graph:
        queue = ax.PaddingFIFOQueue(10, ax.object, [[None]])
        fed = ax.placeholder(ax.object)
        add, many = queue.enqueue(fed), queue.dequeue_many(2)
    async with ax.Session(graph) as session:
        await session.run(add, {fed: np.array(["a"], object)})
        await session.run(add, {fed: np.array(["b", "c"], object)})
        assert (await session.run(many)).tolist() == [["a", None], ["b", "c"]]


async def test_a_priority_queue_needs_a_shape_for_each_component() -> None:
    with ax.Graph() as graph:
        handle = ax.create_op("PriorityQueueV2", [], attrs={"component_types": [ax.int32], "shapes": []}, name="q")
    async with ax.Session(graph) as session:
        with pytest.raises(InvalidArgumentError, match="Different number of component types") as caught:
            await session.run([], targets=[handle.op])
    assert caught.value.node == "q"
