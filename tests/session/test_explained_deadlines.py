"""A deadline error says what the run was at: each node that had begun, and what it waited for."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.executor.engine.step_scope import StepScope
from asyncexec.framework.errors import DeadlineExceededError
from tests.running import settle

LATE = ax.RunOptions(timeout=10.0)
VIRTUAL = pytest.mark.virtual_clock


@ax.op
async def wait_long(x: float) -> float:
    await asyncio.Event().wait()
    return x


async def error_of(session: ax.Session, fetches: Any, options: ax.RunOptions = LATE) -> DeadlineExceededError:
    with pytest.raises(DeadlineExceededError) as caught:
        await session.run(fetches, {"x:0": 1.0}, options=options)
    return caught.value


def told(error: DeadlineExceededError) -> list[tuple[str, tuple[str, ...]]]:
    return [(node.node, node.waits_for) for node in error.under_way]


@pytest.mark.parametrize("executor_type", ["", "TAGGED_TOKEN", "COMPILED"])
@VIRTUAL
async def test_awaited_nodes(executor_type: str) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        nodes = [wait_long(x + 1.0), wait_long(x), ax.cast(x, ax.float32)]
    async with ax.Session(graph, ax.SessionConfig(executor_type=executor_type)) as session:
        for _ in range(4):
            error = await error_of(session, nodes)
            assert sorted(told(error)) == [("wait_long", ()), ("wait_long_1", ())]
            lines = error.message.splitlines()
            assert lines[0] == "the run took more than its timeout of 10 s"
            assert [line.partition(" for ")[0] for line in sorted(lines[1:])] == [
                "  'wait_long' (wait_long) was awaited",
                "  'wait_long_1' (wait_long) was awaited",
            ]
            assert all((node.since_s or 0) > 0 for node in error.under_way)
        for _ in range(4):
            one = await error_of(session, nodes[0])
        assert one.message.splitlines()[1].startswith("  'wait_long' (wait_long) was awaited")


@VIRTUAL
async def test_many_nodes_are_told_in_three_lines() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        results = ax.map_fn(wait_long, ax.fill([20], x), parallel_iterations=20)
    async with ax.Session(graph) as session:
        error = await error_of(session, results)
    assert len(error.under_way) == 20
    assert error.message.splitlines()[3:] == ["  and 18 more: error.under_way"]


@pytest.mark.parametrize("executor_type", ["", "TAGGED_TOKEN", "COMPILED"])
@VIRTUAL
async def test_iterations_of_loops(executor_type: str) -> None:
    @ax.op
    async def stop_at_3(x: int) -> int:
        await (asyncio.Event().wait() if x == 3 else asyncio.sleep(0))
        return x

    def inner(start: ax.Tensor) -> Any:
        limit = ax.constant(5, ax.int64)
        return ax.while_loop(lambda i: i < limit, lambda i: [stop_at_3(i) + 1], [start], name="inner")

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        zero = ax.cast(x, ax.int64) - 1
        loops = ax.while_loop(lambda i: i < 9, lambda i: inner(i - i + 1), [zero], name="outer")
        mapped = ax.map_fn(stop_at_3, ax.stack([zero, zero + 3, zero + 3]), name="mapped")
        caught = ax.map_fn(
            lambda each: ax.catch(lambda: stop_at_3(each), lambda error: each), ax.stack([zero, zero + 3]), name="safe"
        )
    async with ax.Session(graph, ax.SessionConfig(executor_type=executor_type)) as session:
        for fetches, iterations in (
            (loops, ["outer 0, outer/inner 2"]),
            (mapped, ["mapped 1", "mapped 2"]),
            (caught, ["safe 1"]),
        ):
            for _ in range(2):
                error = await error_of(session, fetches)
                assert sorted(node.iteration for node in error.under_way) == iterations
                assert f" in iteration {iterations[0]} " in str(error.under_way[0])


@VIRTUAL
async def test_limiter_and_retries() -> None:
    limiter = ax.Limiter(1, name="api")
    retry = ax.Retry(attempts=4, wait_initial_s=2.0, wait_max_s=100.0, jitter=0)

    @ax.op(retries=retry)
    async def flaky(x: float) -> float:
        raise ConnectionError

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        waiting, tried = wait_long(x, limiter=limiter), flaky(x)
    async with ax.Session(graph) as session:
        async with limiter:
            assert told(await error_of(session, waiting)) == [("wait_long", ("waited for limiter api",))]
        assert told(await error_of(session, tried)) == [("flaky", ("attempt 4 of 4", "waited to begin it"))]


@pytest.mark.parametrize("options", [{}, {"timeout": 100.0}])
async def test_worker_threads(options: dict[str, Any]) -> None:
    loop, begun, free = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    @ax.op(expensive=True, **options)
    def working(x: float) -> float:
        loop.call_soon_threadsafe(begun.set)
        free.wait(30)
        return x

    with ax.Graph() as graph:
        y = working(ax.placeholder(ax.float64, [], name="x"))
    async with ax.Session(graph, ax.SessionConfig(num_worker_threads=1)) as session:
        first = asyncio.ensure_future(session.run(y, {"x:0": 2.0}))
        await begun.wait()
        (step,) = session._steps._steps
        assert isinstance(step, StepScope)
        assert [node.waits_for for node in step.under_way()] == [("was at work on a worker thread",)]
        late = await error_of(session, y, ax.RunOptions(timeout=0.01))
        assert told(late) == [("working", ("waited for a worker thread",))]
        free.set()
        assert await first == 2.0


@VIRTUAL
async def test_queue_batch_and_another_device() -> None:
    @ax.batch(max_size=8, timeout_s=100.0)
    def double(rows: Any) -> Any:
        return rows * 2.0

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        queue = ax.FIFOQueue(2, [ax.float64])
        taken = queue.dequeue()
        batched = double(ax.reshape(x, [1]))
    async with ax.Session(graph) as session:
        ((name, waits_for),) = told(await error_of(session, taken))
        assert waits_for == ("waited for elements in a queue",)
        ((name, waits_for),) = told(await error_of(session, batched))
        assert (name, waits_for) == ("double", ("waited for its batch",))


@VIRTUAL
async def test_what_waits_in_a_step_of_its_own() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        caught = ax.catch(lambda: wait_long(x), lambda error: np.float64(0), name="caught")

        @ax.op
        async def outer(value: float) -> float:
            result: float = await session.run("wait_long:0", {"x:0": value})
            return result

        nested = outer(x)
        wait_long(x)
    async with ax.Session(graph) as session:
        assert told(await error_of(session, caught)) == [("caught/wait_long", ())]
        assert told(await error_of(session, nested)) == [("wait_long", ())]


@VIRTUAL
async def test_call_that_was_not_let_in() -> None:
    with ax.Graph() as graph:
        y = wait_long(ax.placeholder(ax.float64, [], name="x"))
    async with ax.Session(graph, ax.SessionConfig(max_concurrent_steps=1)) as session:
        first = asyncio.ensure_future(session.run(y, {"x:0": 1.0}))
        await settle(20)
        error = await error_of(session, y)
        assert (error.under_way, error.message.splitlines()[1:]) == (
            (),
            ["  it waited to be let in: max_concurrent_steps were under way"],
        )
        first.cancel()
        await asyncio.wait([first])


@VIRTUAL
async def test_timeout_of_the_session_and_of_callables() -> None:
    with ax.Graph() as graph:
        y = wait_long(ax.placeholder(ax.float64, [], name="x"))
    async with ax.Session(graph, ax.SessionConfig(timeout=5.0)) as session:
        with pytest.raises(DeadlineExceededError, match="'wait_long'"):
            await session.make_callable(y, ["x:0"])(1.0)
