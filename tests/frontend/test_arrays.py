"""Functions that make, form, join, part and index tensors give what numpy gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from tests.frontend.builder import run

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
V = np.array([3, 1, 2, 3, 1], np.int32)

CASES: dict[str, tuple[Any, list[Any], Any]] = {
    "shape": (ax.shape, [X], np.array([2, 3, 4], np.int32)),
    "size": (ax.size, [X], np.int32(24)),
    "rank": (ax.rank, [X], np.int32(3)),
    "reshape": (lambda x: ax.reshape(x, [-1, 4]), [X], X.reshape(-1, 4)),
    "reshape to a scalar": (lambda x: ax.reshape(x, []), [X[:1, 0, 0]], X[0, 0, 0]),
    "reshape with a tensor inside": (lambda x: ax.reshape(x, [ax.shape(x)[0], -1]), [X], X.reshape(2, -1)),
    "expand_dims": (lambda x: ax.expand_dims(x, 1), [X], X[:, None]),
    "squeeze": (ax.squeeze, [X[:1, :, :1]], X[0, :, 0]),
    "squeeze axis": (lambda x: ax.squeeze(x, -1), [X[:1, :, :1]], X[:1, :, 0]),
    "fill": (lambda: ax.fill([2, 2], 7), [], np.full((2, 2), 7, np.int32)),
    "zeros": (lambda: ax.zeros([2, 1]), [], np.zeros((2, 1), np.float32)),
    "zeros of bool": (lambda: ax.zeros(2, ax.bool), [], np.zeros(2, np.bool_)),
    "ones": (lambda: ax.ones([], ax.int64), [], np.int64(1)),
    "zeros_like": (ax.zeros_like, [X], np.zeros_like(X)),
    "ones_like": (lambda x: ax.ones_like(x, ax.int32), [X], np.ones(X.shape, np.int32)),
    "tile": (lambda x: ax.tile(x, [2]), [V], np.tile(V, 2)),
    "broadcast_to": (lambda x: ax.broadcast_to(x, [2, 5]), [V], np.broadcast_to(V, (2, 5))),
    "transpose": (ax.transpose, [X], X.T),
    "transpose perm": (lambda x: ax.transpose(x, [1, 0, 2]), [X], X.transpose(1, 0, 2)),
    "transpose conjugate": (lambda x: ax.transpose(x, conjugate=True), [X * 1j], (X * 1j).conj().T),
    "matrix_transpose": (ax.matrix_transpose, [X], X.swapaxes(1, 2)),
    "reverse": (lambda x: ax.reverse(x, [0, 2]), [X], X[::-1, :, ::-1]),
    "roll": (lambda x: ax.roll(x, 1, 0), [V], np.roll(V, 1)),
    "pad": (lambda x: ax.pad(x, [[1, 2]]), [V], np.pad(V, (1, 2))),
    "pad value": (lambda x: ax.pad(x, [[1, 2]], constant_values=9), [V], np.pad(V, (1, 2), constant_values=9)),
    "pad reflect": (lambda x: ax.pad(x, [[2, 1]], "reflect"), [V], np.pad(V, (2, 1), "reflect")),
    "pad symmetric": (lambda x: ax.pad(x, [[2, 1]], "SYMMETRIC"), [V], np.pad(V, (2, 1), "symmetric")),
    "range": (lambda: ax.range(5), [], np.arange(5, dtype=np.int32)),
    "range floats": (lambda: ax.range(1, 2, 0.25), [], np.arange(1, 2, 0.25, dtype=np.float32)),
    "range dtype": (lambda: ax.range(2, 6, 2, ax.int64), [], np.array([2, 4])),
    "linspace": (lambda: ax.linspace(0.0, 1.0, 5), [], np.linspace(0, 1, 5, dtype=np.float32)),
    "concat": (lambda x: ax.concat([x, x], -1), [X], np.concatenate([X, X], -1)),
    "concat of one": (lambda x: ax.concat([x], 0), [X], X),
    "stack": (
        lambda x: ax.stack([x, [9, 8, 7, 6, 5]], axis=1),
        [V],
        np.stack([V, [9, 8, 7, 6, 5]], 1).astype(np.int32),
    ),
    "slice": (lambda x: ax.slice(x, [0, 1, 0], [1, -1, 2]), [X], X[:1, 1:, :2]),
    "strided_slice": (lambda x: ax.strided_slice(x, [0], [5], [2]), [V], V[0:5:2]),
    "gather": (lambda x: ax.gather(x, [2, 0], axis=1), [X], X[:, [2, 0]]),
    "gather batch": (
        lambda x: ax.gather(x, [[1, 1], [2, 0]], batch_dims=1),
        [X],
        np.stack([X[0, [1, 1]], X[1, [2, 0]]]),
    ),
    "gather_nd": (lambda x: ax.gather_nd(x, [[0, 2], [1, 0]]), [X], X[[0, 1], [2, 0]]),
    "gather_nd batch": (lambda x: ax.gather_nd(x, [[[2]], [[0]]], batch_dims=1), [X], X[[0, 1], [2, 0]][:, None]),
    "scatter_nd": (lambda x: ax.scatter_nd([[4], [0]], [7, 8], [5]), [V], np.array([8, 0, 0, 0, 7], np.int32)),
    "scatter update": (lambda x: ax.tensor_scatter_nd_update(x, [[1]], [9]), [V], np.array([3, 9, 2, 3, 1], np.int32)),
    "scatter add": (
        lambda x: ax.tensor_scatter_nd_add(x, [[1], [1]], [9, 1]),
        [V],
        np.array([3, 11, 2, 3, 1], np.int32),
    ),
    "scatter sub": (lambda x: ax.tensor_scatter_nd_sub(x, [[1]], [9]), [V], np.array([3, -8, 2, 3, 1], np.int32)),
    "one_hot": (lambda x: ax.one_hot(x, 4), [V], np.eye(4, dtype=np.float32)[V]),
    "one_hot values": (
        lambda x: ax.one_hot(x, 4, 5, -1, axis=0),
        [V],
        np.where(np.eye(4)[V], 5, -1).T.astype(np.int32),
    ),
    "one_hot bool": (lambda x: ax.one_hot(x, 4, dtype=ax.bool), [V], np.eye(4, dtype=np.bool_)[V]),
    "boolean_mask": (lambda x: ax.boolean_mask(x, [True, False]), [X], X[[True, False]]),
    "boolean_mask of matrix": (lambda x, m: ax.boolean_mask(x, m), [X, X[..., 0] > 5], X[X[..., 0] > 5]),
    "boolean_mask axis": (lambda x, m: ax.boolean_mask(x, m, 1), [X, X[0] % 2 == 0], X[:, X[0] % 2 == 0]),
    "invert_permutation": (ax.invert_permutation, [np.array([2, 0, 1], np.int32)], np.array([1, 2, 0], np.int32)),
    "sort": (ax.sort, [V], np.sort(V)),
    "sort unsigned": (ax.sort, [V.astype(np.uint8)], np.sort(V.astype(np.uint8))),
    "sort lowest": (ax.sort, [np.array([5, -(2**31), 0], np.int32)], np.array([-(2**31), 0, 5], np.int32)),
    "sort down": (lambda x: ax.sort(x, direction="DESCENDING"), [V], np.sort(V)[::-1]),
    "sort axis": (lambda x: ax.sort(-x, axis=0), [X], np.sort(-X, axis=0)),
    "argsort": (ax.argsort, [V], np.argsort(V, kind="stable").astype(np.int32)),
    "argsort axis": (lambda x: ax.argsort(-x, axis=1), [X], np.argsort(-X, axis=1).astype(np.int32)),
    "sequence_mask": (lambda: ax.sequence_mask([1, 3], 4), [], np.arange(4) < np.array([[1], [3]])),
    "sequence_mask longest": (
        lambda x: ax.sequence_mask(x, dtype=ax.int32),
        [V[:2]],
        np.array([[1, 1, 1], [1, 0, 0]], np.int32),
    ),
    "reverse_sequence": (
        lambda: ax.reverse_sequence([[1, 2, 3], [4, 5, 6]], [2, 3], 1),
        [],
        np.array([[2, 1, 3], [6, 5, 4]], np.int32),
    ),
    "space_to_depth": (
        lambda: ax.space_to_depth([[[[1], [2]], [[3], [4]]]], 2),
        [],
        np.array([[[[1, 2, 3, 4]]]], np.int32),
    ),
    "depth_to_space": (
        lambda: ax.depth_to_space([[[[1, 2, 3, 4]]]], 2),
        [],
        np.array([[[[1], [2]], [[3], [4]]]], np.int32),
    ),
    "dynamic_stitch": (lambda: ax.dynamic_stitch([[2, 0], 1], [[5, 6], 7]), [], np.array([6, 7, 5], np.int32)),
    "ensure_shape": (lambda x: ax.ensure_shape(x, [2, None, 4]), [X], X),
    "identity": (ax.identity, [X], X),
    "stop_gradient": (ax.stop_gradient, [X], X),
    "placeholder_with_default": (lambda: ax.placeholder_with_default([1, 2], [None]), [], np.array([1, 2], np.int32)),
}


@pytest.mark.parametrize("label", CASES)
def test_function(label: str) -> None:
    build, inputs, expected = CASES[label]
    got = run(build, *inputs)
    np.testing.assert_allclose(got, expected)
    assert (np.shape(got), got.dtype) == (np.shape(expected), expected.dtype)


LISTS: dict[str, tuple[Any, list[Any], list[Any]]] = {
    "unstack": (lambda: ax.unstack([[1, 2], [3, 4]], axis=1), [], [[1, 3], [2, 4]]),
    "unstack by number": (lambda x: ax.unstack(x, 2), [V[:2]], [3, 1]),
    "split": (lambda x: ax.split(x, 2, axis=1), [V.reshape(1, 5)[:, :4]], [[[3, 1]], [[2, 3]]]),
    "split by sizes": (lambda x: ax.split(x, [1, -1, 2]), [V], [[3], [1, 2], [3, 1]]),
    "split by tensor": (lambda x: ax.split(x, ax.constant([2, 3])), [V], [[3, 1], [2, 3, 1]]),
    "meshgrid": (lambda: ax.meshgrid([1, 2, 3], [4, 5]), [], [a.tolist() for a in np.meshgrid([1, 2, 3], [4, 5])]),
    "meshgrid ij": (
        lambda: ax.meshgrid([1, 2], [3], [4, 5], indexing="ij"),
        [],
        [a.tolist() for a in np.meshgrid([1, 2], [3], [4, 5], indexing="ij")],
    ),
    "unique": (ax.unique, [V], [[3, 1, 2], [0, 1, 2, 0, 1]]),
    "unique_with_counts": (ax.unique_with_counts, [V], [[3, 1, 2], [0, 1, 2, 0, 1], [2, 2, 1]]),
    "setdiff1d": (lambda x: ax.setdiff1d(x, [3]), [V], [[1, 2, 1], [1, 2, 4]]),
    "top_k": (lambda x: ax.top_k(x, 2), [V], [[3, 3], [0, 3]]),
    "dynamic_partition": (lambda x: ax.dynamic_partition(x, [0, 1, 0, 1, 1], 2), [V], [[3, 2], [1, 3, 1]]),
    "identity_n": (lambda x: ax.identity_n([x, 1.5]), [V], [V.tolist(), 1.5]),
}


@pytest.mark.parametrize("label", LISTS)
def test_function_with_several_results(label: str) -> None:
    build, inputs, expected = LISTS[label]
    assert [value.tolist() for value in run(build, *inputs)] == expected


def test_results_can_be_taken_by_name() -> None:
    with ax.Graph():
        found = ax.top_k([1, 2, 3], 2)
        assert found.values.shape == [2]
        assert found.indices.dtype is ax.int32


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda x: ax.unstack(x), "is not known"),
        (lambda x: ax.unstack(x, axis=4), "no dimension 4"),
        (lambda x: ax.sort(x, direction="up"), "ASCENDING"),
        (lambda x: ax.pad(x, [[0, 0]] * 2, "wrap"), "mode of pad"),
        (lambda x: ax.meshgrid([1], indexing="ji"), "indexing"),
        (lambda x: ax.boolean_mask(x, True), "scalar"),
        (lambda x: ax.boolean_mask(ax.zeros([2, 3]), [True]), "Incompatible|compatible|equal"),
        (lambda x: ax.reshape(ax.zeros([2, 3]), [7]), "Reshape"),
        (lambda x: ax.concat([ax.zeros([2, 3]), ax.zeros([2])], 0), "Concat"),
        (lambda x: ax.matrix_transpose([1, 2]), "no matrix"),
        (lambda x: ax.gather_nd(x, ax.placeholder(ax.int32), batch_dims=1), "must be known"),
    ],
)
def test_what_cannot_be_built(build: Any, message: str) -> None:
    with ax.Graph(), pytest.raises(ax.errors.InvalidArgumentError, match=message) as caught:
        build(ax.placeholder(ax.float32, [None, 2]))
    assert isinstance(caught.value, ValueError)
