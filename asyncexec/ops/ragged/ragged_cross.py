"""RaggedCross (``ragged_cross_op.cc``): of each row, all combinations of one value of each feature.

The features are ragged, sparse or dense matrices.  A combination is its values joined by ``_X_``, or a hash of them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_def import arg_slices
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import string
from asyncexec.ops.array.array_common import check_memory
from asyncexec.ops.ragged.row_partitions import check_splits, splits_of
from asyncexec.ops.string.farmhash import fingerprint64
from asyncexec.ops.string.string_elements import as_strings

_JOINT: Final = b"_X_"
_MASK: Final = 2**64 - 1
_MUL: Final = 0xC6A4A7935BD1E995
_MOST_INT64: Final = 2**63 - 1
_LIST_WORDS: Final = 8  # of memory for an empty list, with its place in another

# The values of each row of a feature.
_Rows = list[list[Any]]


def _shape(c: InferenceContext) -> Sequence[TensorShape]:
    order: bytes = c.attr("input_order")
    counts = {"R": len(c.attr("ragged_values_types")), "S": c.attr("Nsparse"), "D": len(c.attr("dense_types"))}
    for kind, count in counts.items():
        if order.count(kind.encode()) != count:
            raise InvalidArgumentError(f"input_order {order!r} does not have {kind} {count} times")
    if len(order) != sum(counts.values()):
        raise InvalidArgumentError(f"input_order {order!r} may only contain R, S and D")
    return [TensorShape([None]), TensorShape([None])]


register_op(
    "RaggedCross",
    "ragged_values: ragged_values_types, ragged_row_splits: ragged_splits_types, sparse_indices: Nsparse*int64,"
    " sparse_values: sparse_values_types, sparse_shape: Nsparse*int64, dense_inputs: dense_types ->"
    " output_values: out_values_type, output_row_splits: out_row_splits_type",
    "Nsparse: int >= 0; input_order: string; hashed_output: bool; num_buckets: int >= 0; hash_key: int;"
    " ragged_values_types: list({int64, string}) >= 0; ragged_splits_types: list({int32, int64}) >= 0;"
    " sparse_values_types: list({int64, string}) >= 0; dense_types: list({int64, string}) >= 0;"
    " out_values_type: {int64, string}; out_row_splits_type: {int32, int64}",
    shape=_shape,
)


@register_kernel("RaggedCross", kind=KernelKind.EXPENSIVE)
def ragged_cross(c: OpKernelConstruction) -> Kernel:
    """The combinations of each row, the last feature changing fastest."""
    slices = arg_slices(c.op_def.inputs, c.attrs)
    splits_dtype, is_hashed = c.np_dtype("out_row_splits_type"), c.attr("hashed_output")
    if is_hashed == (c.attr("out_values_type") is string):
        raise InvalidArgumentError("hashed_output goes with out_values_type int64, and only with it")
    combine: Callable[[Any], Any] = _hasher(c.attr("hash_key"), c.attr("num_buckets")) if is_hashed else _joined

    def kernel(*inputs: object) -> tuple[Any, Array]:
        given = {name: inputs[place] for name, place in slices.items()}
        features = _features(given, c.attr("input_order"))
        count = len(features[0]) if features else 0
        if any(len(rows) != count for rows in features):
            raise InvalidArgumentError(f"inputs must all have the same batch size, not {[len(f) for f in features]}")
        sizes = [math.prod(len(rows[index]) for rows in features) for index in range(count)]
        check_memory([sum(sizes)], np.dtype(np.int64))
        prepared = [[list(map(_fingerprint if is_hashed else _text, row)) for row in rows] for rows in features]
        crosses = (itertools.product(*(rows[index] for rows in prepared)) for index in range(count))
        values = [combine(each) for row in crosses for each in row]
        found = np.array(values, np.int64) if is_hashed else as_strings(values, (len(values),))
        return found, splits_of(np.array(sizes, np.int64), splits_dtype)

    return kernel


def _features(given: Mapping[str, Sequence[object]], order: bytes) -> list[_Rows]:
    """The rows of each feature, in the order that is asked for."""
    ragged = iter(list(zip(given["ragged_values"], given["ragged_row_splits"], strict=True)))
    sparse = iter(list(zip(given["sparse_indices"], given["sparse_values"], given["sparse_shape"], strict=True)))
    dense = iter(given["dense_inputs"])
    found: list[_Rows] = []
    for kind in order.decode():
        if kind == "R":
            found.append(_ragged_rows(*next(ragged)))
        elif kind == "S":
            found.append(_sparse_rows(*next(sparse)))
        else:
            found.append(_dense_rows(next(dense)))
    return found


def _ragged_rows(values: Any, splits: Any) -> _Rows:
    if np.ndim(values) != 1:
        raise InvalidArgumentError(f"ragged values must be a vector, got shape {list(np.shape(values))}")
    check_splits(splits, values.size)
    items = values.tolist()
    return [items[begin:end] for begin, end in itertools.pairwise(splits.tolist())]


def _sparse_rows(indices: Any, values: Any, shape: Any) -> _Rows:
    if indices.ndim != 2 or indices.shape[1] != 2 or np.shape(values) != (len(indices),) or shape.shape != (2,):
        raise InvalidArgumentError(
            f"a sparse matrix is needed, not indices {list(indices.shape)}, values {list(np.shape(values))} and shape "
            f"{shape.tolist()}"
        )
    check_memory([int(shape[0]), _LIST_WORDS], np.dtype(np.int64))
    rows: _Rows = [[] for _ in range(int(shape[0]))]
    for row, value in zip(indices[:, 0].tolist(), values.tolist(), strict=True):
        if not 0 <= row < len(rows):
            raise InvalidArgumentError(f"a sparse index is of row {row}, but there are {len(rows)}")
        rows[row].append(value)
    return rows


def _dense_rows(values: Any) -> _Rows:
    if np.ndim(values) != 2:
        raise InvalidArgumentError(f"a dense input must be a matrix, got shape {list(np.shape(values))}")
    rows: _Rows = values.tolist()
    return rows


def _text(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _fingerprint(value: bytes | int) -> int:
    return fingerprint64(value) if isinstance(value, bytes) else value & _MASK


def _joined(values: Sequence[bytes]) -> bytes:
    return _JOINT.join(values)


def _hasher(key: int, buckets: int) -> Callable[[Sequence[int]], int]:
    def hashed(fingerprints: Sequence[int]) -> int:
        found = key & _MASK
        for fingerprint in fingerprints:
            found = _concatenated(found, fingerprint)
        return found % (buckets or _MOST_INT64)

    return hashed


def _concatenated(one: int, other: int) -> int:
    """``FingerprintCat64``."""
    result = one ^ _MUL
    result ^= _mixed(other * _MUL & _MASK) * _MUL & _MASK
    result = result * _MUL & _MASK
    result = _mixed(result) * _MUL & _MASK
    return _mixed(result)


def _mixed(value: int) -> int:
    return value ^ value >> 47
