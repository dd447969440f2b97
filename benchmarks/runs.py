"""Rows of repeated runs: one op, chains, layers, wide fan-out, many feeds and fetches, and a real model.

The signature's executor is there already; what is measured is a step.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

import asyncexec as ax
from asyncexec.framework.clock import NS_PER_S, NS_PER_US
from benchmarks import graphs, tensorflow_session
from benchmarks.graphs import TimedGraph
from benchmarks.measure import Settings, Times, alternate, calling
from benchmarks.report import FLOOR, OURS, TENSORFLOW, Benchmark, Row, Target, at_most_of_tensorflow

US_PER_S: Final = NS_PER_S // NS_PER_US
CHAIN_LENGTHS: Final = (10, 100, 1_000, 10_000)
WIDE: Final = {"layered_100x10": 1_000, "wide_addn_1000": 1_000, "wide_tree_1000": 1_999}  # adds in each
LONGEST_NODE_US: Final = 3.0
MODEL: Final = Path(ax.__file__).parent / "cli" / "demo_data"
TOLERANCE: Final = 1e-5


def race(timed: TimedGraph, floor: Callable[[], Any] | None, settings: Settings) -> dict[str, Times]:
    """Seconds that a run of *timed* takes here, by its floor, and in TensorFlow."""
    return ax.run(partial(_race, timed, floor, settings))


async def _race(timed: TimedGraph, floor: Callable[[], Any] | None, settings: Settings) -> dict[str, Times]:
    async with ax.Session(timed.imported()) as session:

        async def run() -> Any:
            return await session.run(timed.fetches, timed.feeds)

        contestants = [await calling(OURS, run)]
        if floor is not None:
            contestants.append(await calling(FLOOR, floor))
        if not tensorflow_session.takes_part(settings):
            return await alternate(contestants, settings)
        with tensorflow_session.open_session(tensorflow_session.read(timed.wire)) as other:
            run_other = tensorflow_session.runner(other, timed.fetches, timed.feeds)
            return await alternate([*contestants, await calling(TENSORFLOW, run_other)], settings)


def scaled(times: Mapping[str, Times], factor: float) -> dict[str, Times]:
    """All of *times* in another unit."""
    return {name: each.scaled(factor) for name, each in times.items()}


def measure_one_op(settings: Settings) -> Row:
    """A one-op run, against awaiting a coroutine that adds what is in a dict."""
    values = {"x": np.float32(1), "one": np.float32(1)}

    async def floor() -> Any:
        return operator.add(*values.values())

    times = race(graphs.from_file("run_latency"), floor, settings)
    return Row("run_latency", "µs", scaled(times, US_PER_S), (at_most_of_tensorflow(times, 0.1),))


def measure_callable(settings: Settings) -> Row:
    """The same by way of make_callable, in TensorFlow too."""
    timed = graphs.from_file("run_latency")
    return Row("callable_latency", "µs", scaled(ax.run(partial(_race_callables, timed, settings)), US_PER_S))


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


def measure_chain(length: int, settings: Settings) -> Row:
    """A chain of *length* adds, against a loop of as many."""
    one = np.float32(1)

    def floor() -> Any:
        value = np.float32(0)
        for _ in range(length):
            value = value + one
        return value

    times = race(graphs.from_file(f"chain_{length}"), floor, settings)
    return _row_per_node(f"chain_{length}", times, length)


def measure_wide(name: str, settings: Settings) -> Row:
    """One of the wide graphs, against a loop over its adds."""
    timed = graphs.from_file(name)
    return _row_per_node(name, race(timed, graphs.floor_of(timed), settings), WIDE[name])


def _row_per_node(name: str, times: Mapping[str, Times], num_nodes: int) -> Row:
    per_node = scaled(times, US_PER_S / num_nodes)
    target = Target(f"at most {LONGEST_NODE_US:g} µs a node", per_node[OURS].median, LONGEST_NODE_US)
    return Row(name, "µs a node", per_node, (target,))


def measure_feeds_and_fetches(settings: Settings) -> Row:
    """100 adds, each fed and fetched."""
    timed = graphs.from_file("feeds100_fetches100")
    times = race(timed, graphs.floor_of(timed), settings)
    return Row("feeds100_fetches100", "µs", scaled(times, US_PER_S), (at_most_of_tensorflow(times, 0.1),))


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
    *(Benchmark(f"chain_{length}", partial(measure_chain, length)) for length in CHAIN_LENGTHS),
    *(Benchmark(name, partial(measure_wide, name)) for name in WIDE),
    Benchmark("feeds100_fetches100", measure_feeds_and_fetches),
    Benchmark("digits_450", measure_digits),
)
