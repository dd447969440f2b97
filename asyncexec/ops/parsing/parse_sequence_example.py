"""Serialized SequenceExamples: features of a context, and lists of features (``FastParseSequenceExample``)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_def import arg_slices
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, Dim, TensorShape
from asyncexec.framework.types import DType
from asyncexec.ops.array.array_common import zeros
from asyncexec.ops.parsing.columns import (
    DenseColumn,
    joined,
    lengths_of,
    positions,
    row_splits,
    sparse_column,
    sparse_vector,
)
from asyncexec.ops.parsing.example import Features, decoded, read_feature, read_feature_list, read_sequence_example
from asyncexec.ops.parsing.parse_example import check_count, dense_columns, record_names, values_of
from asyncexec.ops.string.string_elements import flat_strings

_TYPES: Final = "list({float32, int64, string}) >= 0"
_EMPTY: Final = f"{_TYPES} = []"
_CONTEXT_OUT: Final = (
    "context_sparse_indices: Ncontext_sparse*int64, context_sparse_values: context_sparse_types,"
    " context_sparse_shapes: Ncontext_sparse*int64, context_dense_values: Tcontext_dense"
)
_LISTS_OUT: Final = (
    "feature_list_sparse_indices: Nfeature_list_sparse*int64, feature_list_sparse_values: feature_list_sparse_types,"
    " feature_list_sparse_shapes: Nfeature_list_sparse*int64, feature_list_dense_values: feature_list_dense_types"
)
_LENGTHS_OUT: Final = "feature_list_dense_lengths: Nfeature_list_dense*int64"
_COUNTS: Final = (
    "Ncontext_sparse: int >= 0 = 0; Ncontext_dense: int >= 0 = 0; Nfeature_list_sparse: int >= 0 = 0;"
    " Nfeature_list_dense: int >= 0 = 0"
)
_KINDS: Final = (
    f"context_sparse_types: {_EMPTY}; Tcontext_dense: {_EMPTY}; feature_list_dense_types: {_EMPTY};"
    " context_dense_shapes: list(shape) >= 0 = []; feature_list_sparse_types: " + _EMPTY + ";"
    " feature_list_dense_shapes: list(shape) >= 0 = []"
)


def _shapes(c: InferenceContext, batch: Sequence[Dim], *, has_lengths: bool, ragged: bool = False) -> list[TensorShape]:
    """What the outputs are of, for records of shape *batch*: nothing, or the number of them."""
    rank = len(batch)
    vector, splits = TensorShape([None]), TensorShape([None] * rank)

    def sparse(count: int, size: int) -> list[TensorShape]:
        return [*[TensorShape([None, size])] * count, *[vector] * count, *[TensorShape([size])] * count]

    def dense(shapes: Sequence[TensorShape], *sizes: Dim) -> list[TensorShape]:
        return [UNKNOWN_SHAPE if s.dims is None else TensorShape([*batch, *sizes, *s.dims]) for s in shapes]

    lists = c.attr("feature_list_dense_shapes")
    num_context = len(c.attr("context_ragged_value_types")) if ragged else 0
    num_lists = len(c.attr("feature_list_ragged_value_types")) if ragged else 0
    return [
        *sparse(len(c.attr("context_sparse_types")), 1 + rank),
        *dense(c.attr("context_dense_shapes")),
        *([vector] * num_context + [splits] * num_context),
        *sparse(len(c.attr("feature_list_sparse_types")), 2 + rank),
        *dense(lists, None),
        *[TensorShape(batch)] * (len(lists) if has_lengths else 0),
        *([vector] * num_lists + [splits] * num_lists + [vector] * num_lists),
    ]


def _v1_shape(c: InferenceContext) -> Sequence[TensorShape]:
    batch = c.vector(0)
    c.input(1).with_rank(1)
    return _shapes(c, [None if batch.dims is None else batch[0]], has_lengths=True)


register_op(
    "ParseSequenceExample",
    "serialized: string, debug_name: string, context_dense_defaults: Tcontext_dense ->"
    f" {_CONTEXT_OUT}, {_LISTS_OUT}, {_LENGTHS_OUT}",
    "feature_list_dense_missing_assumed_empty: list(string) >= 0; context_sparse_keys: list(string) >= 0;"
    " context_dense_keys: list(string) >= 0; feature_list_sparse_keys: list(string) >= 0;"
    f" feature_list_dense_keys: list(string) >= 0; {_COUNTS}; {_KINDS}",
    shape=_v1_shape,
)


def _v2_shape(c: InferenceContext) -> Sequence[TensorShape]:
    serialized = c.input(0).with_rank_at_most(1)
    if serialized.dims is None:
        return [UNKNOWN_SHAPE] * c.num_outputs
    return _shapes(c, serialized.dims, has_lengths=True, ragged=True)


register_op(
    "ParseSequenceExampleV2",
    "serialized: string, debug_name: string, context_sparse_keys: string, context_dense_keys: string,"
    " context_ragged_keys: string, feature_list_sparse_keys: string, feature_list_dense_keys: string,"
    " feature_list_ragged_keys: string, feature_list_dense_missing_assumed_empty: bool,"
    f" context_dense_defaults: Tcontext_dense -> {_CONTEXT_OUT}, context_ragged_values: context_ragged_value_types,"
    f" context_ragged_row_splits: context_ragged_split_types, {_LISTS_OUT}, {_LENGTHS_OUT},"
    " feature_list_ragged_values: feature_list_ragged_value_types,"
    " feature_list_ragged_outer_splits: feature_list_ragged_split_types,"
    " feature_list_ragged_inner_splits: feature_list_ragged_split_types",
    f"Ncontext_sparse: int >= 0 = 0; Tcontext_dense: {_EMPTY}; context_sparse_types: {_EMPTY};"
    f" context_ragged_value_types: {_EMPTY}; context_ragged_split_types: list({{int32, int64}}) >= 0 = [];"
    " context_dense_shapes: list(shape) >= 0 = []; Nfeature_list_sparse: int >= 0 = 0;"
    f" Nfeature_list_dense: int >= 0 = 0; feature_list_dense_types: {_EMPTY}; feature_list_sparse_types: {_EMPTY};"
    f" feature_list_ragged_value_types: {_EMPTY};"
    " feature_list_ragged_split_types: list({int32, int64}) >= 0 = [];"
    " feature_list_dense_shapes: list(shape) >= 0 = []",
    shape=_v2_shape,
)


def _single_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.scalar(0)
    return _shapes(c, [], has_lengths=False)


register_op(
    "ParseSingleSequenceExample",
    "serialized: string, feature_list_dense_missing_assumed_empty: string, context_sparse_keys: Ncontext_sparse*string,"
    " context_dense_keys: Ncontext_dense*string, feature_list_sparse_keys: Nfeature_list_sparse*string,"
    " feature_list_dense_keys: Nfeature_list_dense*string, context_dense_defaults: Tcontext_dense, debug_name: string"
    f" -> {_CONTEXT_OUT}, {_LISTS_OUT}",
    f"{_COUNTS}; {_KINDS}",
    shape=_single_shape,
)


@dataclass(frozen=True, slots=True)
class _Keys:
    """The features that are asked for."""

    context_sparse: Sequence[bytes]
    context_dense: Sequence[bytes]
    list_sparse: Sequence[bytes]
    list_dense: Sequence[bytes]
    context_ragged: Sequence[bytes] = ()
    list_ragged: Sequence[bytes] = ()


class _Batch:
    """Records that are read, and their columns."""

    def __init__(self, serialized: Array | bytes, debug_name: object) -> None:
        self.is_one = np.ndim(serialized) == 0
        data = flat_strings(serialized)
        self.names = record_names(debug_name, len(data))
        records = [read_sequence_example(each, name) for each, name in zip(data, self.names, strict=True)]
        self.context: list[Features] = [context for context, _ in records]
        self.lists: list[Features] = [lists for _, lists in records]

    def context_columns(
        self, keys: _Keys, sparse_types: Sequence[DType], dense: Sequence[DenseColumn]
    ) -> tuple[list[Any], list[Any]]:
        """Sparse columns as triples, and dense ones."""
        sparse: list[object] = []
        for key, dtype in zip(keys.context_sparse, sparse_types, strict=True):
            values = values_of(self.context, key, dtype, self.names)
            sparse.append(sparse_vector(values[0], dtype) if self.is_one else sparse_column(values, dtype))
        found: list[object] = []
        for column in dense:
            values = values_of(self.context, column.key, column.dtype, self.names)
            is_one = self.is_one
            found.append(column.one(values[0], self.names[0]) if is_one else column.batch(values, self.names))
        return sparse, found

    def ragged(self, key: bytes, dtype: DType, splits: DType) -> tuple[Any, Any]:
        """Values and row splits of a feature of the context."""
        values = values_of(self.context, key, dtype, self.names)
        flat = joined([value for value in values if value is not None], dtype)
        np_dtype = splits.as_numpy_dtype
        return flat, np_dtype.type(0) if self.is_one else row_splits(lengths_of(values), np_dtype)

    def steps(self, key: bytes, dtype: DType) -> list[list[Array] | None]:
        """The values of a list of features: of each record, of each step; None where there is no such list."""
        empty = zeros((0,), dtype.as_numpy_dtype)
        found: list[list[Array] | None] = []
        for record, name in zip(self.lists, self.names, strict=True):
            if key not in record:
                found.append(None)
                continue
            where = f"{name}Key: {_shown(key)}.  "
            read = [read_feature(each, dtype, where) for each in read_feature_list(record[key], where)]
            try:
                found.append([empty if value is None else value for value in decoded(read, dtype)])
            except ValueError as error:
                raise InvalidArgumentError(f"{where}Can't parse serialized Example: {error}") from None
        return found

    def list_sparse(self, key: bytes, dtype: DType) -> tuple[Any, Any, Any]:
        """Indices, values and shape of a list of features."""
        records = [steps or [] for steps in self.steps(key, dtype)]
        times = np.array([len(steps) for steps in records], np.int64)
        lengths = np.array([step.size for steps in records for step in steps], np.int64)
        columns = [np.repeat(positions(times), lengths), positions(lengths)]
        shape = [int(np.max(times, initial=0)), int(np.max(lengths, initial=0))]
        if not self.is_one:
            columns.insert(0, np.repeat(np.repeat(np.arange(len(records)), times), lengths))
            shape.insert(0, len(records))
        values = joined([step for steps in records for step in steps], dtype)
        return np.stack(columns, axis=1).astype(np.int64), values, np.array(shape, np.int64)

    def list_dense(self, column: DenseColumn, may_lack: bool) -> tuple[ArrayOrScalar, ArrayOrScalar]:
        """Values, padded with zeros, and how many steps each record has."""
        records = self.steps(column.key, column.dtype)
        shape = column.row
        for steps, name in zip(records, self.names, strict=True):
            if steps is None and not may_lack:
                raise InvalidArgumentError(
                    f"{name}Name: <unknown>, Feature list '{_shown(column.key)}' is required but could not be found.  "
                    "Did you mean to include it in feature_list_dense_missing_assumed_empty or "
                    "feature_list_dense_defaults?"
                )
        lengths = np.array([len(steps or ()) for steps in records], np.int64)
        result = zeros((len(records), int(np.max(lengths, initial=0)), *shape), column.dtype.as_numpy_dtype)
        for index, steps in enumerate(records):
            for time, step in enumerate(steps or ()):
                if step.size != int(np.prod(shape, dtype=np.int64)):
                    raise InvalidArgumentError(
                        f"{self.names[index]}Feature list: {_shown(column.key)}, Index: {time}.  Number of values != "
                        f"expected.  Values size: {step.size} but output shape: {list(shape)}"
                    )
                result[index, time] = step.reshape(shape)
        return (result[0], lengths[0]) if self.is_one else (result, lengths)

    def list_ragged(
        self, key: bytes, dtype: DType, splits: DType
    ) -> tuple[ArrayOrScalar, ArrayOrScalar, ArrayOrScalar]:
        """Values, outer and inner row splits of a list of features."""
        records = [steps or [] for steps in self.steps(key, dtype)]
        times = np.array([len(steps) for steps in records], np.int64)
        lengths = np.array([step.size for steps in records for step in steps], np.int64)
        np_dtype = splits.as_numpy_dtype
        outer = np_dtype.type(0) if self.is_one else row_splits(times, np_dtype)
        return joined([step for steps in records for step in steps], dtype), outer, row_splits(lengths, np_dtype)


def _shown(key: bytes) -> str:
    return key.decode("utf-8", "backslashreplace")


def _by_place(parts: Sequence[tuple[ArrayOrScalar, ...]], count: int) -> list[ArrayOrScalar]:
    return [part[place] for place in range(count) for part in parts]


def _parse(
    c: OpKernelConstruction, batch: _Batch, keys: _Keys, defaults: Sequence[object], optional: Collection[bytes]
) -> tuple[dict[str, list[Any]], list[Any]]:
    """The columns by kind, and the lengths of dense lists."""
    attrs: Mapping[str, Any] = c.attrs
    check_count("context_sparse", keys.context_sparse, attrs["context_sparse_types"])
    check_count("feature_list_sparse", keys.list_sparse, attrs["feature_list_sparse_types"])
    dense = dense_columns(keys.context_dense, attrs["Tcontext_dense"], attrs["context_dense_shapes"], defaults)
    list_types = attrs["feature_list_dense_types"]
    blank = [np.zeros(0, object if dtype is types.string else np.float32) for dtype in list_types]
    lists = dense_columns(keys.list_dense, list_types, attrs["feature_list_dense_shapes"], blank)
    for column in lists:
        if column.is_variable:
            raise InvalidArgumentError(f"feature_list_dense_shapes of {_shown(column.key)} is {column.shape}")
    sparse, dense_values = batch.context_columns(keys, attrs["context_sparse_types"], dense)
    list_sparse = [
        batch.list_sparse(key, dtype)
        for key, dtype in zip(keys.list_sparse, attrs["feature_list_sparse_types"], strict=True)
    ]
    list_dense = [batch.list_dense(column, column.key in optional) for column in lists]
    found = {
        "context": [*_by_place(sparse, 3), *dense_values],
        "lists": [*_by_place(list_sparse, 3), *(values for values, _ in list_dense)],
    }
    return found, [lengths for _, lengths in list_dense]


@register_kernel("ParseSequenceExample", kind=KernelKind.EXPENSIVE)
def parse_sequence_example(c: OpKernelConstruction) -> Kernel:
    """Keys are attrs."""
    for kind in ("context_sparse", "context_dense", "feature_list_sparse", "feature_list_dense"):
        if c.attr(f"N{kind}") != len(c.attr(f"{kind}_keys")):
            raise InvalidArgumentError(f"N{kind} is {c.attr(f'N{kind}')}, but there are {c.attr(f'{kind}_keys')}")
    keys = _Keys(
        c.attr("context_sparse_keys"),
        c.attr("context_dense_keys"),
        c.attr("feature_list_sparse_keys"),
        c.attr("feature_list_dense_keys"),
    )
    optional = frozenset(c.attr("feature_list_dense_missing_assumed_empty"))

    def kernel(serialized: Array, debug_name: Array, *defaults: Array) -> tuple[Array, ...]:
        if np.ndim(serialized) != 1:
            raise InvalidArgumentError(f"serialized must be a vector, got shape: {list(np.shape(serialized))}")
        found, lengths = _parse(c, _Batch(serialized, debug_name), keys, defaults, optional)
        return (*found["context"], *found["lists"], *lengths)

    return kernel


@register_kernel("ParseSequenceExampleV2", kind=KernelKind.EXPENSIVE)
def parse_sequence_example_v2(c: OpKernelConstruction) -> Kernel:
    """Keys are inputs, a vector of each kind."""
    context_types = list(zip(c.attr("context_ragged_value_types"), c.attr("context_ragged_split_types"), strict=True))
    list_types = list(
        zip(c.attr("feature_list_ragged_value_types"), c.attr("feature_list_ragged_split_types"), strict=True)
    )

    def kernel(serialized: Array | bytes, debug_name: Array, *rest: Array) -> tuple[ArrayOrScalar, ...]:
        if np.ndim(serialized) > 1:
            raise InvalidArgumentError(f"serialized must be a scalar or vector, not {list(np.shape(serialized))}")
        vectors, may_lack, defaults = rest[:6], rest[6], rest[7:]
        context_sparse, context_dense, context_ragged, *lists = map(flat_strings, vectors)
        list_sparse, list_dense, list_ragged = lists
        if np.size(may_lack) != len(list_dense):
            raise InvalidArgumentError(f"{np.size(may_lack)} flags for {len(list_dense)} dense feature lists")
        check_count("context_ragged", context_ragged, [each for each, _ in context_types])
        check_count("feature_list_ragged", list_ragged, [each for each, _ in list_types])
        keys = _Keys(context_sparse, context_dense, list_sparse, list_dense, context_ragged, list_ragged)
        optional = {key for key, is_optional in zip(list_dense, np.ravel(may_lack), strict=True) if is_optional}
        batch = _Batch(serialized, debug_name)
        found, lengths = _parse(c, batch, keys, defaults, optional)
        ragged = [batch.ragged(key, *kinds) for key, kinds in zip(context_ragged, context_types, strict=True)]
        inner = [batch.list_ragged(key, *kinds) for key, kinds in zip(list_ragged, list_types, strict=True)]
        return (*found["context"], *_by_place(ragged, 2), *found["lists"], *lengths, *_by_place(inner, 3))

    return kernel


@register_kernel("ParseSingleSequenceExample", kind=KernelKind.EXPENSIVE)
def parse_single_sequence_example(c: OpKernelConstruction) -> Kernel:
    """Keys are inputs, one each."""
    slices = arg_slices(c.op_def.inputs, c.attrs)

    def kernel(*inputs: Any) -> tuple[object, ...]:
        serialized, optional, debug_name = inputs[0], inputs[1], inputs[-1]
        if not isinstance(serialized, bytes) or (not isinstance(debug_name, bytes) and np.size(debug_name)):
            raise InvalidArgumentError("Expected serialized and debug_name to be scalars")
        if np.ndim(optional) != 1:
            raise InvalidArgumentError("Expected feature_list_dense_missing_assumed_empty to be a vector")
        names = ("context_sparse", "context_dense", "feature_list_sparse", "feature_list_dense")
        given = [inputs[slices[f"{name}_keys"]] for name in names]
        if any(np.ndim(key) for keys in given for key in keys):
            raise InvalidArgumentError("Expected each key to be a scalar")
        keys = _Keys(*map(list, given))
        defaults = inputs[slices["context_dense_defaults"]]
        batch = _Batch(serialized, debug_name or np.empty(0, object))
        found, _ = _parse(c, batch, keys, defaults, frozenset(flat_strings(optional)))
        return (*found["context"], *found["lists"])

    return kernel
