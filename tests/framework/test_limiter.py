"""Limiter: never more inside than it lets through, first come first served, and nobody is lost."""

from __future__ import annotations

import asyncio
import gc
import logging
from functools import partial

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import asyncexec as ax
from asyncexec.framework.limiter import Limiter, LimiterStatistics
from asyncexec.testing import VirtualClockLoop
from tests.running import settle, started

# When one comes, how long it stays, and after how many seconds it is cancelled, if it is.
VISITS = st.tuples(st.integers(0, 6), st.integers(0, 4), st.none() | st.integers(0, 8))


class Room:
    """Who came, who is inside, and in which order they were let in."""

    def __init__(self, total: int) -> None:
        self.limiter = Limiter(total)
        self.inside: set[int] = set()
        self.came: list[int] = []
        self.let_in: list[int] = []
        self.most = 0

    async def visit(self, who: int, comes: int, stays: int) -> None:
        await asyncio.sleep(comes)
        self.came.append(who)
        async with self.limiter:
            self.inside.add(who)
            self.let_in.append(who)
            self.most = max(self.most, len(self.inside))
            try:
                await asyncio.sleep(stays)
            finally:
                self.inside.remove(who)

    async def run(self, visits: list[tuple[int, int, int | None]]) -> list[int]:
        """All *visits* at once; those that ended by a cancellation."""
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self.visit(who, comes, stays)) for who, (comes, stays, _) in enumerate(visits)]
        for task, (_, _, cancelled_after) in zip(tasks, visits, strict=True):
            if cancelled_after is not None:
                loop.call_later(cancelled_after, task.cancel)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            assert result is None or isinstance(result, asyncio.CancelledError)
        assert self.limiter.statistics() == LimiterStatistics(self.limiter.total, inside=0, waiting=0)
        return [who for who, result in enumerate(results) if result is not None]


def check(total: int, visits: list[tuple[int, int, int | None]]) -> None:
    room = Room(total)
    with asyncio.Runner(loop_factory=partial(VirtualClockLoop)) as runner:
        cancelled = runner.run(room.run(visits))
    assert room.most <= total
    places = [room.came.index(who) for who in room.let_in]
    assert places == sorted(places), "somebody got ahead"
    assert set(room.let_in) >= set(range(len(visits))) - set(cancelled), "somebody was lost"


@given(st.integers(1, 4), st.lists(VISITS, max_size=12))
@example(2, [(0, 1, None), (1, 0, None), (1, 0, None), (0, 0, 1), (0, 1, 1)])  # a slot is free while one wakes up
def test_any_arrivals_and_cancellations(total: int, visits: list[tuple[int, int, int | None]]) -> None:
    check(total, visits)


@pytest.mark.deep
@given(st.integers(1, 6), st.lists(VISITS, max_size=60))
def test_long_lines(total: int, visits: list[tuple[int, int, int | None]]) -> None:
    check(total, visits)


async def test_a_newcomer_does_not_get_ahead_of_who_was_just_let_in() -> None:
    limiter, order = Limiter(1), list[str]()

    async def enter(name: str) -> None:
        async with limiter:
            order.append(name)

    await limiter.wait_queue().acquire()
    waiting = await started(enter("first"))
    limiter.wait_queue().release()  # the slot is the first one's, though it has not run yet
    await enter("newcomer")
    await waiting
    assert order == ["first", "newcomer"]


async def test_a_slot_given_to_who_is_cancelled_goes_to_the_next() -> None:
    limiter = Limiter(1)
    line = limiter.wait_queue()
    await line.acquire()
    first, second = await started(line.acquire()), await started(line.acquire())
    line.release()
    first.cancel()  # it has been given the slot, and has not run since
    await second
    assert first.cancelled()
    assert limiter.statistics() == LimiterStatistics(1, inside=1, waiting=0)


async def test_a_waiter_that_is_closed_leaves_the_line() -> None:
    line = Limiter(1).wait_queue()
    await line.acquire()
    waiting = line.acquire()
    waiting.send(None)
    assert line.waiting == 1
    waiting.close()
    assert line.waiting == 0


async def test_statistics_and_the_plain_use() -> None:
    limiter = ax.Limiter(2)
    async with limiter, limiter:
        waiting = await started(limiter.wait_queue().acquire())
        assert limiter.statistics() == LimiterStatistics(2, inside=2, waiting=1)
    await waiting
    await settle()
    assert limiter.statistics() == LimiterStatistics(2, inside=1, waiting=0)


def test_limiters_by_name() -> None:
    first = ax.Limiter(3, name="tests.name")
    assert Limiter.get("tests.name") is first
    assert Limiter.get(first) is first
    assert Limiter.get(5).total == 5
    with pytest.raises(ax.errors.InvalidArgumentError, match=r"already a limiter 'tests\.name', of 3"):
        ax.Limiter(4, name="tests.name")
    assert "tests.name" in repr(first)


async def test_limiters_of_one_name_share_their_slots() -> None:
    first, second = ax.Limiter(1, name="tests.twice"), ax.Limiter(1, name="tests.twice")
    async with first:
        assert second.statistics().inside == 1


@pytest.mark.parametrize("is_in_a_loop", [False, True], ids=["in no loop", "in the next"])
def test_who_held_a_slot_in_a_closed_loop_gives_none_back_in_another(
    is_in_a_loop: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "asyncio")  # that a pending task was destroyed
    limiter = ax.Limiter(1)

    async def hold() -> None:
        async with limiter:
            await asyncio.Event().wait()

    async def main() -> LimiterStatistics:
        async with limiter:
            pass
        left[0].close()
        return limiter.statistics()

    loop = asyncio.new_event_loop()
    left = [hold()]
    task = loop.create_task(left[0])
    loop.run_until_complete(settle())
    loop.close()
    if not is_in_a_loop:
        left[0].close()
    with asyncio.Runner() as runner:
        assert runner.run(main()) == LimiterStatistics(1, 0, 0)
    del task
    gc.collect()
