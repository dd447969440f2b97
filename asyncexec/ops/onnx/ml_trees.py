"""Ensembles of decision trees (``ai.onnx.ml``): all rows go down all trees together, one level at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, KernelKind
from asyncexec.ops.onnx.arrays import need, zeros
from asyncexec.ops.onnx.ml_linear import TRANSFORMS, both_classes, class_labels, post_transform, rows_of
from asyncexec.ops.onnx.onnx_kernels import ML_DOMAIN, OnnxNode, onnx_kernel

_MODES: Final = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")  # in the order of TreeEnsemble's numbers
_COMPARISONS: Final = (np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal)
_MEMBER: Final = 6
_AGGREGATES: Final = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORM_NAMES: Final = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


@dataclass(frozen=True, slots=True)
class _Forest:
    """Nodes of all trees; a leaf's branches lead to itself.

    Attributes:
        mode: which comparison a node makes, by its place in ``_MODES``.
        branches: the next node where the comparison is false, and where it is true.
        missing: whether NaN counts as true.
        members: the values of a node that asks for one of several.
        leaf_nodes, leaf_targets, leaf_weights: what each leaf adds to which target; a leaf may stand several times.
    """

    roots: Array
    mode: Array
    feature: Array
    split: Array
    branches: Array
    missing: Array
    members: dict[int, Array]
    leaf_nodes: Array
    leaf_targets: Array
    leaf_weights: Array

    def check(self, targets: int, is_leaf: Array) -> None:
        """InvalidArgumentError unless all numbers are in range, and leaves alone lead to themselves."""
        count = len(self.mode)
        own = (self.branches == np.arange(count)[:, np.newaxis]).any(1)
        need(not (own & ~is_leaf).any(), "a node leads to itself")
        need(len(self.roots) > 0, "there are no trees")
        for what, numbers, limit in (
            ("a branch", self.branches, count),
            ("a root", self.roots, count),
            ("a leaf", self.leaf_nodes, count),
            ("a target", self.leaf_targets, targets),
        ):
            need(not numbers.size or (numbers.min() >= 0 and numbers.max() < limit), f"{what} is none of {limit}")
        need(not self.feature.size or self.feature.min() >= 0, "a feature is negative")

    def leaves(self, rows: Array) -> Array:
        """The leaf of each row in each tree."""
        need(not self.feature.size or self.feature.max() < rows.shape[1], f"a feature is none of {rows.shape[1]}")
        at = np.repeat(self.roots[np.newaxis], len(rows), 0)
        for _ in range(len(self.mode) + 1):
            values = np.take_along_axis(rows, self.feature[at], 1)
            next_at = self.branches[at, self._is_true(at, values).astype(np.int64)]
            if np.array_equal(next_at, at):
                return at
            at = next_at
        raise InvalidArgumentError("the nodes of a tree go round in a circle")

    def _is_true(self, at: Array, values: Array) -> Array:
        modes, split = self.mode[at], self.split[at]
        found = np.zeros(at.shape, np.bool_)
        for number in np.unique(modes).tolist():
            if number != _MEMBER:
                found = np.where(modes == number, _COMPARISONS[number](values, split), found)
        for node, members in self.members.items():
            found = np.where(at == node, np.isin(values, members), found)
        return found | (self.missing[at] & np.isnan(values))

    def scores(self, rows: Array, targets: int, aggregate: str) -> tuple[Array, Array]:
        """The targets of each row, and which of them any leaf has spoken of."""
        order = np.argsort(self.leaf_nodes, kind="stable")
        nodes, to, weights = self.leaf_nodes[order], self.leaf_targets[order], self.leaf_weights[order]
        dtype = np.result_type(rows.dtype, self.leaf_weights.dtype)
        out, told = zeros((len(rows), targets), dtype), zeros((len(rows), targets), np.bool_)
        combine: Any = {"MIN": np.minimum, "MAX": np.maximum}.get(aggregate, np.add)
        if aggregate in ("MIN", "MAX"):
            out.fill(np.inf if aggregate == "MIN" else -np.inf)
        leaves, every = self.leaves(rows), np.arange(len(rows))
        first, last = np.searchsorted(nodes, leaves), np.searchsorted(nodes, leaves, side="right")
        for tree in range(len(self.roots)):
            place, end = first[:, tree], last[:, tree]
            for k in range(int(np.max(end - place, initial=0))):
                has = place + k < end
                seen, picked = every[has], (place + k)[has]
                out[seen, to[picked]] = combine(out[seen, to[picked]], weights[picked])
                told[seen, to[picked]] = True
        if aggregate == "AVERAGE":
            out /= len(self.roots)
        return np.where(told, out, 0).astype(dtype), told


def _numbers(node: OnnxNode, name: str, dtype: Any, unless: Sequence[float] = ()) -> Array:
    """An attribute that is a list, or a tensor under another name."""
    tensor = node.attr(f"{name}_as_tensor")
    if tensor is not None and np.size(tensor):
        return np.reshape(tensor, -1)
    return np.asarray(node.attr(name, unless), dtype)


def _by_node_ids(node: OnnxNode, prefix: str, targets: int) -> _Forest:
    """The forest of a node whose attributes name nodes by tree and number."""
    trees, ids = node.attr("nodes_treeids", ()), node.attr("nodes_nodeids", ())
    places = {key: i for i, key in enumerate(zip(trees, ids, strict=False))}
    count = len(places)
    need(count == len(trees) == len(ids), "nodes_treeids and nodes_nodeids must tell each node once")
    modes = [one.decode() if isinstance(one, bytes) else one for one in node.attr("nodes_modes", ())]
    features, splits = node.attr("nodes_featureids", ()), _numbers(node, "nodes_values", np.float32)
    sides = [node.attr("nodes_falsenodeids", ()), node.attr("nodes_truenodeids", ())]
    for what in (modes, features, splits, *sides):
        need(len(what) == count, f"an attribute has {len(what)} entries for {count} nodes")
    names = {f"BRANCH_{mode}": i for i, mode in enumerate(_MODES[:_MEMBER])}
    need(all(mode in names or mode == "LEAF" for mode in modes), f"nodes_modes are wrong: {sorted(set(modes))}")
    is_leaf = np.array([mode == "LEAF" for mode in modes], np.bool_)
    branches = np.repeat(np.arange(count)[:, np.newaxis], 2, 1)
    for side, numbers in enumerate(sides):
        for i in np.flatnonzero(~is_leaf).tolist():
            branches[i, side] = places.get((trees[i], numbers[i]), -1)
    roots = [i for i in range(count) if not i or trees[i] not in trees[:i]] if count < 64 else _first_of_each(trees)
    missing = np.asarray(node.attr("nodes_missing_value_tracks_true", ()) or np.zeros(count), np.bool_)
    leaf_trees, leaf_ids = node.attr(f"{prefix}_treeids", ()), node.attr(f"{prefix}_nodeids", ())
    to = np.asarray(node.attr(f"{prefix}_ids", ()), np.int64)
    weights = _numbers(node, f"{prefix}_weights", np.float32)
    need(len(leaf_trees) == len(leaf_ids) == len(to) == len(weights), f"{prefix} attributes must be equally long")
    forest = _Forest(
        np.asarray(roots, np.int64),
        np.array([names.get(mode, 0) for mode in modes], np.int64),
        np.where(is_leaf, 0, np.asarray(features, np.int64)),
        splits,
        branches,
        missing,
        {},
        np.array([places.get(key, -1) for key in zip(leaf_trees, leaf_ids, strict=True)], np.int64),
        to,
        weights,
    )
    forest.check(targets, is_leaf)
    return forest


def _first_of_each(values: Sequence[int]) -> list[int]:
    _, first = np.unique(np.asarray(values), return_index=True)
    return [int(one) for one in sorted(first)]


@onnx_kernel("TreeEnsemble", since=5, domain=ML_DOMAIN, kind=KernelKind.EXPENSIVE)
def make_tree_ensemble(node: OnnxNode) -> Kernel:
    """The kernel of TreeEnsemble."""
    targets = node.attr("n_targets", 1)
    number, transform = node.attr("aggregate_function", 1), node.attr("post_transform", 0)
    need(number in range(4) and transform in range(5), "aggregate_function or post_transform is unknown")
    aggregate, finish = _AGGREGATES[number], TRANSFORMS[_TRANSFORM_NAMES[transform]]
    forest = _by_places(node, targets)

    def kernel(x: Array) -> tuple[Array]:
        scores, _ = forest.scores(rows_of(x), targets, aggregate)
        return (finish(scores).astype(x.dtype if x.dtype.kind == "f" else np.float32, copy=False),)

    return kernel


def _by_places(node: OnnxNode, targets: int) -> _Forest:
    """The forest of a TreeEnsemble, whose branches are places of nodes or of leaves; leaves stand after all nodes."""
    modes = np.asarray(node.attr("nodes_modes", ()), np.int64)
    features, splits = (
        np.asarray(node.attr("nodes_featureids", ()), np.int64),
        np.asarray(node.attr("nodes_splits", ())),
    )
    count, leaves = len(modes), len(node.attr("leaf_targetids", ()))
    sides = []
    for side in ("false", "true"):
        to = np.asarray(node.attr(f"nodes_{side}nodeids", ()), np.int64)
        is_leaf = np.asarray(node.attr(f"nodes_{side}leafs", ()), np.bool_)
        need(len(to) == len(is_leaf) == count == len(features) == len(splits), f"nodes_{side} are not {count}")
        limits = np.where(is_leaf, leaves, count)
        need(bool(((to >= 0) & (to < limits)).all()), f"nodes_{side}nodeids are out of range")
        sides.append(np.where(is_leaf, to + count, to))
    need(not count or (modes.min() >= 0 and modes.max() <= _MEMBER), "nodes_modes are out of range")
    own = np.arange(count, count + leaves)
    missing = node.attr("nodes_missing_value_tracks_true", ()) or np.zeros(count)
    need(len(missing) == count, f"nodes_missing_value_tracks_true are not {count}")
    pad = np.zeros(leaves, np.int64)
    roots = np.asarray(node.attr("tree_roots", ()), np.int64)
    need(not roots.size or (roots.min() >= 0 and roots.max() < max(count, 1)), "tree_roots are out of range")
    weights = np.asarray(node.attr("leaf_weights", ()))
    need(len(weights) == leaves, f"there are {len(weights)} weights for {leaves} leaves")
    forest = _Forest(
        roots,
        np.concatenate([modes, pad]),
        np.concatenate([features, pad]),
        np.concatenate([splits, pad.astype(splits.dtype)]),
        np.stack([np.concatenate([side, own]) for side in sides], 1),
        np.concatenate([np.asarray(missing, np.bool_), pad.astype(np.bool_)]),
        _members(node, modes, roots, sides, count),
        own,
        np.asarray(node.attr("leaf_targetids", ()), np.int64),
        weights,
    )
    forest.check(targets, np.arange(count + leaves) >= count)
    return forest


def _members(node: OnnxNode, modes: Array, roots: Array, sides: list[Array], count: int) -> dict[int, Array]:
    """The values of each node that asks for one of several: NaN ends those of a node, in the order of a walk."""
    values = np.reshape(node.attr("membership_values", ()), -1)
    ends = np.flatnonzero(np.isnan(values)) if values.size else np.zeros(0, np.int64)
    need(len(ends) == int((modes == _MEMBER).sum()), "membership_values do not fit the nodes that ask for members")
    parts = iter(np.split(values, ends + 1))
    found: dict[int, Array] = {}
    walked = 0
    for root in roots.tolist():
        ahead = [root]
        while ahead:
            at = ahead.pop()
            walked += 1
            need(walked <= 2 * count + len(roots), "the nodes of a tree go round in a circle")
            if at < count:
                if modes[at] == _MEMBER and at not in found:
                    found[at] = next(parts)[:-1]
                ahead += [int(sides[0][at]), int(sides[1][at])]
    return found


@onnx_kernel("TreeEnsembleRegressor", domain=ML_DOMAIN, kind=KernelKind.EXPENSIVE)
def make_tree_ensemble_regressor(node: OnnxNode) -> Kernel:
    """The kernel of TreeEnsembleRegressor."""
    targets, aggregate = node.attr("n_targets", 1), node.text("aggregate_function", "SUM")
    need(aggregate in _AGGREGATES, f"aggregate_function {aggregate!r} is unknown")
    finish, forest = TRANSFORMS[post_transform(node)], _by_node_ids(node, "target", targets)
    base = _numbers(node, "base_values", np.float32)
    need(base.size in (0, targets), f"there are {base.size} base_values for {targets} targets")

    def kernel(x: Array) -> tuple[Array]:
        scores, _ = forest.scores(rows_of(x), targets, aggregate)
        return (finish((scores + base if base.size else scores).astype(np.float32)),)

    return kernel


@onnx_kernel("TreeEnsembleClassifier", domain=ML_DOMAIN, kind=KernelKind.EXPENSIVE)
def make_tree_ensemble_classifier(node: OnnxNode) -> Kernel:
    """The kernel of TreeEnsembleClassifier; of two classes, leaves may speak of one alone."""
    labels, transform = class_labels(node, "classlabels_int64s"), post_transform(node)
    classes = len(labels)
    forest, base = _by_node_ids(node, "class", max(classes, 1)), _numbers(node, "base_values", np.float32)
    need(classes > 0 and base.size in (0, 1, classes), f"there are {base.size} base_values for {classes} classes")
    told_of = np.unique(forest.leaf_targets)
    is_binary = classes == 2 and len(told_of) == 1
    is_probability = bool((forest.leaf_weights >= 0).all())

    def kernel(x: Array) -> tuple[Array, Array]:
        scores, _ = forest.scores(rows_of(x), classes, "SUM")
        if is_binary:
            score = scores[:, told_of]
            if base.size and not told_of[0]:
                score = score + base[-1]
            chosen = (score[:, 0] > (0.5 if is_probability else 0)).astype(np.int64)
            if told_of[0]:
                return labels[chosen], TRANSFORMS[transform](scores).astype(np.float32)
            return labels[chosen], both_classes(score, transform, is_probability).astype(np.float32)
        scores = scores + base if base.size else scores
        return labels[scores.argmax(1)], TRANSFORMS[transform](scores).astype(np.float32)

    return kernel
