"""A session that is closed ends what is under way, whoever cancels ``close()`` meanwhile, and at whatever point."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

import asyncexec as ax
from asyncexec.framework.cooperative import TURNS
from asyncexec.framework.kernel import KernelKind
from tests.running import let_others_end, raw_op, settle
from tests.session.injection import (
    Case,
    Once,
    Watch,
    Way,
    before_callbacks,
    by_anyio,
    by_cancel,
    by_cancelling_on_and_on,
    by_cancelling_twice,
    check_nothing_is_left,
    end_at_every_point,
    of_ways,
    some_points,
    watched,
)

pytestmark = pytest.mark.virtual_clock

ASYNC: dict[str, Any] = {"kind": KernelKind.ASYNC, "dtype": ax.float32}
DRAINS = ax.SessionConfig(drain_timeout_s=10.0, max_concurrent_steps=1)

configs = pytest.mark.parametrize("config", [ax.SessionConfig(), DRAINS], ids=["at once", "drains"])


class Pipeline:
    """Two pauses; how a run, a map, a stream and a partial run of it go."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        with ax.Graph() as self.graph:
            self.x = ax.placeholder(ax.float32, [3], name="x")
            pause = raw_op("Pause", self._pause, **ASYNC)
            self.total = ax.reduce_sum(pause(pause(self.x)))

    async def _pause(self, value: Any) -> Any:
        """Takes longer to clean up than whoever waits for that by chance."""
        try:
            return await self.watch.pause(value)
        except asyncio.CancelledError:
            await settle(8)
            raise

    def feeds(self) -> dict[Any, Any]:
        return {self.x: self.watch.keep(1)}

    async def run(self, session: ax.Session) -> Any:
        return await session.run(self.total, self.feeds())

    async def map(self, session: ax.Session) -> Any:
        async with session.map(self.total, (self.feeds() for _ in range(3)), window=2) as outputs:
            return [out async for out in outputs][-1]

    async def send(self, session: ax.Session) -> Any:
        async with session.stream(self.total, window=2) as stream:
            await stream.send(self.feeds())
            return await anext(stream)

    async def feed(self, session: ax.Session) -> Any:
        async with session.partial_run(self.total, [self.x]) as step:
            await step.feed(self.feeds())
            return await step.fetch(self.total)


OUTCOMES = {9, "Session has been closed.", "the stream has ended: Session has been closed."}
CALLS = ["run", "map", "send", "feed"]


async def outcome(call: Awaitable[Any]) -> Any:
    """What *call* gives, or the message of our CancelledError or AbortedError that it ends with."""
    try:
        return await call
    except (ax.errors.CancelledError, ax.errors.AbortedError) as error:
        return error.message


@configs
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("times", [1, 2, 50])
async def test_close_cancelled_at_every_point(config: ax.SessionConfig, call: str, times: int) -> None:
    with watched() as watch:
        pipeline = Pipeline(watch)
        case = Case(ax.Graph(), pipeline.run, None)
        point, is_over = 0, False
        while not is_over:
            session = ax.Session(pipeline.graph, config)
            calls = [asyncio.ensure_future(outcome(getattr(pipeline, call)(session))) for _ in range(2)]
            await settle(3)
            closing = asyncio.ensure_future(session.close())
            await settle(1)  # it has begun
            cancel = Once(closing.cancel)
            with before_callbacks({point: cancel} | {point + i: closing.cancel for i in range(1, times)}):
                await asyncio.wait([closing])
            is_over, where = not cancel.is_done, f"close() cancelled before callback {point}"
            assert closing.cancelled() != is_over, where
            await let_others_end(2 * TURNS)
            assert all(each.done() for each in calls), where
            assert {each.result() for each in calls} <= OUTCOMES, where
            with pytest.raises(ax.errors.CancelledError, match="closed"):
                await pipeline.run(session)
            await session.close()
            check_nothing_is_left(session, watch, case, where)
            del calls, closing, cancel
            assert watch.alive() == 0, where
            point += 1
        assert point > 2


def session_of_its_own(watch: Watch, call: str, config: ax.SessionConfig) -> Case:
    """Opens a session, leaves it with a call under way, and waits for nothing but what the session waits for."""
    pipeline = Pipeline(watch)

    async def run(_: ax.Session) -> Any:
        beside: list[asyncio.Task[Any]] = []
        try:
            async with ax.Session(pipeline.graph, config) as session:
                beside += [asyncio.ensure_future(outcome(getattr(pipeline, call)(session))) for _ in range(2)]
                return await pipeline.run(session)
        finally:
            beside.clear()

    return Case(pipeline.graph, run, 9)


@some_points
@configs
@of_ways(by_cancel, by_cancelling_twice, by_cancelling_on_and_on, by_anyio)
@pytest.mark.parametrize("call", CALLS)
async def test_left_at_every_point(call: str, way: Way, config: ax.SessionConfig, points: range) -> None:
    await end_at_every_point(lambda watch: session_of_its_own(watch, call, config), way, points)


async def test_a_kernel_that_closes_its_session_does_not_wait_for_itself() -> None:
    """In a run that nothing limits and that was prepared before, too."""
    log: list[str] = []

    async def close(is_last: Any) -> Any:
        try:
            if is_last:
                await session.close()
        finally:
            log.append("ended")

    with ax.Graph() as graph:
        is_last = ax.placeholder(ax.bool, [])
        out = raw_op("Close", close, kind=KernelKind.ASYNC)(is_last)
    session = ax.Session(graph)
    await session.run(out, {is_last: False})
    with pytest.raises(ax.errors.CancelledError, match="Session has been closed"):
        await session.run(out, {is_last: True})
    assert log == ["ended", "ended"]
    assert asyncio.get_running_loop().time() == 0  # it was not waited for as one that will not end
    await session.close()
