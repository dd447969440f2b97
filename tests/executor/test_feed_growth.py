"""Feeds that grow: a compiled step has them only if its nodes are known to be quick with such."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Final, cast
from unittest import mock

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.compilation.size_inputs import Role, feeds_of_sizes
from asyncexec.executor.diagnostics.kernel_stats import GROWTH, LITTLE, KernelStats
from asyncexec.executor.engine.general_executor import GeneralExecutor
from asyncexec.executor.plans.compiled_plan import CompiledPlan
from asyncexec.executor.plans.feed_growth import FeedGrowth
from asyncexec.framework.cooperative import run_at_once
from tests.running import worker_jobs

F = ax.float32


class Away:
    """What a FeedGrowth asks of the stats of an executor."""

    def __init__(self) -> None:
        self.num_away: dict[int, int] = {}


def growth_of(*tensors: ax.Tensor, of_sizes: Mapping[int, Role] | None = None) -> tuple[FeedGrowth, Away]:
    stats = Away()
    return FeedGrowth(tensors, [cast(KernelStats, stats)], of_sizes=of_sizes or {}), stats


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
    growth.note_end(growth.begin(feed(10 * LITTLE)))
    assert growth.admits(feed(10 * LITTLE * GROWTH))
    assert not growth.admits(feed(10 * LITTLE * GROWTH + 1))


def test_feeds_for_which_a_node_has_left_the_loop_are_not_admitted(varying: ax.Tensor) -> None:
    growth, stats = growth_of(varying)
    step = growth.begin(feed(10 * LITTLE))
    stats.num_away[3] = 1
    growth.note_end(step)
    assert not growth.admits(feed(10 * LITTLE))
    growth.note_end(growth.begin(feed(10 * LITTLE)))
    assert growth.admits(feed(10 * LITTLE))


def test_a_step_that_has_not_ended_tells_nothing(varying: ax.Tensor) -> None:
    """One that waits before its product, or that fails there, while others end."""
    growth, stats = growth_of(varying)
    large = growth.begin(feed(1000 * LITTLE))
    growth.note_end(growth.begin(feed(10 * LITTLE)))
    assert growth.admits(feed(10 * LITTLE))
    assert not growth.admits(feed(1000 * LITTLE))
    stats.num_away[3] = 1
    growth.note_end(large)
    assert not growth.admits(feed(1000 * LITTLE))


def test_nodes_that_a_plan_has_on_workers_do_not_matter(varying: ax.Tensor) -> None:
    growth, stats = growth_of(varying)
    growth.ignore({cast(KernelStats, stats): {3}})
    step = growth.begin(feed(10 * LITTLE))
    stats.num_away[3] = 2
    growth.note_end(step)
    assert growth.admits(feed(10 * LITTLE))
    assert not growth.admits(feed(100 * LITTLE))


def test_a_step_under_way_when_a_plan_is_made_is_not_admitted(varying: ax.Tensor) -> None:
    growth, _ = growth_of(varying)
    step = growth.begin(feed(10 * LITTLE))
    growth.ignore({})
    growth.note_end(step)
    assert not growth.admits(feed(10 * LITTLE))


def test_another_plan_begins_anew(varying: ax.Tensor) -> None:
    growth, stats = growth_of(varying)
    growth.note_end(growth.begin(feed(10 * LITTLE)))
    growth.ignore({})
    assert growth.admits(feed(10 * LITTLE))
    growth.ignore({cast(KernelStats, stats): {3}})
    assert not growth.admits(feed(10 * LITTLE))


def test_a_plan_that_was_slow_begins_anew(varying: ax.Tensor) -> None:
    growth, _ = growth_of(varying, of_sizes={0: Role.ANY})
    told: list[int] = []
    growth.limit_by(lambda most: told.extend(most.values()))
    growth.note_end(growth.begin(feed(10 * LITTLE)))
    assert growth.admits(feed(10 * LITTLE))
    growth.forget()
    assert not growth.admits(feed(10 * LITTLE))
    assert told == [LITTLE, 10 * LITTLE * GROWTH, LITTLE]


def test_each_feed_has_its_limit() -> None:
    with ax.Graph():
        one, other = (ax.placeholder(ax.uint8, [None]) for _ in range(2))
    growth, _ = growth_of(one, other)
    growth.note_end(growth.begin([*feed(10 * LITTLE), *feed(1)]))
    assert growth.admits([*feed(10 * LITTLE), *feed(LITTLE)])
    assert not growth.admits([*feed(1), *feed(10 * LITTLE)])


def test_texts_are_as_large_as_they_are_long() -> None:
    with ax.Graph():
        one, some = ax.placeholder(ax.string, []), ax.placeholder(ax.string, [None])
    growth, _ = growth_of(one, some)
    short = np.array([b"a", b"b"], object)
    assert growth.admits([b"abc", short])
    assert not growth.admits([b"a" * 1000, short])
    assert not growth.admits([b"abc", np.array([b"a" * 1000, b"b"], object)])


def test_numbers_that_may_be_sizes_are_those_of_a_step_that_stayed_in_the_loop() -> None:
    with ax.Graph():
        n, dims, text = ax.placeholder(ax.int32, []), ax.placeholder(F, None), ax.placeholder(ax.string, [1])
        one = ax.placeholder(F, [])
    growth, stats = growth_of(n, dims, text, one, of_sizes=dict.fromkeys((2, 1, 0), Role.ANY))
    values: list[Any] = [np.int32(3), np.float32([2.5, -1]), np.array([b"7"], object), np.float32(1)]
    assert not growth.admits(values)
    growth.note_end(growth.begin(values))
    assert growth.admits(values)
    assert growth.admits([*values[:3], np.float32(2)])  # which is no size
    others = (np.int32(2), np.float32([[2.5], [-1]]), np.array([b"8"], object))
    for position, value in enumerate(others):
        assert not growth.admits([*values[:position], value, *values[position + 1 :]])
    step = growth.begin([np.int32(10**6), *values[1:]])
    stats.num_away[3] = 1
    growth.note_end(step)
    assert not growth.admits([np.int32(10**6), *values[1:]])
    many: list[Any] = [values[0], np.zeros(10**4, np.float32), *values[2:]]
    growth.note_end(growth.begin(many))
    assert not growth.admits(many)
    growth.note_end(growth.begin([values[0], SimpleNamespace(), *values[2:]]))  # a state that is not there yet, say


def test_numbers_that_sizes_are_sums_or_products_of_may_grow_a_little() -> None:
    with ax.Graph():
        n, dims, lengths = ax.placeholder(ax.int32, []), ax.placeholder(ax.int32, [None]), ax.placeholder(F, [None])
    roles = {0: Role.FACTORS, 1: Role.FACTORS, 2: Role.LARGEST}
    growth, stats = growth_of(n, dims, lengths, of_sizes=roles)

    def values(n: int, dims: Sequence[int], lengths: Sequence[float]) -> list[Any]:
        return [np.int32(n), np.array(dims, np.int32), np.array(lengths, np.float32)]

    assert not growth.admits(values(1, [1], [1]))
    growth.note_end(growth.begin(values(-8, [2, 5], [3, 10, 4, -2, 1, 0])))
    for n_, dims_, lengths_ in (
        (7, [2, 5], [1, 2]),
        (10, [10], [10, 1, 1]),
        (-1, [1, 1, 1, 1], [1000.0]),
        (0, [0], []),
    ):
        assert growth.admits(values(n_, dims_, lengths_))
    for n_, dims_, lengths_ in ((11, [10], [10]), (8, [10, 10], [10]), (1, [1], [-1001.0])):
        assert not growth.admits(values(n_, dims_, lengths_))
    assert not growth.admits(values(1, [1] * 5, [1]))  # of which all may grow
    growth.note_end(growth.begin(values(1, [2] * 5, [1])))
    assert growth.admits(values(1, [2] * 5, [1]))
    assert not growth.admits(values(1, [3] * 5, [1]))
    growth.note_end(growth.begin(values(1, [1], [math.inf])))
    step = growth.begin(values(10**6, [1], [1]))
    stats.num_away[3] = 1
    growth.note_end(step)
    assert not growth.admits(values(10**6, [1], [1]))


async def test_which_feeds_may_be_sizes() -> None:
    with ax.Graph() as graph:
        n, dims, lengths = (ax.placeholder(ax.int32, shape) for shape in ([], [2], [None]))
        x, i, texts = ax.placeholder(F, [None]), ax.placeholder(ax.int32, []), ax.placeholder(ax.string, [])
        unused = ax.placeholder(ax.int32, [])
        _ = [
            ax.raw_ops.Range(start=0, limit=ax.raw_ops.LeftShift(x=1, y=n), delta=1),
            ax.raw_ops.Fill(dims=dims * 2, value=ax.gather(x, i)),
            ax.raw_ops.Range(start=0, limit=ax.reduce_max(lengths), delta=1),
            ax.raw_ops.Range(start=0, limit=ax.size(x), delta=1),
            ax.raw_ops.Fill(dims=[3], value=unused),
            ax.raw_ops.Range(start=0.0, limit=ax.raw_ops.StringToNumber(string_tensor=texts), delta=1.0),
        ]
        feeds = [x, n, unused, dims, i, lengths, texts]
        found = run_at_once(feeds_of_sizes(graph.operations, feeds))
    roles = ((n, Role.ANY), (dims, Role.FACTORS), (lengths, Role.LARGEST), (texts, Role.ANY))
    assert {feeds[at].name: role for at, role in found.items()} == {each.name: role for each, role in roles}


def test_a_number_has_the_role_of_which_least_is_known() -> None:
    with ax.Graph() as graph:
        n, start = ax.placeholder(F, []), ax.placeholder(F, [])
        ax.raw_ops.Range(start=start, limit=n + 1.0, delta=1.0)
        ax.raw_ops.Range(start=start, limit=10.0, delta=n)
        found = run_at_once(feeds_of_sizes(graph.operations, [start, n]))
    assert found == {0: Role.FACTORS, 1: Role.ANY}


@pytest.mark.allow_blocking
async def test_a_position_that_counts_up_is_for_the_compiled_step() -> None:
    with ax.Graph() as graph:
        n = ax.placeholder(ax.int32, [])
        y = ax.reduce_max(ax.raw_ops.Range(start=n, limit=n + 4, delta=1))
    async with ax.Session(graph, cost_model=ax.CostModel(expensive_ms=1e6)) as session:
        await compiled(session, y, {n: 1})
        with mock.patch.object(GeneralExecutor, "start", autospec=True, side_effect=GeneralExecutor.start) as started:
            for number in range(2, 1000):
                assert await session.run(y, {n: number}) == number + 3
        assert started.call_count < 40


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


def ranged(start: Any, limit: Any, delta: Any) -> ax.Tensor:
    return ax.reduce_max(ax.raw_ops.Range(start=start, limit=limit, delta=delta, name="large"), name="y")


SIZES: Final[dict[str, tuple[Any, Any, Any, Any, Any]]] = {
    "an integer": (ax.int32, [], lambda n: ranged(0, n, 1), 5, 3 * 10**6),
    "a float": (F, [], lambda n: ranged(0.0, n, 1.0), 5, 3 * 10**6),
    "of unknown shape": (F, None, lambda n: ranged(0.0, n, 1.0), 5, 3 * 10**6),
    "a small step": (F, [], lambda n: ranged(0.0, 1.0, n), 0.3, 3e-7),
    "below zero": (ax.int32, [], lambda n: ranged(n, 0, 1), -5, -3 * 10**6),
    "an exponent": (ax.int32, [], lambda n: ranged(0, ax.raw_ops.LeftShift(x=1, y=n), 1), 2, 22),
    "the largest of many": (
        ax.int32,
        [None],
        lambda n: ranged(0, ax.reduce_max(n), 1),
        np.arange(16, dtype=np.int32),
        np.arange(16, dtype=np.int32) * 2 * 10**5,
    ),
}


@pytest.mark.allow_blocking
@pytest.mark.parametrize("case", SIZES.values(), ids=SIZES)
async def test_a_size_that_is_fed(case: Any, jobs: list[str]) -> None:
    dtype, shape, build, small, large = case
    with ax.Graph() as graph:
        n = ax.placeholder(dtype, shape, name="n")
        y = build(n)
    async with ax.Session(graph) as session:
        plan = await compiled(session, y, {n: small})
        jobs.clear()
        await session.run(y, {n: large})
        assert jobs[0] == "large"
        await session.run(y, {n: small})
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
