"""Pure Python code of two workers, or of two processes of a worker, runs at one time: each has a GIL of its own."""

from __future__ import annotations

import mmap
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import asyncexec as ax

pytestmark = pytest.mark.timeout(300)


def meet(path: str, number: int) -> bool:
    """Whether the other one has come, while this one never lets go of the GIL."""
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 2) as flags:
        before = sys.getswitchinterval()
        sys.setswitchinterval(1000)
        try:
            flags[number] = 1
            until_s = time.monotonic() + 60
            while not flags[1 - number] and time.monotonic() < until_s:
                pass
            return bool(flags[1 - number])
        finally:
            sys.setswitchinterval(before)


@ax.op(outputs=[ax.bool], expensive=True)
def meet_on_worker(path: str, number: int) -> bool:
    return meet(path, number)


@ax.op(executor="process", outputs=[ax.bool])
def meet_in_process(path: str, number: int) -> bool:
    return meet(path, number)


@pytest.fixture
def path() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "flags"
        found.write_bytes(bytes(2))
        yield str(found)


@pytest.mark.one_of("loop")
async def test_two_workers(path: str) -> None:
    with ax.Graph() as graph:
        where = ax.placeholder(ax.string, [])
        found = []
        for task in range(2):
            with ax.device(f"/job:local/task:{task}"):
                found.append(meet_on_worker(where, task))
    async with ax.cluster.local(2) as cluster, ax.Session(graph, cluster=cluster) as session:
        assert await session.run(found, {where: path}) == [True, True]


@pytest.mark.one_of("loop")
async def test_two_processes_of_a_worker(path: str) -> None:
    """``executor="process"`` is a property of the op, wherever it is placed."""
    with ax.Graph() as graph:
        where = ax.placeholder(ax.string, [])
        with ax.device("/job:local/task:0"):
            found = [meet_in_process(where, number) for number in range(2)]
    config = ax.SessionConfig(num_processes=2)
    async with ax.cluster.local(1, config=config) as cluster, ax.Session(graph, cluster=cluster) as session:
        assert await session.run(found, {where: path}) == [True, True]
