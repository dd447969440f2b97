"""Placer: the device of each node, from the one it asks for (``tensorflow/core/common_runtime/placer.cc``).

Every node of a graph is placed, whether or not it will run: a node that asks for a device that does not exist fails
every run of its graph.
"""

from __future__ import annotations

import logging

from asyncexec.framework.cooperative import STRIDE, Stage
from asyncexec.framework.device_name import DeviceName, parse_device_name
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.graph.graph import Graph
from asyncexec.graph.node import Node
from asyncexec.placement.device_set import DeviceSet

logger = logging.getLogger("asyncexec.placement")


class Placer:
    """Places the nodes of one graph as they are added."""

    def __init__(self, graph: Graph, devices: DeviceSet, *, allow_soft_placement: bool, log_placement: bool) -> None:
        self._graph = graph
        self._devices = devices
        self._allow_soft_placement = allow_soft_placement
        self._log_placement = log_placement
        self._num_placed = 0
        self._elsewhere: dict[Node, DeviceName] = {}  # nodes that are not on the default device

    def place(self) -> Stage[None]:
        """Place the nodes that were added since the last time, as a stage.

        Raises:
            InvalidArgumentError: a node asks for a device that does not exist, and there is no soft placement.
        """
        while self._num_placed < self._graph.num_nodes:
            for node in self._graph.nodes_between(self._num_placed, self._num_placed + STRIDE):
                if node.device:
                    self._place_as_asked(node)
                if self._log_placement:
                    logger.info("%s: (%s): %s", node.name, node.op, self.device_of(node))
                self._num_placed += 1
            yield

    def device_of(self, node: Node) -> DeviceName:
        """Where a placed node runs."""
        return self._elsewhere.get(node, self._devices.default)

    def _place_as_asked(self, node: Node) -> None:
        wanted = parse_device_name(node.device)
        device = self._devices.matching(wanted)
        if device is None:
            if not self._allow_soft_placement:
                raise InvalidArgumentError(
                    f"Cannot assign a device for operation {node.name!r}: it asks for {node.device!r}, "
                    f"and the devices there are: {self._devices}",
                    node=node,
                    hint="correct the device, raise SessionConfig(device_count=...), or set allow_soft_placement=True",
                )
            device = self._devices.default
        if device is not self._devices.default:
            self._elsewhere[node] = device
