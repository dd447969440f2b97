"""Devices, ops and kernels for tests of placement: FakeCPU and FakeGPU, as in TensorFlow's placer_test.cc.

The ops take and give float32, references to it and resources; which of the two types of device has a kernel for an op
stands in a registry of the tests' own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import asyncexec as ax
from asyncexec.framework.cooperative import run_at_once
from asyncexec.framework.device import Device, DeviceAttributes
from asyncexec.framework.device_factory import DeviceFactories
from asyncexec.framework.kernel_registry import KernelRegistration, KernelRegistry
from asyncexec.framework.op_def import parse_op_def
from asyncexec.framework.op_registry import OpRegistration
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.framework.shape_inference import unknown
from asyncexec.graph.graph_constructor import GraphConstructor
from asyncexec.graph.graph_text import parse_graph_text
from asyncexec.graph.node import Node
from asyncexec.placement.device_set import DeviceSet
from asyncexec.placement.placement_rules import PlacementRules
from asyncexec.placement.placer import place_nodes
from tests.running import import_all_names

import_all_names()

PREFIX: Final = "/job:a/replica:0/task:0"
FACTORIES: Final = DeviceFactories()
FACTORIES.register("FakeCPU", lambda options: [])
FACTORIES.register("FakeGPU", lambda options: [], 51)

# op: signature, then the types of device that have kernels, with the priorities of these.
_OPS: Final[dict[str, tuple[str, str]]] = {
    "FakeVariable": ("-> o: Ref(float32)", "FakeCPU FakeGPU"),
    "VariableCPU": ("-> o: Ref(float32)", "FakeCPU"),
    "VariableGPU": ("-> o: Ref(float32)", "FakeGPU"),
    "VariableNoKernels": ("-> o: Ref(float32)", ""),
    "FakeAdd": ("a: float32, b: float32 -> o: float32", "FakeCPU FakeGPU"),
    "FakeRelu": ("i: float32 -> o: float32", "FakeCPU FakeGPU"),
    "ReluCPU": ("i: float32 -> o: float32", "FakeCPU"),
    "ReluGPU": ("i: float32 -> o: float32", "FakeGPU"),
    "FakeAssign": ("i: Ref(float32), v: float32", "FakeCPU FakeGPU"),
    "AssignCPU": ("i: Ref(float32), v: float32", "FakeCPU"),
    "AssignGPU": ("i: Ref(float32), v: float32", "FakeGPU"),
    "FakeInput": ("-> a: float32, b: float32", "FakeCPU"),
    "FakeCPUGPUOutput": ("-> a: float32", "FakeCPU FakeGPU"),
    "FakeGPUOutput": ("-> a: float32", "FakeGPU"),
    "FakeDevice": ("-> a: float32, b: float32", "FakeGPU"),
    "FakeDeviceEnforce": ("a: Ref(float32) -> b: float32", "FakeCPU FakeGPU"),
    "FakeDatasetOp": ("a: float32 -> b: float32", "FakeCPU=2 FakeGPU=1"),
    "FakeXlaOp": ("a: float32 -> b: float32", "XLA_CPU=2 FakeCPU=1"),
    "CreateDatasetCPU": ("-> o: resource", "FakeCPU"),
    "CreateDatasetGPU": ("-> o: resource", "FakeGPU"),
    "CreateDatasetSP": ("-> o: resource", "FakeCPU=2 FakeGPU=1"),
    "CreateDatasetRP": ("-> o: resource", "FakeCPU=1 FakeGPU=2"),
    "CreateDatasetNP": ("-> o: resource", "FakeCPU FakeGPU"),
    "IteratorNP": ("i: resource -> o: float32", "FakeCPU FakeGPU"),
    "IteratorSP": ("i: resource -> o: float32", "FakeCPU=2 FakeGPU=1"),
    "IteratorRP": ("i: resource -> o: float32", "FakeCPU=1 FakeGPU=2"),
    "IteratorGPU": ("i: resource -> o: float32", "FakeGPU"),
    "FakeHandleVariable": ("-> o: resource", "FakeCPU FakeGPU"),
    "HandleVariableCPU": ("-> o: resource", "FakeCPU"),
    "HandleVariableGPU": ("-> o: resource", "FakeGPU"),
    "FakeHandleAssign": ("i: resource, v: float32", "FakeCPU FakeGPU"),
    "HandleAssignCPU": ("i: resource, v: float32", "FakeCPU"),
    "HandleAssignGPU": ("i: resource, v: float32", "FakeGPU"),
    "FakeTwoHandlesIn": ("i: resource, j: resource", "FakeCPU FakeGPU"),
    "FakeAddResources": ("x: resource, y: resource -> z: resource", "FakeCPU FakeGPU"),
}
_REAL_OPS: Final = ("Placeholder", "Identity", "Const", "Add", "AddV2", "Mul", "Shape", "Size", "Rank", "NoOp")
KERNELS: Final = KernelRegistry()


def _register() -> None:
    for op, (signature, kernels) in _OPS.items():
        op_registry.register(OpRegistration(parse_op_def(op, signature), unknown), replace=True)
        for text in kernels.split():
            kind, _, priority = text.partition("=")
            KERNELS.register(op, kind, KernelRegistration(_no_kernel, priority=int(priority or 0)))
    for op in _REAL_OPS:
        for kind in ("FakeCPU", "FakeGPU"):
            KERNELS.register(op, kind, KernelRegistration(_no_kernel))


def _no_kernel(construction: Any) -> Any:
    raise NotImplementedError("kernels of fake devices are never made")


_register()


def fake_device(name: str) -> Device:
    """A device of that whole name."""
    return Device(DeviceAttributes(name, name.rpartition("/device:")[2].partition(":")[0]))


def fake_devices(count: int = 10) -> DeviceSet:
    """That many of FakeCPU and of FakeGPU, and one XLA_CPU."""
    names = [f"{kind}:{i}" for i in range(count) for kind in ("FakeCPU", "FakeGPU")]
    return DeviceSet([fake_device(f"{PREFIX}/device:{name}") for name in [*reversed(names), "XLA_CPU:0"]], FACTORIES)


def load(text: str) -> ax.Graph:
    """The graph that *text* spells, as it stands there: an import would give colocated nodes other devices."""
    graph = ax.Graph()
    GraphConstructor(graph, parse_graph_text(text)).construct()
    return graph


def rules(devices: DeviceSet | None = None, *, soft: bool = True, **others: Any) -> PlacementRules:
    """Rules as placer_test.cc has them: soft placement unless a test says otherwise."""
    chosen = fake_devices() if devices is None else devices
    return PlacementRules(chosen, KERNELS, allow_soft_placement=soft, **others)


def placed(
    text: str,
    devices: DeviceSet | None = None,
    *,
    soft: bool = True,
    assigned: Mapping[str, str] | None = None,
    **others: Any,
) -> str:
    """The graph of *text*, placed, as text: ``name @ device`` a line, without what all names have in common."""
    graph = load(text)
    return placed_nodes(list(graph), rules(devices, soft=soft, **others), assigned)


def placed_nodes(nodes: list[Node], by: PlacementRules, assigned: Mapping[str, str] | None = None) -> str:
    """Nodes with their devices, a line each."""
    given = {node: (assigned or {})[node.name] for node in nodes if node.name in (assigned or {})}
    placement = run_at_once(place_nodes(nodes, by, given))
    return lines(f"{node.name} @ {short(placement.device_of(node))}" for node in nodes)


def short(device: Device) -> str:
    """``FakeCPU:0``, with the rest of the name only where that is unusual."""
    return device.name.removeprefix(f"{PREFIX}/device:")


def lines(text: Any) -> str:
    """Lines without indentation, none of them empty."""
    parts = text.splitlines() if isinstance(text, str) else text
    return "\n".join(line.strip() for line in parts if line.strip())
