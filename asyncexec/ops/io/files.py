"""Ops that reach outside the process: files, and Python functions of the graph's author.

All are declared with ``touches_outside``, so a graph that has one is refused unless the caller allows the op by name.
Kernels are there for ReadFile, WriteFile, MatchingFiles and InitializeTableFromTextFile; the readers and Python
functions are declared only, so that such a graph is read and told what is missing.
"""

from __future__ import annotations

import glob
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from asyncexec.framework.errors import InvalidArgumentError, ResourceExhaustedError
from asyncexec.framework.file_access import FileAccess, named_path
from asyncexec.framework.file_errors import file_errors
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext, scalars
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


def read_whole(path: Path) -> bytes:
    """What is in the file, up to some gigabytes."""
    with file_errors():
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise ResourceExhaustedError(f"{path} is larger than {_MAX_FILE_BYTES} bytes")
        return path.read_bytes()


@register_kernel("ReadFile", kind=_EXPENSIVE, is_expensive=True)
def _read_file(construction: OpKernelConstruction) -> Kernel:
    files, op = construction.resource_mgr.files, construction.op

    def read_file(filename: object) -> bytes:
        return read_whole(files.path(op, named_path(scalar_string(filename, "Input filename tensor"))))

    return read_file


@register_kernel("WriteFile", kind=_EXPENSIVE, is_expensive=True)
def _write_file(construction: OpKernelConstruction) -> Kernel:
    files, op = construction.resource_mgr.files, construction.op

    def write_file(filename: object, contents: object) -> tuple[()]:
        path = files.path(op, named_path(scalar_string(filename, "Input filename tensor")), writes=True)
        data = scalar_string(contents, "Contents tensor")
        with file_errors():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return ()

    return write_file


@register_kernel("MatchingFiles", kind=_EXPENSIVE, is_expensive=True)
def _matching_files(construction: OpKernelConstruction) -> Kernel:
    files, op = construction.resource_mgr.files, construction.op

    def matching_files(pattern: Any) -> object:
        if np.ndim(pattern) > 1:
            raise InvalidArgumentError(f"Input patterns tensor must be scalar or vector, not {list(pattern.shape)}")
        found = {name for text in flat_strings(pattern) for name in matching(files, op, text)}
        return as_strings(sorted(found), (len(found),))

    return matching_files


def matching(files: FileAccess, op: str, pattern: bytes) -> list[bytes]:
    """The names of the files that *pattern* stands for, in order, where *op* may look there."""
    found = glob.glob(str(allowed_pattern(files, op, named_path(pattern))), include_hidden=True)
    if files.is_confined(op):
        for name in found:
            files.path(op, Path(name))
    return sorted(map(os.fsencode, found))


def allowed_pattern(files: FileAccess, op: str, pattern: Path) -> Path:
    """*pattern*, where the folders that it looks into are allowed."""
    if files.is_confined(op):
        fixed = list(itertools.takewhile(lambda part: not glob.has_magic(part), pattern.parts))
        files.path(op, Path(*fixed))
        if ".." in pattern.parts[len(fixed) :]:
            raise InvalidArgumentError(f"a pattern with '..' behind a wildcard is refused: {str(pattern)!r}")
    return pattern


@register_kernel("InitializeTableFromTextFile", "InitializeTableFromTextFileV2", kind=_EXPENSIVE, is_expensive=True)
def initialize_table_from_text_file(construction: OpKernelConstruction) -> Kernel:
    """Fill a HashTable from the lines of a file: a key and a value may be a column, the line, or its number."""
    key_index, value_index = construction.attr("key_index"), construction.attr("value_index")
    delimiter, count = construction.attr("delimiter"), construction.attr("vocab_size")
    offset, files = construction.attr("offset"), construction.resource_mgr.files
    if len(delimiter) != 1:
        raise InvalidArgumentError(f"delimiter should be only 1 char, not {delimiter!r}", op=construction.op)

    def kernel(handle: object, filename: object) -> tuple[()]:
        table = initializable(handle)
        key_of = _line_part(key_index, table.key_dtype, delimiter, offset)
        value_of = _line_part(value_index, table.value_dtype, delimiter, offset)
        data = read_whole(files.path(construction.op, named_path(scalar_string(filename, "filename"))))
        lines = list(vocabulary_lines(data, count))
        table.initialize([(key_of(line, number), value_of(line, number)) for number, line in enumerate(lines)])
        return ()

    return kernel


def vocabulary_lines(data: bytes, count: int) -> Iterator[bytes]:
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


def _line_part(index: int, dtype: DType, delimiter: bytes, offset: int) -> Callable[[bytes, int], object]:
    if index == _LINE_NUMBER:
        if dtype is not int64:
            raise InvalidArgumentError(f"the line number is an int64, not a {dtype.name}")
        return lambda _, number: number + offset
    if index == _WHOLE_LINE:
        if dtype is not string:
            raise InvalidArgumentError(f"the whole line is a string, not a {dtype.name}")
        return lambda line, _: line
    parse = None if dtype is string else number_parser(dtype)

    def column(line: bytes, number: int) -> object:
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
