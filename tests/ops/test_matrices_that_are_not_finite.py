"""Infinities and NaNs where LAPACK goes round until all converges: NaNs, as TensorFlow gives, and an end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import asyncexec as ax

# LAPACK does not come to an end with it (OpenBLAS, gesdd).
ENDLESS = np.float32(
    [[1e-45, -1, -1e30], [2, -np.inf, 1e-3], [np.inf, np.inf, 0.5], [-1, -np.inf, 1e30]],
)
GOOD = np.float32([[3, 0, 0], [0, 2, 0], [0, 0, 1], [0, 0, 0]])


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("vectors", [False, True])
async def test_the_others_of_the_batch_are_as_ever(full: bool, vectors: bool) -> None:
    attrs: dict[str, Any] = {"compute_uv": vectors, "full_matrices": full}
    nan = np.full((4, 3), np.nan, np.float32)
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, 4, 3])
        outputs = ax.create_op("Svd", [x], attrs=attrs)
    async with ax.Session(graph) as session:
        s, u, v = await session.run(list(outputs), {x: np.stack([ENDLESS, GOOD, nan])})
        alone = await session.run(list(outputs), {x: GOOD[None]})
    np.testing.assert_array_equal(s[1], [3, 2, 1])
    assert np.isnan(s[[0, 2]]).all()
    if vectors:
        assert np.isnan(u[[0, 2]]).all()
        assert np.isnan(v[[0, 2]]).all()
        np.testing.assert_array_equal(u[1], alone[1][0])
        np.testing.assert_array_equal(v[1], alone[2][0])
        np.testing.assert_allclose(u[1][:, :3] * s[1] @ v[1].T, GOOD, atol=1e-6)
    else:
        assert u.size == v.size == 0


async def test_least_squares() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, 4, 3])
        rhs = ax.placeholder(ax.float32, [None, 4, 1])
        y = ax.create_op("MatrixSolveLs", [x, rhs, np.float64(0)], attrs={"fast": False})
    async with ax.Session(graph) as session:
        values = np.float32([[3], [4], [5], [6]])
        found = await session.run(y, {x: np.stack([ENDLESS, GOOD]), rhs: np.stack([values, values])})
    assert np.isnan(found[0]).all()
    np.testing.assert_allclose(found[1], [[1], [2], [5]], rtol=1e-6)
