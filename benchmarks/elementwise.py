"""Rows of elementwise ops on large arrays: 20 of them on 4 million floats, against numpy op by op.

One is without native code (extra ``jit``), one with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack, nullcontext
from functools import partial
from typing import Any, Final

import numpy as np

import asyncexec as ax
from asyncexec.framework.extras import require
from asyncexec.session import plan_compiler
from benchmarks import tensorflow_session
from benchmarks.graphs import TimedGraph
from benchmarks.measure import Contestant, Settings, Times, alternate, calling, ratios
from benchmarks.report import FLOOR, OURS, Benchmark, Row, Target, at_most_of_floor, at_most_of_tensorflow
from benchmarks.runs import scaled, without_native

SIZE: Final = 4_000_000
ROUNDS: Final = 5  # of four ops each
MS_PER_S: Final = 1000
SHARE_OF_NUMPY: Final = 0.3
SHARE_OF_TENSORFLOW: Final = 1 / 2.5
NATIVE_SHARE_OF_NUMPY: Final = 0.1
NATIVE_SHARE_OF_TENSORFLOW: Final = 1 / 6
NUMPY: Final = "numpy's op by op"
PYTHON: Final = "asyncexec, without native code"
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
    times = scaled(ax.run(partial(_race, make(), settings, (OURS,))), MS_PER_S)
    targets = (
        at_most_of_tensorflow(times, SHARE_OF_TENSORFLOW),
        at_most_of_floor(times, SHARE_OF_NUMPY, NUMPY),
    )
    return Row("elementwise", "ms", times, targets)


def measure_native(settings: Settings) -> Row:
    """The same with native code, and without."""
    require("llvmlite", extra="jit")
    times = scaled(ax.run(partial(_race, make(), settings, (PYTHON, OURS))), MS_PER_S)
    found = ratios(times[OURS], [times[PYTHON]])
    targets = (
        Target("at most the time without native code", None if found is None else max(found), 1.0),
        at_most_of_tensorflow(times, NATIVE_SHARE_OF_TENSORFLOW),
        at_most_of_floor(times, NATIVE_SHARE_OF_NUMPY, NUMPY),
    )
    return Row("native_elementwise", "ms", times, targets)


async def _race(timed: TimedGraph, settings: Settings, ours: Sequence[str]) -> dict[str, Times]:
    """Of *ours* the last is native, if there are two."""
    async with AsyncExitStack() as stack:
        contestants: list[Contestant] = []
        for name in ours:
            session = await stack.enter_async_context(ax.Session(timed.imported()))
            contestants.append(await _warm(name, session, timed, is_native=name != ours[0]))
        contestants.append(await calling(FLOOR, partial(by_numpy, timed.feeds["x:0"])))
        contestants += await tensorflow_session.contestants(stack, timed, settings)
        return await alternate(contestants, settings)


async def _warm(name: str, session: ax.Session, timed: TimedGraph, *, is_native: bool) -> Contestant:
    """A contestant whose kernels have been measured, and whose plan has been compiled, and optimized."""

    async def run() -> Any:
        return await session.run(timed.fetches, timed.feeds)

    with nullcontext() if is_native else without_native():
        contestant = await calling(name, run)
    if is_native:
        await asyncio.to_thread(plan_compiler.native_calls.COMPILER.join)
    return contestant


BENCHMARKS: Final = (Benchmark("elementwise", measure), Benchmark("native_elementwise", measure_native))
