"""Rows of graphs over two devices: a value that crosses after each add, and the same adds on one device.

The floor of the first is two tasks that hand the value to each other by asyncio.Queue; that of the second is a loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np

import asyncexec as ax
from benchmarks import graphs, tensorflow_session
from benchmarks.measure import Settings, Times, alternate, calling, ratios
from benchmarks.report import FLOOR, OURS, TENSORFLOW, Benchmark, Row, Target, at_most_of_tensorflow
from benchmarks.runs import US_PER_S, scaled

NUM_ADDS: Final = 100
DEVICE_COUNT: Final = {"CPU": 2}
SHARE_OF_TENSORFLOW: Final = 0.5


def measure_crossings(settings: Settings) -> Row:
    """100 adds, each on the other device than the one before."""
    times = scaled(ax.run(partial(_race, "two_device_100", hand_over, settings)), US_PER_S / NUM_ADDS)
    found = ratios(times[OURS], [times[FLOOR]])
    targets = (
        Target("at most the queue's time", None if found is None else found[0], 1),
        at_most_of_tensorflow(times, SHARE_OF_TENSORFLOW),
    )
    return Row("two_device_100", "µs an add", times, targets)


def measure_one_device(settings: Settings) -> Row:
    """The same adds on one device."""
    times = scaled(ax.run(partial(_race, "one_device_100", add_up, settings)), US_PER_S / NUM_ADDS)
    return Row("one_device_100", "µs an add", times)


async def _race(name: str, floor: Callable[[], Any], settings: Settings) -> dict[str, Times]:
    timed = graphs.from_file(name)
    async with ax.Session(timed.imported(), ax.SessionConfig(device_count=DEVICE_COUNT)) as session:

        async def run() -> Any:
            return await session.run(timed.fetches, timed.feeds)

        contestants = [await calling(OURS, run), await calling(FLOOR, floor)]
        if not tensorflow_session.takes_part(settings):
            return await alternate(contestants, settings)
        graph_def = tensorflow_session.read(timed.wire)
        with tensorflow_session.open_session(graph_def, device_count=DEVICE_COUNT) as other:
            run_other = tensorflow_session.runner(other, timed.fetches, timed.feeds)
            return await alternate([*contestants, await calling(TENSORFLOW, run_other)], settings)


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
