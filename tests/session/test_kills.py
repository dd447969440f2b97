"""Streams whose process is killed at random moments, again and again: the results are those of one that never was."""

from __future__ import annotations

import random
import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).with_name("durable_program.py")
ROOT = PROGRAM.parents[2]


def start(kind: str, folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, str(PROGRAM), kind, str(folder)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env={"PYTHONPATH": str(ROOT)})


def results_of(folder: Path) -> list[Any]:
    with sqlite3.connect(folder / "results.db") as connection:
        found = connection.execute("SELECT number, value, last FROM results ORDER BY number").fetchall()
    connection.close()
    return found


def run_to_the_end(kind: str, folder: Path) -> None:
    with start(kind, folder) as process:
        assert process.wait(timeout=60) == 0


def check(kind: str, folder: Path, kills: int) -> None:
    whole, killed = folder / "whole", folder / "killed"
    whole.mkdir()
    killed.mkdir()
    run_to_the_end(kind, whole)
    moments = random.Random(kind)
    num_killed = num_ended = 0
    while num_killed < kills:
        with start(kind, killed) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            # From the loop being up to the end of the work takes some tenths of a second.
            time.sleep(moments.uniform(0.0, 0.25))
            if process.poll() is None:
                process.kill()
                num_killed += 1
            else:
                num_ended += 1
        if num_ended and num_killed < kills:  # begin anew: there is nothing to be interrupted any more
            assert results_of(killed) == results_of(whole)
            for path in killed.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            num_ended = 0
    run_to_the_end(kind, killed)
    assert len(results_of(whole)) > 100
    assert results_of(killed) == results_of(whole)


@pytest.mark.parametrize("kind", ["stream", "events", "map"])
def test_a_stream_survives_kills(kind: str, tmp_path: Path) -> None:
    check(kind, tmp_path, 2)


@pytest.mark.deep
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["stream", "events", "map", "files", "sqlite", "objects"])
def test_a_stream_survives_a_hundred_kills(kind: str, tmp_path: Path) -> None:
    check(kind, tmp_path, 100)
