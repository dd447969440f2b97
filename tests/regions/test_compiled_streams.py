"""Steps of a stream that are compiled: they give what the general executor gives, and go back to it when they must."""

from __future__ import annotations

import asyncio
import gc
import inspect
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import asyncexec as ax
from asyncexec.executor.plans.compiled_plan import CompiledPlan
from asyncexec.executor.plans.compiled_state import CompiledState
from asyncexec.executor.plans.region_plan import RegionPlan
from asyncexec.executor.plans.tier import AnyPlan
from asyncexec.framework.cooperative import Stage
from asyncexec.framework.kernel import KernelKind
from asyncexec.session.graph_execution_state import GraphExecutionState, PreparedGraph
from tests.running import raw_op


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> Plans:
    """Compiled before the first item."""
    return compile_at_once(monkeypatch)


class Plans:
    """What has been compiled, and how many steps have begun as that."""

    def __init__(self) -> None:
        self.made: list[AnyPlan] = []
        self.num_steps = 0


def compile_at_once(patch: pytest.MonkeyPatch) -> Plans:
    plans = Plans()
    patch.setattr(GraphExecutionState, "compiles_at_once", property(lambda state: state.may_compile))
    compile_plan = GraphExecutionState.compile_plan

    def note_plan(
        state: GraphExecutionState, prepared: PreparedGraph, *given: Any, **options: Any
    ) -> Stage[AnyPlan | None]:
        plan = yield from compile_plan(state, prepared, *given, **options)
        plans.made += [] if plan is None else [plan]
        return plan

    patch.setattr(GraphExecutionState, "compile_plan", note_plan)
    for kind, method in [(CompiledState, "__init__"), (CompiledState, "restart"), (RegionPlan, "start")]:
        count(patch, kind, method, plans)
    return plans


def count(patch: pytest.MonkeyPatch, kind: Any, method: str, plans: Plans) -> None:
    call = getattr(kind, method)

    def counting(*arguments: Any) -> Any:
        plans.num_steps += 1
        return call(*arguments)

    patch.setattr(kind, method, counting)


# A node: (is async, inputs as indices of values before it, number of outputs, nodes that it waits for)
Nodes = list[tuple[bool, list[int], int, list[int]]]
nodes = st.lists(
    st.tuples(
        st.booleans(),
        st.lists(st.integers(0, 20), max_size=3),
        st.integers(0, 3),
        st.lists(st.integers(0, 20), max_size=2),
    ),
    min_size=1,
    max_size=10,
)


def symbolic_graph(drawn: Nodes, fetched: list[int]) -> tuple[ax.Graph, list[ax.Tensor], list[ax.Tensor]]:
    """Nodes whose values tell how they came about; what is fed, and what is fetched."""

    def give(name: str, num_outputs: int, args: tuple[Any, ...]) -> Any:
        outputs = tuple(f"{name}:{i}({','.join(args)})" for i in range(num_outputs))
        return outputs[0] if num_outputs == 1 else outputs

    def inline(name: str, num_outputs: int) -> Any:
        return raw_op("Inline", lambda *args: give(name, num_outputs, args), outputs=num_outputs)

    def awaited(name: str, num_outputs: int) -> Any:
        async def kernel(*args: Any) -> Any:
            await asyncio.sleep(0)
            return give(name, num_outputs, args)

        return raw_op("Awaited", kernel, outputs=num_outputs, kind=KernelKind.ASYNC)

    with ax.Graph() as graph:
        feeds = [ax.placeholder(ax.object, [], name=f"feed{i}") for i in range(2)]
        values: list[ax.Tensor] = [*feeds, ax.constant("c", ax.object)]
        operations: list[ax.Operation] = []
        for number, (is_async, inputs, num_outputs, controls) in enumerate(drawn):
            before = [operations[i % len(operations)] for i in controls] if operations else []
            with ax.control_dependencies(before):
                make = (awaited if is_async else inline)(f"n{number}", num_outputs)
                make(*[values[i % len(values)] for i in inputs], name=f"n{number}")
            operations.append(graph.operation(f"n{number}"))
            values += operations[-1].outputs
        return graph, feeds, [values[i % len(values)] for i in fetched]


@given(drawn=nodes, fetched=st.lists(st.integers(0, 20), min_size=1, max_size=4), ordered=st.booleans())
@settings(max_examples=150, deadline=None)
def test_random_graphs_give_what_the_general_executor_gives(drawn: Nodes, fetched: list[int], ordered: bool) -> None:
    async def main() -> None:
        graph, feeds, tensors = symbolic_graph(drawn, fetched)
        targets = {"values": tensors, "last": graph.operation(f"n{len(drawn) - 1}")}
        items = [{feeds[0]: f"a{i}", feeds[1]: f"b{i}"} for i in range(6)]
        async with ax.Session(graph) as session:
            by_run = [await session.run(targets, item) for item in items]
            found = [out async for out in session.map(targets, items, window=2, ordered=ordered)]
        assert found == by_run if ordered else sorted(map(str, found)) == sorted(map(str, by_run))

    with pytest.MonkeyPatch.context() as patch:
        compile_at_once(patch)
        asyncio.run(main())


def chain(graph: ax.Graph, *stages: Any) -> tuple[ax.Tensor, ax.Tensor]:
    """What is fed and fetched of *stages*, kernels, one behind the other; async functions are async nodes."""
    with graph:
        x = y = ax.placeholder(ax.object, [], name="x")
        for number, stage in enumerate(stages):
            kind = KernelKind.ASYNC if inspect.iscoroutinefunction(stage) else KernelKind.CHEAP
            y = raw_op("Stage", stage, kind=kind)(y, name=f"stage{number}")
        return x, y


async def pause(value: Any) -> Any:
    await asyncio.sleep(0)
    return value


async def test_what_lies_between_async_nodes_is_compiled(plans: Plans) -> None:
    x, y = chain(ax.Graph(), *[lambda v: v + 1] * 2, pause, *[lambda v: v * 2] * 2, pause, *[lambda v: v - 1] * 2)
    async with ax.Session(x.graph) as session:
        assert [out async for out in session.map(y, ({x: i} for i in range(20)), window=4)] == [
            4 * i + 6 for i in range(20)
        ]
    (plan,) = plans.made
    assert isinstance(plan, CompiledPlan)
    assert plans.num_steps == 20


async def test_cheap_nodes_alone_are_one_function(plans: Plans) -> None:
    x, y = chain(ax.Graph(), *[lambda v: v + 1] * 3)
    async with ax.Session(x.graph) as session:
        assert [out async for out in session.map(y, ({x: i} for i in range(20)), window=4)] == list(range(3, 23))
    (plan,) = plans.made
    assert isinstance(plan, CompiledPlan)
    assert plans.num_steps == 20


async def test_states_go_from_step_to_step(plans: Plans) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        total = ax.stream_state(np.float32(0))
        y = total.update(total.value + x) * 2.0
    async with ax.Session(graph) as session:
        found = [out async for out in session.map(y, ({x: i} for i in range(6)), window=4)]
    assert found == [0, 2, 6, 12, 20, 30]
    assert plans.num_steps == 1 + 6  # one gives what the state begins with


async def test_a_loop_of_many_rounds_goes_on_in_slices(plans: Plans) -> None:
    with ax.Graph() as graph:
        n = ax.placeholder(ax.int32, [], name="n")
        y = ax.while_loop(lambda i: i < n, lambda i: i + 1, [np.int32(0)])
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    async with ax.Session(graph, ax.SessionConfig(slice_ms=0.1)) as session:
        found = [out async for out in session.map(y, [{n: 20_000}, {n: 3}, {n: 20_000}], window=2)]
    counting.cancel()
    assert [int(value) for (value,) in map(np.atleast_1d, found)] == [20_000, 3, 20_000]
    assert plans.num_steps == 3
    assert turns > 5


@pytest.mark.parametrize("on_error", ["raise", "yield"])
@pytest.mark.parametrize("failing", range(8))
async def test_error_names_the_node(plans: Plans, failing: int, on_error: Any) -> None:
    def fail_at_three(value: Any) -> Any:
        if value == 3:
            raise ValueError("no threes")
        return value

    async def fail_later(value: Any) -> Any:
        await asyncio.sleep(0)
        return fail_at_three(value)

    kinds = [*[lambda v: v] * 2, pause, *[lambda v: v] * 2, pause, *[lambda v: v] * 2]
    stages = [
        (fail_later if kind is pause else fail_at_three) if i == failing else kind for i, kind in enumerate(kinds)
    ]
    x, y = chain(ax.Graph(), *stages)
    seen: list[Any] = []
    async with ax.Session(x.graph) as session:
        try:
            async for out in session.map(y, ({x: i} for i in range(6)), window=2, on_error=on_error):
                seen.append(out)
        except ax.errors.InvalidArgumentError as error:
            seen.append(error)
    error = seen[3]
    assert isinstance(error, ax.errors.InvalidArgumentError)
    assert (error.node, error.message) == (f"stage{failing}", "item 3: ValueError: no threes")
    assert seen == [0, 1, 2, error] + ([4, 5] if on_error == "yield" else [])
    assert plans.num_steps > 0


async def test_check_of_a_kernel_tells_why_it_failed(plans: Plans) -> None:
    """What a kernel had for inputs is found again, be they constants, feeds, or values of nodes before it."""
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None], name="x")
        y = ax.concat([x * 2.0, x], 0) + ax.constant([1.0, 2.0], name="two")
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.InvalidArgumentError) as by_run:
            await session.run(y, {x: [1, 2, 3]})
        with pytest.raises(ax.errors.InvalidArgumentError) as by_map:
            async for _ in session.map(y, [{x: [1]}, {x: [1, 2, 3]}]):
                pass
    assert plans.num_steps == 1 + 2
    assert by_map.value.message == f"item 1: {by_run.value.message}"
    assert by_map.value.node == by_run.value.node


async def test_wrong_number_of_outputs(plans: Plans) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.object, [], name="x")
        first, second = raw_op("Two", lambda v: (v, v) if v < 2 else (v,), outputs=2)(x, name="two")
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.InternalError, match="item 2: the kernel gave 1 outputs, but Two has 2") as caught:
            async for _ in session.map([first, second], ({x: i} for i in range(4)), window=1):
                pass
    assert caught.value.node == "two"


async def test_values_are_let_go_of_at_their_last_use(plans: Plans) -> None:
    alive: list[weakref.ref[Any]] = []
    seen: list[list[bool]] = []

    def make(value: Any) -> Any:
        array = np.zeros(4)
        alive.append(weakref.ref(array))
        return array

    async def look(value: Any) -> Any:
        seen.append([reference() is not None for reference in alive])
        return value

    with ax.Graph() as graph:
        x = ax.placeholder(ax.object, [], name="x")
        used_early = raw_op("Make", make)(x)
        small = raw_op("Sum", lambda v: float(v.sum()))(used_early)
        kept = raw_op("Make", make)(x)
        looked = raw_op("Look", look, kind=KernelKind.ASYNC)(small)
        y = raw_op("Join", lambda a, b: (a, b.sum())[1])(looked, kept)
    gc.disable()
    try:
        async with ax.Session(graph) as session:
            async for _ in session.map(y, [{x: 0}], window=1):
                pass
            assert seen == [[False, True]]
            assert [reference() for reference in alive] == [None, None]
    finally:
        gc.enable()
    assert plans.num_steps == 1


async def test_a_plan_that_holds_the_loop_is_left(plans: Plans) -> None:
    """Items that have begun end as they are; those behind them are the general executor's."""

    def notice(value: Any) -> Any:
        if value == 10:
            (plan,) = plans.made
            assert isinstance(plan, CompiledPlan)
            plan.is_quick = False
        return value

    x, y = chain(ax.Graph(), lambda v: v, notice)
    async with ax.Session(x.graph) as session:
        found: list[Any] = []
        async with session.stream(y) as stream:
            for i in range(20):
                await stream.send({x: i})
                found.append(await anext(stream))
    assert found == list(range(20))
    assert plans.num_steps == 11


async def test_a_stream_goes_on_compiled() -> None:
    x, y = chain(ax.Graph(), *[lambda v: v + 1] * 2, pause)
    plans = Plans()
    with pytest.MonkeyPatch.context() as patch:
        count(patch, CompiledState, "__init__", plans)
        async with ax.Session(x.graph) as session, session.stream(y) as stream:
            num_items = 0
            while not plans.num_steps:
                await stream.send({x: num_items})
                assert await anext(stream) == num_items + 2
                num_items += 1
    assert num_items > 1


async def test_schedule_seed_stays_with_the_general_executor(plans: Plans) -> None:
    x, y = chain(ax.Graph(), lambda v: v + 1, pause)
    async with ax.Session(x.graph, ax.SessionConfig(schedule_seed=1)) as session:
        assert [out async for out in session.map(y, ({x: i} for i in range(5)))] == [1, 2, 3, 4, 5]
    assert not plans.made
