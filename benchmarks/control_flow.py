"""Rows of loops and branches in the graph: while loops, nested ones, a chain of conds."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np

import asyncexec as ax
from benchmarks import graphs, tensorflow_session
from benchmarks.graphs import TimedGraph
from benchmarks.measure import Settings, Times, alternate, calling
from benchmarks.report import FLOOR, OURS, TENSORFLOW, TENSORFLOW_PLAIN, Benchmark, Row, at_most_of_tensorflow
from benchmarks.runs import US_PER_S, scaled

ITERATIONS: Final = 10_000
NUM_CONDS: Final = 1_000
SHARE_OF_TENSORFLOW: Final = 4


def measure(name: str, floor: Callable[[], Any], count: int, unit: str, settings: Settings) -> Row:
    """The graph file *name*, by its *count* iterations or branches, against the same in Python."""
    times = ax.run(partial(_race, graphs.from_file(name), floor, settings))
    scale = scaled(times, US_PER_S / count)
    return Row(name, unit, scale, (at_most_of_tensorflow(times, SHARE_OF_TENSORFLOW),))


async def _race(timed: TimedGraph, floor: Callable[[], Any], settings: Settings) -> dict[str, Times]:
    async with ax.Session(timed.imported()) as session:

        async def run() -> Any:
            return await session.run(timed.fetches, timed.feeds)

        contestants = [await calling(OURS, run), await calling(FLOOR, floor)]
        if not tensorflow_session.takes_part(settings):
            return await alternate(contestants, settings)
        graph_def = tensorflow_session.read(timed.wire)
        with (
            tensorflow_session.open_session(graph_def) as optimizing,
            tensorflow_session.open_session(graph_def, is_optimizing=False) as plain,
        ):
            for name, session_there in ((TENSORFLOW, optimizing), (TENSORFLOW_PLAIN, plain)):
                contestants.append(
                    await calling(name, tensorflow_session.runner(session_there, timed.fetches, timed.feeds))
                )
            return await alternate(contestants, settings)


def loop() -> Any:
    """What while_10000 computes: a counter to 10,000, and a value that is multiplied and added to."""
    i, x, n = np.float32(0), np.float32(0), np.float32(ITERATIONS)
    one, factor = np.float32(1), np.float32(1.0001)
    while i < n:
        i, x = i + one, x * factor + i
    return x


def nested_loop() -> Any:
    """What while_nested_100x100 computes."""
    outer, inner, x = np.float32(0), np.float32(0), np.float32(0)
    n = np.float32(100)
    one, factor = np.float32(1), np.float32(1.0001)
    while outer < n:
        inner = np.float32(0)
        while inner < n:
            inner, x = inner + one, x * factor + inner
        outer = outer + one
    return x


def conds() -> Any:
    """What cond_chain_1000 computes: an addition or a subtraction, a thousand times."""
    x, one = np.float32(0), np.float32(1)
    for i in range(NUM_CONDS):
        x = x + one if i % 2 else x - one
    return x


BENCHMARKS: Final = (
    *(
        Benchmark(name, partial(measure, name, floor, count, unit))
        for name, floor, count, unit in (
            ("while_10000_pi1", loop, ITERATIONS, "µs an iteration"),
            ("while_10000_pi10", loop, ITERATIONS, "µs an iteration"),
            ("while_nested_100x100", nested_loop, ITERATIONS, "µs an iteration"),
            ("cond_chain_1000", conds, NUM_CONDS, "µs a cond"),
        )
    ),
)
