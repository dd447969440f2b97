"""Rows of offload: 100 sleeps of 10 ms beside 100 kernels of 5 ms, and what one call on a worker thread costs.

The floor is a bare pool of as many threads, or processes, as there are cores.  The lag is that of a 1 ms ticker in the
same event loop; the ideal is the kernels' time alone, spread over the cores.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import warnings
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any, Final

import numpy as np

import asyncexec as ax
from asyncexec.framework.clock import NS_PER_MS, NS_PER_S, monotonic_ns
from asyncexec.framework.interpreter import gil_is_enabled
from benchmarks.async_ops import LOOPS, loop_factory
from benchmarks.event_loop import lags
from benchmarks.measure import Settings, Times, alternate, calling, ratios
from benchmarks.report import FLOOR, OURS, Benchmark, Row, Target

NUM_EACH: Final = 100
SLEEP_S: Final = 0.01
KERNEL_MS: Final = 5.0
MAX_OF_IDEAL: Final = 1.15
MAX_LAG_MS: Final = 5.0
ROUNDS: Final = 8
IN_FLIGHT: Final = 1000
THREADS: Final = "threads"
ONE_THREAD: Final = "one thread"
NUM_CORES: Final = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

_ARRAY: Final = np.linspace(1.0, 1000.0, 100_000)


def in_numpy(repeats: int) -> float:
    """Computes without the GIL."""
    array = np.empty_like(_ARRAY)
    for _ in range(repeats):
        np.sin(_ARRAY, out=array)
    return float(array[0])


def in_python(repeats: int) -> float:
    """Computes with the GIL."""
    found = 0.5
    for _ in range(repeats):
        found = 1.0 / (1.0 + found * found)
    return found


@ax.op(executor="process")
def in_python_process(repeats: int) -> float:
    return in_python(int(repeats))


async def nap(x: float) -> float:
    await asyncio.sleep(SLEEP_S)
    return x


def repeats_for(kernel: Callable[[int], float], milliseconds: float = KERNEL_MS) -> tuple[int, float]:
    """How many repeats take *kernel* so long, and how many milliseconds they do take: the best of some calls."""
    number, took_ms = 1, 0.0
    while took_ms < milliseconds:
        number = max(number + 1, int(number * min(2.0, milliseconds / max(took_ms, 0.01) * 1.01)))
        took_ms = min(_time_ms(kernel, number) for _ in range(5))
    return number, took_ms


def _time_ms(kernel: Callable[[int], float], repeats: int) -> float:
    begun = monotonic_ns()
    kernel(repeats)
    return (monotonic_ns() - begun) / NS_PER_MS


def measure_threads(loop: str, settings: Settings) -> Row:
    """Kernels that let go of the GIL, on worker threads."""
    return _row(f"mixed_load_{loop}", loop, settings, in_numpy, ax.op(expensive=True, name="InNumpy")(in_numpy))


def measure_processes(loop: str, settings: Settings) -> Row:
    """Kernels that hold the GIL, in processes; on threads too, to compare."""
    return _row(f"mixed_load_processes_{loop}", loop, settings, in_python, in_python_process, in_processes=True)


def _row(
    name: str, loop: str, settings: Settings, kernel: Callable[[int], float], op: Any, *, in_processes: bool = False
) -> Row:
    repeats, once_ms = repeats_for(kernel)
    with asyncio.Runner(loop_factory=loop_factory(loop)) as runner:
        walls, ticks = runner.run(_race(settings, repeats, kernel, op, in_processes=in_processes))
    ideal_ms = max(NUM_EACH * once_ms / NUM_CORES, SLEEP_S * 1000)
    high = {contestant: Times(tuple(found)).percentile(99) for contestant, found in ticks.items()}
    targets = (
        Target(f"wall at most {MAX_OF_IDEAL:g} of the ideal", walls[OURS].median / ideal_ms, MAX_OF_IDEAL),
        Target("lag at most the bare pool's", high[OURS] / high[FLOOR], 1.0),
        Target(f"lag at most {MAX_LAG_MS:g} ms at the 99th percentile", high[OURS], MAX_LAG_MS),
    )
    shown = "; ".join(
        f"{contestant} {walls[contestant].median / ideal_ms:.2f} of the ideal, lag {lag:.1f} ms"
        for contestant, lag in high.items()
    )
    return Row(name, "ms", walls, targets, (f"a kernel {once_ms:.2f} ms, ideal {ideal_ms:.0f} ms; {shown}",))


async def _race(
    settings: Settings, repeats: int, kernel: Callable[[int], float], op: Any, *, in_processes: bool
) -> tuple[dict[str, Times], dict[str, list[float]]]:
    """The walls, in milliseconds, and the lags of the ticks, of each contestant; they take turns."""
    bare: Executor = (
        ProcessPoolExecutor(NUM_CORES, get_context("spawn")) if in_processes else ThreadPoolExecutor(NUM_CORES)
    )
    config = ax.SessionConfig(num_worker_threads=NUM_CORES, num_processes=NUM_CORES)
    on_threads = ax.op(expensive=True, name="OnThreads")(kernel)
    graphs = {OURS: _graph(op)} | ({THREADS: _graph(on_threads)} if in_processes else {})
    contestants: dict[str, Callable[[], Awaitable[object]]] = {FLOOR: partial(_bare, bare, kernel, repeats)}
    walls: dict[str, list[float]] = {}
    ticks: dict[str, list[float]] = {}
    sessions = {name: ax.Session(graph, config) for name, (graph, _, _) in graphs.items()}
    try:
        for name, (_, fed, fetches) in graphs.items():
            contestants[name] = partial(sessions[name].run, fetches, {fed: np.int64(repeats)})
        for work in contestants.values():
            await work()
            await work()
        for _ in range(settings.rounds(ROUNDS)):
            for name, work in contestants.items():
                await _round(work, walls.setdefault(name, []), ticks.setdefault(name, []))
    finally:
        bare.shutdown()
        for session in sessions.values():
            await session.close()
    return {name: Times(tuple(found)) for name, found in walls.items()}, ticks


def _graph(op: Any, num_sleeps: int = NUM_EACH) -> tuple[ax.Graph, ax.Tensor, list[ax.Tensor]]:
    sleep = ax.op(nap)
    with ax.Graph() as graph:
        fed = ax.placeholder(ax.int64, [], name="repeats")
        fetches = [op(fed) for _ in range(NUM_EACH)] + [sleep(ax.constant(np.float64(i))) for i in range(num_sleeps)]
    return graph, fed, fetches


async def _bare(pool: Executor, kernel: Callable[[int], float], repeats: int, num_sleeps: int = NUM_EACH) -> None:
    loop = asyncio.get_running_loop()
    calls = [loop.run_in_executor(pool, kernel, repeats) for _ in range(NUM_EACH)]
    await asyncio.gather(*(nap(i) for i in range(num_sleeps)), *calls)


async def _round(work: Callable[[], Awaitable[object]], walls: list[float], ticks: list[float]) -> None:
    async def timed() -> None:
        begun = monotonic_ns()
        await work()
        walls.append((monotonic_ns() - begun) / NS_PER_MS)

    ticks += await lags(timed)


def measure_python(settings: Settings) -> Row:
    """Pure-Python kernels on as many worker threads as cores, and on one: without a GIL, the more are the quicker."""
    repeats, once_ms = repeats_for(in_python)
    walls, ticks = asyncio.run(_race_of_threads(settings, repeats))
    found = ratios(walls[OURS], [walls[FLOOR]])
    target = Target(f"at most {MAX_OF_IDEAL:g} of the bare pool's", None if found is None else found[0], MAX_OF_IDEAL)
    shown = ", ".join(f"{name} {Times(tuple(each)).percentile(99):.1f}" for name, each in ticks.items())
    note = (
        f"a kernel {once_ms:.2f} ms, {'with' if gil_is_enabled() else 'without'} a GIL; "
        f"one thread {walls[ONE_THREAD].median:.0f} ms; lag in ms: {shown}"
    )
    return Row("python_on_threads", "ms", walls, (target,), (note,))


async def _race_of_threads(settings: Settings, repeats: int) -> tuple[dict[str, Times], dict[str, list[float]]]:
    """The walls, in milliseconds, and the lags of the ticks; the two take turns."""
    graph, fed, fetches = _graph(ax.op(expensive=True, name="InPython")(in_python), num_sleeps=0)
    walls: dict[str, list[float]] = {}
    ticks: dict[str, list[float]] = {}
    async with contextlib.AsyncExitStack() as stack:
        bare = stack.enter_context(ThreadPoolExecutor(NUM_CORES))
        contestants: dict[str, Callable[[], Awaitable[object]]] = {FLOOR: partial(_bare, bare, in_python, repeats, 0)}
        for name, threads in ((OURS, NUM_CORES), (ONE_THREAD, 1)):
            session = await stack.enter_async_context(ax.Session(graph, ax.SessionConfig(num_worker_threads=threads)))
            contestants[name] = partial(session.run, fetches, {fed: np.int64(repeats)})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ax.KernelWarning)  # that they hold the GIL
            for work in contestants.values():
                await work()
                await work()
            for _ in range(settings.rounds(ROUNDS)):
                for name, work in contestants.items():
                    await _round(work, walls.setdefault(name, []), ticks.setdefault(name, []))
    return {name: Times(tuple(found)) for name, found in walls.items()}, ticks


def measure_offload(number: int, settings: Settings) -> Row:
    """A run of so many calls on worker threads that do nothing, against ``loop.run_in_executor``."""
    times = asyncio.run(_race_of_calls(number, settings))
    per_call = {name: each.scaled(NS_PER_S / 1000 / number) for name, each in times.items()}
    found = ratios(times[OURS], [times[FLOOR]])
    target = Target("at most run_in_executor's", None if found is None else found[0], 1.0)
    return Row(f"offload_{number}", "µs a call", per_call, (target,))


async def _race_of_calls(number: int, settings: Settings) -> dict[str, Times]:
    nothing = ax.op(expensive=True, name="DoNothing")(float)
    with ax.Graph() as graph:
        fed = ax.placeholder(ax.float64, [], name="x")
        fetches = [nothing(fed) for _ in range(number)]
    value = np.float64(1)
    async with ax.Session(graph, ax.SessionConfig(num_worker_threads=NUM_CORES)) as session:
        call = session.make_callable(fetches, [fed])
        with ThreadPoolExecutor(NUM_CORES) as pool:

            async def ours() -> None:
                await call(value)

            async def floor() -> None:
                loop = asyncio.get_running_loop()
                await asyncio.gather(*(loop.run_in_executor(pool, float, value) for _ in range(number)))

            contestants = [await calling(OURS, ours), await calling(FLOOR, floor)]
            return await alternate(contestants, settings)


BENCHMARKS: Final = (
    *(Benchmark(f"mixed_load_{loop}", partial(measure_threads, loop)) for loop in LOOPS),
    *(Benchmark(f"mixed_load_processes_{loop}", partial(measure_processes, loop)) for loop in LOOPS),
    Benchmark("python_on_threads", measure_python),
    *(Benchmark(f"offload_{number}", partial(measure_offload, number)) for number in (1, IN_FLIGHT)),
)
