"""A map that several tasks take from: nobody opens it twice."""

from __future__ import annotations

import asyncio

import asyncexec as ax
from tests.session.stream_graphs import Stages


async def test_a_map_that_several_ask_at_once_is_opened_once() -> None:
    stages = Stages()
    async with ax.Session(stages.graph) as session:
        outputs = session.map(stages.y, [{stages.x: x} for x in range(5)])
        assert await asyncio.gather(*[anext(outputs) for _ in range(3)]) == [1, 3, 5]
        assert [out async for out in outputs] == [7, 9]
        assert session.statistics().running_steps == 0
