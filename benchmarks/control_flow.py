"""Rows of loops and branches in the graph: while loops, nested ones, a chain of conds."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np

from benchmarks import graphs
from benchmarks.measure import Settings
from benchmarks.report import Benchmark, Row, at_most_of_floor, at_most_of_tensorflow
from benchmarks.runs import US_PER_S, race, scaled

ITERATIONS: Final = 10_000
NUM_CONDS: Final = 1_000
# Of TensorFlow's time, and of hand-written Python's.
LOOP_SHARES: Final = (1 / 17, 1.15)
COND_SHARES: Final = (1 / 12, 1.2)


def measure(
    name: str, floor: Callable[[], Any], count: int, shares: tuple[float, float], unit: str, settings: Settings
) -> Row:
    """The graph file *name*, by its *count* iterations or branches, against the same in Python."""
    times = race(graphs.from_file(name), floor, settings)
    targets = (at_most_of_tensorflow(times, shares[0]), at_most_of_floor(times, shares[1]))
    return Row(name, unit, scaled(times, US_PER_S / count), targets)


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


BENCHMARKS: Final = tuple(
    Benchmark(name, partial(measure, name, floor, count, shares, unit))
    for name, floor, count, shares, unit in (
        ("while_10000_pi1", loop, ITERATIONS, LOOP_SHARES, "µs an iteration"),
        ("while_10000_pi10", loop, ITERATIONS, LOOP_SHARES, "µs an iteration"),
        ("while_nested_100x100", nested_loop, ITERATIONS, LOOP_SHARES, "µs an iteration"),
        ("cond_chain_1000", conds, NUM_CONDS, COND_SHARES, "µs a cond"),
    )
)
