"""A step's statistics become a timeline: a process a device, a row a thread, an event an execution."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from asyncexec.framework import types
from asyncexec.framework.chrome_trace import chrome_trace, row_names, write_chrome_trace
from asyncexec.framework.step_stats import AllocationDescription, NodeOutput, TensorDescription
from asyncexec.framework.tensor_proto import encode_shape
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import DType


@dataclass
class Stats:
    node_name: str
    all_start_nanos: int
    op_start_rel_nanos: int = 1_000
    op_end_rel_nanos: int = 6_500
    scheduled_nanos: int = 0
    thread_id: int = 0
    timeline_label: str = ""
    failure: str = ""
    output: list[NodeOutput] = field(default_factory=list)


@dataclass
class DeviceStats:
    device: str
    node_stats: list[Stats]
    thread_names: dict[int, str] = field(default_factory=dict)


@dataclass
class Step:
    dev_stats: list[DeviceStats] = field(default_factory=list)


CPU0, CPU1 = "/job:localhost/replica:0/task:0/device:CPU:0", "/job:localhost/replica:0/task:0/device:CPU:1"
LABEL = "y = MatMul(x, w)"
STEP = Step(
    [
        DeviceStats(
            CPU0,
            [
                Stats("x", 1_000_000_000),
                Stats("y", 1_000_010_250, thread_id=140, timeline_label=LABEL, scheduled_nanos=1_000_004_000),
            ],
            {0: "event loop"},
        ),
        DeviceStats(CPU1, [Stats("z", 1_000_020_000)]),
    ]
)


def executions(step: Step) -> list[dict[str, Any]]:
    return [event for event in chrome_trace(step)["traceEvents"] if event["ph"] == "X"]


def names(step: Step) -> dict[tuple[str, int, int], str]:
    named = [event for event in chrome_trace(step)["traceEvents"] if event["name"] in ("process_name", "thread_name")]
    return {(event["name"], event["pid"], event["tid"]): event["args"]["name"] for event in named}


def test_each_execution_is_one_event_in_time_from_the_first() -> None:
    events = executions(STEP)
    assert [(e["name"], e["pid"], e["tid"], e["ts"], e["dur"]) for e in events] == [
        ("x", 0, 0, 0, 5.5),
        ("MatMul", 0, 1, 10.25, 5.5),
        ("z", 1, 0, 20, 5.5),
    ]
    assert events[1]["args"] == {"name": "y", "op": "MatMul", "label": LABEL, "waited_micros": "6.25"}


def test_devices_and_threads_have_names() -> None:
    assert names(STEP) == {
        ("process_name", 0, 0): CPU0,
        ("thread_name", 0, 0): "event loop",
        ("thread_name", 0, 1): "thread 2",
        ("process_name", 1, 0): CPU1,
        ("thread_name", 1, 0): "thread 1",
    }


def test_what_overlaps_goes_into_lanes() -> None:
    spans = [(0, 10), (1, 3), (2, 8), (3, 4), (4, 4), (10, 12), (9, 11)]
    step = Step(
        [DeviceStats(CPU0, [Stats(f"{a}-{b}", a * 1000, 0, (b - a) * 1000) for a, b in spans], {0: "event loop"})]
    )
    events = executions(step)
    assert {e["name"]: e["tid"] for e in events} == {
        "0-10": 0,
        "1-3": 1,
        "2-8": 2,
        "3-4": 1,
        "4-4": 1,
        "9-11": 1,
        "10-12": 0,
    }
    rows = [[(e["ts"], e["ts"] + e["dur"]) for e in events if e["tid"] == row] for row in range(3)]
    assert all(before[1] <= after[0] for row in rows for before, after in pairwise(row))
    assert [name for (kind, _, _), name in names(step).items() if kind == "thread_name"] == [
        "event loop",
        "event loop, lane 2",
        "event loop, lane 3",
    ]


def test_what_gave_nothing_is_marked() -> None:
    stats = [
        Stats("a", 0, timeline_label="a = Ask(x)", failure="ValueError: no"),
        Stats("b", 9_000, failure="cancelled"),
    ]
    first, second = executions(Step([DeviceStats(CPU0, stats)]))
    assert (first["name"], first["args"]["failure"]) == ("Ask (failed)", "ValueError: no")
    assert (second["name"], second["args"]["failure"]) == ("b (cancelled)", "cancelled")


def output(dtype: DType, dims: list[int], num_bytes: int | None) -> NodeOutput:
    allocated = None if num_bytes is None else AllocationDescription(allocated_bytes=num_bytes)
    shape = encode_shape(TensorShape(dims))
    return NodeOutput(
        tensor_description=TensorDescription(dtype=dtype.enum, shape=shape, allocation_description=allocated)
    )


def test_what_it_gave_is_told() -> None:
    gave = [output(types.float32, [2, 3], 24), output(types.resource, [], None), output(types.int64, [], 8)]
    first, second = executions(Step([DeviceStats(CPU0, [Stats("a", 0, output=gave), Stats("b", 9_000)])]))
    assert first["args"]["outputs"] == "DT_FLOAT[2,3], DT_RESOURCE[], DT_INT64[]"
    assert first["args"]["output_bytes"] == 32
    assert not {"outputs", "output_bytes"} & second["args"].keys()


def test_an_empty_step_is_an_empty_timeline(tmp_path: Path) -> None:
    write_chrome_trace(Step(), tmp_path / "t.json")
    assert json.loads((tmp_path / "t.json").read_text()) == {"traceEvents": [], "displayTimeUnit": "ns"}


def arrows(step: Step) -> list[tuple[int, int, float, float]]:
    """From which process to which, and when each arrow begins and ends."""
    events = chrome_trace(step)["traceEvents"]
    begun = {event["id"]: event for event in events if event["ph"] == "s"}
    ended = {event["id"]: event for event in events if event["ph"] == "f"}
    assert begun.keys() == ended.keys()
    return [(begun[id_]["pid"], ended[id_]["pid"], begun[id_]["ts"], ended[id_]["ts"]) for id_ in begun]


def test_an_arrow_leads_from_a_send_to_its_recv() -> None:
    def send(number: int, start: int) -> Stats:
        return Stats(f"y/_{number}", start, 0, 2_000, timeline_label=f"y/_{number} = _Send(y:0)")

    def recv(number: int, start: int, end_rel: int) -> Stats:
        return Stats(f"y/_{number}", start, 0, end_rel, timeline_label=f"y/_{number} = _Recv()")

    worker = "/job:worker/replica:0/task:1/device:CPU:0"
    two_crossings = [
        DeviceStats(CPU0, [send(4, 1_000), send(4, 8_000), send(8, 9_000), recv(7, 1_000, 19_000)]),
        DeviceStats(worker, [recv(5, 1_000, 4_000), recv(5, 6_000, 5_000), send(6, 15_000)]),
    ]
    # In microseconds from the first; the second Send of y/_4 is received second, and nothing receives y/_8.
    assert arrows(Step(two_crossings)) == [(0, 1, 0, 3.999), (0, 1, 7, 9.999), (1, 0, 14, 18.999)]


def test_a_send_that_ran_more_often_than_its_recv_has_no_arrow() -> None:
    sends = [Stats("y/_0", start, timeline_label="y/_0 = _Send(y:0)") for start in (1_000, 2_000)]
    recv = Stats("y/_1", 3_000, timeline_label="y/_1 = _Recv()")
    assert arrows(Step([DeviceStats(CPU0, sends), DeviceStats(CPU1, [recv])])) == []


def test_rows_are_called_by_their_devices_where_there_are_several() -> None:
    worker = "/job:worker/replica:0/task:1/device:CPU:0"
    here = DeviceStats(CPU0, [Stats("x", 1_000)], {0: "event loop"})
    there = DeviceStats(worker, [Stats("y", 1_000)], {0: "event loop"})
    assert row_names(chrome_trace(Step([here]))["traceEvents"]) == {(0, 0): "event loop"}
    found = row_names(chrome_trace(Step([here, there]))["traceEvents"])
    assert found == {(0, 0): "CPU:0 event loop", (1, 0): "worker:1 CPU:0 event loop"}
