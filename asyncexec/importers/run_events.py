"""What a run tells of itself, for TensorFlow's tools: RunMetadata as a protobuf message, and TensorBoard's event files.

An event file is a sequence of records, each an Event, framed as in ``tensorflow/core/lib/io/record_writer.h``: its
length in 8 bytes, a checksum of these, the bytes, a checksum of them; all numbers are little-endian.
"""

from __future__ import annotations

import itertools
import os
import socket
import struct
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, Protocol

from asyncexec.checkpoints.crc32c import crc32c, masked
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.graph_def import GraphDef
from asyncexec.framework.step_stats import NodeExecStats, NodeOutput, RunMetadata
from asyncexec.importers.files import make_folder, write_file
from asyncexec.importers.graph_formats import format_graph_def
from asyncexec.importers.proto_messages import proto_messages
from asyncexec.process.gc_pause import paused_gc

_VERSION: Final = "brain.Event:2"
_WRITER: Final = "asyncexec"
# Fields of NodeExecStats that are the same in both.
_SAME: Final = (
    "node_name",
    "all_start_micros",
    "op_start_rel_micros",
    "op_end_rel_micros",
    "all_end_rel_micros",
    "timeline_label",
    "scheduled_micros",
    "all_start_nanos",
    "op_start_rel_nanos",
    "op_end_rel_nanos",
    "all_end_rel_nanos",
    "scheduled_nanos",
)
_THREADS: Final = 2**32  # TensorFlow has room for so many
_file_numbers: Final = itertools.count()


class HasGraphDef(Protocol):
    """A Graph."""

    def as_graph_def(self) -> GraphDef: ...


def run_metadata_to_proto(metadata: RunMetadata) -> Any:
    """*metadata* as a protobuf message with TensorFlow's fields ``step_stats`` and ``partition_graphs``.

    Its class is of this package; TensorFlow's own reads the same bytes:
    ``tf.compat.v1.RunMetadata.FromString(message.SerializeToString())``.  What TensorFlow has no field for is left out:
    passes, and attempts, waits and failures of nodes.

    Raises:
        InvalidArgumentError: a partition graph has what no protobuf message can hold.
        MissingExtraError: extra ``tf`` is not installed.
    """
    message = proto_messages(packed=False).run_metadata()
    with paused_gc():
        for device in metadata.step_stats.dev_stats:
            names = {thread_id % _THREADS: name for thread_id, name in device.thread_names.items()}
            added = message.step_stats.dev_stats.add(device=device.device, thread_names=names)
            for stats in device.node_stats:
                _add_node(added.node_stats, stats)
        for graph in metadata.partition_graphs:
            message.partition_graphs.add().MergeFromString(format_graph_def(graph, "pb"))
    return message


def save_events(
    metadata: RunMetadata,
    logdir: str | os.PathLike[str],
    *,
    graph: HasGraphDef | GraphDef | None = None,
    tag: str = "run",
    step: int = 0,
) -> Path:
    """Write a new file in folder *logdir* that TensorBoard shows under Graphs; its path.

    With ``RunOptions(trace=True)`` the graph is shown with compute time and memory of its nodes, and with the devices
    that they ran on.

    Args:
        metadata: of a run.
        graph: what has run; it has to be in one of the files in *logdir*.
        tag: the name of the run in TensorBoard, different for each in *logdir*.
        step: the number of the run.

    Raises:
        InvalidArgumentError: *tag* is empty, or the graph has what no protobuf message can hold.
        NotFoundError, PermissionDeniedError: the file cannot be written.
        MissingExtraError: extra ``tf`` is not installed.
    """
    if not tag:
        raise InvalidArgumentError("tag is empty; TensorBoard names the run by it")
    folder = Path(logdir)
    now = time.time()
    new_event = proto_messages(packed=False).event
    events = [new_event(wall_time=now, file_version=_VERSION, source_metadata={"writer": _WRITER})]
    if graph is not None:
        graph_def = graph if isinstance(graph, GraphDef) else graph.as_graph_def()
        events.append(new_event(wall_time=now, step=step, graph_def=format_graph_def(graph_def, "pb")))
    run_metadata = run_metadata_to_proto(metadata).SerializeToString(deterministic=True)
    tagged = {"tag": tag, "run_metadata": run_metadata}
    events.append(new_event(wall_time=now, step=step, tagged_run_metadata=tagged))
    # TensorBoard reads the files of a folder in the order of their names.
    name = f"events.out.tfevents.{int(now):010d}.{socket.gethostname()}.{os.getpid()}.{next(_file_numbers)}"
    make_folder(folder)
    write_file(folder / name, b"".join(_records(event.SerializeToString() for event in events)), "to write events")
    return folder / name


def _add_node(node_stats: Any, stats: NodeExecStats) -> None:
    added = node_stats.add(
        thread_id=stats.thread_id % _THREADS,
        memory=[each.model_dump() for each in stats.memory],
        **{name: getattr(stats, name) for name in _SAME},
    )
    for output in stats.output:
        _add_output(added.output, output)


def _add_output(outputs: Any, output: NodeOutput) -> None:
    described = output.tensor_description
    shape = {
        "dim": [{"size": dim.size, "name": dim.name} for dim in described.shape.dim],
        "unknown_rank": described.shape.unknown_rank,
    }
    allocated = described.allocation_description
    tensor = {
        "dtype": described.dtype,
        "shape": shape,  # there for a scalar too: TensorBoard looks into it
        "allocation_description": None if allocated is None else allocated.model_dump(),
    }
    outputs.add(slot=output.slot, tensor_description=tensor)


def _records(events: Iterable[bytes]) -> Iterable[bytes]:
    for data in events:
        length = struct.pack("<Q", len(data))
        yield length + struct.pack("<I", masked(crc32c(length))) + data + struct.pack("<I", masked(crc32c(data)))
