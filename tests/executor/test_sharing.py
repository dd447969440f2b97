"""A call on a worker thread can have idle threads do parts of its work, and nobody waits for more than a part."""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections.abc import Callable
from typing import Any

import pytest

from asyncexec.executor.workers import worker_threads
from asyncexec.executor.workers.offload import WorkerPool
from tests.executor.test_offload import call
from tests.running import started

SOON_S = 10


class Parts:
    """Parts of a call's work, each of which waits until it may go on."""

    def __init__(self) -> None:
        self.threads: list[int] = []
        self.has_begun = threading.Semaphore(0)
        self.may_go_on = threading.Semaphore(0)
        self.left = 0

    def do(self) -> bool:
        self.threads.append(threading.get_ident())
        self.has_begun.release()
        assert self.may_go_on.acquire(timeout=SOON_S)
        self.left -= 1
        return self.left > 0


def help_with(pool: WorkerPool, part: Callable[[], bool], count: int) -> None:
    """As a call on one of the threads of *pool* asks the others."""
    assert pool._share is not None
    leave = pool._share.threads.help(part, count)
    leave()


async def held(pool: WorkerPool, gate: threading.Event, begin: Any) -> asyncio.Future[Any]:
    """A call that has called *begin*, and ends when the gate opens."""
    has_begun = threading.Event()

    def work() -> None:
        begin()
        has_begun.set()
        assert gate.wait(SOON_S)

    running = await started(call(pool, work))
    assert await asyncio.to_thread(has_begun.wait, SOON_S)
    return running


async def test_idle_threads_do_parts_and_others_go_between() -> None:
    pool, gate, parts = WorkerPool(2), threading.Event(), Parts()
    parts.left = 3
    running = await held(pool, gate, lambda: help_with(pool, parts.do, 8))
    assert await asyncio.to_thread(parts.has_begun.acquire, timeout=SOON_S)
    assert (pool.statistics().busy, pool.statistics().queued) == (1, 0)
    other = await started(call(pool, lambda: len(parts.threads)))
    parts.may_go_on.release()
    assert (await other).result == 1  # no second part has begun
    parts.may_go_on.release(2)
    for _ in range(2):
        assert await asyncio.to_thread(parts.has_begun.acquire, timeout=SOON_S)
    gate.set()
    await running
    await pool.close()
    assert len(parts.threads) == 3
    assert len(set(parts.threads)) == 1


async def test_no_thread_is_idle() -> None:
    pool, gate, parts = WorkerPool(2), threading.Event(), Parts()
    first = await held(pool, gate, lambda: None)
    second = await held(pool, gate, lambda: help_with(pool, parts.do, 8))
    gate.set()
    await asyncio.gather(first, second)
    await pool.close()
    assert not parts.threads


async def test_a_thread_that_helps_is_free_for_a_run_that_a_kernel_waits_for() -> None:
    pool, parts = WorkerPool(2), Parts()
    loop = asyncio.get_running_loop()
    nested: list[Any] = []

    def begin() -> None:
        help_with(pool, parts.do, 8)
        assert parts.has_begun.acquire(timeout=SOON_S)
        inner = asyncio.run_coroutine_threadsafe(call(pool, len, "abc"), loop)
        parts.may_go_on.release()
        nested.append(inner.result(SOON_S).result)

    parts.left = 1
    assert (await call(pool, begin)).error is None
    assert nested == [3]
    await pool.close()


async def test_help_has_the_context_of_the_call() -> None:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)
    pool, has_ended, seen = WorkerPool(2), threading.Event(), []

    def part() -> bool:
        seen.append(variable.get())
        has_ended.set()
        return False

    def work() -> None:
        help_with(pool, part, 1)
        assert has_ended.wait(SOON_S)

    variable.set(5)
    assert (await call(pool, work)).error is None
    assert seen == [5]
    await pool.close()


async def test_two_pools_that_share_threads_help_in_turns(monkeypatch: Any) -> None:
    """With one thread to help, neither waits until the other has no more parts."""
    monkeypatch.setattr("asyncexec.process.cores.usable_cores", lambda: 3)
    pools, gate = [WorkerPool(is_shared=True) for _ in range(2)], threading.Event()
    order: list[int] = []
    both_wait = threading.Event()

    def part_of(index: int) -> Any:
        def part() -> bool:
            assert both_wait.wait(SOON_S)
            order.append(index)
            return order.count(index) < 5

        return part

    running = [await held(pool, gate, lambda: None) for pool in pools]
    for index, pool in enumerate(pools):
        help_with(pool, part_of(index), 8)
    both_wait.set()
    gate_opens = asyncio.gather(*running)
    while len(order) < 10:  # noqa: ASYNC110 - a thread does it
        await asyncio.sleep(0.001)
    assert order == [0, 1] * 5
    gate.set()
    await gate_opens
    for pool in pools:
        await pool.close()


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system does not tell the cores of a thread")
async def test_each_has_a_core_of_its_own_where_all_are_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the kernel wakes one that waits for the interpreter's lock where the other is that lets it go."""
    cores = os.sched_getaffinity(0)
    monkeypatch.setattr(worker_threads, "num_cores", lambda: 2)
    pool, seen, both = WorkerPool(2), {}, threading.Barrier(2)
    owner = threading.get_native_id

    def part() -> bool:
        seen[owner()] = os.sched_getaffinity(0)
        both.wait(SOON_S)
        return False

    def share_with_one() -> set[int]:
        assert pool._share is not None
        leave = pool._share.threads.help(part, 1)
        part()
        leave()
        return os.sched_getaffinity(0)

    def cores_of_both() -> set[int]:
        both.wait(SOON_S)
        return os.sched_getaffinity(0)

    for _ in range(3):
        seen.clear()
        assert (await call(pool, share_with_one)).result == cores
        one, other = seen.values()
        if len(cores) > 1:
            assert len(one) == len(other) == 1
            assert one != other
        found = await asyncio.gather(call(pool, cores_of_both), call(pool, cores_of_both))
        assert [each.result for each in found] == [cores, cores]
    await pool.close()
