"""Passes of users: where they run, what they may do, and what those get that break the graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import asyncexec as ax
from asyncexec.passes.registry import PassRegistry, registry
from tests.passes.rewriting import graph_of
from tests.running import import_all_names

MODEL = """
    x: Placeholder[float32, [?]]
    checked: CheckNumerics[message='no'](x)
    y: Square(checked)
    z: Neg(y)
    unneeded: Exp(y)
"""


@pytest.fixture(scope="module", autouse=True)
def all_names() -> None:
    import_all_names()


@pytest.fixture(autouse=True)
def no_passes_left() -> Iterator[None]:
    before = [each.name for each in registry]
    yield
    for name in [each.name for each in registry if each.name not in before]:
        registry.unregister(name)


async def run(text: str, fetches: Any, feeds: Any, **config: Any) -> tuple[Any, ax.RunMetadata]:
    metadata = ax.RunMetadata()
    async with ax.Session(graph_of(text), ax.SessionConfig(**config)) as session:
        return await session.run(fetches, feeds, metadata=metadata), metadata


@pytest.mark.parametrize("grouping", ["PRE_PLACEMENT", "POST_PLACEMENT", "POST_REWRITE_FOR_EXEC", "POST_PARTITIONING"])
@pytest.mark.parametrize("medium", ["call_frame", "rendezvous"])
@pytest.mark.parametrize("devices", [1, 2])
async def test_a_pass_changes_what_runs(grouping: str, medium: str, devices: int) -> None:
    @ax.graph_pass(grouping, name="cube")
    def cube(graph: ax.PassGraph) -> None:
        for node in graph:
            if node.op == "Square":
                x = node.inputs[0]
                cubed = graph.add("Mul", [x, graph.add("Mul", [x, x]).outputs[0]], name="cubed")
                graph.replace(node, cubed)

    text = MODEL.replace("z: Neg(y)", f"z: Neg(y) @ /cpu:{devices - 1}")
    value, metadata = await run(text, "z:0", {"x:0": [2.0]}, feed_fetch_medium=medium, device_count={"CPU": devices})
    assert value.tolist() == [-8.0]
    stats = [each for each in metadata.passes if each.name == "cube"]
    changed = next(each for each in stats if each.num_added)
    assert (changed.num_added, changed.num_removed) == (2, 1)
    assert changed.num_nodes_after == changed.num_nodes_before + 1
    assert {"+cubed", "-y"} <= set(changed.examples)


async def test_passes_run_by_phase_and_then_in_the_order_of_registration() -> None:
    ran: list[str] = []
    for name, phase in (("b", 1), ("c", 1), ("a", 0), ("d", 7)):
        ax.graph_pass("POST_PLACEMENT", phase, name)(lambda graph, name=name: ran.append(name))
    await run(MODEL, "z:0", {"x:0": [2.0]})
    assert ran == ["a", "b", "c", "d"]


async def test_a_pass_may_be_a_generator_which_lets_others_have_the_loop() -> None:
    @ax.graph_pass("POST_PLACEMENT")
    def slow(graph: ax.PassGraph) -> Any:
        for node in graph:
            if node.op == "CheckNumerics":
                graph.replace(node, node.inputs[0])
            yield
        return graph

    value, metadata = await run(MODEL, ["y:0", "z:0"], {"x:0": [float("inf")]})
    assert [each.tolist() for each in value] == [[float("inf")], [-float("inf")]]
    assert next(each for each in metadata.passes if each.name == "slow").num_removed == 1


async def test_the_graph_of_the_user_stays_as_it_is() -> None:
    @ax.graph_pass("POST_PLACEMENT")
    def drop_checks(graph: ax.PassGraph) -> None:
        for node in graph:
            if node.op == "CheckNumerics":
                graph.replace(node, node.inputs[0])

    graph = graph_of(MODEL)
    before = graph.as_graph_def()
    async with ax.Session(graph) as session:
        await session.run("z:0", {"x:0": [1.0]})
        registry.unregister("drop_checks")
        assert graph.as_graph_def() == before
        with pytest.raises(ax.errors.InvalidArgumentError, match="no"):
            await session.run("y:0", {"x:0": [float("nan")]})


async def test_what_comes_of_a_feed_can_be_changed() -> None:
    @ax.graph_pass("POST_PLACEMENT")
    def double_feeds(graph: ax.PassGraph) -> None:
        for feed in graph.feeds:
            graph.replace(feed, graph.add("Mul", [feed, 2.0]))

    value, _ = await run(MODEL, ["z:0", "x:0"], {"x:0": [3.0]})
    assert [each.tolist() for each in value] == [[-36.0], [3.0]]


async def test_a_pass_may_add_what_runs_for_its_own_sake() -> None:
    seen: list[float] = []

    @ax.op(outputs=[])
    def note(value: Any) -> None:
        seen.append(float(value))

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        y = ax.negative(x, name="y")
        note(x, name="noted")

    @ax.graph_pass("POST_PLACEMENT")
    def count(graph: ax.PassGraph) -> None:
        for node in graph:
            if node.name == "y":
                size = graph.add("Print", [node.outputs[0], [node.outputs[0]]], {"message": "y is"})
                graph.add_target(size)

    async with ax.Session(graph) as session:
        metadata = ax.RunMetadata()
        options = ax.RunOptions(trace=True)
        assert await session.run(y, {x: 2.0}, options=options, metadata=metadata) == -2
    ran = [stats.node_name for stats in metadata.step_stats.dev_stats[0].node_stats]
    assert "Print" in ran
    assert "noted" not in ran


def wrong_dtype(graph: ax.PassGraph) -> None:
    node = graph.node("y")
    graph.replace(node.inputs[0], graph.add("Cast", [node.inputs[0]], {"DstT": ax.int32}))


def removes_what_is_needed(graph: ax.PassGraph) -> None:
    graph.remove(graph.node("checked"))


def closes_a_cycle(graph: ax.PassGraph) -> None:
    graph.set_inputs(graph.node("checked"), [graph.node("z").outputs[0]])


def takes_too_many(graph: ax.PassGraph) -> None:
    node = graph.node("y")
    graph.set_inputs(node, [*node.inputs, *node.inputs])


def changes_a_fetch(graph: ax.PassGraph) -> None:
    graph.replace(graph.node("z"), graph.add("Shape", [graph.node("z").outputs[0]]))


def loses_a_fetch(graph: ax.PassGraph) -> None:
    graph.fetches.pop()


def gives_a_name_twice(graph: ax.PassGraph) -> None:
    graph.node("y").name = "z"


BREAKS = {
    wrong_dtype: ("y", "input 0 is int32, and Square takes float32"),
    removes_what_is_needed: ("y", "its input 'checked' is not in the graph"),
    closes_a_cycle: ("y", "or is in a cycle without NextIteration"),
    takes_too_many: ("y", "takes 1 inputs, and has 2"),
    changes_a_fetch: ("Shape", "fetch 'z:0' is float32, and was made int32"),
    loses_a_fetch: (None, "not as many of each fetch"),
    gives_a_name_twice: ("z", "there are two nodes 'z'"),
}


@pytest.mark.parametrize("broken", BREAKS, ids=lambda broken: broken.__name__)
async def test_a_pass_that_breaks_the_graph_is_named(broken: Callable[[Any], None]) -> None:
    node, message = BREAKS[broken]
    ax.graph_pass("POST_PLACEMENT")(broken)
    async with ax.Session(graph_of(MODEL)) as session:
        with pytest.raises(ax.errors.InvalidArgumentError) as caught:
            await session.run("z:0", {"x:0": [1.0]})
        assert f"graph pass {broken.__name__!r} broke the graph" in caught.value.message
        assert message in caught.value.message
        if broken is not closes_a_cycle:
            assert caught.value.node == node
        registry.unregister(broken.__name__)
        assert (await session.run("z:0", {"x:0": [1.0]})).tolist() == [-1.0]


async def test_a_pass_that_raises_is_named_and_its_error_kept() -> None:
    class OurError(Exception):
        pass

    @ax.graph_pass("POST_PLACEMENT")
    def fails(graph: ax.PassGraph) -> None:
        raise OurError("not today")

    with pytest.raises(OurError) as caught:
        await run(MODEL, "z:0", {"x:0": [1.0]})
    assert caught.value.__notes__ == ["in graph pass 'fails'"]


@pytest.mark.parametrize(
    ("add", "error", "message"),
    [
        (lambda g, x: g.add("Sqare", [x]), ax.errors.NotFoundError, "did you mean Square"),
        (lambda g, x: g.add("Square", [x, x]), ax.errors.InvalidArgumentError, "Square takes 1 inputs, not 2"),
        (lambda g, x: g.add("Cast", [x]), ax.errors.InvalidArgumentError, "missing attr 'DstT'"),
        (lambda g, x: g.add("LogicalNot", [x]), ax.errors.InvalidArgumentError, "is bool, not float32"),
        (lambda g, x: g.node("checkd"), ax.errors.NotFoundError, "did you mean 'checked'"),
    ],
)
async def test_mistakes_are_told(add: Any, error: type[Exception], message: str) -> None:
    ax.graph_pass("POST_PLACEMENT", name="wrong")(lambda graph: add(graph, graph.feeds[0]) and None)
    with pytest.raises(error, match=message) as caught:
        await run(MODEL, "z:0", {"x:0": [1.0]})
    assert caught.value.__notes__ == ["in graph pass 'wrong'"]


async def test_a_pass_returns_the_graph_that_it_was_given() -> None:
    ax.graph_pass("POST_PLACEMENT", name="wrong")(lambda graph: "done")
    with pytest.raises(ax.errors.InvalidArgumentError, match="'wrong' returned str"):
        await run(MODEL, "z:0", {"x:0": [1.0]})


async def test_consumers_and_lists_of_inputs() -> None:
    found: dict[str, list[str]] = {}

    @ax.graph_pass("PRE_PLACEMENT")
    def look(graph: ax.PassGraph) -> None:
        y = graph.node("y").outputs[0]
        found["y"] = [node.name for node in graph.consumers(y)]
        doubled = graph.add("AddN", [[y, y]], name="doubled")
        found["attrs"] = [str(doubled.attrs["N"]), doubled.attrs["T"].name]
        graph.replace(y, doubled)
        found["after"] = [node.name for node in graph.consumers(doubled)]
        assert len(graph) == 4
        assert doubled in graph

    value, _ = await run(MODEL, "z:0", {"x:0": [3.0]})
    assert value.tolist() == [-18.0]
    assert found == {"y": ["z"], "attrs": ["2", "float32"], "after": ["z"]}


async def test_the_whole_graph_after_each_pass_on_demand() -> None:
    ax.graph_pass("POST_PLACEMENT", name="nothing")(lambda graph: None)
    metadata = ax.RunMetadata()
    async with ax.Session(graph_of(MODEL)) as session:
        await session.run("z:0", {"x:0": [1.0]}, metadata=metadata)
        assert [each.graph for each in metadata.passes] == [None] * len(metadata.passes)
        options = ax.RunOptions(output_pass_graphs=True)
        await session.run("z:0", {"x:0": [1.0]}, options=options, metadata=metadata)
    assert [each.name for each in metadata.passes] == ["prune", "lower_functional_ops", "nothing", "partition"]
    for each in metadata.passes:
        assert each.graph is not None
        assert [node.name for node in each.graph.node] == ["x", "checked", "y", "z"]
    assert (metadata.passes[0].num_nodes_before, metadata.passes[0].num_nodes_after) == (5, 3)


@pytest.mark.parametrize(
    ("optimization", "names"),
    [
        ("on", {"optimize_partition", "fold_constants"}),
        ("L1", {"optimize_partition"}),
        ("L0", set()),
        ("off", set()),
    ],
)
async def test_levels_of_optimization(optimization: Any, names: set[str]) -> None:
    metadata = ax.RunMetadata()
    async with ax.Session(graph_of(MODEL), ax.SessionConfig(optimization=optimization)) as session:
        session._state.optimizes = True
        await session.run("z:0", {"x:0": [1.0]}, metadata=metadata)
    ran = {each.name for each in metadata.passes}
    assert ran & {"optimize_partition", "fold_constants"} == names


def test_registry_refuses_what_it_cannot_place() -> None:
    with pytest.raises(ax.errors.InvalidArgumentError, match="no grouping 'POST_OFFICE'"):
        ax.graph_pass("POST_OFFICE")
    with pytest.raises(ax.errors.InvalidArgumentError, match="a phase is an integer"):
        ax.graph_pass("POST_PLACEMENT", phase=1.5)  # type: ignore[arg-type]
    ax.graph_pass("POST_PLACEMENT", name="one")(lambda graph: None)
    with pytest.raises(ax.errors.AlreadyExistsError, match="'one'"):
        ax.graph_pass("PRE_PLACEMENT", name="one")(lambda graph: None)
    with pytest.raises(ax.errors.NotFoundError, match="'two'"):
        PassRegistry().unregister("two")
