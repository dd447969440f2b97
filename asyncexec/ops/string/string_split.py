"""Strings cut at separators into the parts of a sparse tensor, and CSV (``string_ops.cc``, ``parsing_ops.cc``)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction, as_value
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import DType, string
from asyncexec.ops.string.string_convert import number_parser
from asyncexec.ops.string.string_elements import as_strings, flat_strings, scalar_string


def _split_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.vector(0)
    c.scalar(1)
    return [TensorShape([None, 2]), TensorShape([None]), TensorShape([2])]


register_op(
    "StringSplit",
    "input: string, delimiter: string -> indices: int64, values: string, shape: int64",
    "skip_empty: bool = True",
    shape=_split_shape,
)
register_op(
    "StringSplitV2",
    "input: string, sep: string -> indices: int64, values: string, shape: int64",
    "maxsplit: int = -1",
    shape=_split_shape,
)


def _sparse(rows: list[list[bytes]]) -> tuple[Array, Array, Array]:
    """Indices, values and dense shape of a matrix whose rows are filled from the left."""
    lengths = np.array([len(row) for row in rows], np.int64)
    indices = np.empty((int(lengths.sum()), 2), np.int64)
    indices[:, 0] = np.repeat(np.arange(len(rows)), lengths)
    indices[:, 1] = [column for row in rows for column in range(len(row))]
    values = as_strings((part for row in rows for part in row), (len(indices),))
    return indices, values, np.array([len(rows), np.max(lengths, initial=0)], np.int64)


def _splitting(split: Callable[[bytes, bytes], list[bytes]]) -> Kernel:
    def kernel(value: Array, separator: bytes) -> Any:
        if np.ndim(value) != 1:
            raise InvalidArgumentError(f"input must be a vector, got shape: {list(np.shape(value))}")
        mark = scalar_string(separator, "delimiter")
        return _sparse([split(text, mark) for text in value])

    return kernel


@register_kernel("StringSplit")
def string_split(construction: OpKernelConstruction) -> Kernel:
    """Cut at every byte that is in the delimiter; between all bytes when there is none."""
    skips_empty = construction.attr("skip_empty")

    def split(text: bytes, delimiter: bytes) -> list[bytes]:
        if not delimiter:
            return [text[index : index + 1] for index in range(len(text))]
        if not text:
            return []
        first = delimiter[:1]
        parts = text.translate(bytes.maketrans(delimiter, first * len(delimiter))).split(first)
        return [part for part in parts if part] if skips_empty else parts

    return _splitting(split)


@register_kernel("StringSplitV2")
def string_split_v2(construction: OpKernelConstruction) -> Kernel:
    """Cut at the separator, at most *maxsplit* times; at runs of blanks when it is empty."""
    most = construction.attr("maxsplit")

    def split(text: bytes, separator: bytes) -> list[bytes]:
        return text.split(separator, most) if separator else _split_at_blanks(text, most)

    return _splitting(split)


def _split_at_blanks(text: bytes, most: int) -> list[bytes]:
    """As Python does, but what is left after *most* words is a part even when it is empty, or all of it (0)."""
    if most == 0:
        return [text]
    parts = text.split(None, most)
    return [*parts, b""] if len(parts) == most else parts


def _csv_shape(c: InferenceContext) -> Sequence[TensorShape]:
    for index, default in enumerate(c.arg("record_defaults")):
        default.with_rank_at_most(1)
        if default.rank == 1 and default[0] is not None and default[0] > 1:
            raise InvalidArgumentError(f"Shape of a default must be a length-0 or length-1 vector or scalar: {index}")
    return [c.input(0)] * c.num_outputs


register_op(
    "DecodeCSV",
    "records: string, record_defaults: OUT_TYPE -> output: OUT_TYPE",
    "OUT_TYPE: list({float32, float64, int32, int64, string}) >= 1; field_delim: string = ',';"
    " use_quote_delim: bool = True; na_value: string = ''; select_cols: list(int) = []",
    shape=_csv_shape,
)


@register_kernel("DecodeCSV")
def decode_csv(construction: OpKernelConstruction) -> Kernel:
    """The columns of records in the format of RFC 4180; a field left empty takes its default."""
    dtypes: tuple[DType, ...] = construction.attr("OUT_TYPE")
    parsers = [None if dtype is string else number_parser(dtype) for dtype in dtypes]
    missing, columns = construction.attr("na_value"), construction.attr("select_cols")
    read = _csv_reader(construction)
    if columns and len(columns) != len(dtypes):
        raise InvalidArgumentError("select_cols should match output size")
    if any(b <= a for a, b in pairwise(columns)) or (columns and columns[0] < 0):
        raise InvalidArgumentError(f"select_cols should be strictly increasing indices, not {list(columns)}")

    def kernel(records: Array | bytes, *defaults: object) -> Any:
        table = [_select(read(record), columns, len(dtypes), row) for row, record in enumerate(flat_strings(records))]
        shape = np.shape(records)
        return tuple(
            _column([fields[index] for fields in table], index, dtype, parsers[index], default, missing, shape)
            for index, (dtype, default) in enumerate(zip(dtypes, defaults, strict=True))
        )

    return kernel


def _select(fields: list[bytes], columns: tuple[int, ...], count: int, row: int) -> list[bytes]:
    if columns:
        if columns[-1] >= len(fields):
            raise InvalidArgumentError(
                f"Expect {columns[-1] + 1} fields or more but have {len(fields)} in record {row}"
            )
        return [fields[column] for column in columns]
    if len(fields) != count:
        raise InvalidArgumentError(f"Expect {count} fields but have {len(fields)} in record {row}")
    return fields


def _column(
    fields: list[bytes], index: int, dtype: DType, parse: object, default: Any, missing: bytes, shape: tuple[int, ...]
) -> object:
    values = []
    for row, field in enumerate(fields):
        if field in (b"", missing):
            if np.size(default) != 1:
                raise InvalidArgumentError(f"Field {index} is required but missing in record {row}!")
            values.append(default if isinstance(default, bytes) else np.ravel(default)[0])
        else:
            values.append(_parsed(field, parse, index, row, dtype))
    if parse is None:
        return as_strings(values, shape)
    return as_value(np.array(values, dtype.as_numpy_dtype).reshape(shape))


def _parsed(field: bytes, parse: Any, index: int, row: int, dtype: DType) -> bytes | float | int:
    if parse is None:
        return field
    try:
        return parse(field)
    except ValueError:
        raise InvalidArgumentError(
            f"Field {index} in record {row} is not a valid {dtype.name}: {field[:100].decode('utf-8', 'replace')}"
        ) from None


def _csv_reader(construction: OpKernelConstruction) -> Callable[[bytes], list[bytes]]:
    delimiter, is_quoting = construction.attr("field_delim"), construction.attr("use_quote_delim")
    if len(delimiter) != 1:
        raise InvalidArgumentError("field_delim should be only 1 char")
    mark = delimiter[0]
    stops = re.compile(b"[" + re.escape(delimiter) + (b'"' if is_quoting else b"") + b"\r\n]")

    def read(record: bytes) -> list[bytes]:
        fields: list[bytes] = []
        place = 0
        while record:
            if is_quoting and record[place : place + 1] == b'"':
                field, place = _quoted(record, place + 1, mark)
            else:
                field, place = _plain(record, place, stops, mark)
            fields.append(field)
            if place >= len(record):
                return fields
            place += 1  # over the delimiter
            if place == len(record):
                return [*fields, b""]
        return fields

    return read


def _plain(record: bytes, place: int, stops: re.Pattern[bytes], mark: int) -> tuple[bytes, int]:
    found = stops.search(record, place)
    if found is None:
        return record[place:], len(record)
    if record[found.start()] != mark:
        raise InvalidArgumentError("Unquoted fields cannot have quotes/CRLFs inside")
    return record[place : found.start()], found.start()


def _quoted(record: bytes, place: int, mark: int) -> tuple[bytes, int]:
    parts: list[bytes] = []
    while True:
        end = record.find(b'"', place)
        if end < 0:
            raise InvalidArgumentError("Quoted field has to end with quote followed by delim or end")
        parts.append(record[place:end])
        after = record[end + 1 : end + 2]
        if after != b'"':
            break
        parts.append(b'"')
        place = end + 2
    if after and after[0] != mark:
        raise InvalidArgumentError("Quote inside a string has to be escaped by another quote")
    return b"".join(parts), end + 1
