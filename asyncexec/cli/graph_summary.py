"""What a stranger wants to know of a graph: its ops, devices, inputs, outputs, loops and functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from asyncexec.framework.graph_def import GraphDef
    from asyncexec.graph.graph import Graph
    from asyncexec.graph.node import Node

PLACEHOLDERS: Final = frozenset({"Placeholder", "PlaceholderV2", "PlaceholderWithDefault"})
FUNCTIONAL_LOOPS: Final = frozenset({"While", "StatelessWhile"})


@dataclass(frozen=True, slots=True)
class TensorSummary:
    """A tensor at the border of a graph; dtype and shape are empty where they are not known."""

    name: str
    op: str
    dtype: str = ""
    shape: str = ""


@dataclass(frozen=True, slots=True)
class LoopSummary:
    """A loop: a frame of Enter nodes, or a While node with functions."""

    name: str
    loop_variables: int
    parallel_iterations: int | None


@dataclass(frozen=True, slots=True)
class FunctionSummary:
    """A function of the graph's library."""

    name: str
    node_count: int


@dataclass(frozen=True, slots=True)
class GraphSummary:
    """What ``asyncexec inspect`` shows."""

    node_count: int
    op_counts: Mapping[str, int]  # the most frequent first
    device_counts: Mapping[str, int]  # "" where a node asks for none
    inputs: Sequence[TensorSummary]
    outputs: Sequence[TensorSummary]
    loops: Sequence[LoopSummary]
    functions: Sequence[FunctionSummary]


def summarize(graph: Graph, graph_def: GraphDef) -> GraphSummary:
    """The summary of *graph*, whose functions are those of *graph_def*."""
    nodes = graph.operations
    return GraphSummary(
        node_count=len(nodes),
        op_counts=dict(Counter(node.op for node in nodes).most_common()),
        device_counts=dict(Counter(node.device for node in nodes).most_common()),
        inputs=[summary for node in nodes if node.op in PLACEHOLDERS for summary in _tensors(node)],
        outputs=[summary for node in output_nodes(nodes) for summary in _tensors(node) or [_operation(node)]],
        loops=[*_frames(nodes), *(_functional_loop(node) for node in nodes if node.op in FUNCTIONAL_LOOPS)],
        functions=function_summaries(graph_def),
    )


def summarize_unread(graph_def: GraphDef) -> GraphSummary:
    """What can be told of a GraphDef that does not import: of an op unknown here, for one."""
    nodes = graph_def.node
    consumed = {text.lstrip("^").partition(":")[0] for node in nodes for text in node.input}
    return GraphSummary(
        node_count=len(nodes),
        op_counts=dict(Counter(node.op for node in nodes).most_common()),
        device_counts=dict(Counter(node.device for node in nodes).most_common()),
        inputs=[TensorSummary(f"{node.name}:0", node.op) for node in nodes if node.op in PLACEHOLDERS],
        outputs=[TensorSummary(node.name, node.op) for node in nodes if node.name not in consumed],
        loops=[],
        functions=function_summaries(graph_def),
    )


def output_nodes(nodes: Iterable[Node]) -> list[Node]:
    """The nodes that no other consumes, neither their values nor their having run; placeholders left out."""
    nodes = list(nodes)
    consumed = {id(tensor.op) for node in nodes for tensor in node.inputs}
    consumed.update(id(control) for node in nodes for control in node.control_inputs)
    return [node for node in nodes if id(node) not in consumed and node.op not in PLACEHOLDERS]


def function_summaries(graph_def: GraphDef) -> list[FunctionSummary]:
    """The functions that the graph carries."""
    functions = graph_def.library.function if graph_def.library else ()
    return [FunctionSummary(f.signature.name, len(f.node_def)) for f in functions]


def _tensors(node: Node) -> list[TensorSummary]:
    return [TensorSummary(t.name, node.op, t.dtype.name, str(t.shape)) for t in node.outputs]


def _operation(node: Node) -> TensorSummary:
    return TensorSummary(node.name, node.op)


def _frames(nodes: Iterable[Node]) -> list[LoopSummary]:
    variables: Counter[str] = Counter()
    parallel: dict[str, int] = {}
    for node in nodes:
        if node.op in {"Enter", "RefEnter"}:
            name = _as_text(node.attrs["frame_name"])
            variables[name] += not node.attrs["is_constant"]
            parallel[name] = node.attrs["parallel_iterations"]
    return [LoopSummary(name, variables[name], parallel[name]) for name in parallel]


def _functional_loop(node: Node) -> LoopSummary:
    return LoopSummary(node.name, len(node.inputs), node.attrs.get("parallel_iterations"))


def _as_text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
