"""Rows of graphs over two devices: a value that crosses after each add, and the same adds on one device.

The floor of the first is two tasks that hand the value to each other by asyncio.Queue; that of the second is a loop.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import numpy as np

from benchmarks import graphs
from benchmarks.measure import Settings
from benchmarks.report import Benchmark, Row, at_most_of_floor, at_most_of_tensorflow
from benchmarks.runs import US_PER_S, race, scaled

NUM_ADDS: Final = 100
DEVICE_COUNT: Final = {"CPU": 2}
SHARE_OF_TENSORFLOW: Final = 1 / 25


def measure_crossings(settings: Settings) -> Row:
    """100 adds, each on the other device than the one before."""
    times = race(graphs.from_file("two_device_100"), hand_over, settings, DEVICE_COUNT)
    targets = (at_most_of_tensorflow(times, SHARE_OF_TENSORFLOW), at_most_of_floor(times, 1, "the queue's time"))
    return Row("two_device_100", "µs an add", scaled(times, US_PER_S / NUM_ADDS), targets)


def measure_one_device(settings: Settings) -> Row:
    """The same adds on one device."""
    times = race(graphs.from_file("one_device_100"), add_up, settings, DEVICE_COUNT)
    return Row("one_device_100", "µs an add", scaled(times, US_PER_S / NUM_ADDS))


async def hand_over() -> Any:
    """What two_device_100 computes, by two tasks that add in turns."""
    one, there, back = np.float32(1), asyncio.Queue[Any](), asyncio.Queue[Any]()

    async def add_half(source: asyncio.Queue[Any], destination: asyncio.Queue[Any]) -> None:
        for _ in range(NUM_ADDS // 2):
            destination.put_nowait(await source.get() + one)

    async with asyncio.TaskGroup() as group:
        group.create_task(add_half(there, back))
        group.create_task(add_half(back, there))
        there.put_nowait(np.float32(0))
    return there.get_nowait()


def add_up() -> Any:
    """What one_device_100 computes."""
    value, one = np.float32(0), np.float32(1)
    for _ in range(NUM_ADDS):
        value = value + one
    return value


BENCHMARKS: Final = (
    Benchmark("two_device_100", measure_crossings),
    Benchmark("one_device_100", measure_one_device),
)
