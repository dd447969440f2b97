"""The initial values of a stream's states and admission control: they wait like an item, and are not refused."""

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


@pytest.mark.parametrize("leaves", [False, True], ids=["closed", "left"])
async def test_initial_values_of_a_stream_that_has_ended_meanwhile_do_not_wait_for_their_own_place(
    leaves: bool,
) -> None:
    go = asyncio.Event()

    async def wait(value: Any) -> Any:
        await go.wait()
        return value

    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [], name="x")
        waiting = raw_op("WaitToGo", wait, kind=KernelKind.ASYNC, dtype=ax.int64)(x, name="y")
        total = ax.stream_state(ax.constant(np.int64(10)), [])
        new = total.update(total.value + x)
    async with ax.Session(graph, ax.SessionConfig(max_concurrent_steps=1)) as session:
        running = asyncio.create_task(session.run(waiting, {x: 1}))
        await settle()
        async with session.stream(new) as stream:
            sending = asyncio.create_task(stream.send({x: 1}))
            await settle()
            assert session.statistics().queued_steps == 1
            await (stream.aclose() if leaves else stream.close())
            go.set()
            with pytest.raises(ax.errors.AbortedError if leaves else ax.errors.FailedPreconditionError):
                await asyncio.wait_for(sending, 10)
        assert await running == 1
        assert await asyncio.wait_for(session.run(waiting, {x: 2}), 10) == 2
