"""Rows of async ops, against the same coroutines by hand, on each event loop.

10,000 at once; and small steps, which have no limit: one op between two sums, three at once, and a map of 100 texts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np

import asyncexec as ax
from asyncexec.framework.extras import is_installed
from benchmarks.measure import Settings, Times, alternate, calling, ratios
from benchmarks.report import FLOOR, OURS, Benchmark, Row, Target

NUM_OPS: Final = 10_000
LOOPS: Final = ("asyncio", "uvloop") if is_installed("uvloop") else ("asyncio",)
MAX_RATIO: Final = 1.3


def loop_factory(loop: str) -> Callable[[], asyncio.AbstractEventLoop]:
    """What makes an event loop of the kind *loop*."""
    if loop == "asyncio":
        return asyncio.new_event_loop
    import uvloop

    return uvloop.new_event_loop


async def turn(value: Any) -> Any:
    """Lets the loop have a turn: the least that an async op can do."""
    await asyncio.sleep(0)
    return value


def measure_fan_out(loop: str, settings: Settings) -> Row:
    """A run that fetches 10,000 async ops; the floor has the graph in memory too, as the collector walks it."""
    with asyncio.Runner(loop_factory=loop_factory(loop)) as runner:
        times = runner.run(_race(settings))
    found = ratios(times[OURS], [times[FLOOR]])
    target = Target(f"at most {MAX_RATIO:g} of TaskGroup's", None if found is None else found[0], MAX_RATIO)
    milliseconds = {name: each.scaled(1000) for name, each in times.items()}
    return Row(f"async_{NUM_OPS}_{loop}", "ms", milliseconds, (target,))


async def _race(settings: Settings) -> dict[str, Times]:
    nap = ax.op(turn)
    with ax.Graph() as graph:
        fed = ax.placeholder(ax.float32, [], name="x")
        fetches = [nap(fed) for _ in range(NUM_OPS)]
    value = np.float32(1)

    async def floor() -> list[Any]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(turn(value)) for _ in range(NUM_OPS)]
        return [task.result() for task in tasks]

    async with ax.Session(graph) as session:

        async def run() -> Any:
            return await session.run(fetches, {fed: value})

        return await alternate([await calling(OURS, run), await calling(FLOOR, floor)], settings, rounds=10)


def measure_small(kind: str, loop: str, settings: Settings) -> Row:
    """A step of few async ops."""
    with asyncio.Runner(loop_factory=loop_factory(loop)) as runner:
        times = runner.run(_race_small(*SMALL[kind](), settings))
    return Row(f"async_{kind}_{loop}", "us", {name: each.scaled(1_000_000) for name, each in times.items()})


Step: TypeAlias = tuple[ax.Graph, ax.Tensor, ax.Tensor, Any, Callable[[Any], Awaitable[Any]]]


async def _race_small(
    graph: ax.Graph,
    fetch: ax.Tensor,
    feed: ax.Tensor,
    value: Any,
    by_hand: Callable[[Any], Awaitable[Any]],
    settings: Settings,
) -> dict[str, Times]:
    async with ax.Session(graph) as session:

        async def run() -> Any:
            return await session.run(fetch, {feed: value})

        ours, floor = await calling(OURS, run), await calling(FLOOR, partial(by_hand, value))
        return await alternate([ours, floor], settings, rounds=30)


def _one() -> Step:
    nap = ax.op(turn, outputs=[ax.float64])
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        y = nap(x + 1.0) + 1.0

    async def by_hand(value: Any) -> Any:
        return await asyncio.create_task(turn(value + 1.0)) + 1.0

    return graph, y, x, np.float64(1), by_hand


def _three() -> Step:
    nap = ax.op(turn, outputs=[ax.float64])
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        y = ax.add_n([nap(x + float(number)) for number in range(3)])

    async def by_hand(value: Any) -> Any:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(turn(value + float(number))) for number in range(3)]
        return sum(task.result() for task in tasks)

    return graph, y, x, np.float64(1), by_hand


def _map_100() -> Step:
    async def page(url: str) -> str:
        return "the page of " + await turn(url)

    def score(text: str) -> float:
        return len(text) / 10

    page_op, score_op = ax.op(page), ax.op(score)
    with ax.Graph() as graph:
        urls = ax.placeholder(ax.string, [None], name="urls")
        best = ax.reduce_max(ax.map_fn(lambda url: score_op(page_op(url)), urls))

    async def scored(url: str) -> float:
        return score(await page(url))

    async def by_hand(value: Any) -> Any:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(scored(url)) for url in value]
        return max(task.result() for task in tasks)

    return graph, best, urls, [f"{number}.example.org" for number in range(100)], by_hand


SMALL: Final[Mapping[str, Callable[[], Step]]] = {"one": _one, "three": _three, "map_100": _map_100}

BENCHMARKS: Final = (
    *(Benchmark(f"async_{NUM_OPS}_{loop}", partial(measure_fan_out, loop)) for loop in LOOPS),
    *(Benchmark(f"async_{kind}_{loop}", partial(measure_small, kind, loop)) for kind in SMALL for loop in LOOPS),
)
