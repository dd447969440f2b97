"""Rows of worker threads: what a node costs whose kernel is called on one, and does nothing there."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

import asyncexec as ax
from benchmarks.measure import Settings, Times, alternate, calling
from benchmarks.report import FLOOR, OURS, Benchmark, Row, Target
from benchmarks.runs import US_PER_S, scaled

LENGTH: Final = 50
LONGEST_NODE_US: Final = 15.0


def nothing(value: Any) -> Any:
    """Gives what it gets: the least that an expensive op can do."""
    return value


def measure_chain(settings: Settings) -> Row:
    """A chain of 50 expensive nodes; the floor is one function on a thread that makes as many calls."""
    per_node = scaled(ax.run(partial(_race, LENGTH, settings)), US_PER_S / LENGTH)
    target = Target(f"at most {LONGEST_NODE_US:g} µs a node", per_node[OURS].median, LONGEST_NODE_US)
    return Row("worker_chain", "µs a node", per_node, (target,))


def measure_one(settings: Settings) -> Row:
    """A single expensive node; the floor is a function on a thread."""
    return Row("worker_node", "µs", scaled(ax.run(partial(_race, 1, settings)), US_PER_S))


async def _race(length: int, settings: Settings) -> dict[str, Times]:
    expensive = ax.op(expensive=True)(nothing)
    with ax.Graph() as graph:
        fed = last = ax.placeholder(ax.object, [], name="x")
        for _ in range(length):
            last = expensive(last)

    def floor_on_thread() -> Any:
        value = 1
        for _ in range(length):
            value = nothing(value)
        return value

    with ThreadPoolExecutor(1) as pool:
        async with ax.Session(graph) as session:

            async def run() -> Any:
                return await session.run(last, {fed: 1})

            async def floor() -> Any:
                return await asyncio.get_running_loop().run_in_executor(pool, floor_on_thread)

            return await alternate([await calling(OURS, run), await calling(FLOOR, floor)], settings)


BENCHMARKS: Final = (Benchmark("worker_chain", measure_chain), Benchmark("worker_node", measure_one))
