"""Who waits for a slot, a row, a value or a result, and is ended at any turn of the loop, takes nothing with it.

As in ``test_exactly_once.py``, but in every way of ending, on asyncio's loop and on uvloop, and by runs of a session.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.rendezvous.intra_process import Rendezvous
from tests.running import settle
from tests.session.injection import ENDED, Way, by_anyio, by_cancel, by_timeout, of_ways

COUNT: Final = 5
# Ends something by the way at the point; whether that was over before.
Scenario: TypeAlias = Callable[[Way, int], Awaitable[bool]]
Record = Callable[[str, object], None]


@asynccontextmanager
async def beside(*calls: Awaitable[Any]) -> AsyncIterator[list[asyncio.Task[Any]]]:
    """Tasks of *calls*, which have begun; they end."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    await settle(1)
    yield tasks
    await asyncio.gather(*tasks)


async def slots_of_a_limiter(way: Way, point: int) -> bool:
    limiter = ax.Limiter(1)
    entered: list[int] = []

    @ax.op(outputs=[ax.int64], limiter=limiter)
    async def visit(number: Any) -> Any:
        assert limiter.statistics().inside == 1
        entered.append(int(number))
        await settle(2)
        return number

    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [])
        y = visit(x)
    async with ax.Session(graph) as session:
        last = list[asyncio.Task[Any]]()

        async def enter() -> Any:
            last.append(asyncio.ensure_future(session.run(y, {x: 2})))
            return await session.run(y, {x: 1})

        async with beside(session.run(y, {x: 0})) as first:
            result, is_over = await way(enter, point)
            assert [await task for task in (*first, *last)] == [0, 2], point
        now = limiter.statistics()
        assert (now.inside, now.waiting) == (0, 0), point
        assert result is ENDED or result == 1, point
        assert [number for number in entered if number != 1] == [0, 2], point
        return is_over


async def places_of_steps(way: Way, point: int) -> bool:
    order: list[int] = []

    @ax.op(outputs=[ax.int64])
    async def visit(number: Any) -> Any:
        order.append(int(number))
        await settle(2)
        return number

    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [])
        y = visit(x)
    async with ax.Session(graph, ax.SessionConfig(max_concurrent_steps=1)) as session:
        last = list[asyncio.Task[Any]]()

        async def enter() -> Any:
            last.append(asyncio.ensure_future(session.run(y, {x: 2})))
            return await session.run(y, {x: 1})

        async with beside(session.run(y, {x: 0})) as first:
            result, is_over = await way(enter, point)
            assert [await task for task in (*first, *last)] == [0, 2], point
        now = session.statistics()
        assert (now.running_steps, now.queued_steps) == (0, 0), point
        assert result is ENDED or result == 1, point
        assert [number for number in order if number != 1] == [0, 2], point
        return is_over


async def rows_of_a_batch(way: Way, point: int) -> bool:
    seen: list[int] = []

    @ax.op(outputs=[ax.int64])
    async def compute(rows: Any) -> Any:
        await settle(2)
        seen.extend(rows.tolist())
        return rows * 10

    @ax.batch(max_size=2, timeout_s=0.002)
    def model(rows: Any) -> Any:
        return compute(rows)

    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [1])
        y = model(x)
    async with ax.Session(graph) as session:
        await session.run(y, {x: [9]})
        seen.clear()
        async with beside(*[session.run(y, {x: [i]}) for i in range(2)]) as before:
            last = list[asyncio.Task[Any]]()

            async def join() -> Any:
                last.append(asyncio.ensure_future(session.run(y, {x: [3]})))
                return (await session.run(y, {x: [2]})).tolist()

            result, is_over = await way(join, point)
            assert [(await task).tolist() for task in (*before, *last)] == [[0], [10], [30]], point
        assert result is ENDED or result == [20], point
        assert sorted(row for row in seen if row != 2) == [0, 1, 3], point
        assert seen.count(2) <= 1, point
        return is_over


async def a_value_in_a_rendezvous(way: Way, point: int) -> bool:
    rendezvous = Rendezvous()

    async def send() -> None:
        await settle(6)
        rendezvous.send("key", 7)

    async def receive() -> Any:
        return (await rendezvous.recv("key"))[0]

    async with beside(send()):
        result, is_over = await way(receive, point)
        assert (await receive() if result is ENDED else result) == 7, point
    left = rendezvous.statistics()
    assert (left.num_items, left.num_waiters) == (0, 0), point
    return is_over


async def a_fetch_of_a_partial_run(way: Way, point: int) -> bool:
    calls: list[int] = []

    @ax.op(outputs=[ax.int64])
    async def double(x: Any) -> Any:
        calls.append(int(x))
        await settle(2)
        return x * 2

    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [])
        y = double(x)
    async with ax.Session(graph) as session, session.partial_run(y, [x]) as step:
        await step.feed({x: 3})
        result, is_over = await way(lambda: step.fetch(y), point)
        assert (await step.fetch(y) if result is ENDED else result) == 6, point
        with pytest.raises(ax.errors.InvalidArgumentError, match="already been fetched"):
            await step.fetch(y)
    assert calls == [3], point
    return is_over


def _pausing(x: Any) -> Any:
    @ax.op(outputs=[ax.int64])
    async def pause(x: Any) -> Any:
        await settle(1 + int(x) % 2)
        return x

    return pause(x)


async def results_of_a_map(way: Way, point: int) -> bool:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [])
        y = _pausing(x)
    found: list[int] = []

    async def take_all() -> None:
        async for out in outputs:
            found.append(int(out))

    async with ax.Session(graph) as session, session.map(y, ({x: i} for i in range(COUNT)), window=2) as outputs:
        _, is_over = await way(take_all, point)
        await take_all()
    assert found == list(range(COUNT)), point
    return is_over


async def results_of_a_stream_with_two_takers(way: Way, point: int) -> bool:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [])
        y = _pausing(x)
    found: list[int] = []

    async def take_all() -> None:
        async for out in stream:
            found.append(int(out))

    async def send_all() -> None:
        for number in range(COUNT):
            await stream.send({x: number})
        await stream.close()

    other = list[asyncio.Task[None]]()

    async def take() -> None:
        other.append(asyncio.ensure_future(take_all()))
        await take_all()

    async with (
        ax.Session(graph) as session,
        session.stream(y, window=2, ordered=False) as stream,
        beside(send_all()),
    ):
        _, is_over = await way(take, point)
        await asyncio.gather(*other)
    assert sorted(found) == list(range(COUNT)), point
    return is_over


async def items_of_a_sender(way: Way, point: int) -> bool:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [])
        y = _pausing(x)
    sent: list[int] = []

    async def send_all() -> None:
        for number in range(len(sent), COUNT):
            await stream.send({x: number})
            sent.append(number)

    async def take_all() -> list[int]:
        return [int(out) async for out in stream]

    async with ax.Session(graph) as session, session.stream(y, window=2) as stream, beside(take_all()) as taking:
        _, is_over = await way(send_all, point)
        await send_all()
        await stream.close()
        assert await taking[0] == list(range(COUNT)), point
    return is_over


async def elements_of_who_waits_behind(way: Way, point: int) -> bool:
    """Two who wait at one queue: what the first does not get is for the second."""
    with ax.Graph() as graph:
        queue = ax.FIFOQueue(10, [ax.int64], [[]])
        x = ax.placeholder(ax.int64, [])
        put, one, size = queue.enqueue(x), queue.dequeue(), queue.size()
    async with ax.Session(graph) as session:
        assert await session.run(size) == 0
        second = list[asyncio.Task[Any]]()

        async def put_both() -> None:
            await settle(3)
            for number in range(2):
                await session.run(put, {x: np.int64(number)})

        async def take() -> Any:
            second.append(asyncio.ensure_future(session.run(one)))
            return await session.run(one)

        async with beside(put_both()):
            result, is_over = await way(take, point)
            got = [int(await task) for task in second]
        got += [] if result is ENDED else [int(result)]
        left = [int(await session.run(one)) for _ in range(int(await session.run(size)))]
        assert sorted(got + left) == [0, 1], point
        return is_over


SCENARIOS: Final[tuple[Scenario, ...]] = (
    slots_of_a_limiter,
    places_of_steps,
    rows_of_a_batch,
    a_value_in_a_rendezvous,
    a_fetch_of_a_partial_run,
    results_of_a_map,
    results_of_a_stream_with_two_takers,
    items_of_a_sender,
    elements_of_who_waits_behind,
)


@pytest.mark.one_of("loop")
@of_ways(by_cancel, by_timeout, by_anyio)
@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_nothing_goes_with_who_is_ended(scenario: Scenario, way: Way, record_property: Record) -> None:
    for point in itertools.count():
        if await scenario(way, point):
            break
    assert point > 1
    record_property("counts", {"combinations": 1, "runs": point + 1, "ended": point})
