"""Feeds that grow: a compiled step has them only if its nodes are known to be quick with such."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.executor.diagnostics.kernel_stats import GROWTH, LITTLE, KernelStats
from asyncexec.executor.engine.general_executor import GeneralExecutor
from asyncexec.executor.plans.compiled_plan import CompiledPlan
from asyncexec.executor.plans.feed_growth import FeedGrowth
from asyncexec.executor.workers.offload import WorkerPool

F = ax.float32


class Away:
    """What a FeedGrowth asks of the stats of an executor."""

    def __init__(self) -> None:
        self.num_away: dict[int, int] = {}


def growth_of(*tensors: ax.Tensor, has_sizes: bool = False) -> tuple[FeedGrowth, Away]:
    stats = Away()
    return FeedGrowth(tensors, [cast(KernelStats, stats)], has_sizes=has_sizes), stats


def feed(num_bytes: int) -> list[Any]:
    return [np.zeros(num_bytes, np.uint8)]


@pytest.fixture
def varying() -> ax.Tensor:
    with ax.Graph():
        return ax.placeholder(ax.uint8, [None])


def test_twice_what_has_stayed_in_the_loop_is_admitted(varying: ax.Tensor) -> None:
    growth, _ = growth_of(varying)
    assert growth.admits(feed(LITTLE))
    assert not growth.admits(feed(10 * LITTLE))
    growth.note_end()
    assert growth.admits(feed(10 * LITTLE * GROWTH))
    assert not growth.admits(feed(10 * LITTLE * GROWTH + 1))


def test_feeds_for_which_a_node_has_left_the_loop_are_not_admitted(varying: ax.Tensor) -> None:
    growth, stats = growth_of(varying)
    assert not growth.admits(feed(10 * LITTLE))
    stats.num_away[3] = 1
    growth.note_end()
    assert not growth.admits(feed(10 * LITTLE))
    growth.note_end()
    assert growth.admits(feed(10 * LITTLE))


def test_nodes_that_a_plan_has_on_workers_do_not_matter(varying: ax.Tensor) -> None:
    growth, stats = growth_of(varying)
    assert not growth.admits(feed(10 * LITTLE))
    stats.num_away[3] = 1
    growth.note_end()
    growth.ignore({cast(KernelStats, stats): {3}})
    assert growth.admits(feed(10 * LITTLE))
    assert not growth.admits(feed(100 * LITTLE))
    stats.num_away[3] = 2
    growth.note_end()
    assert growth.admits(feed(100 * LITTLE))


def test_a_plan_that_was_slow_begins_anew(varying: ax.Tensor) -> None:
    growth, _ = growth_of(varying)
    told: list[int] = []
    growth.limit_by(told.append)
    assert not growth.admits(feed(10 * LITTLE))
    growth.note_end()
    growth.forget()
    assert not growth.admits(feed(LITTLE + 1))
    assert told == [LITTLE, 10 * LITTLE * GROWTH, LITTLE]


def test_few_integers_may_be_sizes() -> None:
    with ax.Graph():
        count, dims, many = (ax.placeholder(ax.int32, shape) for shape in ([], [2], [100]))
        floats = ax.placeholder(F, [2])
    growth, _ = growth_of(count, dims, many, floats, has_sizes=True)
    assert growth.has_sizes
    rest = [np.full(100, 10**6, np.int32), np.full(2, 1e6, np.float32)]
    assert growth.admits([np.int32(3), np.array([-(10**6), 4], np.int32), *rest])
    assert growth.admits([SimpleNamespace(), np.array([2, 4], np.int32), *rest])  # a state that is not there yet, say
    assert not growth.admits([np.int32(10**6), np.array([2, 4], np.int32), *rest])
    assert not growth.admits([np.int32(3), np.array([2, 10**6], np.int32), *rest])
    assert not growth_of(count, dims, many, floats)[0]  # is there, but has nothing to look at


def product(x: ax.Tensor) -> ax.Tensor:
    return ax.matmul(x, x, transpose_b=True, name="large")


def crossed(x: ax.Tensor) -> ax.Tensor:
    return ax.subtract(ax.expand_dims(x, 0), ax.expand_dims(x, 1), name="large")


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The nodes that went to worker threads."""
    names: list[str] = []
    submit = WorkerPool.submit_calls

    def submit_calls(pool: WorkerPool, calls: Any, done: Any) -> Any:
        names.extend(call.name for call in calls)
        return submit(pool, calls, done)

    monkeypatch.setattr(WorkerPool, "submit_calls", submit_calls)
    return names


async def compiled(session: ax.Session, fetch: ax.Tensor, feeds: Any) -> CompiledPlan:
    for _ in range(1000):
        await session.run(fetch, feeds)
        (prepared,) = session._cache.values()
        plan = prepared.tier.compiled
        if isinstance(plan, CompiledPlan):
            return plan
        await asyncio.sleep(0)
    pytest.fail("no plan")


def plan_of(session: ax.Session) -> Any:
    (prepared,) = session._cache.values()
    return prepared.tier.compiled


@pytest.mark.allow_blocking
@pytest.mark.parametrize("by", ["run", "callable", "stream"])
@pytest.mark.parametrize("build", [product, crossed])
async def test_what_becomes_large_goes_to_a_worker_though_small_ones_are_compiled(
    build: Any, by: str, jobs: list[str]
) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(F, [None, 4], name="x")
        y = ax.reduce_max(build(x), name="y")
    small, large = np.ones((8, 4), np.float32), np.ones((3000, 4), np.float32)
    given = [*[small] * 300, large, small, large, small]
    expected = 4.0 if build is product else 0.0
    async with ax.Session(graph) as session:
        if by == "stream":
            async with session.stream(y, window=1) as stream:
                for value in given:
                    await stream.send({x: value})
                    assert await anext(stream) == expected
        else:
            call = session.make_callable(y, [x]) if by == "callable" else lambda value: session.run(y, {x: value})
            for value in given:
                assert await call(value) == expected
                await asyncio.sleep(0)
        assert jobs.count("large") == 2


@pytest.mark.allow_blocking
async def test_a_size_that_is_fed(jobs: list[str]) -> None:
    with ax.Graph() as graph:
        n = ax.placeholder(ax.int32, [], name="n")
        y = ax.reduce_max(ax.range(0, n, 1, name="large"), name="y")
    async with ax.Session(graph) as session:
        plan = await compiled(session, y, {n: 5})
        jobs.clear()
        assert await session.run(y, {n: 3 * 10**6}) == 3 * 10**6 - 1
        assert jobs[0] == "large"
        assert await session.run(y, {n: 5}) == 4
        assert plan_of(session) is plan


@pytest.mark.allow_blocking
async def test_feeds_that_grow_and_stay_quick_are_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    num_started = 0
    start = GeneralExecutor.start

    def counted(executor: GeneralExecutor, *args: Any, **kwargs: Any) -> Any:
        nonlocal num_started
        num_started += 1
        return start(executor, *args, **kwargs)

    with ax.Graph() as graph:
        x = ax.placeholder(F, [None, 4], name="x")
        y = ax.matmul(x, np.eye(4, dtype=np.float32))
    async with ax.Session(graph, cost_model=ax.CostModel(expensive_ms=1e6)) as session:
        await compiled(session, y, {x: np.ones((8, 4), np.float32)})
        monkeypatch.setattr(GeneralExecutor, "start", counted)
        for rows, expected in ((8, 0), (1000, 1), (1000, 1), (2000, 1), (20, 1), (5000, 2), (5000, 2)):
            value = np.ones((rows, 4), np.float32)
            assert np.array_equal(await session.run(y, {x: value}), value)
            assert num_started == expected
