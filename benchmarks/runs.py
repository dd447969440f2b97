"""Rows of repeated runs: one op, chains, layers, wide fan-out, many feeds and fetches, and a real model.

The signature's executor is there already; what is measured is a step.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest import mock

import numpy as np

import asyncexec as ax
from asyncexec.framework.clock import NS_PER_S, NS_PER_US
from asyncexec.session import plan_compiler
from benchmarks import graphs, tensorflow_session
from benchmarks.graphs import TimedGraph
from benchmarks.measure import Settings, Times, alternate, calling
from benchmarks.report import (
    FLOOR,
    OURS,
    TENSORFLOW,
    Benchmark,
    Row,
    Target,
    at_most_of_floor,
    at_most_of_tensorflow,
)

US_PER_S: Final = NS_PER_S // NS_PER_US
CHAIN_LENGTHS: Final = (10, 100, 1_000, 10_000)
# Graph file -> adds in it, and the share of TensorFlow's time that it may take.
ADDS: Final = {
    **{f"chain_{length}": (length, 1 / (3.9 if length == CHAIN_LENGTHS[-1] else 5)) for length in CHAIN_LENGTHS},
    "layered_100x10": (1_000, 1 / 6),
    "wide_addn_1000": (1_000, 1 / 5),
    "wide_tree_1000": (1_999, 1 / 7),
}
MANY_ADDS: Final = 1_000  # beside which the run itself does not count
SHARE_OF_HAND_WRITTEN: Final = 1.1
MODEL: Final = Path(ax.__file__).parent / "cli" / "demo_data"
TOLERANCE: Final = 1e-5


@contextmanager
def without_native() -> Iterator[None]:
    """What is compiled inside is Python, though the extra ``jit`` may be installed."""
    with mock.patch.object(plan_compiler, "has_llvmlite", return_value=False):
        yield


def race(
    timed: TimedGraph,
    floor: Callable[[], Any] | None,
    settings: Settings,
    device_count: Mapping[str, int] | None = None,
) -> dict[str, Times]:
    """Seconds that a run of *timed* takes here without native code, by its floor, and in TensorFlow."""
    with without_native():
        return ax.run(partial(_race, timed, floor, settings, device_count or {"CPU": 1}))


async def _race(
    timed: TimedGraph, floor: Callable[[], Any] | None, settings: Settings, device_count: Mapping[str, int]
) -> dict[str, Times]:
    config = ax.SessionConfig(device_count=dict(device_count))
    async with ax.Session(timed.imported(), config) as session, AsyncExitStack() as stack:

        async def run() -> Any:
            return await session.run(timed.fetches, timed.feeds)

        contestants = [await calling(OURS, run)]
        if floor is not None:
            contestants.append(await calling(FLOOR, floor))
        contestants += await tensorflow_session.contestants(stack, timed, settings, device_count)
        return await alternate(contestants, settings)


def scaled(times: Mapping[str, Times], factor: float) -> dict[str, Times]:
    """All of *times* in another unit."""
    return {name: each.scaled(factor) for name, each in times.items()}


def measure_one_op(settings: Settings) -> Row:
    """A one-op run, against awaiting a coroutine that adds what is in a dict."""
    values = {"x": np.float32(1), "one": np.float32(1)}

    async def floor() -> Any:
        return operator.add(*values.values())

    times = race(graphs.from_file("run_latency"), floor, settings)
    return Row("run_latency", "µs", scaled(times, US_PER_S), (at_most_of_tensorflow(times, 1 / 50),))


def measure_callable(settings: Settings) -> Row:
    """The same by way of make_callable, in TensorFlow too."""
    timed = graphs.from_file("run_latency")
    times = ax.run(partial(_race_callables, timed, settings))
    return Row("callable_latency", "µs", scaled(times, US_PER_S), (at_most_of_tensorflow(times, 1 / 100),))


async def _race_callables(timed: TimedGraph, settings: Settings) -> dict[str, Times]:
    (key,), (value,) = timed.feeds.keys(), timed.feeds.values()
    async with ax.Session(timed.imported()) as session:
        call = session.make_callable(timed.fetches, [key])

        async def run() -> Any:
            return await call(value)

        contestants = [await calling(OURS, run)]
        if not tensorflow_session.takes_part(settings):
            return await alternate(contestants, settings)
        with tensorflow_session.open_session(tensorflow_session.read(timed.wire)) as other:
            call_other = other.make_callable(timed.fetches, [key])
            return await alternate([*contestants, await calling(TENSORFLOW, lambda: call_other(value))], settings)


def measure_adds(name: str, settings: Settings) -> Row:
    """A graph of adds alone, against as many adds written by hand."""
    timed, (num_adds, share) = graphs.from_file(name), ADDS[name]
    times = race(timed, graphs.floor_of(timed), settings)
    by_hand = (at_most_of_floor(times, SHARE_OF_HAND_WRITTEN),) if num_adds >= MANY_ADDS else ()
    targets = (at_most_of_tensorflow(times, share), *by_hand)
    return Row(name, "µs a node", scaled(times, US_PER_S / num_adds), targets)


def measure_feeds_and_fetches(settings: Settings) -> Row:
    """100 adds, each fed and fetched."""
    timed = graphs.from_file("feeds100_fetches100")
    times = race(timed, graphs.floor_of(timed), settings)
    return Row("feeds100_fetches100", "µs", scaled(times, US_PER_S), (at_most_of_tensorflow(times, 1 / 40),))


def measure_digits(settings: Settings) -> Row:
    """450 images of digits through a frozen convolutional model; the target is to agree with TensorFlow."""
    with np.load(MODEL / "test.npz", allow_pickle=False) as data:
        images, expected, classes = data["images"], data["tf_probabilities"], data["tf_classes"]
    timed = TimedGraph(ax.load_graph_def(MODEL / "model.pb"), {"images:0": images}, ["probabilities:0", "classes:0"])
    times = race(timed, None, settings)
    probabilities, found = ax.run(partial(_run_once, timed))
    difference = float(abs(probabilities - expected).max())
    note = f"largest difference {difference:.1e}, {int((found == classes).sum())} of {len(classes)} classes equal"
    target = Target(f"within {TOLERANCE:g} of TensorFlow's", difference, TOLERANCE)
    return Row("digits_450", "ms", scaled(times, 1000), (target,), (note,))


async def _run_once(timed: TimedGraph) -> Any:
    async with ax.Session(timed.imported()) as session:
        return await session.run(timed.fetches, timed.feeds)


BENCHMARKS: Final = (
    Benchmark("run_latency", measure_one_op),
    Benchmark("callable_latency", measure_callable),
    *(Benchmark(name, partial(measure_adds, name)) for name in ADDS),
    Benchmark("feeds100_fetches100", measure_feeds_and_fetches),
    Benchmark("digits_450", measure_digits),
)
