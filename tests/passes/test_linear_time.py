"""All passes together take work in proportion to the graph, and not much more than its import: calls are counted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import asyncexec as ax
from asyncexec.framework.cooperative import STRIDE, Stage, run_at_once, run_in_slices
from asyncexec.framework.graph_def import GraphDef, NodeDef, make_attr
from asyncexec.framework.resource_mgr import ResourceMgr
from asyncexec.passes.pipeline import Pipeline, Prepared
from asyncexec.passes.registry import Level
from asyncexec.session.graph_execution_state import GraphExecutionState
from tests.fake_time import FakeTime
from tests.graph.test_linear_time import FLOAT, X, backwards, calls_made, chain, fan_out, ladder, loops, node, one_wide
from tests.session.turns import turns_during


def identities(count: int) -> list[NodeDef]:
    """A wide sum of identities: all of its inputs are replaced."""
    attrs = {"T": FLOAT, "N": make_attr("i", count // 2)}
    parts = [
        each for i in range(count // 2) for each in (node(f"a{i}", "Neg", "x"), node(f"i{i}", "Identity", f"a{i}"))
    ]
    return [X, *parts, NodeDef(name="n0", op="AddN", input=tuple(f"i{i}" for i in range(count // 2)), attr=attrs)]


def constants(count: int) -> list[NodeDef]:
    """A chain that folds, node by node, with a control edge now and then."""
    with ax.Graph() as graph:
        value = ax.constant(1.0, name="one")
        for i in range(count):
            value = ax.negative(value, name=f"n{i}")
    return list(graph.as_graph_def().node)


def waiting(count: int) -> list[NodeDef]:
    """Each node waits for many others, which are implied by one."""
    nodes = [X, node("n0", "Neg", "x")]
    for i in range(1, count):
        controls = (f"^n{j}" for j in range(max(0, i - 8), i))
        nodes.append(NodeDef(name=f"n{i}", op="Neg", input=(f"n{i - 1}", *controls), attr={"T": FLOAT}))
    return nodes


def imported(graph_def: GraphDef) -> ax.Graph:
    with ax.Graph() as graph:
        ax.import_graph_def(graph_def)
    return graph


def ends(graph: ax.Graph) -> list[ax.Tensor]:
    taken = {tensor.op for each in graph.operations for tensor in each.inputs}
    return [each.outputs[0] for each in graph.operations if each not in taken and each.op != "Placeholder"]


def pipeline_of(graph: ax.Graph) -> Callable[[Level], Stage[Prepared]]:
    """What runs the pipeline, from x to all ends."""
    state = GraphExecutionState(graph, ax.SessionConfig(), ResourceMgr())
    feeds = [graph.tensor("x:0")] if "x" in graph else []
    return lambda level: state.pipeline.run(feeds, ends(graph), [], level)


def calls_of_passes(graph_def: GraphDef) -> int:
    """The calls that optimizing takes, beyond what is done without."""
    run = pipeline_of(imported(graph_def))
    plain = calls_made(lambda: run_at_once(run(Level.ALWAYS)))
    return calls_made(lambda: run_at_once(run(Level.WHOLE))) - plain


@pytest.fixture(autouse=True)
def as_users_run_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pipeline, "always_verifies_each", False)


SHAPES = [chain, backwards, fan_out, ladder, one_wide, loops, identities, constants, waiting]


@pytest.mark.parametrize("shape", SHAPES)
def test_twice_the_nodes_take_twice_the_calls_and_they_are_few(shape: Callable[[int], list[NodeDef]]) -> None:
    tiny, small, large = (GraphDef(node=tuple(shape(count))) for count in (100, 1_000, 2_000))
    calls_of_passes(tiny)  # what is done once is done
    few, many = calls_of_passes(small), calls_of_passes(large)
    size = len(large.node) + sum(len(each.input) for each in large.node)
    assert many < 2.2 * few
    assert many < 50 * size


@pytest.mark.parametrize("shape", SHAPES)
async def test_others_have_their_turns_meanwhile(shape: Callable[[int], list[NodeDef]]) -> None:
    run = pipeline_of(imported(GraphDef(node=tuple(shape(1_000)))))
    turns, _ = await turns_during(run_in_slices(run(Level.WHOLE), FakeTime(10**9).clock))
    assert turns > 15 * 1_000 // STRIDE  # in each of the passes
