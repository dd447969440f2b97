"""SparseCross and its kin (``sparse_cross_op.cc``): of each row, all combinations of one value of each feature.

The features are matrices, sparse ones before dense ones.  A combination is its values joined by a separator, or a hash
of them.  Where values of the combinations stand is worked out for all rows at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_def import AttrDict, OpDef, arg_slices
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.ops.array.array_common import check_memory
from asyncexec.ops.string.farmhash import siphash24
from asyncexec.ops.string.string_elements import as_strings, scalar_string
from asyncexec.ops.string.string_hash import best_fingerprint64
from asyncexec.process.free_memory import check_room

_JOINT: Final = b"_X_"
_MUL: Final = np.uint64(0xC6A4A7935BD1E995)
_SHIFT: Final = np.uint64(47)
_MASK: Final = 2**64 - 1
_MOST_INT64: Final = 2**63 - 1
_OP_LISTS: Final = (
    "N: int >= 0; {}sparse_types: list({{int64, string}}) >= 0; dense_types: list({{int64, string}}) >= 0"
)
_LISTS: Final = "indices: N*int64, values: sparse_types, shapes: N*int64, dense_inputs: dense_types"


def _shape(c: InferenceContext) -> Sequence[TensorShape]:
    return [TensorShape([None, 2]), TensorShape([None]), TensorShape([2])]


register_op(
    "SparseCross",
    f"{_LISTS} -> output_indices: int64, output_values: out_type, output_shape: int64",
    _OP_LISTS.format("hashed_output: bool; num_buckets: int >= 0; hash_key: int; ")
    + "; out_type: {int64, string}; internal_type: {int64, string}",
    shape=_shape,
)
register_op(
    "SparseCrossV2",
    f"{_LISTS}, sep: string -> output_indices: int64, output_values: string, output_shape: int64",
    _OP_LISTS.format(""),
    shape=_shape,
)
register_op(
    "SparseCrossHashed",
    f"{_LISTS}, num_buckets: int64, strong_hash: bool, salt: int64 ->"
    " output_indices: int64, output_values: int64, output_shape: int64",
    _OP_LISTS.format(""),
    shape=_shape,
)


@dataclass(frozen=True, slots=True)
class Feature:
    """A matrix of one feature: its values row by row, where each row begins, and how many values it has."""

    values: Any
    starts: Any
    counts: Any
    is_dense: bool


def _features(given: Mapping[str, Sequence[Any]]) -> list[Feature]:
    shapes, dense = given["shapes"], given["dense_inputs"]
    for place, parts in enumerate(zip(given["indices"], given["values"], shapes, strict=True)):
        _check_sparse(place, *parts)
    for place, values in enumerate(dense):
        if np.ndim(values) != 2:
            raise InvalidArgumentError(
                f"Dense inputs should be a matrix but received shape {list(np.shape(values))} at position {place}"
            )
    sizes = [int(shape[0]) for shape in shapes] + [len(values) for values in dense]
    if any(size != sizes[0] for size in sizes):
        raise InvalidArgumentError(f"Expected batch size {sizes[0]} of all inputs, got {sizes}")
    batch = sizes[0] if sizes else 0
    check_memory([batch], np.dtype(np.int64))
    sparse = [_sparse_feature(*parts, batch) for parts in zip(given["indices"], given["values"], strict=True)]
    return sparse + [
        Feature(values.ravel(), np.arange(batch) * values.shape[1], np.full(batch, values.shape[1]), True)
        for values in dense
    ]


def _check_sparse(place: int, indices: Array, values: Array, shape: Array) -> None:
    if indices.ndim != 2 or indices.shape[1] != 2 or np.shape(values) != (len(indices),) or shape.shape != (2,):
        raise InvalidArgumentError(
            f"input {place} must be a sparse matrix, not of indices {list(indices.shape)}, values "
            f"{list(np.shape(values))} and shape {shape.tolist()}"
        )
    if shape[0] < 0:
        raise InvalidArgumentError(f"input {place} has {shape[0]} rows")


def _sparse_feature(indices: Array, values: object, batch: int) -> Feature:
    """The values of each row, up to the first that is not in the order of rows."""
    rows = indices[:, 0]
    wrong = np.flatnonzero(np.diff(rows, prepend=0) < 0)
    rows = rows[: wrong[0]] if wrong.size else rows
    ends = np.searchsorted(rows, np.arange(batch + 1))
    return Feature(values, ends[:-1], np.diff(ends), False)


def _places(features: Sequence[Feature]) -> tuple[list[Any], Any, Any]:
    """Where each combination has its values, feature by feature; the indices of combinations; their shape."""
    if not features:
        return [], np.zeros((0, 2), np.int64), np.zeros(2, np.int64)
    batch = len(features[0].counts)
    sizes = np.ones(batch, np.int64)
    with np.errstate(over="ignore"):
        wide = np.prod([feature.counts.astype(np.float64) for feature in features], axis=0)
    check_room(int(min(wide.sum() * 16, _MOST_INT64)))
    for feature in features:
        sizes *= feature.counts
    row = np.repeat(np.arange(batch), sizes)
    turn = np.arange(len(row)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    left, places = turn.copy(), []
    for feature in reversed(features):
        counts = feature.counts[row]
        places.append(feature.starts[row] + left % counts)
        left //= counts
    shape = np.array([batch, np.max(sizes, initial=0)], np.int64)
    return places[::-1], np.column_stack((row, turn)).astype(np.int64), shape


def crossed_bytes(op_def: OpDef, attrs: AttrDict, inputs: Sequence[object]) -> int:
    """How many bytes all combinations take at most."""
    features = _features({name: inputs[place] for name, place in arg_slices(op_def.inputs, attrs).items()})
    counts = [feature.counts.astype(np.float64) for feature in features]
    each = 24  # two indices, and a number or a pointer
    if op_def.output_dtypes(attrs)[1] is types.string:
        each += sum(max(map(len, _texts(feature)), default=0) for feature in features)
    return int(np.prod(counts, axis=0).sum() * each) if counts else 0


def _texts(feature: Feature) -> list[bytes]:
    return [value if isinstance(value, bytes) else b"%d" % value for value in feature.values.tolist()]


def _joined(features: Sequence[Feature], places: Sequence[Array], separator: bytes) -> Array:
    columns = [
        [texts[place] for place in mine.tolist()] for texts, mine in zip(map(_texts, features), places, strict=True)
    ]
    items = [separator.join(parts) for parts in zip(*columns, strict=True)]
    return as_strings(items, (len(items),))


def _each(values: Array, function: Callable[[bytes], int]) -> Array:
    """*function* of each value; of an integer, the bytes that TensorFlow takes: its lower half."""
    items = values.tolist() if values.dtype == object else [item.tobytes()[:4] for item in values.astype("<i8")]
    return np.array([function(item) for item in items], np.uint64)


def fingerprint_cat64(one: Array, other: Array) -> Array:
    """``FingerprintCat64`` of arrays."""
    with np.errstate(over="ignore"):
        mixed = one ^ _MUL
        hashed = other * _MUL
        mixed = (mixed ^ (hashed ^ hashed >> _SHIFT) * _MUL) * _MUL
        mixed = (mixed ^ mixed >> _SHIFT) * _MUL
        return mixed ^ mixed >> _SHIFT


def _bucket(hashes: Array, buckets: int) -> Array:
    return (hashes % np.uint64(buckets if buckets > 0 else _MOST_INT64)).astype(np.int64)


def _fingerprints(feature: Feature) -> Array:
    """Of strings their fingerprints, of integers themselves."""
    if feature.values.dtype == object:
        return _each(feature.values, best_fingerprint64())
    return feature.values.astype(np.uint64)


@register_kernel("SparseCross", kind=KernelKind.EXPENSIVE, dtypes={"out_type": {types.int64}})
def sparse_cross_hashed(c: OpKernelConstruction) -> Kernel:
    """Hashes that begin with a key."""
    slices = arg_slices(c.op_def.inputs, c.attrs)
    buckets, key = c.attr("num_buckets"), np.uint64(c.attr("hash_key") & _MASK)
    _check_internal_type(c)

    def kernel(*inputs: object) -> tuple[Array, Array, Array]:
        features = _features({name: inputs[place] for name, place in slices.items()})
        places, indices, shape = _places(features)
        hashes = np.full(len(indices), key, np.uint64)
        for feature, mine in zip(features, places, strict=True):
            hashes = fingerprint_cat64(hashes, _fingerprints(feature)[mine])
        return indices, _bucket(hashes, buckets), shape

    return kernel


def _check_internal_type(c: OpKernelConstruction) -> None:
    if c.attr("internal_type") is types.string and types.int64 in (*c.attr("sparse_types"), *c.attr("dense_types")):
        raise InvalidArgumentError("Inputs should be of internal type string but received int64")


@register_kernel("SparseCrossV2", kind=KernelKind.EXPENSIVE)
@register_kernel("SparseCross", kind=KernelKind.EXPENSIVE, dtypes={"out_type": {types.string}})
def sparse_cross_text(c: OpKernelConstruction) -> Kernel:
    """The values joined."""
    slices = arg_slices(c.op_def.inputs, c.attrs)
    is_new = c.op == "SparseCrossV2"
    if not is_new:
        _check_internal_type(c)

    def kernel(*inputs: object) -> tuple[Array, Array, Array]:
        named = {name: inputs[place] for name, place in slices.items()}
        features = _features(named)
        separator = scalar_string(named["sep"][0], "sep") if is_new else _JOINT
        places, indices, shape = _places(features)
        return indices, _joined(features, places, separator), shape

    return kernel


@register_kernel("SparseCrossHashed", kind=KernelKind.EXPENSIVE)
def sparse_cross_salted(c: OpKernelConstruction) -> Kernel:
    """Hashes without a key, or SipHash under a salt of each value."""
    slices = arg_slices(c.op_def.inputs, c.attrs)

    def kernel(*inputs: Any) -> tuple[Array, Array, Array]:
        named = {name: inputs[place] for name, place in slices.items()}
        buckets, strong, salt = (named[name][0] for name in ("num_buckets", "strong_hash", "salt"))
        if np.size(buckets) != 1 or np.size(strong) != 1 or np.shape(salt) != (2,):
            raise InvalidArgumentError(
                "num_buckets and strong_hash must be one value and salt a vector of two, not of shapes "
                f"{np.shape(buckets)}, {np.shape(strong)} and {np.shape(salt)}"
            )
        features = _features(named)
        places, indices, shape = _places(features)
        hashes = np.zeros(len(indices), np.uint64)
        for number, (feature, mine) in enumerate(zip(features, places, strict=True)):
            own = _salted(feature, bool(strong), salt)[mine]
            hashes = fingerprint_cat64(hashes, own) if number else own
        return indices, _bucket(hashes, int(np.ravel(buckets)[0])), shape

    return kernel


def _salted(feature: Feature, strong: bool, salt: Array) -> Array:
    if strong:
        first, second = (int(part) & _MASK for part in salt)
        return _each(feature.values, siphash24(first, second))
    if feature.is_dense:
        return _fingerprints(feature)
    return _each(feature.values, best_fingerprint64())
