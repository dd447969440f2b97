"""Datasets of files: records of TensorFlow, lines of text, records of one length, names that match patterns."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from asyncexec.checkpoints.crc32c import crc32c, masked
from asyncexec.framework.errors import DataLossError, InvalidArgumentError, OpError
from asyncexec.framework.file_access import named_path
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.tensor_shape import SCALAR
from asyncexec.framework.types import string
from asyncexec.ops.data.dataset import Dataset, Element, dataset_op, scalar_int
from asyncexec.ops.data.reading import (
    ByteSource,
    Parts,
    Reader,
    ReadingIterator,
    RecordParser,
    check_compression,
    parsed,
    reading,
)
from asyncexec.ops.io.files import matching
from asyncexec.ops.string.string_elements import flat_strings, scalar_string

_HEAD: Final = struct.Struct("<QI")  # length, and its checksum
_CHECKSUM: Final = struct.Struct("<I")


def file_names(value: Any) -> list[bytes]:
    """The names in the input ``filenames``."""
    if np.ndim(value) > 1:
        raise InvalidArgumentError("`filenames` must be a scalar or a vector.")
    return flat_strings(value)


def source_of(c: OpKernelConstruction, name: bytes, compression: bytes, offset: int = 0) -> ByteSource:
    """The bytes of the file *name*, if the op may read it."""
    return ByteSource(c.resource_mgr.files.path(c.op, named_path(name)), compression, offset)


def file_dataset(kind: str, c: OpKernelConstruction, names: Sequence[bytes], make: Callable[[int], Parts]) -> Dataset:
    """The strings in files, which *make* opens by their numbers."""
    handle = reading(c)
    return Dataset(kind, lambda p: ReadingIterator(p, handle, Reader(len(names), make)), (string,), (SCALAR,))


def _check_buffer(value: object, default: str) -> None:
    if scalar_int(value, "buffer_size") < 0:
        raise InvalidArgumentError(f"`buffer_size` must be >= 0 (0 == {default})")


class TFRecordParser(RecordParser):
    """Records, each behind its length, with checksums of both."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self._data = b""
        self._offset = 0  # of the data in the file

    def feed(self, data: bytes, *, is_last: bool) -> Iterator[Element | OpError]:
        data = self._data + data
        start = 0
        while (record := self._record(data, start)) is not None:
            yield (record,)
            start += len(record) + _HEAD.size + _CHECKSUM.size
        self._data, self._offset = data[start:], self._offset + start
        if is_last and self._data:
            raise DataLossError(f"truncated record at {self._offset} in {self._source.path}")

    def _record(self, data: bytes, start: int) -> bytes | None:
        if len(data) < start + _HEAD.size:
            return None
        length, checksum = _HEAD.unpack_from(data, start)
        if masked(crc32c(data[start : start + 8])) != checksum:
            raise DataLossError(f"corrupted record at {self._offset + start} in {self._source.path}")
        stop = start + _HEAD.size + length
        if len(data) < stop + _CHECKSUM.size:
            return None
        record = data[start + _HEAD.size : stop]
        if masked(crc32c(record)) != _CHECKSUM.unpack_from(data, stop)[0]:
            raise DataLossError(f"corrupted record at {self._offset + start} in {self._source.path}")
        return record


@dataset_op("TFRecordDataset", "TFRecordDatasetV2")
def tf_record_dataset(c: OpKernelConstruction) -> Kernel:
    """The records of files."""

    def kernel(filenames: object, compression_type: object, buffer_size: object, byte_offsets: Any = ()) -> Dataset:
        names, compression = (
            file_names(filenames),
            check_compression(scalar_string(compression_type, "compression_type")),
        )
        _check_buffer(buffer_size, "no buffering")
        offsets = [int(offset) for offset in np.ravel(byte_offsets)]
        if offsets and len(offsets) != len(names):
            raise InvalidArgumentError(
                f"`byte_offsets` must be of the same size as `filenames`, not {len(offsets)} and {len(names)}"
            )
        if any(offset < 0 for offset in offsets):
            raise InvalidArgumentError(f"`byte_offsets` must not be negative: {offsets}")

        def open_file(number: int) -> Parts:
            source = source_of(c, names[number], compression, offsets[number] if offsets else 0)
            return parsed(source, TFRecordParser(source))

        return file_dataset("TFRecord", c, names, open_file)

    return kernel


class LineParser(RecordParser):
    """Lines, without their ends."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, data: bytes, *, is_last: bool) -> Iterator[Element | OpError]:
        *lines, rest = data.split(b"\n")
        for line in lines:
            yield (b"".join([*self._parts, line]).replace(b"\r", b""),)
            self._parts.clear()
        self._parts.append(rest)
        if is_last and (left := b"".join(self._parts).replace(b"\r", b"")):
            yield (left,)


@dataset_op("TextLineDataset")
def text_line_dataset(c: OpKernelConstruction) -> Kernel:
    """The lines of files."""

    def kernel(filenames: object, compression_type: object, buffer_size: object) -> Dataset:
        names, compression = (
            file_names(filenames),
            check_compression(scalar_string(compression_type, "compression_type")),
        )
        _check_buffer(buffer_size, "default")
        return file_dataset(
            "TextLine", c, names, lambda number: parsed(source_of(c, names[number], compression), LineParser())
        )

    return kernel


class FixedLengthParser(RecordParser):
    """Records of one length, between a header and a footer."""

    def __init__(self, header: int, length: int, footer: int) -> None:
        self._to_skip, self._length, self._footer = header, length, footer
        self._data = b""

    def feed(self, data: bytes, *, is_last: bool) -> Iterator[Element | OpError]:
        skipped = min(self._to_skip, len(data))
        self._to_skip -= skipped
        data = self._data + data[skipped:]
        start = 0
        while len(data) >= start + self._length + self._footer:
            yield (data[start : start + self._length],)
            start += self._length
        self._data = data[start:]


@dataset_op("FixedLengthRecordDataset", "FixedLengthRecordDatasetV2")
def fixed_length_record_dataset(c: OpKernelConstruction) -> Kernel:
    """The records of files, all of one length."""

    def kernel(
        filenames: object,
        header_bytes: object,
        record_bytes: object,
        footer_bytes: object,
        buffer_size: object,
        compression_type: object = b"",
    ) -> Dataset:
        names, compression = (
            file_names(filenames),
            check_compression(scalar_string(compression_type, "compression_type")),
        )
        header, footer = scalar_int(header_bytes, "header_bytes"), scalar_int(footer_bytes, "footer_bytes")
        length = scalar_int(record_bytes, "record_bytes")
        if header < 0 or footer < 0:
            raise InvalidArgumentError("`header_bytes` and `footer_bytes` must be >= 0")
        if length <= 0:
            raise InvalidArgumentError("`record_bytes` must be > 0")
        _check_buffer(buffer_size, "default")

        def open_file(number: int) -> Parts:
            source = source_of(c, names[number], compression)
            body = source.size - header - footer
            if not compression and (body < 0 or body % length):
                raise InvalidArgumentError(
                    f"Excluding the header ({header} bytes) and footer ({footer} bytes), input file "
                    f"{str(source.path)!r} has body length {body} bytes, which is not an exact multiple of the record "
                    f"length ({length} bytes)."
                )
            return parsed(source, FixedLengthParser(header, length, footer))

        return file_dataset("FixedLengthRecord", c, names, open_file)

    return kernel


@dataset_op("MatchingFilesDataset", "ExperimentalMatchingFilesDataset")
def matching_files_dataset(c: OpKernelConstruction) -> Kernel:
    """The names of the files that patterns stand for."""

    def kernel(patterns: Any) -> Dataset:
        if np.ndim(patterns) > 1:
            raise InvalidArgumentError("`patterns` must be a scalar or a vector.")
        given = flat_strings(patterns)

        def look(number: int) -> Parts:
            return iter([[(name,) for name in matching(c.resource_mgr.files, c.op, given[number])]])

        return file_dataset("MatchingFiles", c, given, look)

    return kernel
