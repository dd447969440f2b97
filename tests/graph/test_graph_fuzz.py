"""Whatever graph a stranger writes: it runs, or gets an OpError, and the session is as good as before.

``tests/graph/graph_fuzz.py`` makes the graphs, of every op that there is; it tells how to run more of them.
"""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.graph.graph_fuzz import Report, fuzzed_ops, run_cases
from tests.running import import_all_names

ROOT = Path(__file__).parents[2]
PARTS = 8


@pytest.fixture(scope="module")
def ops() -> list[str]:
    import_all_names()
    return fuzzed_ops()


def part_of(ops: list[str], part: int) -> list[str]:
    return ops[part::PARTS]


@pytest.mark.allow_blocking  # what kernels import when they are first used
@pytest.mark.parametrize("part", range(PARTS))
async def test_graphs_of_every_op(ops: list[str], part: int) -> None:
    report = Report()
    await run_cases(part_of(ops, part), cases=2, seed=1, report=report)
    assert sum(report.outcomes.values()) == 2 * len(part_of(ops, part))
    assert not report.problems, report.problems[0]


@pytest.mark.fuzz
@pytest.mark.parametrize("part", range(PARTS))
def test_very_many_graphs_of_every_op(ops: list[str], part: int) -> None:
    """In a process that may not have much memory, where what does not end is stopped."""
    seed = random.SystemRandom().randrange(2**32)
    options = ["--seed", str(seed), "--cases", "25", "--sweep", "1"]
    command = [sys.executable, "-m", "tests.graph.graph_fuzz", *options, *part_of(ops, part)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    print(done.stdout[-2_000:])
    assert done.returncode == 0, f"seed {seed}\n{done.stdout[:20_000]}\n{done.stderr[-5_000:]}"
