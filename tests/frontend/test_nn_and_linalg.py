"""Neural network, convolution, image and linear algebra functions give what numpy gives."""

from __future__ import annotations

from math import erf
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from tests.frontend.builder import run

X = np.array([[-2.0, -0.5, 0.0], [0.5, 3.0, 8.0]], np.float32)
DEEP = np.linspace(-2, 2, 24, dtype=np.float32).reshape(2, 3, 4)
ERF = np.vectorize(erf)
GENERATOR = np.random.default_rng(1)
A, B = GENERATOR.normal(size=(2, 3)), GENERATOR.normal(size=(3, 4))
SQUARE = np.array([[4.0, 1.0], [2.0, 3.0]])
POSITIVE = np.array([[4.0, 2.0], [2.0, 3.0]])
Z = A + 1j * A[::-1]


def softmax(x: Any, axis: int = -1) -> Any:
    powers = np.exp(x - x.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


def normal(x: Any, axis: int = -1) -> Any:
    return (x - x.mean(axis, keepdims=True)) / np.sqrt(x.var(axis, keepdims=True) + 1e-5)


ONE_HOT = np.array([[0, 1, 0], [0.5, 0, 0.5]], np.float32)

CASES: dict[str, tuple[Any, list[Any], Any]] = {
    "relu": (ax.relu, [X], np.maximum(X, 0)),
    "relu6": (ax.relu6, [X], np.clip(X, 0, 6)),
    "leaky_relu": (lambda x: ax.leaky_relu(x, 0.1), [X], np.where(X > 0, X, 0.1 * X)),
    "elu": (ax.elu, [X], np.where(X > 0, X, np.expm1(X))),
    "selu": (ax.selu, [X], 1.0507009873554805 * np.where(X > 0, X, 1.6732632423543772 * np.expm1(X))),
    "softplus": (ax.softplus, [X], np.log1p(np.exp(X))),
    "softsign": (ax.softsign, [X], X / (1 + np.abs(X))),
    "gelu": (ax.gelu, [X], 0.5 * X * (1 + ERF(X / np.sqrt(2)))),
    "gelu approximate": (
        lambda x: ax.gelu(x, True),
        [X],
        0.5 * X * (1 + np.tanh(np.sqrt(2 / np.pi) * (X + 0.044715 * X**3))),
    ),
    "silu": (ax.silu, [X], X / (1 + np.exp(-X))),
    "swish": (lambda x: ax.swish(x, 2.0), [X], X / (1 + np.exp(-2 * X))),
    "softmax": (ax.softmax, [X], softmax(X)),
    "softmax axis": (lambda x: ax.softmax(x, 0), [DEEP], softmax(DEEP, 0)),
    "log_softmax axis": (lambda x: ax.log_softmax(x, axis=1), [DEEP], np.log(softmax(DEEP, 1))),
    "l2_loss": (ax.l2_loss, [X], (X * X).sum() / 2),
    "l2_normalize": (lambda x: ax.l2_normalize(x, 1), [X], X / np.sqrt((X * X).sum(1, keepdims=True))),
    "in_top_k": (lambda x: ax.in_top_k([2, 0], x, 1), [X], np.array([True, False])),
    "bias_add": (lambda x: ax.bias_add(x, [1, 2, 3]), [X], X + np.array([1, 2, 3])),
    "batch_normalization": (
        lambda x: ax.batch_normalization(x, [0.5, 1, 2], [1, 4, 9], [1, 1, 1], [2, 2, 2], 1e-3),
        [X],
        (X - [0.5, 1, 2]) / np.sqrt(np.array([1, 4, 9]) + 1e-3) * 2 + 1,
    ),
    "batch_normalization plain": (
        lambda x: ax.batch_normalization(x, 0.5, 4.0, None, None, 0.0),
        [X],
        (X - 0.5) / 2,
    ),
    "layer_norm": (lambda x: ax.layer_norm(x, [1, 2, 3, 4], 0.5), [DEEP], normal(DEEP) * [1, 2, 3, 4] + 0.5),
    "softmax_cross_entropy_with_logits": (
        lambda x: ax.softmax_cross_entropy_with_logits(ONE_HOT, x),
        [X],
        -(ONE_HOT * np.log(softmax(X))).sum(1),
    ),
    "softmax_cross_entropy_with_logits deep": (
        lambda x: ax.softmax_cross_entropy_with_logits(softmax(DEEP, 1), x, axis=1),
        [DEEP],
        -(softmax(DEEP, 1) * np.log(softmax(DEEP, 1))).sum(1),
    ),
    "sparse_softmax_cross_entropy_with_logits": (
        lambda x: ax.sparse_softmax_cross_entropy_with_logits([1, 2], x),
        [X],
        -np.log(softmax(X))[[0, 1], [1, 2]],
    ),
    "sparse_softmax_cross_entropy_with_logits deep": (
        lambda x: ax.sparse_softmax_cross_entropy_with_logits(np.full((2, 3), 3), x),
        [DEEP],
        -np.log(softmax(DEEP))[..., 3],
    ),
    "sigmoid_cross_entropy_with_logits": (
        lambda x: ax.sigmoid_cross_entropy_with_logits(ONE_HOT, x),
        [X],
        np.log1p(np.exp(X)) - X * ONE_HOT,
    ),
    "matmul": (ax.matmul, [A, B], A @ B),
    "matmul transposed": (
        lambda a, b: ax.matmul(a, b, transpose_a=True, transpose_b=True),
        [A.T.copy(), B.T.copy()],
        A @ B,
    ),
    "matmul adjoint": (lambda a, b: ax.matmul(a, b, adjoint_b=True), [Z, Z], Z @ Z.conj().T),
    "matmul batch": (ax.matmul, [np.stack([A, -A]), B], np.stack([A, -A]) @ B),
    "matmul batch transposed": (
        lambda a, b: ax.matmul(a, b, transpose_b=True),
        [Z[None], Z[None]],
        Z[None] @ Z[None].transpose(0, 2, 1),
    ),
    "tensordot": (lambda a, b: ax.tensordot(a, b, 1), [A, B], A @ B),
    "tensordot axes": (
        lambda x: ax.tensordot(x, x, [[0, 2], [0, -1]]),
        [DEEP],
        np.tensordot(DEEP, DEEP, [[0, 2], [0, 2]]),
    ),
    "einsum": (lambda a, b: ax.einsum("ij, jk -> ki", a, b), [A, B], (A @ B).T),
    "einsum implicit": (lambda a, b: ax.einsum("ij,jk", a, b), [A, B], A @ B),
    "norm": (ax.norm, [A], np.linalg.norm(A)),
    "norm 1": (lambda x: ax.norm(x, 1, axis=1), [A], np.abs(A).sum(1)),
    "norm infinity": (lambda x: ax.norm(x, np.inf, axis=0, keepdims=True), [A], np.abs(A).max(0, keepdims=True)),
    "norm 3": (lambda x: ax.norm(x, 3), [A], (np.abs(A) ** 3).sum() ** (1 / 3)),
    "norm of complex": (ax.norm, [Z], np.linalg.norm(Z)),
    "cholesky": (ax.cholesky, [POSITIVE], np.linalg.cholesky(POSITIVE)),
    "inv": (ax.inv, [SQUARE], np.linalg.inv(SQUARE)),
    "solve": (lambda m: ax.solve(m, [[1.0], [2.0]]), [SQUARE], np.linalg.solve(SQUARE, [[1.0], [2.0]])),
    "triangular_solve": (
        lambda m: ax.triangular_solve(m, [[1.0], [2.0]]),
        [SQUARE],
        np.linalg.solve(np.tril(SQUARE), [[1.0], [2.0]]),
    ),
    "det": (ax.det, [SQUARE], np.linalg.det(SQUARE)),
    "trace": (ax.trace, [np.stack([SQUARE, 2 * SQUARE])], np.array([7.0, 14.0])),
    "diag": (ax.diag, [X[0]], np.diag(X[0])),
    "diag_part": (ax.diag_part, [A], np.diag(A)),
    "matrix_band_part": (lambda x: ax.matrix_band_part(x, 0, -1), [DEEP], np.triu(DEEP)),
    "eye": (lambda: ax.eye(2), [], np.eye(2)),
    "eye of columns": (lambda: ax.eye(2, 3, [4], ax.int32), [], np.broadcast_to(np.eye(2, 3), (4, 2, 3))),
    "eye of tensors": (
        lambda n: ax.eye(n, batch_shape=ax.constant([2])),
        [np.int32(2)],
        np.broadcast_to(np.eye(2), (2, 2, 2)),
    ),
}


@pytest.mark.allow_blocking
@pytest.mark.parametrize("label", CASES)
def test_function(label: str) -> None:
    build, inputs, expected = CASES[label]
    got = run(build, *inputs)
    assert np.shape(got) == np.shape(expected)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


IMAGE = np.arange(32, dtype=np.float32).reshape(1, 4, 4, 2)
KERNEL = np.arange(16, dtype=np.float32).reshape(2, 2, 2, 2) / 8


def valid_convolution(x: Any, kernel: Any, stride: int) -> Any:
    windows = np.lib.stride_tricks.sliding_window_view(x, kernel.shape[:2], (1, 2))[:, ::stride, ::stride]
    return np.einsum("nhwcij,ijco->nhwo", windows, kernel)


def windows_of_2() -> Any:
    return IMAGE.reshape(1, 2, 2, 2, 2, 2).swapaxes(2, 3)


def test_conv2d() -> None:
    for strides in (2, [2, 2], [1, 2, 2, 1]):
        got = run(lambda x, strides=strides: ax.conv2d(x, KERNEL, strides, "VALID"), IMAGE)
        np.testing.assert_allclose(got, valid_convolution(IMAGE, KERNEL, 2))
    padded = np.pad(IMAGE, [(0, 0), (1, 0), (0, 1), (0, 0)])
    got = run(lambda x: ax.conv2d(x, KERNEL, 1, [[0, 0], [1, 0], [0, 1], [0, 0]]), IMAGE)
    np.testing.assert_allclose(got, valid_convolution(padded, KERNEL, 1))


def test_depthwise_conv2d() -> None:
    got = run(lambda x: ax.depthwise_conv2d(x, KERNEL, 1, "VALID"), IMAGE)
    single = [valid_convolution(IMAGE[..., c : c + 1], KERNEL[:, :, c : c + 1], 1) for c in range(2)]
    np.testing.assert_allclose(got, np.concatenate(single, -1))


def test_conv2d_transpose_spreads_each_point() -> None:
    got = run(lambda x: ax.conv2d_transpose(x, KERNEL, [1, 4, 4, 2], 2, "VALID"), IMAGE[:, :2, :2])
    np.testing.assert_allclose(got[0, :2, :2], np.einsum("ijoc,c->ijo", KERNEL, IMAGE[0, 0, 0]))


def test_conv3d() -> None:
    got = run(lambda x: ax.conv3d(x, KERNEL[None], 1, "VALID"), IMAGE[None])
    np.testing.assert_allclose(got[0], valid_convolution(IMAGE, KERNEL, 1))


def test_pooling() -> None:
    for function in (ax.max_pool, ax.max_pool2d):
        got = run(lambda x, function=function: function(x, 2, 2, "VALID"), IMAGE)
        np.testing.assert_allclose(got, windows_of_2().max((3, 4)))
    for function in (ax.avg_pool, ax.avg_pool2d):
        got = run(lambda x, function=function: function(x, [1, 2, 2, 1], [2, 2], "SAME"), IMAGE)
        np.testing.assert_allclose(got, windows_of_2().mean((3, 4)))


def test_what_pooling_and_convolution_refuse() -> None:
    with ax.Graph():
        with pytest.raises(ax.errors.InvalidArgumentError, match="strides is 1, 2 or 4 ints"):
            ax.conv2d(IMAGE, KERNEL, [1, 1, 1], "SAME")
        with pytest.raises(ax.errors.InvalidArgumentError, match="'SAME' or 'VALID'"):
            ax.avg_pool(IMAGE, 2, 2, [[0, 0]] * 4)
        with pytest.raises(ax.errors.InvalidArgumentError, match="padding"):
            ax.max_pool(IMAGE, 2, 2, "FULL")


def test_resizing() -> None:
    doubled = IMAGE.repeat(2, 1).repeat(2, 2)
    np.testing.assert_allclose(run(lambda x: ax.resize(x, [8, 8], "nearest"), IMAGE), doubled)
    np.testing.assert_allclose(run(lambda x: ax.resize_nearest_neighbor(x, [8, 8]), IMAGE), doubled)
    np.testing.assert_allclose(run(lambda x: ax.resize(x, [2, 2]), IMAGE[0]), windows_of_2().mean((3, 4))[0])
    np.testing.assert_allclose(run(lambda x: ax.resize_bilinear(x, [2, 2]), IMAGE), IMAGE[:, ::2, ::2])
    np.testing.assert_allclose(run(lambda x: ax.resize(x, [2, 2], "area"), IMAGE), windows_of_2().mean((3, 4)))
    with ax.Graph(), pytest.raises(ax.errors.InvalidArgumentError, match="bilinear, nearest"):
        ax.resize(IMAGE, [2, 2], "cubic")


@pytest.mark.parametrize(
    "build",
    [
        lambda: ax.matmul([[1.0]], [[1.0]], transpose_a=True, adjoint_a=True),
        lambda: ax.matmul(A, A),
        lambda: ax.tensordot([1.0], [1.0], 2),
        lambda: ax.tensordot([1.0], [1.0], [[0], [1]]),
        lambda: ax.tensordot([1.0], [1.0], [[0], []]),
        lambda: ax.norm(A, "nuclear"),
        lambda: ax.softmax(A, 3),
    ],
)
def test_what_cannot_be_built(build: Any) -> None:
    with ax.Graph(), pytest.raises(ax.errors.InvalidArgumentError):
        build()
