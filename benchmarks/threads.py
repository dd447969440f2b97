"""Rows of threads: the default against every fixed number of BLAS threads, alone and beside a busy process.

One more row is of a call on a worker thread while a stream keeps the event loop busy.

Each contestant is a session, or several at once, of the same graphs: small ones, and two models of models.py.  For a
fixed number of threads the application has set it for the whole process, and sessions leave it so
(``blas_threads="host"``).
"""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np

import asyncexec as ax
from asyncexec.framework.extras import require
from asyncexec.process.cores import num_cores
from asyncexec.process.gil_switches import usual_switches
from benchmarks.measure import Settings, Times, alternate, calling, ratios
from benchmarks.models import files_of
from benchmarks.report import FLOOR, OURS, Benchmark, Row, Target

MOST: Final = 1.3
BATCH, UNITS, LENGTH = 16, 256, 50
SIZE, DEPTH = 768, 4
MS_PER_S: Final = 1000
BUSY: Final = "while True: pass"
BUSY_LOOP: Final = "threads_busy_loop_call"


class Task(NamedTuple):
    """A graph, and what is run of it."""

    graph: ax.Graph
    fetch: Any
    feeds: Mapping[str, Any] = {}


def recurrent() -> Task:
    """A recurrent layer: a loop with a product of middle size, which runs in the event loop."""
    rng = np.random.default_rng(0)
    weights = (rng.standard_normal((UNITS, 4 * UNITS)) / np.sqrt(UNITS)).astype(np.float32)
    start = rng.standard_normal((BATCH, UNITS)).astype(np.float32)
    with ax.Graph() as graph:
        w = ax.constant(weights)
        _, state = ax.while_loop(
            lambda i, _: i < LENGTH,
            lambda i, x: [i + 1, ax.tanh((x @ w)[:, :UNITS])],
            [ax.constant(0), ax.constant(start)],
        )
    return Task(graph, state)


def dense() -> Task:
    """Layers with large products, which run on worker threads."""
    rng = np.random.default_rng(0)
    with ax.Graph() as graph:
        x = ax.constant(rng.standard_normal((SIZE, SIZE)).astype(np.float32))
        for _ in range(DEPTH):
            x = ax.tanh(x @ ax.constant((rng.standard_normal((SIZE, SIZE)) / np.sqrt(SIZE)).astype(np.float32)))
    return Task(graph, x)


def model(name: str, batch: int) -> Task:
    """A model of usual size."""
    files = files_of(name, batch)
    return Task(ax.load_model(files.graph).graph, files.gives, {files.takes: files.given})


def measure(name: str, make: Callable[[], Task], num_sessions: int, has_neighbour: bool, settings: Settings) -> Row:
    """The default, against the best fixed number of threads."""
    with _neighbour() if has_neighbour else _nobody():
        times = ax.run(partial(_race, make, num_sessions, settings))
    times = {key: each.scaled(MS_PER_S) for key, each in times.items()}
    found = ratios(times[OURS], [each for key, each in times.items() if key != OURS])
    target = Target(f"at most {MOST} of the best fixed number", None if found is None else found[0], MOST)
    return Row(name, "ms", times, (target,))


async def _race(make: Callable[[], Task], num_sessions: int, settings: Settings) -> dict[str, Times]:
    limits = require("threadpoolctl", extra="ops").threadpool_limits
    counts = sorted({1, num_cores()})
    contestants = [await calling(OURS, await _runner(make, num_sessions, "auto"))]
    for count in counts:
        run = await _runner(make, num_sessions, "host")

        async def run_with(count: int = count, run: Any = run) -> None:
            with limits(count, user_api="blas"):
                await run()

        contestants.append(await calling(f"{count} thread{'s' * (count > 1)}", run_with))
    return await alternate(contestants, settings)


async def _runner(make: Callable[[], Task], num_sessions: int, blas_threads: Any) -> Any:
    graph, fetch, feeds = make()
    config = ax.SessionConfig(blas_threads=blas_threads)
    sessions = [ax.Session(graph, config) for _ in range(num_sessions)]  # as long as the process

    async def run() -> None:
        await asyncio.gather(*(session.run(fetch, feeds) for session in sessions))

    return run


def measure_busy_loop(settings: Settings) -> Row:
    """A call of two milliseconds on a worker thread beside a busy loop; the floor has the user's switch interval."""
    times = {key: each.scaled(MS_PER_S) for key, each in ax.run(partial(_race_busy_loop, settings)).items()}
    return Row(BUSY_LOOP, "ms", times)


async def _race_busy_loop(settings: Settings) -> dict[str, Times]:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        total = ax.stream_state(ax.constant(0.0, ax.float64))
        item = total.update(total.value + x)
        called = _sleeps(ax.placeholder(ax.float64, [], name="y"))

    async def keep_busy(session: ax.Session) -> None:
        async for _ in session.map(item, ({"x:0": 1.0} for _ in itertools.count())):
            pass

    async with ax.Session(graph) as session:

        async def call() -> None:
            await session.run(called, {"y:0": 1.0})

        async def call_as_usual() -> None:
            with usual_switches():
                await call()

        busy = asyncio.create_task(keep_busy(session))
        try:
            return await alternate([await calling(OURS, call), await calling(FLOOR, call_as_usual)], settings)
        finally:
            busy.cancel()
            await asyncio.wait([busy])


@ax.op(expensive=True, outputs=[ax.float64])
def _sleeps(y: float) -> float:
    """Needs no core and no GIL for two milliseconds."""
    time.sleep(0.002)
    return y


@contextmanager
def _neighbour() -> Iterator[None]:
    """A process that keeps a core busy."""
    process = subprocess.Popen([sys.executable, "-c", BUSY])
    try:
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def _nobody() -> Iterator[None]:
    yield


_GRAPHS: Final[Mapping[str, Callable[[], Task]]] = {
    "recurrent": recurrent,
    "dense": dense,
    "bilstm": partial(model, "bilstm", BATCH),
    "inceptionv3": partial(model, "inceptionv3", 1),
}
BENCHMARKS: Final = (
    Benchmark(BUSY_LOOP, measure_busy_loop),
    *(
        Benchmark(name, partial(measure, name, make, num_sessions, has_neighbour), is_long=isinstance(make, partial))
        for kind, make in _GRAPHS.items()
        for num_sessions in (1, 2, 4)
        for has_neighbour in (False, True)
        for name in (f"threads_{kind}_{num_sessions}{'_beside' if has_neighbour else ''}",)
    ),
)
