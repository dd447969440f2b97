"""Rows of memory: what a process keeps, per node, of a graph of 100,000 nodes after import and first run.

Each figure is that of a fresh process (:mod:`benchmarks.memory_probe`), from before the GraphDef was there until after
it has been dropped.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, Final

import asyncexec as ax
from benchmarks import tensorflow_session
from benchmarks.graphs import SHAPES
from benchmarks.measure import Settings, Times
from benchmarks.report import OURS, TENSORFLOW, TENSORFLOW_PLAIN, Benchmark, Row, Target

NUM_NODES: Final = 100_000
MAX_KB: Final = 7.0
ROOT: Final = Path(__file__).parents[1]


def measure_memory(shape: str, settings: Settings) -> Row:
    """Kilobytes a node, with TensorFlow's beside ours, its optimizer off, if all is to be measured."""
    found = {OURS: _probe(OURS, shape)}
    if tensorflow_session.takes_part(settings) and settings.is_full:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "graph.pb"
            ax.save_graph_def(SHAPES[shape](NUM_NODES).graph_def, path)
            found[TENSORFLOW_PLAIN] = _probe(TENSORFLOW, shape, str(path))
    kept = {name: Times((each["kept"] / NUM_NODES / 1024,)) for name, each in found.items()}
    notes = tuple(
        f"{name}: import and first run add {each['import'] / NUM_NODES / 1024:.2f} KB a node to the GraphDef,"
        f" {each['peak'] / NUM_NODES / 1024:.2f} KB at the peak"
        for name, each in found.items()
    )
    target = Target(f"at most {MAX_KB:g} KB, TensorFlow's", kept[OURS].median, MAX_KB)
    return Row(f"memory_{shape}_{NUM_NODES}", "KB a node", kept, (target,), notes)


def _probe(what: str, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.memory_probe", what, str(NUM_NODES), *arguments]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


BENCHMARKS: Final = tuple(
    Benchmark(f"memory_{shape}_{NUM_NODES}", partial(measure_memory, shape), is_long=True) for shape in SHAPES
)
