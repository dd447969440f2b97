"""Reductions, running totals, arg functions and segments give what numpy gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from tests.frontend.builder import run

X = np.arange(24, dtype=np.float64).reshape(2, 3, 4) / 7 - 1
BOOLS = X > 0
REDUCTIONS: list[tuple[str, Any, Any]] = [
    ("reduce_sum", X, np.sum),
    ("reduce_mean", X, np.mean),
    ("reduce_max", X, np.max),
    ("reduce_min", X, np.min),
    ("reduce_prod", X, np.prod),
    ("reduce_all", BOOLS, np.all),
    ("reduce_any", BOOLS, np.any),
    ("reduce_variance", X, np.var),
    ("reduce_std", X, np.std),
    ("reduce_euclidean_norm", X, lambda x, axis, keepdims: np.sqrt(np.sum(x * x, axis=axis, keepdims=keepdims))),
    ("reduce_logsumexp", X, lambda x, axis, keepdims: np.log(np.sum(np.exp(x), axis=axis, keepdims=keepdims))),
]


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2)])
@pytest.mark.parametrize(("name", "x", "function"), REDUCTIONS, ids=[name for name, *_ in REDUCTIONS])
def test_reduction(name: str, x: Any, function: Any, axis: Any, keepdims: bool) -> None:
    got = run(lambda tensor: getattr(ax, name)(tensor, axis=axis, keepdims=keepdims), x)
    np.testing.assert_allclose(got, function(x, axis=axis, keepdims=keepdims), rtol=1e-12)


@pytest.mark.parametrize("name", ["reduce_sum", "reduce_logsumexp"])
def test_reduction_of_a_tensor_of_unknown_rank(name: str) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64)
        y = getattr(ax, name)(x)
    with ax.BlockingSession(graph) as session:
        expected = np.sum(X) if name == "reduce_sum" else np.log(np.sum(np.exp(X)))
        np.testing.assert_allclose(session.run(y, {x: X}), expected)


def test_logsumexp_does_not_overflow() -> None:
    assert run(ax.reduce_logsumexp, np.array([1000.0, 1000.0])) == pytest.approx(1000 + np.log(2))
    assert run(ax.reduce_logsumexp, np.array([-np.inf, -np.inf])) == -np.inf


def test_variance_refuses_integers() -> None:
    with ax.Graph(), pytest.raises(ax.errors.InvalidTypeError, match="int32"):
        ax.reduce_variance([1, 2])


def test_moments() -> None:
    mean, variance = run(lambda x: ax.moments(x, [0, 1]), X)
    np.testing.assert_allclose(mean, X.mean((0, 1)))
    np.testing.assert_allclose(variance, X.var((0, 1)))


def test_arg_functions() -> None:
    assert run(lambda x: ax.argmax(x, 2), X).tolist() == X.argmax(2).tolist()
    got = run(lambda x: ax.argmin(x, output_type=ax.int32), X)
    assert got.tolist() == X.argmin(0).tolist()
    assert got.dtype == np.int32


def test_running_totals() -> None:
    x = np.array([1, 2, 3, 4], np.int32)
    assert run(ax.cumsum, x).tolist() == [1, 3, 6, 10]
    assert run(lambda t: ax.cumsum(t, exclusive=True, reverse=True), x).tolist() == [9, 7, 4, 0]
    assert run(ax.cumprod, x).tolist() == [1, 2, 6, 24]


SORTED, UNSORTED = np.array([0, 0, 2], np.int32), np.array([2, 0, 2], np.int32)
DATA = np.array([[1, 2], [3, 4], [5, 6]], np.float32)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sum", [[4, 6], [0, 0], [5, 6]]),
        ("mean", [[2, 3], [0, 0], [5, 6]]),
        ("prod", [[3, 8], [1, 1], [5, 6]]),
        ("max", [[3, 4], [0, 0], [5, 6]]),
        ("min", [[1, 2], [0, 0], [5, 6]]),
    ],
)
def test_segments(name: str, expected: Any) -> None:
    assert run(getattr(ax, f"segment_{name}"), DATA, SORTED).tolist() == expected


LOWEST, HIGHEST = float(np.finfo(np.float32).min), float(np.finfo(np.float32).max)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sum", [[3, 4], [0, 0], [6, 8]]),
        ("prod", [[3, 4], [1, 1], [5, 12]]),
        ("max", [[3, 4], [LOWEST, LOWEST], [5, 6]]),
        ("min", [[3, 4], [HIGHEST, HIGHEST], [1, 2]]),
    ],
)
def test_unsorted_segments(name: str, expected: Any) -> None:
    function = getattr(ax, f"unsorted_segment_{name}")
    assert run(lambda data, ids: function(data, ids, 3), DATA, UNSORTED).tolist() == expected
