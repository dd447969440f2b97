"""``load_graph_def``, ``save_graph_def`` and ``import_graph_def``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, overload

from asyncexec.framework.cooperative import STRIDE, Stage
from asyncexec.framework.graph_def import GraphDef
from asyncexec.framework.tensor_id import CONTROL_SLOT, parse_tensor_name
from asyncexec.frontend.create_op import as_tensor
from asyncexec.frontend.source_line import caller_line
from asyncexec.graph import graph_import
from asyncexec.graph.current_graph import as_node, current_graph
from asyncexec.graph.graph import Graph
from asyncexec.graph.node import Node, Tensor
from asyncexec.ops.io.file_ops import FILE_OPS


@overload
def import_graph_def(
    graph_def: GraphDef,
    name: str = "",
    input_map: Mapping[str, object] | None = None,
    control_dependencies: Iterable[Tensor | Node] = (),
    return_elements: None = None,
    *,
    allowed_ops: Collection[str] = (),
    allowed_folders: Iterable[str | PathLike[str]] = (),
) -> None: ...
@overload
def import_graph_def(
    graph_def: GraphDef,
    name: str = "",
    input_map: Mapping[str, object] | None = None,
    control_dependencies: Iterable[Tensor | Node] = (),
    *,
    return_elements: Sequence[str],
    allowed_ops: Collection[str] = (),
    allowed_folders: Iterable[str | PathLike[str]] = (),
) -> list[Any]: ...
def import_graph_def(
    graph_def: GraphDef,
    name: str = "",
    input_map: Mapping[str, object] | None = None,
    control_dependencies: Iterable[Tensor | Node] = (),
    return_elements: Sequence[str] | None = None,
    *,
    allowed_ops: Collection[str] = (),
    allowed_folders: Iterable[str | PathLike[str]] = (),
) -> list[Any] | None:
    """Add the nodes of *graph_def* to the current graph.

    >>> with ax.Graph() as other:
    ...     y = ax.add(ax.placeholder(ax.int32, [], name="x"), 1, name="y")
    >>> (y,) = ax.import_graph_def(other.as_graph_def(), "inner", {"x:0": 41}, return_elements=["y:0"])
    >>> y.name
    'inner/y:0'
    >>> show(y)
    42

    Args:
        graph_def: a GraphDef, such as ``load_graph_def`` gives.
        name: a prefix for the names of its nodes, made unique; none by default.
        input_map: replacements for inputs of its nodes: a tensor for ``"name:slot"``, an operation for ``"^name"``.
        control_dependencies: tensors and operations that run before all of its nodes.
        return_elements: names in the GraphDef, ``"name:slot"`` of tensors and ``"name"`` of operations.
        allowed_ops: op types that may reach outside the graph (files, user-defined ops).  What runs others is refused
            with PermissionDeniedError.
        allowed_folders: folders in which ops of this graph may read and write files.  Ops that *allowed_ops* does not
            name touch no other files then; links are followed first.

    Returns:
        The elements in *return_elements*, in that order; None without *return_elements*.

    Raises:
        NotFoundError: an op type is unknown.
        InvalidArgumentError: anything else is wrong; the error names the node.  The graph is then unchanged.
    """
    graph = current_graph()
    folders = list(allowed_folders)
    mapped = {key: value if isinstance(value, Node) else as_tensor(value) for key, value in (input_map or {}).items()}
    found = graph_import.import_graph_def(
        graph,
        graph_def,
        name=name,
        input_map=mapped,
        control_dependencies=[as_node(value) for value in control_dependencies],
        return_elements=return_elements,
        allowed_ops=(*allowed_ops, *FILE_OPS) if folders else allowed_ops,
        source_line=caller_line(),
    )
    graph.files.allow_ops(allowed_ops)
    for folder in folders:
        graph.files.allow_folder(folder, writes=True)
    return found


def import_into(graph: Graph, graph_def: GraphDef, allowed_ops: Collection[str] = ()) -> Stage[None]:
    """A stage that adds the nodes of *graph_def* to *graph*; inputs that it does not define are nodes of the graph."""
    source_line = caller_line()
    own: set[str] = set()
    outside: dict[str, Tensor | Node] = {}
    for count, node in enumerate(graph_def.node):
        own.add(node.name)
        if not count % STRIDE:
            yield
    for count, node in enumerate(graph_def.node):
        for text in node.input:
            if text in own:
                continue
            tensor_id = parse_tensor_name(text)
            if tensor_id.name not in own and tensor_id.name in graph:
                source = graph.operation(tensor_id.name)
                outside[text] = source if tensor_id.slot == CONTROL_SLOT else graph.tensor(str(tensor_id))
        if not count % STRIDE:
            yield
    yield from graph_import.import_stage(
        graph, graph_def, input_map=outside, allowed_ops=allowed_ops, source_line=source_line
    )
    graph.files.allow_ops(allowed_ops)
