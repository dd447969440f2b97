"""Copies of graphs, and their order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from asyncexec.framework.cooperative import STRIDE, Stage
from asyncexec.graph.control_flow_info import MERGES, NEXT_ITERATIONS
from asyncexec.graph.node import Node, Tensor
from asyncexec.placement.placement_rules import Placement
from asyncexec.pruning.prune import ClientGraph


def copied(graph: ClientGraph, placement: Placement | None) -> Stage[ClientGraph]:
    """*graph* with a copy of each node; *placement* is made to know the copies."""
    copies: dict[Node, Node] = {}
    late: list[tuple[Node, Node]] = []
    for count, node in enumerate(graph.nodes):
        properties = node.properties
        if properties.op in MERGES:  # may take what comes later
            inputs: tuple[Tensor, ...] = ()
        else:
            inputs = _taken(node, copies)
        controls = node.control_inputs
        if controls:
            controls = tuple([copies.get(control, control) for control in controls])
        made = Node(node.graph, node.name, properties, inputs, controls, node.device, node.source_line)
        made.id, made.output_shapes = node.id, node.output_shapes
        made._outputs = [Tensor(made, index) for index in range(len(properties.output_dtypes))]  # nobody else has it
        copies[node] = made
        if len(inputs) < len(node.inputs):
            late.append((node, made))
        if not count % STRIDE:
            yield
    for node, made in late:
        made.inputs = _taken(node, copies)
    if placement is not None:
        placement.elsewhere = {copies.get(node, node): device for node, device in placement.elsewhere.items()}
    feeds, fetches = (
        tuple([copies[tensor.op].outputs[tensor.index] if tensor.op in copies else tensor for tensor in tensors])
        for tensors in (graph.feeds, graph.fetches)
    )
    targets = tuple([copies.get(node, node) for node in graph.targets])
    return ClientGraph(tuple(copies.values()), feeds, fetches, targets)


def _taken(node: Node, copies: Mapping[Node, Node]) -> tuple[Tensor, ...]:
    """What the copy of *node* takes."""
    taken: list[Tensor] = []
    for tensor in node.inputs:
        made = copies.get(tensor.op)
        taken.append(tensor if made is None else (made._outputs or made.outputs)[tensor.index])
    return tuple(taken)


def sorted_by_inputs(nodes: Sequence[Node]) -> Stage[list[Node]]:
    """*nodes*, each after its inputs but for back edges, else in the order given."""
    here = set(nodes)
    done: set[Node] = set()
    ordered: list[Node] = []
    count = 0
    for first in nodes:
        stack = [(first, iter(_before(first)))] if first not in done else []
        begun = {first}
        while stack:
            node, sources = stack[-1]
            count += 1
            if not count % STRIDE:
                yield
            source = next((one for one in sources if one in here and one not in done and one not in begun), None)
            if source is not None:
                begun.add(source)
                stack.append((source, iter(_before(source))))
                continue
            stack.pop()
            done.add(node)
            ordered.append(node)
    return ordered


def _before(node: Node) -> tuple[Node, ...]:
    """What *node* comes after."""
    sources = [tensor.op for tensor in node.inputs]
    if node.op in MERGES:
        sources = [source for source in sources if source.op not in NEXT_ITERATIONS]
    return (*sources, *node.control_inputs)
