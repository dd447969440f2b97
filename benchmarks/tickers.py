"""Rows of the event loop beside the other rows: how late a 1 ms ticker is, and how soon an endless loop is ended.

The ticker goes on beside the graphs of all main rows, their first runs apart, and beside feeds of 80 MB that come after
small ones.  Runs that have nothing to await do not let the loop go in between, so it is let go after each of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np

import asyncexec as ax
from asyncexec.framework.clock import NS_PER_MS, NS_PER_S, monotonic_ns
from asyncexec.framework.extras import require
from asyncexec.process.gc_pause import freeze_what_is_loaded
from asyncexec.session.plan_compiler import import_compilers
from benchmarks import elementwise, graphs, regions
from benchmarks.async_ops import LOOPS, loop_factory
from benchmarks.event_loop import MAX_FIRST_LAG_MS, MAX_LAG_MS, lags, lags_row
from benchmarks.graphs import TimedGraph
from benchmarks.measure import Settings, Times
from benchmarks.report import FLOOR, OURS, Benchmark, Row, Target
from benchmarks.runs import ADDS, without_native

FILES: Final = (
    *ADDS,
    "run_latency",
    "feeds100_fetches100",
    "while_10000_pi1",
    "while_10000_pi10",
    "while_nested_100x100",
    "cond_chain_1000",
    "two_device_100",
)
ALONE: Final = "alone"
RUNS_S: Final = 1.0  # beside each graph
FIRST_RUNS: Final = 10
NUM_LARGE: Final = 20
LARGE_SIZE: Final = 10_000_000  # of float64: 80 MB
NUM_SMALL: Final = 200  # by which the kernels are measured, and are small
NUM_ENDS: Final = 20  # of endless loops
RUNNING_S: Final = 0.02  # how long such a loop runs
MAX_CANCEL_MS: Final = 5.0
MAX_OVERSHOOT_MS: Final = 10.0
ENDLESS: Final = 2**62


@dataclass(frozen=True, slots=True)
class Work:
    """What is run."""

    graph: ax.Graph
    feeds: Mapping[Any, Any]
    fetches: Any

    def session(self) -> ax.Session:
        """A fresh session."""
        return ax.Session(self.graph, ax.SessionConfig(device_count={"CPU": 2}))


def of_file(name: str) -> Work:
    """The graph file *name*."""
    return _imported(graphs.from_file(name))


def _imported(timed: TimedGraph) -> Work:
    return Work(timed.imported(), timed.feeds, timed.fetches)


def _with_async_nodes(make: Callable[[], tuple[ax.Tensor, ax.Tensor]]) -> Work:
    with ax.Graph() as graph:
        fed, fetch = make()
    return Work(graph, {fed: regions.ONE}, fetch)


MAIN_ROWS: Final[Mapping[str, Callable[[], Work]]] = {
    **{name: partial(of_file, name) for name in FILES},
    "elementwise": lambda: _imported(elementwise.make()),
    "async_in_chain": partial(_with_async_nodes, regions.chain),
    "async_in_loop": partial(_with_async_nodes, regions.loop),
}


def measure_main_rows(loop: str, settings: Settings) -> Row:
    """The lag from the second run of each graph on, while it is measured and compiled, and afterwards."""

    async def lags_of(work: Work) -> list[float]:
        async with work.session() as session:
            await session.run(work.fetches, work.feeds)
            end = monotonic_ns() + int(NS_PER_S * (RUNS_S / 10 if settings.is_quick else RUNS_S))

            async def runs() -> None:
                while monotonic_ns() < end:
                    await session.run(work.fetches, work.feeds)
                    await asyncio.sleep(0)

            return await lags(runs)

    return _worst(f"ticker_main_rows_{loop}", MAX_LAG_MS, loop, lags_of)


def measure_first_runs(loop: str, settings: Settings) -> Row:
    """The lag during first runs of each graph, all in fresh sessions."""

    async def lags_of(work: Work) -> list[float]:
        found: list[float] = []
        for _ in range(settings.rounds(FIRST_RUNS)):
            async with work.session() as session:
                found += await lags(partial(session.run, work.fetches, work.feeds))
        return found

    return _worst(f"ticker_main_first_runs_{loop}", MAX_FIRST_LAG_MS, loop, lags_of)


def _worst(name: str, limit: float, loop: str, lags_of: Callable[[Work], Awaitable[list[float]]]) -> Row:
    import_compilers()  # as services do: a process holds its event loop for it once, whatever it runs

    async def main() -> dict[str, Times]:
        found = {ALONE: Times(tuple(await lags(partial(asyncio.sleep, 0.5))))}
        for each, make in MAIN_ROWS.items():
            work = make()
            freeze_what_is_loaded()  # as services do: collections are to walk what runs make, not the graph
            found[each] = Times(tuple(await lags_of(work)))
        return found

    with asyncio.Runner(loop_factory=loop_factory(loop)) as runner:
        found = runner.run(main())
    floor = Times((found.pop(ALONE).percentile(99),))
    high = Times((max(times.percentile(99) for times in found.values()),))
    target = Target(f"at most {limit:g} ms at the 99th percentile beside each", high.median, limit)
    notes = tuple(
        f"beside {each} 99th {times.percentile(99):.2f}, most {max(times.values):.2f} ms over {len(times.values)} ticks"
        for each, times in found.items()
    )
    return Row(name, "ms lag, highest 99th", {OURS: high, FLOOR: floor}, (target,), notes)


Calls: TypeAlias = Callable[[Any], Awaitable[Any]]


@asynccontextmanager
async def _by_run(session: ax.Session, fed: ax.Tensor, fetch: ax.Tensor) -> AsyncIterator[Calls]:
    yield lambda value: session.run(fetch, {fed: value})


@asynccontextmanager
async def _by_partial_run(session: ax.Session, fed: ax.Tensor, fetch: ax.Tensor) -> AsyncIterator[Calls]:
    async def call(value: Any) -> Any:
        async with session.partial_run(fetch, [fed]) as step:
            await step.feed({fed: value})
            return await step.fetch(fetch)

    yield call


@asynccontextmanager
async def _by_stream(session: ax.Session, fed: ax.Tensor, fetch: ax.Tensor) -> AsyncIterator[Calls]:
    async with session.stream(fetch) as stream:

        async def call(value: Any) -> Any:
            await stream.send({fed: value})
            return await anext(stream)

        yield call


DRIVERS: Final = {"run": _by_run, "stream": _by_stream, "partial_run": _by_partial_run}


def measure_large_feeds(driver: str, loop: str, settings: Settings) -> Row:
    """The lag while feeds of 80 MB come, after small ones that showed all kernels to be cheap."""

    async def lags_of_large() -> list[float]:
        with ax.Graph() as graph:
            fed = ax.placeholder(ax.float64, [None], name="x")
            fetch = ax.reduce_sum(ax.maximum(fed * 2.0 + 1.0, fed))
        small, large = np.ones(4), np.ones(LARGE_SIZE)
        async with ax.Session(graph) as session, DRIVERS[driver](session, fed, fetch) as call:
            for _ in range(NUM_SMALL):
                await call(small)

            async def work() -> None:
                for _ in range(settings.rounds(NUM_LARGE)):
                    await call(large)

            return await lags(work)

    return lags_row(f"ticker_large_feeds_{driver}_{loop}", MAX_LAG_MS, loop, lags_of_large)


def measure_end(name: str, settings: Settings) -> Row:
    """How long an endless compiled loop goes on after its cancellation, or its deadline; the longest of some."""
    is_native, is_cancelled = name.startswith("native"), name.endswith("cancelled")
    if is_native:
        require("llvmlite", extra="jit")
    with nullcontext() if is_native else without_native():
        times = ax.run(partial(_ends, _cancelled_ms if is_cancelled else _overshoot_ms, settings))
    limit = MAX_CANCEL_MS if is_cancelled else MAX_OVERSHOOT_MS
    target = Target(f"at most {limit:g} ms, each time", max(times.values), limit)
    return Row(name, "ms", {OURS: times}, (target,))


async def _ends(measure_ms: Callable[[Any], Awaitable[float]], settings: Settings) -> Times:
    with ax.Graph() as graph:
        n = ax.placeholder(ax.int64, [], name="n")
        (last,) = ax.while_loop(lambda i: i < n, lambda i: [i + 1], [ax.constant(0, ax.int64)])
    async with ax.Session(graph, ax.SessionConfig(executor_type="COMPILED")) as session:
        for _ in range(NUM_ENDS):
            await session.run(last, {n: np.int64(10_000)})
        run = partial(session.run, last, {n: np.int64(ENDLESS)})
        return Times(tuple([await measure_ms(run) for _ in range(settings.rounds(NUM_ENDS))]))


async def _cancelled_ms(run: Callable[..., Awaitable[Any]]) -> float:
    task = asyncio.ensure_future(run())
    await asyncio.sleep(RUNNING_S)
    begun = monotonic_ns()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    return (monotonic_ns() - begun) / NS_PER_MS


async def _overshoot_ms(run: Callable[..., Awaitable[Any]]) -> float:
    begun = monotonic_ns()
    try:
        await run(options=ax.RunOptions(timeout=RUNNING_S))
    except ax.errors.DeadlineExceededError:
        return (monotonic_ns() - begun) / NS_PER_MS - RUNNING_S * NS_PER_S / NS_PER_MS
    raise AssertionError("an endless loop has ended")


BENCHMARKS: Final = (
    *(Benchmark(f"ticker_main_rows_{loop}", partial(measure_main_rows, loop), is_long=True) for loop in LOOPS),
    *(Benchmark(f"ticker_main_first_runs_{loop}", partial(measure_first_runs, loop), is_long=True) for loop in LOOPS),
    *(
        Benchmark(f"ticker_large_feeds_{driver}_{loop}", partial(measure_large_feeds, driver, loop), is_long=True)
        for driver in DRIVERS
        for loop in LOOPS
    ),
    *(
        Benchmark(name, partial(measure_end, name))
        for kind in ("", "native_")
        for end in ("cancelled", "deadline")
        for name in (f"{kind}endless_loop_{end}",)
    ),
)
