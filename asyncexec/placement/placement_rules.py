"""What holds for a placement as a whole: the devices there are, the kernels, and what may be overridden."""

from __future__ import annotations

from dataclasses import dataclass, field

from asyncexec.framework.device import Device
from asyncexec.framework.kernel_registry import KernelRegistry
from asyncexec.framework.kernel_registry import registry as kernel_registry
from asyncexec.graph.node import Node
from asyncexec.placement.device_set import DeviceSet


@dataclass(frozen=True, slots=True, eq=False)
class PlacementRules:
    """The rules of a session.

    Attributes:
        devices: what there is.
        kernels: what can run where.
        default_local_device: preferred to all others, where a node can run on it; and the devices of its process to
            those of others.
        allow_soft_placement: let a node run elsewhere when it can't run on the type or index of device it asks for, and
            ignore colocation that can't be met.
        log_placement: log where each node is placed, and what was overridden.
        needs_kernels: refuse a node that no device has a kernel for, whether or not it will run.
    """

    devices: DeviceSet
    kernels: KernelRegistry = kernel_registry
    default_local_device: Device | None = None
    allow_soft_placement: bool = False
    log_placement: bool = False
    needs_kernels: bool = True

    @property
    def preferred_device(self) -> Device:
        """Where nodes go that can go anywhere; FailedPreconditionError when there are no devices."""
        return self.default_local_device or self.devices.default


@dataclass(slots=True, eq=False)
class Placement:
    """Where nodes run: on *default*, but for those *elsewhere*."""

    default: Device
    elsewhere: dict[Node, Device] = field(default_factory=dict)

    def device_of(self, node: Node) -> Device:
        """Where a placed node runs."""
        return self.elsewhere.get(node, self.default)
