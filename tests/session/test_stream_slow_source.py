"""A source that holds the loop each time it is drawn from: results do not wait for the window to be full."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import asyncexec as ax
from tests.fake_time import FakeTime
from tests.session.stream_graphs import Stages

_SECOND_NS = 1_000_000_000


async def test_results_come_while_a_slow_source_is_drawn_from() -> None:
    time = FakeTime()
    stages, drawn = Stages(), 0

    def items() -> Iterator[dict[Any, int]]:
        nonlocal drawn
        while True:
            drawn += 1
            time.now_ns += _SECOND_NS
            yield {stages.x: drawn}

    async with (
        ax.Session(stages.graph, clock=time.clock) as session,
        session.map(stages.y, items(), window=1000) as outputs,
    ):
        assert await anext(outputs) == 3
        assert drawn < 20
