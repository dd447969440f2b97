"""Readers: records of the files that a queue names, from step to step.

Rules from ``tensorflow/core/ops/io_ops.cc`` and ``core/kernels/reader_base.cc``.  A handle is the reader itself.  Files
are read on a worker thread, some records at a time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from asyncexec.framework.cooperative import outlast
from asyncexec.framework.errors import InvalidArgumentError, UnimplementedError
from asyncexec.framework.file_access import named_path
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction, require_kind
from asyncexec.framework.kernel_registry import register_function, register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.process_bound import ProcessBound
from asyncexec.framework.shape_inference import InferenceContext, no_outputs, scalars
from asyncexec.framework.tensor_shape import SCALAR, TensorShape, unknown_shape
from asyncexec.framework.types import string
from asyncexec.ops.io.record_files import (
    FixedLengthRecords,
    Record,
    RecordFile,
    TextLines,
    TFRecords,
    WholeFile,
    check_compression,
)
from asyncexec.ops.parsing.wire import DELIMITED, VARINT, as_varint, delimited, fields
from asyncexec.ops.state.queue_state import Queue
from asyncexec.ops.state.variable_state import DEFAULT_CONTAINER
from asyncexec.ops.string.string_elements import as_strings, scalar_string

Open: TypeAlias = Callable[[bytes], RecordFile]  # by the name of the file


async def _on_thread(act: Callable[[], None]) -> None:
    """Do it on a worker thread, to its end even where the caller is cancelled: what is read is not lost."""
    task = asyncio.ensure_future(asyncio.to_thread(act))
    try:
        await outlast(task.done, lambda: asyncio.wait([task]))
    except asyncio.CancelledError:
        task.exception()  # the next one meets it again
        raise
    task.result()


class Reader(ProcessBound):
    """Reads one file of a queue after another; all of it happens in one event loop.

    Attributes:
        keeps_state: whether its state can be told, as it can where a file is one record.
        num_records: how many records it has given.
        num_finished: how many files it has read to their end.
    """

    def __init__(self, op: str, open_file: Open | None, *, keeps_state: bool) -> None:
        self.keeps_state: bool = keeps_state
        self.num_records: int = 0
        self.num_finished: int = 0
        self._op, self._open = op, open_file
        self._num_started = 0
        self._work = b""
        self._file: RecordFile | None = None
        self._records: deque[Record] = deque()
        self._lock = asyncio.Lock()

    async def read(self, queue: Queue) -> Record:
        """The next record, of the next file in *queue* where there is no more in this one."""
        async with self._lock:
            while not self._records:
                await self._fetch(queue)
            return self._give()

    async def read_up_to(self, queue: Queue, count: int) -> list[Record]:
        """At most *count* records of one file, at least one."""
        async with self._lock:
            while not self._records:
                await self._fetch(queue)
            found = [self._give()]
            while len(found) < count:
                if not self._records and (self._file is None or not await self._fetch_more(self._file)):
                    break
                found.append(self._give())
            return found

    def _give(self) -> Record:
        self.num_records += 1
        return self._records.popleft()

    async def _fetch(self, queue: Queue) -> None:
        """Read on in the present file, or begin with the next."""
        if self._file is not None:
            await self._fetch_more(self._file)
            return
        self._work = b""
        (element,) = await queue.dequeue_many(1)
        self._work = element[0]
        self._num_started += 1
        if self._open is None:
            self._records.append((self._work, self._work))
            self.num_finished += 1
        else:
            await _on_thread(self._begin)

    def _begin(self) -> None:
        assert self._open is not None
        self._file = self._open(self._work)

    async def _fetch_more(self, file: RecordFile) -> bool:
        """Read on in *file*; whether there was more."""
        await _on_thread(lambda: self._records.extend(file.next_records()))
        if not self._records:
            self._file = None
            self.num_finished += 1
        return bool(self._records)

    def drop_loop(self) -> None:
        """Forget who waits in a loop that is closed."""
        self._lock = asyncio.Lock()

    def reset(self) -> None:
        """Be as new."""
        self.num_records = self.num_finished = self._num_started = 0
        self._work, self._file = b"", None
        self._records.clear()

    def serialized(self) -> bytes:
        """The state as a ReaderBaseState."""
        if not self.keeps_state:
            raise UnimplementedError(f"{self._op}: Reader SerializeState")
        counts = (self._num_started, self.num_finished, self.num_records)
        found = b"".join(as_varint(n << 3) + as_varint(count) for n, count in enumerate(counts, 1) if count)
        return found + (delimited(4, self._work) if self._work else b"")

    def restore(self, state: bytes) -> None:
        """Have the state that ``serialized`` gave."""
        if not self.keeps_state:
            raise UnimplementedError(f"{self._op}: Reader RestoreState")
        try:
            found = {number: value for number, kind, value in fields(state) if kind in (VARINT, DELIMITED)}
            started, finished, records = (int(found.get(number, 0)) for number in (1, 2, 3))
            work = bytes(found.get(4, b""))
        except (ValueError, TypeError, IndexError) as error:
            raise InvalidArgumentError(f"Could not parse state of the reader: {error}") from None
        if not 0 <= finished <= started or records < 0:
            raise InvalidArgumentError(f"Inconsistent work started vs. finished: {started} vs. {finished}")
        self.reset()
        self._num_started, self.num_finished, self.num_records, self._work = started, finished, records, work


_NAMES: Final = "container: string = ''; shared_name: string = ''"
_LENGTHS: Final = "header_bytes: int = 0; record_bytes: int; footer_bytes: int = 0; hop_bytes: int = 0"
_READERS: Final = {
    "IdentityReader": (_NAMES, ""),
    "WholeFileReader": (_NAMES, ""),
    "TextLineReader": (f"skip_header_lines: int = 0; {_NAMES}", ""),
    "FixedLengthRecordReader": (f"{_LENGTHS}; {_NAMES}", "; encoding: string = ''"),
    "TFRecordReader": (f"{_NAMES}; compression_type: string = ''", ""),
}


def _read_shape(c: InferenceContext) -> Sequence[TensorShape]:
    return [SCALAR, SCALAR]


def _read_up_to_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.scalar(2)
    return [unknown_shape(1), unknown_shape(1)]


def _restore_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.scalar(1)
    return []


for _op, (_attrs, _more) in _READERS.items():
    for _version, _handle in (("", "Ref(string)"), ("V2", "resource")):
        register_op(
            _op + _version,
            f"-> reader_handle: {_handle}",
            _attrs + (_more if _version else ""),
            is_stateful=True,
            touches_outside=True,
            shape=(lambda _: [SCALAR]) if _version else (lambda _: [TensorShape([2])]),
        )
for _version, _handle in (("", "Ref(string)"), ("V2", "resource")):
    _reader, _is_new = f"reader_handle: {_handle}", _version == "V2"
    for _op, _inputs, _outputs, _shape in (
        ("Read", f"{_reader}, queue_handle: {_handle}", "key: string, value: string", _read_shape),
        (
            "ReadUpTo",
            f"{_reader}, queue_handle: {_handle}, num_records: int64",
            "keys: string, values: string",
            _read_up_to_shape,
        ),
        ("NumRecordsProduced", _reader, "records_produced: int64", scalars),
        ("NumWorkUnitsCompleted", _reader, "units_completed: int64", scalars),
        ("SerializeState", _reader, "state: string", scalars),
        ("RestoreState", f"{_reader}, state: string", "", _restore_shape),
        ("Reset", _reader, "", no_outputs),
    ):
        register_op(
            f"Reader{_op}{_version}",
            f"{_inputs} -> {_outputs}".rstrip(),
            is_stateful=_is_new,
            touches_outside=True,
            shape=_shape,
        )


def _opener(construction: OpKernelConstruction) -> Open | None:
    """What opens the files of the reader; None where it reads none."""
    attrs, op = construction.attrs, construction.op
    kind = op.removesuffix("V2")
    files = construction.resource_mgr.files
    if kind == "TextLineReader":
        skipped = attrs["skip_header_lines"]
        return lambda name: TextLines(files.path(op, named_path(name)), name, skipped)
    if kind == "WholeFileReader":
        return lambda name: WholeFile(files.path(op, named_path(name)), name)
    if kind == "TFRecordReader":
        compression = attrs["compression_type"]
        check_compression(compression)
        return lambda name: TFRecords(files.path(op, named_path(name)), name, compression)
    return _fixed_length_opener(construction) if kind == "FixedLengthRecordReader" else None


def _fixed_length_opener(construction: OpKernelConstruction) -> Open:
    attrs, op, files = construction.attrs, construction.op, construction.resource_mgr.files
    length, header, footer, hop = (attrs[f"{part}_bytes"] for part in ("record", "header", "footer", "hop"))
    encoding = attrs.get("encoding", b"")
    for name, size, least in (("header", header, 0), ("record", length, 1), ("footer", footer, 0), ("hop", hop, 0)):
        if size < least:
            raise InvalidArgumentError(f"{name}_bytes must be >= {least} but got {size}")
    check_compression(encoding)

    def open_file(name: bytes) -> RecordFile:
        path = files.path(op, named_path(name))
        return FixedLengthRecords(path, name, encoding, length=length, header=header, footer=footer, hop=hop or length)

    return open_file


@register_kernel(*(op + version for op in _READERS for version in ("", "V2")))
def _reader_kernel(construction: OpKernelConstruction) -> Kernel:
    shared = construction.attr("shared_name").decode("utf-8", "replace")
    opener, keeps_state = _opener(construction), construction.op.startswith(("Identity", "WholeFile"))
    found = construction.resource_mgr.lookup_or_create(
        Reader,
        construction.attr("container").decode("utf-8", "replace") or DEFAULT_CONTAINER,
        shared or construction.name,
        lambda: Reader(construction.op, opener, keeps_state=keeps_state),
        is_shared=bool(shared),
    )
    return lambda: found


def _queue_of(handle: object) -> Queue:
    queue = require_kind(handle, Queue)  # type: ignore[type-abstract]
    if queue.component_dtypes != (string,):
        raise InvalidArgumentError(
            f"a reader takes a queue of one string, not of {[dtype.name for dtype in queue.component_dtypes]}"
        )
    return queue


@register_kernel("ReaderRead", "ReaderReadV2", kind=KernelKind.ASYNC)
def _read_kernel(construction: OpKernelConstruction) -> Kernel:
    async def read(reader: Reader, queue: object) -> Record:
        return await require_kind(reader, Reader).read(_queue_of(queue))

    return read


@register_kernel("ReaderReadUpTo", "ReaderReadUpToV2", kind=KernelKind.ASYNC)
def _read_up_to_kernel(construction: OpKernelConstruction) -> Kernel:
    async def read_up_to(reader: Reader, queue: object, count: Any) -> tuple[object, object]:
        if np.ndim(count) or count <= 0:
            raise InvalidArgumentError(f"num_records must be a positive scalar, not {count}")
        found = await require_kind(reader, Reader).read_up_to(_queue_of(queue), int(count))
        keys, values = (as_strings(list(column), (len(found),)) for column in zip(*found, strict=True))
        return keys, values

    return read_up_to


def _register_reset(op: str, act: Callable[..., None]) -> None:
    @register_kernel(op, f"{op}V2", kind=KernelKind.ASYNC)
    def make(construction: OpKernelConstruction) -> Kernel:
        async def run(reader: Reader, *inputs: object) -> tuple[()]:
            act(require_kind(reader, Reader), *inputs)
            return ()

        return run


_register_reset("ReaderReset", Reader.reset)
_register_reset("ReaderRestoreState", lambda reader, state: reader.restore(scalar_string(state, "state")))
register_function(
    "ReaderNumRecordsProduced",
    "ReaderNumRecordsProducedV2",
    function=lambda reader: np.int64(require_kind(reader, Reader).num_records),
)
register_function(
    "ReaderNumWorkUnitsCompleted",
    "ReaderNumWorkUnitsCompletedV2",
    function=lambda reader: np.int64(require_kind(reader, Reader).num_finished),
)
register_function(
    "ReaderSerializeState",
    "ReaderSerializeStateV2",
    function=lambda reader: require_kind(reader, Reader).serialized(),
)
