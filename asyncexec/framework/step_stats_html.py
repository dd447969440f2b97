"""What notebooks show of RunMetadata: a timeline, as SVG without a script; and its line of text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from asyncexec.framework.chrome_trace import chrome_trace, device_label
from asyncexec.framework.html import ACCENT, card, rect, shortened, svg, text

if TYPE_CHECKING:
    from asyncexec.framework.step_stats import RunMetadata

MAX_EXECUTIONS: Final = 500  # in the timeline: the longest
MAX_ROWS: Final = 24
WIDTH: Final = 900
NAMES_WIDTH: Final = 170
ROW_HEIGHT: Final = 22
_FAILED: Final = "#c9372c"


def described(metadata: RunMetadata) -> str:
    """What is in *metadata*, in a line."""
    return f"<ax.RunMetadata: {', '.join(_contents(metadata))}>"


def metadata_html(metadata: RunMetadata) -> str:
    """The HTML of *metadata*: what is in it, and when each node ran."""
    title = f"RunMetadata: {', '.join(_contents(metadata))}"
    events = chrome_trace(metadata.step_stats)["traceEvents"]
    executions = [event for event in events if event["ph"] == "X"]
    if not executions:
        return card(title, {"timeline": "none: the run was without RunOptions(trace=True)"})
    shown = sorted(executions, key=lambda event: event["dur"], reverse=True)[:MAX_EXECUTIONS]
    rows = sorted({(event["pid"], event["tid"]) for event in shown})
    names = {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}
    devices = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    labels = {row: f"{device_label(devices[row[0]])} {names[row]}" for row in rows[:MAX_ROWS]}
    left_out = len(executions) - sum((event["pid"], event["tid"]) in labels for event in shown)
    facts = {"left out": f"{left_out:,} executions, the shortest"} if left_out else {}
    height = (len(labels) + 1) * ROW_HEIGHT
    return card(title, facts, svg(WIDTH, height, "when each node ran", _timeline(shown, labels, height)))


def _contents(metadata: RunMetadata) -> Iterator[str]:
    devices = metadata.step_stats.dev_stats
    executions = [stats for device in devices for stats in device.node_stats]
    if executions:
        begin = min(stats.all_start_nanos + stats.op_start_rel_nanos for stats in executions)
        end = max(stats.all_start_nanos + stats.op_end_rel_nanos for stats in executions)
        where = _count(len(devices), "device")
        yield f"{_count(len(executions), 'execution')} on {where} in {(end - begin) / 1e6:.3g} ms"
        failed = sum(bool(stats.failure) for stats in executions)
        if failed:
            yield f"{failed:,} failed"
    else:
        yield "not traced"
    if metadata.passes:
        yield _count(len(metadata.passes), "pass", "passes")
    if metadata.partition_graphs:
        yield _count(len(metadata.partition_graphs), "partition graph")


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _timeline(
    events: Sequence[Mapping[str, Any]], labels: Mapping[tuple[int, int], str], height: float
) -> Iterator[str]:
    end = max(event["ts"] + event["dur"] for event in events) or 1.0
    scale = (WIDTH - NAMES_WIDTH - 8) / end
    tops = {row: index * ROW_HEIGHT for index, row in enumerate(labels)}
    for row, label in labels.items():
        yield text(NAMES_WIDTH - 8, tops[row] + 15, shortened(label), 'text-anchor="end"')
    for event in events:
        row = event["pid"], event["tid"]
        if row not in tops:
            continue
        x, width = NAMES_WIDTH + event["ts"] * scale, max(1.0, event["dur"] * scale)
        color = _FAILED if "failure" in event["args"] else ACCENT
        title = f"{event['args']['name']}\n{event['name']}: {event['dur']:g} µs from {event['ts']:g} µs on"
        yield rect(x, tops[row] + 3, width, ROW_HEIGHT - 6, title, f'fill="{color}" fill-opacity=".55"')
        if width > 7 * len(event["name"]):
            yield text(x + width / 2, tops[row] + 15, event["name"])
    yield text(NAMES_WIDTH, height - 6, "0", 'text-anchor="start" fill-opacity=".7"')
    yield text(WIDTH - 8, height - 6, f"{end / 1000:.3g} ms", 'text-anchor="end" fill-opacity=".7"')
