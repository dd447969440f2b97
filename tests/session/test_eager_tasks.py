"""Steps whose tasks begin, and may end, as soon as they are made: a kernel runs before anybody knows its task."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

import asyncexec as ax
from asyncexec.framework.kernel import KernelKind
from tests.running import begin_tasks_eagerly, raw_op
from tests.session import test_cancellation_of_ops as ops
from tests.session.injection import Case, Watch, Way, by_anyio, by_cancel, end_at_every_point, of_ways

pytestmark = pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks are new in Python 3.12")


@dataclass
class Closing:
    """A graph with a kernel that closes its session, when it is told so, and before it one that waits for ever."""

    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        with ax.Graph() as self.graph:
            self.is_last = ax.placeholder(ax.bool, [])
            wait = raw_op("Wait", self._wait, kind=KernelKind.ASYNC, dtype=ax.bool)(self.is_last)
            close = raw_op("Close", self._close, kind=KernelKind.ASYNC, dtype=ax.bool)(self.is_last)
            self.fetches = [wait, close]

    def open(self, **config: Any) -> ax.Session:
        self.session = ax.Session(self.graph, ax.SessionConfig(**config))
        return self.session

    async def _wait(self, is_last: Any) -> Any:
        if is_last:
            try:
                await asyncio.Event().wait()
            finally:
                self.log.append("cancelled")
        return is_last

    async def _close(self, is_last: Any) -> Any:
        if is_last:
            try:
                await self.session.close()
            finally:
                self.log.append("closed")
        return is_last


@pytest.mark.virtual_clock
@pytest.mark.parametrize("is_prepared", [True, False])
@pytest.mark.parametrize("limit", [None, 1])
async def test_a_kernel_closes_its_session_before_it_awaits(limit: int | None, is_prepared: bool) -> None:
    """Its step is ended like any other that is under way, and nobody waits for itself."""
    closing = Closing()
    begin_tasks_eagerly()
    session = closing.open(max_concurrent_steps=limit)
    if is_prepared:
        await session.run(closing.fetches, {closing.is_last: False})
    with pytest.raises(ax.errors.CancelledError, match="Session has been closed"):
        await session.run(closing.fetches, {closing.is_last: True})
    assert sorted(closing.log) == ["cancelled", "closed"]
    assert asyncio.get_running_loop().time() == 0  # no grace period was needed
    await session.close()


@pytest.mark.virtual_clock
async def test_a_kernel_closes_its_session_in_a_partial_run() -> None:
    closing = Closing()
    begin_tasks_eagerly()
    session = closing.open()

    async def run() -> None:
        async with session.partial_run(closing.fetches, [closing.is_last]) as step:
            await step.feed({closing.is_last: True})
            await step.fetch(closing.fetches)

    with pytest.raises(ax.errors.CancelledError, match="Session has been closed"):
        await run()
    assert sorted(closing.log) == ["cancelled", "closed"]
    assert asyncio.get_running_loop().time() == 0


async def test_a_loop_of_kernels_that_end_at_once() -> None:
    @ax.op(outputs=[ax.int64], shapes=[[]])
    async def next_of(i: Any) -> Any:
        if not i % 100:
            await asyncio.sleep(0)
        return i + 1

    with ax.Graph() as graph:
        [last] = ax.while_loop(lambda i: i < 1000, next_of, [ax.constant(0, ax.int64)])
    begin_tasks_eagerly()
    async with ax.Session(graph) as session:
        assert await asyncio.gather(*(session.run(last) for _ in range(5))) == [1000] * 5


async def test_runs_in_runs_with_a_limit_and_a_deadline() -> None:
    limiter = ax.Limiter(2)

    @ax.op(limiter=limiter, timeout=60, retries=2, outputs=[ax.int64], shapes=[[]])
    async def inner_of(x: Any) -> Any:
        return await session.run(inner, {x_in: x}, options=ax.RunOptions(timeout=60))

    @ax.op(outputs=[ax.int64], shapes=[[]])
    async def doubled(x: Any) -> Any:
        if x % 2:
            await asyncio.sleep(0)
        return 2 * x

    with ax.Graph() as graph:
        x_in, x_out = ax.placeholder(ax.int64, []), ax.placeholder(ax.int64, [])
        inner, outer = doubled(x_in), inner_of(x_out)
    begin_tasks_eagerly()
    async with ax.Session(graph, ax.SessionConfig(max_concurrent_steps=3)) as session:
        assert await asyncio.gather(*(session.run(outer, {x_out: x}) for x in range(50))) == [2 * x for x in range(50)]
    assert limiter.statistics().inside == 0


CASES = [
    ops.limited,
    ops.tried_again,
    ops.function_calls,
    ops.failing,
    ops.misbehaving,
    ops.through_the_rendezvous,
    ops.timed_out,
    ops.batches,
]


@pytest.mark.virtual_clock
@of_ways(by_cancel, by_anyio)
@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
async def test_ended_at_every_point(make: Callable[[Watch], Case], way: Way) -> None:
    begin_tasks_eagerly()
    await end_at_every_point(make, way)
