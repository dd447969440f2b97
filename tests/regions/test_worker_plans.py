"""Signatures with one expensive node: a step is one call on a worker thread, and nobody can tell."""

from __future__ import annotations

import asyncio
import threading
import warnings
import weakref
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.executor.diagnostics.kernel_stats import INLINE, SIZED, WORKER
from asyncexec.executor.plans.compiled_plan import CompiledPlan
from asyncexec.executor.plans.worker_plan import WorkerPlan, WorkerStep
from asyncexec.framework.cooperative import run_at_once
from tests.regions.programs import COMPILED, TAGGED
from tests.running import settle, started, without_collector

F = ax.float64


@ax.op(outputs=[F], shapes=[[]], expensive=True)
def hard(x: float) -> float:
    if x == 13:
        raise ValueError("unlucky")
    return float(x)


@ax.op(outputs=[F], shapes=[[]])
def users(x: float) -> float:
    return float(x)


@pytest.fixture(params=["tagged token", "compiled"])
def config(request: pytest.FixtureRequest) -> ax.SessionConfig:
    return TAGGED if request.param == "tagged token" else COMPILED


def plan_of(session: ax.Session) -> WorkerPlan | None:
    (prepared,) = session._cache.values()
    plan = prepared.tier.compiled
    return plan if isinstance(plan, WorkerPlan) else None


def is_as_asked(session: ax.Session, config: ax.SessionConfig) -> bool:
    return (plan_of(session) is not None) == (config is COMPILED)


async def both(graph: ax.Graph, fetches: Any, *feeds: dict[Any, Any]) -> tuple[list[Any], list[Any], bool]:
    """What the general executor and a compiled session give or raise; whether the other has one call for a step."""
    found: list[list[Any]] = []
    for config in (TAGGED, COMPILED):
        got: list[Any] = []
        async with ax.Session(graph, config) as session:
            for each in feeds:
                try:
                    got.append(await session.run(fetches, each))
                except ax.errors.OpError as error:
                    got.append((type(error), error.node, str(error)))
            found.append(got)
            is_one_call = plan_of(session) is not None
    return found[0], found[1], is_one_call


async def test_cheap_nodes_around_an_expensive_one_are_one_call_with_it() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(F, [], name="x")
        y = hard(x * 2.0 + 1.0)
        out = [y * 0.5 - 1.0, x, y, ax.identity(x)]
    one, other, is_one_call = await both(graph, out, {x: 1.5}, {x: -2.0})
    assert is_one_call
    assert other == one == [[1.0, 1.5, 4.0, 1.5], [-2.5, -2.0, -3.0, -2.0]]


async def test_after_some_runs_a_session_finds_that_by_itself() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(F, [], name="x")
        out = hard(x * 2.0 + 1.0) * 0.5
    async with ax.Session(graph) as session:
        assert [await session.run(out, {x: each}) for each in range(7, 40)] == [each + 0.5 for each in range(7, 40)]
        assert plan_of(session) is not None


@pytest.mark.parametrize("made", ["two", "users", "state", "condition", "independent"])
async def test_what_is_no_such_signature(made: str) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(F, [], name="x")
        y = hard(x)
        if made == "two":
            out = hard(y) + 1.0
        elif made == "users":
            out = users(y)
        elif made == "state":
            out = y + ax.raw_ops.RandomUniform(np.zeros(0, np.int32), dtype=ax.float64, seed=1, seed2=2) * 0.0
        elif made == "independent":  # which neither waits for the expensive one, nor is waited for
            out = [y + 1.0, x * 3.0]
        else:
            out = ax.cond(x > 1.0, lambda: y * 2.0, lambda: x)
    one, other, is_one_call = await both(graph, out, {x: 1.5}, {x: -2.0})
    assert one == other
    assert not is_one_call


async def test_errors_are_those_of_the_nodes() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(F, [], name="x")
        size = ax.cast(hard(x), ax.int32)
        out = ax.raw_ops.Reshape(np.arange(6), ax.raw_ops.Pack([size, ax.constant(2)]), name="shaped")
    one, other, is_one_call = await both(graph, out, {x: 13}, {x: 4}, {x: 3})
    assert is_one_call
    assert [str(each) for each in one] == [str(each) for each in other]
    assert [each[1] for each in one[:2]] == ["hard", "shaped"]
    assert other[2].tolist() == [[0, 1], [2, 3], [4, 5]]


async def test_numpy_says_nothing_there(config: ax.SessionConfig) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(F, [None], name="x")
        out = 1.0 / (x + hard(ax.reduce_sum(x)))
    async with ax.Session(graph, config) as session:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for _ in range(3):
                assert (await session.run(out, {x: np.zeros(2)})).tolist() == [np.inf, np.inf]
        assert is_as_asked(session, config)


class Gate:
    """A kernel that waits until it may go on."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.has_begun, self.may_go_on = asyncio.Event(), threading.Event()
        self.may_go_on.set()

        @ax.op(outputs=[F], shapes=[[]], expensive=True)
        def gated(x: Any) -> float:
            loop.call_soon_threadsafe(self.has_begun.set)
            assert self.may_go_on.wait(10)
            return float(np.sum(x))

        with ax.Graph() as self.graph:
            self.x = ax.placeholder(F, [None], name="x")
            self.y = gated(self.x * 2.0) + 1.0


@pytest.mark.parametrize("begins", [True, False])
async def test_a_run_that_is_cancelled_leaves_nothing_behind(config: ax.SessionConfig, begins: bool) -> None:
    gate = Gate()
    async with ax.Session(gate.graph, config.model_copy(update={"num_worker_threads": 1})) as session:
        assert await session.run(gate.y, {gate.x: np.ones(3)}) == 7.0
        assert is_as_asked(session, config)
        gate.has_begun.clear()
        gate.may_go_on.clear()
        first = await started(session.run(gate.y, {gate.x: np.ones(3)}))
        value = np.ones(4)
        seen = weakref.ref(value)
        run = first if begins else await started(session.run(gate.y, {gate.x: value}))
        await gate.has_begun.wait()
        run.cancel()
        await settle()
        assert run.done() != begins  # what has begun cannot be interrupted
        gate.may_go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await run
        if not begins:
            assert await first == 7.0
        del value, run, first
        assert seen() is None
        assert await session.run(gate.y, {gate.x: np.ones(5)}) == 11.0


async def test_a_deadline_names_the_node_and_the_thread_goes_on_alone(config: ax.SessionConfig) -> None:
    gate = Gate()
    async with ax.Session(
        gate.graph, config.model_copy(update={"worker_grace_s": 0.0, "cancel_grace_s": 0.0})
    ) as session:
        assert await session.run(gate.y, {gate.x: np.ones(3)}) == 7.0
        gate.may_go_on.clear()
        with pytest.warns(ax.KernelWarning, match="gated"), pytest.raises(ax.errors.DeadlineExceededError) as raised:
            await session.run(gate.y, {gate.x: np.ones(3)}, options=ax.RunOptions(timeout=0.02))
        assert [(each.node, each.waits_for) for each in raised.value.under_way] == [
            ("gated", ("was at work on a worker thread",))
        ]
        gate.may_go_on.set()
        assert await session.run(gate.y, {gate.x: np.ones(3)}) == 7.0


async def test_what_is_under_way_when_the_session_is_closed(config: ax.SessionConfig) -> None:
    gate = Gate()
    session = ax.Session(gate.graph, config)
    await session.run(gate.y, {gate.x: np.ones(3)})
    gate.has_begun.clear()
    gate.may_go_on.clear()
    run = await started(session.run(gate.y, {gate.x: np.ones(3)}))
    await gate.has_begun.wait()
    closing = await started(session.close())
    gate.may_go_on.set()
    await closing
    with pytest.raises((ax.errors.CancelledError, asyncio.CancelledError)):
        await run


async def test_a_node_that_is_cheap_by_now_runs_in_the_loop() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(F, [8, 8], name="x")
        out = ax.reduce_sum(ax.raw_ops.MatMul(x, x, name="product")) * 0.5
    given = [np.ones((8, 8))]
    async with ax.Session(graph, TAGGED) as session:
        await session.run(out, {x: given[0]})
        (prepared,) = session._cache.values()
        stats = prepared.executor.stats
        (item,) = (each for each in prepared.executor.view.items if each.node.name == "product")
        stats.places[item.id] = WORKER
        plan = run_at_once(session._state.compile_plan(prepared.graph, prepared.tier, optimizes=False))
        assert isinstance(plan, WorkerPlan)
        assert not plan.compiles_nothing
        assert isinstance(plan.start(given), WorkerStep)
        assert not isinstance(plan.start(None), WorkerStep)
        places, item_id = plan._stats.places, plan.item.id
        places[item_id] = SIZED
        assert isinstance(plan.start(given), WorkerStep)
        for _ in range(9):
            plan._stats.update_sized(item_id, 2 * 512, 1000, is_inline=False)
        places[item_id] = SIZED
        assert not isinstance(plan.start(given), WorkerStep)
        assert plan.compiles_nothing == (not plan._plans)  # so that the signature is compiled for the loop
        places[item_id] = INLINE
        assert not isinstance(plan.start(given), WorkerStep)


@pytest.mark.parametrize("ordered", [True, False])
async def test_a_stream_runs_its_items_so(config: ax.SessionConfig, ordered: bool) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(F, [], name="x")
        out = hard(x * 2.0 + 1.0) * 0.5
    got: list[Any] = []
    async with ax.Session(graph, config) as session:
        async with session.stream(out, ordered=ordered, on_error="yield") as stream:
            for each in range(60):
                await stream.send({x: float(each)})
                if each > 3:
                    got.append(await anext(stream))
            await stream.close()
            got += [each async for each in stream]
        assert is_as_asked(session, config)
    assert sorted(each for each in got if not isinstance(each, Exception)) == [n + 0.5 for n in range(60) if n != 6]
    assert [each.node for each in got if isinstance(each, ax.errors.OpError)] == ["hard"]


async def test_an_op_sees_the_item_that_it_is_called_for(config: ax.SessionConfig) -> None:
    seen: list[tuple[float, int]] = []

    @ax.op(outputs=[F], shapes=[[]], expensive=True)
    def noted(x: float) -> float:
        seen.append((float(x), ax.current_step().number))
        return float(x)

    with ax.Graph() as graph:
        x = ax.placeholder(F, [], name="x")
        out = noted(x * 1.0) + 0.0
    async with ax.Session(graph, config) as session:
        for _ in range(2):
            seen.clear()
            async with session.stream(out, window=2) as stream:
                for each in range(20):
                    await stream.send({x: float(each)})
                    assert await anext(stream) == each
            assert seen == [(each, each) for each in range(20)]


@pytest.mark.parametrize("where", ["before", "in", "behind"])
async def test_a_failure_keeps_no_feed(where: str) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(F, [None], name="x")
        i = ax.placeholder(ax.int32, [], name="i")
        gathered = ax.gather(x, i if where == "before" else 0)
        y = hard(gathered)
        out = ax.gather(ax.stack([y, y]), i if where == "behind" else 0)
    async with ax.Session(graph, COMPILED) as session:
        assert await session.run(out, {x: np.ones(3), i: 1}) == 1.0
        assert plan_of(session) is not None
        with without_collector():
            value = np.full(3, 13.0 if where == "in" else 2.0)
            seen = weakref.ref(value)
            with pytest.raises(ax.errors.OpError):
                await session.run(out, {x: value, i: 9})
            del value
            await settle(20)
            assert seen() is None


async def test_what_fails_behind_a_node_that_nobody_waits_for_is_not_told_of(config: ax.SessionConfig) -> None:
    may_go_on, has_begun, loop = threading.Event(), asyncio.Event(), asyncio.get_running_loop()
    may_go_on.set()

    @ax.op(outputs=[ax.int64], shapes=[[]], expensive=True)
    def gated(x: Any) -> Any:
        loop.call_soon_threadsafe(has_begun.set)
        assert may_go_on.wait(10)
        return x

    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [], name="x")
        out = ax.gather(ax.constant([1, 2, 3]), gated(x), name="behind")
    async with ax.Session(graph, config) as session:
        assert await session.run(out, {x: 1}) == 2
        has_begun.clear()
        may_go_on.clear()
        run = await started(session.run(out, {x: 7}))
        await has_begun.wait()
        run.cancel()
        may_go_on.set()
        with pytest.raises(asyncio.CancelledError) as caught:
            await run
        assert getattr(caught.value, "__notes__", []) == []


async def test_a_plan_that_compiles_nothing_is_left_once_its_node_is_quick() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [None, None], name="x")
        y = ax.cholesky(x)
    async with ax.Session(graph, COMPILED, cost_model=ax.CostModel(expensive_ms=1e6)) as session:
        for _ in range(200):
            await session.run(y, {x: np.eye(3)})
        (prepared,) = session._cache.values()
        assert isinstance(prepared.tier.compiled, CompiledPlan)
