"""Many runs at once, runs within runs, and deadlines that cover all of a run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import asyncexec as ax
from asyncexec.framework.kernel import KernelKind
from tests.fake_time import in_single_steps
from tests.running import raw_op, settle


@pytest.mark.one_of("loop")
async def test_ten_thousand_at_once() -> None:
    """All are under way at the same time: the last to come lets all of them go on."""
    count, go = 0, asyncio.Event()

    async def meet(value: Any) -> Any:
        nonlocal count
        count += 1
        if count == 10_000:
            go.set()
        await go.wait()
        return value * 2

    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [], name="x")
        y = raw_op("Meet", meet, kind=KernelKind.ASYNC, dtype=ax.int64)(x) + 1
    async with ax.Session(graph) as session:
        found = await asyncio.gather(*[session.run(y, {x: number}) for number in range(10_000)])
        assert found == [2 * number + 1 for number in range(10_000)]
        statistics = session.statistics()
        assert (statistics.running_steps, statistics.completed_steps, statistics.failed_steps) == (0, 10_000, 0)


@pytest.mark.one_of("loop")
async def test_ten_thousand_through_a_narrow_door() -> None:
    inside = most = 0

    async def enter(value: Any) -> Any:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0)
        inside -= 1
        return value

    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [], name="x")
        y = raw_op("Pass", enter, kind=KernelKind.ASYNC, dtype=ax.int64)(x)
    async with ax.Session(graph, ax.SessionConfig(max_concurrent_steps=20)) as session:
        assert await asyncio.gather(*[session.run(y, {x: n}) for n in range(10_000)]) == list(range(10_000))
    assert most == 20


async def test_all_who_wait_for_the_first_to_be_built_go_on_at_once() -> None:
    loop, turns = asyncio.get_running_loop(), 0
    seen: list[int] = []
    go = asyncio.Event()

    def count_turn() -> None:
        nonlocal turns
        turns += 1
        if not go.is_set():
            loop.call_soon(count_turn)

    async def meet(value: Any) -> Any:
        seen.append(turns)
        if len(seen) == 100:
            go.set()
        await go.wait()
        return value

    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [], name="x")
        y = raw_op("Meet", meet, kind=KernelKind.ASYNC, dtype=ax.int64)(x)
    async with ax.Session(graph, **in_single_steps()) as session:
        count_turn()
        assert await asyncio.gather(*[session.run(y, {x: n}) for n in range(100)]) == list(range(100))
    assert seen[0] > 5  # it was built in slices
    assert seen[-1] - seen[0] <= 2


def nested_graph(run: Any, **options: Any) -> tuple[ax.Graph, ax.Tensor, ax.Tensor]:
    """inner, a kernel on a worker thread, and outer, whose kernel runs inner."""
    with ax.Graph() as graph:
        x = ax.constant(1.0)
        inner = raw_op("Inner", lambda value: value + 1, dtype=ax.float32, is_expensive=True)(x, name="inner")
        outer = raw_op("Outer", run, dtype=ax.float32, **options)(x, name="outer")
    return graph, inner, outer


async def test_run_from_an_async_kernel_has_the_worker_threads_to_itself() -> None:
    async def run(value: Any) -> Any:
        return await session.run(inner)

    graph, inner, outer = nested_graph(run, kind=KernelKind.ASYNC)
    config = ax.SessionConfig(num_worker_threads=1, max_concurrent_steps=1, max_queued_steps=0)
    async with ax.Session(graph, config) as session:
        assert await session.run([outer, inner]) == [2, 2]


@pytest.mark.allow_blocking
@pytest.mark.parametrize("num_threads", [1, 2, 3, 4])
async def test_run_from_a_worker_thread_works_or_says_why_not(num_threads: int) -> None:
    """Never a deadlock: two kernels wait on their threads for runs that need a thread, too."""
    loop = asyncio.get_running_loop()

    def run(value: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(session.run(inner), loop).result()

    graph, inner, outer = nested_graph(run, is_expensive=True)
    config = ax.SessionConfig(num_worker_threads=num_threads)
    async with ax.Session(graph, config) as session:
        found = await asyncio.gather(session.run(outer), session.run(outer), return_exceptions=True)
        for result in found:
            if isinstance(result, BaseException):
                assert isinstance(result, ax.errors.FailedPreconditionError)
                assert "'outer' runs the graph from its worker thread" in str(result)
            else:
                assert result == 2
        num_right = len([result for result in found if not isinstance(result, BaseException)])
        assert num_right in {1: [0], 2: [0, 1], 3: [1, 2], 4: [2]}[num_threads]
        assert await session.run(inner) == 2


async def test_run_in_another_loop_on_a_worker_thread_says_why_not() -> None:
    def run(value: Any) -> Any:
        return asyncio.run(session.run(inner))

    graph, inner, outer = nested_graph(run, is_expensive=True)
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.FailedPreconditionError, match="used in another event loop"):
            await session.run(outer)


@pytest.mark.parametrize("place", ["inline", "worker"])
async def test_kernel_that_returns_a_coroutine_by_mistake(place: str) -> None:
    async def fetch(value: float) -> float:
        return value

    with ax.Graph() as graph:
        bad = ax.op(name="Lookup", expensive=place == "worker")(lambda value: fetch(value))(
            ax.constant(1.0), name="bad"
        )
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.InternalError, match="returned a coroutine") as caught:
            await session.run(bad)
    assert (caught.value.node, caught.value.hint) == ("bad", "define it with 'async def', so that it is awaited")


def chain(length: int) -> tuple[ax.Graph, ax.Tensor]:
    with ax.Graph() as graph:
        value = x = ax.placeholder(ax.float32, [], name="x")
        for _ in range(length):
            value = ax.negative(value)
    del x
    return graph, value


@pytest.mark.one_of("loop")
@pytest.mark.parametrize("turns", [0, 1, 2, 5, 10])
async def test_deadline_covers_all_stages_of_a_first_run(turns: int) -> None:
    """The deadline passes after so many slices of placing, pruning, partitioning and compiling 5,000 nodes."""
    graph, last = chain(5000)
    async with ax.Session(graph, ax.SessionConfig(device_count={"CPU": 2})) as session:

        async def first_run() -> Any:
            return await session.run(last, {"x:0": 1}, options=ax.RunOptions(timeout=1000))

        loop = asyncio.get_running_loop()
        real, expiring = loop.call_at, []

        def call_at(when: float, callback: Any, *args: Any, **options: Any) -> Any:
            expiring.append((callback, args))
            return real(when, callback, *args, **options)

        loop.call_at = call_at  # type: ignore[method-assign, assignment]
        try:
            run = asyncio.ensure_future(first_run())
            await settle(turns + 1)
        finally:
            del loop.call_at
        assert not run.done()
        (callback, args), *_ = expiring
        callback(*args)
        for _ in range(3):
            await asyncio.sleep(0)
        assert run.done()
        with pytest.raises(ax.errors.DeadlineExceededError, match="more than its timeout of 1000 s"):
            await run
        assert session.statistics().cached_signatures == 0
        assert await session.run(last, {"x:0": 1}) == 1
