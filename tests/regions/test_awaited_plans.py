"""Signatures whose awaited nodes come one after the other are compiled whole; but for the time, nobody can tell."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.executor.plans.compiled_plan import CompiledPlan
from asyncexec.framework.errors import CancelledError, InvalidArgumentError
from tests.regions.programs import COMPILED, TAGGED
from tests.running import settle, started

BOTH = pytest.mark.parametrize("config", [TAGGED, COMPILED], ids=["tagged token", "compiled"])
F = ax.float64


@ax.op(outputs=[ax.float64])
async def later(x: float) -> float:
    await asyncio.sleep(0)
    return float(x)


def is_whole(session: ax.Session) -> bool:
    """Whether what *session* has run is compiled whole, with what it awaits."""
    plans = [prepared.tier.compiled for prepared in session._cache.values()]
    return all(isinstance(plan, CompiledPlan) and plan.is_awaited for plan in plans)


def loop_of(call: Callable[[Any], Any], takes: int) -> ax.Graph:
    """Ten rounds that call with the number of the round, or with what the round before gave."""
    with ax.Graph() as graph:

        def body(i: Any, y: Any) -> Any:
            return i + 1.0, call([i, y][takes]) + 1.0

        ax.identity(ax.while_loop(lambda i, y: i < 10.0, body, [ax.constant(0.0, F)] * 2)[1], name="out")
    return graph


def beside(x: Any) -> Any:
    return later(x), later(x * 2.0)


def on_either_side(x: Any) -> Any:
    return later(ax.cond(x > 0.0, lambda: later(x * 2.0), lambda: later(x * 3.0)))


@pytest.mark.parametrize(
    ("make", "expected"),
    [(lambda x: later(later(x) + 1.0), True), (beside, False), (on_either_side, True)],
    ids=["in one line", "beside one another", "on either side"],
)
async def test_what_is_compiled(make: Callable[[Any], Any], expected: bool) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(F, [], name="x")
        fetches = make(x)
    async with ax.Session(graph, TAGGED) as session:
        known = [await session.run(fetches, {x: value}) for value in (1.0, -1.0)]
    async with ax.Session(graph, COMPILED) as session:
        assert [await session.run(fetches, {x: value}) for value in (1.0, -1.0)] == known
        assert is_whole(session) == expected


@pytest.mark.parametrize("takes", [0, 1], ids=["overlap", "do not overlap"])
async def test_rounds_of_a_loop_that_may_overlap_do(takes: int) -> None:
    at_work = most = 0

    @ax.op(outputs=[ax.float64])
    async def call(x: float) -> float:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        await settle(20)
        at_work -= 1
        return float(x)

    async with ax.Session(loop_of(call, takes), COMPILED) as session:
        assert await session.run("out:0") == 10.0
        assert is_whole(session) == (takes == 1)
    assert most == (1 if takes == 1 else 10)


@BOTH
async def test_context_variables_that_a_kernel_sets_are_its_own(config: ax.SessionConfig) -> None:
    variable = ContextVar("variable", default="nobody's")
    seen: list[str] = []

    @ax.op(outputs=[ax.float64])
    async def call(x: float) -> float:
        seen.append(variable.get())
        variable.set("a kernel's")
        await asyncio.sleep(0)
        seen.append(variable.get())
        return float(x)

    with ax.Graph() as graph:
        out = call(call(ax.placeholder(F, [], name="x")))
    variable.set("the caller's")
    async with ax.Session(graph, config) as session:
        assert await session.run(out, {"x:0": 1.0}) == 1.0
    assert seen == ["the caller's", "a kernel's"] * 2
    assert variable.get() == "the caller's"


@BOTH
async def test_what_a_kernel_waits_for_is_done_before_it_begins(config: ax.SessionConfig) -> None:
    """A cheap node that nothing depends on lets the awaited one go on."""
    go = asyncio.Event()

    @ax.op(outputs=[ax.float64])
    async def wait(x: float) -> float:
        await go.wait()
        return float(x)

    @ax.op(outputs=[ax.float64])
    def let_go(x: float) -> float:
        go.set()
        return float(x)

    with ax.Graph() as graph:
        x = ax.placeholder(F, [], name="x")
        first = later(x)
        out = wait(first), let_go(first + 1.0)
    async with ax.Session(graph, config) as session:
        for _ in range(3):
            go.clear()
            assert await session.run(out, {x: 1.0}) == (1.0, 2.0)


@BOTH
async def test_kernels_that_never_suspend_let_others_have_the_loop(config: ax.SessionConfig) -> None:
    calls = 0

    @ax.op(outputs=[ax.float64])
    async def call(x: float) -> float:
        nonlocal calls
        calls += 1
        return float(x)

    with ax.Graph() as graph:
        x = ax.placeholder(F, [], name="x")
        (last,) = ax.while_loop(lambda y: y >= 0.0, lambda y: [call(y)], [x])
    async with ax.Session(graph, config) as session:
        run = await started(session.run(last, {x: 1.0}))
        while not calls:  # noqa: ASYNC110 - it is compiled first, in as many turns as that takes
            await asyncio.sleep(0)
        seen = []
        for _ in range(5):
            await asyncio.sleep(0)
            seen.append(calls)
        assert seen[-1] > seen[0]
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        before = calls
        await settle()
        assert calls == before


@pytest.mark.parametrize("turn", range(9))
@BOTH
async def test_a_cancelled_run_leaves_nothing(config: ax.SessionConfig, turn: int) -> None:
    values: list[weakref.ref[Any]] = []

    @ax.op(outputs=[ax.float64])
    async def make(x: Any) -> Any:
        await asyncio.sleep(0)
        value = np.full(1000, x)
        values.append(weakref.ref(value))
        return value

    with ax.Graph() as graph:
        x = ax.placeholder(F, [], name="x")
        out = later(later(ax.reduce_sum(make(later(x)) * 2.0)) + 1.0)

    async def run_and_cancel(session: ax.Session) -> None:
        run = await started(session.run(out, {x: 1.0}))
        await settle(turn)
        run.cancel()
        await asyncio.wait([run])

    async with ax.Session(graph, config) as session:
        before = asyncio.all_tasks()
        await run_and_cancel(session)
        assert asyncio.all_tasks() <= before
        gc.collect()
        assert [value() for value in values] == [None] * len(values)
        assert await session.run(out, {x: 1.0}) == 2001.0


@BOTH
async def test_a_kernel_that_ends_well_though_it_was_cancelled_is_the_last(config: ax.SessionConfig) -> None:
    calls: list[float] = []

    @ax.op(outputs=[ax.float64])
    async def stubborn(x: float) -> float:
        calls.append(float(x))
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
        return float(x)

    with ax.Graph() as graph:
        x = ax.placeholder(F, [], name="x")
        out = stubborn(stubborn(x) + 1.0)
    async with ax.Session(graph, config) as session:
        run = await started(session.run(out, {x: 1.0}))
        await settle()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
    assert calls == [1.0]


@BOTH
async def test_an_error_names_its_node_and_holds_no_tensor(config: ax.SessionConfig) -> None:
    made: list[weakref.ref[Any]] = []

    @ax.op(outputs=[ax.float64])
    async def make(x: Any) -> Any:
        value = np.full(1000, x)
        made.append(weakref.ref(value))
        return value

    @ax.op(outputs=[ax.float64])
    async def fail(x: Any) -> Any:
        await asyncio.sleep(0)
        raise ValueError("no")

    with ax.Graph() as graph:
        x = ax.placeholder(F, [], name="x")
        kept = make(x)
        out = kept * fail(ax.reduce_sum(kept), name="fails")
    async with ax.Session(graph, config) as session:
        for _ in range(3):
            with pytest.raises(InvalidArgumentError, match="ValueError: no") as caught:
                await session.run(out, {x: 1.0})
            assert caught.value.node == "fails"
            assert isinstance(caught.value.__cause__, ValueError)
            del caught
        gc.collect()
        assert [value() for value in made] == [None] * 3


@BOTH
async def test_an_interrupt_in_a_kernel_ends_the_run(config: ax.SessionConfig) -> None:
    class Interrupt(BaseException):
        pass

    @ax.op(outputs=[ax.float64])
    async def interrupt(x: float) -> float:
        await asyncio.sleep(0)
        if x > 0:
            raise Interrupt
        return float(x)

    with ax.Graph() as graph:
        x = ax.placeholder(F, [], name="x")
        out = later(interrupt(later(x)))
    async with ax.Session(graph, config) as session:
        with pytest.raises(Interrupt):
            await session.run(out, {x: 1.0})
        assert await session.run(out, {x: -1.0}) == -1.0


async def test_who_cancels_the_task_of_a_step_ends_it() -> None:
    """In a kernel, the error names the node; between two slices of a loop, nobody is to name."""
    with ax.Graph() as graph:
        x = ax.placeholder(F, [], name="x")
        (last,) = ax.while_loop(lambda i: i != x, lambda i: [i + 1.0], [later(x) * 0.0])
    async with ax.Session(graph, COMPILED) as session:
        before = asyncio.all_tasks()
        run = await started(session.run(last, {x: -1.0}))
        await settle(10)
        (task,) = asyncio.all_tasks() - before - {run}
        task.cancel()
        with pytest.raises(CancelledError, match="the task of the step was cancelled"):
            await run
        assert await session.run(last, {x: 3.0}) == 3.0


async def test_a_kernel_that_ends_all_steps_of_its_session_ends_its_own() -> None:
    @ax.op(outputs=[ax.float64])
    def end_all(x: float) -> float:
        if x > 0:
            session._steps.abort(CancelledError("enough"))
        return float(x)

    with ax.Graph() as graph:
        x = ax.placeholder(F, [], name="x")
        out = later(end_all(later(x)))
    async with ax.Session(graph, COMPILED) as session:
        with pytest.raises(CancelledError, match="enough"):
            await session.run(out, {x: 1.0})
        assert await session.run(out, {x: -1.0}) == -1.0
