"""``RunOptions(retries=...)``: a run that has lost a worker begins again; one that fails otherwise does not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from tests.distributed.clusters import SmallCluster, small_cluster

WORKER = "/job:worker/replica:0/task:0"

# What the op below does, one call after the other; it returns the last of what it is given.
_plans: list[Callable[[], Awaitable[None]]] = []
_calls: list[int] = []


@ax.op
async def planned(x: float) -> float:
    _calls.append(len(_calls))
    if _plans:
        await _plans.pop(0)()
    return x + 1.0


@pytest.fixture(autouse=True)
def _no_plans() -> None:
    _plans.clear()
    _calls.clear()


def on_worker() -> tuple[ax.Graph, Any, Any]:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        with ax.device("/job:worker/task:0"):
            y = planned(x, name="y")
    return graph, x, y


def death(small: SmallCluster, ending: set[asyncio.Task[None]], *, comes_back: bool = True) -> Any:
    """A plan: the worker ends while it runs the op; another takes its place."""

    async def end() -> None:
        await small.kill(0)
        if comes_back:
            await small.restart(0)

    async def plan() -> None:
        ending.add(asyncio.get_running_loop().create_task(end()))
        await asyncio.get_running_loop().create_future()

    return plan


async def test_a_run_begins_again_when_its_worker_is_back() -> None:
    graph, x, y = on_worker()
    ending: set[asyncio.Task[None]] = set()
    async with small_cluster(1, objects=True) as small, ax.Session(graph, cluster=small.cluster) as session:
        _plans[:] = [death(small, ending)] * 2
        assert await session.run(y, {x: 1.0}, options=ax.RunOptions(retries=2)) == 2.0
        assert len(_calls) == 3
        await asyncio.wait(ending)


async def test_a_callable_begins_again_as_the_config_says() -> None:
    graph, x, y = on_worker()
    ending: set[asyncio.Task[None]] = set()
    config = ax.SessionConfig(retries=1)
    async with small_cluster(1, objects=True) as small, ax.Session(graph, config, cluster=small.cluster) as session:
        call = session.make_callable(y, [x])
        _plans[:] = [death(small, ending)]
        assert await call(2.0) == 3.0
        _plans[:] = [death(small, ending)]
        assert await session.run(y, {x: 3.0}) == 4.0
        _plans[:] = [death(small, ending)]
        with pytest.raises(ax.errors.UnavailableError):
            await session.run(y, {x: 3.0}, options=ax.RunOptions(retries=0))
        await asyncio.wait(ending)


async def test_the_error_tells_all_attempts() -> None:
    graph, x, y = on_worker()
    ending: set[asyncio.Task[None]] = set()
    async with small_cluster(1, objects=True) as small, ax.Session(graph, cluster=small.cluster) as session:
        _plans[:] = [death(small, ending)] * 2
        with pytest.raises(ax.errors.UnavailableError) as raised:
            await session.run(y, {x: 1.0}, options=ax.RunOptions(retries=1))
        assert raised.value.lost_worker == WORKER
        assert [line.partition(":")[0] for line in raised.value.attempts] == ["attempt 1 of 2", "attempt 2 of 2"]
        assert all(WORKER in line for line in raised.value.attempts)
        assert await session.run(y, {x: 1.0}) == 2.0
        await asyncio.wait(ending)


async def test_without_retries_the_error_names_the_worker_and_no_attempts() -> None:
    graph, x, y = on_worker()
    ending: set[asyncio.Task[None]] = set()
    async with small_cluster(1, objects=True) as small, ax.Session(graph, cluster=small.cluster) as session:
        _plans[:] = [death(small, ending)]
        with pytest.raises(ax.errors.UnavailableError) as raised:
            await session.run(y, {x: 1.0})
        assert (raised.value.lost_worker, raised.value.attempts) == (WORKER, ())
        await asyncio.wait(ending)


async def test_an_unavailable_error_of_an_op_is_not_retried() -> None:
    async def fail() -> None:
        raise ax.errors.UnavailableError("the service of the op is busy")

    graph, x, y = on_worker()
    async with small_cluster(1, objects=True) as small, ax.Session(graph, cluster=small.cluster) as session:
        _plans[:] = [fail]
        with pytest.raises(ax.errors.UnavailableError, match="busy") as raised:
            await session.run(y, {x: 1.0}, options=ax.RunOptions(retries=5))
        assert raised.value.lost_worker is None
        assert len(_calls) == 1


async def test_the_deadline_covers_all_attempts() -> None:
    graph, x, y = on_worker()
    ending: set[asyncio.Task[None]] = set()
    async with small_cluster(1, objects=True) as small, ax.Session(graph, cluster=small.cluster) as session:
        await session.run(y, {x: 1.0})
        _plans[:] = [death(small, ending, comes_back=False)]
        with pytest.raises(ax.errors.DeadlineExceededError):
            await session.run(y, {x: 1.0}, options=ax.RunOptions(retries=1000, timeout=0.5))
        await asyncio.wait(ending)


async def test_a_step_that_was_left_while_its_worker_was_away_does_not_run_later() -> None:
    graph, x, y = on_worker()
    async with small_cluster(1, objects=True) as small, ax.Session(graph, cluster=small.cluster) as session:
        await session.run(y, {x: 1.0})
        await small.kill(0)
        link = small.cluster.link(WORKER)
        assert link is not None
        async with asyncio.timeout(30):
            while link.connection is not None:  # noqa: ASYNC110
                await asyncio.sleep(0)
        with pytest.raises(ax.errors.DeadlineExceededError):
            await session.run(y, {x: 2.0}, options=ax.RunOptions(timeout=0.05))
        await small.restart(0)
        assert await session.run(y, {x: 3.0}) == 4.0
        assert len(_calls) == 2
        assert session.statistics().running_steps == 0


async def test_feeds_are_those_of_the_call() -> None:
    graph, x, y = on_worker()
    ending: set[asyncio.Task[None]] = set()
    async with small_cluster(1, objects=True) as small, ax.Session(graph, cluster=small.cluster) as session:
        feeds = {x: 1.0}

        async def change_and_die() -> None:
            feeds[x] = 100.0
            await death(small, ending)()

        _plans[:] = [change_and_die]
        assert await session.run(y, feeds, options=ax.RunOptions(retries=1)) == 2.0
        await asyncio.wait(ending)


def variable() -> tuple[ax.Graph, Any]:
    with ax.Graph() as graph:
        v = ax.Variable(np.float32(1.0), name="v")
        return graph, v + 1.0


def queue() -> tuple[ax.Graph, Any]:
    with ax.Graph() as graph:
        return graph, ax.FIFOQueue(3, [ax.float32], name="q").size()


@pytest.mark.parametrize(("make", "named"), [(variable, "v"), (queue, "q")])
async def test_state_is_refused_at_once(make: Callable[[], tuple[ax.Graph, Any]], named: str) -> None:
    graph, y = make()
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.InvalidArgumentError, match="without state") as raised:
            await session.run(y, options=ax.RunOptions(retries=1))
        assert named in str(raised.value)


async def test_the_state_of_a_function_is_found() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        kept = ax.catch(lambda: ax.get_session_handle(x, name="kept"), lambda _: "")
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.InvalidArgumentError, match=r"'kept'.*of function"):
            await session.run(kept, {x: 1.0}, options=ax.RunOptions(retries=1))


async def test_what_a_step_makes_for_itself_is_no_state() -> None:
    with ax.Graph() as graph:
        n = ax.placeholder(ax.int32, [], name="n")
        y = ax.map_fn(lambda i: i * 2, ax.range(n))
    async with ax.Session(graph) as session:
        for _ in range(3):
            assert (await session.run(y, {n: 3}, options=ax.RunOptions(retries=1))).tolist() == [0, 2, 4]


async def test_with_retries_of_the_config_signatures_with_state_run() -> None:
    with ax.Graph() as graph:
        y = ax.Variable(np.float32(1.0), name="v") + 1.0
        init = ax.global_variables_initializer()
    async with ax.Session(graph, ax.SessionConfig(retries=3)) as session:
        await session.run(init)
        assert await session.run(y) == 2.0
