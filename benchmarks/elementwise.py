"""Row of elementwise ops on large arrays: 20 of them on 4 million floats, against numpy op by op."""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final

import numpy as np

import asyncexec as ax
from benchmarks import tensorflow_session
from benchmarks.graphs import TimedGraph
from benchmarks.measure import Settings, Times, alternate, calling
from benchmarks.report import FLOOR, OURS, Benchmark, Row, at_most_of_floor, at_most_of_tensorflow
from benchmarks.runs import scaled

SIZE: Final = 4_000_000
ROUNDS: Final = 5  # of four ops each
WARM_UP: Final = 20  # runs, by which the kernels are measured and the plan is compiled
MS_PER_S: Final = 1000
SHARE_OF_NUMPY: Final = 0.3
SHARE_OF_TENSORFLOW: Final = 1 / 2.5
SCALE: Final = np.float32(1.0001)
SHIFT: Final = np.float32(0.5)


def make() -> TimedGraph:
    """Each round takes the result of the one before twice."""
    with ax.Graph() as graph:
        x = y = ax.placeholder(ax.float32, [None], name="x")
        for _ in range(ROUNDS):
            y = ax.maximum(y * SCALE - (y + SHIFT), x)
    value = np.random.default_rng(0).standard_normal(SIZE).astype(np.float32)
    return TimedGraph(graph.as_graph_def(), {"x:0": value}, y.name)


def by_numpy(x: Any) -> Any:
    """What the graph does."""
    y = x
    for _ in range(ROUNDS):
        y = np.maximum(y * SCALE - (y + SHIFT), x)
    return y


def measure(settings: Settings) -> Row:
    """A run of the graph; the floor is numpy op by op, and TensorFlow runs with its optimizer and without."""
    times = scaled(ax.run(partial(_race, make(), settings)), MS_PER_S)
    targets = (
        at_most_of_tensorflow(times, SHARE_OF_TENSORFLOW),
        at_most_of_floor(times, SHARE_OF_NUMPY, "numpy's op by op"),
    )
    return Row("elementwise", "ms", times, targets)


async def _race(timed: TimedGraph, settings: Settings) -> dict[str, Times]:
    async with ax.Session(timed.imported()) as session, AsyncExitStack() as stack:

        async def run() -> Any:
            return await session.run(timed.fetches, timed.feeds)

        for _ in range(WARM_UP):
            await run()
        contestants = [await calling(OURS, run), await calling(FLOOR, partial(by_numpy, timed.feeds["x:0"]))]
        contestants += await tensorflow_session.contestants(stack, timed, settings)
        return await alternate(contestants, settings)


BENCHMARKS: Final = (Benchmark("elementwise", measure),)
