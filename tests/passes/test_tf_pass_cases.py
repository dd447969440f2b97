"""What TensorFlow's tests of the pass registry and of GraphRunner prove.

``CASES`` tells for each case of optimization_registry_test.cc and graph_runner_test.cc which test has its meaning.
There is no GraphRunner: what passes need is folded, and a session runs the rest.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.op_def import NameAttrList
from asyncexec.passes.fold_constants import fold_constants
from asyncexec.passes.registry import registry
from tests.case_table import missing_tests
from tests.optimization.function_text import function, load, node, placeholder
from tests.passes.rewriting import graph_of, rewritten

CASES: Final[dict[str, str]] = {
    "OptimizationRegistry.OptimizationPass": "test_a_registered_pass_runs_once_in_its_grouping",
    # A pass cannot add functions to the library, which is the user's: it adds the nodes themselves.
    "OptimizationPassTest.UpdateFuncLibPass": "test_a_pass_calls_functions_and_the_library_stays_as_it_is",
    "GraphRunnerTest.SingleConst": "test_graphs_that_are_run_once",
    "GraphRunnerTest.DeepCopy": "test_a_result_is_of_its_own",
    "GraphRunnerTest.MultiFetchConst": "test_graphs_that_are_run_once",
    "GraphRunnerTest.FeedAndFetch": "test_graphs_that_are_run_once",
}
F: Final = ax.float32
X_TIMES_TWO: Final = function(
    "XTimesTwo(x: T) -> y: T", node("y", "AddV2", "x x", T="$T"), ret="y=y:z:0", attrs="T: type"
)
SUM: Final = """
    p1: Placeholder[float32, []]
    p2: Placeholder[float32, []]
    add: AddV2(p1, p2)
"""
CONSTANTS: Final = "c: Const[42.0]\npi: Const[3.14]"


def test_every_case_has_its_test() -> None:
    assert missing_tests(CASES, __name__) == []


@pytest.mark.parametrize("grouping", ["PRE_PLACEMENT", "POST_PLACEMENT", "POST_REWRITE_FOR_EXEC", "POST_PARTITIONING"])
async def test_a_registered_pass_runs_once_in_its_grouping(grouping: str) -> None:
    calls: list[list[str]] = []
    ax.graph_pass(grouping, 1, name="counted")(lambda graph: calls.append([each.name for each in graph]))
    try:
        async with ax.Session(graph_of(SUM)) as session:
            assert calls == []
            assert [await session.run("add:0", {"p1:0": 1.0, "p2:0": 2.0}) for _ in range(2)] == [3.0, 3.0]
    finally:
        registry.unregister("counted")
    assert calls == [["add"]]


async def test_a_pass_calls_functions_and_the_library_stays_as_it_is() -> None:
    graph = load(X_TIMES_TWO, placeholder("x"), node("y", "Neg", "x", T=F))

    @ax.graph_pass("PRE_PLACEMENT")
    def double(graph: ax.PassGraph) -> None:
        y = graph.node("y")
        attrs = {"f": NameAttrList("XTimesTwo", {"T": F}), "Tout": [F]}
        graph.replace(y, graph.add("PartitionedCall", [y.inputs], attrs))

    try:
        async with ax.Session(graph) as session:
            assert await session.run("y:0", {"x:0": 3.0}) == 6.0
    finally:
        registry.unregister("double")
    assert graph.functions == {"XTimesTwo": X_TIMES_TWO}


@pytest.mark.parametrize("executor_type", ["TAGGED_TOKEN", "COMPILED"])
@pytest.mark.parametrize(
    ("text", "fetches", "feeds", "expected"),
    [
        pytest.param(CONSTANTS, ["c:0"], {}, [42.0], id="single const"),
        pytest.param(CONSTANTS, ["c:0", "pi:0"], {}, [42.0, np.float32(3.14)], id="several fetches"),
        pytest.param(SUM, ["add:0"], {"p1:0": 1.0, "p2:0": 2.0}, [3.0], id="feed and fetch"),
    ],
)
async def test_graphs_that_are_run_once(
    executor_type: str, text: str, fetches: list[str], feeds: dict[str, Any], expected: list[float]
) -> None:
    async with ax.Session(graph_of(text), ax.SessionConfig(executor_type=executor_type)) as session:
        assert await session.run(fetches, feeds) == expected


@pytest.mark.parametrize("executor_type", ["TAGGED_TOKEN", "COMPILED"])
async def test_a_result_is_of_its_own(executor_type: str) -> None:
    """It lives longer than the session, and whoever has it cannot change what others get."""
    graph, config = graph_of("c: Const[[1.0, 2.0]]\nn: Neg(c)"), ax.SessionConfig(executor_type=executor_type)
    async with ax.Session(graph, config) as session:
        constant, first = await session.run(["c:0", "n:0"])
        with pytest.raises(ValueError, match="read-only"):
            constant += 1.0
        first += 1.0
        second = await session.run("n:0")
    del session, graph
    assert [constant.tolist(), first.tolist(), second.tolist()] == [[1.0, 2.0], [0.0, -1.0], [-1.0, -2.0]]


def test_a_folded_constant_is_computed_as_the_graph_computes_it() -> None:
    text = "p1: Const[1.0]\np2: Const[2.0]\nadd: AddV2(p1, p2)"
    assert rewritten(fold_constants, text, ["add"]) == "add: Const[3.0]"
