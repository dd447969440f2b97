"""Recvs that wait for their time: not all of a step's tensors are taken in at its beginning.

After ``TopologicalSortNodesWithTimePriority`` and ``AddControlEdges`` in ``tensorflow/core/graph/graph_partition.cc``.
The time from the first node to the last is cut into epochs; a ControlTrigger marks the beginning of each, after the
last node that starts before it, and a Recv waits for the trigger some epochs before its own.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Sequence
from functools import cache
from typing import Final

from asyncexec.framework.cooperative import STRIDE, Stage
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.graph.control_flow_info import MERGES, NEXT_ITERATIONS
from asyncexec.graph.graph import properties_of
from asyncexec.graph.node import Node, NodeProperties
from asyncexec.partition.send_recv import RECVS

NUM_EPOCHS: Final = 100
PREFETCH: Final = 6  # epochs


def sort_by_start_time(nodes: Sequence[Node], start_time: Callable[[Node], int]) -> Stage[list[tuple[Node, int]]]:
    """*nodes* with their times, each after its inputs (but for back edges) and later than they, earlier times first."""
    consumers: dict[Node, list[Node]] = {}
    needed: dict[Node, int] = {}
    here = set(nodes)
    times: dict[Node, int] = {}
    for position, node in enumerate(nodes):
        sources = [source for source in _sources(node) if source in here]
        needed[node] = len(sources)
        times[node] = start_time(node)
        for source in sources:
            consumers.setdefault(source, []).append(node)
        if not position % STRIDE:
            yield
    positions = {node: position for position, node in enumerate(nodes)}
    ready = [(times[node], positions[node]) for node in nodes if not needed[node]]
    heapq.heapify(ready)
    ordered: list[tuple[Node, int]] = []
    while ready:
        time, position = heapq.heappop(ready)
        node = nodes[position]
        ordered.append((node, time))
        for consumer in consumers.get(node, ()):
            times[consumer] = max(times[consumer], time + 1)
            needed[consumer] -= 1
            if not needed[consumer]:
                heapq.heappush(ready, (times[consumer], positions[consumer]))
        if not len(ordered) % STRIDE:
            yield
    return ordered


def _sources(node: Node) -> list[Node]:
    """What *node* comes after: all inputs, but for those that come round a loop."""
    data = [tensor.op for tensor in node.inputs]
    if node.op in MERGES:
        data = [source for source in data if source.op not in NEXT_ITERATIONS]
    return [*data, *node.control_inputs]


def delay_recvs(
    nodes: Sequence[Node], start_time: Callable[[Node], int], in_loops: Collection[Node], device: str
) -> Stage[list[Node]]:
    """*nodes* in order of time, with ControlTriggers that the Recvs among them wait for, as a stage.

    What is in *in_loops* neither waits nor is waited for: it runs many times.
    """
    timed = yield from sort_by_start_time(nodes, start_time)
    resolution = (timed[-1][1] // NUM_EPOCHS + 1) if timed else 1
    ordered: list[Node] = []
    triggers: list[Node] = []
    last: Node | None = None  # outside of loops
    for node, time in timed:
        while len(triggers) < NUM_EPOCHS and len(triggers) * resolution <= time:
            trigger = _trigger(node, len(triggers), last, device)
            triggers.append(trigger)
            ordered.append(trigger)
        ordered.append(node)
        if node in in_loops:
            continue
        last = node
        epoch = time // resolution
        if node.op in RECVS and epoch >= PREFETCH:
            node.control_inputs = (*node.control_inputs, triggers[epoch - PREFETCH])
        if not len(ordered) % STRIDE:
            yield
    return ordered


def _trigger(near: Node, epoch: int, after: Node | None, device: str) -> Node:
    controls = () if after is None else (after,)
    return Node(near.graph, f"_synch_{epoch}", _control_trigger(), (), controls, device)


@cache
def _control_trigger() -> NodeProperties:
    return properties_of(op_registry.lookup("ControlTrigger"), {})
