"""Rows of the event loop: how late a 1 ms ticker is while a graph of 200,000 cheap nodes is imported and runs.

The lag of a tick is what its sleep took beyond a millisecond; the floor is the lag of a ticker that is alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import asyncexec as ax
from asyncexec.framework.clock import NS_PER_MS, NS_PER_S, monotonic_ns
from benchmarks import graphs
from benchmarks.async_ops import LOOPS, loop_factory
from benchmarks.measure import Settings, Times
from benchmarks.report import FLOOR, OURS, Benchmark, Row, Target

NUM_NODES: Final = 200_000
TICK_S: Final = 0.001
MAX_LAG_MS: Final = 5.0
MAX_FIRST_LAG_MS: Final = 10.0
REPEATS: Final = 10
FIRST_REPEATS: Final = 3


async def lags(work: Callable[[], Awaitable[object]]) -> list[float]:
    """The lags, in milliseconds, of the ticks while *work* is done."""
    found: list[float] = []
    tick_ns = int(TICK_S * NS_PER_S)

    async def tick() -> None:
        while True:
            begun = monotonic_ns()
            await asyncio.sleep(TICK_S)
            found.append((monotonic_ns() - begun - tick_ns) / NS_PER_MS)

    ticker = asyncio.create_task(tick())
    await asyncio.sleep(0)
    await work()
    await asyncio.sleep(2 * TICK_S)  # the tick that was waiting meanwhile counts
    ticker.cancel()
    await asyncio.wait([ticker])
    return found


def measure_runs(loop: str, settings: Settings) -> Row:
    """The lag during runs of a signature that has run before."""
    return lags_row(f"ticker_run_{loop}", MAX_LAG_MS, loop, partial(_lags_of_runs, settings.rounds(REPEATS)))


def measure_extend(loop: str, settings: Settings) -> Row:
    """The lag while sessions are extended by the whole graph."""
    repeats = settings.rounds(FIRST_REPEATS)
    return lags_row(f"ticker_extend_{loop}", MAX_FIRST_LAG_MS, loop, partial(_lags_of_extend, repeats))


def measure_traced_runs(loop: str, settings: Settings) -> Row:
    """The lag during runs that are traced, with what is made of the trace."""
    repeats = settings.rounds(FIRST_REPEATS)
    return lags_row(f"ticker_traced_run_{loop}", MAX_FIRST_LAG_MS, loop, partial(_lags_of_traced_runs, repeats))


def measure_first_runs(loop: str, settings: Settings) -> Row:
    """The lag during first runs, each in a fresh session, with pruning and compiling; the import is over by then."""
    repeats = settings.rounds(FIRST_REPEATS)
    return lags_row(f"ticker_first_run_{loop}", MAX_FIRST_LAG_MS, loop, partial(_lags_of_first_runs, repeats))


def lags_row(name: str, limit: float, loop: str, measure: Callable[[], Awaitable[list[float]]]) -> Row:
    """The lags that *measure* gives in an event loop of the kind *loop*, beside those of a ticker that is alone."""

    async def main() -> tuple[list[float], list[float], float]:
        alone = await lags(partial(asyncio.sleep, 0.5))
        begun = monotonic_ns()
        busy = await measure()
        return busy, alone, (monotonic_ns() - begun) / NS_PER_S

    with asyncio.Runner(loop_factory=loop_factory(loop)) as runner:
        busy, alone, elapsed_s = runner.run(main())
    times = Times(tuple(busy))
    high = Times((times.percentile(99),))
    note = (
        f"50th {times.median:.2f}, 99th {high.median:.2f}, most {max(busy):.2f} ms over {len(busy)} ticks in"
        f" {elapsed_s:.1f} s; alone 50th {Times(tuple(alone)).median:.2f}, most {max(alone):.2f} ms"
    )
    floor = Times((Times(tuple(alone)).percentile(99),))
    target = Target(f"at most {limit:g} ms at the 99th percentile", high.median, limit)
    return Row(name, "ms lag, 99th", {OURS: high, FLOOR: floor}, (target,), (note,))


async def _lags_of_runs(repeats: int) -> list[float]:
    timed = graphs.layered(NUM_NODES)
    async with ax.Session(timed.imported()) as session:
        await session.run(timed.fetches, timed.feeds)

        async def work() -> None:
            for _ in range(repeats):
                await session.run(timed.fetches, timed.feeds)

        return await lags(work)


async def _lags_of_extend(repeats: int) -> list[float]:
    timed = graphs.layered(NUM_NODES)
    found: list[float] = []
    for _ in range(repeats):
        async with ax.Session(ax.Graph()) as session:
            found += await lags(partial(session.extend, timed.graph_def))
    return found


async def _lags_of_traced_runs(repeats: int) -> list[float]:
    timed = graphs.layered(NUM_NODES)
    options = ax.RunOptions(trace=True)
    async with ax.Session(timed.imported()) as session:
        await session.run(timed.fetches, timed.feeds)

        async def work() -> None:
            for _ in range(repeats):
                await session.run(timed.fetches, timed.feeds, options=options, metadata=ax.RunMetadata())

        return await lags(work)


async def _lags_of_first_runs(repeats: int) -> list[float]:
    timed = graphs.layered(NUM_NODES)
    found: list[float] = []
    for _ in range(repeats):
        async with ax.Session(timed.imported()) as session:
            run: Callable[[], Awaitable[Any]] = partial(session.run, timed.fetches, timed.feeds)
            found += await lags(run)
    return found


BENCHMARKS: Final = (
    *(Benchmark(f"ticker_run_{loop}", partial(measure_runs, loop), is_long=True) for loop in LOOPS),
    *(Benchmark(f"ticker_extend_{loop}", partial(measure_extend, loop), is_long=True) for loop in LOOPS),
    *(Benchmark(f"ticker_first_run_{loop}", partial(measure_first_runs, loop), is_long=True) for loop in LOOPS),
    *(Benchmark(f"ticker_traced_run_{loop}", partial(measure_traced_runs, loop), is_long=True) for loop in LOOPS),
)
