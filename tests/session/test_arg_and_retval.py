"""Graphs with _Arg and _Retval, as partitions of TensorFlow's are: fed and fetched by these nodes."""

from __future__ import annotations

from typing import Any

import pytest

import asyncexec as ax
from asyncexec.framework.errors import InvalidArgumentError
from tests.graph.testing_ops import load
from tests.optimization.function_text import call, function, node
from tests.optimization.function_text import load as load_parts

F = ax.float32
GRAPH = """
    _arg_x_0_0: _Arg[T=float32, index=0]
    two: Const[2.0]
    y: Mul(_arg_x_0_0, two)
    _retval_y_0_0: _Retval[index=0](y)
"""


async def run(graph: ax.Graph, fetches: Any, feeds: Any, **more: Any) -> Any:
    async with ax.Session(graph) as session:
        return await session.run(fetches, feeds, **more)


async def test_an_arg_is_fed_and_a_retval_fetched() -> None:
    graph = load(GRAPH)
    assert await run(graph, "_retval_y_0_0", {"_arg_x_0_0:0": 3.0}) == 6.0
    assert await run(graph, ["y:0", graph.operation("_retval_y_0_0")], {"_arg_x_0_0:0": 3.0}) == [6.0, 6.0]


async def test_a_retval_as_a_target_runs_what_it_needs() -> None:
    assert await run(load(GRAPH), [], {"_arg_x_0_0:0": 3.0}, targets=["_retval_y_0_0"]) == []


async def test_an_arg_that_is_not_fed_is_named() -> None:
    with pytest.raises(InvalidArgumentError, match="feed a value for argument 0, '_arg_x_0_0'") as caught:
        await run(load(GRAPH), "_retval_y_0_0", {})
    assert caught.value.node == "_arg_x_0_0"
    assert caught.value.hint == "it is needed by way of _arg_x_0_0 -> y"


async def test_the_forms_for_memory_of_a_device() -> None:
    graph = load("a: _DeviceArg[T=float32, index=0]\nr: _DeviceRetval[index=0](a)")
    assert await run(graph, "r", {"a:0": 3.0}) == 3.0


async def test_partition_graphs_of_a_run_load_and_run() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        y = ax.multiply(x, 3.0, name="y")
    metadata = ax.RunMetadata()
    await run(graph, y, {x: 2.0}, options=ax.RunOptions(output_partition_graphs=True), metadata=metadata)
    (partition,) = metadata.partition_graphs
    with ax.Graph() as loaded:
        ax.import_graph_def(partition)
    assert await run(loaded, "_retval_y_0_0", {"_arg_x_0_0:0": 5.0}) == 15.0


def test_only_they_may_have_names_of_the_runtime() -> None:
    with pytest.raises(InvalidArgumentError, match="node name is invalid"):
        load("_x: Const[2.0]")
    with pytest.raises(InvalidArgumentError, match="node name is invalid"):
        load("_arg: _Arg[T=float32, index=0]\n_x: Neg(_arg)")


async def test_a_function_has_none_in_its_body() -> None:
    """It would reach into the call."""
    body = function("Reads(x: float32) -> y: float32", node("n", "_Arg", T=F, index=0), ret="y=n:output:0")
    graph = load_parts(body, node("x", "Placeholder", dtype=F), call("c", "Reads", "x", [F], [F]))
    with pytest.raises(InvalidArgumentError, match="'_Arg' cannot be in the body of a function"):
        await run(graph, "c:0", {"x:0": 1.0})
