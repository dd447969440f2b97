"""Nothing is lost and nothing comes twice, whenever somebody who waits is cancelled.

The faults of asyncio's own that anyio names (``docs/why.rst``): what was delivered to a waiter that is cancelled in the
same turn of the loop is lost, a wake-up is lost with who got it, a task that is cancelled before its first step never
runs.  Each is enumerated: one waiter is cancelled before each callback of the loop, and another goes on after it.
Streams have a module of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.tensor_shape import SCALAR
from asyncexec.framework.types import int64
from asyncexec.ops.state.queue_state import FIFOQueue, PaddingFIFOQueue, PriorityQueue, Queue, RandomShuffleQueue
from asyncexec.rendezvous.intra_process import Rendezvous
from tests.running import settle
from tests.session.injection import at_every_point, cancelled_before

pytestmark = pytest.mark.virtual_clock

COUNT = 6


QUEUES: dict[str, Callable[[], Queue]] = {
    "FIFO": lambda: FIFOQueue("queue", (int64,), (SCALAR,), 2),
    "padding": lambda: PaddingFIFOQueue("queue", (int64,), (SCALAR,), 2),
    "priority": lambda: PriorityQueue("queue", (int64,), (SCALAR,), 2),
    "shuffle": lambda: RandomShuffleQueue("queue", (int64,), (SCALAR,), 2, min_after_dequeue=1, seed=(1, 2)),
}


@pytest.mark.parametrize("many", [1, 2, 3])
@pytest.mark.parametrize("kind", QUEUES)
async def test_elements_of_a_queue_whose_taker_is_cancelled(kind: str, many: int) -> None:
    async def check(point: int) -> bool:
        queue, found = QUEUES[kind](), list[int]()

        async def put_all() -> None:
            for x in range(COUNT):
                await queue.enqueue_many([(np.int64(x),)])
            await queue.close_after_enqueues()

        async def take_all() -> None:
            try:
                while True:
                    elements = await queue.dequeue_many(many, allows_small_batch=True)
                    found.extend(int(element[0]) for element in elements)
            except ax.errors.OutOfRangeError:
                pass

        putting = asyncio.ensure_future(put_all())
        was_cancelled, _ = await cancelled_before(point, take_all)
        await take_all()
        await putting
        assert sorted(found) == list(range(COUNT)), point
        assert kind == "shuffle" or found == list(range(COUNT)), point
        return was_cancelled

    await at_every_point(check)


async def test_elements_of_a_queue_whose_giver_is_cancelled() -> None:
    """An element whose enqueue did not return is there once or not at all."""

    async def check(point: int) -> bool:
        queue, returned = QUEUES["FIFO"](), list[int]()

        async def put_all() -> None:
            for x in range(COUNT):
                await queue.enqueue_many([(np.int64(x),)])
                returned.append(x)

        async def take_all() -> list[int]:
            found: list[int] = []
            try:
                while True:
                    found += [int(x) for ((x,),) in [await queue.dequeue_many(1)]]
            except ax.errors.OutOfRangeError:
                return found

        taking = asyncio.ensure_future(take_all())
        was_cancelled, _ = await cancelled_before(point, put_all)
        await queue.close_after_enqueues()
        found = await taking
        assert found in (returned, [*returned, len(returned)]), point
        return was_cancelled

    await at_every_point(check)


@pytest.mark.parametrize("total", [1, 2])
async def test_slots_of_a_limiter_whose_waiter_is_cancelled(total: int) -> None:
    async def check(point: int) -> bool:
        limiter, inside, order = ax.Limiter(total), 0, list[int]()

        async def visit(number: int) -> None:
            nonlocal inside
            async with limiter:
                inside += 1
                assert inside <= total
                order.append(number)
                await settle(2)
                inside -= 1

        async def visit_and_leave() -> None:
            async with limiter:
                await settle(1)

        first = [asyncio.ensure_future(visit(number)) for number in range(2)]
        leaving = asyncio.ensure_future(cancelled_before(point, visit_and_leave))
        await settle(1)
        second = [asyncio.ensure_future(visit(number)) for number in range(2, 4)]
        was_cancelled, _ = await leaving
        await asyncio.gather(*first, *second)
        assert order == list(range(4)), point
        now = limiter.statistics()
        assert (now.inside, now.waiting) == (0, 0), point
        return was_cancelled

    await at_every_point(check)


async def test_a_value_in_a_rendezvous_whose_receiver_is_cancelled() -> None:
    async def check(point: int) -> bool:
        rendezvous = Rendezvous()

        async def send() -> None:
            await settle(2)
            rendezvous.send("key", 7)

        async def receive() -> Any:
            return (await rendezvous.recv("key"))[0]

        sending = asyncio.ensure_future(send())
        was_cancelled, value = await cancelled_before(point, receive)
        assert (await receive() if was_cancelled else value) == 7, point
        await sending
        left = rendezvous.statistics()
        assert (left.num_items, left.num_waiters) == (0, 0), point
        return was_cancelled

    await at_every_point(check)


async def test_a_fetch_of_a_partial_run_that_is_cancelled() -> None:
    """Who is cancelled asks again, and gets what was computed once."""
    calls: list[int] = []

    @ax.op(outputs=[ax.int64])
    async def double(x: Any) -> Any:
        calls.append(int(x))
        await settle(3)
        return x * 2

    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [])
        y = double(x)

    async def check(point: int) -> bool:
        calls.clear()
        async with ax.Session(graph) as session, session.partial_run(y, [x]) as step:
            await step.feed({x: 3})
            was_cancelled, value = await cancelled_before(point, lambda: step.fetch(y))
            assert (await step.fetch(y) if was_cancelled else value) == 6, point
        assert calls == [3], point
        return was_cancelled

    await at_every_point(check)


async def test_rows_of_a_batch_one_of_whose_callers_is_cancelled() -> None:
    """The others get theirs, each its own, and each row is computed once."""
    seen: list[int] = []

    @ax.op(outputs=[ax.int64])
    async def compute(rows: Any) -> Any:
        await settle(3)
        seen.extend(rows.tolist())
        return rows * 10

    @ax.batch(max_size=2, timeout_s=1.0)
    def model(rows: Any) -> Any:
        return compute(rows)

    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [1])
        y = model(x)

    async def check(point: int) -> bool:
        seen.clear()
        async with ax.Session(graph) as session:
            first, second, third, last = (lambda i=i: session.run(y, {x: [i]}) for i in range(4))
            before = [asyncio.ensure_future(call()) for call in (first, second)]
            leaving = asyncio.ensure_future(cancelled_before(point, third))
            await settle(2)
            after = asyncio.ensure_future(last())
            assert [(await task).tolist() for task in [*before, after]] == [[0], [10], [30]], point
            was_cancelled, rows = await leaving
            assert was_cancelled or rows.tolist() == [20], point
        others = [row for row in seen if row != 2]
        assert sorted(others) == [0, 1, 3], point
        assert seen.count(2) <= 1, point
        return was_cancelled

    await at_every_point(check)
