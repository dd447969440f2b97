"""Importing takes work in proportion to the graph, whatever its shape: calls are counted, not seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.graph_def import GraphDef, NodeDef, make_attr
from asyncexec.graph.graph import Graph
from tests.graph.testing_ops import load_def, names

FLOAT = make_attr("type", 1)
X = NodeDef(name="x", op="Placeholder", attr={"dtype": FLOAT})


def node(name: str, op: str, *inputs: str) -> NodeDef:
    return NodeDef(name=name, op=op, input=inputs, attr={"T": FLOAT})


def chain(count: int) -> list[NodeDef]:
    return [X, node("n0", "Neg", "x"), *(node(f"n{i}", "Neg", f"n{i - 1}") for i in range(1, count))]


def backwards(count: int) -> list[NodeDef]:
    return chain(count)[::-1]


def fan_out(count: int) -> list[NodeDef]:
    return [X, *(node(f"n{i}", "Neg", "x") for i in range(count))]


def ladder(count: int) -> list[NodeDef]:
    return [
        X,
        node("n0", "Neg", "x"),
        *(node(f"n{i}", "AddV2", f"n{i - 1}", f"n{i // 2}") for i in range(1, count)),
    ]


def many_controls(count: int) -> list[NodeDef]:
    parts = [NodeDef(name=f"n{i}", op="NoOp") for i in range(count)]
    return [NodeDef(name="last", op="NoOp", input=tuple(f"^n{i}" for i in range(count))), *parts]


def one_wide(count: int) -> list[NodeDef]:
    attrs = {"T": FLOAT, "N": make_attr("i", count)}
    sources = fan_out(count)
    return [NodeDef(name="sum", op="AddN", input=tuple(f"n{i}" for i in range(count)), attr=attrs), *sources]


def loops(count: int) -> list[NodeDef]:
    nodes = [X]
    for i in range(count // 4):
        frame = {"T": FLOAT, "frame_name": make_attr("s", f"w{i}".encode())}
        nodes.append(NodeDef(name=f"e{i}", op="Enter", input=("x",), attr=frame))
        merge = {"T": FLOAT, "N": make_attr("i", 2)}
        nodes.append(NodeDef(name=f"m{i}", op="Merge", input=(f"e{i}", f"n{i}"), attr=merge))
        nodes += [node(f"n{i}", "NextIteration", f"m{i}"), node(f"x{i}", "Exit", f"m{i}")]
    return nodes


def merge_of_many(count: int) -> list[NodeDef]:
    frame = {"T": FLOAT, "frame_name": make_attr("s", b"w")}
    enter = NodeDef(name="e", op="Enter", input=("x",), attr=frame)
    merge = {"T": FLOAT, "N": make_attr("i", count + 1)}
    back = tuple(f"n{i}" for i in range(count))
    nodes = [node(f"n{i}", "NextIteration", "m") for i in range(count)]
    return [X, enter, NodeDef(name="m", op="Merge", input=("e", *back), attr=merge), *nodes]


def calls_made(function: Callable[[], object]) -> int:
    """How many Python and C functions *function* calls."""
    count = 0

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("shape", [chain, backwards, fan_out, ladder, many_controls, one_wide, loops, merge_of_many])
def test_twice_the_nodes_take_twice_the_calls(shape: Callable[[int], list[NodeDef]]) -> None:
    small, large = (GraphDef(node=tuple(shape(count))) for count in (2_000, 4_000))
    load_def(small)  # what is done once is done
    few, many = calls_made(lambda: load_def(small)), calls_made(lambda: load_def(large))
    assert many < 2.1 * few
    assert many < 100 * len(large.node)


def test_other_imports_do_not_make_an_import_longer() -> None:
    part = GraphDef(node=tuple(chain(100)))
    graph = Graph()
    load_def(part, graph, name="part")
    first = calls_made(lambda: load_def(part, graph, name="part"))
    for _ in range(20):
        load_def(part, graph, name="part")
    assert calls_made(lambda: load_def(part, graph, name="part")) < 1.2 * first


def test_a_chain_of_30_000_nodes_written_backwards() -> None:
    graph = load_def(GraphDef(node=tuple(backwards(30_000))))
    assert names(graph)[:2] == ["x", "n0"]
    assert len(graph) == 30_001


def test_30_000_inputs() -> None:
    graph = load_def(GraphDef(node=tuple(one_wide(30_000))))
    assert len(graph.operation("sum").inputs) == 30_000


def test_a_merge_of_30_000_back_edges() -> None:
    graph = load_def(GraphDef(node=tuple(merge_of_many(30_000))))
    assert len(graph.operation("m").inputs) == 30_001


def test_a_cycle_of_30_000_nodes_is_shown_in_short() -> None:
    nodes = [node(f"n{i}", "Neg", f"n{(i + 1) % 30_000}") for i in range(30_000)]
    with pytest.raises(InvalidArgumentError, match="30000 nodes in a cycle") as caught:
        load_def(GraphDef(node=tuple(nodes)))
    assert len(str(caught.value)) < 1000
