"""Rows of graphs with async nodes between cheap ones: what regions bring, against the general executor alone."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Final

import numpy as np

import asyncexec as ax
from benchmarks.async_ops import turn
from benchmarks.measure import Settings, Times, alternate, calling, ratios
from benchmarks.report import FLOOR, OURS, Benchmark, Row, Target

GENERAL: Final = "general executor"
NUM_CALLS: Final = 20
NUM_ADDS: Final = 50  # between two calls
WARM_UP: Final = 200  # runs, by which everything is compiled
ONE: Final = np.float64(1)


def chain() -> tuple[ax.Tensor, ax.Tensor]:
    """What is fed and fetched: 20 async ops one after the other, with 50 additions before each."""
    nap = ax.op(turn, outputs=[ax.float64])
    fed = y = ax.placeholder(ax.float64, [], name="x")
    for _ in range(NUM_CALLS):
        for _ in range(NUM_ADDS):
            y = y + ONE
        y = nap(y)
    return fed, y


def loop() -> tuple[ax.Tensor, ax.Tensor]:
    """The same in a while loop of 20 iterations."""
    nap = ax.op(turn, outputs=[ax.float64])
    fed = ax.placeholder(ax.float64, [], name="x")

    def body(i: ax.Tensor, y: ax.Tensor) -> list[ax.Tensor]:
        for _ in range(NUM_ADDS):
            y = y + ONE
        return [i + 1, nap(y)]

    _, y = ax.while_loop(lambda i, _: i < NUM_CALLS, body, [ax.constant(0), fed])
    return fed, y


async def by_hand() -> np.float64:
    """What both of them do."""
    y = ONE
    for _ in range(NUM_CALLS):
        for _ in range(NUM_ADDS):
            y = y + ONE
        y = await turn(y)
    return y


def measure(name: str, least_gain: float, settings: Settings) -> Row:
    """Runs with regions, and without."""
    times = asyncio.run(_race({"chain": chain, "loop": loop}[name], settings))
    found = ratios(times[OURS], [times[GENERAL]])
    target = Target(
        f"at most {1 / least_gain:.2g} of the general executor's", None if found is None else found[0], 1 / least_gain
    )
    microseconds = {name: each.scaled(1e6) for name, each in times.items()}
    note = f"the general executor takes {microseconds[GENERAL].median:.0f} us"
    return Row(f"async_in_{name}", "us", microseconds, (target,), (note,))


async def _race(make: Any, settings: Settings) -> dict[str, Times]:
    with ax.Graph() as graph:
        fed, fetch = make()
    config = ax.SessionConfig(executor_type="TAGGED_TOKEN")
    async with ax.Session(graph) as session, ax.Session(graph, config) as general:

        async def run() -> Any:
            return await session.run(fetch, {fed: ONE})

        async def run_general() -> Any:
            return await general.run(fetch, {fed: ONE})

        for _ in range(WARM_UP):
            await run()
        contestants = [await calling(OURS, run), await calling(GENERAL, run_general), await calling(FLOOR, by_hand)]
        return await alternate(contestants, settings, rounds=10)


BENCHMARKS: Final = (
    Benchmark("async_in_chain", partial(measure, "chain", 6.0)),
    Benchmark("async_in_loop", partial(measure, "loop", 2.0)),
)
