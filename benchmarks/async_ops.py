"""Rows of async ops: 10,000 of them at once, against a TaskGroup of the same coroutines, on each event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final

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


BENCHMARKS: Final = tuple(Benchmark(f"async_{NUM_OPS}_{loop}", partial(measure_fan_out, loop)) for loop in LOOPS)
