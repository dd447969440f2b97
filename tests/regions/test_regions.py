"""Signatures with nodes that await something or work: what is cheap runs in regions, and nobody can tell."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref
from typing import Any
from unittest import mock

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.executor.diagnostics.kernel_stats import KernelStats
from asyncexec.executor.plans.region_plan import RegionPlan
from asyncexec.framework.errors import DeadlineExceededError, InvalidArgumentError
from asyncexec.session.graph_execution_state import GraphExecutionState
from tests.regions.programs import COMPILED, TAGGED
from tests.running import settle, started

F = ax.float64


@ax.op(outputs=[ax.float64])
async def later(x: float) -> float:
    await asyncio.sleep(0)
    return float(x)


@pytest.fixture
def in_regions(monkeypatch: pytest.MonkeyPatch) -> None:
    """No signature with something that is awaited is compiled whole."""
    monkeypatch.setattr(KernelStats, "stays_on_loop", False)
    monkeypatch.setattr(KernelStats, "may_stay_on_loop", False)


@pytest.fixture(params=["tagged token", "compiled", "in regions"])
def config(request: pytest.FixtureRequest) -> ax.SessionConfig:
    if request.param == "in regions":
        request.getfixturevalue("in_regions")
    return TAGGED if request.param == "tagged token" else COMPILED


def has_regions(session: ax.Session) -> bool:
    return any(isinstance(prepared.tier.compiled, RegionPlan) for prepared in session._cache.values())


def runs_as_asked(session: ax.Session, config: ax.SessionConfig) -> bool:
    """Whether *session*, of that *config*, has compiled what it runs: in regions, where nothing else is allowed."""
    is_compiled = any(prepared.tier.compiled is not None for prepared in session._cache.values())
    if KernelStats.stays_on_loop is False:
        is_compiled = has_regions(session)
    return is_compiled == (config is COMPILED)


async def outcomes(graph: ax.Graph, fetches: Any, *feeds: dict[Any, Any]) -> list[list[Any]]:
    """What each executor gives, or raises, for the *feeds* of some runs: the general one, compiled, in regions."""
    found: list[list[Any]] = []
    for config, stays_on_loop in [(TAGGED, False), (COMPILED, True), (COMPILED, False)]:
        got: list[Any] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(KernelStats, "stays_on_loop", stays_on_loop)
            async with ax.Session(graph, config) as session:
                for each in feeds:
                    try:
                        got.append(await session.run(fetches, each))
                    except ax.errors.OpError as error:
                        got.append((type(error), str(error)))
                assert runs_as_asked(session, config)
        found.append(got)
    return found


async def test_cheap_nodes_between_awaits() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(F, [], name="x")
        y = later(x * 2.0 + 1.0)
        z = later((y - 3.0) * y)
        out = z * 0.5 + y
    one, *others = await outcomes(graph, [out, z, y], {x: 1.5}, {x: -2.0})
    assert others == [one, one]


async def test_an_error_names_the_node_and_the_iteration() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [], name="x")

        def body(i: Any, y: Any) -> Any:
            y = ax.cast(later(ax.cast(y, F)), ax.int64)
            return i + 1, ax.floordiv(y * 6 - y, x - i, name="divides")

        _, y = ax.while_loop(lambda i, y: i < 4, body, [ax.constant(0, ax.int64), x])
    one, *others = await outcomes(graph, y, {x: 9}, {x: 2}, {x: 0})
    assert others == [one, one]
    assert "divides" in one[1][1]
    assert "in iteration while 2" in one[1][1]


@pytest.mark.parametrize(("depth", "rounds"), [(1, 3), (3, 3), (11, 1)])
async def test_an_error_names_the_iterations_of_loops_in_and_around_a_region(depth: int, rounds: int) -> None:
    def loop(body: Any, count: int, y: Any) -> Any:
        zero = ax.constant(0, ax.int64)
        return ax.while_loop(lambda i, _: i < count, lambda i, y: [i + 1, body(i, y)], [zero, y])[1]

    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [], name="x")

        def cheap(y: Any, left: int) -> Any:
            if not left:
                return ax.floordiv(y + 10, x - y, name="divides")
            return loop(lambda i, y: cheap(y + i, left - 1), rounds, y)

        around = loop(
            lambda _, y: cheap(ax.cast(later(ax.cast(y, F)), ax.int64) * 1, depth), 3, ax.constant(3, ax.int64)
        )
        alone = later(ax.cast(x, F)) + ax.cast(cheap(x * 0 + 3, depth), F)
    for fetch in (around, alone):
        one, *others = await outcomes(graph, fetch, *[{x: value} for value in (3, 4, 5, 12, 1 << 40)])
        assert others == [one, one]
        assert "in iteration while" in str(one)


async def test_nothing_waits_longer(config: ax.SessionConfig) -> None:
    """What follows the quick of two calls runs while the slow one is under way."""
    log: list[str] = []
    go = asyncio.Event()

    @ax.op(outputs=[ax.float64])
    async def slow(x: float) -> float:
        await go.wait()
        return float(x)

    @ax.op(outputs=[ax.float64])
    async def note(x: float) -> float:
        log.append(f"{float(x):g}")
        return float(x)

    with ax.Graph() as graph:
        x = ax.placeholder(F, [], name="x")
        quick = note(later(x + 1.0) * 2.0 + 1.0)
        out = quick * 3.0 + (slow(x + 2.0) * 4.0 + 0.5)
    async with ax.Session(graph, config) as session:
        for _ in range(3):
            go.clear()
            log.clear()
            run = await started(session.run(out, {x: 1.0}))
            await settle()
            assert log == ["5"]
            go.set()
            assert await run == 5 * 3 + 3 * 4 + 0.5
        assert runs_as_asked(session, config)


async def test_nothing_waits_for_a_loop_that_it_does_not_need(config: ax.SessionConfig) -> None:
    """A call begins, and can end the step, beside a loop of cheap nodes that goes on for ever."""
    calls: list[float] = []

    @ax.op(outputs=[ax.float64])
    async def call(x: float) -> float:
        calls.append(float(x))
        await asyncio.sleep(0)
        if len(calls) == 2:
            raise ValueError("enough")
        return float(x)

    with ax.Graph() as graph:
        x = ax.placeholder(F, [], name="x")
        n = ax.cast(x * 2.0, ax.int64)
        (last,) = ax.while_loop(lambda i: i != n, lambda i: [i + 1], [ax.constant(0, ax.int64)])
        out = call(call(x * 3.0) * 2.0 + 1.0) + 1.0, last + 1
    async with ax.Session(graph, config) as session:
        with pytest.raises(ValueError, match="enough"):
            await session.run(out, {x: -1.0}, options=ax.RunOptions(timeout=5.0))
        assert runs_as_asked(session, config)
    assert calls == [-3.0, -5.0]


async def test_iterations_overlap(config: ax.SessionConfig) -> None:
    at_work, most = 0, 0

    @ax.op(outputs=[ax.float64])
    async def call(x: float) -> float:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        await settle(20)
        at_work -= 1
        return float(x)

    with ax.Graph() as graph:

        def body(i: Any, total: Any) -> Any:
            answer = call(ax.cast(i, F) * 2.0 + 1.0)
            return i + 1, total + (answer * 3.0 - 1.0)

        _, total = ax.while_loop(lambda i, _: i < 8, body, [0, ax.constant(0.0, F)], parallel_iterations=4)
    async with ax.Session(graph, config) as session:
        for _ in range(3):
            assert await session.run(total) == sum(3 * (2 * i + 1) - 1 for i in range(8))
    assert most == 4


@pytest.mark.parametrize("p", [True, False])
async def test_only_the_branch_that_is_taken_runs(config: ax.SessionConfig, p: bool) -> None:
    calls: list[float] = []

    @ax.op(outputs=[ax.float64])
    async def call(x: float) -> float:
        calls.append(float(x))
        return float(x)

    with ax.Graph() as graph:
        x, decides = ax.placeholder(F, [], name="x"), ax.placeholder(ax.bool, [], name="p")
        asked = later(x * 1.0 + 0.0)
        inner = ax.cond(decides, lambda: call(asked * 2.0 + 1.0) * 2.0 - 1.0, lambda: asked * 3.0 - 1.0)
        out = inner * 10.0 + asked
    async with ax.Session(graph, config) as session:
        assert await session.run(out, {x: 2.0, decides: p}) == (92.0 if p else 52.0)
    assert calls == ([5.0] if p else [])


async def test_a_loop_of_cheap_nodes_is_one_region_and_can_be_ended(config: ax.SessionConfig) -> None:
    with ax.Graph() as graph:
        n = ax.placeholder(ax.int64, [], name="n")
        first = ax.cast(later(ax.cast(n, F)), ax.int64)
        (last,) = ax.while_loop(lambda i: i != first * 1, lambda i: [i + 1], [ax.constant(0, ax.int64)])
        out = last + 1
    async with ax.Session(graph, config) as session:
        assert await session.run(out, {n: 5000}) == 5001
        assert runs_as_asked(session, config)
        run = await started(session.run(out, {n: -1}))
        await settle(50)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        with pytest.raises(DeadlineExceededError):
            await session.run(out, {n: -1}, options=ax.RunOptions(timeout=0.05))
        assert await session.run(out, {n: 3}) == 4


async def test_control_edges_into_and_out_of_regions(config: ax.SessionConfig) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(F, [], name="x")
        variable = ax.Variable(np.float64(1.0), name="v")
        asked = later(x + 1.0)
        with ax.control_dependencies([asked]):
            added = variable.assign_add(x * 2.0 + 1.0)
        with ax.control_dependencies([added]):
            seen = later(variable.read_value() * 1.0 + 0.0)
            after = variable.read_value() * 10.0 + seen
    async with ax.Session(graph, config) as session:
        await session.run(variable.initializer)
        assert [await session.run(after, {x: 1.0}) for _ in range(3)] == [44.0, 77.0, 110.0]


async def test_a_constant_that_waits_for_a_region() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(F, [], name="x")
        asked = later(x)
        cheap = asked * 2.0 + 1.0
        with ax.control_dependencies([cheap]):
            five = ax.constant(5.0, F)
        (last,) = ax.while_loop(lambda y: y < 100.0, lambda y: [y * 2.0 + 1.0], [cheap])
        out = later(five), later(last * 2.0)
    one, *others = await outcomes(graph, out, {x: 1.0}, {x: 200.0})
    assert others == [one, one]


async def test_a_target_that_is_in_a_region_runs(config: ax.SessionConfig) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(F, [], name="x")
        variable = ax.Variable(np.float64(0.0), name="v")
        add = variable.assign_add(later(x + 1.0) * 2.0 + 1.0)
        seen = variable.read_value()
    async with ax.Session(graph, config) as session:
        await session.run(variable.initializer)
        for _ in range(3):
            await session.run([], {x: 1.0}, targets=[add])
        assert runs_as_asked(session, config)
        assert await session.run(seen) == 15.0


async def test_a_dead_fetch_has_no_value(config: ax.SessionConfig) -> None:
    with ax.Graph() as graph:
        x, p = ax.placeholder(F, [], name="x"), ax.placeholder(ax.bool, [], name="p")
        dead, live = ax.create_op("Switch", [later(x) * 2.0 + 1.0, p])
        out, other = later(live * 2.0 - 1.0) + 1.0, dead * 3.0 - 1.0
    async with ax.Session(graph, config) as session:
        for _ in range(3):
            assert await session.run(out, {x: 1.0, p: True}) == 6.0
            with pytest.raises(InvalidArgumentError, match="does not have a value"):
                await session.run([out, other], {x: 1.0, p: True})


async def test_where_there_are_no_regions_they_are_looked_for_ever_more_seldom() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(F, [], name="x")
        out = later(later(x) + 1.0), later(x)
    async with ax.Session(graph) as session:
        with mock.patch.object(
            GraphExecutionState, "compile_plan", autospec=True, side_effect=GraphExecutionState.compile_plan
        ) as compile_plan:
            for _ in range(200):
                assert await session.run(out, {x: 1.0}) == (2.0, 1.0)
        assert not has_regions(session)
        assert 1 < compile_plan.call_count <= 4


async def test_what_has_been_compiled_is_not_compiled_again_for_runs_by_the_general_executor() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(F, [], name="x")
        out = later(x) * 2.0 + 1.0
    async with ax.Session(graph, COMPILED) as session:
        assert await session.run(out, {x: 1.0}) == 3.0
        with mock.patch.object(GraphExecutionState, "compile_plan") as compile_plan:
            for _ in range(5):
                options, metadata = ax.RunOptions(trace=True), ax.RunMetadata()
                assert await session.run(out, {x: 1.0}, options=options, metadata=metadata) == 3.0
        assert not compile_plan.called


async def test_regions_keep_nothing_of_a_step(config: ax.SessionConfig) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(F, [None], name="x")
        out = ax.reduce_sum(later(ax.reduce_sum(x * 2.0 + 1.0)) + x * 3.0)
    async with ax.Session(graph, config) as session:
        value = np.ones(10)
        seen = weakref.ref(value)
        assert await session.run(out, {x: value}) == 330.0
        assert runs_as_asked(session, config)
        del value
        gc.collect()
        assert seen() is None


async def test_a_region_lets_go_of_what_it_needs_no_more(config: ax.SessionConfig) -> None:
    made: list[weakref.ref[Any]] = []

    @ax.op(outputs=[ax.float64])
    async def make(x: float) -> np.ndarray[Any, Any]:
        value = np.full(1000, float(x))
        made.append(weakref.ref(value))
        return value

    with ax.Graph() as graph:
        x = ax.placeholder(F, [], name="x")
        total = ax.reduce_sum(make(x) * 2.0)
        (last,) = ax.while_loop(lambda i: i != 0.0, lambda i: [i + 1.0], [total])
        out = last + 1.0
    async with ax.Session(graph, config) as session:
        run = await started(session.run(out, {x: 1.0}))
        await settle(50)
        assert len(made) == 1
        assert made[0]() is None
        assert runs_as_asked(session, config)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run


@pytest.mark.allow_blocking
@pytest.mark.usefixtures("in_regions")
async def test_a_region_that_holds_the_loop_is_given_up() -> None:
    seconds = 0.0

    @ax.op(outputs=[ax.float64])
    def think(x: float) -> float:
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            pass
        return float(x)

    with ax.Graph() as graph:
        x = ax.placeholder(F, [], name="x")
        out = think(later(x) + 1.0) * 2.0
    async with ax.Session(graph, ax.SessionConfig(slow_inline_ms=None)) as session:
        while not has_regions(session):  # which takes longer where the compiler has to be imported first
            assert await session.run(out, {x: 1.0}) == 4.0
        seconds = 0.01
        for _ in range(4):
            assert await session.run(out, {x: 1.0}) == 4.0
        assert not has_regions(session)
        assert "think" in (session.statistics().longest_node or "")


@pytest.mark.allow_blocking
@pytest.mark.usefixtures("in_regions")
async def test_a_region_that_sleeps_and_computes_nothing_is_kept() -> None:
    """What takes the time but not the CPU may be a pause of the machine."""
    seconds = 0.0

    @ax.op(outputs=[ax.float64])
    def nap(x: float) -> float:
        time.sleep(seconds)
        return float(x)

    with ax.Graph() as graph:
        x = ax.placeholder(F, [], name="x")
        out = nap(later(x) + 1.0) * 2.0
    async with ax.Session(graph, ax.SessionConfig(slow_inline_ms=None)) as session:
        while not has_regions(session):
            assert await session.run(out, {x: 1.0}) == 4.0
        seconds = 0.01
        for _ in range(6):
            assert await session.run(out, {x: 1.0}) == 4.0
        assert has_regions(session)


@ax.op(outputs=[ax.float64], expensive=True)
def think(x: float) -> float:
    return float(x) - 1.0


def cholesky(x: Any) -> Any:
    return ax.reduce_sum(ax.cholesky(x + ax.eye(2, dtype=F)))


def loop(step: Any, first: Any) -> Any:
    return ax.while_loop(lambda i, _: i < 200, lambda i, y: [i + 1, step(y)], [ax.constant(0), first])[1]


async def has_compiled_loops(graph: ax.Graph, fetches: Any, feeds: dict[Any, Any]) -> bool:
    """Whether a session comes to run loops as Python code, in some runs, which give what the general executor gives."""
    async with ax.Session(graph, TAGGED) as session:
        expected = await session.run(fetches, feeds)
    async with ax.Session(graph) as session:
        plan = None
        for _ in range(100):
            assert await session.run(fetches, feeds) == expected
            (prepared,) = session._cache.values()
            if plan is not None:
                break
            plan = prepared.tier.compiled
    parts = plan.executor.parts if isinstance(plan, RegionPlan) else ()
    return plan is not None and all(item.node.op != "LoopCond" for part in parts for item in part.view.items)


@pytest.mark.parametrize("place", ["outside", "taken", "not taken"])
@pytest.mark.parametrize("works", [think, later, cholesky], ids=["expensive", "async", "expensive by size"])
async def test_a_loop_is_compiled_whatever_stands_beside_it(works: Any, place: str) -> None:
    """Nor does it wait for the first call of what may be cheap: that is in a branch, which may never be taken."""
    with ax.Graph() as graph:
        x, p = ax.placeholder(F, [], name="x"), ax.placeholder(ax.bool, [], name="p")
        beside = works(x) if place == "outside" else ax.cond(p, lambda: works(x), lambda: x + 1.0)
        out = [loop(lambda y: y + 1.0, x), beside]
    feeds = {x: 1.0} if place == "outside" else {x: 1.0, p: place == "taken"}
    assert await has_compiled_loops(graph, out, feeds)


@pytest.mark.parametrize("num_cases", [2, 3])
@pytest.mark.parametrize("place", ["before the loop", "in the loop", "beside the loop"])
async def test_a_loop_is_compiled_whose_values_depend_on_cases(place: str, num_cases: int) -> None:
    with ax.Graph() as graph:
        x, k = ax.placeholder(F, [], name="x"), ax.placeholder(ax.int32, [], name="k")

        def chosen(y: Any) -> Any:
            functions = [lambda: y + 1.0, lambda: y * 0.5, lambda: y - 3.0]
            return ax.switch_case(k, functions[:num_cases])

        first = chosen(x) if place == "before the loop" else x
        out = [loop(chosen if place == "in the loop" else lambda y: y + 1.0, first), think(chosen(x))]
    for index in (0, 1, 5):
        assert await has_compiled_loops(graph, out, {x: 1.0, k: index})
