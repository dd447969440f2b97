"""StepStats as a Chrome trace, which chrome://tracing and ui.perfetto.dev show as a timeline.

The format is the JSON array of the "Trace Event Format": one process (``pid``) a device, one row (``tid``) a thread,
one complete event (``ph`` of ``X``, microseconds) an execution.  Fields of the statistics are those of
``tensorflow/core/framework/step_stats.proto``; times begin at the step's first execution.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol


class NodeExecStatsLike(Protocol):
    """What a timeline needs to know of one execution of a node; ``op_*`` are relative to ``all_start_micros``."""

    @property
    def node_name(self) -> str: ...
    @property
    def all_start_micros(self) -> int: ...
    @property
    def op_start_rel_micros(self) -> int: ...
    @property
    def op_end_rel_micros(self) -> int: ...
    @property
    def all_end_rel_micros(self) -> int: ...
    @property
    def scheduled_micros(self) -> int: ...
    @property
    def thread_id(self) -> int: ...
    @property
    def timeline_label(self) -> str: ...


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
    begin = min((stats.all_start_micros for device in devices for stats in device.node_stats), default=0)
    events = [event for pid, device in enumerate(devices) for event in _device_events(device, pid, begin)]
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _device_events(device: DeviceStepStatsLike, pid: int, begin: int) -> Iterator[dict[str, Any]]:
    yield _name("process_name", device.device, pid)
    thread_ids = dict.fromkeys(stats.thread_id for stats in device.node_stats)
    rows = {thread_id: row for row, thread_id in enumerate(thread_ids)}
    for thread_id, row in rows.items():
        yield _name("thread_name", device.thread_names.get(thread_id, f"thread {thread_id}"), pid, row)
    for stats in device.node_stats:
        yield _execution(stats, pid, rows[stats.thread_id], begin)


def _name(what: str, name: str, pid: int, tid: int = 0) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}


def _execution(stats: NodeExecStatsLike, pid: int, row: int, begin: int) -> dict[str, Any]:
    start = stats.all_start_micros + stats.op_start_rel_micros
    op = _op_of_label(stats.timeline_label)
    args = {"name": stats.node_name, "op": op, "label": stats.timeline_label}
    if stats.scheduled_micros:
        args["waited_micros"] = str(max(0, stats.all_start_micros - stats.scheduled_micros))
    return {
        "ph": "X",
        "cat": "Op",
        "name": op or stats.node_name,
        "pid": pid,
        "tid": row,
        "ts": start - begin,
        "dur": max(0, stats.op_end_rel_micros - stats.op_start_rel_micros),
        "args": args,
    }


def _op_of_label(label: str) -> str:
    """``MatMul`` of TensorFlow's ``y = MatMul(x, w)``; empty when the label is of another form."""
    _, equals, call = label.partition(" = ")
    return call.partition("(")[0] if equals else ""
