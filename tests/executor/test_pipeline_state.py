"""Steps of a stream as straight lines: they give what the general executor gives, and go back to it when they must."""

from __future__ import annotations

import asyncio
import gc
import inspect
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import asyncexec as ax
from asyncexec.executor import pipeline_state
from asyncexec.executor.pipeline_state import Line, LineMaker, PipelineState
from asyncexec.framework.clock import monotonic_ns
from asyncexec.framework.kernel import KernelKind
from tests.running import raw_op


class Lines:
    """What plans have been made, and how many steps have run as one."""

    def __init__(self) -> None:
        self.made: list[Line | None] = []
        self.num_steps = 0


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Lines:
    """Without warming up."""
    seen = Lines()
    monkeypatch.setattr(pipeline_state, "_WARM_UP", 0)
    make_line, rest = pipeline_state.make_line, PipelineState.rest

    def make(plan: Any) -> Line | None:
        seen.made.append(make_line(plan))
        return seen.made[-1]

    def count(self: PipelineState) -> bool:
        seen.num_steps += 1
        return rest(self)

    monkeypatch.setattr(pipeline_state, "make_line", make)
    monkeypatch.setattr(PipelineState, "rest", count)
    return seen


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
        patch.setattr(pipeline_state, "_WARM_UP", 0)
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


async def test_a_chain_is_a_line(lines: Lines) -> None:
    x, y = chain(ax.Graph(), lambda v: v + 1, pause, lambda v: v * 2, pause, lambda v: v - 1)
    async with ax.Session(x.graph) as session:
        assert [out async for out in session.map(y, ({x: i} for i in range(20)), window=4)] == [
            2 * i + 1 for i in range(20)
        ]
    assert lines.num_steps == 20


async def test_nodes_that_may_overlap_are_no_line(lines: Lines) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.object, [], name="x")
        both = [raw_op("Pause", pause, kind=KernelKind.ASYNC)(x) for _ in range(2)]
    async with ax.Session(graph) as session:
        assert [out async for out in session.map(both, ({x: i} for i in range(5)))] == [[i, i] for i in range(5)]
    assert lines.num_steps == 0
    assert set(lines.made) == {None}


async def test_node_on_a_worker_thread_is_no_line(lines: Lines) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.object, [], name="x")
        y = raw_op("Work", lambda v: v + 1, is_expensive=True)(x)
    async with ax.Session(graph) as session:
        assert [out async for out in session.map(y, ({x: i} for i in range(5)))] == [1, 2, 3, 4, 5]
    assert lines.num_steps == 0


@pytest.mark.parametrize("on_error", ["raise", "yield"])
@pytest.mark.parametrize("failing", range(5))
async def test_error_names_the_node(lines: Lines, failing: int, on_error: Any) -> None:
    def fail_at_three(value: Any) -> Any:
        if value == 3:
            raise ValueError("no threes")
        return value

    async def fail_later(value: Any) -> Any:
        await asyncio.sleep(0)
        return fail_at_three(value)

    kinds = [lambda v: v, pause, lambda v: v, pause, lambda v: v]
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


async def test_check_of_a_kernel_tells_why_it_failed(lines: Lines) -> None:
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
    assert lines.num_steps == 1
    assert by_map.value.message == f"item 1: {by_run.value.message}"
    assert by_map.value.node == by_run.value.node


async def test_wrong_number_of_outputs(lines: Lines) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.object, [], name="x")
        first, second = raw_op("Two", lambda v: (v, v) if v < 2 else (v,), outputs=2)(x, name="two")
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.InternalError, match="item 2: the kernel gave 1 outputs, but Two has 2") as caught:
            async for _ in session.map([first, second], ({x: i} for i in range(4)), window=1):
                pass
    assert caught.value.node == "two"


async def test_values_are_let_go_of_at_their_last_use(lines: Lines) -> None:
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
    assert lines.num_steps == 1


@pytest.mark.measured_costs
async def test_slow_line_goes_back_to_the_executor_that_measures(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the node is then found out."""
    monkeypatch.setattr(pipeline_state, "_WARM_UP", 1)
    late_ns = 0
    for name, module in list(sys.modules.items()):
        if name.startswith("asyncexec.executor.") and hasattr(module, "monotonic_ns"):
            monkeypatch.setattr(module, "monotonic_ns", lambda: monotonic_ns() + late_ns)

    def slow(value: Any) -> Any:
        nonlocal late_ns
        late_ns += 50_000_000 if value >= 10 else 0
        return value

    x, y = chain(ax.Graph(), lambda v: v, slow)
    async with ax.Session(x.graph) as session:
        assert [out async for out in session.map(y, ({x: i} for i in range(200)), window=1)] == list(range(200))
        assert session.statistics().longest_node == "stage1"
    assert lines.num_steps == 10  # after one by the general executor, up to and including the first slow one
    assert [line is None for line in lines.made] == [False] + [True] * (len(lines.made) - 1)  # it is on a worker thread
    assert len(lines.made) > 1


async def test_stream_that_warms_up_goes_on_as_a_line() -> None:
    x, y = chain(ax.Graph(), lambda v: v + 1, pause)
    kinds: list[type] = []
    start = pipeline_state.LinePropagatorState.activate_roots

    async with ax.Session(x.graph) as session:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                pipeline_state.LinePropagatorState,
                "activate_roots",
                lambda self, feeds, ready: (kinds.append(type(self)), start(self, feeds, ready))[1],
            )
            assert [out async for out in session.map(y, ({x: i} for i in range(200)))] == list(range(1, 201))
    assert 0 < len(kinds) <= 200 - pipeline_state._WARM_UP


async def test_schedule_seed_stays_with_the_general_executor(lines: Lines) -> None:
    x, y = chain(ax.Graph(), lambda v: v + 1, pause)
    async with ax.Session(x.graph, ax.SessionConfig(schedule_seed=1)) as session:
        assert [out async for out in session.map(y, ({x: i} for i in range(5)))] == [1, 2, 3, 4, 5]
    assert not lines.made


def test_longer_warm_up_after_each_slow_line() -> None:
    plan: Any = None
    maker = LineMaker(plan)
    waits: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline_state, "make_line", lambda plan: SlowLine())
        for _ in range(8):
            count = 0
            while maker.line() is None:
                count += 1
                maker.note_step()
            waits.append(count)
    assert waits == [64, 128, 256, 512, 1024, 2048, 4096, 4096]


class SlowLine:
    is_quick = False


@pytest.fixture(autouse=True)
def _no_warnings_of_slowness() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("asyncexec.executor.loop_holds.warn_of_kernel", lambda text: None)
        yield
