"""Nothing of a step outlives it: no task, no thread, no tensor; and no cycle that only the garbage collector would end.

The collector is off, so that a tensor dies only when nobody refers to it.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import numpy as np
import pytest

import asyncexec as ax
from tests.running import let_threads_free, raw_op, settle, started


class Tracked:
    """Gives arrays out, and knows which of them are alive."""

    def __init__(self) -> None:
        self._refs: list[weakref.ref[Any]] = []

    def new(self) -> np.ndarray[Any, Any]:
        return self.keep(np.ones(3, np.float32))

    def keep(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        self._refs.append(weakref.ref(array))
        return array

    @property
    def count(self) -> int:
        return len(self._refs)

    @property
    def alive(self) -> int:
        return sum(ref() is not None for ref in self._refs)


@pytest.fixture
def tracked() -> Tracked:
    return Tracked()


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


Make = Callable[[ax.Tensor], Any]


class Pipeline:
    """x is fed; inner is made of it, and is what the last op gets, inline, on a worker or awaited."""

    def __init__(self, tracked: Tracked, place: str, *, fails: bool = False, waits: bool = False) -> None:
        def double(x: Any) -> Any:
            return tracked.keep(x * 2)

        def finish() -> Any:
            if fails:
                raise ValueError("failed")
            return np.float32(1)

        @ax.op(expensive=place == "worker", outputs=[ax.float32])
        def plain(x: Any) -> Any:
            return finish()

        @ax.op(outputs=[ax.float32])
        async def awaited(x: Any) -> Any:
            await (asyncio.Event().wait() if waits else settle())
            return finish()

        with ax.Graph() as graph:
            self.x = ax.placeholder(ax.float32, [3], name="x")
            inner = raw_op("Double", double, dtype=ax.float32)(self.x)
            other = raw_op("Double", double, dtype=ax.float32)(inner)
            last = (awaited if place == "async" else plain)(inner, name="last")
            self.fetches = [last, last + ax.reduce_sum(other)]
        self.graph = graph


PLACES = ["inline", "worker", "async"]


@pytest.mark.parametrize("place", PLACES)
async def test_tensors_of_a_step_that_succeeded(tracked: Tracked, place: str) -> None:
    pipeline = Pipeline(tracked, place)
    async with ax.Session(pipeline.graph) as session:
        for _ in range(2):
            assert await session.run(pipeline.fetches, {pipeline.x: tracked.new()}) == [1.0, 13.0]
            await settle()
            assert tracked.alive == 0
    assert tracked.count == 6


@pytest.mark.parametrize("place", PLACES)
async def test_tensors_of_a_step_that_failed(tracked: Tracked, place: str) -> None:
    pipeline = Pipeline(tracked, place, fails=True)
    async with ax.Session(pipeline.graph) as session:
        for _ in range(2):
            with pytest.raises(ax.errors.InvalidArgumentError, match="failed"):
                await session.run(pipeline.fetches, {pipeline.x: tracked.new()})
            await settle()
            await let_threads_free(lambda: tracked.alive)
            assert tracked.alive == 0
    assert tracked.count == 6


async def test_tensors_of_a_step_that_failed_by_a_future(tracked: Tracked) -> None:
    """A future holds what it raises, whose traceback holds whoever awaits the future."""

    def failing() -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        loop.call_soon(future.set_exception, ax.errors.UnavailableError("failed"))
        return future

    @ax.op(outputs=[ax.float32])
    async def wait(x: Any) -> Any:
        return await failing()

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [3])
        out = wait(raw_op("Double", lambda x: tracked.keep(x * 2), dtype=ax.float32)(x))
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.UnavailableError, match="failed"):
            await session.run(out, {x: tracked.new()})
        await settle()
        assert tracked.alive == 0


async def test_tensors_of_a_step_that_was_cancelled(tracked: Tracked) -> None:
    pipeline = Pipeline(tracked, "async", waits=True)
    async with ax.Session(pipeline.graph) as session:
        run = await started(session.run(pipeline.fetches, {pipeline.x: tracked.new()}))
        assert tracked.alive > 0
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        del run
        await settle()
        assert tracked.alive == 0


async def test_tensors_of_a_step_that_was_cancelled_twice(tracked: Tracked) -> None:
    pipeline = Pipeline(tracked, "async", waits=True)
    async with ax.Session(pipeline.graph) as session:
        run = await started(session.run(pipeline.fetches, {pipeline.x: tracked.new()}))
        run.cancel()
        await asyncio.sleep(0)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        del run
        await settle()
        assert tracked.alive == 0


async def test_tensors_of_a_step_in_an_anyio_scope(tracked: Tracked) -> None:
    pipeline = Pipeline(tracked, "async", waits=True)
    async with ax.Session(pipeline.graph) as session:
        with anyio.CancelScope() as scope:  # a task group of anyio's keeps the exceptions of its tasks in a cycle
            asyncio.get_running_loop().call_later(0.001, scope.cancel)
            await session.run(pipeline.fetches, {pipeline.x: tracked.new()})
        assert scope.cancelled_caught
        await settle()
        assert tracked.alive == 0


async def test_tensors_of_a_step_that_failed_and_was_cancelled(tracked: Tracked) -> None:
    """The failure is never raised; it must not stay in the step either."""

    @ax.op(outputs=[ax.float32])
    async def slow_to_end(x: Any) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            await settle(10)

    @ax.op(outputs=[ax.float32])
    async def fails(x: Any) -> Any:
        await settle()
        raise ValueError("failed")

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [3])
        fetches = [slow_to_end(x), fails(x)]
    async with ax.Session(graph) as session:
        run = await started(session.run(fetches, {x: tracked.new()}))
        await settle(4)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        del run
        await settle()
        assert tracked.alive == 0


async def test_tensors_of_a_step_that_timed_out(tracked: Tracked) -> None:
    pipeline = Pipeline(tracked, "async", waits=True)
    async with ax.Session(pipeline.graph) as session:
        with pytest.raises(ax.errors.DeadlineExceededError):
            await session.run(pipeline.fetches, {pipeline.x: tracked.new()}, options=ax.RunOptions(timeout=0.001))
        await settle()
        assert tracked.alive == 0


async def test_tensors_of_a_step_that_the_session_closed(tracked: Tracked) -> None:
    pipeline = Pipeline(tracked, "async", waits=True)
    session = ax.Session(pipeline.graph)
    run = await started(session.run(pipeline.fetches, {pipeline.x: tracked.new()}))
    await session.close()
    with pytest.raises(ax.errors.CancelledError):
        await run
    del run
    await settle()
    assert tracked.alive == 0


async def test_tensors_that_nobody_needs_any_more_die_during_the_step(tracked: Tracked) -> None:
    alive: list[int] = []

    def step(x: Any) -> Any:
        alive.append(tracked.alive)
        return tracked.new()

    with ax.Graph() as graph:
        last = ax.placeholder(ax.float32, [3], name="x")
        for _ in range(20):
            last = raw_op("Step", step, dtype=ax.float32)(last)
        total = ax.reduce_sum(last)
    async with ax.Session(graph) as session:
        await session.run(total, {"x:0": np.ones(3, np.float32)})
    assert max(alive) == 1


async def test_what_a_session_keeps_ends_with_it(tracked: Tracked) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [3])
        variable = ax.Variable(np.zeros(3, np.float32), name="v")
        assign = variable.assign(raw_op("Keep", lambda x: tracked.keep(x * 2), dtype=ax.float32)(x))
        value = variable.read_value()
    session = ax.Session(graph)
    await session.run(assign, {x: tracked.new()})
    assert (await session.run(value)).tolist() == [2, 2, 2]
    await session.close()
    assert tracked.alive == 0


async def test_session_and_graph_end_without_the_collector_noticing_tensors(tracked: Tracked) -> None:
    """A failed step leaves no traceback behind that holds what was fed, even while the error is kept."""
    pipeline = Pipeline(tracked, "inline", fails=True)
    kept: list[BaseException] = []
    async with ax.Session(pipeline.graph) as session:
        try:
            await session.run(pipeline.fetches, {pipeline.x: tracked.new()})
        except ax.errors.OpError as error:
            kept.append(error)
    kept.clear()
    assert tracked.alive == 0


async def test_tasks_and_threads() -> None:
    threads = set(threading.enumerate())

    @ax.op
    async def soon(x: float) -> None:
        await settle()

    @ax.op(expensive=True)
    def hard(x: float) -> None:
        return None

    with ax.Graph() as graph:
        x = ax.constant(1.0)
        targets = [make(x) for make in (soon, hard) for _ in range(10)]
    tasks = asyncio.all_tasks()
    async with ax.Session(graph, ax.SessionConfig(num_worker_threads=2)) as session:
        for _ in range(3):
            await session.run([], targets=targets)
            assert asyncio.all_tasks() == tasks
        assert 0 < len(set(threading.enumerate()) - threads) <= 2
    assert set(threading.enumerate()) == threads


async def test_timers() -> None:
    """A timeout that was not needed leaves no timer behind in the loop."""
    with ax.Graph() as graph:
        x = ax.constant(1.0)
    async with ax.Session(graph) as session:
        handles = [weakref.ref(session)]
        await session.run(x, options=ax.RunOptions(timeout=1000))
    del session
    await settle()
    gc.collect()
    assert handles[0]() is None
