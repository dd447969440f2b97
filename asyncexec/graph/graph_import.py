"""Importing a GraphDef into a graph under a prefix, with inputs mapped and elements returned (``importer.py``)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from asyncexec.framework.cooperative import Stage, run_at_once
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.graph_def import GraphDef
from asyncexec.framework.tensor_id import CONTROL_SLOT, TensorId, parse_tensor_name
from asyncexec.graph.graph import Graph
from asyncexec.graph.graph_constructor import GraphConstructor
from asyncexec.graph.import_checks import RUNTIME_OPS, colocated_with
from asyncexec.graph.node import Node, SourceLine, Tensor
from asyncexec.process.gc_pause import paused_gc


def import_graph_def(
    graph: Graph,
    graph_def: GraphDef,
    *,
    name: str = "",
    input_map: Mapping[str, Tensor | Node] | None = None,
    control_dependencies: Iterable[Node] = (),
    return_elements: Sequence[str] | None = None,
    allowed_ops: Collection[str] = (),
    uniquify_names: bool = False,
    source_line: SourceLine | None = None,
) -> list[Tensor | Node] | None:
    """Add the nodes of *graph_def* to *graph*; what the public function of the same name does, given the graph.

    With *uniquify_names* a node whose name is taken gets another instead of being refused.
    """
    stage = import_stage(
        graph,
        graph_def,
        name=name,
        input_map=input_map,
        control_dependencies=control_dependencies,
        return_elements=return_elements,
        allowed_ops=allowed_ops,
        uniquify_names=uniquify_names,
        source_line=source_line,
    )
    with paused_gc():
        return run_at_once(stage)


def import_stage(
    graph: Graph,
    graph_def: GraphDef,
    *,
    name: str = "",
    input_map: Mapping[str, Tensor | Node] | None = None,
    control_dependencies: Iterable[Node] = (),
    return_elements: Sequence[str] | None = None,
    allowed_ops: Collection[str] = (),
    uniquify_names: bool = False,
    source_line: SourceLine | None = None,
    is_partition: bool = False,
) -> Stage[list[Tensor | Node] | None]:
    """``import_graph_def`` as a stage, for who lets others run meanwhile.

    *is_partition* tells that the graph comes from the stages of another process, whose nodes may have private names.
    """
    base = name.rstrip("/")
    prefix = graph.unique_name(base, mark_as_used=False) + "/" if base else graph.current_name_scope
    mapped = {parse_tensor_name(key): value for key, value in (input_map or {}).items()}
    after = tuple(control_dependencies)
    _check_own(mapped, after, graph)
    mapped, after = _let_in(graph, mapped, (*graph.current_control_inputs, *after))
    constructor = GraphConstructor(
        graph,
        graph_def,
        prefix=prefix,
        input_map=mapped,
        control_dependencies=after,
        return_elements=return_elements or (),
        allowed_ops=(*allowed_ops, *RUNTIME_OPS) if is_partition else allowed_ops,
        uniquify_names=uniquify_names,
        source_line=source_line,
        is_partition=is_partition,
    )
    nodes = yield from constructor.stage()
    if constructor.has_colocation:
        _place_colocated(graph, nodes.values())
    if base:
        graph.unique_name(base)
    if return_elements is None:
        return None
    return [_element(text, parse_tensor_name(text), nodes, mapped) for text in return_elements]


def _check_own(mapped: Mapping[TensorId, Tensor | Node], after: Iterable[Node], graph: Graph) -> None:
    for node in after:
        if node.graph is not graph:
            raise InvalidArgumentError(f"control dependency {node.name!r} is in another graph", node=node)
    for key, value in mapped.items():
        if value.graph is not graph:
            raise InvalidArgumentError(f"input_map[{str(key)!r}] is in another graph")
        if isinstance(value, Node) != (key.slot == CONTROL_SLOT) and key.slot != CONTROL_SLOT:
            raise InvalidArgumentError(f"input_map[{str(key)!r}] must be a tensor")


def _place_colocated(graph: Graph, nodes: Iterable[Node]) -> None:
    """Let each node that is colocated with others ask for what the first of these that asks for a device does.

    What it asked for itself does not count, nor does the device scope.
    """
    others = {node: [name for name in _colocated_with(node) if name != node.name] for node in nodes}
    colocated = sorted((node for node in others if others[node]), key=lambda node: node.id)
    for node in colocated:
        node.device = ""
    for node in colocated:
        found = map(graph.find_operation, others[node])
        node.device = next((other.device for other in found if other is not None and other.device), "")


def _colocated_with(node: Node) -> list[str]:
    return colocated_with(node.attrs["_class"]) if "_class" in node.attrs else []


def _let_in(
    graph: Graph, mapped: dict[TensorId, Tensor | Node], after: tuple[Node, ...]
) -> tuple[dict[TensorId, Tensor | Node], tuple[Node, ...]]:
    """What nodes made in the current branch or loop take in place of *mapped* and wait for in place of *after*."""
    context = graph.current_control_flow_context
    if context is None:
        return mapped, after
    captured = {
        key: context.capture(value) if isinstance(value, Tensor) else context.capture_control(value)
        for key, value in mapped.items()
    }
    return captured, (*map(context.capture_control, after), context.pivot)


def _element(
    text: str, tensor_id: TensorId, nodes: Mapping[str, Node], mapped: Mapping[TensorId, Tensor | Node]
) -> Tensor | Node:
    if ":" in text and tensor_id in mapped:
        return mapped[tensor_id]
    node = nodes[tensor_id.name]
    return node.outputs[tensor_id.slot] if ":" in text else node
