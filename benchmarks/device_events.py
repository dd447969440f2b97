"""Rows of waiting for a device: how late it is seen that its work is done.

The work takes 100 microseconds.  The other contestant asks by the timers of the event loop, which go by milliseconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import asyncexec as ax
from asyncexec.devices.array_library import IsDone
from asyncexec.devices.device_events import device_events
from asyncexec.framework.clock import NS_PER_US, monotonic_ns
from benchmarks.measure import Contestant, Settings, Times, alternate
from benchmarks.report import OURS, Benchmark, Row, Target

WORK_NS: Final = 100 * NS_PER_US
MANY: Final = 100
BY_TIMERS: Final = "timers"  # of the event loop
_LONGEST_NAP_S: Final = 1e-3
_SHORTEST_NAP_S: Final = 20e-6

Wait = Callable[[IsDone], Awaitable[None]]


def measure_one(settings: Settings) -> Row:
    """One event at a time."""
    return _row("device_event", 1, settings)


def measure_many(settings: Settings) -> Row:
    """100 events at once: how late the last one is seen."""
    return _row(f"device_events_{MANY}", MANY, settings)


def _row(name: str, count: int, settings: Settings) -> Row:
    times: dict[str, Times] = ax.run(partial(_race, count, settings))
    found = times[OURS].median / times[BY_TIMERS].median
    return Row(name, "µs late", times, (Target("at most half of what timers of the loop take", found, 0.5),))


async def _race(count: int, settings: Settings) -> dict[str, Times]:
    return await alternate(
        [
            Contestant(OURS, partial(_time_late_us, device_events.wait, count)),
            Contestant(BY_TIMERS, partial(_time_late_us, wait_by_timers, count)),
        ],
        settings,
        rounds=20,
    )


async def _time_late_us(wait: Wait, count: int) -> float:
    """How long after their end the last of so many works is seen to be done; the median of some times."""
    late = sorted([await _late_us(wait, count) for _ in range(5)])
    return late[2]


async def _late_us(wait: Wait, count: int) -> float:
    end = monotonic_ns() + WORK_NS
    await asyncio.gather(*(wait(lambda: monotonic_ns() >= end) for _ in range(count)))
    return (monotonic_ns() - end) / NS_PER_US


async def wait_by_timers(is_done: IsDone) -> None:
    """Return once *is_done*, asked again and again by timers of the running loop, ever more rarely."""
    nap_s = 0.0
    while not is_done():
        await asyncio.sleep(nap_s)
        nap_s = min(max(2 * nap_s, _SHORTEST_NAP_S), _LONGEST_NAP_S)


BENCHMARKS: Final = (Benchmark("device_event", measure_one), Benchmark(f"device_events_{MANY}", measure_many))
