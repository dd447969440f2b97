"""``SessionConfig(memory_limit=...)``: kernels whose outputs have no room are refused, by name, before they run."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import asyncexec as ax
from asyncexec.framework.memory_budget import LEAST_COUNTED, StepMemory

MB = 2**20
EXECUTORS = ["DEFAULT", "TAGGED_TOKEN", "COMPILED"]


def config(limit: int, executor_type: str = "DEFAULT") -> ax.SessionConfig:
    return ax.SessionConfig(memory_limit=limit, executor_type=executor_type)


@pytest.mark.parametrize("executor_type", EXECUTORS)
async def test_a_tensor_that_doubles_is_refused_and_the_session_goes_on(executor_type: str) -> None:
    with ax.Graph() as graph:
        x = start = ax.placeholder(ax.float32, [None])
        for i in range(45):
            x = ax.tile(x, [2], name=f"double_{i}")
    async with ax.Session(graph, config(64 * MB, executor_type)) as session:
        with pytest.raises(ax.errors.ResourceExhaustedError, match="memory_limit") as raised:
            await session.run(x, {start: np.ones(1024, np.float32)})
        assert raised.value.node == "double_13"  # its input takes 32 MB, its output would take 64
        assert len(await session.run("double_3:0", {start: np.ones(1, np.float32)})) == 16


@pytest.mark.parametrize("executor_type", EXECUTORS)
async def test_a_loop_that_doubles_is_refused(executor_type: str) -> None:
    with ax.Graph() as graph:
        start = ax.placeholder(ax.float32, [None])
        _, grown = ax.while_loop(
            lambda i, _: i < 45,
            lambda i, x: [i + 1, ax.concat([x, x], 0, name="twice")],
            [ax.constant(0), start],
            shape_invariants=[[], [None]],
        )
    async with ax.Session(graph, config(8 * MB, executor_type)) as session:
        with pytest.raises(ax.errors.ResourceExhaustedError, match="memory_limit") as raised:
            await session.run(grown, {start: np.ones(1024, np.float32)})
    assert raised.value.node is not None
    assert raised.value.node.endswith("twice")


def _outer(x: Any) -> Any:
    return ax.expand_dims(x, 1, name="column") * ax.expand_dims(x, 0, name="row")


def _as_text(x: Any) -> Any:
    return ax.raw_ops.AsString(input=x, width=1_000_000)


def _joined(x: Any) -> Any:
    text = ax.raw_ops.AsString(input=x, width=100)
    return ax.raw_ops.StringJoin(inputs=[text] * 100)


def _replaced(x: Any) -> Any:
    text = ax.raw_ops.AsString(input=x)
    return ax.raw_ops.StaticRegexReplace(input=text, pattern=".", rewrite="x" * 10_000)


def _formatted(x: Any) -> Any:
    return ax.raw_ops.StringFormat(inputs=[x] * 10, template="{}" * 10, placeholder="{}", summarize=-1)


def _counted(x: Any) -> Any:
    return ax.raw_ops.Bincount(arr=[1], size=2**30, weights=ax.cast(x[:1], ax.float32))


def _crossed(x: Any) -> Any:
    row = ax.expand_dims(x, 0)
    words, numbers = ax.raw_ops.AsString(input=row), ax.cast(row, ax.int64)
    found = ax.raw_ops.SparseCrossV2(indices=[], values=[], shapes=[], dense_inputs=[words, numbers], sep="_X_")
    return found[1]


def _sparse_matrix(x: Any) -> Any:
    """A matrix of one element, with as many rows and columns as *x* has elements."""
    size = ax.raw_ops.Size(input=x, out_type=ax.int64)
    return ax.raw_ops.SparseTensorToCSRSparseMatrix(
        indices=ax.constant([[0, 0]], ax.int64), values=ax.constant([1.0]), dense_shape=ax.stack([size, size])
    )


def _spread(x: Any) -> Any:
    return ax.raw_ops.CSRSparseMatrixToDense(sparse_input=_sparse_matrix(x), type=ax.float32)


def _multiplied(x: Any) -> Any:
    """The factor takes 3.2 MB, and so would the product."""
    wide = ax.tile(ax.expand_dims(ax.cast(x, ax.float32), 1), [1, 80])
    return ax.raw_ops.SparseMatrixMatMul(a=_sparse_matrix(x), b=wide, transpose_a=True)


def _rows_of_nothing(x: Any) -> Any:
    rows = ax.raw_ops.Size(input=x, out_type=ax.int64) * 100
    shape = ax.stack([rows, ax.constant(1, ax.int64)])
    empty = ax.zeros([0, 2], ax.int64), ax.zeros([0], ax.float32)
    return ax.raw_ops.SerializeManySparse(sparse_indices=empty[0], sparse_values=empty[1], sparse_shape=shape)


SPARSE = [_crossed, _spread, _multiplied, _rows_of_nothing]


@pytest.mark.one_of("loop")
@pytest.mark.parametrize("build", [_outer, _as_text, _joined, _replaced, _formatted, _counted, *SPARSE])
async def test_what_a_small_input_makes_large_is_refused_before_it_runs(build: Any) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [None])
        y = build(x)
    async with ax.Session(graph, config(4 * MB)) as session:
        with pytest.raises(ax.errors.ResourceExhaustedError, match="memory_limit") as raised:
            await session.run(y, {x: np.arange(10_000.0)})
        assert raised.value.node == y.op.name
        if build is not _counted:
            assert await session.run(y, {x: np.arange(2.0)}) is not None


async def test_what_only_the_kernel_can_tell_is_refused_before_it_is_made() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None])
        (y,) = ax.create_op(
            "Onnx>Mul", [[ax.expand_dims(x, 1), ax.expand_dims(x, 0)]], {"Tout": [ax.float32], "opset": 20}
        )
    async with ax.Session(graph, config(80 * MB)) as session:
        with pytest.raises(ax.errors.ResourceExhaustedError, match=r"take up to 100,000,000 bytes; .*memory_limit"):
            await session.run(y, {x: np.ones(5000, np.float32)})
        assert np.shape(await session.run(y, {x: np.ones(50, np.float32)})) == (50, 50)


async def test_memory_that_is_free_again_is_not_counted() -> None:
    with ax.Graph() as graph:
        x = y = ax.placeholder(ax.float32, [None])
        for _ in range(100):
            y = y + 1.0
    async with ax.Session(graph, config(4 * MB)) as session:  # each takes a megabyte, two are there at a time
        got = await session.run(y, {x: np.zeros(MB // 4, np.float32)})
    assert got.sum() == 100 * MB // 4


async def test_arrays_that_are_held_count_together() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None])
        several = [x + float(i) for i in range(10)]
    async with ax.Session(graph, config(5 * MB)) as session:
        with pytest.raises(ax.errors.ResourceExhaustedError, match="memory_limit"):
            await session.run(several, {x: np.zeros(MB // 4, np.float32)})
        assert len(await session.run(several[:4], {x: np.zeros(MB // 4, np.float32)})) == 4


async def test_steps_have_their_memory_each() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None])
        several = [x + float(i) for i in range(4)]
    async with ax.Session(graph, config(5 * MB)) as session:
        kept = [await session.run(several, {x: np.zeros(MB // 4, np.float32)}) for _ in range(3)]
    assert len(kept) == 3


async def test_what_an_async_op_makes_is_counted_afterwards() -> None:
    @ax.op
    async def fetch(size: int) -> Any:
        return np.zeros(size, np.float32)

    with ax.Graph() as graph:
        size = ax.placeholder(ax.int32, [])
        data = fetch(size, name="fetched")
    async with ax.Session(graph, config(MB)) as session:
        assert len(await session.run(data, {size: 1000})) == 1000
        with pytest.raises(ax.errors.ResourceExhaustedError, match="memory_limit") as raised:
            await session.run(data, {size: MB})
    assert raised.value.node == "fetched"


@pytest.mark.parametrize("executor_type", EXECUTORS)
async def test_what_a_function_makes_is_counted_afterwards_though_nothing_follows(executor_type: str) -> None:
    @ax.op
    def zeros(count: int) -> NDArray[np.float32]:
        return np.zeros(count, np.float32)

    with ax.Graph() as graph:
        count = ax.placeholder(ax.int64, [])
        made = zeros(count, name="made")
        shape = ax.shape(made)
    async with ax.Session(graph, config(MB, executor_type)) as session:
        for fetch in (made, shape):
            with pytest.raises(ax.errors.ResourceExhaustedError, match="memory_limit") as raised:
                await session.run(fetch, {count: MB})
            assert raised.value.node == "made"
            assert len(await session.run(fetch, {count: 1000})) in (1, 1000)


async def test_items_of_a_stream_have_their_memory_each() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None])
        y = ax.tile(x, [4])
    feeds = [{x: np.ones(size, np.float32)} for size in (1000, 50_000, 1000)]
    async with ax.Session(graph, config(MB)) as session:
        got = [len(one) async for one in session.map(y, feeds)]
    assert got == [4000, 200_000, 4000]


def test_an_array_is_counted_once_and_until_it_is_gone() -> None:
    memory = StepMemory(100_000)
    array = np.zeros(LEAST_COUNTED, np.uint8)
    memory.count(array, array.nbytes)
    memory.count(array, array.nbytes)
    assert memory.taken == LEAST_COUNTED
    del array
    gc.collect()
    assert memory.taken == 0


def test_the_limit_itself_may_be_taken() -> None:
    memory = StepMemory(10_000)
    memory.check(10_000)
    with pytest.raises(ax.errors.ResourceExhaustedError, match="10,001 bytes"):
        memory.check(10_001)
