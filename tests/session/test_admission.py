"""Admission control: how many steps are under way, the wait queue, what is refused, and closing that drains."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pydantic
import pytest

import asyncexec as ax
from asyncexec.framework.kernel import KernelKind
from asyncexec.session.admission import last_wait_ns
from tests.fake_time import FakeTime
from tests.running import raw_op, settle, started

EXHAUSTED, CANCELLED = ax.errors.ResourceExhaustedError, ax.errors.CancelledError


class Counter:
    """A graph whose kernel counts how many of its calls are under way, and returns when it is told to."""

    def __init__(self) -> None:
        self.inside = self.most = 0
        self.order: list[int] = []
        self.go = asyncio.Event()
        with ax.Graph() as self.graph:
            self.x = ax.placeholder(ax.int32, [], name="x")
            self.y = raw_op("Wait", self._wait, kind=KernelKind.ASYNC, dtype=ax.int32)(self.x, name="y")

    async def _wait(self, value: Any) -> Any:
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.order.append(int(value))
        try:
            await self.go.wait()
        finally:
            self.inside -= 1
        return value


@pytest.fixture
def counter() -> Counter:
    return Counter()


def config(**settings: Any) -> ax.SessionConfig:
    return ax.SessionConfig(**settings)


@pytest.mark.parametrize("how", ["run", "callable", "partial_run"])
async def test_so_many_at_a_time_and_first_come_first_served(counter: Counter, how: str) -> None:
    no_slice_is_over = FakeTime().clock
    async with ax.Session(counter.graph, config(max_concurrent_steps=3), clock=no_slice_is_over) as session:
        call = session.make_callable(counter.y, [counter.x])

        async def one(number: int) -> Any:
            if how == "run":
                return await session.run(counter.y, {counter.x: number})
            if how == "callable":
                return await call(number)
            async with session.partial_run(counter.y, [counter.x]) as step:
                await step.feed({counter.x: number})
                return await step.fetch(counter.y)

        counter.go.set()
        await one(10)  # prepares the signature, for which the first would else have to wait
        counter.go.clear()
        counter.order.clear()
        tasks = [asyncio.create_task(one(number)) for number in range(10)]
        await settle(10)
        assert counter.inside == 3
        assert (session.statistics().running_steps, session.statistics().queued_steps) == (3, 7)
        counter.go.set()
        assert await asyncio.gather(*tasks) == list(range(10))
        assert counter.most == 3
        assert counter.order == list(range(10))
        assert (session.statistics().queued_steps, session.statistics().completed_steps) == (0, 11)


@pytest.mark.parametrize("max_queued", [0, 2])
async def test_line_that_is_full(counter: Counter, max_queued: int) -> None:
    limits = config(max_concurrent_steps=1, max_queued_steps=max_queued)
    async with ax.Session(counter.graph, limits) as session:
        runs = [await started(session.run(counter.y, {counter.x: number})) for number in range(1 + max_queued)]
        with pytest.raises(EXHAUSTED, match=f"1 steps are under way and {max_queued} wait for their turn"):
            await session.run(counter.y, {counter.x: 9})
        with pytest.raises(EXHAUSTED):
            async with session.partial_run(counter.y, [counter.x]):
                pytest.fail("it began")
        counter.go.set()
        assert await asyncio.gather(*runs) == list(range(1 + max_queued))
        assert await session.run(counter.y, {counter.x: 7}) == 7


async def test_waiter_that_is_cancelled_leaves_the_line(counter: Counter) -> None:
    limits = config(max_concurrent_steps=1, max_queued_steps=2)
    async with ax.Session(counter.graph, limits) as session:
        first, second, third = [await started(session.run(counter.y, {counter.x: n})) for n in range(3)]
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        fourth = await started(session.run(counter.y, {counter.x: 3}))
        counter.go.set()
        assert [await first, await third, await fourth] == [0, 2, 3]
        assert counter.order == [0, 2, 3]


async def test_waiter_that_is_cancelled_as_its_turn_comes_hands_it_on(counter: Counter) -> None:
    async with ax.Session(counter.graph, config(max_concurrent_steps=1)) as session:
        first, second, third = [await started(session.run(counter.y, {counter.x: n})) for n in range(3)]
        first.cancel()
        while not first.done():  # noqa: ASYNC110 - the very turn in which the slot is handed on
            await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        counter.go.set()
        assert await third == 2


@pytest.mark.virtual_clock
async def test_time_in_the_line_counts(counter: Counter) -> None:
    async with ax.Session(counter.graph, config(max_concurrent_steps=1)) as session:
        first = await started(session.run(counter.y, {counter.x: 0}))
        with pytest.raises(ax.errors.DeadlineExceededError):
            await session.run(counter.y, {counter.x: 1}, options=ax.RunOptions(timeout=3))
        assert asyncio.get_running_loop().time() == 3
        counter.go.set()
        assert await first == 0


@pytest.mark.parametrize("how", ["error", "cancelled", "bad feed"])
async def test_place_is_given_back_however_a_step_ends(counter: Counter, how: str) -> None:
    with counter.graph:
        bad = raw_op("Bad", lambda value: 1 // int(value), dtype=ax.int32)(counter.x)
    async with ax.Session(counter.graph, config(max_concurrent_steps=1, max_queued_steps=0)) as session:
        for _ in range(3):
            if how == "error":
                with pytest.raises(ax.errors.InvalidArgumentError, match="ZeroDivisionError"):
                    await session.run(bad, {counter.x: 0})
            elif how == "bad feed":
                with pytest.raises(ax.errors.InvalidArgumentError, match="shape"):
                    await session.run(counter.y, {counter.x: [1]})
            else:
                run = await started(session.run(counter.y, {counter.x: 0}))
                run.cancel()
                await asyncio.wait([run])
        counter.go.set()
        assert await session.run(counter.y, {counter.x: 1}) == 1


async def test_fetches_and_feeds_are_those_of_the_call(counter: Counter) -> None:
    """Whatever the caller does to its lists and dicts while it waits in the queue."""
    counter.go.set()
    async with ax.Session(counter.graph, config(max_concurrent_steps=1)) as session:
        fetches, feeds = [counter.y], {counter.x: 1}
        blocker = Counter()
        async with session.partial_run(counter.y, [counter.x]):
            pass
        first = asyncio.create_task(session.run([counter.y, counter.y], {counter.x: 5}))
        run = asyncio.create_task(session.run(fetches, feeds))
        await asyncio.sleep(0)
        fetches.append(counter.x)
        feeds[counter.x] = 2
        feeds.clear()
        assert await first == [5, 5]
        assert await run == [1]
        assert await session.run([counter.y], {counter.x: 3}) == [3]
        assert blocker.most == 0


class Nested:
    """A graph whose kernel runs another part of it in the same session, *depth* deep."""

    def __init__(self, limits: ax.SessionConfig) -> None:
        with ax.Graph() as graph:
            self.depth = ax.placeholder(ax.int32, [], name="depth")
            self.out = raw_op("Nest", self._nest, kind=KernelKind.ASYNC, dtype=ax.int32)(self.depth)
        self.session = ax.Session(graph, limits)

    async def _nest(self, depth: Any) -> Any:
        if not depth:
            await settle()
            return depth
        values = await asyncio.gather(*[self.session.run(self.out, {self.depth: int(depth) - 1}) for _ in range(2)])
        return 1 + sum(values)


@pytest.mark.parametrize("limit", [None, 1, 2])
async def test_nested_runs_do_not_queue_behind_their_parent(limit: int | None) -> None:
    nested = Nested(config(max_concurrent_steps=limit, max_queued_steps=0 if limit else None))
    async with nested.session as session:
        assert await session.run(nested.out, {nested.depth: 3}) == 7
        async with session.partial_run(nested.out, [nested.depth]) as step:
            assert await session.run(nested.out, {nested.depth: 1}) == 1
            await step.feed({nested.depth: 2})
            assert await step.fetch(nested.out) == 3
        # Once it is over, what follows in the same task queues like everybody else.
        other = await started(session.run(nested.out, {nested.depth: 1}))
        if limit == 1:
            with pytest.raises(EXHAUSTED):
                await session.run(nested.out, {nested.depth: 1})
        assert await other == 1


async def test_close_refuses_newcomers_and_lets_those_inside_end(counter: Counter) -> None:
    limits = config(max_concurrent_steps=2, drain_timeout_s=None)
    session = ax.Session(counter.graph, limits)
    runs = [await started(session.run(counter.y, {counter.x: number})) for number in range(4)]
    closing = await started(session.close())
    with pytest.raises(CANCELLED, match="Session has been closed"):
        await session.run(counter.y, {counter.x: 9})
    assert not closing.done()
    counter.go.set()
    assert await asyncio.gather(*runs) == list(range(4))
    await closing
    assert session.statistics().cached_signatures == 0


async def test_all_who_close_wait_for_those_inside(counter: Counter) -> None:
    session = ax.Session(counter.graph, config(drain_timeout_s=None))
    run = await started(session.run(counter.y, {counter.x: 1}))
    closing = [await started(session.close()) for _ in range(3)]
    assert not any(each.done() for each in closing)
    counter.go.set()
    assert await run == 1
    await asyncio.wait_for(asyncio.gather(*closing), 10)


async def test_close_lets_nested_runs_of_those_inside_begin() -> None:
    nested = Nested(config(drain_timeout_s=None))
    run = await started(nested.session.run(nested.out, {nested.depth: 4}))
    await nested.session.close()
    assert await run == 15


@pytest.mark.virtual_clock
async def test_close_ends_what_has_not_ended_in_time(counter: Counter) -> None:
    session = ax.Session(counter.graph, config(max_concurrent_steps=2, drain_timeout_s=30))
    runs = [await started(session.run(counter.y, {counter.x: number})) for number in range(4)]
    await session.close()
    assert asyncio.get_running_loop().time() == 30
    for run in runs:
        with pytest.raises(CANCELLED, match="Session has been closed"):
            await run
    assert (counter.inside, counter.order) == (0, [0, 1])


@pytest.mark.virtual_clock
async def test_close_that_is_cancelled_ends_what_is_under_way(counter: Counter) -> None:
    session = ax.Session(counter.graph, config(drain_timeout_s=None))
    run = await started(session.run(counter.y, {counter.x: 1}))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5):
            await session.close()
    with pytest.raises(CANCELLED):
        await run
    assert counter.inside == 0


async def test_kernel_that_closes_its_session() -> None:
    """It does not wait for itself; like every other kernel it is cancelled."""
    log: list[str] = []

    async def close() -> Any:
        try:
            await session.close()
        finally:
            log.append("ended")

    with ax.Graph() as graph:
        out = raw_op("Close", close, kind=KernelKind.ASYNC)()
    session = ax.Session(graph, config(drain_timeout_s=None))
    with pytest.raises(CANCELLED, match="Session has been closed"):
        await session.run(out)
    assert log == ["ended"]
    await session.close()


def test_limits_that_make_no_sense() -> None:
    for bad in ({"max_concurrent_steps": 0}, {"max_queued_steps": -1}, {"drain_timeout_s": -1.0}):
        with pytest.raises(pydantic.ValidationError):
            config(**bad)
    with pytest.raises(pydantic.ValidationError, match="max_queued_steps needs max_concurrent_steps"):
        config(max_queued_steps=1)


async def test_how_long_a_call_waited_for_its_turn(counter: Counter) -> None:
    waits: list[int] = []
    async with ax.Session(counter.graph, config(max_concurrent_steps=1)) as session:

        async def one() -> None:
            await session.run(counter.y, {counter.x: 1})
            waits.append(last_wait_ns())

        first = asyncio.create_task(one())
        while not counter.inside:  # noqa: ASYNC110
            await asyncio.sleep(0)
        second = asyncio.create_task(one())
        while not session.statistics().queued_steps:  # noqa: ASYNC110
            await asyncio.sleep(0)
        since = time.perf_counter_ns()
        await asyncio.sleep(0.02)
        waited = time.perf_counter_ns() - since
        counter.go.set()
        await asyncio.gather(first, second)
    assert waits[0] == 0
    assert waits[1] >= waited
    assert last_wait_ns() == 0  # here nothing was called
