"""How datasets read files: in parts, on worker threads, with no file kept open in between.

A Reader goes through the files one after the other.  It is called by an op of its own, which is known to be expensive.
What it has read stays with it until it is taken: a step that is cancelled while a thread reads loses nothing.
"""

from __future__ import annotations

import threading
import zlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

from asyncexec.framework import types
from asyncexec.framework.errors import DataLossError, InvalidArgumentError, OpError
from asyncexec.framework.file_errors import file_errors
from asyncexec.framework.function_runtime import FunctionCall, FunctionHandle
from asyncexec.framework.kernel import KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import KernelRegistration
from asyncexec.framework.op_def import parse_op_def
from asyncexec.framework.op_registry import OpRegistration
from asyncexec.framework.shape_inference import unknown
from asyncexec.ops.data.dataset import Element, ElementIterator, Pipeline, runtime_of
from asyncexec.ops.string.string_elements import scalar_string

CHUNK: Final = 1 << 18  # bytes that are read at once
_WINDOW_BITS: Final = {b"ZLIB": zlib.MAX_WBITS, b"GZIP": zlib.MAX_WBITS | 16}


class ByteSource:
    """The bytes of a file, in parts, decompressed."""

    __slots__ = ("_bits", "_decompressor", "_offset", "_raw", "path", "size")

    def __init__(self, path: Path, compression: bytes, offset: int = 0) -> None:
        self.path: Path = path
        with file_errors():
            self.size: int = path.stat().st_size
        self._offset = offset
        self._bits = _WINDOW_BITS.get(compression)
        self._decompressor = None if self._bits is None else zlib.decompressobj(self._bits)
        self._raw = b""  # read, and not decompressed yet

    def read(self) -> bytes:
        """The next bytes; none at the end.  DataLossError where they cannot be decompressed."""
        if self._decompressor is None:
            return self._read_raw()
        while True:
            if not self._raw:
                self._raw = self._read_raw()
                if not self._raw:
                    if not self._decompressor.eof and self.size:
                        raise DataLossError(f"{self.path} ends within compressed data")
                    return b""
            if self._decompressor.eof:  # several streams, one after the other
                assert self._bits is not None
                self._decompressor = zlib.decompressobj(self._bits)
            try:
                found = self._decompressor.decompress(self._raw, CHUNK)
            except zlib.error as error:
                raise DataLossError(f"{self.path} is not compressed as is said: {error}") from error
            self._raw = self._decompressor.unconsumed_tail or self._decompressor.unused_data
            if found:
                return found

    def _read_raw(self) -> bytes:
        with file_errors(), self.path.open("rb") as file:
            file.seek(self._offset)
            data = file.read(CHUNK)
        self._offset += len(data)
        return data


class RecordParser(ABC):
    """Makes elements of the bytes of one file, part by part."""

    @abstractmethod
    def feed(self, data: bytes, *, is_last: bool) -> Iterator[Element | OpError]:
        """The elements that have become complete, and the errors of those that are none.

        Raises:
            OpError: nothing more can be had of the file.
        """


# The elements of a file, part by part.
Parts: TypeAlias = Iterator[Iterable[Element | OpError]]


def parsed(source: ByteSource, parser: RecordParser) -> Parts:
    """What *parser* makes of the bytes of *source*."""
    while data := source.read():
        yield parser.feed(data, is_last=False)
    yield parser.feed(b"", is_last=True)


class Reader:
    """The elements of *num_files* files, which *open_file* opens.  Errors stand among them."""

    def __init__(self, num_files: int, open_file: Callable[[int], Parts]) -> None:
        self.ready: deque[Element | OpError] = deque()
        self.has_ended = False
        self._num_files, self._open = num_files, open_file
        self._number = 0
        self._parts: Parts | None = None
        self._lock = threading.Lock()

    def fill(self) -> None:
        """Read until something is ready, or the end; on a worker thread."""
        with self._lock:  # a thread that nobody waits for any more may still be reading
            while not self.ready and not self.has_ended:
                if self._number >= self._num_files:
                    self.has_ended = True
                    return
                try:
                    self._read()
                except OpError as error:
                    self.ready.append(error)
                    self._end_file()

    def _read(self) -> None:
        if self._parts is None:
            self._parts = self._open(self._number)
        part = next(self._parts, None)
        if part is None:
            self._end_file()
            return
        for element in part:
            self.ready.append(element)

    def _end_file(self) -> None:
        self._parts = None
        self._number += 1


def _fill(reader: Reader) -> list[object]:
    reader.fill()
    return [None]


# Not in the registry: it runs as a step of its own.
_READ: Final = OpRegistration(
    parse_op_def("_ReadElements", "reader: object -> done: Tin", "Tin: list(type) >= 1"),
    unknown,
    KernelRegistration(lambda _: _fill, KernelKind.EXPENSIVE, is_expensive=True),
)


class ReadingIterator(ElementIterator):
    """The elements that a reader gives."""

    __slots__ = ("_handle", "_pipeline", "_reader")

    def __init__(self, pipeline: Pipeline, handle: FunctionHandle, reader: Reader) -> None:
        self._pipeline, self._handle, self._reader = pipeline, handle, reader

    async def next(self) -> Element | None:
        if self._pipeline.is_late:
            await self._pipeline.pause()
        reader = self._reader
        while not reader.ready:
            if reader.has_ended:
                return None
            await self._handle.run(reader, ())
        found = reader.ready.popleft()
        if isinstance(found, OpError):
            raise found
        return found


def reading(c: OpKernelConstruction) -> FunctionHandle:
    """What runs the readers of a node."""
    return runtime_of(c).instantiate(FunctionCall(c.name, None, c.device, (types.object,), _READ, (), ()))


def check_compression(value: object) -> bytes:
    """The compression that an input tells; InvalidArgumentError where it is none that is known."""
    compression = scalar_string(value, "compression_type")
    if compression not in (b"", *_WINDOW_BITS):
        raise InvalidArgumentError(f"Unsupported compression_type: {compression.decode(errors='backslashreplace')}.")
    return compression
