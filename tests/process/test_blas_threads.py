"""How many threads BLAS takes for one operation."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.process.blas_threads import BlasThreads, limit_blas_threads, slow_kernels
from asyncexec.process.cores import CoreBudget

threadpoolctl = pytest.importorskip("threadpoolctl")

LONG, SHORT = 1e9, 1e6


class Library:
    """A BLAS that says how often its number of threads has been set."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.num_sets = 0

    def get_num_threads(self) -> int:
        return self.count

    def set_num_threads(self, count: int) -> None:
        self.count = count
        self.num_sets += 1


def make(host: int = 4, idle: int = 3) -> tuple[Library, BlasThreads, Callable[[], int]]:
    library = Library(host)
    return library, BlasThreads(library, CoreBudget(lambda: idle)), library.get_num_threads


def num_threads() -> set[int]:
    return {each["num_threads"] for each in threadpoolctl.threadpool_info() if each["user_api"] == "blas"}


def test_blas_takes_as_many_threads_as_it_may() -> None:
    np.ones((2, 2)) @ np.ones((2, 2))
    with threadpoolctl.threadpool_limits(None, user_api="blas"):  # gives back what there was
        before = num_threads()
        for count in (2, 1):
            limit_blas_threads(count)
            assert num_threads() <= {count}
    assert num_threads() == before


def test_a_long_kernel_alone_gets_the_idle_cores_and_a_short_one_a_single_thread() -> None:
    library, threads, count = make()
    assert threads.call(count, (), LONG) == 3
    assert library.count == 4
    assert threads.call(count, (), SHORT) == 1
    assert library.count == 4


def test_no_more_threads_are_taken_than_the_host_application_has_set() -> None:
    library, threads, count = make(host=2, idle=8)
    assert threads.call(count, (), LONG) == 2
    assert library.num_sets == 0


def test_a_kernel_beside_another_gets_one_thread() -> None:
    library, threads, count = make()
    assert threads.call(lambda: threads.call(count, (), LONG), (), LONG) == 1
    assert library.count == 4


def test_what_the_host_has_is_set_again_when_a_kernel_fails() -> None:
    library, threads, _ = make()
    with pytest.raises(ZeroDivisionError):
        threads.call(lambda: 1 / 0, (), SHORT)
    assert library.count == 4


@pytest.mark.one_of("loop")
async def test_in_an_event_loop_what_the_host_has_is_set_once_a_turn() -> None:
    library, threads, count = make()
    assert [threads.call(count, (), LONG) for _ in range(5)] == [1] * 5
    assert (library.count, library.num_sets) == (1, 1)
    await asyncio.sleep(0)
    assert (library.count, library.num_sets) == (4, 2)


@pytest.mark.one_of("loop")
async def test_a_turn_that_ends_while_a_worker_runs_leaves_it_to_the_worker() -> None:
    library, threads, count = make()
    begun, may_end = threading.Event(), threading.Event()

    def kernel() -> int:
        begun.set()
        may_end.wait(60)
        return library.count

    async with asyncio.timeout(60):
        work = asyncio.create_task(asyncio.to_thread(threads.call, kernel, (), SHORT))
        await asyncio.to_thread(begun.wait, 60)
        assert threads.call(count, (), SHORT) == 1
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert library.count == 1
        may_end.set()
        assert await work == 1
    assert library.count == 4


@pytest.mark.parametrize(("setting", "expected"), [("auto", {1, 2}), ("host", {2})])
@pytest.mark.one_of("loop")
async def test_products_of_a_graph_take_one_thread_unless_the_host_is_to_decide(
    setting: Any, expected: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    library = Library(2)
    monkeypatch.setattr(
        "asyncexec.compilation.bind_kernel.blas_threads", lambda: BlasThreads(library, CoreBudget(lambda: 1))
    )
    seen: set[int] = set()
    product = np.matmul

    with ax.Graph() as graph:
        a = ax.placeholder(ax.float32, [1, None, None, 8])
        kept = ax.raw_ops.Conv2D(input=a, filter=np.ones((3, 3, 8, 16), np.float32), strides=[1] * 4, padding="SAME")

    def watched(*args: Any, **kwargs: Any) -> Any:
        seen.add(library.count)
        return product(*args, **kwargs)

    monkeypatch.setattr(np, "matmul", watched)
    async with ax.Session(graph, ax.SessionConfig(blas_threads=setting)) as session:
        await session.run(kept, {a: np.ones((1, 32, 32, 8), np.float32)})
        await session.run(kept, {a: np.ones((1, 2, 2, 8), np.float32)})  # short: as the host has it
    assert seen == expected
    assert library.count == 2


def test_a_product_beside_a_call_of_another_library_gets_one_thread() -> None:
    library, budget = Library(4), CoreBudget(lambda: 3)
    threads = BlasThreads(library, budget)
    assert budget.begin(is_large=True) == 3
    assert threads.call(library.get_num_threads, (), LONG) == 1
    budget.end()
    assert threads.call(library.get_num_threads, (), LONG) == 3


async def test_a_later_kernel_of_a_turn_has_one_thread_whatever_a_worker_has_set_between() -> None:
    library, threads, count = make()
    found = [threads.call(count, (), SHORT), threads.call(count, (), SHORT)]
    assert library.num_sets == 1
    worker = threading.Thread(target=lambda: found.append(threads.call(count, (), LONG)))
    worker.start()
    worker.join()
    found.append(threads.call(count, (), SHORT))
    assert found == [1, 1, 3, 1]
    await asyncio.sleep(0)
    assert library.count == 4


def test_a_loop_that_is_closed_before_its_turn_is_over_is_not_waited_for() -> None:
    library, threads, count = make()

    def compute(loop: asyncio.AbstractEventLoop) -> None:
        threads.call(count, (), SHORT)
        loop.stop()

    loop = asyncio.new_event_loop()
    loop.call_soon(compute, loop)
    loop.run_forever()
    loop.close()
    threads.call(count, (), SHORT)
    assert library.count == 4


@pytest.mark.parametrize(
    ("architecture", "asked", "advice"),
    [
        ("Haswell", None, "Set OPENBLAS_CORETYPE=SKYLAKEX"),
        ("Haswell", "Haswell", "Unset OPENBLAS_CORETYPE=Haswell"),
        ("SkylakeX", None, None),
    ],
)
def test_kernels_for_older_processors_are_found_whoever_asks_for_them(
    architecture: str, asked: str | None, advice: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "asyncexec.process.blas_threads._controllers", lambda: [SimpleNamespace(architecture=architecture)]
    )
    monkeypatch.setattr("asyncexec.process.blas_threads._has_avx512", lambda: True)
    monkeypatch.delenv("OPENBLAS_CORETYPE", raising=False)
    if asked is not None:
        monkeypatch.setenv("OPENBLAS_CORETYPE", asked)
    found = slow_kernels()
    assert (found is None) if advice is None else (found is not None and advice in found)
