"""Worker processes that are killed, or stopped, at random moments: a typed error in time, and the next step right."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import signal
import sys
import tempfile
import weakref
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.distributed.cluster import Cluster
from asyncexec.distributed.cluster_spec import ClusterSpec
from asyncexec.framework.errors import UnavailableError
from tests.distributed.clusters import until
from tests.distributed.faulty_clusters import task
from tests.distributed.worker_process import OPTIONS, add_slowly, num_steps, work

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="unix sockets and signals"),
    pytest.mark.allow_blocking,  # processes are started
    pytest.mark.one_of("loop"),
]
WORKERS = 3


class Processes:
    """A launcher whose workers are processes that the test kills."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.processes: dict[str, asyncio.subprocess.Process] = {}
        self.addresses: dict[str, str] = {}
        self._num_started = 0

    async def start(self) -> ClusterSpec:
        names = [task(number) for number in range(WORKERS)]
        addresses = await asyncio.gather(*map(self._start, names))
        return ClusterSpec({"worker": addresses})

    async def _start(self, name: str) -> str:
        self._num_started += 1
        address = f"unix:{self._folder}/{self._num_started}"
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.distributed.worker_process", name.rpartition(":")[2], address),
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        self.processes[name] = process
        self.addresses[name] = address
        return address

    async def revive(self, worker: str) -> str:
        process = self.processes[worker]
        if process.returncode is None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), 0.05)
        if process.returncode is not None:
            return await self._start(worker)
        return self.addresses[worker]

    async def close(self) -> None:
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
                process.terminate()
        await asyncio.gather(*(process.wait() for process in self.processes.values()))


@contextlib.asynccontextmanager
async def processes() -> AsyncIterator[tuple[Cluster, Processes]]:
    with tempfile.TemporaryDirectory() as folder:
        launcher = Processes(Path(folder))
        async with Cluster(launcher, options=OPTIONS) as cluster:
            yield cluster, launcher


class Program:
    """A graph over all workers, whose steps take some milliseconds on each."""

    def __init__(self) -> None:
        with ax.Graph() as self.graph:
            self.feed = ax.placeholder(ax.float32, [None], name="x")
            self.delay = ax.placeholder(ax.float64, [], name="delay")
            value = self.feed
            for number in range(WORKERS):
                with ax.device(f"/job:worker/task:{number}"):
                    value = work(add_slowly(value, self.delay), self.delay)
            self.out = value
            self.left = []
            for number in range(WORKERS):
                with ax.device(f"/job:worker/task:{number}"):
                    self.left.append(num_steps(ax.constant(0)))
        self.arrays: list[weakref.ref[Any]] = []

    async def run(self, session: ax.Session, delay_s: float) -> None:
        array = np.ones(20_000, np.float32)
        self.arrays.append(weakref.ref(array))
        result = await session.run(self.out, {self.feed: array, self.delay: delay_s})
        assert np.array_equal(result, np.full(20_000, 22, np.float32))

    async def nothing_is_left(self, session: ax.Session, cluster: Cluster) -> None:
        assert not any(each.num_steps for each in cluster._sessions.values())
        await until(lambda: gc.collect() >= 0 and not any(ref() is not None for ref in self.arrays))
        self.arrays.clear()
        async with asyncio.timeout(30):
            for left in self.left:  # one by one: else they would see each other
                while await session.run(left):  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.005)


async def kill_at_random(num_trials: int, seed: int) -> list[float]:
    """How late the callers had their errors, in seconds from the news that the worker is lost."""
    draw = random.Random(seed)
    late: list[float] = []
    loop = asyncio.get_running_loop()
    async with processes() as (cluster, launcher):
        program = Program()
        async with ax.Session(program.graph, cluster=cluster) as session:
            await program.run(session, 0)
            news: list[tuple[str, float]] = []
            lose = cluster.lose

            def on_lost(name: str, error: Any) -> None:
                news.append((name, loop.time()))
                lose(name, error)

            cluster.lose = on_lost  # type: ignore[method-assign]
            for _ in range(num_trials):
                news.clear()
                victim = task(draw.randrange(WORKERS))
                running = asyncio.create_task(program.run(session, draw.choice([0, 0.001, 0.004])))
                await asyncio.sleep(draw.random() * 0.03)
                launcher.processes[victim].kill()
                async with asyncio.timeout(30):
                    await asyncio.wait([running])
                    error = running.exception()
                    while not news:  # noqa: ASYNC110 - the step may have ended before
                        await asyncio.sleep(0.001)
                if error is not None:
                    assert isinstance(error, UnavailableError), repr(error)
                    assert victim in "\n".join([str(error), *getattr(error, "__notes__", ())])
                    late.append(loop.time() - news[0][1])
                del running, error
                await program.run(session, 0)
                await program.nothing_is_left(session, cluster)
    return late


async def test_workers_are_killed() -> None:
    late = await kill_at_random(1, seed=1)
    assert all(each < 2 for each in late)


@pytest.mark.deep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(10))
async def test_workers_are_killed_500_times(seed: int, record_property: Any) -> None:
    late = sorted(await kill_at_random(50, seed))
    num_late = sum(each > 0.1 for each in late)
    record_property("counts", {"trials": 50, "failed steps": len(late), "later than 100 ms": num_late})
    assert late[len(late) // 2] < 0.1
    assert late[-1] < 2  # the machine may stall


@pytest.mark.deep
async def test_a_worker_is_stopped() -> None:
    """It is silent, and lost after ``silence_s``; when it goes on, it serves again."""
    async with processes() as (cluster, launcher):
        program = Program()
        async with ax.Session(program.graph, cluster=cluster) as session:
            await program.run(session, 0)
            process = launcher.processes[task(1)]
            process.send_signal(signal.SIGSTOP)
            with pytest.raises(UnavailableError, match="task:1"):
                await program.run(session, 0)
            process.send_signal(signal.SIGCONT)
            await program.run(session, 0)
            await program.nothing_is_left(session, cluster)
