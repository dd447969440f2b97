"""Decompositions whose signs, phases or order are free: put together again they give the matrix they came from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ops.op_case import OpCase
from tests.ops.op_runner import run_case

DTYPES = [np.float32, np.float64, np.complex64, np.complex128]
TOLERANCE = {"rtol": 1e-4, "atol": 1e-4}


def matrices(*shape: int, dtype: Any) -> Any:
    rng = np.random.default_rng(3)
    values = rng.normal(size=shape)
    return (values + 1j * rng.normal(size=shape) if np.dtype(dtype).kind == "c" else values).astype(dtype)


def adjoint(matrix: Any) -> Any:
    return matrix.swapaxes(-1, -2).conj()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(2, 4, 3), (2, 3, 4)])
def test_svd_gives_the_matrix_back(dtype: Any, shape: tuple[int, ...]) -> None:
    matrix = matrices(*shape, dtype=dtype)
    s, u, v = run_case(OpCase("Svd", [matrix]))
    np.testing.assert_allclose((u * s[..., None, :]) @ adjoint(v), matrix, **TOLERANCE)
    values, no_u, no_v = run_case(OpCase("Svd", [matrix], {"compute_uv": False}))
    np.testing.assert_allclose(values, s, **TOLERANCE)
    assert no_u.size == no_v.size == 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_self_adjoint_eig_reads_the_lower_triangle_alone(dtype: Any) -> None:
    lower = np.tril(matrices(2, 3, 3, dtype=dtype))
    whole = lower + adjoint(np.tril(lower, -1))
    diagonal = np.arange(3)
    whole[..., diagonal, diagonal] = whole[..., diagonal, diagonal].real
    e, v = run_case(OpCase("SelfAdjointEigV2", [lower]))
    assert (np.diff(e.real) >= 0).all()
    np.testing.assert_allclose((v * e[..., None, :]) @ adjoint(v), whole, **TOLERANCE)
    (values, none) = run_case(OpCase("SelfAdjointEigV2", [lower], {"compute_v": False}))
    np.testing.assert_allclose(values, e, **TOLERANCE)
    assert none.shape == (0,)


@pytest.mark.parametrize(("dtype", "out"), [(np.float32, "complex64"), (np.complex128, "complex128")])
def test_eig_gives_values_and_vectors(dtype: Any, out: str) -> None:
    matrix = matrices(2, 3, 3, dtype=dtype)
    e, v = run_case(OpCase("Eig", [matrix], {"Tout": out}))
    np.testing.assert_allclose(matrix @ v, v * e[..., None, :], **TOLERANCE)


@pytest.mark.parametrize("dtype", DTYPES)
def test_cholesky_of_a_bad_matrix_spares_the_others_of_its_batch(dtype: Any) -> None:
    good = 4 * np.eye(2, dtype=dtype)
    (result,) = run_case(OpCase("Cholesky", [np.array([good, -good])]))
    np.testing.assert_array_equal(result[0], 2 * np.eye(2))
    assert np.isnan(result[1][np.tril_indices(2)]).all()
