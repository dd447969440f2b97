"""@ax.op(ordered=True): one item of a stream after the other; @ax.op(pure=True): what the optimizer may merge."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import asyncexec as ax


class Sink:
    """Writes what it gets; the larger the value, the sooner."""

    def __init__(self, *, ordered: bool) -> None:
        self.written: list[float] = []
        self.at_work = self.most_at_work = 0

        @ax.op(ordered=ordered)
        async def write(x: float) -> None:
            self.at_work += 1
            self.most_at_work = max(self.most_at_work, self.at_work)
            for _ in range(10 - int(x)):
                await asyncio.sleep(0)
            self.at_work -= 1
            if x == 3:
                raise ValueError("three")
            self.written.append(x)

        self.write = write


def graph_with(sink: Sink) -> tuple[ax.Graph, ax.Tensor, Any]:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        return graph, x, sink.write(x)


async def results_of(sink: Sink, executor_type: str, **options: Any) -> list[Any]:
    graph, x, written = graph_with(sink)
    async with ax.Session(graph, ax.SessionConfig(executor_type=executor_type)) as session:
        items = [{x: float(value)} for value in range(6)]
        return [out async for out in session.map(written, items, window=6, **options)]


@pytest.mark.parametrize("executor_type", ["", "TAGGED_TOKEN", "COMPILED"])
@pytest.mark.parametrize("ordered", [True, False])
async def test_order_of_the_calls_of_a_sink(ordered: bool, executor_type: str) -> None:
    sink = Sink(ordered=ordered)
    await results_of(sink, executor_type, on_error="yield")
    assert sorted(sink.written) == [0, 1, 2, 4, 5]
    assert (sink.written == sorted(sink.written)) is ordered
    assert (sink.most_at_work == 1) is ordered


async def test_what_stands_before_it_overlaps_still() -> None:
    at_work = most = 0
    sink = Sink(ordered=True)

    @ax.op
    async def fetch(x: float) -> float:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        await asyncio.sleep(0)
        at_work -= 1
        return x

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        written = sink.write(fetch(x))
    async with ax.Session(graph) as session:
        [out async for out in session.map(written, [{x: float(value)} for value in (0, 1, 2, 4)], window=4)]
    assert sink.written == [0, 1, 2, 4]
    assert most > 1


async def test_item_that_fails_before_its_sink_holds_nobody_up() -> None:
    sink = Sink(ordered=True)

    @ax.op
    async def fetch(x: float) -> float:
        await asyncio.sleep(0)
        if x == 1:
            raise ValueError("one")
        return x

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        written = sink.write(fetch(x))
    async with ax.Session(graph) as session:
        items = [{x: float(value)} for value in (0, 1, 2, 4)]
        results = [out async for out in session.map(written, items, window=4, on_error="yield")]
    assert sink.written == [0, 2, 4]
    assert [isinstance(result, ax.errors.OpError) for result in results] == [False, True, False, False]


async def test_ordered_op_in_a_run_and_with_outputs() -> None:
    @ax.op(ordered=True)
    def both(x: float) -> tuple[float, float]:
        return x, x + 1

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        first, second = both(x)
        again = both(second)[1]
    async with ax.Session(graph) as session:
        assert await session.run([first, second, again], {x: 1.0}) == [1.0, 2.0, 3.0]


def test_ordered_op_in_a_branch_is_refused() -> None:
    sink = Sink(ordered=True)
    with ax.Graph():
        x = ax.placeholder(ax.float64, [], name="x")
        with pytest.raises(ax.errors.InvalidArgumentError, match="not to a function, branch or loop"):
            ax.cond(x > 0, lambda: sink.write(x), lambda: ax.no_op())


@pytest.mark.parametrize("pure", [True, False])
async def test_calls_with_the_same_tensors(pure: bool) -> None:
    calls = 0

    @ax.op(pure=pure)
    def square(x: float) -> float:
        nonlocal calls
        calls += 1
        return x * x

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        total = square(x) + square(x) + square(x + 1)
    async with ax.Session(graph, ax.SessionConfig(executor_type="COMPILED")) as session:
        assert await session.run(total, {x: 2.0}) == 17.0
    assert calls == (2 if pure else 3)


@pytest.mark.parametrize("pure", [True, False])
async def test_async_calls_with_the_same_tensors(pure: bool) -> None:
    calls = 0

    @ax.op(pure=pure)
    async def square(x: float) -> float:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0)
        return x * x

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        total = square(x) + square(x)
    async with ax.Session(graph, ax.SessionConfig(executor_type="COMPILED")) as session:
        assert await session.run(total, {x: 2.0}) == 8.0
    assert calls == (1 if pure else 2)


async def test_pure_op_without_inputs_runs_once_a_step() -> None:
    calls = 0

    @ax.op(pure=True)
    def number() -> float:
        nonlocal calls
        calls += 1
        return 1.0

    with ax.Graph() as graph:
        total = number() + number()
    async with ax.Session(graph, ax.SessionConfig(executor_type="COMPILED")) as session:
        for _ in range(3):
            assert await session.run(total) == 2.0
    assert calls in (1, 3)  # a step, or all of them


def test_pure_op_of_a_stranger_is_refused_still() -> None:
    @ax.op(pure=True)
    def harmless(x: float) -> float:
        return x

    with ax.Graph() as graph:
        harmless(ax.constant(1.0), name="stranger")
    with ax.Graph() as theirs:
        ax.import_graph_def(graph.as_graph_def())
    with ax.BlockingSession(theirs) as session, pytest.raises(ax.errors.PermissionDeniedError, match="harmless"):
        session.run("stranger:0")
