"""Feeds that grow: a compiled step has them only if its nodes are known to be quick with such."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.executor.diagnostics.kernel_stats import GROWTH, LITTLE, KernelStats
from asyncexec.executor.engine.general_executor import GeneralExecutor
from asyncexec.executor.plans.compiled_plan import CompiledPlan
from asyncexec.executor.plans.feed_growth import FeedGrowth
from tests.running import worker_jobs

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
    assert not growth.admits(feed(10 * LITTLE))
    stats.num_away[3] = 2
    growth.note_end()
    assert growth.admits(feed(10 * LITTLE))
    assert not growth.admits(feed(100 * LITTLE))


def test_a_step_under_way_when_a_plan_is_made_is_not_admitted(varying: ax.Tensor) -> None:
    growth, stats = growth_of(varying)
    assert not growth.admits(feed(10 * LITTLE))
    stats.num_away[3] = 1
    growth.ignore({})
    growth.note_end()
    assert not growth.admits(feed(10 * LITTLE))


def test_another_plan_begins_anew(varying: ax.Tensor) -> None:
    growth, stats = growth_of(varying)
    assert not growth.admits(feed(10 * LITTLE))
    growth.note_end()
    growth.ignore({})
    assert growth.admits(feed(10 * LITTLE))
    growth.ignore({cast(KernelStats, stats): {3}})
    assert not growth.admits(feed(10 * LITTLE))


def test_a_plan_that_was_slow_begins_anew(varying: ax.Tensor) -> None:
    growth, _ = growth_of(varying)
    told: list[int] = []
    growth.limit_by(lambda most: told.extend(most.values()))
    assert not growth.admits(feed(10 * LITTLE))
    growth.note_end()
    growth.forget()
    assert not growth.admits(feed(LITTLE + 1))
    assert told == [LITTLE, 10 * LITTLE * GROWTH, LITTLE]


def test_each_feed_has_its_limit() -> None:
    with ax.Graph():
        one, other = (ax.placeholder(ax.uint8, [None]) for _ in range(2))
    growth, _ = growth_of(one, other)
    assert not growth.admits([*feed(10 * LITTLE), *feed(1)])
    growth.note_end()
    assert growth.admits([*feed(10 * LITTLE), *feed(LITTLE)])
    assert not growth.admits([*feed(1), *feed(10 * LITTLE)])


def test_few_numbers_may_be_sizes() -> None:
    with ax.Graph():
        count, dims, many = (ax.placeholder(ax.int32, shape) for shape in ([], [2], [100]))
        floats, end, unknown = ax.placeholder(F, [2]), ax.placeholder(F, []), ax.placeholder(ax.int64, None)
    growth, _ = growth_of(count, dims, many, floats, end, unknown, has_sizes=True)
    assert (growth.sized, growth.unsized) == ([0, 1, 4], [5])
    small: list[Any] = [np.int32(3), np.array([-(10**6), 4], np.int32), np.full(100, 10**6, np.int32)]
    small += [np.full(2, 1e6, np.float32), np.float32(np.nan), np.array([2, 3])]
    assert growth.admits(small)
    assert growth.admits([SimpleNamespace(), *small[1:]])  # a state that is not there yet, say
    large = (np.int32(10**6), np.array([9, 9], np.int32), None, None, np.float32(1e6), np.array([2**62, 2**62]))
    for position, value in enumerate(large):
        if value is not None:
            assert not growth.admits([*small[:position], value, *small[position + 1 :]])
    assert not growth_of(count, dims, many, floats)[0]  # is there, but has nothing to look at


def product(x: ax.Tensor) -> ax.Tensor:
    return ax.matmul(x, x, transpose_b=True, name="large")


def crossed(x: ax.Tensor) -> ax.Tensor:
    return ax.subtract(ax.expand_dims(x, 0), ax.expand_dims(x, 1), name="large")


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The nodes that went to worker threads."""
    return worker_jobs(monkeypatch)


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
@pytest.mark.parametrize(("dtype", "shape"), [(ax.int32, []), (ax.float32, []), (ax.int32, None)])
async def test_a_size_that_is_fed(dtype: ax.DType, shape: Any, jobs: list[str]) -> None:
    with ax.Graph() as graph:
        n = ax.placeholder(dtype, shape, name="n")
        zero, one = (ax.constant(number, dtype) for number in (0, 1))
        y = ax.reduce_max(ax.raw_ops.Range(zero, n, one, name="large"), name="y")
    async with ax.Session(graph) as session:
        plan = await compiled(session, y, {n: 5})
        jobs.clear()
        assert await session.run(y, {n: 3 * 10**6}) == 3 * 10**6 - 1
        assert jobs[0] == "large"
        assert await session.run(y, {n: 5}) == 4
        assert plan_of(session) is plan


@pytest.mark.allow_blocking
@pytest.mark.parametrize("order", ["LS", "SL", "LLS"])
async def test_large_feeds_before_there_is_a_plan(order: str, jobs: list[str]) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(F, [None, 4], name="x")
        y = ax.reduce_max(product(x), name="y")
    feeds = {"S": np.ones((8, 4), np.float32), "L": np.ones((3000, 4), np.float32)}
    async with ax.Session(graph) as session:
        for each in order:
            await session.run(y, {x: feeds[each]})
        for _ in range(60):
            await session.run(y, {x: feeds["S"]})
            await asyncio.sleep(0)
        jobs.clear()
        for each in "LSLSLL":  # whatever plan there is
            await session.run(y, {x: feeds[each]})
        assert jobs.count("large") == 4


@pytest.mark.allow_blocking
async def test_feeds_that_grow_and_stay_quick_are_compiled_again() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(F, [None, 4], name="x")
        y = ax.matmul(x, np.eye(4, dtype=np.float32))
    async with ax.Session(graph, cost_model=ax.CostModel(expensive_ms=1e6)) as session:
        await compiled(session, y, {x: np.ones((8, 4), np.float32)})
        start = GeneralExecutor.start
        with mock.patch.object(GeneralExecutor, "start", autospec=True, side_effect=start) as started:
            for rows, expected in ((8, 0), (1000, 1), (1000, 1), (2000, 1), (20, 1), (5000, 2), (5000, 2)):
                value = np.ones((rows, 4), np.float32)
                assert np.array_equal(await session.run(y, {x: value}), value)
                assert started.call_count == expected
