"""QueuePolicy: priorities, limits of waiting and its length, in the wait queue of a session and in those of batches."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pydantic
import pytest

import asyncexec as ax
from tests.running import settle, started

UNAVAILABLE = ax.errors.UnavailableError
pytestmark = pytest.mark.virtual_clock


class Line:
    """A session that does one call at a time, which takes a second, in the order in *done*; limited, or by batches."""

    def __init__(self, how: str) -> None:
        self.done: list[float] = []
        self.first_s = 1.0

        @ax.op(outputs=[ax.float32])
        async def work(rows: Any) -> Any:
            self.done.extend(rows.tolist())
            await asyncio.sleep(self.first_s if len(self.done) == 1 else 1.0)
            return rows

        batched = ax.batch(max_size=1, timeout_s=0)(lambda rows: work(rows))
        with ax.Graph() as graph:
            self.fed = ax.placeholder(ax.float32, [None], name="x")
            self.result = batched(self.fed) if how == "batches" else work(self.fed)
        config = ax.SessionConfig() if how == "batches" else ax.SessionConfig(max_concurrent_steps=1)
        self.session = ax.Session(graph, config)

    async def call(self, number: float, **policy: Any) -> asyncio.Task[Any]:
        """Begin the call *number*, that waits by *policy*."""
        options = ax.RunOptions(queue=ax.QueuePolicy(**policy) if policy else None)
        feeds = {self.fed: np.array([number], np.float32)}
        return await started(self.session.run(self.result, feeds, options=options))


@pytest.fixture(params=["limited", "batches"])
def line(request: pytest.FixtureRequest) -> Line:
    return Line(request.param)


async def test_the_lowest_number_goes_first(line: Line) -> None:
    async with line.session:
        calls = [await line.call(0)]
        for number, priority in ((1, 2), (2, 1), (3, 2), (4, -1), (5, 1)):
            calls.append(await line.call(number, priority=priority))
        calls.append(await line.call(6))
        await asyncio.gather(*calls)
    assert line.done == [0, 4, 6, 2, 5, 1, 3]


async def test_so_many_of_a_priority_wait(line: Line) -> None:
    async with line.session:
        calls = [await line.call(0, priority=1, max_queued=2)]
        await settle(10)
        calls += [await line.call(number, priority=1, max_queued=2) for number in (1, 2)]
        refused = await line.call(3, priority=1, max_queued=2)
        with pytest.raises(UNAVAILABLE, match="Exceeds maximum queue size: 2 of at most 2 wait already"):
            await refused
        calls.append(await line.call(4, priority=2, max_queued=1))
        calls[1].cancel()
        await asyncio.gather(calls[1], return_exceptions=True)
        calls.append(await line.call(5, priority=1, max_queued=2))
        calls.pop(1)
        await asyncio.gather(*calls)
    assert line.done == [0, 2, 5, 4]


async def test_a_call_that_waits_too_long_is_refused_then(line: Line) -> None:
    loop = asyncio.get_running_loop()
    async with line.session:
        calls = [await line.call(0), await line.call(1, timeout=0.25), await line.call(2, timeout=1.5)]
        began = loop.time()
        with pytest.raises(UNAVAILABLE, match=r"Request timeout expired: it has waited 0\.25 s"):
            await calls.pop(1)
        assert loop.time() - began == 0.25
        await asyncio.gather(*calls)  # what has begun is not timed any more: it ends after 2 s
    assert line.done == [0, 2]


async def test_a_late_call_goes_after_those_in_time(line: Line) -> None:
    async with line.session:
        calls = [await line.call(0)]
        calls.append(await line.call(1, priority=1, timeout=0.5, timeout_action="delay"))
        calls.append(await line.call(2, priority=2, timeout=0.25, timeout_action="delay"))
        calls.append(await line.call(3, priority=9))
        await asyncio.sleep(0.75)
        calls.append(await line.call(4, priority=10))
        await asyncio.gather(*calls)
    assert line.done == [0, 3, 4, 1, 2]


async def test_a_late_call_counts_and_can_be_cancelled(line: Line) -> None:
    async with line.session:
        first = await line.call(0)
        late = await line.call(1, priority=1, timeout=0.5, timeout_action="delay")
        await asyncio.sleep(0.75)
        with pytest.raises(UNAVAILABLE, match="Exceeds maximum queue size: 1 of at most 1"):
            await (await line.call(2, priority=1, max_queued=1))
        late.cancel()
        with pytest.raises(asyncio.CancelledError):
            await late
        await asyncio.gather(first, await line.call(3, priority=1, max_queued=1))
    assert line.done == [0, 3]


async def test_a_deadline_ends_a_wait_too(line: Line) -> None:
    async with line.session:
        first = await line.call(0)
        options = ax.RunOptions(timeout=0.25, queue=ax.QueuePolicy(timeout=0.5))
        with pytest.raises(ax.errors.DeadlineExceededError):
            await line.session.run(line.result, {line.fed: np.ones(1, np.float32)}, options=options)
        await asyncio.gather(first, await line.call(2, max_queued=1))
    assert line.done == [0, 2]


async def test_rows_of_one_priority_share_a_batch() -> None:
    batches: list[list[float]] = []

    @ax.op(outputs=[ax.float32])
    async def work(rows: Any) -> Any:
        batches.append(rows.tolist())
        await asyncio.sleep(1)
        return rows

    batched = ax.batch(max_size=2, timeout_s=0.1)(lambda rows: work(rows))
    with ax.Graph() as graph:
        fed = ax.placeholder(ax.float32, [None], name="x")
        result = batched(fed)
    async with ax.Session(graph) as session:
        calls = []
        for number, priority in enumerate((2, 1, 2, 1, 1)):
            options = ax.RunOptions(queue=ax.QueuePolicy(priority=priority))
            feeds = {fed: np.array([number], np.float32)}
            calls.append(await started(session.run(result, feeds, options=options)))
        found = await asyncio.gather(*calls)
    assert [rows.tolist() for rows in found] == [[0], [1], [2], [3], [4]]
    assert batches == [[0, 2], [1, 3], [4]]


async def test_a_call_that_waits_in_two_batches_is_refused_once() -> None:
    ran: list[list[float]] = []

    @ax.op(outputs=[ax.float32])
    async def work(rows: Any) -> Any:
        ran.append(rows.tolist())
        await asyncio.sleep(1)
        return rows

    batched = ax.batch(max_size=2, timeout_s=0, allowed_sizes=[1])(lambda rows: work(rows))
    with ax.Graph() as graph:
        fed = ax.placeholder(ax.float32, [None], name="x")
        result = batched(fed)
    options = ax.RunOptions(queue=ax.QueuePolicy(timeout=0.5, max_queued=1))
    async with ax.Session(graph) as session:
        first = await started(session.run(result, {fed: np.array([1], np.float32)}, options=options))
        with pytest.raises(UNAVAILABLE, match="Request timeout expired"):
            await session.run(result, {fed: np.array([2, 3], np.float32)}, options=options)
        options = ax.RunOptions(queue=ax.QueuePolicy(max_queued=1))
        await asyncio.gather(first, session.run(result, {fed: np.array([4], np.float32)}, options=options))
    assert ran == [[1], [4]]


@pytest.mark.parametrize("fields", [{"max_queued": 0}, {"timeout": 0}, {"timeout_action": "wait"}, {"level": 1}])
def test_wrong_policies_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(pydantic.ValidationError, match=next(iter(fields))):
        ax.QueuePolicy(**fields)
