"""Rows of start-up: what importing asyncexec, and its command, cost a fresh process beyond bare Python.

Modules have their bytecode, as those of an installed package have: it is written in a folder of the benchmark's own, by
a first process that is not timed.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import asyncexec as ax
from asyncexec.framework.clock import NS_PER_S, monotonic_ns
from benchmarks.measure import Contestant, Settings, alternate
from benchmarks.report import FLOOR, OURS, Benchmark, Row, Target

MAX_MS: Final = 350.0
ROUNDS: Final = 15
ROOT: Final = Path(__file__).parents[1]
COMMANDS: Final = {
    "import": ("-c", "import asyncexec"),
    "session": ("-c", "from asyncexec import Session"),
    "help": ("-m", "asyncexec", "--help"),
}


def measure_start(name: str, settings: Settings) -> Row:
    """A command in a fresh process, against one that does nothing."""
    with tempfile.TemporaryDirectory() as bytecode:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        _start(COMMANDS[name], environment)
        contestants = [_starting(OURS, COMMANDS[name], environment), _starting(FLOOR, ("-c", "pass"), environment)]
        times = ax.run(partial(alternate, contestants, settings, rounds=ROUNDS))
    milliseconds = {key: each.scaled(1000) for key, each in times.items()}
    over = [ours - bare for ours, bare in zip(milliseconds[OURS].values, milliseconds[FLOOR].values, strict=True)]
    target = Target(f"at most {MAX_MS:g} ms over bare Python", statistics.median(over), MAX_MS)
    return Row(f"start_{name}", "ms", milliseconds, (target,))


def _starting(name: str, arguments: Sequence[str], environment: Mapping[str, str]) -> Contestant:
    async def time_round() -> float:
        begun = monotonic_ns()
        _start(arguments, environment)
        return (monotonic_ns() - begun) / NS_PER_S

    return Contestant(name, time_round)


def _start(arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    subprocess.run([sys.executable, *arguments], cwd=ROOT, check=True, stdout=subprocess.DEVNULL, env=environment)


BENCHMARKS: Final = tuple(Benchmark(f"start_{name}", partial(measure_start, name)) for name in COMMANDS)
