"""Linear models and support vector machines (``ai.onnx.ml``), and what becomes of the scores of classifiers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.extras import require
from asyncexec.framework.kernel import Kernel, KernelKind
from asyncexec.ops.onnx.activations import sigmoid, softmax
from asyncexec.ops.onnx.arrays import need, zeros
from asyncexec.ops.onnx.onnx_kernels import ML_DOMAIN, OnnxNode, onnx_kernel

_TINY: Final = 1e-7  # scores nearer to zero than that stay near it in SOFTMAX_ZERO


def _softmax_zero(scores: Array) -> Array:
    largest = scores.max(axis=1, keepdims=True)
    out = np.where(np.abs(scores) > _TINY, np.exp(scores - largest), scores * np.exp(-largest))
    sums = out.sum(axis=1, keepdims=True)
    return np.where(sums == 0, 0.5, out / np.where(sums == 0, 1, sums)).astype(scores.dtype)


def _probit(scores: Array) -> Array:
    return np.asarray(require("scipy.special", extra="ops").ndtri(scores)).astype(scores.dtype)


TRANSFORMS: Final[dict[str, Callable[[Array], Array]]] = {
    "NONE": lambda scores: scores,
    "SOFTMAX": softmax,
    "LOGISTIC": sigmoid,
    "SOFTMAX_ZERO": _softmax_zero,
    "PROBIT": _probit,
}


def post_transform(node: OnnxNode) -> str:
    """What the node does to its scores in the end."""
    name = node.text("post_transform", "NONE")
    need(name in TRANSFORMS, f"post_transform must be one of {', '.join(TRANSFORMS)}, not {name!r}")
    return name


def class_labels(node: OnnxNode, integers: str = "classlabels_ints") -> Array:
    """The labels of the node's classes, integers or strings."""
    strings = node.attr("classlabels_strings")
    if strings:
        labels = np.empty(len(strings), object)
        labels[:] = strings
        return labels
    return np.asarray(node.attr(integers, ()), np.int64)


def rows_of(x: Array) -> Array:
    """*x* as rows of floats; a vector is one row."""
    need(x.ndim in (1, 2), f"X must have 1 or 2 axes, not shape {list(x.shape)}")
    return np.atleast_2d(x).astype(np.float64 if x.dtype == np.float64 else np.float32, copy=False)


def both_classes(score: Array, transform: str, is_probability: bool) -> Array:
    """The scores of two classes, of which one is known."""
    if transform == "PROBIT":
        return _probit(score)
    if transform == "LOGISTIC":
        return sigmoid(np.concatenate([-score, score], 1))
    return np.concatenate([1 - score if is_probability else -score, score], 1)


@onnx_kernel("LinearClassifier", domain=ML_DOMAIN)
def make_linear_classifier(node: OnnxNode) -> Kernel:
    """The kernel of LinearClassifier."""
    transform, labels = post_transform(node), class_labels(node)
    weights = np.asarray(node.attr("coefficients", ()), np.float32)
    intercepts = np.asarray(node.attr("intercepts", ()), np.float32)

    def kernel(x: Array) -> tuple[Array, Array]:
        rows = rows_of(x).astype(np.float32, copy=False)
        need(
            rows.shape[1] > 0 and not weights.size % rows.shape[1], f"{weights.size} weights for shape {list(x.shape)}"
        )
        scores = rows @ weights.reshape(-1, rows.shape[1]).T
        if intercepts.size:
            need(
                intercepts.size == scores.shape[1], f"there are {intercepts.size} intercepts, {scores.shape[1]} scores"
            )
            scores = scores + intercepts
        if scores.shape[1] == 1 and len(labels) == 2:
            chosen = (scores[:, 0] > 0).astype(np.int64)
            return labels[chosen], both_classes(scores, transform, is_probability=True)
        if scores.shape[1] == 1:
            is_first = scores[:, 0] > 0
            none: Any = b"" if labels.dtype == object else 0
            return np.where(is_first, labels[0] if len(labels) else 1, none), TRANSFORMS[transform](scores)
        chosen = scores.argmax(1)
        need(len(labels) in (0, scores.shape[1]), f"there are {len(labels)} labels for {scores.shape[1]} scores")
        return labels[chosen] if len(labels) else chosen, TRANSFORMS[transform](scores)

    return kernel


@onnx_kernel("LinearRegressor", domain=ML_DOMAIN)
def make_linear_regressor(node: OnnxNode) -> Kernel:
    """The kernel of LinearRegressor."""
    transform, targets = TRANSFORMS[post_transform(node)], node.attr("targets", 1)
    weights = np.asarray(node.attr("coefficients", ()), np.float32)
    intercepts = np.asarray(node.attr("intercepts", ()), np.float32)
    need(targets > 0 and not weights.size % targets, f"{weights.size} coefficients are not for {targets} targets")
    need(intercepts.size in (0, targets), f"there are {intercepts.size} intercepts for {targets} targets")

    def kernel(x: Array) -> tuple[Array]:
        rows = rows_of(x).astype(np.float32, copy=False)
        need(rows.shape[1] * targets == weights.size, f"{weights.size} coefficients do not fit shape {list(x.shape)}")
        scores = rows @ weights.reshape(targets, -1).T
        return (transform(scores + intercepts if intercepts.size else scores),)

    return kernel


class _Machine:
    """The kernel function, vectors and numbers of a support vector machine."""

    def __init__(self, node: OnnxNode, vectors: int) -> None:
        self.vectors = np.asarray(node.attr("support_vectors", ()), np.float32)
        self.coefficients = np.asarray(node.attr("coefficients", ()), np.float32)
        self.rho = np.asarray(node.attr("rho", ()), np.float32)
        self.count = vectors
        self.gamma, self.coef0, self.degree = (*node.attr("kernel_params", ()), 0.0, 0.0, 0.0)[:3]
        self.function = node.text("kernel_type", "LINEAR")
        need(self.function in ("LINEAR", "POLY", "RBF", "SIGMOID"), f"kernel_type {self.function!r} is unknown")
        need(self.rho.size > 0, "rho is missing")
        if vectors:
            need(self.vectors.size > 0 and not self.vectors.size % vectors, "support_vectors do not fit their number")
            self.vectors = self.vectors.reshape(vectors, -1)

    def similarity(self, rows: Array, others: Array) -> Array:
        """The kernel function of each of *rows* with each of *others*."""
        if rows.shape[1] != others.shape[1]:
            raise InvalidArgumentError(f"X has {rows.shape[1]} columns, the machine is for {others.shape[1]}")
        if self.function == "RBF":
            squares = ((rows[:, np.newaxis] - others) ** 2).sum(2)
            return np.asarray(np.exp(-self.gamma * squares))
        products = rows @ others.T
        if self.function == "LINEAR":
            return np.asarray(products)
        line = products * self.gamma + self.coef0
        return np.asarray(np.tanh(line) if self.function == "SIGMOID" else line**self.degree)


@onnx_kernel("SVMRegressor", domain=ML_DOMAIN, kind=KernelKind.EXPENSIVE)
def make_svm_regressor(node: OnnxNode) -> Kernel:
    """The kernel of SVMRegressor."""
    machine, transform = _Machine(node, node.attr("n_supports", 0)), TRANSFORMS[post_transform(node)]
    one_class = bool(node.attr("one_class", 0))

    def kernel(x: Array) -> tuple[Array]:
        rows = rows_of(x).astype(np.float32, copy=False)
        weights = machine.coefficients.reshape(1, -1)
        if machine.count:
            need(weights.shape[1] == machine.count, f"{weights.shape[1]} coefficients for {machine.count} vectors")
            scores = machine.similarity(rows, machine.vectors) @ weights.T + machine.rho[0]
        else:
            scores = machine.similarity(rows, weights) + machine.rho[0]
        scores = np.where(scores > 0, 1, -1) if one_class else scores
        return (transform(scores.astype(np.float32)),)

    return kernel


@onnx_kernel("SVMClassifier", domain=ML_DOMAIN, kind=KernelKind.EXPENSIVE)
def make_svm_classifier(node: OnnxNode) -> Kernel:
    """The kernel of SVMClassifier: a vote of each pair of classes, or a line for each class."""
    counts = list(node.attr("vectors_per_class", ()))
    machine, transform, labels = _Machine(node, sum(counts)), post_transform(node), class_labels(node)
    is_positive = bool((machine.coefficients >= 0).all())
    prob_a, prob_b = (np.asarray(node.attr(name, ()), np.float32) for name in ("prob_a", "prob_b"))
    classes = max(len(labels), 1)
    pairs = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    if machine.count:
        need(
            len(counts) == classes and machine.rho.size >= len(pairs), "vectors_per_class or rho do not fit the labels"
        )
        need(prob_a.size == prob_b.size and prob_a.size in (0, len(pairs)), "prob_a and prob_b do not fit the labels")
        need(machine.coefficients.size == (classes - 1) * machine.count, "coefficients do not fit the vectors")
    else:
        need(not machine.coefficients.size % classes, "coefficients do not fit the labels")

    def kernel(x: Array) -> tuple[Array, Array]:
        rows = rows_of(x).astype(np.float32, copy=False)
        votes: Array | None = None
        if machine.count:
            scores, votes = _of_pairs(machine, counts, pairs, rows)
            if prob_a.size:
                scores = _probabilities(1 - sigmoid(scores * prob_a + prob_b), pairs, classes)
        else:
            scores = machine.similarity(rows, machine.coefficients.reshape(classes, -1)) + machine.rho[0]
        scores = scores.astype(np.float32)
        best = scores.argmax(1) if votes is None else votes.argmax(1)
        if votes is None and len(labels) == 2:
            # Two lines: the second class where either is far enough above, whichever is higher.
            largest = scores.max(1)
            best = np.where(largest >= 0.5 if is_positive else largest > 0, 1, best)
        chosen = labels[best] if len(labels) else best
        if scores.shape[1] == 1 and len(labels) == 2:
            return chosen, both_classes(scores, transform, transform != "NONE")
        return chosen, TRANSFORMS[transform](scores)

    return kernel


def _of_pairs(machine: _Machine, counts: list[int], pairs: list[tuple[int, int]], rows: Array) -> tuple[Array, Array]:
    """The score of each pair of classes, and how many pairs each class wins."""
    starts = np.concatenate([[0], np.cumsum(counts)])
    near = machine.similarity(rows, machine.vectors)
    weights = machine.coefficients.reshape(-1, machine.count)
    scores, votes = zeros((len(rows), len(pairs)), np.float32), zeros((len(rows), len(counts)), np.int64)
    for place, (i, j) in enumerate(pairs):
        of_i, of_j = slice(starts[i], starts[i + 1]), slice(starts[j], starts[j + 1])
        score = near[:, of_i] @ weights[j - 1, of_i] + near[:, of_j] @ weights[i, of_j] + machine.rho[place]
        scores[:, place] = score
        votes[:, i] += score > 0
        votes[:, j] += score <= 0
    return scores, votes


def _probabilities(of_pairs: Array, pairs: list[tuple[int, int]], classes: int) -> Array:
    """Probabilities of classes that fit those of pairs best (Wu, Lin and Weng, 2004, second approach)."""
    r = np.zeros((len(of_pairs), classes, classes))
    for place, (i, j) in enumerate(pairs):
        r[:, i, j] = np.clip(of_pairs[:, place], 1e-7, 1 - 1e-7)
        r[:, j, i] = 1 - r[:, i, j]
    q = -r * r.swapaxes(1, 2)
    own = (r * r).sum(1)
    q[:, range(classes), range(classes)] = own
    p = np.full((len(r), classes), 1 / classes)
    for _ in range(max(100, classes)):
        qp = (q @ p[..., None])[..., 0]
        fit = (p * qp).sum(1, keepdims=True)
        is_off = np.abs(qp - fit).max(1) >= 0.005 / classes
        if not is_off.any():
            break
        # Rows that fit already stay as they are.
        moved, moved_qp = p.copy(), qp
        for t in range(classes):
            diff = (fit - moved_qp[:, t : t + 1]) / own[:, t : t + 1]
            moved[:, t : t + 1] += diff
            fit = (fit + diff * (diff * own[:, t : t + 1] + 2 * moved_qp[:, t : t + 1])) / (1 + diff) ** 2
            moved_qp = (moved_qp + diff * q[:, t]) / (1 + diff)
            moved /= 1 + diff
        p = np.where(is_off[:, None], moved, p)
    return p
