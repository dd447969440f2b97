"""Rows of streams: 10,000 items through a cheap, an async and a cheap stage, against the same pipeline by hand.

By hand it is written twice: windowed tasks, one for each item, of which 32 are in flight and the oldest is awaited; and
32 workers between two queues.  The quicker of the two is the floor, so that whichever somebody would have written, a
stream stands beside it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np

import asyncexec as ax
from benchmarks.async_ops import LOOPS, loop_factory
from benchmarks.measure import Settings, Times, alternate, calling
from benchmarks.report import FLOOR, OURS, Benchmark, Row, Target

NUM_ITEMS: Final = 10_000
WINDOW: Final = 32
QUEUES: Final = f"{FLOOR}, queues"
MILLISECOND: Final = 0.001
# Seconds that the async stage takes -> of the time of the quicker floor.
LIMITS: Final = {MILLISECOND: 1.0, 0.0: 2.0}
Pipeline: TypeAlias = Callable[[Any], Coroutine[Any, Any, Any]]


def pipeline(delay_s: float) -> Pipeline:
    """The stages, called one after the other."""

    async def through(value: Any) -> Any:
        doubled = value * np.float32(2)
        await asyncio.sleep(delay_s)
        return doubled + np.float32(1)

    return through


async def windowed(through: Pipeline, values: list[Any]) -> list[Any]:
    """The results by a task each."""
    loop, tasks, results = asyncio.get_running_loop(), deque[asyncio.Task[Any]](), []
    for value in values:
        if len(tasks) == WINDOW:
            results.append(await tasks.popleft())
        tasks.append(loop.create_task(through(value)))
    while tasks:
        results.append(await tasks.popleft())
    return results


async def queued(through: Pipeline, values: list[Any]) -> list[Any]:
    """The results by workers between two queues, as they complete."""
    todo: asyncio.Queue[Any] = asyncio.Queue(WINDOW)
    done: asyncio.Queue[Any] = asyncio.Queue(WINDOW)

    async def work() -> None:
        while (value := await todo.get()) is not None:
            await done.put(await through(value))

    async def produce() -> None:
        for value in [*values, *[None] * WINDOW]:
            await todo.put(value)

    async with asyncio.TaskGroup() as group:
        group.create_task(produce())
        for _ in range(WINDOW):
            group.create_task(work())
        return [await done.get() for _ in values]


def stream_graph(delay_s: float) -> tuple[ax.Graph, ax.Tensor, ax.Tensor]:
    """The stages as a graph, what is fed and what is fetched."""

    @ax.op(outputs=[ax.float32])
    async def stage(value: Any) -> Any:
        await asyncio.sleep(delay_s)
        return value

    with ax.Graph() as graph:
        fed = ax.placeholder(ax.float32, [], name="x")
        return graph, fed, stage(fed * 2.0) + 1.0


def measure_stream(loop: str, delay_s: float, settings: Settings) -> Row:
    """Seconds for all items."""
    with asyncio.Runner(loop_factory=loop_factory(loop)) as runner:
        times = runner.run(_race(delay_s, settings))
    limit = LIMITS[delay_s]
    quickest = min(times[FLOOR].median, times[QUEUES].median)
    target = Target(f"at most {limit:g} of the quicker floor's", times[OURS].median / quickest, limit)
    rates = {name: NUM_ITEMS / each.median for name, each in times.items()}
    note = "items a second: " + ", ".join(f"{rate:,.0f} {name}" for name, rate in rates.items())
    return Row(_name(loop, delay_s), "ms", {name: t.scaled(1000) for name, t in times.items()}, (target,), (note,))


async def _race(delay_s: float, settings: Settings) -> dict[str, Times]:
    graph, fed, fetched = stream_graph(delay_s)
    values = [np.float32(i) for i in range(NUM_ITEMS)]
    through = pipeline(delay_s)
    async with ax.Session(graph) as session:

        async def ours() -> list[Any]:
            return [out async for out in session.map(fetched, ({fed: value} for value in values), window=WINDOW)]

        async def by_tasks() -> list[Any]:
            return await windowed(through, values)

        async def by_queues() -> list[Any]:
            return await queued(through, values)

        if not await ours() == await by_tasks() == sorted(await by_queues()):
            raise RuntimeError("the pipelines give different results")
        contestants = [await calling(OURS, ours), await calling(FLOOR, by_tasks), await calling(QUEUES, by_queues)]
        return await alternate(contestants, settings)


def _name(loop: str, delay_s: float) -> str:
    return f"stream_{'1ms' if delay_s else 'sleep0'}_{loop}"


BENCHMARKS: Final = tuple(
    Benchmark(_name(loop, delay_s), partial(measure_stream, loop, delay_s)) for delay_s in LIMITS for loop in LOOPS
)
