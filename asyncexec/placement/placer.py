"""Placer: the device of each node (``tensorflow/core/common_runtime/placer.cc``).

Every node of a graph is placed, whether or not it will run: a node that asks for a device that does not exist fails
every run of its graph.  Nodes go one by one, in the order they were added, to the first device that is left to their
group (``colocation_graph.py``), but for two heuristics:

* a generator, which takes nothing and makes one value, is left for a second pass, and goes where all that take its
  value went, if it can;
* an op that looks at the shape of its input alone goes where its input went, if it can.

The bodies of functions are placed when they have been written out, for each signature anew (``place_nodes``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from asyncexec.framework.cooperative import STRIDE, Stage
from asyncexec.framework.device import Device
from asyncexec.framework.device_name import parse_device_name
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.graph.graph import Graph
from asyncexec.graph.node import Node
from asyncexec.placement.colocation_graph import ColocationGraph, logger
from asyncexec.placement.node_traits import NodeTraits, NodeTraitsCache
from asyncexec.placement.placement_rules import Placement, PlacementRules

_NOBODY: Final = object()  # has consumed what a generator makes, so far


class Placer:
    """Places the nodes of one graph as they are added, and those that its functions become."""

    def __init__(self, graph: Graph, rules: PlacementRules) -> None:
        self._graph = graph
        self._rules = rules
        self._traits = NodeTraitsCache(rules.devices, rules.kernels, needs_kernels=rules.needs_kernels)
        self._num_placed = 0
        # Where nodes that make resources went, by name, in a graph that is placed signature by signature.
        self._state: dict[str, str] = {}
        self._placement = Placement(rules.preferred_device)

    def place(self) -> Stage[None]:
        """Place the nodes that were added since the last time, as a stage; none of them when one can't be.

        Raises:
            InvalidArgumentError: a node can be on no device that exists.
            FailedPreconditionError: there are no devices.
        """
        first, end = self._num_placed, self._graph.num_nodes
        if first == end:
            return
        nodes = self._graph.nodes_between(first, end)
        found = yield from self._run(_Run(nodes, self._rules, self._traits, {}, self))
        self._placement.elsewhere.update(found.elsewhere)
        self._num_placed = end

    def place_nodes(self, nodes: Sequence[Node]) -> Stage[Placement]:
        """Where *nodes*, what is left of a signature once its functions are written out, run, as a stage.

        A node of the session's graph that makes a resource stays where it was placed; where the graph as a whole is not
        placed, where an earlier signature had it.  Errors as of place().
        """
        pinned: dict[Node, str] = {}
        state: list[Node] = []
        for start in range(0, len(nodes) if len(self._rules.devices) > 1 else 0, STRIDE):
            for node in nodes[start : start + STRIDE]:
                if not self._traits.of(node).is_state:
                    continue
                placed = self.placed_node(node.name)
                if placed is not None:
                    pinned[node] = self.device_of(placed).name
                elif node.name in self._state:
                    pinned[node] = self._state[node.name]
                else:
                    state.append(node)
            yield
        placement = yield from self._run(_Run(nodes, self._rules, self._traits, pinned))
        if not self._num_placed:
            self._state.update((node.name, placement.device_of(node).name) for node in state)
        return placement

    def _run(self, run: _Run) -> Stage[Placement]:
        try:
            return (yield from run.place())
        finally:
            self._traits.forget_nodes()

    def device_of(self, node: Node) -> Device:
        """Where a placed node runs."""
        return self._placement.device_of(node)

    def placed_device(self, node: Node) -> Device | None:
        """Where *node* runs, or None when it has not been placed."""
        return self.device_of(node) if 0 <= node.id < self._num_placed else None

    def placed_node(self, name: str) -> Node | None:
        """The node *name*, or None when it has not been placed."""
        node = self._graph.find_operation(name)
        return node if node is not None and node.id < self._num_placed else None

    @property
    def is_on_one_device(self) -> bool:
        """Whether all that has been placed is on the preferred device."""
        return not self._placement.elsewhere


def place_nodes(
    nodes: Sequence[Node], rules: PlacementRules, assigned: Mapping[Node, str] | None = None
) -> Stage[Placement]:
    """Where *nodes* run, those *assigned* on the devices of these names, as a stage.

    Raises:
        InvalidArgumentError: a node can be on no device that exists.
        FailedPreconditionError: there are no devices.
        InternalError: an assigned device does not exist or cannot run its node.
    """
    traits = NodeTraitsCache(rules.devices, rules.kernels, needs_kernels=rules.needs_kernels)
    return (yield from _Run(nodes, rules, traits, assigned or {}).place())


class _Run:
    """Places some nodes; *earlier*, where given, placed others of their graph before."""

    def __init__(
        self,
        nodes: Sequence[Node],
        rules: PlacementRules,
        traits: NodeTraitsCache,
        assigned: Mapping[Node, str],
        earlier: Placer | None = None,
    ) -> None:
        self._nodes = nodes
        self._rules = rules
        self._devices = rules.devices
        self._traits = traits
        self._assigned = assigned
        self._earlier = earlier
        self._placement = Placement(rules.preferred_device)
        # Of each generator, the one device that its consumers so far are on; None where there is no such device.
        self._consumers: dict[Node, object] = {}
        self._second_pass: list[tuple[Node, NodeTraits]] = []

    def place(self) -> Stage[Placement]:
        """The placement, as a stage."""
        if not (yield from self._all_fit_the_preferred_device()):
            groups = ColocationGraph(self._nodes, self._rules, self._traits, self._assigned, self._earlier)
            yield from groups.initialize()
            yield from self._first_pass(groups)
            for count, (node, traits) in enumerate(self._second_pass, 1):
                self._place_generator(node, traits, groups)
                if not count % STRIDE:
                    yield
        if self._rules.log_placement:
            yield from self._log()
        return self._placement

    def _all_fit_the_preferred_device(self) -> Stage[bool]:
        """Whether nothing leads any node away from the preferred device."""
        preferred, devices = self._placement.default, self._devices
        if (
            len(devices.device_types) > 1
            or self._rules.needs_kernels
            or (self._earlier is not None and not self._earlier.is_on_one_device)
            or any(name != preferred.name for name in self._assigned.values())
        ):
            return False
        wanted: set[str] = set()
        for start in range(0, len(self._nodes), STRIDE):
            wanted.update([node.device for node in self._nodes[start : start + STRIDE]])
            yield
        wanted.discard("")
        return not wanted or (len(devices) == 1 and all(map(self._is_well_met, wanted)))

    def _is_well_met(self, text: str) -> bool:
        """Whether there are devices that *text* names; False too when it is malformed."""
        try:
            return bool(self._devices.matching(parse_device_name(text)))
        except InvalidArgumentError:
            return False

    def _first_pass(self, groups: ColocationGraph) -> Stage[None]:
        consumers, assigned = self._consumers, self._assigned
        default, elsewhere = self._placement.default, self._placement.elsewhere
        for start in range(0, len(self._nodes), STRIDE):
            part = slice(start, start + STRIDE)
            for node, traits in zip(self._nodes[part], groups.traits[part], strict=True):
                if traits.is_generator and node not in assigned:
                    self._second_pass.append((node, traits))
                    consumers[node] = _NOBODY
                    where: Device | None = None
                else:
                    where = self._first_choice(node, traits, groups)
                    if where is not default:
                        elsewhere[node] = where
                for tensor in node.inputs:
                    known = consumers.get(tensor.op, where)
                    if known is not where:
                        consumers[tensor.op] = where if known is _NOBODY else None
                for source in node.control_inputs:
                    known = consumers.get(source, where)
                    if known is not where:
                        consumers[source] = where if known is _NOBODY else None
            yield

    def _first_choice(self, node: Node, traits: NodeTraits, groups: ColocationGraph) -> Device:
        if node in self._assigned:
            return groups.assigned_device(node)
        choices = groups.devices_for(node, traits)
        device = choices[0]
        if traits.is_metadata and node.inputs:
            source = self._device_so_far(node.inputs[0].op, groups)
            if source is not None and source in choices:
                device = source
        groups.limit_to(node, device)
        return device

    def _device_so_far(self, node: Node, groups: ColocationGraph) -> Device | None:
        if node in self._consumers:
            return None  # a generator, to be placed yet
        return self._placement.device_of(node) if groups.holds(node) else groups.placed_device(node)

    def _place_generator(self, node: Node, traits: NodeTraits, groups: ColocationGraph) -> None:
        choices = groups.devices_for(node, traits)
        wanted = self._consumers[node]
        device = wanted if isinstance(wanted, Device) and wanted in choices else choices[0]
        groups.limit_to(node, device)
        if device is not self._placement.default:
            self._placement.elsewhere[node] = device

    def _log(self) -> Stage[None]:
        for count, node in enumerate(self._nodes, 1):
            logger.info("%s: (%s): %s", node.name, node.op, self._placement.device_of(node))
            if not count % STRIDE:
                yield
