"""What is said of nodes that cannot be placed: the node, its group, what it asks for, what there is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from asyncexec.framework.device_name import parse_device_name
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.types import DType
from asyncexec.graph.node import Node
from asyncexec.placement.device_set import DeviceSet
from asyncexec.placement.member import Member
from asyncexec.placement.placement_rules import PlacementRules

_SHOWN: Final = 20  # members of a group, and devices
_HINT: Final = "correct the device, raise SessionConfig(device_count=...), or set allow_soft_placement=True"


def no_kernel(node: Node, rules: PlacementRules) -> InvalidArgumentError:
    """No device has a kernel for *node*."""
    attrs = ", ".join(f"{name}={value.name}" for name, value in node.attrs.items() if isinstance(value, DType))
    return InvalidArgumentError(
        f"No OpKernel was registered to support Op '{node.op}' used by {{{{node {node.name}}}}} with these attrs: "
        f"[{attrs}]\nRegistered devices: [{', '.join(sorted(rules.devices.device_types))}]\n"
        f"Registered kernels:\n{rules.kernels.registered_kernels(node.op)}",
        node=node,
    )


def types_do_not_meet(
    pair: str, groups: Sequence[Sequence[Node]], supported: Callable[[Node], str]
) -> InvalidArgumentError:
    """Two groups that have to be one have no device type in common."""
    return InvalidArgumentError(
        f"{pair} because no device type supports both of those nodes and the other nodes colocated with them."
        + "".join(_group_text(group, supported) for group in groups)
    )


def cannot_assign(
    node: Node, root: Member, group: Sequence[Node], rules: PlacementRules, supported: Callable[[Node], str]
) -> InvalidArgumentError:
    """No device is left for the group of *root*, of which *node* is a member."""
    return InvalidArgumentError(
        f"Cannot assign a device for operation {node.name}: {_reason(node, root, rules)}"
        + (_group_text(group, supported) if len(group) > 1 else ""),
        node=node,
        hint=_HINT,
    )


def _reason(node: Node, root: Member, rules: PlacementRules) -> str:
    devices = rules.devices
    if not root.requested.has_details:
        return f"no device supports it and the nodes it is colocated with.{_kernels(node, rules)}"
    unmet = f"Could not satisfy explicit device specification '{node.device}'"
    if parse_device_name(node.device) != root.requested:
        return (
            f"{unmet} because the node {{{{colocation_node {node.name}}}}} was colocated with a group of nodes that "
            f"required incompatible device '{root.requested}'. All available devices [{_names(devices)}]."
        )
    if not devices.matching(root.requested):
        return (
            f"{{{{node {node.name}}}}} was explicitly assigned to {node.device} but available devices are "
            f"[ {_names(devices)} ]. Make sure the device specification refers to a valid device.{_missing_gpu(root)}"
        )
    if root.requested.device_type is None:
        return f"{unmet}.{_kernels(node, rules)}"
    return f"{unmet} because no supported kernel for {root.requested.device_type} devices is available." + _kernels(
        node, rules
    )


def _missing_gpu(root: Member) -> str:
    is_gpu = (root.requested.device_type or "").upper() == "GPU"
    return " The requested device appears to be a GPU, but there is none here." if is_gpu else ""


def _kernels(node: Node, rules: PlacementRules) -> str:
    return f"\nOp: {node.op}\nRegistered kernels:\n{rules.kernels.registered_kernels(node.op)}"


def _group_text(group: Sequence[Node], supported: Callable[[Node], str]) -> str:
    """A group's ops with the device types that each has kernels for, and its members with what they ask for."""
    ops = {node.op: supported(node) for node in group}
    members = [f"\n  {node.name} ({node.op}) {node.device}".rstrip() for node in group[:_SHOWN]]
    more = f"\n  and {len(group) - _SHOWN} more" if len(group) > _SHOWN else ""
    return (
        "\nColocation group had the following types and supported devices:"
        + "".join(f"\n{op}: {types}" for op, types in list(ops.items())[:_SHOWN])
        + "\nColocation members and the devices they ask for:"
        + "".join(members)
        + more
    )


def _names(devices: DeviceSet) -> str:
    names = [device.name for device in sorted(devices, key=lambda device: device.parsed_name.sort_key)]
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
