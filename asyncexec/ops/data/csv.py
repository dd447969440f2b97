"""CSVDataset: the columns of comma-separated values (``core/kernels/data/experimental/csv_dataset_op.cc``).

A record that is none is an error in its place; the records behind it can be had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from asyncexec.framework.errors import InvalidArgumentError, OpError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.op_def import arg_slices
from asyncexec.framework.types import DType, string
from asyncexec.ops.data.dataset import Dataset, Element, dataset_op, declared, scalar_int
from asyncexec.ops.data.files import file_names, source_of
from asyncexec.ops.data.reading import Parts, Reader, ReadingIterator, RecordParser, check_compression, parsed, reading
from asyncexec.ops.string.string_convert import number_parser
from asyncexec.ops.string.string_elements import scalar_string


@dataclass(frozen=True, slots=True)
class Columns:
    """What a record is read as.

    Attributes:
        defaults: of each column that is taken; None where a value is required.
        is_taken: whether the column of a number is one of those.
    """

    dtypes: Sequence[DType]
    defaults: Sequence[Any]
    is_taken: Callable[[int], bool]
    delimiter: bytes
    uses_quotes: bool
    na_value: bytes

    def element(self, fields: Sequence[bytes]) -> Element:
        """The values of the columns that are taken; InvalidArgumentError where they are none."""
        taken = [field for number, field in enumerate(fields) if self.is_taken(number)]
        if len(taken) > len(self.dtypes):
            raise InvalidArgumentError(f"Expect {len(self.dtypes)} fields but have more in record")
        values = tuple([self._value(index, field) for index, field in enumerate(taken)])
        if len(values) != len(self.dtypes):
            raise InvalidArgumentError(f"Expect {len(self.dtypes)} fields but have {len(values)} in record")
        return values

    def _value(self, index: int, field: bytes) -> object:
        dtype = self.dtypes[index]
        if not field or field == self.na_value:
            if self.defaults[index] is None:
                raise InvalidArgumentError(f"Field {index} is required but missing in record!")
            return self.defaults[index]
        if dtype is string:
            return field
        try:
            return dtype.as_numpy_dtype.type(number_parser(dtype)(field))
        except ValueError:
            shown = field[:100].decode(errors="backslashreplace")
            raise InvalidArgumentError(f"Field {index} in record is not a valid {dtype.name}: {shown}") from None


class _IncompleteError(Exception):
    """A record goes on behind the bytes that there are."""


class CSVParser(RecordParser):
    """The records of a file, without the first one where it is a header."""

    def __init__(self, columns: Columns, *, has_header: bool) -> None:
        self._columns, self._has_header = columns, has_header
        self._data = b""

    def feed(self, data: bytes, *, is_last: bool) -> Iterator[Element | OpError]:
        data = self._data + data
        place = 0
        while place < len(data):
            try:
                fields, error, place = self._record(data, place, is_last=is_last)
            except _IncompleteError:
                break
            if self._has_header:
                self._has_header = False
                continue
            yield self._element(fields, error)
        self._data = data[place:]

    def _element(self, fields: Sequence[bytes], error: str | None) -> Element | OpError:
        if error is not None:
            return InvalidArgumentError(error)
        try:
            return self._columns.element(fields)
        except InvalidArgumentError as raised:
            return raised.with_traceback(None)

    def _record(self, data: bytes, place: int, *, is_last: bool) -> tuple[list[bytes], str | None, int]:
        """The fields of the record at *place*, what is wrong with it, and where the next one begins."""
        fields: list[bytes] = []
        error: str | None = None
        while True:
            is_quoted = self._columns.uses_quotes and data[place : place + 1] == b'"'
            read = self._quoted if is_quoted else self._unquoted
            field, wrong, place = read(data, place, is_last=is_last)
            fields.append(field)
            error = error or wrong
            if place >= len(data):
                if not is_last:
                    raise _IncompleteError
                return fields, error, place
            end = data[place : place + 1]
            place += 1
            if end == self._columns.delimiter:
                continue
            if end == b"\r":
                if place >= len(data) and not is_last:
                    raise _IncompleteError
                place += data[place : place + 1] == b"\n"
            return fields, error, place

    def _unquoted(self, data: bytes, place: int, *, is_last: bool) -> tuple[bytes, str | None, int]:
        """A field up to its end, what is wrong with it, and where it ends."""
        ends = [data.find(each, place) for each in (self._columns.delimiter, b"\n", b"\r")]
        stop = min((end for end in ends if end >= 0), default=len(data))
        field = data[place:stop]
        wrong = "Unquoted fields cannot have quotes inside" if self._columns.uses_quotes and b'"' in field else None
        return field, wrong, stop

    def _quoted(self, data: bytes, place: int, *, is_last: bool) -> tuple[bytes, str | None, int]:
        wrong: str | None = None
        stop = place + 1
        while True:
            stop = data.find(b'"', stop)
            if stop < 0 or (stop + 1 >= len(data) and not is_last):
                if not is_last:
                    raise _IncompleteError
                return b"", "Reached end of file without closing quoted field in record", len(data)
            follows = data[stop + 1 : stop + 2]
            if follows in (b"", b"\n", b"\r", self._columns.delimiter):
                return data[place + 1 : stop].replace(b'""', b'"'), wrong, stop + 1
            if follows != b'"':
                wrong = wrong or "Quote inside a string has to be escaped by another quote"
            stop += 2


def _chosen(select: Any, exclude: Any, num_columns: int) -> Callable[[int], bool]:
    """Whether a column is taken, by its number."""
    lists: dict[str, list[int]] = {}
    for name, given in (("select_cols", select), ("exclude_cols", exclude)):
        if np.ndim(given) != 1:
            raise InvalidArgumentError(f"`{name}` must be a vector")
        columns = lists[name] = [int(column) for column in given]
        if any(one >= other for one, other in pairwise(columns)):
            raise InvalidArgumentError(f"{name} should be strictly increasing indices")
        if columns and columns[0] < 0:
            raise InvalidArgumentError(f"{name} should be non-negative indices")
    selected, excluded = frozenset(lists["select_cols"]), frozenset(lists["exclude_cols"])
    if selected and len(selected) != num_columns:
        raise InvalidArgumentError("select_cols should match output size")
    if selected and excluded:
        raise InvalidArgumentError("Either select_cols or exclude_cols should be empty")
    return (lambda number: number in selected) if selected else (lambda number: number not in excluded)


def _default(value: Any, index: int) -> object:
    if np.ndim(value) > 1:
        raise InvalidArgumentError("Each record default should be at most rank 1")
    if np.size(value) > 1:
        raise InvalidArgumentError(f"There should only be 1 default per field but field {index} has {np.size(value)}")
    if not np.ndim(value):
        return value
    return value[0] if len(value) else None


@dataset_op("CSVDataset", "CSVDatasetV2", "ExperimentalCSVDataset")
def csv_dataset(c: OpKernelConstruction) -> Kernel:
    """The records of files of comma-separated values."""
    dtypes, shapes = declared(c)
    slices = arg_slices(c.op_def.inputs, c.attrs)
    handle = reading(c)

    def kernel(*inputs: object) -> Dataset:
        given = {name: inputs[part][0] for name, part in slices.items() if name != "record_defaults"}
        names = file_names(given["filenames"])
        compression = check_compression(given["compression_type"])
        if scalar_int(given["buffer_size"], "buffer_size") <= 0:
            raise InvalidArgumentError("buffer_size should be positive")
        delimiter = scalar_string(given["field_delim"], "field_delim")
        if len(delimiter) != 1:
            raise InvalidArgumentError("field_delim should be only 1 char")
        columns = Columns(
            dtypes,
            [_default(value, index) for index, value in enumerate(inputs[slices["record_defaults"]])],
            _chosen(given["select_cols"], given.get("exclude_cols", np.empty(0, np.int64)), len(dtypes)),
            delimiter,
            bool(given["use_quote_delim"]),
            scalar_string(given["na_value"], "na_value"),
        )
        has_header = bool(given["header"])

        def open_file(number: int) -> Parts:
            return parsed(source_of(c, names[number], compression), CSVParser(columns, has_header=has_header))

        return Dataset("CSV", lambda p: ReadingIterator(p, handle, Reader(len(names), open_file)), dtypes, shapes)

    return kernel
