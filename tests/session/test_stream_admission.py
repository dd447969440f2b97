"""Items of streams and admission control: they take places like steps, wait in the queue, and drain on close."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import asyncexec as ax
from asyncexec.framework.kernel import KernelKind
from tests.running import raw_op, settle


class Watched:
    """A graph whose kernel counts how many of its calls are under way, and tells when each value has begun."""

    def __init__(self) -> None:
        self.inside = self.most = 0
        self.order: list[int] = []
        self.go = asyncio.Event()
        self.failing: set[int] = set()
        with ax.Graph() as self.graph:
            self.x = ax.placeholder(ax.int64, [], name="x")
            self.y = raw_op("Watched", self._kernel, kind=KernelKind.ASYNC, dtype=ax.int64)(self.x, name="y")

    async def _kernel(self, value: Any) -> Any:
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.order.append(int(value))
        try:
            await self.go.wait()
            await asyncio.sleep(0)
            if int(value) in self.failing:
                raise ValueError("told to fail")
        finally:
            self.inside -= 1
        return value

    def items(self, count: int, first: int = 0) -> list[dict[Any, int]]:
        return [{self.x: first + i} for i in range(count)]


@pytest.fixture
def watched() -> Watched:
    return Watched()


async def collected(outputs: Any) -> list[Any]:
    return [out if isinstance(out, ax.errors.OpError) else int(out) async for out in outputs]


def free_places(session: ax.Session) -> int:
    """How many steps may begin at once."""
    line = session._admission._visitors.wait_queue
    assert line is not None
    assert line.waiting == 0
    return line.free


@pytest.mark.parametrize("ordered", [True, False])
async def test_items_and_runs_share_the_places(watched: Watched, ordered: bool) -> None:
    watched.go.set()
    async with ax.Session(watched.graph, ax.SessionConfig(max_concurrent_steps=3)) as session:
        maps = [session.map(watched.y, watched.items(40, 100 * i), window=16, ordered=ordered) for i in range(2)]
        runs = [session.run(watched.y, {watched.x: 1000 + i}) for i in range(40)]
        *found, single = await asyncio.gather(*map(collected, maps), asyncio.gather(*runs))
        assert [sorted(each) for each in found] == [list(range(40)), list(range(100, 140))]
        assert single == list(range(1000, 1040))
        assert watched.most == 3
        assert free_places(session) == 3
        assert session.statistics().completed_steps == 120


async def test_first_come_first_served(watched: Watched) -> None:
    """A run that came before an item begins before it, though there was an item before both."""
    async with ax.Session(watched.graph, ax.SessionConfig(max_concurrent_steps=1)) as session:
        stream = asyncio.create_task(collected(session.map(watched.y, watched.items(3), window=3)))
        await settle()
        run = asyncio.create_task(session.run(watched.y, {watched.x: 10}))
        await settle()
        assert watched.order == [0]
        watched.go.set()
        assert (await stream, await run) == ([0, 1, 2], 10)
        assert watched.order == [0, 1, 10, 2]  # item 1 was in line before the run came
        assert free_places(session) == 1


async def test_items_are_never_refused(watched: Watched) -> None:
    config = ax.SessionConfig(max_concurrent_steps=1, max_queued_steps=0)
    async with ax.Session(watched.graph, config) as session:
        stream = asyncio.create_task(collected(session.map(watched.y, watched.items(5))))
        await settle()
        with pytest.raises(ax.errors.ResourceExhaustedError):
            await session.run(watched.y, {watched.x: 10})
        watched.go.set()
        assert await stream == [0, 1, 2, 3, 4]


async def test_failed_and_dropped_items_give_their_places_back(watched: Watched) -> None:
    watched.failing = {1}
    async with ax.Session(watched.graph, ax.SessionConfig(max_concurrent_steps=2)) as session:
        watched.go.set()
        found = await collected(session.map(watched.y, watched.items(4), on_error="yield"))
        assert [type(each) for each in found] == [int, ax.errors.InvalidArgumentError, int, int]
        assert free_places(session) == 2
        with pytest.raises(ax.errors.InvalidArgumentError, match="item 1"):
            await collected(session.map(watched.y, watched.items(4)))
        assert free_places(session) == 2
        watched.go.clear()
        async with session.map(watched.y, watched.items(9), window=5) as outputs:
            taker = asyncio.create_task(anext(outputs))
            await settle()
            assert watched.inside == 2
            taker.cancel()
        await settle()
        assert (watched.inside, free_places(session)) == (0, 2)
        statistics = session.statistics()
        assert (statistics.running_steps, statistics.queued_steps, statistics.failed_steps) == (0, 0, 2)


async def test_item_of_bad_feeds_gives_its_place_back(watched: Watched) -> None:
    watched.go.set()
    async with ax.Session(watched.graph, ax.SessionConfig(max_concurrent_steps=1)) as session:
        feeds: list[Any] = [{watched.x: 0}, {watched.x: [1, 2]}, {watched.x: 2}]
        found = await collected(session.map(watched.y, feeds, on_error="yield"))
        assert [type(each) for each in found] == [int, ax.errors.InvalidArgumentError, int]
        assert free_places(session) == 1


async def test_run_inside_an_item_is_a_part_of_it() -> None:
    """It does not wait for the place that its own item has."""

    async def nest(value: Any) -> Any:
        return await session.run(inner, {x: value})

    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [], name="x")
        inner = x + 1
        outer = raw_op("Nest", nest, kind=KernelKind.ASYNC, dtype=ax.int64)(x)
    async with ax.Session(graph, ax.SessionConfig(max_concurrent_steps=1, max_queued_steps=0)) as session:
        assert await collected(session.map(outer, ({x: i} for i in range(5)), window=3)) == [1, 2, 3, 4, 5]
        assert free_places(session) == 1


async def test_stream_inside_a_step_is_a_part_of_it(watched: Watched) -> None:
    async def nest(value: Any) -> Any:
        inner = asyncio.create_task(collected(session.map(watched.y, watched.items(5))))
        while watched.inside < 5:  # noqa: ASYNC110 - it hangs here if they have to wait for places
            await asyncio.sleep(0)
        watched.go.set()
        return sum(await inner)

    with watched.graph:
        outer = raw_op("Nest", nest, kind=KernelKind.ASYNC, dtype=ax.int64)(watched.x)
    async with ax.Session(watched.graph, ax.SessionConfig(max_concurrent_steps=1)) as session:
        assert await session.run(outer, {watched.x: 0}) == 10
        assert free_places(session) == 1


async def test_who_has_opened_a_stream_is_not_inside(watched: Watched) -> None:
    """Runs beside the stream wait for their turn like everybody."""
    async with (
        ax.Session(watched.graph, ax.SessionConfig(max_concurrent_steps=1)) as session,
        session.stream(watched.y) as stream,
    ):
        await stream.send({watched.x: 0})
        await settle()
        run = asyncio.create_task(session.run(watched.y, {watched.x: 1}))
        await settle()
        assert watched.inside == 1
        watched.go.set()
        assert await run == 1
        assert await anext(stream) == 0


@pytest.mark.parametrize("limits", [{}, {"max_concurrent_steps": 2}])
async def test_close_drains_what_was_sent(watched: Watched, limits: dict[str, int]) -> None:
    async with (
        ax.Session(watched.graph, ax.SessionConfig(drain_timeout_s=None, **limits)) as session,
        session.stream(watched.y, window=8) as stream,
    ):
        for feeds in watched.items(5):
            await stream.send(feeds)
        closing = asyncio.create_task(session.close())
        await settle()
        assert not closing.done()
        with pytest.raises((ax.errors.FailedPreconditionError, ax.errors.AbortedError)):
            await stream.send({watched.x: 9})
        watched.go.set()
        await closing
        assert [await anext(stream) for _ in range(5)] == [0, 1, 2, 3, 4]
        with pytest.raises(ax.errors.CancelledError, match=r"Session has been closed\."):
            await anext(stream)


async def test_close_ends_a_source_that_never_does(watched: Watched) -> None:
    async def endless() -> Any:
        number = 0
        while True:
            yield {watched.x: number}
            number += 1

    watched.go.set()
    async with ax.Session(watched.graph, ax.SessionConfig(drain_timeout_s=None)) as session:
        outputs = session.map(watched.y, endless(), window=4)
        assert [await anext(outputs) for _ in range(3)] == [0, 1, 2]
        await session.close()
        rest: list[int] = []

        async def take_all() -> None:
            async for out in outputs:
                rest.append(int(out))

        with pytest.raises(ax.errors.CancelledError, match=r"Session has been closed\."):
            await take_all()
        assert rest == list(range(3, 3 + len(rest)))
        assert len(rest) <= 4


@pytest.mark.virtual_clock
async def test_close_ends_what_does_not_drain_in_time(watched: Watched) -> None:
    async with (
        ax.Session(watched.graph, ax.SessionConfig(drain_timeout_s=2.0)) as session,
        session.stream(watched.y) as stream,
    ):
        await stream.send({watched.x: 0})
        await settle()
        start = asyncio.get_running_loop().time()
        await session.close()
        assert asyncio.get_running_loop().time() == pytest.approx(start + 2.0)
        assert watched.inside == 0
        with pytest.raises(ax.errors.CancelledError):
            await anext(stream)


async def test_nothing_drains_by_default(watched: Watched) -> None:
    async with ax.Session(watched.graph) as session, session.stream(watched.y) as stream:
        await stream.send({watched.x: 0})
        await settle()
        await session.close()
        assert watched.inside == 0


async def test_stream_after_close_is_refused(watched: Watched) -> None:
    session = ax.Session(watched.graph)
    stream = session.stream(watched.y)
    outputs = session.map(watched.y, watched.items(1))
    await session.close()
    with pytest.raises(ax.errors.CancelledError, match=r"Session has been closed\."):
        await stream.__aenter__()
    with pytest.raises(ax.errors.CancelledError, match=r"Session has been closed\."):
        await anext(outputs)
