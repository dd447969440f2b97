"""The operators of tensors, and where their errors point."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from tests.frontend.builder import run

X = np.array([[-7, 3, 5], [2, 8, -4]], np.int32)
Y = np.array([2, -3, 4], np.int32)
BOOLS = np.array([True, False, True])


@pytest.mark.parametrize(
    "symbol",
    ["add", "sub", "mul", "truediv", "floordiv", "mod", "and_", "or_", "xor", "lt", "le", "gt", "ge", "eq", "ne"],
)
def test_operator_with_a_tensor_and_with_a_value_on_either_side(symbol: str) -> None:
    function = getattr(operator, symbol)
    got = run(lambda x, y: [function(x, y), function(x, 3), function(3, x), function(x, Y), function(Y, x)], X, Y)
    for value, expected in zip(
        got, [function(X, Y), function(X, 3), function(3, X), function(X, Y), function(Y, X)], strict=True
    ):
        np.testing.assert_allclose(value, expected)
        assert value.dtype == expected.dtype


def test_powers_products_and_signs() -> None:
    x = X.astype(np.float32)
    power, reverse, product, negative, size = run(lambda t: [t**2, 2**t, t @ x.T, -t, abs(t)], x)
    np.testing.assert_allclose(power, x**2)
    np.testing.assert_allclose(reverse, 2**x)
    np.testing.assert_allclose(product, x @ x.T)
    np.testing.assert_allclose(negative, -x)
    np.testing.assert_allclose(size, abs(x))


def test_logic_on_bools_is_bits_on_integers() -> None:
    got = run(lambda p: [p & [True, True, False], p | False, p ^ True, ~p], BOOLS)
    assert [value.tolist() for value in got] == [
        [True, False, False],
        BOOLS.tolist(),
        (~BOOLS).tolist(),
        (~BOOLS).tolist(),
    ]
    assert run(lambda x: ~x, X).tolist() == (~X).tolist()


def test_comparison_with_what_is_no_tensor_is_plain() -> None:
    with ax.Graph():
        x = ax.placeholder(ax.int32)
        assert (x == None) is False  # noqa: E711
        assert (x != None) is True  # noqa: E711
        assert (x == object()) is False
        assert x in {x: 1}
        assert isinstance(x == 1, ax.Tensor)


CUBE = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
KEYS: list[Any] = [
    0,
    -1,
    slice(1, None),
    slice(None, None, -1),
    (slice(None), 2),
    (0, slice(1, 4, 2), -1),
    (1, 2, 3),
    ...,
    (..., 1),
    (0, ..., slice(2)),
    None,
    (slice(None), None, 1),
    (None, ..., None),
    (np.int64(1), slice(np.int32(0), 2)),
    (slice(5, 10), 0),
]


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_indexing(key: Any) -> None:
    with ax.Graph() as graph:
        x = ax.constant(CUBE)
        part = x[key]
    with ax.BlockingSession(graph) as session:
        got = session.run(part)
    np.testing.assert_array_equal(got, CUBE[key])
    assert part.shape == list(CUBE[key].shape)


def test_indexing_by_tensors() -> None:
    one, long_two = np.int32(1), np.int64(2)
    got = run(lambda x, i, j: [x[i], x[i:j, j], x[:, i:, None], x[j, 0, i]], CUBE, one, long_two)
    for value, expected in zip(got, [CUBE[1], CUBE[1:2, 2], CUBE[:, 1:, None], CUBE[2, 0, 1]], strict=True):
        np.testing.assert_array_equal(value, expected)


def test_indexing_by_a_mask() -> None:
    got = run(lambda x: [x[x > 30], x[np.array([True, False, True])]], CUBE)
    np.testing.assert_array_equal(got[0], CUBE[CUBE > 30])
    np.testing.assert_array_equal(got[1], CUBE[[True, False, True]])


@pytest.mark.parametrize("key", ["a", 1.5, [0, 1], True, np.array([0, 1]), (0, 0, 0, 0), 3])
def test_what_is_no_index(key: Any) -> None:
    with ax.Graph(), pytest.raises(ax.errors.InvalidArgumentError, match=r"test_operators\.py:\d+"):
        ax.constant(CUBE)[key]


def test_tensors_that_are_no_index() -> None:
    with ax.Graph():
        x = ax.constant(CUBE)
        for key in (ax.constant(1.5), ax.constant([0, 1])):
            with pytest.raises(ax.errors.InvalidTypeError, match=r"no index(.|\n)*ax\.gather"):
                x[key]


def test_errors_name_the_line_and_what_was_expected() -> None:
    with ax.Graph():
        x, y = ax.placeholder(ax.float32, [2, 3], name="x"), ax.placeholder(ax.float32, [4], name="y")
        with pytest.raises(ValueError, match=r"test_operators\.py:\d+") as caught:
            x + y
        assert "[2,3]" in str(caught.value)
        with pytest.raises(TypeError, match=r"(?s)int32.*float32.*test_operators\.py:\d+.*ax\.cast"):
            x * ax.placeholder(ax.int32, [2, 3])
        with pytest.raises(ValueError, match=r"(?s)string.*float32.*test_operators\.py:\d+"):
            ax.relu("text")


def test_tensors_of_two_graphs_do_not_mix() -> None:
    with ax.Graph():
        x = ax.constant(1)
    with ax.Graph():
        y = ax.constant(2)
    with pytest.raises(ax.errors.InvalidArgumentError, match="another graph"):
        x + y


def test_operators_need_no_current_graph() -> None:
    with ax.Graph() as graph:
        x = ax.constant([1, 2])
    y = ax.softmax(ax.cast((1 - x[:1] * 2) // 3, ax.float32), 0)
    with ax.BlockingSession(graph) as session:
        assert session.run(y).tolist() == [1]


def test_reprs() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, 64], name="x")
        y = ax.relu(x, name="y")
        assert repr(x) == "<ax.Tensor 'x:0' float32 shape=[?,64] from Placeholder>"
        assert repr(y.op) == "<ax.Operation 'y' op=Relu -> float32 [?,64]>"
        assert repr(ax.Variable([1, 2], name="v")) == "<ax.Variable 'v' int32 shape=[2]>"
        assert (
            repr(ax.FIFOQueue(3, [ax.int32, ax.string], [[], None], name="q"))
            == "<ax.FIFOQueue 'q' of int32 [], string <unknown>>"
        )
        assert "operations" in repr(graph)
