"""The memory of this process before and after import and first run, as one line of JSON.

``python -m benchmarks.memory_probe asyncexec NUM_NODES SHAPE`` and
``python -m benchmarks.memory_probe TensorFlow NUM_NODES SHAPE FILE.pb``; benchmarks.memory starts it.
"""

from __future__ import annotations

import gc
import json
import resource
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import asyncexec as ax
from benchmarks import tensorflow_session
from benchmarks.graphs import SHAPES, TimedGraph
from benchmarks.report import OURS

STATUS: Final = Path("/proc/self/status")
WARM_UP_NODES: Final = 10


def resident_bytes() -> int:
    """What this process has in memory now, after a collection."""
    gc.collect()
    return _status("VmRSS")


def peak_bytes() -> int:
    """The most that this process ever had in memory; getrusage would tell that of the process that started it."""
    return _status("VmHWM")


def _status(field: str) -> int:
    if not STATUS.exists():
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # the next best thing, in bytes on macOS
        return peak if sys.platform == "darwin" else peak * 1024
    lines = STATUS.read_text(encoding="ascii", errors="replace").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


async def growth(make: Callable[[], Any], first_run: Callable[[Any], Awaitable[Any]]) -> dict[str, int]:
    """What making a GraphDef, and importing and running it, adds to this process; ``kept`` is without the GraphDef."""
    start = resident_bytes()
    made = make()
    loaded = resident_bytes()
    session = await first_run(made)
    finished = resident_bytes()
    del made
    kept = resident_bytes()
    close = session.close()
    if close is not None:
        await close
    return {"import": finished - loaded, "kept": kept - start, "peak": peak_bytes() - start}


async def probe_ours(num_nodes: int, shape: str) -> dict[str, int]:
    """The figures of asyncexec."""

    async def first_run(timed: TimedGraph) -> ax.Session:
        session = ax.Session(timed.imported())
        await session.run(timed.fetches, timed.feeds)
        return session

    await (await first_run(SHAPES[shape](WARM_UP_NODES))).close()
    return await growth(partial(SHAPES[shape], num_nodes), first_run)


async def probe_tensorflow(num_nodes: int, shape: str, path: str) -> dict[str, int]:
    """The figures of TensorFlow with its optimizer off, of the same graph in a file."""
    feeds = SHAPES[shape](WARM_UP_NODES).feeds

    async def first_run(graph_def: Any) -> Any:
        session = tensorflow_session.open_session(graph_def, is_optimizing=False)
        session.run(f"{graph_def.node[-1].name}:0", feeds)
        return session

    (await first_run(tensorflow_session.read(SHAPES[shape](WARM_UP_NODES).wire))).close()
    return await growth(lambda: tensorflow_session.read(Path(path).read_bytes()), first_run)


def main() -> None:
    """Prints the figures that the command line asks for."""
    what, num_nodes, *arguments = sys.argv[1:]
    probe = probe_ours if what == OURS else probe_tensorflow
    print(json.dumps(ax.run(partial(probe, int(num_nodes), *arguments))))


if __name__ == "__main__":
    main()
