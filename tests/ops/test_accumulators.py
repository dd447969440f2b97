"""Accumulators of gradients; the numbers are TensorFlow's."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.errors import InvalidArgumentError
from tests.ops.kernel_bench import KernelBench, infer

F32 = {"dtype": "float32"}


@pytest.fixture
def bench() -> KernelBench:
    return KernelBench()


def dense(bench: KernelBench, **attrs: Any) -> Any:
    return bench.run("ResourceConditionalAccumulator", **({"shape": [2], "dtype": "float32"} | attrs))


async def apply(bench: KernelBench, handle: Any, *gradients: Any, step: int = 0, dtype: str = "float32") -> None:
    for gradient in gradients:
        await bench.run(
            "ResourceAccumulatorApplyGradient", handle, np.int64(step), np.array(gradient, dtype)[()], dtype=dtype
        )


def take(bench: KernelBench, handle: Any, num_required: int = 1, dtype: str = "float32") -> Any:
    return bench.run("ResourceAccumulatorTakeGradient", handle, np.int32(num_required), dtype=dtype)


def count(bench: KernelBench, handle: Any) -> int:
    return int(bench.run("ResourceAccumulatorNumAccumulated", handle))


@pytest.mark.parametrize(("reduction", "expected"), [("MEAN", [2.5, 5]), ("SUM", [5, 10])])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
async def test_gradients_are_reduced(bench: KernelBench, reduction: str, expected: Any, dtype: str) -> None:
    handle = dense(bench, reduction_type=reduction, dtype=dtype)
    await apply(bench, handle, [1, 2], [4, 8], dtype=dtype)
    assert count(bench, handle) == 2
    taken = await take(bench, handle, 2, dtype)
    assert taken.dtype == dtype
    np.testing.assert_array_equal(taken, expected)
    assert count(bench, handle) == 0


async def test_a_stale_gradient_is_dropped(bench: KernelBench) -> None:
    handle = dense(bench)
    await apply(bench, handle, [1, 2], step=-1)
    assert count(bench, handle) == 0
    await apply(bench, handle, [1, 2])
    await take(bench, handle)  # begins step 1
    await apply(bench, handle, [1, 2], [3], step=0)  # not even its shape is looked at
    assert count(bench, handle) == 0
    assert bench.run("ResourceAccumulatorSetGlobalStep", handle, np.int64(0)) == ()
    await apply(bench, handle, [1, 2], step=0)
    assert count(bench, handle) == 1


async def test_takers_wait_in_order(bench: KernelBench) -> None:
    handle = dense(bench)
    two, one = asyncio.create_task(take(bench, handle, 2)), asyncio.create_task(take(bench, handle, 1))
    await asyncio.sleep(0)
    await apply(bench, handle, [1, 1])
    assert not two.done()
    assert not one.done()
    await apply(bench, handle, [3, 5])
    np.testing.assert_array_equal(await two, [2, 3])
    await apply(bench, handle, [7, 7], step=1)
    np.testing.assert_array_equal(await one, [7, 7])


async def test_a_taker_that_is_cancelled_lets_the_next_go_on(bench: KernelBench) -> None:
    handle = dense(bench)
    two, one = asyncio.create_task(take(bench, handle, 2)), asyncio.create_task(take(bench, handle, 1))
    await asyncio.sleep(0)
    await apply(bench, handle, [1, 1])
    two.cancel()
    np.testing.assert_array_equal(await one, [1, 1])
    with pytest.raises(asyncio.CancelledError):
        await two


async def test_a_gradient_is_kept_as_it_was_given(bench: KernelBench) -> None:
    handle, gradient = dense(bench, reduction_type="SUM"), np.float32([1, 2])
    await bench.run("ResourceAccumulatorApplyGradient", handle, np.int64(0), gradient, **F32)
    gradient[0] = 99
    np.testing.assert_array_equal(await take(bench, handle), [1, 2])


async def test_shapes_are_checked(bench: KernelBench) -> None:
    handle = dense(bench, shape=[None])
    with pytest.raises(InvalidArgumentError, match=r"Shape mismatch: expected \[\?\], got \[\]"):
        await apply(bench, handle, 1)
    await apply(bench, handle, [1, 2])
    with pytest.raises(InvalidArgumentError, match=r"Shape mismatch: expected \[2\], got \[3\]"):
        await apply(bench, handle, [1, 2, 3])
    with pytest.raises(InvalidArgumentError, match="num_required must be positive, but was 0"):
        await take(bench, handle, 0)
    with pytest.raises(InvalidArgumentError, match="num_required must be scalar"):
        await bench.run("ResourceAccumulatorTakeGradient", handle, np.int32([1]), **F32)
    with pytest.raises(InvalidArgumentError, match=r"float32.*float64"):
        await apply(bench, handle, [1, 2], dtype="float64")
    with pytest.raises(InvalidArgumentError):
        bench.run("ResourceAccumulatorNumAccumulated", b"no handle")
    assert count(bench, handle) == 1


def test_accumulators_are_shared_by_name(bench: KernelBench) -> None:
    one = dense(bench, shared_name="a")
    assert bench.run("ConditionalAccumulator", name="other", shape=[2], shared_name="a", **F32) is one
    assert dense(bench) is not one


async def add_rows(bench: KernelBench, handle: Any, *gradients: Any, shape: Any = None) -> None:
    for indices, values in gradients:
        given = np.array([] if shape is None else shape, np.int64)
        await bench.run(
            "SparseAccumulatorApplyGradient",
            handle,
            np.int64(0),
            np.array(indices, np.int64),
            np.array(values, np.float32),
            given,
            has_known_shape=shape is not None,
            **F32,
        )


def rows_of(bench: KernelBench, shape: Any = (4, 2), **attrs: Any) -> Any:
    return bench.run("SparseConditionalAccumulator", shape=shape, **F32, **attrs)


async def taken_rows(bench: KernelBench, handle: Any) -> list[Any]:
    result = await bench.run("SparseAccumulatorTakeGradient", handle, np.int32(1), **F32)
    return [value.tolist() for value in result]


ORDERED = ([0, 2], [[1, 2], [3, 4]]), ([1, 2], [[5, 6], [8, 9]])
UNORDERED = ([2, 0], [[1, 2], [3, 4]]), ([0, 2, 2], [[5, 6], [8, 9], [1, 1]])


@pytest.mark.parametrize(
    ("gradients", "reduction", "expected"),
    [
        (ORDERED, "MEAN", [[0, 1, 2], [[1, 2], [5, 6], [5.5, 6.5]], [4, 2]]),
        (ORDERED, "SUM", [[0, 1, 2], [[1, 2], [5, 6], [11, 13]], [4, 2]]),
        (UNORDERED, "MEAN", [[0, 2, 0, 2], [[5, 6], [4.5, 5.5], [3, 4], [1, 1]], [4, 2]]),
        (UNORDERED, "SUM", [[0, 2, 0, 2], [[5, 6], [9, 11], [3, 4], [1, 1]], [4, 2]]),
    ],
)
async def test_rows_are_reduced(bench: KernelBench, gradients: Any, reduction: str, expected: Any) -> None:
    handle = rows_of(bench, reduction_type=reduction)
    await add_rows(bench, handle, *gradients)
    assert await taken_rows(bench, handle) == expected


async def test_rows_of_an_unknown_shape(bench: KernelBench) -> None:
    handle = rows_of(bench, None)
    await add_rows(bench, handle, ([7], [1.0]))
    assert await taken_rows(bench, handle) == [[7], [1.0], [-1]]


@pytest.mark.parametrize(
    ("gradient", "shape", "message"),
    [
        (([4], [[5, 6]]), None, "index of slice 0 exceeded limits of shape; index is 4 exceeded 4"),
        (([0], [[5, 6, 7]]), None, "expected values dim 1 to be 2, got 3"),
        (([0], [5]), None, "expected values rank 2, got 1"),
        (([0], 5), None, "Values cannot be 0-dimensional"),
        (([[0]], [[5, 6]]), None, "Input indices should be vector"),
        (([0, 1], [[5, 6]]), None, "Expected 2 non-empty input values, got 1"),
        (([0], [[5, 6]]), [4], "expected shape rank at least 2, got 1"),
        (([0], [[5, 6]]), [4, 3], "expected shape dim 1 to be 2, got 3"),
    ],
)
async def test_rows_are_checked(bench: KernelBench, gradient: Any, shape: Any, message: str) -> None:
    handle = rows_of(bench)
    await add_rows(bench, handle, ([0], [[1, 2]]))
    with pytest.raises(InvalidArgumentError, match=message):
        await add_rows(bench, handle, gradient, shape=shape)
    assert await taken_rows(bench, handle) == [[0], [[1, 2]], [4, 2]]


async def test_the_first_rows_are_checked_against_the_declared_shape(bench: KernelBench) -> None:
    with pytest.raises(InvalidArgumentError, match="expected values rank at least 2, got 1"):
        await add_rows(bench, rows_of(bench), ([0], [5]))


def test_accumulators_have_static_shapes() -> None:
    assert infer("ConditionalAccumulator", shape=[2], **F32) == [[2]]
    assert infer("AccumulatorTakeGradient", [2], [], **F32) == [None]
    assert infer("SparseAccumulatorTakeGradient", [2], [], **F32) == [None, None, None]
    with pytest.raises(InvalidArgumentError):
        infer("AccumulatorTakeGradient", [2], [1], **F32)


async def test_a_graph_accumulates_over_steps() -> None:
    with ax.Graph() as graph:
        accumulator = ax.raw_ops.ResourceConditionalAccumulator(dtype=ax.float32, shape=[2], name="sums")
        gradient = ax.placeholder(ax.float32, [2], name="gradient")
        step = ax.constant(np.int64(0))
        ax.raw_ops.ResourceAccumulatorApplyGradient(
            handle=accumulator, local_step=step, gradient=gradient, name="apply"
        )
        required = ax.constant(np.int32(2))
        ax.raw_ops.ResourceAccumulatorTakeGradient(
            handle=accumulator, num_required=required, dtype=ax.float32, name="mean"
        )
    async with ax.Session(graph) as session, asyncio.TaskGroup() as tasks:
        mean = tasks.create_task(session.run("mean:0"))
        for value in ([1, 2], [3, 6]):
            await session.run([], {"gradient:0": np.float32(value)}, targets=["apply"])
        np.testing.assert_array_equal(await mean, [2, 4])
