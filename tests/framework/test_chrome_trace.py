"""A step's statistics become a timeline: a process a device, a row a thread, an event an execution."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from asyncexec.framework.chrome_trace import chrome_trace, write_chrome_trace


@dataclass
class Stats:
    node_name: str
    all_start_micros: int
    op_start_rel_micros: int = 1
    op_end_rel_micros: int = 6
    all_end_rel_micros: int = 7
    scheduled_micros: int = 0
    thread_id: int = 0
    timeline_label: str = ""


@dataclass
class DeviceStats:
    device: str
    node_stats: list[Stats]
    thread_names: dict[int, str] = field(default_factory=dict)


@dataclass
class Step:
    dev_stats: list[DeviceStats] = field(default_factory=list)


CPU0, CPU1 = "/job:localhost/replica:0/task:0/device:CPU:0", "/job:localhost/replica:0/task:0/device:CPU:1"
STEP = Step(
    [
        DeviceStats(
            CPU0,
            [
                Stats("x", 1_000_000),
                Stats("y", 1_000_010, thread_id=140_000, timeline_label="y = MatMul(x, w)", scheduled_micros=1_000_004),
            ],
            {0: "event loop"},
        ),
        DeviceStats(CPU1, [Stats("z", 1_000_020)]),
    ]
)


def test_each_execution_is_one_event_in_time_from_the_first() -> None:
    events = [event for event in chrome_trace(STEP)["traceEvents"] if event["ph"] == "X"]
    assert [(e["name"], e["pid"], e["tid"], e["ts"], e["dur"]) for e in events] == [
        ("x", 0, 0, 1, 5),
        ("MatMul", 0, 1, 11, 5),
        ("z", 1, 0, 21, 5),
    ]
    assert events[1]["args"] == {"name": "y", "op": "MatMul", "label": "y = MatMul(x, w)", "waited_micros": "6"}


def test_devices_and_threads_have_names() -> None:
    names = {
        (e["name"], e["pid"], e["tid"]): e["args"]["name"] for e in chrome_trace(STEP)["traceEvents"] if e["ph"] == "M"
    }
    assert names == {
        ("process_name", 0, 0): CPU0,
        ("thread_name", 0, 0): "event loop",
        ("thread_name", 0, 1): "thread 140000",
        ("process_name", 1, 0): CPU1,
        ("thread_name", 1, 0): "thread 0",
    }


def test_an_empty_step_is_an_empty_timeline(tmp_path: Path) -> None:
    write_chrome_trace(Step(), tmp_path / "t.json")
    assert json.loads((tmp_path / "t.json").read_text()) == {"traceEvents": [], "displayTimeUnit": "ms"}
