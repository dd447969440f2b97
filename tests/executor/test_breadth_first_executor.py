"""The executor BREADTH_FIRST: one node at a time, in breadth-first order by in-degree."""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncexec as ax

GOLDEN = Path(__file__).parents[1] / "golden" / "pnnx"
CONFIG = ax.SessionConfig(executor_type="BREADTH_FIRST", slow_inline_ms=60_000)

order: list[str] = []


@ax.op
def operator(title: str, *inputs: float) -> float:
    """Notes that it runs."""
    order.append(title)
    return sum(inputs, start=1.0)


def chain(title: str, *inputs: ax.Tensor) -> ax.Tensor:
    """A node *title*."""
    tensor: ax.Tensor = operator(ax.constant(title), *inputs)
    return tensor


@pytest.mark.parametrize(("made", "expected"), [("234", "1234567"), ("432", "1432657")])
async def test_the_example_of_the_notes(made: str, expected: str) -> None:
    """Of op1 come op2, op3 and op4, in the order in which they were made; op5 is after op2, op6 after op3 and op4."""
    order.clear()
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        op1 = chain("op1", x)
        made_first = {number: chain(f"op{number}", op1) for number in made}
        op5, op6 = chain("op5", made_first["2"]), chain("op6", made_first["3"], made_first["4"])
        op7 = chain("op7", op5, op6)
    async with ax.Session(graph, CONFIG) as session:
        assert await session.run(op7, {x: 0.0}) == 9.0
    assert order == [f"op{number}" for number in expected]


async def test_a_short_way_does_not_overtake() -> None:
    """What is ready first runs first, also where another input comes late: d waits for c, though b is done early."""
    order.clear()
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        a = chain("a", x)
        b, c1 = chain("b", a), chain("c1", a)
        c2 = chain("c2", c1)
        d, e = chain("d", b, c2), chain("e", b)
        total = chain("total", d, e)
    async with ax.Session(graph, CONFIG) as session:
        await session.run(total, {x: 0.0})
    assert order == ["a", "b", "c1", "e", "c2", "d", "total"]


def breadth_first(operators: Any) -> list[str]:
    """The order of a network, by the plain algorithm on its file."""
    producers = {operand.name: each.name for each in operators.values() for operand in each.outputs}
    missing = {name: len({producers[operand.name] for operand in each.inputs}) for name, each in operators.items()}
    queue, found = deque(name for name, count in missing.items() if not count), []
    while queue:
        name = queue.popleft()
        found.append(name)
        for consumer in operators[name].consumers:
            missing[consumer] -= 1
            if not missing[consumer]:
                queue.append(consumer)
    return found


@pytest.mark.parametrize("name", ["unet", "detect", "small"])
async def test_the_order_of_a_network_in_its_trace(name: str) -> None:
    model = await asyncio.to_thread(ax.load_pnnx, GOLDEN / f"{name}.pnnx.param")
    with ax.Graph() as graph:
        ax.import_graph_def(model.graph_def)
    (x,) = model.signatures["serving_default"].inputs.values()
    metadata = ax.RunMetadata()
    async with ax.Session(graph, CONFIG) as session:
        feeds = {x.name: np.ones([1, *(x.shape.as_list() or [])[1:]], np.float32)}
        await session.run("pnnx_output_0:0", feeds, options=ax.RunOptions(trace=True), metadata=metadata)
    stats = [each for device in metadata.step_stats.dev_stats for each in device.node_stats]
    ran = [each.node_name for each in stats if each.node_name in model.operators]
    assert ran == [each for each in breadth_first(model.operators) if each != "pnnx_input_0"]
    for before, after in pairwise(stats):  # one at a time
        assert before.all_start_micros <= after.all_start_micros


async def test_a_value_that_comes_late_holds_nothing_up() -> None:
    order.clear()
    with ax.Graph() as graph:
        late, early = (ax.placeholder(ax.float64, [], name=name) for name in ("late", "early"))
        first = chain("after early", early)
        total = chain("total", chain("after late", late), first)
    async with ax.Session(graph, CONFIG) as session, session.partial_run([total, first], [late, early]) as step:
        await step.feed({early: 1.0})
        assert await step.fetch(first) == 2.0
        assert order == ["after early"]
        await step.feed({late: 1.0})
        assert await step.fetch(total) == 5.0
    assert order == ["after early", "after late", "total"]


async def test_two_devices_wait_for_each_other() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        with ax.device("/cpu:0"):
            a = x + 1.0
        with ax.device("/cpu:1"):
            b = a * 2.0
        with ax.device("/cpu:0"):
            c = b + a
        with ax.device("/cpu:1"):
            d = c * b
    config = ax.SessionConfig(executor_type="BREADTH_FIRST", device_count={"CPU": 2})
    async with ax.Session(graph, config) as session:
        assert await session.run(d, {x: 1.0}) == 24.0


async def test_a_failure_names_its_node_and_ends_the_step() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None], name="x")
        y = ax.reshape(x, [3], name="bad") + 1.0
    async with ax.Session(graph, CONFIG) as session:
        with pytest.raises(ax.errors.InvalidArgumentError) as caught:
            await session.run(y, {x: [1.0, 2.0]})
        assert caught.value.node == "bad"
        np.testing.assert_array_equal(await session.run(y, {x: [1.0, 2.0, 3.0]}), [2, 3, 4])


async def test_a_cancelled_step_leaves_nothing() -> None:
    started = asyncio.Event()

    @ax.op
    async def wait(x: float) -> float:
        started.set()
        await asyncio.Event().wait()
        return x

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        y = wait(x)
    async with ax.Session(graph, CONFIG) as session:
        task = asyncio.create_task(session.run(y, {x: 1.0}))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_branches_and_no_loops() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        y = ax.cond(x > 0, lambda: ax.sqrt(x), lambda: -x)
        looped = ax.while_loop(lambda i: i < 3.0, lambda i: [i + 1.0], [x])
    async with ax.Session(graph, CONFIG) as session:
        assert await session.run(y, {x: 9.0}) == 3.0
        assert await session.run(y, {x: -2.0}) == 2.0
        with pytest.raises(ax.errors.UnimplementedError, match="only the built-in executors run loops"):
            await session.run(looped, {x: 0.0})
