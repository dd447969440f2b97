"""What is compiled has been optimized first: the first runs of a signature are not, and nobody can tell but by time."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.executor.plans import tier
from asyncexec.executor.plans.compiled_plan import CompiledPlan
from asyncexec.executor.plans.region_plan import RegionPlan
from asyncexec.executor.plans.tier import AnyPlan
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.passes.registry import registry
from asyncexec.regions.program import Unit, Value
from tests.fake_time import FakeTime
from tests.regions.programs import TAGGED

ON = ax.SessionConfig(executor_type="COMPILED")
OFF = ax.SessionConfig(executor_type="COMPILED", optimization="off")
CONFIGS = {"on": ON, "off": OFF, "general": TAGGED}
X = np.float32([1, 2, 3])
F = ax.float32


@ax.op(outputs=[ax.float32])
async def later(value: Any) -> Any:
    await asyncio.sleep(0)
    return value


def plan_of(session: ax.Session) -> AnyPlan:
    (prepared,) = session._cache.values()
    plan = prepared.tier.compiled
    assert plan is not None
    return plan


def num_calls(plan: AnyPlan) -> int:
    """How many kernels are called in a step, but for those that are awaited."""
    if isinstance(plan, RegionPlan):
        return sum(num_calls(each) for each in plan._plans)
    lines = [line for lines in plan._code.lines.values() for line in lines.values()]
    return sum(line.node is not None and line.node.op != later.name for line in lines)


@pytest.mark.parametrize("awaits", [False, True])
async def test_equal_nodes_are_called_once(awaits: bool) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [3], name="x")
        y = x * 2.0 + x * 2.0 + ax.exp(ax.constant([0.0, 1.0, 2.0]))
        if awaits:
            y = later(y)
    counts, results = {}, {}
    for name, config in CONFIGS.items():
        async with ax.Session(graph, config) as session:
            results[name] = await session.run(y, {x: X})
            if name != "general":
                counts[name] = num_calls(plan_of(session))
    assert counts == {"off": 5, "on": 3}
    for result in results.values():
        np.testing.assert_array_equal(result, X * 4 + np.exp(np.float32([0, 1, 2])))


@pytest.mark.parametrize(("level", "num_cheap"), [("L1", 2), ("L0", 3)])
async def test_levels(level: Any, num_cheap: int) -> None:
    """L1 merges equal nodes on each device."""
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [3], name="x")
        y = ax.add_n([x * 2.0, x * 2.0])
    async with ax.Session(graph, ax.SessionConfig(executor_type="COMPILED", optimization=level)) as session:
        np.testing.assert_array_equal(await session.run(y, {x: X}), X * 4)
        assert num_calls(plan_of(session)) == num_cheap


@pytest.mark.parametrize("level", ["on", "off"])
async def test_devices_of_one_host_run_as_one(level: Any) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [3], name="x")
        with ax.device("/cpu:1"):
            y = ax.identity(x * 2.0) + x * 2.0
        z = y + x * 2.0
    config = ax.SessionConfig(executor_type="COMPILED", optimization=level, device_count={"CPU": 2})
    async with ax.Session(graph, config) as session:
        np.testing.assert_array_equal(await session.run(z, {x: X}), X * 6)
        assert isinstance(plan_of(session), CompiledPlan)


@pytest.mark.parametrize("awaits", [False, True])
@pytest.mark.parametrize("kind", ["merged", "folded"])
async def test_a_users_op_writes_to_nothing_that_others_got_by_optimizing(kind: str, awaits: bool) -> None:
    """As the user wrote it, the op is alone in having its input; so it may write to that."""
    wrote: list[bool] = []

    @ax.op(outputs=[ax.float32])
    def write(value: Any) -> Any:
        wrote.append(value.flags.writeable)
        if not value.flags.writeable:
            value = value.copy()
        value += 1
        return value

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [3], name="x")
        first, second = (x * 2.0, x * 2.0) if kind == "merged" else (ax.exp(ax.constant(X)), ax.exp(ax.constant(X)))
        y = write(first) + second
        if awaits:
            y = later(y)
    expected = 4 * X + 1 if kind == "merged" else np.exp(X) + (np.exp(X) + np.float32(1))
    for config in (TAGGED, ON):
        async with ax.Session(graph, config) as session:
            for _ in range(3):
                np.testing.assert_array_equal(await session.run(y, {x: X} if kind == "merged" else {}), expected)
    assert wrote == [True] * 3 + [kind == "folded"] * 3  # that is made anew for it


@pytest.mark.parametrize("awaits", [False, True])
async def test_a_plan_is_optimized_after_many_runs(awaits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """And random numbers go on where they were: the kernels that the first runs had are those of the last."""
    monkeypatch.setattr(tier, "OPTIMIZE_AFTER", 3)

    def graph() -> tuple[ax.Graph, ax.Tensor, ax.Tensor]:
        with ax.Graph() as graph:
            x = ax.placeholder(ax.float32, [], name="x")
            drawn = ax.create_op("RandomUniform", [np.int32([2])], attrs={"dtype": ax.float32, "seed": 7, "seed2": 11})
            y = ax.reduce_sum(drawn) + x * 2.0 + x * 2.0
            return graph, x, later(y) if awaits else y

    made, x, y = graph()
    counts, found = [], []
    async with ax.Session(made, clock=FakeTime(1_000).clock) as session:
        while len(counts) < 2:
            found.append(await session.run(y, {x: 1.0}))
            (prepared,) = session._cache.values()
            if prepared.tier.compiled is not None:
                count = num_calls(prepared.tier.compiled)
                counts += [count] if count not in counts else []
        found += [await session.run(y, {x: 1.0}) for _ in range(5)]
    assert counts == [6, 5]
    made, x, y = graph()
    async with ax.Session(made, TAGGED) as session:
        assert found == [await session.run(y, {x: 1.0}) for _ in found]
    assert len(set(found)) == len(found)


async def test_what_cannot_be_optimized_stays_as_it_was_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tier, "OPTIMIZE_AFTER", 3)
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        y = x * 2.0 + 1.0
    async with ax.Session(graph) as session:
        plans: list[Any] = []
        while True:
            assert await session.run(y, {x: 1.0}) == 3.0
            (prepared,) = session._cache.values()
            plans += [] if prepared.tier.compiled in (None, *plans) else [prepared.tier.compiled]
            if plans and not prepared.tier.is_counting:  # it is looked at no more
                break
        assert plans == [prepared.tier.plain]


async def test_where_there_is_nothing_to_compile_runs_are_those_of_the_optimized_graph() -> None:
    scored = []

    @ax.op(outputs=[ax.float32], expensive=True)
    def score(value: Any) -> Any:
        scored.append(value)
        return value * np.float32(2)

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        large = ax.identity(ax.constant(np.zeros(2**18, np.float32)))  # a constant that is not copied by folding it
        with ax.control_dependencies([large]):
            y = score(score(x))  # a single one would be one call with what is around it
    async with ax.Session(graph) as session:
        assert await session.run(y, {x: 1.0}) == 4
        (prepared,) = session._cache.values()
        while prepared.tier.compiled is None:
            assert await session.run(y, {x: 1.0}) == 4
        plan = prepared.tier.compiled
        assert isinstance(plan, RegionPlan)
        ops = [
            {item.node.op for part in each.parts for item in part.view.items}
            for each in (prepared.executor, plan.executor)
        ]
        assert [each & {"Identity", "NoOp"} for each in ops] == [{"Identity"}, set()]
        assert await session.run(y, {x: 3.0}) == 12
    assert len(scored) > 128


async def test_an_error_names_the_node_as_before() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None], name="x")
        y = ax.concat([x * 2.0, x * 2.0], 0, name="joined") + ax.constant([1.0, 2.0], name="two")
    for config in (TAGGED, OFF, ON):
        async with ax.Session(graph, config) as session:
            assert (await session.run(y, {x: [1]})).tolist() == [3, 4]
            with pytest.raises(InvalidArgumentError, match="Incompatible shapes") as caught:
                await session.run(y, {x: [1, 2, 3]})
            assert caught.value.node == y.op.name


async def test_what_a_users_pass_has_changed_is_optimized_too() -> None:
    @ax.graph_pass("POST_PLACEMENT", name="double negatives")
    def remove(graph: ax.PassGraph) -> None:
        for node in graph:
            if node.op == "Neg" and node.inputs[0].op.op == "Neg":
                graph.replace(node, node.inputs[0].op.inputs[0].op)

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [3], name="x")
        y = ax.negative(ax.negative(x * 2.0)) + x * 2.0
    try:
        async with ax.Session(graph, ON) as session:
            np.testing.assert_array_equal(await session.run(y, {x: X}), X * 4)
            assert num_calls(plan_of(session)) == 2
    finally:
        registry.unregister("double negatives")


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
async def test_what_is_made_of_constants_can_be_changed_by_who_gets_it(config: ax.SessionConfig) -> None:
    @ax.op(outputs=[ax.float32])
    def normalized(row: Any) -> Any:
        row -= 2.0
        return row

    with ax.Graph() as graph:
        p = ax.placeholder(F, [2], name="p")
        c = ax.constant(X)
        root, shape, centred = ax.sqrt(c * c), ax.shape(p), normalized(c * 1.0) + p[0]
        handed_on = ax.identity(ax.reshape(ax.exp(c * 0.0), [3, 1]))
    async with ax.Session(graph, config) as session:
        for _ in range(3):
            got = await session.run([root, shape, centred, handed_on], {p: [0, 1]})
            assert [value.tolist() for value in got] == [[1, 2, 3], [2], [-1, 0, 1], [[1], [1], [1]]]
            got[0][0] = got[1][0] = got[3][0] = 99


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
async def test_what_stands_under_the_result_of_a_loop_comes_behind_the_loop(config: ax.SessionConfig) -> None:
    """Which itself waits for a branch; and nothing that a unit takes tells that the loop has come."""
    with ax.Graph() as graph:
        x, q = ax.placeholder(F, [], name="x"), ax.placeholder(ax.bool, [], name="q")
        first = ax.cond(q, lambda: x + 1.0, lambda: x - 2.0)
        _, is_large, _ = ax.while_loop(
            lambda i, b, a: i < 3,
            lambda i, b, a: [i + 1, a > 3.0, a + 1.0],
            [ax.constant(0), ax.constant(False), first],
        )
        inner = ax.cond(is_large, lambda: ax.constant(7.0), lambda: ax.cond(q, lambda: x, lambda: -x))
        _, taken = ax.raw_ops.Switch(data=x, pred=is_large)
        total = ax.raw_ops.AddN(inputs=[x] * 9 + [x * 3.0] * 7 + [taken] * 3)
    async with ax.Session(graph, config) as session:
        for feed, expected in ((2.0, [7.0, 66.0]), (-9.0, [-9.0])):
            assert await session.run(inner, {x: feed, q: True}) == expected[0]
            if len(expected) > 1:
                assert await session.run(total, {x: feed, q: True}) == expected[1]
            else:
                with pytest.raises(InvalidArgumentError, match="dead"):
                    await session.run(total, {x: feed, q: True})


async def test_of_the_structure_of_a_program_nothing_stays() -> None:
    """It would be several objects a node for the collector to look at, as long as the plan is used."""
    with ax.Graph() as graph:
        y = x = ax.placeholder(F, [], name="x")
        for _ in range(5):
            y = ax.cond(y > 0.0, lambda y=y: y - 1.0, lambda y=y: y + 2.0)
    gc.collect()
    before = {id(each) for each in gc.get_objects() if isinstance(each, (Unit, Value))}
    async with ax.Session(graph, ON) as session:
        assert await session.run(y, {x: 3.0}) == 1.0
        assert isinstance(plan_of(session), CompiledPlan)
        gc.collect()
        assert [each for each in gc.get_objects() if isinstance(each, (Unit, Value)) and id(each) not in before] == []
