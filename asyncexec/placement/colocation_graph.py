"""ColocationGraph: which nodes go together, and on which devices they can.

After ``tensorflow/core/common_runtime/colocation_graph.cc``.  Nodes are bound together by

* attr ``_class``: ``loc:@name`` puts a node with the node *name*, and with all others that say so;
* edges that carry a reference or a resource: what takes one runs where it was made.

A group runs on a device of a type that has kernels for every member, and that fits what its members ask for.  Of what
they ask for, some gives way: at a bound edge the request of the node at its head, but never that of a node that makes a
resource, nor a device that a node was given before.  With soft placement types and indices give way where nothing else
is left, and so does colocation by name.

Most nodes are bound to no others.  They have no Member: what they can run on depends on their traits and the device
they ask for alone, and is looked up by these.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeAlias

from asyncexec.framework.cooperative import STRIDE, Stage
from asyncexec.framework.device import Device
from asyncexec.framework.device_name import DeviceName, parse_device_name
from asyncexec.framework.errors import InternalError, InvalidArgumentError, OpError
from asyncexec.graph.import_checks import colocated_with
from asyncexec.graph.node import Node
from asyncexec.placement.member import Member
from asyncexec.placement.node_traits import NodeTraits, NodeTraitsCache, SupportedTypes
from asyncexec.placement.placement_errors import cannot_assign, no_kernel, types_do_not_meet
from asyncexec.placement.placement_rules import PlacementRules

logger: Final = logging.getLogger("asyncexec.placement")

Devices: TypeAlias = tuple[Device, ...]


class Earlier(Protocol):
    """What has been placed before."""

    def placed_device(self, node: Node) -> Device | None:
        """Where *node* was placed, or None."""

    def placed_node(self, name: str) -> Node | None:
        """The node *name*, if it has been placed, or None."""


class ColocationGraph:
    """The groups of *nodes*.

    Args:
        nodes: in the order in which they were added to their graph.
        rules: of the session.
        assigned: nodes that have been placed before, and the names of the devices.
        earlier: knows what else of the graph has been placed before.

    Attributes:
        traits: of each of the nodes, once they have been read.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        rules: PlacementRules,
        traits: NodeTraitsCache,
        assigned: Mapping[Node, str],
        earlier: Earlier | None = None,
    ) -> None:
        self._nodes = nodes
        self._rules = rules
        self._devices = rules.devices
        self._traits = traits
        self._assigned = assigned
        self._earlier = earlier
        self.traits: list[NodeTraits] = []
        self._inside: set[Node] = set()
        self._members: dict[Node, Member] = {}
        self._classes: dict[Node, Sequence[str]] = {}  # the names in attr _class
        self._group_roots: dict[str, Node] = {}
        self._found: dict[tuple[DeviceName, SupportedTypes], Devices] = {}

    def initialize(self) -> Stage[None]:
        """Find the groups, as a stage.

        Raises:
            InvalidArgumentError: a node has no kernel or asks for a malformed device; nodes that are bound together
                can't be on one device.
            InternalError: a device that was given to a node before does not exist, or has no kernel for it.
        """
        bound = yield from self._read_nodes()
        for count, node in enumerate(bound, 1):
            self._bind_inputs(node)
            if not count % STRIDE:
                yield
        if self._classes:
            yield from self._bind_by_name()

    def devices_for(self, node: Node, traits: NodeTraits) -> Devices:
        """The devices that *node*, of these *traits*, can be on, the preferred one first.

        Raises:
            InvalidArgumentError: there is none.
        """
        member = self._members.get(node)
        if member is not None:
            root = member.root()
            if root.possible is None:
                root.possible = self._possible(node, root)
            return root.possible
        found = traits.choices.get(node.device)
        if found is None:
            found = traits.choices[node.device] = self._possible(node, self._new_member(node))
        return found

    def limit_to(self, node: Node, device: Device) -> None:
        """Let the group of *node*, which is on *device* now, be on no other."""
        member = self._members.get(node)
        if member is not None:
            member.root().possible = (device,)

    def assigned_device(self, node: Node) -> Device:
        """The device that *node* was given before."""
        return self._devices.by_name(self._assigned[node])

    def placed_device(self, node: Node) -> Device | None:
        """Where *node*, which is not among these, was placed before, or None."""
        return None if self._earlier is None else self._earlier.placed_device(node)

    def holds(self, node: Node) -> bool:
        """Whether *node* is among these."""
        return node in self._inside

    def _read_nodes(self) -> Stage[list[Node]]:
        """Check each node for itself; those with bound inputs."""
        bound: list[Node] = []
        well_formed = {""}
        traits_of, assigned = self._traits.of, self._assigned
        for start in range(0, len(self._nodes), STRIDE):
            part = self._nodes[start : start + STRIDE]
            self._inside.update(part)
            found = list(map(traits_of, part))
            self.traits += found
            for node, traits in zip(part, found, strict=True):
                if not traits.supported or node in assigned:
                    self._members[node] = self._new_member(node)
                elif node.device not in well_formed:
                    _requested(node)
                    well_formed.add(node.device)
                if traits.bound_inputs:
                    bound.append(node)
                if "_class" in node.properties.attrs:
                    self._classes[node] = _names_in_class(node)
            yield
        return bound

    def _new_member(self, node: Node) -> Member:
        supported = self._traits.of(node).supported
        if node in self._assigned:
            return self._assigned_member(node, supported, self._assigned[node])
        placed = None if node in self._inside else self.placed_device(node)
        if placed is not None:
            return self._assigned_member(node, self._traits.all_types, placed.name)
        requested = _requested(node)
        if not supported:
            supported = self._supported_elsewhere(requested)
            if not supported:
                raise no_kernel(node, self._rules)
        if self._traits.of(node).is_state:
            return Member(node, supported, requested=requested, resource=requested)
        return Member(node, supported, requested=requested)

    def _assigned_member(self, node: Node, supported: SupportedTypes, name: str) -> Member:
        try:
            assigned = parse_device_name(name)
        except InvalidArgumentError as error:
            raise InternalError(f"Malformed assigned device '{name[:200]}'", node=node) from error
        device = self._devices.find(name)
        if device is None:
            raise InternalError(
                f"Assigned device '{name[:200]}' does not match any device. There are: {self._devices}", node=node
            )
        if all(kind != device.device_type for kind, _ in supported):
            raise InternalError(
                f"Assigned device '{name}' does not have registered OpKernel support for {node.op}", node=node
            )
        return Member(node, supported, requested=assigned, assigned=assigned)

    def _supported_elsewhere(self, requested: DeviceName) -> SupportedTypes:
        """All types, for a node without kernels here that is to run in another process, which may have some."""
        local = self._devices.client_device or self._rules.default_local_device
        space = requested.address_space
        if local is None or None in (space.job, space.replica, space.task):
            return ()
        return () if local.parsed_name.is_same_address_space(requested) else self._traits.all_types

    def _member(self, node: Node) -> Member:
        member = self._members.get(node)
        if member is None:
            member = self._members[node] = self._new_member(node)
        return member

    def _bind_inputs(self, node: Node) -> None:
        for slot in self._traits.of(node).bound_inputs:
            source = node.inputs[slot].op
            if self._traits.of(source).is_functional or not self._is_known(source):
                continue
            theirs, mine = self._member(source).root(), self._member(node).root()
            if theirs is mine:
                continue
            asked = mine.requested
            if mine.follow(theirs, node, source) and self._rules.log_placement:
                logger.info(
                    "Ignoring device specification %s for node '%s' because the input edge from '%s' is a reference "
                    "connection and already has a device field set to %s",
                    *(asked, node.name, source.name, theirs.requested),
                )
            try:
                self._unite(source, theirs, node, mine)
            except InvalidArgumentError as error:
                raise InvalidArgumentError(
                    "Nodes were connected by a reference connection (requiring them to be on the same device), but the "
                    f"two nodes were assigned two different devices: {error.message}",
                    node=node,
                    hint=error.hint,
                ) from None

    def _is_known(self, node: Node) -> bool:
        return node in self._inside or self.placed_device(node) is not None

    def _bind_by_name(self) -> Stage[None]:
        """Put nodes with those that they name in attr ``_class``, in the order of the nodes."""
        named: set[str] = set()
        for count, names in enumerate(self._classes.values(), 1):
            named.update(names)
            if not count % STRIDE:
                yield
        for start in range(0, len(self._nodes), STRIDE):
            for node in self._nodes[start : start + STRIDE]:
                for name in self._classes.get(node, ()):
                    self._bind_to_group(node, name)
                if node.name in named:
                    self._bind_to_group(node, node.name)
            yield

    def _bind_to_group(self, node: Node, name: str) -> None:
        first = self._group_roots.get(name)
        if first is None:
            outside = None if self._earlier is None else self._earlier.placed_node(name)
            first = self._group_roots[name] = outside or node
        if first is node:
            return
        mine, theirs = self._member(node).root(), self._member(first).root()
        if mine is theirs:
            return
        try:
            self._unite(node, mine, first, theirs)
        except InvalidArgumentError as error:
            if not self._rules.allow_soft_placement:
                raise error.locate(node) from None
            if self._rules.log_placement:
                logger.info(
                    "Ignoring request to colocate node '%s' with nodes in colocation group '%s' because soft placement "
                    "is on and an attempt at doing so resulted in the following error: %s",
                    *(node.name, name, error.message),
                )

    def _unite(self, x: Node, x_root: Member, y: Node, y_root: Member) -> None:
        pair = f"Cannot colocate nodes {{{{colocation_node {x.name}}}}} and {{{{colocation_node {y.name}}}}}"
        try:
            united = x_root.unite(y_root, self._devices, allow_soft_placement=self._rules.allow_soft_placement)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{pair}: {error.message}", hint="ask for one device, or for none") from None
        if not united:
            groups = [self._group(x_root), self._group(y_root)]
            raise types_do_not_meet(pair, groups, self._supported_names)

    def _group(self, root: Member) -> list[Node]:
        return [node for node, member in self._members.items() if member.root() is root] or [root.node]

    def _supported_names(self, node: Node) -> str:
        return " ".join(kind for kind, _ in self._traits.of(node).supported)

    def _possible(self, node: Node, root: Member) -> Devices:
        """The devices that the group of *root*, *node* among it, can be on."""
        supported = root.supported_here()
        found = self._supporting(root.requested, supported)
        if not found and root.requested.has_details and self._rules.allow_soft_placement:
            found = self._soft_devices(root, supported)
        if not found:
            raise cannot_assign(node, root, self._group(root), self._rules, self._supported_names)
        return found

    def _soft_devices(self, root: Member, supported: SupportedTypes) -> Devices:
        """Devices of another type or index than what is asked for; those of resources are kept if they can."""
        found = self._supporting(root.soft_name(keeps_resources=True), supported)
        if found:
            return found
        found = self._supporting(root.soft_name(keeps_resources=False), supported)
        if found:
            logger.warning(
                "Failed to place the graph without changing the devices of some resources: operations that have to be "
                "colocated with %r are not supported on its device %s. Current candidate devices are %s",
                *(root.node.name, root.resource, [device.name for device in found]),
            )
        return found

    def _supporting(self, name: DeviceName, supported: SupportedTypes) -> Devices:
        """The devices that *name* fits, of a supported type, the preferred ones first."""
        found = self._found.get((name, supported))
        if found is None:
            priorities = dict(supported)
            found = self._found[name, supported] = self._ordered(
                (device, priorities[device.device_type])
                for device in self._devices.matching(name)
                if device.device_type in priorities
            )
        return found

    def _ordered(self, devices: Iterable[tuple[Device, int]]) -> Devices:
        ordered = [device for device, _ in self._devices.sorted_devices(devices)]
        local = self._rules.default_local_device
        if local is None:
            return tuple(ordered)
        space = local.parsed_name
        return tuple(
            sorted(ordered, key=lambda each: (each is not local, not space.is_same_address_space(each.parsed_name)))
        )


def _names_in_class(node: Node) -> Sequence[str]:
    try:
        return colocated_with(node.properties.attrs["_class"])
    except OpError as error:
        raise error.locate(node) from None


def _requested(node: Node) -> DeviceName:
    try:
        return parse_device_name(node.device)
    except OpError as error:
        raise error.locate(node) from None
