"""Row of ``session.map`` over workers: a pure-Python op of 5 ms over 1, 2 and 4 workers, in one run.

The floor is a loop that calls the function in this process, and so on one core.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, Final

import asyncexec as ax
from asyncexec.distributed.cluster import Cluster
from asyncexec.distributed.cluster_spec import ClusterSpec
from asyncexec.distributed.launcher import NoLauncher
from asyncexec.distributed.transport.options import TransportOptions
from asyncexec.framework.clock import NS_PER_S, monotonic_ns
from benchmarks import cluster_processes
from benchmarks.measure import Contestant, Settings, Times, alternate
from benchmarks.report import FLOOR, OURS, Benchmark, Row, Target

NUM_ITEMS: Final = 200
ITEM_S: Final = 0.005
MAX_OF_LINEAR: Final = 1.1  # of the time of one worker, divided by the number of them that have a core
MS_PER_S: Final = 1000
WORKERS: Final = {OURS: 1, "2 workers": 2, "4 workers": 4}


@ax.op
def count_up(rounds: int) -> int:
    """Takes about as long as *rounds* tell."""
    return counted(rounds)


def counted(rounds: int) -> int:
    """What the op gives, in plain Python."""
    total = 0
    for number in range(rounds):
        total += number & 7
    return total


def rounds_of_an_item() -> int:
    """How many rounds take as long as an item is to take, at the best of some tries."""
    rounds = 10_000
    taken_s = min(timed(lambda: counted(rounds)) for _ in range(20))
    return int(rounds * ITEM_S / taken_s)


def timed(call: Callable[[], Any]) -> float:
    """Seconds that a call takes."""
    begun = monotonic_ns()
    call()
    return (monotonic_ns() - begun) / NS_PER_S


async def over_workers(name: str, num_workers: int, rounds: int, stack: contextlib.AsyncExitStack) -> Contestant:
    """A map over so many workers; the time of an item."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    addresses = [f"unix:{folder / str(task)}" for task in range(num_workers)]
    stack.enter_context(cluster_processes.workers(cluster_processes.OBJECTS, addresses))
    launcher, options = NoLauncher(ClusterSpec({"worker": addresses})), TransportOptions(objects=True)
    cluster = await stack.enter_async_context(Cluster(launcher, options=options))
    with ax.Graph() as graph:
        fed = ax.placeholder(ax.int64, [], name="rounds")
        fetched = count_up(fed)
    session = await stack.enter_async_context(ax.Session(graph, cluster=cluster))
    expected = counted(rounds)

    async def run() -> None:
        items = ({fed: rounds} for _ in range(NUM_ITEMS))
        async for total in session.map(fetched, items, window=4 * num_workers, workers="/job:worker"):
            if total != expected:
                raise RuntimeError(f"{name} gives {total}, not {expected}")

    await run()
    return Contestant(name, partial(_time_of_an_item, run))


async def _time_of_an_item(run: Callable[[], Coroutine[Any, Any, None]]) -> float:
    begun = monotonic_ns()
    await run()
    return (monotonic_ns() - begun) / NS_PER_S / NUM_ITEMS


async def _race(settings: Settings) -> dict[str, Times]:
    rounds = rounds_of_an_item()

    async def in_a_loop() -> None:
        for _ in range(NUM_ITEMS):
            counted(rounds)
            await asyncio.sleep(0)

    async with contextlib.AsyncExitStack() as stack:
        contestants = [await over_workers(name, count, rounds, stack) for name, count in WORKERS.items()]
        contestants.append(Contestant(FLOOR, partial(_time_of_an_item, in_a_loop)))
        return await alternate(contestants, settings)


def measure_map(settings: Settings) -> Row:
    """Milliseconds an item."""
    times = ax.run(partial(_race, settings))
    num_cores = os.cpu_count() or 1
    targets = []
    for name, count in WORKERS.items():
        if name != OURS:
            linear = times[OURS].median / min(count, num_cores)
            text = f"{name}: at most {MAX_OF_LINEAR:g} of linear up to {num_cores} cores"
            targets.append(Target(text, times[name].median / linear, MAX_OF_LINEAR))
    rates = {name: 1 / each.median for name, each in times.items()}
    shown = {OURS: "1 worker", FLOOR: "by a loop here"}
    note = "items a second: " + ", ".join(f"{rate:,.0f} {shown.get(name, name)}" for name, rate in rates.items())
    scaled = {name: each.scaled(MS_PER_S) for name, each in times.items()}
    return Row("cluster_map", "ms", scaled, tuple(targets), (note,))


BENCHMARKS: Final = (Benchmark("cluster_map", measure_map),)
