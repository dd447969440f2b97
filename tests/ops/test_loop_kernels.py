"""Kernels that loops call often: what they keep between calls, or look up in another way for few numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import asyncexec as ax

X = np.arange(24.0, dtype=np.float32).reshape(4, 6)


async def test_a_slice_follows_arrays_that_change_in_place() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [4, 6])
        begin, end = ax.placeholder(ax.int32, [1]), ax.placeholder(ax.int32, [1])
        y = ax.raw_ops.StridedSlice(x, begin, end, ax.constant([1]))
    start, stop = np.array([0], np.int32), np.array([2], np.int32)
    seen = [array.view() for array in (start, stop)]
    for view in seen:
        view.flags.writeable = False
    async with ax.Session(graph) as session:
        for feeds in ((start, stop), seen):
            start[0], stop[0] = 0, 2
            np.testing.assert_array_equal(await session.run(y, {x: X, begin: feeds[0], end: feeds[1]}), X[:2])
            start[0], stop[0] = 1, 4
            np.testing.assert_array_equal(await session.run(y, {x: X, begin: feeds[0], end: feeds[1]}), X[1:4])


async def test_a_slice_by_constants_is_of_whatever_comes() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32)
        y = ax.raw_ops.StridedSlice(x, ax.constant([1]), ax.constant([3]), ax.constant([1]), shrink_axis_mask=1)
    async with ax.Session(graph) as session:
        for given in (X, X[:3], X.T):
            np.testing.assert_array_equal(await session.run(y, {x: given}), given[1])
        with pytest.raises(ax.errors.InvalidArgumentError, match="out of bounds"):
            await session.run(y, {x: X[:1]})


@pytest.mark.parametrize("count", [6, 6000])
@pytest.mark.parametrize("dtype", [ax.float32, ax.float64, ax.bfloat16])
async def test_nan_is_never_the_greatest(count: int, dtype: Any) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(dtype, [None, None])
        found = [ax.raw_ops.ArgMax(x, ax.constant(1)), ax.raw_ops.ArgMin(x, ax.constant(1))]
    values = np.zeros((3, count))
    values[0, :3], values[1, 1], values[2] = (np.nan, 5, -5), -np.inf, np.nan
    async with ax.Session(graph) as session:
        greatest, least = await session.run(found, {x: values.astype(dtype.as_numpy_dtype)})
        assert greatest.tolist() == [1, 0, 0]
        assert least.tolist() == [2, 1, 0]
        empty = np.zeros((0, count), dtype.as_numpy_dtype)
        assert (await session.run(found[0], {x: empty})).shape == (0,)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
async def test_sigmoids_leave_what_they_take(shape: tuple[int, ...]) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, shape)
        y = ax.raw_ops.Sigmoid(x)
    given = np.full(shape, 2, np.float32)
    async with ax.Session(graph) as session:
        got = await session.run(y, {x: given})
    np.testing.assert_allclose(got, np.full(shape, 1 / (1 + np.exp(-2.0))), rtol=1e-6)
    assert (given == 2).all()
