"""The initial values of a stream's states at the door of its session: they wait like an item, and are not refused."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.kernel import KernelKind
from tests.running import raw_op, settle

pytestmark = pytest.mark.virtual_clock


async def test_initial_values_wait_for_a_place_and_are_not_refused() -> None:
    go = asyncio.Event()
    begun: list[str] = []

    async def wait(value: Any) -> Any:
        await go.wait()
        return value

    def begin(value: Any) -> Any:
        begun.append("initial")
        return value

    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [], name="x")
        waiting = raw_op("WaitToGo", wait, kind=KernelKind.ASYNC, dtype=ax.int64)(x, name="y")
        first = raw_op("Begin", begin, dtype=ax.int64)(ax.constant(np.int64(10)))
        total = ax.stream_state(first, [])
        new = total.update(total.value + x)
    config = ax.SessionConfig(max_concurrent_steps=1, max_queued_steps=0)
    async with ax.Session(graph, config) as session:
        running = asyncio.create_task(session.run(waiting, {x: 1}))
        await settle()

        async def sums() -> list[int]:
            return [int(out) async for out in session.map(new, [{x: 1}, {x: 2}])]

        summing = asyncio.create_task(sums())
        await settle()
        assert begun == []
        go.set()
        assert await asyncio.wait_for(summing, 10) == [11, 13]
        assert await running == 1
        assert session.statistics().running_steps == 0
