"""Small ops for tests of graphs, and what those tests do with a graph."""

from __future__ import annotations

from typing import Any, NoReturn

from asyncexec.framework.graph_def import GraphDef, VersionDef
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext, no_outputs, scalars, unchanged
from asyncexec.graph.graph import Graph
from asyncexec.graph.graph_import import import_graph_def
from asyncexec.graph.graph_text import graph_text, parse_graph_text
from asyncexec.graph.node import Node

register_op("TestABC", "->", shape=no_outputs)
register_op("TestParams", "-> o: float32", shape=scalars)
register_op("TestInput", "-> a: float32, b: float32", shape=scalars)
register_op("TestRelu", "i: float32 -> o: float32", shape=unchanged)
register_op("TestMul", "a: float32, b: float32 -> o: float32", shape=scalars)
register_op("TestInt", "a: int32 ->", shape=no_outputs)
register_op("TestOneInputTwoOutputs", "x: float32 -> y: float32, z: float32", shape=scalars)
register_op("TestOneInputOneOutput", "x: T -> y: T", "T: {float32, int64}", shape=unchanged)
register_op("TestVariadicOutput", "-> outputs: N*int32", "N: int >= 0")
register_op("TestDefaultAttr", "->", "default_int: int = 31415", shape=no_outputs)


def _stumble(c: InferenceContext) -> NoReturn:
    raise ValueError("no such thing")


register_op("TestStumbles", "-> o: float32", shape=_stumble)

NO_VERSIONS = VersionDef()


def load(text: str, graph: Graph | None = None, **options: Any) -> Graph:
    """The graph that *text* spells, imported into *graph* or a new one."""
    graph = Graph() if graph is None else graph
    import_graph_def(graph, parse_graph_text(text), **options)
    return graph


def load_def(graph_def: GraphDef, graph: Graph | None = None, **options: Any) -> Graph:
    graph = Graph() if graph is None else graph
    import_graph_def(graph, graph_def, **options)
    return graph


def names(graph: Graph) -> list[str]:
    return [node.name for node in graph.operations]


def inputs(node: Node) -> list[str]:
    """The inputs of *node* as a GraphDef spells them."""
    return [
        *(tensor.name.removesuffix(":0") for tensor in node.inputs),
        *(f"^{control.name}" for control in node.control_inputs),
    ]


def everything(graph: Graph) -> tuple[str, object, object, object]:
    """All that an import can change."""
    return graph_text(graph), dict(graph.functions), graph.versions, dict(graph.allowed_ops)
