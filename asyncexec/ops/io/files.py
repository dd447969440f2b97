"""Ops that reach outside the process: files, and Python functions of the graph's author.

All are declared with ``touches_outside``, so a graph that has one is refused unless the caller allows the op by name.
Kernels are there for ReadFile, WriteFile, MatchingFiles and InitializeTableFromTextFile; the readers, checkpoints and
Python functions are declared only, so that such a graph is read and told what is missing.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from asyncexec.framework.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    OpError,
    PermissionDeniedError,
    ResourceExhaustedError,
    UnknownError,
)
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_function, register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext, no_outputs, scalars
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import DType, int64, string
from asyncexec.ops.state.lookup import initializable
from asyncexec.ops.string.string_convert import number_parser
from asyncexec.ops.string.string_elements import as_strings, flat_strings, scalar_string

_EXPENSIVE: Final = KernelKind.EXPENSIVE
_MAX_FILE_BYTES: Final = 2**34
_LINE_NUMBER: Final = -1
_WHOLE_LINE: Final = -2


def _scalar_in(c: InferenceContext) -> Sequence[TensorShape]:
    for index in range(c.num_inputs):
        c.scalar(index)
    return scalars(c)


def _matching_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.input(0).with_rank_at_most(1)
    return [TensorShape([None])]


register_op("ReadFile", "filename: string -> contents: string", touches_outside=True, shape=_scalar_in)
register_op(
    "WriteFile", "filename: string, contents: string ->", is_stateful=True, touches_outside=True, shape=_scalar_in
)
register_op("MatchingFiles", "pattern: string -> filenames: string", touches_outside=True, shape=_matching_shape)
_TEXT_FILE: Final = (
    "key_index: int >= -2; value_index: int >= -2; vocab_size: int >= -1 = -1; delimiter: string = '\t';"
    " offset: int = 0"
)
for _name, _handle in (("InitializeTableFromTextFile", "Ref(string)"), ("InitializeTableFromTextFileV2", "resource")):
    register_op(
        _name,
        f"table_handle: {_handle}, filename: string ->",
        _TEXT_FILE,
        is_stateful=_name.endswith("V2"),
        touches_outside=True,
        shape=_scalar_in,
    )

_PLACE: Final = "container: string = ''; shared_name: string = ''"
_READERS: Final = {
    "WholeFileReader": _PLACE,
    "TextLineReader": f"skip_header_lines: int = 0; {_PLACE}",
    "FixedLengthRecordReader": (
        f"header_bytes: int = 0; record_bytes: int; footer_bytes: int = 0; hop_bytes: int = 0; {_PLACE}"
    ),
    "TFRecordReader": f"{_PLACE}; compression_type: string = ''",
}
for _name, _attrs in _READERS.items():
    register_op(_name, "-> reader_handle: Ref(string)", _attrs, is_stateful=True, touches_outside=True, shape=scalars)
    _more = "; encoding: string = ''" if _name == "FixedLengthRecordReader" else ""
    register_op(
        f"{_name}V2",
        "-> reader_handle: resource",
        _attrs + _more,
        is_stateful=True,
        touches_outside=True,
        shape=scalars,
    )
register_op(
    "ReaderRead",
    "reader_handle: Ref(string), queue_handle: Ref(string) -> key: string, value: string",
    touches_outside=True,
    shape=scalars,
)
register_op(
    "ReaderReadV2",
    "reader_handle: resource, queue_handle: resource -> key: string, value: string",
    is_stateful=True,
    touches_outside=True,
    shape=scalars,
)
register_op(
    "Save",
    "filename: string, tensor_names: string, data: T ->",
    "T: list(type) >= 1",
    is_stateful=True,
    touches_outside=True,
    shape=no_outputs,
)
register_op(
    "SaveV2",
    "prefix: string, tensor_names: string, shape_and_slices: string, tensors: dtypes ->",
    "dtypes: list(type) >= 1",
    is_stateful=True,
    touches_outside=True,
    shape=no_outputs,
)
register_op(
    "Restore",
    "file_pattern: string, tensor_name: string -> tensor: dt",
    "dt: type; preferred_shard: int = -1",
    is_stateful=True,
    touches_outside=True,
)
register_op(
    "RestoreV2",
    "prefix: string, tensor_names: string, shape_and_slices: string -> tensors: dtypes",
    "dtypes: list(type) >= 1",
    is_stateful=True,
    touches_outside=True,
)
register_op(
    "MergeV2Checkpoints",
    "checkpoint_prefixes: string, destination_prefix: string ->",
    "delete_old_dirs: bool = True; allow_missing_files: bool = False",
    is_stateful=True,
    touches_outside=True,
    shape=no_outputs,
)
_PYTHON: Final = "Tin: list(type) >= 0; Tout: list(type) >= 0"
register_op("PyFunc", "input: Tin -> output: Tout", f"token: string; {_PYTHON}", is_stateful=True, touches_outside=True)
register_op("PyFuncStateless", "input: Tin -> output: Tout", f"token: string; {_PYTHON}", touches_outside=True)
register_op(
    "EagerPyFunc",
    "input: Tin -> output: Tout",
    f"token: string; is_async: bool = False; {_PYTHON}",
    is_stateful=True,
    touches_outside=True,
)
# All of them but for the Python functions.
FILE_OPS: Final = frozenset(
    {
        *("ReadFile", "WriteFile", "MatchingFiles"),
        *("InitializeTableFromTextFile", "InitializeTableFromTextFileV2"),
        *(*_READERS, *[f"{name}V2" for name in _READERS], "ReaderRead", "ReaderReadV2"),
        *("Save", "SaveV2", "Restore", "RestoreV2", "MergeV2Checkpoints"),
    }
)


def _as_op_error(error: OSError) -> OpError:
    text = f"{error.filename}: {error.strerror}"
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return NotFoundError(text)
    if isinstance(error, IsADirectoryError):
        return FailedPreconditionError(text)
    return PermissionDeniedError(text) if isinstance(error, PermissionError) else UnknownError(text)


def _path(name: bytes) -> Path:
    if b"\0" in name:
        raise InvalidArgumentError(f"a file name holds no zero bytes: {name[:100]!r}")
    return Path(os.fsdecode(name.removeprefix(b"file://")))


def _read(name: bytes) -> bytes:
    path = _path(name)
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise ResourceExhaustedError(f"{path} is larger than {_MAX_FILE_BYTES} bytes")
        return path.read_bytes()
    except OSError as error:
        raise _as_op_error(error) from error


def _read_file(filename: Any) -> bytes:
    return _read(scalar_string(filename, "Input filename tensor"))


def _write_file(filename: Any, contents: Any) -> tuple[()]:
    path = _path(scalar_string(filename, "Input filename tensor"))
    data = scalar_string(contents, "Contents tensor")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    except OSError as error:
        raise _as_op_error(error) from error
    return ()


def _matching_files(pattern: Any) -> Any:
    if np.ndim(pattern) > 1:
        raise InvalidArgumentError(f"Input patterns tensor must be scalar or vector, not {list(pattern.shape)}")
    paths = [_path(text) for text in flat_strings(pattern)]
    found = {os.fsencode(name) for path in paths for name in glob.glob(str(path), include_hidden=True)}
    return as_strings(sorted(found), (len(found),))


register_function("ReadFile", function=_read_file, kind=_EXPENSIVE)
register_function("WriteFile", function=_write_file, kind=_EXPENSIVE)
register_function("MatchingFiles", function=_matching_files, kind=_EXPENSIVE)


@register_kernel("InitializeTableFromTextFile", "InitializeTableFromTextFileV2", kind=_EXPENSIVE)
def initialize_table_from_text_file(construction: OpKernelConstruction) -> Kernel:
    """Fill a HashTable from the lines of a file: a key and a value may be a column, the line, or its number."""
    key_index, value_index = construction.attr("key_index"), construction.attr("value_index")
    delimiter, count = construction.attr("delimiter"), construction.attr("vocab_size")
    offset = construction.attr("offset")
    if len(delimiter) != 1:
        raise InvalidArgumentError(f"delimiter should be only 1 char, not {delimiter!r}", op=construction.op)

    def kernel(handle: Any, filename: Any) -> tuple[()]:
        table = initializable(handle)
        key_of = _line_part(key_index, table.key_dtype, delimiter, offset)
        value_of = _line_part(value_index, table.value_dtype, delimiter, offset)
        data = _read(scalar_string(filename, "filename"))
        lines = list(_lines(data, count))
        table.initialize([(key_of(line, number), value_of(line, number)) for number, line in enumerate(lines)])
        return ()

    return kernel


def _lines(data: bytes, count: int) -> Iterator[bytes]:
    """The lines of a vocabulary, the first *count* of them when that is given; none may be empty."""
    lines = data.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    if count > len(lines):
        raise InvalidArgumentError(f"Invalid vocab_size: expected {count} but the file has {len(lines)} lines")
    for number, line in enumerate(lines[: count if count >= 0 else None]):
        text = line.removesuffix(b"\r")
        if not text:
            raise InvalidArgumentError(f"Invalid content: empty line found, line {number}")
        yield text


def _line_part(index: int, dtype: DType, delimiter: bytes, offset: int) -> Callable[[bytes, int], Any]:
    if index == _LINE_NUMBER:
        if dtype is not int64:
            raise InvalidArgumentError(f"the line number is an int64, not a {dtype.name}")
        return lambda _, number: number + offset
    if index == _WHOLE_LINE:
        if dtype is not string:
            raise InvalidArgumentError(f"the whole line is a string, not a {dtype.name}")
        return lambda line, _: line
    parse = None if dtype is string else number_parser(dtype)

    def column(line: bytes, number: int) -> Any:
        parts = line.split(delimiter)
        if index >= len(parts):
            raise InvalidArgumentError(
                f"Invalid number of columns in line {number}: {len(parts)}, expected {index + 1}"
            )
        try:
            return parts[index] if parse is None else parse(parts[index])
        except ValueError:
            raise InvalidArgumentError(f"Field {index} in line {number} is not a valid {dtype.name}") from None

    return column
