"""Rows of models and the event loop: how late a 1 ms ticker is while a model loads, runs first and runs on.

A model is read on a thread: see ``ax.Model.load``.  Its first run is that of a fresh session; ONNX Runtime, where it
is installed, loads its parts behind that, and is measured behind the runs that follow.
"""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
from functools import partial
from typing import Final

import asyncexec as ax
from benchmarks.event_loop import MAX_LAG_MS, lags
from benchmarks.measure import Settings, Times
from benchmarks.model_memory import ROOT
from benchmarks.models import MODELS, files_of
from benchmarks.report import FLOOR, OURS, Benchmark, Row, Target

REPEATS: Final = 5
RUNS: Final = 30
PHASES: Final = ("load", "first run", "runs")
ALONE: Final = "alone"


def measure(name: str, settings: Settings) -> Row:
    """The lag at the 99th percentile, by phase; the row tells the longest of them."""
    files_of(name, 1)  # else the process would build them
    command = [sys.executable, "-m", "benchmarks.model_ticker", name, str(settings.rounds(REPEATS))]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    found_by_phase = json.loads(done.stdout.splitlines()[-1])
    alone = Times(tuple(found_by_phase.pop(ALONE)))
    busy = {phase: Times(tuple(values)) for phase, values in found_by_phase.items()}
    highest = {phase: found.percentile(99) for phase, found in busy.items()}
    notes = [
        f"{phase}: 50th {found.median:.2f}, 99th {highest[phase]:.2f}, most {max(found.values):.2f} ms over"
        f" {len(found.values)} ticks"
        for phase, found in busy.items()
    ]
    targets = [Target(f"{phase}: at most {MAX_LAG_MS:g} ms", highest[phase], MAX_LAG_MS) for phase in PHASES]
    times = {OURS: Times((max(highest.values()),)), FLOOR: Times((alone.percentile(99),))}
    return Row(f"ticker_model_{name}", "ms lag, 99th", times, tuple(targets), tuple(notes))


async def _lags(name: str, repeats: int) -> dict[str, list[float]]:
    """The lags in milliseconds, by phase."""
    files = files_of(name, 1)
    found: dict[str, list[float]] = {phase: [] for phase in PHASES}
    found[ALONE] = await lags(partial(asyncio.sleep, 0.5))
    for _ in range(repeats):
        gc.collect()  # what the session before has left; a full collection takes 15 to 100 ms of these processes
        model = ax.load_model(files.graph, allowed_ops=("VarHandleOp",))
        found["load"] += await lags(model.load)
        async with ax.Session(model.graph) as session:
            if files.initializer is not None:
                await session.run([], targets=[files.initializer])
            run = partial(session.run, files.gives, {files.takes: files.given})

            async def run_on(run: partial[object] = run) -> None:
                for _ in range(RUNS):
                    await run()
                    await asyncio.sleep(0)  # a run that waits for nothing does not suspend

            found["first run"] += await lags(run)
            found["runs"] += await lags(run_on)
    return found


BENCHMARKS: Final = tuple(Benchmark(f"ticker_model_{name}", partial(measure, name), is_long=True) for name in MODELS)


def main() -> None:
    """Print the lags of a model, as one line of JSON."""
    name, repeats = sys.argv[1:]
    print(json.dumps(asyncio.run(_lags(name, int(repeats)))))


if __name__ == "__main__":
    main()
