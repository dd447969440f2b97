"""Waiting in order: nobody gets ahead, and no wake-up is lost."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from asyncexec.framework.limiter import WaitQueue
from asyncexec.framework.parking_lot import ParkingLot
from asyncexec.framework.queue_policy import QueuePolicy
from tests.running import settle


def parked(lot: ParkingLot, order: list[int], number: int) -> asyncio.Future[None]:
    """Somebody who waits in *lot*, and tells *order* when it is woken."""

    async def wait() -> None:
        await lot.wait()
        order.append(number)

    return asyncio.ensure_future(wait())


async def test_the_first_is_woken_first() -> None:
    lot, order = ParkingLot(), list[int]()
    waiting = [parked(lot, order, number) for number in range(3)]
    await settle()
    assert lot.waiting == 3
    assert lot.wake_one()
    assert (lot.waiting, lot.num_waking) == (2, 1)
    lot.wake_all()
    await asyncio.wait(waiting)
    assert order == [0, 1, 2]
    assert (lot.waiting, lot.num_waking) == (0, 0)


async def test_all_who_wait_are_woken_and_those_who_are_cancelled_are_not() -> None:
    lot, order = ParkingLot(), list[int]()
    assert not lot.wake_one()  # nobody waits
    waiting = [parked(lot, order, number) for number in range(3)]
    await settle()
    waiting[0].cancel()
    lot.wake_all()
    await asyncio.wait(waiting)
    assert order == [1, 2]


async def test_who_is_cancelled_after_it_was_woken_wakes_the_next() -> None:
    lot, order = ParkingLot(), list[int]()
    waiting = [parked(lot, order, number) for number in range(3)]
    await settle()
    lot.wake_one()
    waiting[0].cancel()
    await settle()
    assert order == [1]
    assert lot.waiting == 1
    lot.wake_all()
    await asyncio.wait(waiting)


def test_what_is_left_of_a_closed_loop_is_passed_over() -> None:
    lot, order = ParkingLot(), list[int]()

    async def leave_one() -> None:
        parked(lot, order, 0)
        await settle()

    async def wake_another() -> None:
        other = parked(lot, order, 1)
        await settle()
        assert lot.wake_one()
        await other

    loop = asyncio.new_event_loop()
    loop.run_until_complete(leave_one())
    loop.close()
    asyncio.run(wake_another())
    assert order == [1]


@given(st.lists(st.integers(0, 2), max_size=12), st.sets(st.integers(0, 11)))
def test_those_of_the_least_level_have_their_turn_first(levels: list[int], cancelled: set[int]) -> None:
    order: list[int] = []

    async def enter(queue: WaitQueue, number: int, level: int) -> None:
        await queue.acquire(QueuePolicy(priority=level))
        order.append(number)
        queue.release()

    async def main() -> None:
        queue = WaitQueue(1)
        await queue.acquire()
        waiting = [asyncio.ensure_future(enter(queue, number, level)) for number, level in enumerate(levels)]
        await settle()
        for number in cancelled & set(range(len(levels))):
            waiting[number].cancel()
        queue.release()
        if waiting:
            await asyncio.wait(waiting)
        assert (queue.waiting, queue.num_waking, queue.free) == (0, 0, 1)

    asyncio.run(main())
    left = [number for number in range(len(levels)) if number not in cancelled]
    assert order == sorted(left, key=lambda number: (levels[number], number))
