"""What worker threads and the loop share: no wake-up is lost and no call counted twice, however threads interleave."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
import weakref
from collections import Counter, deque
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from asyncexec.executor.workers.job import Call, Outcome
from asyncexec.executor.workers.offload import WorkerPool, is_awaiting_workers
from tests.on_threads import at_once, quick_switches
from tests.running import settle

THREADS = 4
SOON_S = 30.0  # by far longer than it takes; what is lost is waited for in vain


class Thing:
    """Something that can be referred to weakly."""


@pytest.fixture(autouse=True)
def often() -> Iterator[None]:
    with quick_switches():
        yield


async def test_no_result_is_left_lying() -> None:
    """Waves of different sizes, and between them nobody who would wake the loop by chance."""
    pool, random = WorkerPool(THREADS), Random(1)
    submitted = 0
    for _ in range(600):
        done, left = asyncio.Event(), [random.randint(1, 6)]
        submitted += left[0]

        def note(_: Outcome, done: asyncio.Event = done, left: list[int] = left) -> None:
            left[0] -= 1
            if not left[0]:
                done.set()

        for _ in range(left[0]):
            pool.submit(len, ("abc",), note)
        await asyncio.wait_for(done.wait(), SOON_S)
    assert pool.statistics().completed == submitted
    await pool.close()


async def test_each_call_ends_once_and_is_counted_once() -> None:
    """Some are cancelled, some abandoned, while threads begin and end them."""
    pool, random = WorkerPool(THREADS), Random(2)
    ended: dict[int, int] = {}
    returned: list[int] = []
    cancelled = abandoned = 0
    for number in range(3_000):

        def note(_: Outcome, number: int = number) -> None:
            ended[number] = ended.get(number, 0) + 1

        job = pool.submit(sum, (range(random.choice((1, 100, 1000))),), note)
        chance = random.random()
        if chance < 0.2:
            cancelled += pool.cancel(job)
        elif chance < 0.4 and not pool.cancel(job):
            if job.done is not None:
                pool.abandon(job, lambda number=number: returned.append(number))  # type: ignore[misc]
                abandoned += 1
        elif chance < 0.4:
            cancelled += 1
        if not number % 50:
            await asyncio.sleep(0)
    while pool.is_awaited_in(asyncio.get_running_loop()) or pool.statistics().abandoned:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    assert set(ended.values()) <= {1}
    assert len(returned) == len(set(returned)) == abandoned
    assert set(returned).isdisjoint(ended)
    assert len(ended) + abandoned + cancelled == 3_000
    assert pool.statistics().completed == 3_000 - cancelled
    await pool.close()


async def test_a_job_that_is_cancelled_begins_no_further_call() -> None:
    """Whether it is on a thread, or waits behind others between two of its calls."""
    pool, random, loop = WorkerPool(THREADS), Random(3), asyncio.get_running_loop()
    begun, told, most = Counter[int](), Counter[int](), dict[int, int]()
    lengths = [random.randint(1, 6) for _ in range(2_000)]

    def begin(number: int) -> int:
        begun[number] += 1
        return number

    for number, length in enumerate(lengths):
        calls = [Call(begin, (number,)), *(Call(begin) for _ in range(length - 1))]
        job = pool.submit_calls(calls, lambda outcomes, number=number: told.update({number: len(outcomes)}))  # type: ignore[misc]
        if random.random() < 0.3:
            early = random.randrange(length)
            while begun[number] < early:  # without giving the loop a turn
                pass
            is_cancelled = pool.cancel(job)
            most[number] = begun[number] + (not is_cancelled)
        if not number % 50:
            await asyncio.sleep(0)
    while pool.is_awaited_in(loop):  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    assert {number for number, limit in most.items() if begun[number] > limit} == set()
    assert all(told[number] == length for number, length in enumerate(lengths) if number not in most)
    assert {number for number, count in told.items() if count != begun[number]} == set()
    assert pool.statistics().completed == begun.total()
    await pool.close()


class Results(deque[Any]):
    """Where a thread that drops results stops twice: before it sees how many there are, and holding the second one."""

    def __init__(self) -> None:
        super().__init__()
        self.is_dropping, self.may_look = threading.Event(), threading.Event()
        self.is_holding, self.may_put_back = threading.Event(), threading.Event()
        self._dropping: threading.Thread | None = None
        self._num_put_back = 0

    def __len__(self) -> int:
        if self._dropping is None and threading.current_thread() is not threading.main_thread():
            self._dropping = threading.current_thread()
            self.is_dropping.set()
            self.may_look.wait(SOON_S)
        return super().__len__()

    def append(self, result: Any) -> None:
        if threading.current_thread() is self._dropping:
            self._num_put_back += 1
            if self._num_put_back == 2:
                self.is_holding.set()
                self.may_put_back.wait(SOON_S)
        super().append(result)


def test_a_result_of_the_next_loop_is_not_dropped_with_those_of_the_last_one() -> None:
    pool, may_end, results = WorkerPool(2), threading.Event(), Results()

    async def start_both_threads() -> None:
        meeting, done = threading.Barrier(2), [asyncio.get_running_loop().create_future() for _ in range(2)]
        for each in done:
            pool.submit(meeting.wait, (SOON_S,), each.set_result)
        await asyncio.gather(*done)

    async def leave() -> None:
        job = pool.submit(may_end.wait, (SOON_S,), lambda outcome: None)
        while not pool.statistics().busy:  # noqa: ASYNC110 - a thread tells nobody that it has begun
            await asyncio.sleep(0)
        pool.abandon(job)

    async def go_on() -> Outcome:
        done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        pool.submit(divmod, (7, 2), done.set_result)
        while len(results) < 2:  # without giving the loop a turn
            pass
        results.may_look.set()
        assert results.is_holding.wait(SOON_S)
        await settle()  # in which the loop looks in vain
        assert not done.done()
        results.may_put_back.set()
        outcome = await asyncio.wait_for(done, SOON_S)
        await pool.close()
        return outcome

    asyncio.run(start_both_threads())
    pool.results = results
    asyncio.run(leave())
    may_end.set()
    assert results.is_dropping.wait(SOON_S)
    outcome = asyncio.run(go_on())
    assert (outcome.result, outcome.error) == ((3, 1), None)


async def test_a_thread_keeps_nothing_of_the_context_that_it_was_started_in() -> None:
    variable: contextvars.ContextVar[Thing | None] = contextvars.ContextVar("variable", default=None)
    pool, done = WorkerPool(1), asyncio.Event()
    thing = Thing()
    gone = weakref.ref(thing)

    def submit(thing: Thing) -> None:
        variable.set(thing)
        pool.submit(len, ("",), lambda outcome: done.set())

    contextvars.copy_context().run(submit, thing)
    await done.wait()
    del thing
    gc.disable()
    try:
        for _ in range(1000):
            if gone() is None:
                break
            await asyncio.sleep(0.001)
        assert gone() is None
    finally:
        gc.enable()
    await pool.close()


def test_pools_come_and_go_while_others_are_asked_for() -> None:
    loop = asyncio.new_event_loop()

    def make() -> bool:
        return all(WorkerPool(1).num_threads == 1 for _ in range(500))

    def ask() -> bool:
        return any(is_awaiting_workers(loop) for _ in range(500))

    try:
        assert at_once(make, make, ask, ask) == [True, True, False, False]
    finally:
        loop.close()
