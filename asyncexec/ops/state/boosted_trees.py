"""Boosted trees, as far as serving them needs: ensembles, bucket boundaries, predictions.

Rules from ``tensorflow/core/kernels/boosted_trees/``.  A tree's nodes become arrays, and all examples of a batch go
down a tree together, a level at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, SupportsFloat

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError, NotFoundError
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction, require_kind
from asyncexec.framework.kernel_registry import register_function, register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.process_bound import ProcessBound
from asyncexec.framework.shape_inference import InferenceContext, no_outputs, scalars
from asyncexec.framework.tensor_shape import SCALAR, TensorShape
from asyncexec.ops.parsing.wire import DELIMITED, FIXED32, VARINT, fields
from asyncexec.ops.string.string_elements import scalar_string

_LEAF: Final = 1
_SPLIT_BY_THRESHOLD: Final = 2
_SPLIT_BY_VALUE: Final = 3
_MOST_STREAMS: Final = 2**20


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree as arrays with an element for each node, of which 0 is the root.

    Attributes:
        weight: what its leaves are multiplied with.
        kinds: leaf, split by a threshold, or split by a value.
        columns: of splits, feature and dimension within it.
        thresholds: of splits, the last bucket that goes left, or the one that does.
        children: of splits, left and right node.
        values: of leaves, the logits; one number where all logits are that one.
        is_finalized: whether it grows no more.
    """

    weight: float
    kinds: Any
    columns: Any
    thresholds: Any
    children: Any
    values: Any
    is_finalized: bool


@dataclass(frozen=True, slots=True)
class Ensemble:
    """Trees, whose logits are added up, and how far they have grown."""

    stamp: int
    serialized: bytes
    trees: tuple[Tree, ...]
    layers_attempted: int
    last_layer: tuple[int, int]


class EnsembleResource(ProcessBound):
    """What the handle of an ensemble stands for."""

    __slots__ = ("ensemble",)

    def __init__(self) -> None:
        self.ensemble: Ensemble | None = None

    def require(self) -> Ensemble:
        """The ensemble; NotFoundError before there is one."""
        if self.ensemble is None:
            raise NotFoundError("the tree ensemble is not initialized", hint="run its initializer first")
        return self.ensemble


class QuantileStreamResource(ProcessBound):
    """What the handle of bucket boundaries stands for: a vector for each feature."""

    __slots__ = ("boundaries",)

    def __init__(self) -> None:
        self.boundaries: tuple[Any, ...] | None = None

    def require(self) -> tuple[Any, ...]:
        """The boundaries; NotFoundError before there are any."""
        if self.boundaries is None:
            raise NotFoundError("the quantile streams are not initialized", hint="run their initializer first")
        return self.boundaries


def _ints(data: bytes) -> dict[int, int]:
    """The integers of a message, by field."""
    numbers = {number: content for number, kind, content in fields(data) if kind == VARINT}
    return {number: int(np.uint64(content).astype(np.int64)) for number, content in numbers.items()}


def _parts(data: bytes, wanted: int) -> list[bytes]:
    return [content for number, kind, content in fields(data) if number == wanted and kind == DELIMITED]


def _floats(data: bytes, wanted: int) -> list[float]:
    """The repeated floats of a field, packed or one by one."""
    found: list[float] = []
    for number, kind, content in fields(data):
        if number == wanted and kind in (DELIMITED, FIXED32):
            if len(content) % 4:
                raise ValueError(f"{len(content)} bytes are no floats")
            found += np.frombuffer(content, "<f4").tolist()
    return found


def _tree(data: bytes, weight: float, is_finalized: bool) -> Tree:
    nodes = _parts(data, 1)
    if not nodes:
        raise ValueError("a tree has no nodes")
    kinds = np.zeros(len(nodes), np.int64)
    columns, children = np.zeros((len(nodes), 2), np.int64), np.zeros((len(nodes), 2), np.int64)
    thresholds = np.zeros(len(nodes), np.int64)
    values: list[list[float]] = []
    for index, node in enumerate(nodes):
        told = [(number, content) for number, kind, content in fields(node) if kind == DELIMITED and number <= 3]
        if not told:
            raise ValueError(f"node {index} is neither a leaf nor a split")
        kinds[index], content = told[-1]
        values.append(_leaf(content) if kinds[index] == _LEAF else [0.0])
        if kinds[index] != _LEAF:
            split = _ints(content)
            columns[index] = split.get(1, 0), split.get(5, 0)
            thresholds[index] = split.get(2, 0)
            children[index] = split.get(3, 0), split.get(4, 0)
    splits = kinds != _LEAF
    if (columns < 0).any() or (children < 0).any() or (children[splits] >= len(nodes)).any():
        raise ValueError("a split names a feature or a node that is not there")
    widest = max(map(len, values))
    if any(len(each) not in (1, widest) for each in values):
        raise ValueError("leaves differ in the number of their logits")
    spread = np.array([each * widest if len(each) == 1 else each for each in values], np.float32)
    return Tree(weight, kinds, columns, thresholds, children, spread, is_finalized)


def _leaf(data: bytes) -> list[float]:
    vectors = _parts(data, 1)
    return (_floats(vectors[-1], 1) if vectors else _floats(data, 3)[-1:]) or [0.0]


def read_ensemble(serialized: bytes, stamp: int) -> Ensemble:
    """The ensemble in a TreeEnsemble message; InvalidArgumentError where there is none."""
    try:
        trees, weights = _parts(serialized, 1), _floats(serialized, 2)
        finalized = [bool(_ints(part).get(2, 0)) for part in _parts(serialized, 3)]
        growing = _ints((_parts(serialized, 4) or [b""])[-1])
        if not len(trees) == len(weights) == len(finalized):
            raise ValueError(f"{len(trees)} trees have {len(weights)} weights and metadata of {len(finalized)}")
        made = tuple(map(_tree, trees, weights, finalized))
    except (ValueError, OverflowError) as error:
        raise InvalidArgumentError(f"Unable to parse tree ensemble proto: {error}") from None
    return Ensemble(stamp, serialized, made, growing.get(2, 0), (growing.get(3, 0), growing.get(4, 0)))


def leaves_of(tree: Tree, features: Sequence[Any], batch: int) -> ArrayOrScalar:
    """The leaf that each example comes to."""
    widths = [feature.shape[1] for feature in features]
    splits = tree.kinds != _LEAF
    if (tree.columns[splits, 0] >= len(features)).any() or (
        tree.columns[splits, 1] >= np.array(widths)[tree.columns[splits, 0]]
    ).any():
        raise InvalidArgumentError(f"a tree splits by a feature that is not among {len(features)} of widths {widths}")
    offsets = np.concatenate(([0], np.cumsum(widths)))[tree.columns[:, 0] * splits] + tree.columns[:, 1]
    table = np.concatenate(features, axis=1)
    nodes, rows = np.zeros(batch, np.int64), np.arange(batch)
    for _ in range(len(tree.kinds)):
        open_rows = rows[splits[nodes]]
        if not open_rows.size:
            return nodes
        here = nodes[open_rows]
        buckets = table[open_rows, offsets[here]]
        is_left = np.where(
            tree.kinds[here] == _SPLIT_BY_THRESHOLD, buckets <= tree.thresholds[here], buckets == tree.thresholds[here]
        )
        nodes[open_rows] = np.where(is_left, tree.children[here, 0], tree.children[here, 1])
    if splits[nodes].any():
        raise InvalidArgumentError("the nodes of a tree go round in a circle")
    return nodes


_NAMES: Final = "container: string = ''; shared_name: string = ''"
_ENSEMBLE: Final = "tree_ensemble_handle: resource"
_STREAMS: Final = "quantile_stream_resource_handle: resource"
_SERIALIZED: Final = "stamp_token: int64, tree_ensemble_serialized: string"
for _op in ("BoostedTreesEnsembleResourceHandleOp", "BoostedTreesQuantileStreamResourceHandleOp"):
    register_op(_op, "-> resource: resource", _NAMES, shape=scalars, is_stateful=True)
register_op(
    "IsBoostedTreesEnsembleInitialized", f"{_ENSEMBLE} -> is_initialized: bool", shape=scalars, is_stateful=True
)
register_op(
    "IsBoostedTreesQuantileStreamResourceInitialized",
    f"{_STREAMS} -> is_initialized: bool",
    shape=scalars,
    is_stateful=True,
)
for _op in ("BoostedTreesCreateEnsemble", "BoostedTreesDeserializeEnsemble"):
    register_op(_op, f"{_ENSEMBLE}, {_SERIALIZED} ->", shape=no_outputs, is_stateful=True)
register_op("BoostedTreesSerializeEnsemble", f"{_ENSEMBLE} -> {_SERIALIZED}", shape=scalars, is_stateful=True)
register_op(
    "BoostedTreesGetEnsembleStates",
    f"{_ENSEMBLE} -> stamp_token: int64, num_trees: int32, num_finalized_trees: int32, num_attempted_layers: int32,"
    " last_layer_nodes_range: int32",
    shape=lambda _: [SCALAR, SCALAR, SCALAR, SCALAR, TensorShape([2])],
    is_stateful=True,
)


def _predict_shape(c: InferenceContext) -> Sequence[TensorShape]:
    features = c.input(1).dims
    batch = features[0] if features else None
    return [TensorShape([batch, c.attr("logits_dimension")])]


register_op(
    "BoostedTreesPredict",
    f"{_ENSEMBLE}, bucketized_features: num_bucketized_features*int32 -> logits: float32",
    "num_bucketized_features: int >= 1; logits_dimension: int",
    shape=_predict_shape,
    is_stateful=True,
)
register_op(
    "BoostedTreesCreateQuantileStreamResource",
    f"{_STREAMS}, epsilon: float32, num_streams: int64 ->",
    "max_elements: int = 1099511627776",
    shape=no_outputs,
    is_stateful=True,
)
register_op(
    "BoostedTreesQuantileStreamResourceDeserialize",
    f"{_STREAMS}, bucket_boundaries: num_streams*float32 ->",
    "num_streams: int >= 1",
    shape=no_outputs,
    is_stateful=True,
)
register_op(
    "BoostedTreesQuantileStreamResourceGetBucketBoundaries",
    f"{_STREAMS} -> bucket_boundaries: num_features*float32",
    "num_features: int >= 0",
    shape=lambda c: [TensorShape([None])] * c.num_outputs,
    is_stateful=True,
)
register_op(
    "BoostedTreesBucketize",
    "float_values: num_features*float32, bucket_boundaries: num_features*float32 -> buckets: num_features*int32",
    "num_features: int >= 0",
    shape=lambda c: [TensorShape([shape.dims[0] if shape.dims else None]) for shape in c.arg("float_values")],
)


def _handle(kind: type[EnsembleResource | QuantileStreamResource]) -> Any:
    def make(c: OpKernelConstruction) -> Kernel:
        shared = c.attr("shared_name").decode("utf-8", "replace")
        container = c.attr("container").decode("utf-8", "replace")
        found = c.resource_mgr.lookup_or_create(
            kind, f"{container}/{kind.__name__}", shared or c.name, kind, is_shared=bool(shared)
        )
        return lambda: found

    return make


register_kernel("BoostedTreesEnsembleResourceHandleOp")(_handle(EnsembleResource))
register_kernel("BoostedTreesQuantileStreamResourceHandleOp")(_handle(QuantileStreamResource))
register_function(
    "IsBoostedTreesEnsembleInitialized",
    function=lambda handle: np.bool_(require_kind(handle, EnsembleResource).ensemble is not None),
)
register_function(
    "IsBoostedTreesQuantileStreamResourceInitialized",
    function=lambda handle: np.bool_(require_kind(handle, QuantileStreamResource).boundaries is not None),
)


def create_ensemble(handle: object, stamp: ArrayOrScalar, serialized: Array | bytes) -> tuple[()]:
    """Have the ensemble of a message, if there is none yet."""
    resource = require_kind(handle, EnsembleResource)
    found = read_ensemble(scalar_string(serialized, "tree_ensemble_serialized"), int(stamp))
    resource.ensemble = resource.ensemble or found
    return ()


def deserialize_ensemble(handle: object, stamp: ArrayOrScalar, serialized: Array | bytes) -> tuple[()]:
    """Have the ensemble of a message in the place of the one that is there."""
    resource = require_kind(handle, EnsembleResource)
    resource.require()
    resource.ensemble = read_ensemble(scalar_string(serialized, "tree_ensemble_serialized"), int(stamp))
    return ()


def serialize_ensemble(handle: object) -> tuple[object, bytes]:
    """Stamp and message."""
    ensemble = require_kind(handle, EnsembleResource).require()
    return np.int64(ensemble.stamp), ensemble.serialized


def ensemble_states(handle: object) -> tuple[ArrayOrScalar, ...]:
    """How far the ensemble has grown."""
    ensemble = require_kind(handle, EnsembleResource).require()
    count = len(ensemble.trees)
    finalized = count if not count or ensemble.trees[-1].is_finalized else count - 1
    begin, end = ensemble.last_layer
    return (
        *(np.int64(ensemble.stamp), np.int32(count), np.int32(finalized), np.int32(ensemble.layers_attempted)),
        np.array([begin, max(1, end)], np.int32),
    )


register_function("BoostedTreesCreateEnsemble", function=create_ensemble)
register_function("BoostedTreesDeserializeEnsemble", function=deserialize_ensemble)
register_function("BoostedTreesSerializeEnsemble", function=serialize_ensemble)
register_function("BoostedTreesGetEnsembleStates", function=ensemble_states)


@register_kernel("BoostedTreesPredict", kind=KernelKind.EXPENSIVE)
def boosted_trees_predict(c: OpKernelConstruction) -> Kernel:
    """The sum of the logits that the trees have for each example."""
    dimension = c.attr("logits_dimension")

    def kernel(handle: object, *given: Any) -> ArrayOrScalar:
        ensemble = require_kind(handle, EnsembleResource).require()
        features = [feature.reshape(len(feature), -1) if np.ndim(feature) in (1, 2) else None for feature in given]
        if any(feature is None or len(feature) != len(given[0]) for feature in features):
            raise InvalidArgumentError(
                "bucketized_features must be vectors or matrices of one length, not of shapes "
                f"{[list(np.shape(feature)) for feature in given]}"
            )
        batch = len(given[0])
        logits = np.zeros((batch, dimension), np.float32)
        for tree in ensemble.trees:
            if tree.values.shape[1] not in (1, dimension):
                raise InvalidArgumentError(f"a tree has {tree.values.shape[1]} logits, not {dimension}")
            logits += np.float32(tree.weight) * tree.values[leaves_of(tree, features, batch)]
        return logits

    return kernel


def create_quantile_streams(handle: Any, epsilon: SupportsFloat, num_streams: Any) -> tuple[()]:
    """Have no boundaries for that many features, if there are none yet."""
    resource = require_kind(handle, QuantileStreamResource)
    if np.ndim(num_streams) or not 0 <= num_streams <= _MOST_STREAMS:
        raise InvalidArgumentError(f"Num_streams input cannot be {num_streams}: it is 0 to {_MOST_STREAMS}")
    if resource.boundaries is None:
        resource.boundaries = (np.zeros(0, np.float32),) * int(num_streams)
    return ()


def deserialize_quantile_streams(handle: QuantileStreamResource, *boundaries: Any) -> tuple[()]:
    """Have these boundaries."""
    resource = require_kind(handle, QuantileStreamResource)
    count = len(resource.require())
    if len(boundaries) != count or any(np.ndim(each) != 1 for each in boundaries):
        raise InvalidArgumentError(
            f"bucket_boundaries must be {count} vectors, not of shapes {[list(np.shape(each)) for each in boundaries]}"
        )
    resource.boundaries = boundaries
    return ()


register_function("BoostedTreesCreateQuantileStreamResource", function=create_quantile_streams)
register_function("BoostedTreesQuantileStreamResourceDeserialize", function=deserialize_quantile_streams)


@register_kernel("BoostedTreesQuantileStreamResourceGetBucketBoundaries")
def bucket_boundaries(c: OpKernelConstruction) -> Kernel:
    """The boundaries of all features."""
    count = c.attr("num_features")

    def kernel(handle: object) -> tuple[Any, ...]:
        found = require_kind(handle, QuantileStreamResource).require()
        if len(found) != count:
            raise InvalidArgumentError(f"there are boundaries of {len(found)} features, not of {count}")
        return found

    return kernel


@register_kernel("BoostedTreesBucketize")
def bucketize(c: OpKernelConstruction) -> Kernel:
    """The bucket of each value: of the first boundary that it does not exceed, or of the last."""
    count = c.attr("num_features")

    def kernel(*inputs: Any) -> tuple[object, ...]:
        found = []
        for values, boundaries in zip(inputs[:count], inputs[count:], strict=True):
            if np.ndim(boundaries) != 1 or np.ndim(values) not in (1, 2) or np.size(values) != len(values):
                raise InvalidArgumentError(
                    "Buckets should be flat vectors, and values a column, not of shapes "
                    f"{list(np.shape(boundaries))} and {list(np.shape(values))}"
                )
            places = np.searchsorted(boundaries, values.ravel(), side="left")
            found.append(np.minimum(places, max(0, len(boundaries) - 1)).astype(np.int32))
        return tuple(found)

    return kernel
