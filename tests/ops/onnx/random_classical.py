"""Random nodes of classical models (``ai.onnx.ml``), as ONNX Runtime takes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from tests.ops.onnx.random_layers import FLOAT, INT64, Random, RandomNode, chance, floats, ints, pick

ML: Final = "ai.onnx.ml"
TRANSFORMS: Final = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO")
KERNELS: Final = ("LINEAR", "POLY", "RBF", "SIGMOID")


def linear(rng: Random) -> RandomNode:
    count, size = int(rng.integers(1, 4)), int(rng.integers(2, 5))
    attrs: dict[str, Any] = {"coefficients": floats(rng, count * size).tolist()}
    attrs["intercepts"] = floats(rng, count).tolist()
    x = floats(rng, 5, size)
    if chance(rng, 0.4):
        return RandomNode("LinearRegressor", [x], [FLOAT], attrs | {"targets": count}, 1, ML)
    labels = list(range(3, 3 + max(count, 2)))
    attrs |= {"classlabels_ints": labels, "post_transform": pick(rng, *TRANSFORMS)}
    return RandomNode("LinearClassifier", [x], [INT64, FLOAT], attrs, 1, ML)


def support_vectors(rng: Random) -> RandomNode:
    size, x = 3, floats(rng, 5, 3)
    attrs: dict[str, Any] = {"kernel_params": [0.5, 0.3, 2.0], "kernel_type": pick(rng, *KERNELS)}
    if chance(rng, 0.4):
        vectors = {"n_supports": 4, "support_vectors": floats(rng, 4 * size).tolist()}
        attrs |= vectors if chance(rng, 0.7) else {"n_supports": 0, "kernel_type": "LINEAR"}
        coefficients = floats(rng, attrs["n_supports"] or size).tolist()
        attrs |= {"coefficients": coefficients, "rho": [0.3], "one_class": int(chance(rng, 0.3))}
        return RandomNode("SVMRegressor", [x], [FLOAT], attrs, 1, ML, atol=1e-3)
    classes = int(rng.integers(2, 5))
    pairs, counts = classes * (classes - 1) // 2, ints(rng, 1, 4, classes)
    attrs |= {"classlabels_ints": list(range(5, 5 + classes)), "post_transform": pick(rng, *TRANSFORMS)}
    if chance(rng, 0.3):
        attrs |= {"kernel_type": "LINEAR", "coefficients": floats(rng, classes * size).tolist(), "rho": [0.2]}
        return RandomNode("SVMClassifier", [x], [INT64, FLOAT], attrs, 1, ML, atol=1e-3)
    attrs |= {"vectors_per_class": counts, "support_vectors": floats(rng, sum(counts) * size).tolist()}
    attrs |= {"coefficients": floats(rng, (classes - 1) * sum(counts)).tolist(), "rho": floats(rng, pairs).tolist()}
    if chance(rng, 0.5):
        attrs |= {"prob_a": floats(rng, pairs).tolist(), "prob_b": floats(rng, pairs).tolist()}
    return RandomNode("SVMClassifier", [x], [INT64, FLOAT], attrs, 1, ML, atol=1e-3)


def trees(rng: Random) -> RandomNode:
    """Full trees of seven nodes; classifiers of two classes speak of the first alone, as exporters write them."""
    count, mode = int(rng.integers(1, 4)), pick(rng, "BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT")
    nodes = [(tree, number) for tree in range(count) for number in range(7)]
    leaves = [one for one in nodes if one[1] >= 3]
    attrs: dict[str, Any] = {
        "nodes_treeids": [tree for tree, _ in nodes],
        "nodes_nodeids": [number for _, number in nodes],
        "nodes_modes": ["LEAF" if number >= 3 else mode for _, number in nodes],
        "nodes_featureids": [int(rng.integers(0, 3)) if number < 3 else 0 for _, number in nodes],
        "nodes_values": floats(rng, len(nodes)).tolist(),
        "nodes_truenodeids": [2 * number + 1 if number < 3 else 0 for _, number in nodes],
        "nodes_falsenodeids": [2 * number + 2 if number < 3 else 0 for _, number in nodes],
        "nodes_missing_value_tracks_true": ints(rng, 0, 2, len(nodes)),
    }
    x = floats(rng, 6, 3)
    if chance(rng, 0.3):
        x[rng.random(x.shape) < 0.2] = np.nan
    is_classifier = chance(rng, 0.5)
    classes = int(rng.integers(2, 4)) if is_classifier else int(rng.integers(1, 4))
    told_of = [0] if is_classifier and classes == 2 else range(classes)
    spoken = [(*leaf, target) for leaf in leaves for target in told_of]
    weights = floats(rng, len(spoken))
    weights = np.abs(weights) / 3 if chance(rng, 0.5) else weights
    prefix = "class" if is_classifier else "target"
    for i, what in enumerate(("treeids", "nodeids", "ids")):
        attrs[f"{prefix}_{what}"] = [one[i] for one in spoken]
    attrs[f"{prefix}_weights"] = weights.tolist()
    if chance(rng, 0.3):
        attrs["base_values"] = floats(rng, len(told_of)).tolist()
    if is_classifier:
        attrs |= {"classlabels_int64s": list(range(4, 4 + classes)), "post_transform": pick(rng, *TRANSFORMS)}
        return RandomNode("TreeEnsembleClassifier", [x], [INT64, FLOAT], attrs, 3, ML)
    attrs |= {"n_targets": classes, "aggregate_function": pick(rng, "SUM", "AVERAGE", "MIN", "MAX")}
    return RandomNode("TreeEnsembleRegressor", [x], [FLOAT], attrs, 3, ML)


def features(rng: Random) -> RandomNode:
    x = floats(rng, 4, 3)
    match int(rng.integers(6)):
        case 0:
            return RandomNode("Normalizer", [x], [FLOAT], {"norm": pick(rng, "MAX", "L1", "L2")}, 2, ML)
        case 1:
            attrs = {"scale": floats(rng, 3).tolist(), "offset": floats(rng, 3).tolist()}
            return RandomNode("Scaler", [x], [FLOAT], attrs, 2, ML)
        case 2:
            return RandomNode("Binarizer", [x], [FLOAT], {"threshold": 0.2}, 2, ML)
        case 3:
            attrs = {"cats_int64s": [0, 1, 2, 3]}
            return RandomNode("OneHotEncoder", [rng.integers(0, 5, (4, 2))], [FLOAT], attrs, 2, ML)
        case 4:
            x = np.where(rng.random(x.shape) < 0.3, 0, x).astype(np.float32)
            attrs = {"imputed_value_floats": [1.0, 2.0, 3.0], "replaced_value_float": 0.0}
            return RandomNode("Imputer", [x], [FLOAT], attrs, 2, ML)
    return RandomNode("ArrayFeatureExtractor", [x, np.array([2, 0])], [FLOAT], {}, 2, ML)


CLASSICAL: Final[dict[str, Callable[[Random], RandomNode]]] = {
    one.__name__: one for one in (linear, support_vectors, trees, features)
}
