"""Streams whose tasks begin as soon as they are made: kernels and sources run before anybody knows their tasks."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.kernel import KernelKind
from tests.fake_time import FakeTime
from tests.running import begin_tasks_eagerly, raw_op, settle
from tests.session.stream_graphs import Stages, plus, results

pytestmark = pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks are new in Python 3.12")


async def clean_up(log: list[str]) -> None:
    """Wait for a cancellation, and take some turns then, in which another would be noticed."""
    try:
        await asyncio.Event().wait()
    finally:
        log.append("cancelled")
        await settle(3)
        log.append("ended")


@pytest.mark.parametrize("others", [0, 2])
async def test_a_kernel_ends_the_stream_before_it_awaits(others: int) -> None:
    """It is cancelled once, like the others."""
    log: list[str] = []

    async def end(x: Any) -> Any:
        if x == others:
            await stream.aclose()
        await clean_up(log)

    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [])
        out = raw_op("End", end, kind=KernelKind.ASYNC)(plus(x, np.int64(0)))
    begin_tasks_eagerly()
    async with ax.Session(graph) as session:
        async with session.stream(out, window=8) as stream:
            for item in range(others + 2):  # the last one never begins
                await stream.send({x: item})
            with pytest.raises(ax.errors.CancelledError, match="the stream has ended"):
                await anext(stream)
        assert log == ["cancelled"] * (others + 1) + ["ended"] * (others + 1)
        assert session.statistics().running_steps == 0


async def test_a_kernel_ends_the_stream_and_awaits_nothing() -> None:
    async def end(x: Any) -> Any:
        await stream.aclose()
        return x

    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [])
        out = raw_op("End", end, kind=KernelKind.ASYNC, dtype=ax.int64)(plus(x, np.int64(0)))
    begin_tasks_eagerly()
    async with ax.Session(graph) as session:
        async with session.stream(out) as stream:
            await stream.send({x: 1})
            with pytest.raises(ax.errors.CancelledError, match="the stream has ended"):
                await anext(stream)
        assert session.statistics().running_steps == 0


async def test_a_source_ends_its_stream_before_it_awaits() -> None:
    """The stream has not ended before its source has."""
    log: list[str] = []

    async def items() -> AsyncIterator[Any]:
        yield {stages.x: 0}
        await outputs.aclose()
        log.append("closed")
        await clean_up(log)

    stages = Stages()
    begin_tasks_eagerly()
    async with ax.Session(stages.graph) as session:
        await session.run(stages.y, {stages.x: 5})  # from here on nothing has to be built
        outputs = session.map(stages.y, items())
        with pytest.raises(ax.errors.CancelledError, match="the stream has ended"):
            await anext(outputs)
        assert log == ["closed", "cancelled", "ended"]


async def test_a_source_closes_its_stream_before_it_awaits() -> None:
    """The items before are done, and the source goes on; the stream has it until it ends."""
    go_on = asyncio.Event()

    async def items() -> AsyncIterator[int]:
        yield 0
        await stream.close()
        await go_on.wait()

    with ax.Graph() as graph:
        out = plus(ax.source(items(), ax.int64, []), np.int64(1))
    begin_tasks_eagerly()
    async with ax.Session(graph) as session:
        stream = session.stream(out)
        async with stream:
            assert await anext(stream) == 1
            await settle()
            assert session.statistics().running_steps == 1
            go_on.set()
            with pytest.raises(StopAsyncIteration):
                await anext(stream)
        assert session.statistics().running_steps == 0


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("window", [1, 3, 32])
async def test_items_that_end_at_once_and_items_that_do_not(window: int, ordered: bool) -> None:
    stages = Stages(delays={x: 0.001 for x in range(40) if x % 3})

    @ax.op(outputs=[ax.int64], shapes=[[]])
    async def at_once(y: Any) -> Any:
        return y

    with stages.graph:
        out = plus(at_once(stages.y), np.int64(0))
    begin_tasks_eagerly()
    async with ax.Session(stages.graph) as session:
        outputs = [y async for y in session.map(out, stages.items(range(40)), window=window, ordered=ordered)]
    assert (outputs if ordered else sorted(outputs)) == results(range(40))


async def test_the_time_of_a_kernel_is_not_that_of_the_next_nodes() -> None:
    """A kernel that does not await has run when its task is made; what is behind it is quick."""
    time = FakeTime()

    @ax.op(outputs=[ax.int64], shapes=[[]])
    async def hold(x: Any) -> Any:
        time.now_ns += 5_000_000
        return x

    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [])
        held = hold(plus(x, np.int64(0)))
        out = plus(held, np.int64(1))
    begin_tasks_eagerly()
    async with ax.Session(graph, ax.SessionConfig(slow_inline_ms=1), clock=time.clock) as session:
        with pytest.warns(ax.KernelWarning) as told:
            assert [y async for y in session.map(out, ({x: i} for i in range(20)))] == list(range(1, 21))
        assert session.statistics().longest_node == held.op.name
    assert [held.op.name in str(each.message) for each in told] == [True]
