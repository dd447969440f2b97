"""The device of an imported node that attr ``_class`` puts with others; all that is expected here is TensorFlow's."""

from __future__ import annotations

import pytest

import asyncexec as ax
from asyncexec.graph.graph_constructor import GraphConstructor
from asyncexec.graph.graph_text import parse_graph_text

A_ON_1 = "a: Const[1.0] @ /cpu:1"
A_ANYWHERE = "a: Const[1.0]"
B_WITH_A = "b: Const[1.0, _class=['loc:@a']] @ /cpu:0"


def devices(text: str, scope: str | None = None, name: str = "") -> str:
    """Each node of *text*, imported under a device scope, with its device."""
    with ax.Graph() as graph, ax.device(scope):
        ax.import_graph_def(parse_graph_text(text), name=name)
    return " ".join(f"{node.name}={node.device.removeprefix('/device:CPU:')}" for node in graph)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(f"{A_ON_1}\n{B_WITH_A}", "a=1 b=1", id="that of the other node"),
        pytest.param(f"{B_WITH_A}\n{A_ON_1}", "b=1 a=1", id="named before it comes"),
        pytest.param(f"{A_ANYWHERE}\n{B_WITH_A}", "a= b=", id="none: its own counts for nothing"),
        pytest.param(
            f"{A_ON_1}\nx: Const[1.0]\nb: Const[1.0, _class=['loc:@x', 'loc:@a']] @ /cpu:0",
            "a=1 x= b=1",
            id="the first that has one",
        ),
        pytest.param(
            f"c: Const[1.0, _class=['loc:@b']] @ /cpu:0\n{B_WITH_A}\n{A_ON_1}",
            "c= b=1 a=1",
            id="in order: c comes before b has any",
        ),
        pytest.param(
            "a: Const[1.0, _class=['loc:@b']] @ /cpu:1\nb: Const[1.0, _class=['loc:@a']] @ /cpu:0",
            "a= b=",
            id="each with the other",
        ),
        pytest.param("b: Const[1.0, _class=['loc:@b']] @ /cpu:0", "b=0", id="with itself"),
        pytest.param(
            "a: Const[1.0, _class=['loc:@a']] @ /cpu:1\nb: Const[1.0, _class=['loc:@b', 'loc:@a']] @ /cpu:0",
            "a=1 b=1",
            id="with itself and another",
        ),
        pytest.param("b: Const[1.0, _class=['other']] @ /cpu:0", "b=0", id="a class of another kind"),
    ],
)
def test_device_of_a_colocated_node(text: str, expected: str) -> None:
    assert devices(text) == expected


@pytest.mark.parametrize(("a", "expected"), [(A_ON_1, "a=1 b=1"), (A_ANYWHERE, "a=2 b=2")])
def test_a_device_scope_counts_for_the_node_that_the_others_are_with(a: str, expected: str) -> None:
    assert devices(f"{a}\n{B_WITH_A}", "/cpu:2") == expected


def test_names_are_those_that_the_nodes_get() -> None:
    assert devices(f"{A_ON_1}\n{B_WITH_A}", name="p") == "p/a=1 p/b=1"


def test_a_node_that_was_there_before() -> None:
    with ax.Graph() as graph:
        ax.import_graph_def(parse_graph_text(A_ON_1))
        ax.import_graph_def(parse_graph_text(B_WITH_A))
    assert graph.operation("b").device == "/device:CPU:1"


def test_nodes_of_a_function_keep_what_they_ask_for() -> None:
    """Functions are not imported, but built as they stand."""
    graph = ax.Graph()
    GraphConstructor(graph, parse_graph_text(f"{A_ON_1}\n{B_WITH_A}")).construct()
    assert [node.device for node in graph] == ["/device:CPU:1", "/device:CPU:0"]
