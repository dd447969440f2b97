"""Rows of models and memory: the most that a process ever has in memory that loads one and runs it.

Each figure is that of a process of its own, with all that it imports: ``python -m benchmarks.model_memory CONTESTANT
NAME BATCH`` is one, and prints it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import asyncexec as ax
from asyncexec.framework.extras import is_installed
from benchmarks import tensorflow_session
from benchmarks.measure import Settings, Times, ratios
from benchmarks.memory_probe import peak_bytes
from benchmarks.models import MODELS, OWN_KERNELS, Files, files_of, open_ours, open_tensorflow
from benchmarks.report import OURS, TENSORFLOW, Benchmark, Row, Target

ROOT: Final = Path(__file__).parents[1]
BATCHES: Final = (1, 16)
RUNS: Final = 12  # ONNX Runtime is measured against our own kernels by then
BYTES_PER_MB: Final = 1e6


def measure(name: str, batch: int, settings: Settings) -> Row:
    """The peaks, ours with ONNX Runtime where it is installed, and without it."""
    files_of(name, batch)  # else the first process would build them
    names = [OURS, *((OWN_KERNELS,) if is_installed("onnxruntime") else ())]
    if tensorflow_session.takes_part(settings):
        names.append(TENSORFLOW)
    peaks = {each: Times((_peak(each, name, batch),)) for each in names}
    targets = []
    for each in names:
        if each != TENSORFLOW:
            found = ratios(peaks[each], [peaks[TENSORFLOW]] if TENSORFLOW in peaks else [])
            text = "at most TensorFlow's" if each == OURS else "own kernels at most TensorFlow's"
            targets.append(Target(text, None if found is None else found[0], 1.0))
    return Row(_named(name, batch), "MB", peaks, tuple(targets))


def _named(name: str, batch: int) -> str:
    return f"memory_model_{name}_{batch}"


def _peak(contestant: str, name: str, batch: int) -> float:
    command = [sys.executable, "-m", "benchmarks.model_memory", contestant, name, str(batch)]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return int(done.stdout.splitlines()[-1]) / BYTES_PER_MB


async def _run_ours(files: Files, *, is_alone: bool) -> None:
    session = await open_ours(files, is_alone=is_alone)
    async with session:
        for _ in range(RUNS):
            await session.run(files.gives, {files.takes: files.given})


async def _run_tensorflow(files: Files) -> None:
    run = open_tensorflow(files)
    for _ in range(RUNS):
        run()


_CONTESTANTS: Final[dict[str, Callable[[Files], Awaitable[Any]]]] = {
    OURS: partial(_run_ours, is_alone=False),
    OWN_KERNELS: partial(_run_ours, is_alone=True),
    TENSORFLOW: _run_tensorflow,
}
BENCHMARKS: Final = tuple(
    Benchmark(_named(name, batch), partial(measure, name, batch), is_long=True) for name in MODELS for batch in BATCHES
)


def main() -> None:
    """Prints the peak of this process, in bytes."""
    contestant, name, batch = sys.argv[1:]
    ax.run(partial(_CONTESTANTS[contestant], files_of(name, int(batch))))
    print(peak_bytes())


if __name__ == "__main__":
    main()
