"""Writers of summaries: files of events, as TensorBoard reads them.

Rules from ``tensorflow/core/ops/summary_ops.cc`` and ``core/summary/summary_file_writer.cc``.  A writer appends an
event to its file when it is told to: nothing waits that ``max_queue`` and ``flush_millis`` could bound.  Checksums are
computed by the extra ``tf``.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any, Final

import numpy as np

from asyncexec.checkpoints.crc32c import crc32c, masked
from asyncexec.framework.errors import InvalidArgumentError, NotFoundError
from asyncexec.framework.file_access import named_path
from asyncexec.framework.file_errors import file_errors
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.process_bound import ProcessBound
from asyncexec.framework.shape_inference import no_outputs, scalars
from asyncexec.ops.io import summaries
from asyncexec.ops.io.summary_ops import tensor_value
from asyncexec.ops.parsing.wire import delimited
from asyncexec.ops.state.variable_state import DEFAULT_CONTAINER
from asyncexec.ops.string.string_elements import scalar_string

# Fields of Event.
_WALL_TIME: Final = 1
_STEP: Final = 2
_FILE_VERSION: Final = 3
_GRAPH: Final = 4
_SUMMARY: Final = 5

_VERSION: Final = b"brain.Event:2"
_numbers: Final = count()
_REALS: Final = "bfloat16, float16, float32, float64, int16, int32, int64, int8, uint16, uint32, uint64, uint8"


class SummaryFile(ProcessBound):
    """What the handle of a writer is: a file of events, once it is created."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._path: Path | None = None

    def create(self, folder: Path, suffix: bytes) -> None:
        """Begin a file in *folder*, unless there is one already."""
        with self._lock:
            if self._path is not None:
                return
            name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.{next(_numbers)}"
            path = folder / (name + os.fsdecode(suffix))
            if path.parent != folder:
                raise InvalidArgumentError(f"filename_suffix must not name a folder: {suffix!r}")
            with file_errors():
                folder.mkdir(parents=True, exist_ok=True)
                path.touch()
            self._path = path
        self.write(event(0, delimited(_FILE_VERSION, _VERSION)))

    def write(self, message: bytes) -> None:
        """Append an event; NotFoundError where no file was created, or it was closed."""
        length = struct.pack("<Q", len(message))
        record = length + _checksum(length) + message + _checksum(message)
        with self._lock, file_errors(), self._opened().open("ab") as file:
            file.write(record)

    def require_open(self) -> None:
        """NotFoundError where no file was created, or it was closed."""
        self._opened()

    def _opened(self) -> Path:
        if self._path is None:
            raise NotFoundError("the summary writer has no file: CreateSummaryFileWriter must run before")
        return self._path

    def close_file(self) -> None:
        """Let go of the file."""
        self._opened()
        self._path = None


def _checksum(data: bytes) -> bytes:
    return struct.pack("<I", masked(crc32c(data)))


def event(step: int, content: bytes) -> bytes:
    """An Event of now."""
    return summaries.float64_field(_WALL_TIME, time.time()) + summaries.varint(_STEP, step) + content


register_op(
    "SummaryWriter",
    "-> writer: resource",
    "shared_name: string = ''; container: string = ''",
    is_stateful=True,
    shape=scalars,
)
register_op(
    "CreateSummaryFileWriter",
    "writer: resource, logdir: string, max_queue: int32, flush_millis: int32, filename_suffix: string ->",
    is_stateful=True,
    touches_outside=True,
    shape=no_outputs,
)
for _op, _inputs, _attrs in (
    ("FlushSummaryWriter", "", ""),
    ("CloseSummaryWriter", "", ""),
    ("ImportEvent", ", event: string", ""),
    ("WriteGraphSummary", ", step: int64, tensor: string", ""),
    ("WriteRawProtoSummary", ", step: int64, tensor: string", ""),
    ("WriteSummary", ", step: int64, tensor: T, tag: string, summary_metadata: string", "T: type"),
    ("WriteScalarSummary", ", step: int64, tag: string, value: T", f"T: {{{_REALS}}}"),
    ("WriteHistogramSummary", ", step: int64, tag: string, values: T", f"T: {{bool, {_REALS}}} = float32"),
    (
        "WriteImageSummary",
        ", step: int64, tag: string, tensor: T, bad_color: uint8",
        "max_images: int >= 1 = 3; T: {float16, float32, float64, uint8} = float32",
    ),
    (
        "WriteAudioSummary",
        ", step: int64, tag: string, tensor: float32, sample_rate: float32",
        "max_outputs: int >= 1 = 3",
    ),
):
    register_op(_op, f"writer: resource{_inputs} ->", _attrs, is_stateful=True, shape=no_outputs)


@register_kernel("SummaryWriter")
def _summary_writer(construction: OpKernelConstruction) -> Kernel:
    shared = construction.attr("shared_name").decode("utf-8", "replace")
    found = construction.resource_mgr.lookup_or_create(
        SummaryFile,
        construction.attr("container").decode("utf-8", "replace") or DEFAULT_CONTAINER,
        shared or construction.name,
        SummaryFile,
        is_shared=bool(shared),
    )
    return lambda: found


@register_kernel("CreateSummaryFileWriter", kind=KernelKind.EXPENSIVE, is_expensive=True, handles=SummaryFile)
def _create(construction: OpKernelConstruction) -> Kernel:
    files, op = construction.resource_mgr.files, construction.op

    def create(writer: SummaryFile, logdir: object, max_queue: Any, flush_millis: Any, suffix: object) -> tuple[()]:
        for name, value in (("max_queue", max_queue), ("flush_millis", flush_millis)):
            if np.ndim(value):
                raise InvalidArgumentError(f"{name} must be scalar, got shape {list(np.shape(value))}")
        folder = files.path(op, named_path(scalar_string(logdir, "logdir")), writes=True)
        writer.create(folder, scalar_string(suffix, "filename_suffix"))
        return ()

    return create


@register_kernel("FlushSummaryWriter", handles=SummaryFile)
def _flush(construction: OpKernelConstruction) -> Kernel:
    def flush(writer: SummaryFile) -> tuple[()]:
        writer.require_open()  # all is written
        return ()

    return flush


@register_kernel("CloseSummaryWriter", handles=SummaryFile)
def _close(construction: OpKernelConstruction) -> Kernel:
    def close(writer: SummaryFile) -> tuple[()]:
        writer.close_file()
        return ()

    return close


@register_kernel("ImportEvent", kind=KernelKind.EXPENSIVE, is_expensive=True, handles=SummaryFile)
def _import_event(construction: OpKernelConstruction) -> Kernel:
    def import_event(writer: SummaryFile, message: object) -> tuple[()]:
        writer.write(summaries.checked(scalar_string(message, "event"), "tf.Event"))
        return ()

    return import_event


# What goes into the event besides its time and step, made of the inputs behind the step.
_Content = Callable[..., bytes]


def _writing(content: _Content) -> Kernel:
    def write(writer: SummaryFile, step: Any, *inputs: object) -> tuple[()]:
        if np.ndim(step):
            raise InvalidArgumentError(f"step must be scalar, got shape {list(np.shape(step))}")
        writer.require_open()
        writer.write(event(int(step), content(*inputs)))
        return ()

    return write


def _register(op: str, make: Callable[[OpKernelConstruction], _Content]) -> None:
    @register_kernel(op, kind=KernelKind.EXPENSIVE, is_expensive=True, handles=SummaryFile)
    def factory(construction: OpKernelConstruction) -> Kernel:
        return _writing(make(construction))


def _graph(construction: OpKernelConstruction) -> _Content:
    return lambda graph: delimited(_GRAPH, summaries.checked(scalar_string(graph, "tensor"), "tf.GraphDef"))


def _raw(construction: OpKernelConstruction) -> _Content:
    return lambda message: delimited(_SUMMARY, summaries.checked(scalar_string(message, "tensor"), "tf.Summary"))


def _tensor(construction: OpKernelConstruction) -> _Content:
    value = tensor_value(construction)
    return lambda tensor, tag, metadata: _of([value(tag, tensor, metadata, always=False)])


def _scalar(construction: OpKernelConstruction) -> _Content:
    def content(tag: object, value: Any) -> bytes:
        if np.ndim(value):
            raise InvalidArgumentError(f"value must be scalar, got shape {list(np.shape(value))}")
        return _of([summaries.scalar(scalar_string(tag, "tag"), float(value))])

    return content


def _histogram(construction: OpKernelConstruction) -> _Content:
    def content(tag: object, values: object) -> bytes:
        name = scalar_string(tag, "tag")
        return _of([summaries.histogram(name, values, name.decode(errors="replace"))])

    return content


def _images(construction: OpKernelConstruction) -> _Content:
    most = construction.attr("max_images")

    def content(tag: object, tensor: object, bad_color: Any) -> bytes:
        if np.ndim(bad_color) != 1:
            raise InvalidArgumentError(f"bad_color must be a vector, got shape {list(np.shape(bad_color))}")
        return _of(summaries.images(scalar_string(tag, "tag"), tensor, most, bad_color))

    return content


def _sounds(construction: OpKernelConstruction) -> _Content:
    most = construction.attr("max_outputs")
    return lambda tag, tensor, rate: _of(summaries.sounds(scalar_string(tag, "tag"), tensor, most, rate))


def _of(values: list[bytes]) -> bytes:
    return delimited(_SUMMARY, summaries.summary(values))


for _op, _make in (
    ("WriteGraphSummary", _graph),
    ("WriteRawProtoSummary", _raw),
    ("WriteSummary", _tensor),
    ("WriteScalarSummary", _scalar),
    ("WriteHistogramSummary", _histogram),
    ("WriteImageSummary", _images),
    ("WriteAudioSummary", _sounds),
):
    _register(_op, _make)
