"""Member: a node that is bound to others, and, as the root of a tree, its colocation group.

After class Member of ``tensorflow/core/common_runtime/colocation_graph.cc``.  Groups are a disjoint-set forest: each
tree is a group, its root holds what all its members can run on and ask for.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from asyncexec.framework.device import Device
from asyncexec.framework.device_name import NO_DEVICE, DeviceName
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.graph.node import Node
from asyncexec.placement.device_set import DeviceSet
from asyncexec.placement.node_traits import SupportedTypes

_XLA_TYPES = frozenset({"XLA_CPU", "XLA_GPU", "TPU", "XLA_CPU_JIT", "XLA_GPU_JIT", "XLA_TPU_JIT"})


@dataclass(slots=True, eq=False)
class Member:
    """A node, and what its group can run on if it is the root.

    Attributes:
        supported: device types that have kernels for all of the group.
        requested: what is asked for; always a specification of *assigned* and *resource*.
        assigned: where a member has been placed before.
        resource: what is asked for by members that make a resource or a reference: never overridden by others.
        possible: the devices that are left, once they are worked out.
    """

    node: Node
    supported: SupportedTypes
    requested: DeviceName = NO_DEVICE
    assigned: DeviceName = NO_DEVICE
    resource: DeviceName = NO_DEVICE
    possible: tuple[Device, ...] | None = None
    rank: int = 0
    parent: Member = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.parent = self

    def root(self) -> Member:
        """The root of its group; on the way there, paths are halved."""
        member = self
        while member.parent is not member:
            member.parent = member.parent.parent
            member = member.parent
        return member

    def follow(self, source: Member, node: Node, source_node: Node) -> bool:
        """Give up what this group asks for where that differs from *source*'s, at the other end of a bound edge.

        Returns:
            Whether anything was given up.

        Raises:
            InvalidArgumentError: members were placed before, or make resources, on devices that differ.
        """
        for kind in ("assigned", "resource"):
            theirs, mine = getattr(source, kind), getattr(self, kind)
            if not theirs.is_compatible_with(mine):
                raise InvalidArgumentError(
                    "Cannot place the graph because a reference or resource edge connects colocation groups with "
                    f"incompatible {kind} devices: {theirs} vs {mine}. The edge src node is {source_node.name}, and "
                    f"the dst node is {node.name}",
                    node=node,
                )
        if source.requested.is_compatible_with(self.requested):
            return False
        self.requested = source.requested.ensure_specification(self.assigned).ensure_specification(self.resource)
        return True

    def unite(self, other: Member, devices: DeviceSet, *, allow_soft_placement: bool) -> bool:
        """Make one group of this one and *other*, both roots.

        Returns:
            False, and nothing has changed, when no device type supports both.

        Raises:
            InvalidArgumentError: they ask for devices that differ; nothing has changed.
        """
        new, old = (other, self) if self.rank < other.rank else (self, other)
        if new.assigned is not old.assigned or new.resource is not old.resource or new.requested is not old.requested:
            assigned = new.assigned.merge(old.assigned)
            resource = new.resource.merge(old.resource)
            requested = new.requested.merge(old.requested, allow_soft_placement=allow_soft_placement)
            requested = requested.ensure_specification(assigned).ensure_specification(resource)
        else:
            assigned, resource, requested = new.assigned, new.resource, new.requested
        supported = new.supported
        if supported is not old.supported and supported != old.supported:
            supported = _intersection(supported, old.supported, devices)
            if not supported:
                return False
        new.assigned, new.resource, new.requested, new.supported = assigned, resource, requested, supported
        new.possible = None
        old.parent = new
        new.rank += new.rank == old.rank
        return True

    def supported_here(self) -> SupportedTypes:
        """What the group can run on; types of XLA devices only where one is asked for, or there is nothing else."""
        named = {name.device_type for name in (self.requested, self.assigned, self.resource)}
        if not _XLA_TYPES.isdisjoint(named):
            return self.supported
        return tuple(pair for pair in self.supported if pair[0] not in _XLA_TYPES) or self.supported

    def soft_name(self, *, keeps_resources: bool) -> DeviceName:
        """What is asked for without the type and index that need not be, so that the group may run elsewhere."""
        fixed = [self.assigned, self.resource] if keeps_resources else [self.assigned]
        name = self.requested
        if all(one.device_type is None for one in fixed):
            name = replace(name, device_type=None)
        if all(one.index is None for one in fixed):
            name = replace(name, index=None)
        return name


def _intersection(mine: SupportedTypes, theirs: SupportedTypes, devices: DeviceSet) -> SupportedTypes:
    """The types in both, with the priorities of the one that has some; of neither where both have and they differ."""
    their_types, my_types = dict(theirs), dict(mine)
    ours = devices.sorted_types(pair for pair in mine if pair[0] in their_types)
    others = devices.sorted_types(pair for pair in theirs if pair[0] in my_types)
    if not any(priority for _, priority in others):
        return ours
    if not any(priority for _, priority in ours):
        return others
    if [kind for kind, _ in ours] == [kind for kind, _ in others]:
        return ours
    return devices.sorted_types((kind, 0) for kind, _ in ours)
