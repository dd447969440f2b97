"""The worker pool: bounded, started when needed, results through the loop, ended when closed."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest

from asyncexec.executor.workers.job import HANDED_ON, Call, Outcome
from asyncexec.executor.workers.offload import WorkerPool
from asyncexec.executor.workers.pool_statistics import PoolStatistics
from asyncexec.framework.errors import FailedPreconditionError
from tests.fake_time import FakeTime
from tests.running import settle, started


async def call(pool: WorkerPool, function: Any, *args: Any) -> Outcome:
    done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    pool.submit(function, args, done.set_result)
    return await done


async def test_result_and_error() -> None:
    pool = WorkerPool(1)
    outcome = await call(pool, divmod, 7, 2)
    assert (outcome.result, outcome.error) == ((3, 1), None)
    assert outcome.start_ns <= outcome.end_ns
    assert outcome.thread_id != threading.get_ident()
    outcome = await call(pool, divmod, 7, 0)
    assert outcome.result is None
    assert isinstance(outcome.error, ZeroDivisionError)
    await pool.close()


async def test_threads_are_started_when_needed_and_no_more_than_allowed() -> None:
    before = threading.active_count()
    pool = WorkerPool(3)
    assert threading.active_count() == before
    for _ in range(5):
        await call(pool, len, "")
    assert threading.active_count() == before + 1
    await asyncio.gather(*[call(pool, len, "") for _ in range(50)])
    assert threading.active_count() <= before + 3
    await pool.close()
    assert threading.active_count() == before


def test_as_many_threads_as_cores() -> None:
    assert WorkerPool().num_threads >= 1
    assert WorkerPool(5).num_threads == 5


async def test_done_is_called_in_the_loop() -> None:
    pool, threads = WorkerPool(2), []
    done = asyncio.Event()

    def note(outcome: Outcome) -> None:
        threads.append(threading.get_ident())
        if len(threads) == 100:
            done.set()

    for _ in range(100):
        pool.submit(len, ("",), note)
    await done.wait()
    assert set(threads) == {threading.get_ident()}
    await pool.close()


async def test_many_results_share_wake_ups(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = WorkerPool(1)
    await call(pool, len, "")
    gate = threading.Event()
    wake_ups = []
    collect = pool._collect
    monkeypatch.setattr(pool, "_collect", lambda: wake_ups.append(1) or collect())
    calls = [
        asyncio.ensure_future(call(pool, gate.wait if not i else len, *([10] if not i else [""]))) for i in range(50)
    ]
    await settle()
    gate.set()
    while pool.statistics().queued:  # without giving the loop a turn
        pass
    await asyncio.gather(*calls)
    assert len(wake_ups) <= 3
    await pool.close()


async def test_context_of_the_caller() -> None:
    variable = contextvars.ContextVar("variable", default=0)
    pool = WorkerPool(1)
    variable.set(5)

    def change() -> int:
        seen = variable.get()
        variable.set(7)
        return seen

    assert (await call(pool, change)).result == 5
    assert variable.get() == 5
    await pool.close()


async def test_nothing_is_held_while_waiting() -> None:
    pool = WorkerPool(1)
    gc.disable()
    try:
        array = np.ones(3)
        ref = weakref.ref(array)
        outcome = await call(pool, lambda x: x, array)
        del array, outcome
        await settle()
        for _ in range(1000):
            if ref() is None:
                break
            await asyncio.sleep(0.001)
        assert ref() is None
    finally:
        gc.enable()
        await pool.close()


async def test_close_lets_what_was_submitted_end_first() -> None:
    pool, gate = WorkerPool(1), threading.Event()
    calls = [await started(call(pool, gate.wait, 10)), await started(call(pool, len, "abc"))]
    closing = await started(pool.close())
    assert not closing.done()
    gate.set()
    await closing
    assert [(await running).result for running in calls] == [True, 3]


async def test_statistics() -> None:
    pool, gate = WorkerPool(2), threading.Event()
    assert pool.statistics() == PoolStatistics(threads=0, busy=0, abandoned=0, queued=0, completed=0)
    calls = [await started(call(pool, gate.wait, 10)) for _ in range(3)]
    while pool.statistics().busy < 2:  # noqa: ASYNC110 - a thread tells nobody that it has begun
        await asyncio.sleep(0)
    assert pool.statistics() == PoolStatistics(threads=2, busy=2, abandoned=0, queued=1, completed=0)
    gate.set()
    await asyncio.gather(*calls)
    assert pool.statistics().completed == 3
    await pool.close()


async def test_a_batch_lets_the_loop_go_when_its_time_is_over() -> None:
    """Results that take long to hand on are handed on in several turns of the loop."""
    pool, turns, handed_on = WorkerPool(1, clock=FakeTime(10**7).clock), [0], list[int]()
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def count() -> None:
        turns[0] += 1
        if not done.is_set():
            loop.call_soon(count)

    def note(_: Outcome) -> None:
        handed_on.append(turns[0])
        if len(handed_on) == 200:
            done.set()

    jobs = [pool.submit(len, ("",), note) for _ in range(200)]
    while len(pool.results) < len(jobs):  # without giving the loop a turn
        pass
    loop.call_soon(count)
    await done.wait()
    assert len(set(handed_on)) == 7  # 32 a turn
    await pool.close()


async def make(pool: WorkerPool, *functions: Any) -> list[Outcome]:
    """What becomes of calls of *functions*, each with what the one before gives; the first gets nothing."""
    done: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
    pool.submit_calls([Call(function) for function in functions], done.set_result)
    return await done


async def test_calls_of_a_job_hand_on_what_they_give() -> None:
    pool = WorkerPool(1)
    *before, last = await make(pool, lambda: 5, lambda x: x + 1, str)
    assert [outcome.result for outcome in before] == [HANDED_ON, HANDED_ON]
    assert (last.result, last.error) == ("6", None)
    first, second = await make(pool, lambda: 0, lambda x: 1 / x, str)
    assert (first.result, second.result) == (HANDED_ON, None)
    assert isinstance(second.error, ZeroDivisionError)
    assert pool.statistics() == PoolStatistics(threads=1, busy=0, abandoned=0, queued=0, completed=5)
    await pool.close()


async def test_a_job_counts_once_however_many_calls_it_has() -> None:
    pool, gate = WorkerPool(2), threading.Event()
    job = await started(make(pool, lambda: gate.wait(10), str, str, str))
    while not pool.statistics().busy:  # noqa: ASYNC110 - a thread tells nobody that it has begun
        await asyncio.sleep(0)
    assert pool.statistics() == PoolStatistics(threads=1, busy=1, abandoned=0, queued=0, completed=0)
    gate.set()
    assert len(await job) == 4
    await pool.close()


async def test_close_lets_a_job_end_that_goes_behind_others() -> None:
    pool, gate, order = WorkerPool(2), threading.Event(), list[str]()

    def note(name: str) -> str:
        order.append(name)
        return name

    waits = [await started(call(pool, gate.wait, 10)) for _ in range(2)]
    jobs = [await started(make(pool, lambda n=n: note(n), note, note)) for n in "ab"]
    closing = await started(pool.close())
    gate.set()
    await closing
    assert [len(await job) for job in jobs] == [3, 3]
    assert [(await running).result for running in waits] == [True, True]
    assert sorted(order) == [*"aaabbb"]


async def test_calls_of_two_loops_do_not_mix() -> None:
    pool, gate = WorkerPool(1), threading.Event()
    running = await started(call(pool, gate.wait, 10))

    async def use() -> None:
        with pytest.raises(FailedPreconditionError, match="another event loop"):
            await call(pool, len, "")

    await asyncio.to_thread(asyncio.run, use())
    gate.set()
    await running
    await pool.close()


async def test_close_of_a_pool_that_was_never_used() -> None:
    await WorkerPool(2).close()


async def test_pool_can_be_used_again_after_close() -> None:
    pool = WorkerPool(1)
    for _ in range(2):
        assert (await call(pool, len, "abc")).result == 3
        await pool.close()


async def test_close_is_not_cut_short() -> None:
    pool, gate = WorkerPool(1), threading.Event()
    running = await started(call(pool, gate.wait, 10))
    closing = await started(pool.close())
    for _ in range(2):
        closing.cancel()
        await settle()
        assert not closing.done()
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert (await running).result is True


async def test_thread_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = WorkerPool(1)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start"):
            pool.submit(len, ("",), lambda outcome: None)
    assert (await call(pool, len, "abc")).result == 3
    await pool.close()


def refuse(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")
