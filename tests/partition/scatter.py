"""Devices at random: where the nodes of a graph run when nobody asks for anything."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

from asyncexec.graph.node import Node

DEVICES = tuple(f"/job:localhost/replica:0/task:0/device:CPU:{index}" for index in range(3))


def scattered(nodes: Iterable[Node], seed: int) -> Callable[[Node], str]:
    """A device for each node, drawn from *seed*; what shares a variable or a resource shares its device."""
    leaders: dict[Node, Node] = {}

    def leader(node: Node) -> Node:
        while leaders.setdefault(node, node) is not node:
            node = leaders[node]
        return node

    for node in nodes:
        for tensor in node.inputs:
            if tensor.dtype.is_ref or tensor.dtype.name in ("resource", "variant"):
                leaders[leader(node)] = leader(tensor.op)
    random, devices = Random(seed), dict[Node, str]()
    return lambda node: devices.setdefault(leader(node), random.choice(DEVICES))
