"""What has to run for given feeds, fetches and targets.

A reverse breadth-first search from fetches and targets; feeds cut their upstream (``RewriteGraphForExecution`` in
``tensorflow/core/graph/subgraph.cc``, ``PruneForReverseReachability`` in ``algorithm.cc``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from asyncexec.framework.cooperative import PART, STRIDE, Stage, in_parts
from asyncexec.graph.graph_ends import MUST_BE_FED
from asyncexec.graph.node import Node, Tensor

_SORT_AT_MOST: Final = 4096  # takes a millisecond or two at once


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
    search = _Search()
    for fed in in_parts(feeds):
        search.cut(fed)
        yield
    for nodes in in_parts(targets):
        search.visit(nodes)
        yield
    for tensors in in_parts(fetches):
        search.visit_sources(tensors)
        yield
    yield from search.run()
    ordered = yield from _in_order(search.seen)
    return ClientGraph(tuple(ordered), tuple(feeds), tuple(fetches), tuple(targets))


class _Search:
    """The search for what has to run.

    Attributes:
        seen: what has been found.
    """

    def __init__(self) -> None:
        self.seen: set[Node] = set()
        self._queue: deque[Node] = deque()
        self._fed: set[tuple[Node, int]] = set()
        self._fed_placeholders: set[Node] = set()

    def cut(self, feeds: Sequence[Tensor]) -> None:
        """Go no further where one of *feeds* is taken."""
        self._fed.update([(tensor.op, tensor.index) for tensor in feeds])
        self._fed_placeholders.update([tensor.op for tensor in feeds if tensor.op.op in MUST_BE_FED])

    def visit(self, nodes: Sequence[Node]) -> None:
        """*nodes* have to run."""
        for node in nodes:
            if node not in self.seen:
                self.seen.add(node)
                self._queue.append(node)

    def visit_sources(self, tensors: Sequence[Tensor]) -> None:
        """What gives *tensors* has to run, unless they are fed."""
        for tensor in tensors:
            node = tensor.op
            if node not in self.seen and (node, tensor.index) not in self._fed:
                self.seen.add(node)
                self._queue.append(node)

    def run(self) -> Stage[None]:
        """Find what is needed by what has been visited, as a stage."""
        queue, count = self._queue, 0
        while queue:
            node = queue.popleft()
            if len(node.inputs) + len(node.control_inputs) > PART:
                yield from self._visit_many(node)
            else:
                self.visit_sources(node.inputs)
                if node.control_inputs:
                    self._visit_controls(node.control_inputs)
            count += 1
            if not count % STRIDE:
                yield

    def _visit_many(self, node: Node) -> Stage[None]:
        for tensors in in_parts(node.inputs):
            self.visit_sources(tensors)
            yield
        for controls in in_parts(node.control_inputs):
            self._visit_controls(controls)
            yield

    def _visit_controls(self, controls: Sequence[Node]) -> None:
        self.visit([control for control in controls if control not in self._fed_placeholders])


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
