"""What has to run for given feeds, fetches and targets.

A reverse breadth-first search from fetches and targets; feeds cut their upstream (``RewriteGraphForExecution`` in
``tensorflow/core/graph/subgraph.cc``, ``PruneForReverseReachability`` in ``algorithm.cc``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from asyncexec.framework.cooperative import STRIDE, Stage
from asyncexec.graph.node import Node, Tensor

_SORT_AT_MOST: Final = 4096  # takes a millisecond or two at once
_PLACEHOLDERS: Final = frozenset({"Placeholder", "PlaceholderV2"})


@dataclass(frozen=True, slots=True, eq=False)
class ClientGraph:
    """The part of a graph that one signature runs.

    Attributes:
        nodes: what runs, each after its inputs (but for the back edges of loops).
        feeds: tensors whose values the caller gives; nothing upstream is run for them.
        fetches: tensors whose values the caller gets, none twice.
        targets: nodes that run without giving anything.
    """

    nodes: tuple[Node, ...]
    feeds: tuple[Tensor, ...]
    fetches: tuple[Tensor, ...]
    targets: tuple[Node, ...]


def prune(feeds: Sequence[Tensor], fetches: Sequence[Tensor], targets: Sequence[Node]) -> Stage[ClientGraph]:
    """The ClientGraph of a signature, as a stage."""
    fed = {(tensor.op, tensor.index) for tensor in feeds}
    fed_placeholders = {tensor.op for tensor in feeds if tensor.op.op in _PLACEHOLDERS}
    seen: set[Node] = set()
    queue: deque[Node] = deque()

    def visit(node: Node) -> None:
        if node not in seen:
            seen.add(node)
            queue.append(node)

    for node in (*targets, *(tensor.op for tensor in fetches if (tensor.op, tensor.index) not in fed)):
        visit(node)
    count = 0
    while queue:
        node = queue.popleft()
        for tensor in node.inputs:
            if tensor.op not in seen and (tensor.op, tensor.index) not in fed:
                visit(tensor.op)
        for control in node.control_inputs:
            if control not in seen and control not in fed_placeholders:
                visit(control)
        count += 1
        if not count % STRIDE:
            yield
    nodes = yield from _in_order(seen)
    return ClientGraph(tuple(nodes), tuple(feeds), tuple(fetches), tuple(targets))


def _in_order(chosen: set[Node]) -> Stage[list[Node]]:
    """Nodes after their inputs: they are added to a graph in such an order."""
    if len(chosen) < _SORT_AT_MOST:
        return sorted(chosen, key=lambda node: node.id)
    graph = next(iter(chosen)).graph
    ordered: list[Node] = []
    for start in range(0, graph.num_nodes, STRIDE):
        ordered += [node for node in graph.nodes_between(start, start + STRIDE) if node in chosen]
        yield
    return ordered


def path_to(source: Node, graph: ClientGraph) -> list[Node]:
    """A way from *source* to a fetch or target of *graph*, both ends included."""
    ends = {tensor.op for tensor in graph.fetches} | set(graph.targets)
    consumers = _consumers(graph.nodes)
    came_from: dict[Node, Node | None] = {source: None}
    queue = deque([source])
    while queue:
        node = queue.popleft()
        if node in ends:
            return _unwound(node, came_from)
        for consumer in consumers.get(node, ()):
            if consumer not in came_from:
                came_from[consumer] = node
                queue.append(consumer)
    return [source]


def _consumers(nodes: Iterable[Node]) -> Mapping[Node, list[Node]]:
    consumers: dict[Node, list[Node]] = {}
    for node in nodes:
        for source in (*(tensor.op for tensor in node.inputs), *node.control_inputs):
            consumers.setdefault(source, []).append(node)
    return consumers


def _unwound(node: Node, came_from: Mapping[Node, Node | None]) -> list[Node]:
    path: list[Node] = []
    step: Node | None = node
    while step is not None:
        path.append(step)
        step = came_from[step]
    return path[::-1]
