"""What the placer asks of a node: the types of devices that have a kernel for it, and what binds it to other nodes.

Most nodes of a graph share these with many others, so they are worked out once for each op and dtypes.
After ``SupportedDeviceTypesForNode`` in ``tensorflow/core/framework/op_kernel.cc``, ``IsMetadata`` in
``tensorflow/core/graph/graph.cc`` and the tests of nodes in ``colocation_graph.cc`` and ``placer.cc``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from asyncexec.framework import types
from asyncexec.framework.device import Device
from asyncexec.framework.device_factory import HOST_TYPE
from asyncexec.framework.kernel_registry import KernelRegistry
from asyncexec.framework.op_def import OpDef
from asyncexec.framework.op_registry import OpRegistration
from asyncexec.framework.types import DType
from asyncexec.graph.node import Node, NodeProperties
from asyncexec.placement.device_set import DeviceSet

# Device types with the priorities of the kernels for them, the preferred ones first.
SupportedTypes: TypeAlias = tuple[tuple[str, int], ...]

_METADATA_OPS: Final = frozenset({"Shape", "Size", "Rank"})


@dataclass(frozen=True, slots=True, eq=False)
class NodeTraits:
    """What nodes with the same properties have in common.

    Attributes:
        supported: the device types that there are and that have a kernel for it.
        bound_inputs: those that take a reference or a resource, and so bind the node to the device of the source.
        is_generator: it makes one value of nothing, and can do that wherever the value is wanted.
        is_state: it makes a reference or a resource of nothing; where it is asked to be, it stays.
        is_functional: it calls functions, whose bodies are placed node by node.
        is_metadata: it looks at the shape of its input alone.
        choices: the devices that such nodes can be on, by what they ask for; of those that are bound to no others.
    """

    supported: SupportedTypes
    bound_inputs: tuple[int, ...]
    is_generator: bool
    is_state: bool
    is_functional: bool
    is_metadata: bool
    choices: dict[str, tuple[Device, ...]] = field(default_factory=dict)


class NodeTraitsCache:
    """The traits of nodes, for the devices and kernels that there are.

    With *needs_kernels* an op that has none for a node has no supported types; else a kernel is taken to be wherever it
    is asked for: that there is none is found when the node is to run.
    """

    def __init__(self, devices: DeviceSet, kernels: KernelRegistry, *, needs_kernels: bool) -> None:
        self._devices = devices
        self._kernels = kernels
        self._needs_kernels = needs_kernels
        self._all_types: SupportedTypes = devices.sorted_types((kind, 0) for kind in devices.device_types)
        self._by_properties: dict[NodeProperties, NodeTraits] = {}
        self._by_content: dict[object, NodeTraits] = {}
        self._constrained: dict[OpRegistration, tuple[str, ...]] = {}

    @property
    def all_types(self) -> SupportedTypes:
        """Every type that there is, none preferred over another by a kernel."""
        return self._all_types

    def of(self, node: Node) -> NodeTraits:
        """The traits of *node*."""
        properties = node.properties
        traits = self._by_properties.get(properties)
        if traits is None:
            traits = self._by_properties[properties] = self._shared(node, properties)
        return traits

    def forget_nodes(self) -> None:
        """Keep what is known of ops and dtypes alone: nodes come and go with the signatures that are run."""
        self._by_properties.clear()

    def _shared(self, node: Node, properties: NodeProperties) -> NodeTraits:
        registration = properties.registration
        names = self._constrained.get(registration)
        if names is None:
            names = self._constrained[registration] = self._kernels.constrained_attrs(registration.op_def.name)
        key: Any = registration, properties.input_dtypes, properties.output_dtypes
        if names:
            key = (*key, *[properties.attrs.get(name) for name in names])
        traits = self._by_content.get(key)
        if traits is None:
            traits = self._by_content[key] = self._make(node, properties)
        return traits

    def _make(self, node: Node, properties: NodeProperties) -> NodeTraits:
        op_def = properties.op_def
        is_functional = op_def.name in node.graph.functions or takes_functions(op_def)
        supported = self._supported(properties.registration, properties.attrs)
        makes_one = not properties.input_dtypes and len(properties.output_dtypes) == 1
        return NodeTraits(
            supported or (self._all_types if is_functional else ()),
            () if is_functional else tuple(i for i, dtype in enumerate(properties.input_dtypes) if is_bound(dtype)),
            makes_one and not properties.output_dtypes[0].is_ref,
            makes_one and is_bound(properties.output_dtypes[0]),
            is_functional,
            op_def.name in _METADATA_OPS,
        )

    def _supported(self, registration: OpRegistration, attrs: Mapping[str, object]) -> SupportedTypes:
        if registration.kernel is not None:
            found = [(HOST_TYPE, registration.kernel.priority)] if HOST_TYPE in self._devices.device_types else []
        else:
            op = registration.op_def.name
            kernels = [(kind, self._kernels.find(op, kind, attrs)) for kind in self._devices.device_types]
            found = [(kind, kernel.priority) for kind, kernel in kernels if kernel is not None]
        return self._devices.sorted_types(found) or (() if self._needs_kernels else self._all_types)


def is_bound(dtype: DType) -> bool:
    """Whether a value of *dtype* stays on the device where it was made."""
    return dtype.is_ref or dtype is types.resource


def takes_functions(op_def: OpDef) -> bool:
    """Whether nodes of this op call functions."""
    return any(attr.element_kind == "func" for attr in op_def.attrs.values())
