"""Serialized Examples into dense, sparse and ragged tensors (``parsing_ops.cc``, ``example_parsing_ops.cc``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_def import arg_slices
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, Dim, TensorShape
from asyncexec.framework.types import DType
from asyncexec.ops.parsing.columns import (
    DenseColumn,
    Values,
    joined,
    lengths_of,
    row_splits,
    sparse_column,
    sparse_vector,
)
from asyncexec.ops.parsing.example import Features, decoded, read_example, read_feature
from asyncexec.ops.string.string_elements import flat_strings

_TYPES: Final = "list({float32, int64, string}) >= 0"
_SPARSE_OUT: Final = "sparse_indices: {n}*int64, sparse_values: sparse_types, sparse_shapes: {n}*int64"


def _dense_shapes(c: InferenceContext, batch: Sequence[Dim]) -> list[TensorShape]:
    shapes: Sequence[TensorShape] = c.attr("dense_shapes")
    return [UNKNOWN_SHAPE if shape.dims is None else TensorShape([*batch, *shape.dims]) for shape in shapes]


def _sparse_shapes(count: int, rank: int) -> list[TensorShape]:
    indices, values, shape = TensorShape([None, rank]), TensorShape([None]), TensorShape([rank])
    return [*[indices] * count, *[values] * count, *[shape] * count]


def _batch_shape(c: InferenceContext) -> Sequence[TensorShape]:
    batch = c.vector(0)[0] if c.input(0).dims is not None else None
    c.input(1).with_rank(1)
    return [*_sparse_shapes(c.attr("Nsparse"), 2), *_dense_shapes(c, [batch])]


register_op(
    "ParseExample",
    "serialized: string, names: string, sparse_keys: Nsparse*string, dense_keys: Ndense*string, dense_defaults: Tdense"
    f" -> {_SPARSE_OUT.format(n='Nsparse')}, dense_values: Tdense",
    f"Nsparse: int >= 0; Ndense: int >= 0; sparse_types: {_TYPES}; Tdense: {_TYPES}; dense_shapes: list(shape) >= 0",
    shape=_batch_shape,
)


def _v2_shape(c: InferenceContext) -> Sequence[TensorShape]:
    serialized, count = c.input(0).with_rank_at_most(1), c.attr("num_sparse")
    ragged = c.attr("ragged_value_types")
    c.input(1).with_rank_at_most(1)
    if serialized.dims is None:
        return [UNKNOWN_SHAPE] * c.num_outputs
    dense = _dense_shapes(c, serialized.dims)
    return [
        *_sparse_shapes(count, 1 + (serialized.rank or 0)),
        *dense,
        *[TensorShape([None])] * (2 * len(ragged)),
    ]


register_op(
    "ParseExampleV2",
    "serialized: string, names: string, sparse_keys: string, dense_keys: string, ragged_keys: string,"
    f" dense_defaults: Tdense -> {_SPARSE_OUT.format(n='num_sparse')}, dense_values: Tdense,"
    " ragged_values: ragged_value_types, ragged_row_splits: ragged_split_types",
    f"Tdense: {_TYPES}; num_sparse: int >= 0; sparse_types: {_TYPES}; ragged_value_types: {_TYPES};"
    " ragged_split_types: list({int32, int64}) >= 0; dense_shapes: list(shape) >= 0",
    shape=_v2_shape,
)


def _single_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.scalar(0)
    return [*_sparse_shapes(c.attr("num_sparse"), 1), *_dense_shapes(c, [])]


register_op(
    "ParseSingleExample",
    f"serialized: string, dense_defaults: Tdense -> {_SPARSE_OUT.format(n='num_sparse')}, dense_values: Tdense",
    f"num_sparse: int >= 0; sparse_keys: list(string) >= 0; dense_keys: list(string) >= 0; sparse_types: {_TYPES};"
    f" Tdense: {_TYPES}; dense_shapes: list(shape) >= 0",
    shape=_single_shape,
)


def dense_columns(
    keys: Sequence[bytes], dtypes: Sequence[DType], shapes: Sequence[TensorShape], defaults: Sequence[object]
) -> list[DenseColumn]:
    """The dense columns, checked; InvalidArgumentError where something of them does not fit."""
    if not len(keys) == len(dtypes) == len(shapes) == len(defaults):
        raise InvalidArgumentError(
            f"there are {len(keys)} dense keys, {len(dtypes)} types, {len(shapes)} shapes and {len(defaults)} defaults"
        )
    columns = [DenseColumn(*each) for each in zip(keys, dtypes, shapes, defaults, strict=True)]
    for column in columns:
        column.check()
    return columns


def check_count(what: str, keys: Sequence[bytes], dtypes: Sequence[DType]) -> None:
    """InvalidArgumentError unless there is a dtype for each key."""
    if len(keys) != len(dtypes):
        raise InvalidArgumentError(f"{what}: {len(keys)} keys, but {len(dtypes)} types")


def values_of(records: Sequence[Features], key: bytes, dtype: DType, names: Sequence[str]) -> Values:
    """The values of a feature in each record."""
    shown = key.decode("utf-8", "backslashreplace")
    items = [
        None if key not in record else read_feature(record[key], dtype, f"{name}Key: {shown}.  ")
        for record, name in zip(records, names, strict=True)
    ]
    try:
        return decoded(items, dtype)
    except ValueError as error:
        raise InvalidArgumentError(f"Key: {shown}.  Can't parse serialized Example: {error}") from None


def record_names(names: object, count: int) -> list[str]:
    """What errors begin with, of each record."""
    given = flat_strings(names)
    if given and len(given) != count:
        raise InvalidArgumentError(f"Expected len(names) == len(serialized), got {len(given)} vs. {count}")
    if not given:
        return [""] * count
    return [f"Name: {name.decode('utf-8', 'backslashreplace')}, " for name in given]


def parse_batch(
    serialized: Array | bytes,
    names: object,
    sparse: Sequence[tuple[bytes, DType]],
    dense: Sequence[DenseColumn],
    ragged: Sequence[tuple[bytes, DType, DType]] = (),
) -> tuple[ArrayOrScalar, ...]:
    """The columns of one record (a scalar) or of several (a vector)."""
    is_one = np.ndim(serialized) == 0
    data = flat_strings(serialized)
    called = record_names(names, len(data))
    records = [read_example(each, name) for each, name in zip(data, called, strict=True)]
    parts = []
    for key, dtype in sparse:
        values = values_of(records, key, dtype, called)
        parts.append(sparse_vector(values[0], dtype) if is_one else sparse_column(values, dtype))
    dense_values = []
    for column in dense:
        values = values_of(records, column.key, column.dtype, called)
        dense_values.append(column.one(values[0], called[0]) if is_one else column.batch(values, called))
    flat, splits = [], []
    for key, dtype, split_dtype in ragged:
        values = values_of(records, key, dtype, called)
        flat.append(joined([value for value in values if value is not None], dtype))
        np_dtype = split_dtype.as_numpy_dtype
        splits.append(np.zeros(0, np_dtype) if is_one else row_splits(lengths_of(values), np_dtype))
    return (*(part[place] for place in range(3) for part in parts), *dense_values, *flat, *splits)


@register_kernel("ParseExample", kind=KernelKind.EXPENSIVE)
def parse_example(c: OpKernelConstruction) -> Kernel:
    """Keys are inputs, one each."""
    slices = arg_slices(c.op_def.inputs, c.attrs)

    def kernel(*inputs: Any) -> tuple[object, ...]:
        serialized, names = inputs[:2]
        if np.ndim(serialized) != 1:
            raise InvalidArgumentError(f"Expected serialized to be a vector, got shape: {list(np.shape(serialized))}")
        sparse_keys = _scalar_keys(inputs[slices["sparse_keys"]])
        check_count("sparse", sparse_keys, c.attr("sparse_types"))
        defaults = inputs[slices["dense_defaults"]]
        keys = _scalar_keys(inputs[slices["dense_keys"]])
        dense = dense_columns(keys, c.attr("Tdense"), c.attr("dense_shapes"), defaults)
        return parse_batch(serialized, names, list(zip(sparse_keys, c.attr("sparse_types"), strict=True)), dense)

    return kernel


def _scalar_keys(keys: Sequence[Array | bytes]) -> list[bytes]:
    for key in keys:
        if np.size(key) != 1:
            raise InvalidArgumentError(f"Expected key to be a scalar, got shape: {list(np.shape(key))}")
    return [flat_strings(key)[0] for key in keys]


@register_kernel("ParseExampleV2", kind=KernelKind.EXPENSIVE)
def parse_example_v2(c: OpKernelConstruction) -> Kernel:
    """Keys are inputs, a vector of each kind."""
    sparse_types, value_types = c.attr("sparse_types"), c.attr("ragged_value_types")
    split_types = c.attr("ragged_split_types")
    if len(sparse_types) != c.attr("num_sparse"):
        raise InvalidArgumentError(f"len(sparse_types) is {len(sparse_types)}, num_sparse {c.attr('num_sparse')}")
    if len(value_types) != len(split_types):
        raise InvalidArgumentError(f"{len(value_types)} ragged_value_types, {len(split_types)} ragged_split_types")

    def kernel(
        serialized: Array | bytes, names: Array, sparse: object, dense: object, ragged: object, *defaults: ArrayOrScalar
    ) -> tuple[ArrayOrScalar, ...]:
        if np.ndim(serialized) > 1:
            raise InvalidArgumentError(f"serialized must be a scalar or vector, not {list(np.shape(serialized))}")
        sparse, dense, ragged = map(flat_strings, (sparse, dense, ragged))  # of any shape, as TensorFlow takes them
        check_count("sparse", sparse, sparse_types)
        check_count("ragged", ragged, value_types)
        columns = dense_columns(dense, c.attr("Tdense"), c.attr("dense_shapes"), defaults)
        return parse_batch(
            serialized,
            names,
            list(zip(sparse, sparse_types, strict=True)),
            columns,
            list(zip(ragged, value_types, split_types, strict=True)),
        )

    return kernel


@register_kernel("ParseSingleExample", kind=KernelKind.EXPENSIVE)
def parse_single_example(c: OpKernelConstruction) -> Kernel:
    """Keys are attrs."""
    check_count("sparse", c.attr("sparse_keys"), c.attr("sparse_types"))
    sparse = list(zip(c.attr("sparse_keys"), c.attr("sparse_types"), strict=True))
    if len(sparse) != c.attr("num_sparse"):
        raise InvalidArgumentError(f"num_sparse is {c.attr('num_sparse')}, but there are {len(sparse)} sparse keys")

    def kernel(serialized: bytes, *defaults: object) -> tuple[Any, ...]:
        if not isinstance(serialized, bytes):
            raise InvalidArgumentError(f"serialized must be a scalar, not of shape {list(np.shape(serialized))}")
        dense = dense_columns(c.attr("dense_keys"), c.attr("Tdense"), c.attr("dense_shapes"), defaults)
        return parse_batch(serialized, np.empty(0, object), sparse, dense)

    return kernel
