"""StepStats as a Chrome trace, which ui.perfetto.dev and chrome://tracing show as a timeline.

The format is the JSON array of the "Trace Event Format": one process (``pid``) a device, one complete event (``ph`` of
``X``) an execution, times in microseconds with fractions, from the step's first execution on.  Events of one row
(``tid``) must not overlap, but the nodes that are awaited in one thread do: each takes the first row of its thread, a
*lane*, that is free.  A value that goes to another device is an arrow (flow events, ``ph`` of ``s`` and ``f``) from its
Send to its Recv, which the partitioner names with numbers that follow each other.  Fields of the statistics are those
of ``tensorflow/core/framework/step_stats.proto``.
"""

from __future__ import annotations

import heapq
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from asyncexec.framework.lazy_module import LazyModule

if TYPE_CHECKING:
    from asyncexec.framework.tensor_protos import TensorShapeProto

SORT: Final = "thread_sort_index"
_SENDS: Final = frozenset({"_Send", "_HostSend"})
_RECVS: Final = frozenset({"_Recv", "_HostRecv"})
_NUMBERED: Final = re.compile(r"(.*/_)(\d+)", re.DOTALL)
_DEVICE: Final = re.compile(r"/job:([^/]+)(?:/replica:\d+)?/task:(\d+)/device:(.+)", re.DOTALL)
_END_US: Final = 0.001  # an arrow leads to the last nanosecond of a Recv: its end is outside
_wire_types: Final = LazyModule("asyncexec.framework.wire_types")  # the command's help needs no numpy


class AllocationLike(Protocol):
    """The bytes of a tensor."""

    @property
    def allocated_bytes(self) -> int: ...


class TensorLike(Protocol):
    """A tensor without its values."""

    @property
    def dtype(self) -> int: ...
    @property
    def shape(self) -> TensorShapeProto: ...
    @property
    def allocation_description(self) -> AllocationLike | None: ...


class NodeOutputLike(Protocol):
    """An output of an execution."""

    @property
    def tensor_description(self) -> TensorLike: ...


class NodeExecStatsLike(Protocol):
    """What a timeline needs to know of one execution of a node; ``op_*`` are relative to ``all_start_nanos``."""

    @property
    def node_name(self) -> str: ...
    @property
    def all_start_nanos(self) -> int: ...
    @property
    def op_start_rel_nanos(self) -> int: ...
    @property
    def op_end_rel_nanos(self) -> int: ...
    @property
    def scheduled_nanos(self) -> int: ...
    @property
    def thread_id(self) -> int: ...
    @property
    def timeline_label(self) -> str: ...
    @property
    def failure(self) -> str: ...
    @property
    def output(self) -> Sequence[NodeOutputLike]: ...


class DeviceStepStatsLike(Protocol):
    """The executions of one device."""

    @property
    def device(self) -> str: ...
    @property
    def node_stats(self) -> Sequence[NodeExecStatsLike]: ...
    @property
    def thread_names(self) -> Mapping[int, str]: ...


class StepStatsLike(Protocol):
    """The executions of one step."""

    @property
    def dev_stats(self) -> Sequence[DeviceStepStatsLike]: ...


def write_chrome_trace(step_stats: StepStatsLike, path: str | os.PathLike[str]) -> None:
    """Write *step_stats* as the timeline at *path*."""
    Path(path).write_text(json.dumps(chrome_trace(step_stats)), encoding="utf-8")


def chrome_trace(step_stats: StepStatsLike) -> dict[str, Any]:
    """*step_stats* as the object that a Chrome trace file holds."""
    devices = step_stats.dev_stats
    begin = min((_start_ns(stats) for device in devices for stats in device.node_stats), default=0)
    events = [event for pid, device in enumerate(devices) for event in _device_events(device, pid, begin)]
    return {"traceEvents": [*events, *_arrows(events)], "displayTimeUnit": "ns"}


def device_label(device: str) -> str:
    """A short name of *device*: ``CPU:0``, or ``worker:1 CPU:0`` where it is of another process."""
    parsed = _DEVICE.fullmatch(device)
    if parsed is None:
        return device
    job, task, kind = parsed.groups()
    return kind if job == "localhost" else f"{job}:{task} {kind}"


def row_names(events: Sequence[Mapping[str, Any]]) -> dict[tuple[int, int], str]:
    """What the rows of a trace are called, by ``pid`` and ``tid``; with their devices where there are several."""
    devices = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    threads = {
        (event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"
    }
    if len(devices) <= 1:
        return threads
    return {row: f"{device_label(devices[row[0]])} {name}" for row, name in threads.items()}


def _start_ns(stats: NodeExecStatsLike) -> int:
    return stats.all_start_nanos + stats.op_start_rel_nanos


def _end_ns(stats: NodeExecStatsLike) -> int:
    return max(_start_ns(stats), stats.all_start_nanos + stats.op_end_rel_nanos)


def _device_events(device: DeviceStepStatsLike, pid: int, begin: int) -> Iterator[dict[str, object]]:
    yield _name("process_name", device.device, pid)
    by_thread: dict[int, list[NodeExecStatsLike]] = {}
    for stats in device.node_stats:
        by_thread.setdefault(stats.thread_id, []).append(stats)
    row = 0
    for number, (thread_id, executions) in enumerate(by_thread.items(), 1):
        thread = device.thread_names.get(thread_id, f"thread {number}")
        for lane, events in enumerate(_lanes(executions)):
            yield _name("thread_name", f"{thread}, lane {lane + 1}" if lane else thread, pid, row)
            yield _name(SORT, row, pid, row)
            for stats in events:
                yield _execution(stats, pid, row, begin)
            row += 1


def _arrows(events: Iterable[dict[str, Any]]) -> Iterator[dict[str, object]]:
    """The flow events between Sends and their Recvs among *events*; none where one of both did not run as often."""
    sends: dict[str, list[dict[str, Any]]] = {}
    recvs: dict[str, list[dict[str, Any]]] = {}
    for event in events:
        if event.get("cat") == "Op":
            op, name = event["args"]["op"], event["args"]["name"]
            if op in _SENDS:
                sends.setdefault(name, []).append(event)
            elif op in _RECVS:
                recvs.setdefault(name, []).append(event)
    number = 0
    for name, sent in sends.items():
        numbered = _NUMBERED.fullmatch(name)
        received = () if numbered is None else recvs.get(f"{numbered[1]}{int(numbered[2]) + 1}", ())
        if len(sent) != len(received):
            continue
        for send, recv in zip(sorted(sent, key=_ts), sorted(received, key=_end_ts), strict=True):
            number += 1
            flow = {"cat": "Crossing", "name": "crossing", "id": number}
            end = max(send["ts"], recv["ts"], _end_ts(recv) - _END_US)
            yield flow | {"ph": "s", "pid": send["pid"], "tid": send["tid"], "ts": send["ts"]}
            yield flow | {"ph": "f", "bp": "e", "pid": recv["pid"], "tid": recv["tid"], "ts": end}


def _ts(event: dict[str, Any]) -> float:
    ts: float = event["ts"]
    return ts


def _end_ts(event: dict[str, Any]) -> float:
    end: float = event["ts"] + event["dur"]
    return end


def _lanes(executions: Sequence[NodeExecStatsLike]) -> list[list[NodeExecStatsLike]]:
    """*executions* by the rows that they go into, such that no two of a row overlap."""
    lanes: list[list[NodeExecStatsLike]] = []
    free: list[int] = []  # lanes, the first one first
    taken: list[tuple[int, int]] = []  # until when, and the lane, the earliest end first
    for stats in sorted(executions, key=_start_ns):
        while taken and taken[0][0] <= _start_ns(stats):
            heapq.heappush(free, heapq.heappop(taken)[1])
        if not free:
            free.append(len(lanes))
            lanes.append([])
        lane = heapq.heappop(free)
        lanes[lane].append(stats)
        heapq.heappush(taken, (_end_ns(stats), lane))
    return lanes


def _name(what: str, name: str | int, pid: int, tid: int = 0) -> dict[str, object]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"sort_index" if what == SORT else "name": name}}


def _execution(stats: NodeExecStatsLike, pid: int, row: int, begin: int) -> dict[str, object]:
    start = _start_ns(stats)
    op = _op_of_label(stats.timeline_label)
    args: dict[str, object] = {"name": stats.node_name, "op": op, "label": stats.timeline_label}
    if stats.scheduled_nanos:
        args["waited_micros"] = f"{max(0, stats.all_start_nanos - stats.scheduled_nanos) / 1000:g}"
    if stats.output:
        tensors = [each.tensor_description for each in stats.output]
        args["outputs"] = ", ".join(map(_shown, tensors))
        allocated = (each.allocation_description for each in tensors)
        args["output_bytes"] = sum(each.allocated_bytes for each in allocated if each is not None)
    name = op or stats.node_name
    event = {
        "ph": "X",
        "cat": "Op",
        "name": name,
        "pid": pid,
        "tid": row,
        "ts": (start - begin) / 1000,
        "dur": (_end_ns(stats) - start) / 1000,
        "args": args,
    }
    if stats.failure:
        args["failure"] = stats.failure
        event |= {"name": f"{name} ({'cancelled' if stats.failure == 'cancelled' else 'failed'})", "cname": "terrible"}
    return event


def _shown(tensor: TensorLike) -> str:
    """``DT_FLOAT[2,3]``."""
    return f"{_wire_types.DATA_TYPES.write(tensor.dtype)}[{','.join(str(dim.size) for dim in tensor.shape.dim)}]"


def _op_of_label(label: str) -> str:
    """``MatMul`` of TensorFlow's ``y = MatMul(x, w)``; empty when the label is of another form."""
    _, equals, call = label.partition(" = ")
    return call.partition("(")[0] if equals else ""
