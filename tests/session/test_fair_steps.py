"""Concurrent steps share the loop: whoever has little to do is done soon, whatever the others have to do.

Slices are a nanosecond here, so that each is one execution of a node; executions are counted, and no time is taken.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, Final

import pytest

import asyncexec as ax
from tests.running import raw_op, started

ONE_NODE: Final = 1e-6  # ms: what a slice is long
LONG: Final = 5_000  # executions of the long step
SHORT: Final = 10  # of each short one
NUM_SHORT: Final = 100


class Counted:
    """Nodes that count their executions by the step that they are in, which they are told by what is fed."""

    def __init__(self) -> None:
        self.executions: Counter[str] = Counter()
        self.add = raw_op("Count", self._count)

    def _count(self, step: str) -> str:
        self.executions[step] += 1
        return step

    def chain(self, x: Any, count: int) -> Any:
        for _ in range(count):
            x = self.add(x)
        return x


def config(**others: Any) -> ax.SessionConfig:
    return ax.SessionConfig(slice_ms=ONE_NODE, **others)


def long_chain(counted: Counted, x: Any) -> Any:
    return counted.chain(x, LONG)


def long_loop(counted: Counted, x: Any) -> Any:
    _, last = ax.while_loop(lambda i, _: i < LONG // 10, lambda i, v: (i + 1, counted.chain(v, 10)), (0, x))
    return last


def two_devices(counted: Counted, x: Any) -> Any:
    for i in range(20):
        with ax.device(f"/cpu:{i % 2}"):
            x = counted.chain(x, LONG // 20)
    return x


@pytest.mark.one_of("loop")
@pytest.mark.parametrize("make", [long_chain, long_loop, two_devices], ids=lambda make: make.__name__)
async def test_short_steps_beside_a_long_one(make: Any) -> None:
    counted = Counted()
    with ax.Graph() as graph:
        x = ax.placeholder(ax.object, [], name="x")
        short, long = counted.chain(x, SHORT), make(counted, x)
    async with ax.Session(graph, config(device_count={"CPU": 2})) as session:
        await session.run(short, {x: "warm"})
        running = await started(session.run(long, {x: "long"}))
        begun = counted.executions["long"]
        assert begun < 100
        assert await asyncio.gather(*(session.run(short, {x: f"{i}"}) for i in range(NUM_SHORT)))
        assert counted.executions["long"] - begun < 5 * SHORT
        assert not running.done()
        await running
    assert counted.executions["long"] == LONG


async def test_a_long_step_beside_ever_new_short_ones() -> None:
    """It goes on a slice a turn."""
    counted = Counted()
    with ax.Graph() as graph:
        x = ax.placeholder(ax.object, [], name="x")
        short, long = counted.chain(x, SHORT), counted.chain(x, LONG // 5)
    async with ax.Session(graph, config(executor_type="TAGGED_TOKEN")) as session:
        running = await started(session.run(long, {x: "long"}))
        while not running.done():
            await session.run(short, {x: "short"})
    assert counted.executions["short"] < 4 * counted.executions["long"]


async def test_two_long_steps_go_on_side_by_side() -> None:
    counted = Counted()
    gaps: list[int] = []

    def look(step: str) -> str:
        gaps.append(abs(counted.executions["a"] - counted.executions["b"]))
        return step

    with ax.Graph() as graph:
        x = ax.placeholder(ax.object, [], name="x")
        last = x
        for _ in range(LONG // 5):
            last = raw_op("Look", look)(counted.add(last))
    async with ax.Session(graph, config()) as session:
        await asyncio.gather(session.run(last, {x: "a"}), session.run(last, {x: "b"}))
    assert max(gaps) < 20
