"""An async source that never waits: others have the loop meanwhile, however large the window."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncexec as ax
from tests.fake_time import FakeTime
from tests.session.stream_graphs import Stages


async def test_a_source_that_never_waits_lets_others_run() -> None:
    time = FakeTime()
    stages = Stages()
    turns: list[int] = []

    async def items() -> AsyncIterator[dict[Any, int]]:
        for x in range(100):
            time.now_ns += 2_000_000
            yield {stages.x: x}
        turns.append(-1)

    async def tick() -> None:
        while True:
            turns.append(time.now_ns)
            await asyncio.sleep(0)

    async with (
        ax.Session(stages.graph, clock=time.clock) as session,
        session.map(stages.y, items(), window=1000) as outputs,
    ):
        ticking = asyncio.create_task(tick())
        assert [await anext(outputs) for _ in range(10)] == list(range(1, 21, 2))
        ticking.cancel()
    between = [turn for turn in dict.fromkeys(turns) if turn > 0]
    assert len(between) > 5
