"""When the nodes of a traced call ran, as rows of a picture."""

from __future__ import annotations

from typing import Any, Final

from asyncexec.framework.chrome_trace import chrome_trace, row_names
from asyncexec.framework.step_stats import RunMetadata

MOST_EXECUTIONS: Final = 500  # those that took longest
MOST_ROWS: Final = 32


def timeline(metadata: RunMetadata) -> dict[str, Any]:
    """The executions of *metadata*: rows by their labels, and in each what ran when, in microseconds."""
    events = chrome_trace(metadata.step_stats)["traceEvents"]
    names = row_names(events)
    executions = [event for event in events if event["ph"] == "X"]
    longest = sorted(executions, key=lambda event: -event["dur"])[:MOST_EXECUTIONS]
    rows = sorted({(event["pid"], event["tid"]) for event in longest})[:MOST_ROWS]
    position = {row: i for i, row in enumerate(rows)}
    shown = [event for event in longest if (event["pid"], event["tid"]) in position]
    shown.sort(key=lambda event: event["ts"])
    return {
        "rows": [names[row] for row in rows],
        "executions": [
            {
                "row": position[event["pid"], event["tid"]],
                "node": event["args"]["name"],
                "op": event["args"]["op"],
                "outputs": event["args"].get("outputs", ""),
                "failure": event["args"].get("failure", ""),
                "start_us": event["ts"],
                "took_us": event["dur"],
            }
            for event in shown
        ],
        "end_us": max((event["ts"] + event["dur"] for event in executions), default=0.0),
        "left_out": len(executions) - len(shown),
    }
