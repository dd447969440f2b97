"""Feeds that grow: a compiled step has them only if its nodes are known to be quick with such."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Final
from typing import cast as typed
from unittest import mock

import ml_dtypes
import numpy as np
import pytest

import asyncexec as ax
from asyncexec.compilation.size_inputs import Role, Sizes, find_sizes
from asyncexec.executor.diagnostics.kernel_stats import GROWTH, LITTLE, KernelStats
from asyncexec.executor.engine.general_executor import GeneralExecutor
from asyncexec.executor.plans.compiled_plan import CompiledPlan
from asyncexec.executor.plans.feed_growth import FeedGrowth
from asyncexec.framework.cooperative import run_at_once
from asyncexec.session.plan_compiler import import_compilers
from tests.running import worker_jobs

F = ax.float32


class Away:
    """What a FeedGrowth asks of the stats of an executor."""

    def __init__(self) -> None:
        self.num_away: dict[int, int] = {}


def growth_of(*tensors: ax.Tensor, of_sizes: Mapping[int, Role] | None = None) -> tuple[FeedGrowth, Away]:
    stats = Away()
    return FeedGrowth(tensors, [typed(KernelStats, stats)], sizes=Sizes(of_sizes or {}, frozenset())), stats


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
    growth.ignore({typed(KernelStats, stats): {3}})
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
    growth.ignore({typed(KernelStats, stats): {3}})
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

    assert not growth.admits(values(0, [0, 0], [0]))
    growth.note_end(growth.begin(values(8, [2, 5], [3, 10, 4, -2, 1, 0])))
    for n_, dims_, lengths_ in ((8, [2, 5], [1, 2]), (10, [2, 6], [12.5]), (0, [0, 0], []), (1, [1, 1], [-2.0])):
        assert growth.admits(values(n_, dims_, lengths_))
    for n_, dims_, lengths_ in (
        (11, [2, 5], [10]),
        (8, [5, 2], [10]),  # whose product is the same: they may be sizes of different things
        (8, [2, 5], [13]),
        (8, [2, 5], [-3.0]),
        (8, [2], [1]),
        (-1, [2, 5], [10]),
    ):
        assert not growth.admits(values(n_, dims_, lengths_))
    growth.note_end(growth.begin(values(100, [1, 1], [1])))
    growth.note_end(growth.begin(values(1, [100, 1], [1])))
    assert growth.admits(values(100, [1, 1], [1]))
    assert growth.admits(values(8, [2, 5], [10]))
    assert not growth.admits(values(100, [100, 1], [1]))  # each was so large by itself
    for exact in ((1, [2] * 5, [1]), (-8, [1, 1], [1])):  # of which all may grow, or which may be subtracted
        growth.note_end(growth.begin(values(*exact)))
        assert growth.admits(values(*exact))
    assert not growth.admits(values(1, [1] * 5, [1]))
    assert not growth.admits(values(-7, [1, 1], [1]))
    for unknown in (values(1, [1], [math.inf]), values(1, [1], [1] * 10**5), [*values(1, [1], [1])[:2], b"text"]):
        growth.note_end(growth.begin(unknown))
        assert not growth.admits(unknown)
    step = growth.begin(values(10**6, [1], [1]))
    stats.num_away[3] = 1
    growth.note_end(step)
    assert not growth.admits(values(10**6, [1], [1]))


def test_the_numbers_of_few_steps_are_kept() -> None:
    with ax.Graph():
        n, m = (ax.placeholder(ax.int32, []) for _ in range(2))
    growth, _ = growth_of(n, m, of_sizes={0: Role.FACTORS, 1: Role.FACTORS})
    given = [[np.int64(100 * 1.5**count), np.int64(100 * 1.5 ** (39 - count))] for count in range(40)]
    for values in given:
        growth.note_end(growth.begin(values))
    assert [growth.admits(values) for values in given] == [count >= 40 - 16 for count in range(40)]


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
        found = run_at_once(find_sizes(graph.operations, feeds)).feeds
    roles = ((n, Role.ANY), (dims, Role.FACTORS), (lengths, Role.LARGEST), (texts, Role.ANY))
    assert {feeds[at].name: role for at, role in found.items()} == {each.name: role for each, role in roles}


def test_a_number_has_the_role_of_which_least_is_known() -> None:
    with ax.Graph() as graph:
        n, k = ax.placeholder(F, []), ax.placeholder(F, [])
        ax.raw_ops.Range(start=0.0, limit=n + k, delta=1.0)
        ax.raw_ops.Range(start=0.0, limit=10.0, delta=n)
        found = run_at_once(find_sizes(graph.operations, [k, n])).feeds
    assert found == {0: Role.FACTORS, 1: Role.ANY}


async def test_a_range_of_onnx_with_too_few_inputs_is_refused_by_its_kernel() -> None:
    with ax.Graph() as graph:
        n = ax.placeholder(INT, [])
        made: Any = ax.create_op("Onnx>Range", [[n, n]], {"Tout": [INT], "opset": 11})
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.InvalidArgumentError):
            await session.run(made, {n: np.int32(3)})


raw: Final = ax.raw_ops
INT: Final = ax.int32


def up_to(limit: Any) -> ax.Tensor:
    return raw.Range(start=0, limit=limit, delta=1)


def cast(x: ax.Tensor, dtype: ax.DType) -> ax.Tensor:
    return raw.Cast(x=x, DstT=dtype)


TABLE: Final = np.array([1, 10**7], np.int32)


@pytest.mark.parametrize(
    ("build", "role"),
    [
        (lambda n, m: raw.Range(start=n, limit=m, delta=1), Role.ANY),
        (lambda n, m: raw.Range(start=n, limit=10, delta=1), Role.ANY),
        (lambda n, m: raw.Range(start=2 * n, limit=3 * n + 4, delta=1), Role.FACTORS),
        (lambda n, m: up_to(10 - n), Role.ANY),
        (lambda n, m: up_to(n + -50), Role.ANY),
        (lambda n, m: up_to((n - 1) + -5), Role.FACTORS),
        (lambda n, m: up_to((n + 3) // 4), Role.FACTORS),
        (lambda n, m: up_to(m // n), Role.ANY),
        (lambda n, m: up_to(raw.Minimum(n, 512)), Role.FACTORS),
        (lambda n, m: raw.Range(start=m, limit=m + n, delta=1), Role.FACTORS),
        (lambda n, m: up_to(cast(cast(n, ax.int64), INT)), Role.FACTORS),
        (lambda n, m: up_to(ax.cond(n > 5, lambda: ax.constant(10**7), lambda: ax.constant(2))), Role.ANY),
        (lambda n, m: up_to(raw.GatherV2(params=TABLE, indices=n, axis=0)), Role.ANY),
        (lambda n, m: up_to(cast(cast(n, F) * 1e7, INT)), Role.FACTORS),
        (lambda n, m: up_to(cast(cast(n, ax.uint16), INT)), Role.ANY),
        (lambda n, m: raw.Fill(dims=raw.Pack([n, m + 1]), value=1), Role.FACTORS),
        (lambda n, m: up_to(raw.Max(raw.Pack([n, m]), 0)), Role.LARGEST),
        (lambda n, m: up_to(raw.Max(raw.Reshape(raw.Prod(raw.Pack([n, m]), 0), [1]), 0)), Role.ANY),
    ],
)
def test_roles(build: Any, role: Role) -> None:
    with ax.Graph() as graph:
        n, m = ax.placeholder(INT, []), ax.placeholder(INT, [])
        build(n, m)
        found = run_at_once(find_sizes(graph.operations, [n, m])).feeds
    assert found[0] is role


def test_a_slice_of_little_does_not_count() -> None:
    with ax.Graph() as graph:
        n = ax.placeholder(INT, [1])
        raw.Slice(ax.constant(np.zeros(256, np.float32)), [0], n)
        assert not run_at_once(find_sizes(graph.operations, [n])).feeds
        raw.Slice(ax.constant(np.zeros(257, np.float32)), [0], n)
        assert run_at_once(find_sizes(graph.operations, [n])).feeds == {0: Role.FACTORS}


def test_sizes_that_something_else_tells_than_feeds() -> None:
    with ax.Graph() as graph:
        n, x = ax.placeholder(INT, []), ax.placeholder(F, [None])
        queue = ax.FIFOQueue(2, [INT], [[]])
        drawn = raw.RandomUniformInt(shape=np.zeros(0, np.int32), minval=1, maxval=n)
        for name, size in (("fed", n), ("known", ax.size(x)), ("drawn", drawn), ("taken", queue.dequeue() + n)):
            raw.Range(start=0, limit=size, delta=1, name=name)
        raw.Range(start=0, limit=drawn, delta=1, name="drawn_too")
        found = run_at_once(find_sizes(graph.operations, [n, x]))
    assert found.unknown == {"drawn", "taken", "drawn_too"}
    assert found.feeds == {0: Role.ANY}


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


@pytest.fixture(scope="module", autouse=True)
def compilers() -> None:
    """Imported by the first plan otherwise, on another thread, for as long as thousands of runs take."""
    import_compilers()


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


stored: Final = [0]


@ax.op
def told() -> int:
    return stored[0]


@pytest.mark.allow_blocking
@pytest.mark.parametrize("kind", ["variable", "queue", "python function"])
async def test_a_size_that_no_feed_tells(kind: str, jobs: list[str]) -> None:
    """What it is the size of is a node of its own beside what is compiled, which goes where it is large."""

    with ax.Graph() as graph:
        n, x = ax.placeholder(INT, [], name="n"), ax.placeholder(F, [], name="x")
        if kind == "python function":
            size = raw.Cast(x=told(), DstT=INT)
        elif kind == "queue":
            queue = ax.FIFOQueue(2, [INT], [[]])
            with ax.control_dependencies([queue.enqueue(n)]):
                size = queue.dequeue()
        else:
            variable = ax.Variable(np.int32(0), name="v")
            with ax.control_dependencies([variable.assign(n)]):
                size = variable.read_value()
        ones = raw.Fill(dims=raw.Pack([size]), value=raw.Exp(x=raw.Neg(x=raw.Square(x=x))), name="large")
        y = ax.reduce_max(raw.Sqrt(x=raw.Abs(x=ones)), name="y")
    async with ax.Session(graph) as session:
        if kind == "variable":
            await session.run(variable.initializer)
        for count in (*[5] * 300, 3 * 10**6, 5):
            jobs.clear()
            stored[0] = count
            assert await session.run(y, {n: count, x: 0.0}) == 1
            if count > 5:
                assert "large" in jobs
            await asyncio.sleep(0)


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


async def test_no_number_of_a_range_that_is_fed_makes_numpy_warn() -> None:
    with ax.Graph() as graph:
        bounds = [ax.placeholder(ax.bfloat16, [], name=name) for name in ("start", "limit")]
        step = ax.constant(ml_dtypes.bfloat16(3), ax.bfloat16)
        y = ax.create_op("Range", [*bounds, step], {"Tidx": ax.bfloat16})
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.InvalidArgumentError, match="limit"):
            await session.run(y, dict(zip(bounds, [ml_dtypes.bfloat16(-3), ml_dtypes.bfloat16(math.nan)], strict=True)))
