"""Row of elementwise ops on large arrays: 20 of them on 4 million floats, against numpy op by op."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import numpy as np

import asyncexec as ax
from benchmarks import tensorflow_session
from benchmarks.graphs import TimedGraph
from benchmarks.measure import Settings, Times, alternate, calling, ratios
from benchmarks.report import (
    FLOOR,
    OURS,
    TENSORFLOW,
    TENSORFLOW_PLAIN,
    Benchmark,
    Row,
    Target,
    at_most_of_tensorflow,
)
from benchmarks.runs import scaled

SIZE: Final = 4_000_000
ROUNDS: Final = 5  # of four ops each
WARM_UP: Final = 20  # runs, by which the kernels are measured and the plan is compiled
MS_PER_S: Final = 1000
SHARE_OF_NUMPY: Final = 0.3
SHARE_OF_TENSORFLOW: Final = 0.4
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
    found = ratios(times[OURS], [times[FLOOR]])
    targets: Sequence[Target] = (
        Target(f"at most {SHARE_OF_NUMPY:g} of numpy's", None if found is None else found[0], SHARE_OF_NUMPY),
        at_most_of_tensorflow(times, SHARE_OF_TENSORFLOW),
    )
    return Row("elementwise", "ms", times, tuple(targets))


async def _race(timed: TimedGraph, settings: Settings) -> dict[str, Times]:
    async with ax.Session(timed.imported()) as session:

        async def run() -> Any:
            return await session.run(timed.fetches, timed.feeds)

        for _ in range(WARM_UP):
            await run()
        contestants = [await calling(OURS, run), await calling(FLOOR, partial(by_numpy, timed.feeds["x:0"]))]
        if not tensorflow_session.takes_part(settings):
            return await alternate(contestants, settings)
        graph_def = tensorflow_session.read(timed.wire)
        with (
            tensorflow_session.open_session(graph_def) as optimizing,
            tensorflow_session.open_session(graph_def, is_optimizing=False) as plain,
        ):
            for name, other in ((TENSORFLOW, optimizing), (TENSORFLOW_PLAIN, plain)):
                contestants.append(await calling(name, tensorflow_session.runner(other, timed.fetches, timed.feeds)))
            return await alternate(contestants, settings)


BENCHMARKS: Final = (Benchmark("elementwise", measure),)
