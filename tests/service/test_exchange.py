"""Exchange: the order of answers, bounds on what is under way, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asyncexec.service import exchange
from asyncexec.service.exchange import Asked, Exchange
from asyncexec.service.held_bytes import SMALL_BYTES, HeldBytes
from asyncexec.testing import VirtualClockLoop

LARGE = 2 * SMALL_BYTES
Answer = tuple[int, int]  # the number of a request, and of its answer


@dataclass(frozen=True)
class Request:
    """It comes after *pause*; each of its answers, one where it is ordered, takes as long as *lasts* says."""

    pause: int
    lasts: tuple[int, ...]
    is_ordered: bool


ordered = st.builds(lambda pause, lasts: Request(pause, (lasts,), True), st.integers(0, 2), st.integers(0, 3))
decoupled = st.builds(
    lambda pause, lasts: Request(pause, tuple(lasts), False), st.integers(0, 2), st.lists(st.integers(0, 3), max_size=4)
)


class Connection:
    """Reads *requests*, and writes answers, each of which takes *write_s*."""

    def __init__(self, requests: list[Request], write_s: int) -> None:
        self.requests = requests
        self.write_s = write_s
        self.num_read = 0
        self.under_way: set[int] = set()
        self.most_under_way = 0
        self.is_writing = False
        self.written: list[Answer] = []

    async def read(self) -> Asked[Answer] | None:
        if self.num_read == len(self.requests):
            return None
        number = self.num_read
        request = self.requests[number]
        await asyncio.sleep(request.pause)
        self.num_read += 1
        held = HeldBytes()
        held.grow_to(LARGE)
        return Asked(1, lambda: self.answers(number, request), request.is_ordered, held)

    async def answers(self, number: int, request: Request) -> AsyncGenerator[Answer, None]:
        self.under_way.add(number)
        self.most_under_way = max(self.most_under_way, len(self.under_way))
        try:
            for i, lasts in enumerate(request.lasts):
                await asyncio.sleep(lasts)
                yield number, i
        finally:
            self.under_way.remove(number)

    async def write(self, answer: Answer) -> None:
        assert not self.is_writing
        self.is_writing = True
        await asyncio.sleep(self.write_s)
        self.is_writing = False
        self.written.append(answer)


@settings(max_examples=100, deadline=None)
@given(
    requests=st.lists(ordered | decoupled, max_size=10),
    write_s=st.integers(0, 2),
    most=st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 5)),
    cancelled_after=st.none() | st.integers(0, 10),
)
def test_any_requests_are_answered(
    requests: list[Request], write_s: int, most: tuple[int, int, int], cancelled_after: int | None
) -> None:
    connection = Connection(requests, write_s)

    async def run() -> bool:
        before = asyncio.all_tasks()
        try:
            async with asyncio.timeout(cancelled_after):
                await Exchange(connection.read, connection.write).run()
            return True
        except TimeoutError:
            return False
        finally:
            assert asyncio.all_tasks() == before
            assert not connection.under_way
            assert HeldBytes.total == 0

    with pytest.MonkeyPatch.context() as patch, asyncio.Runner(loop_factory=VirtualClockLoop) as runner:
        for name, count in zip(("_MOST_WAITING", "_MOST_DECOUPLED", "_MOST_WAITING_BYTES"), most, strict=True):
            patch.setattr(exchange, name, count)
        has_ended = runner.run(run())
    expected = {i: [(i, j) for j in range(len(request.lasts))] for i, request in enumerate(requests)}
    written = connection.written
    for i, answers in expected.items():
        of_one = [answer for answer in written if answer[0] == i]
        assert of_one == (answers if has_ended else answers[: len(of_one)])
    in_order = [number for number, _ in written if requests[number].is_ordered]
    assert in_order == sorted(in_order)
    assert connection.most_under_way <= min(most[0] + most[1], most[2])


@pytest.mark.virtual_clock
@pytest.mark.parametrize("is_ordered", [True, False])
async def test_a_failure_of_writing_ends_it(is_ordered: bool) -> None:
    connection = Connection([Request(0, (0,), is_ordered), Request(0, (100,), False), Request(1000, (0,), True)], 0)

    async def write(_: Answer) -> None:
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await Exchange(connection.read, write).run()
    assert not connection.under_way
    assert asyncio.get_running_loop().time() < 10


@pytest.mark.virtual_clock
async def test_a_failure_of_reading_comes_after_the_answers() -> None:
    connection = Connection([Request(0, (5,), True)], 0)

    async def read() -> Asked[Answer] | None:
        asked = await connection.read()
        if asked is None:
            raise ConnectionResetError
        return asked

    with pytest.raises(ConnectionResetError):
        await Exchange(read, connection.write).run()
    assert connection.written == [(0, 0)]


async def test_a_request_that_is_read_when_it_is_stopped_holds_nothing() -> None:
    connection = Connection([Request(0, (0,), True)], 0)

    async def read() -> Asked[Answer] | None:
        asked = await connection.read()
        stopped.stop()
        return asked

    stopped = Exchange(read, connection.write)
    await stopped.run()
    await asyncio.sleep(0)
    assert (connection.written, HeldBytes.total) == ([], 0)
