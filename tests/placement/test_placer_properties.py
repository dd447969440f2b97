"""What holds for any graph that could be placed: kernels, wishes, bound edges, groups."""

from __future__ import annotations

import random

import hypothesis.strategies as st
from hypothesis import given, settings

from asyncexec.framework.cooperative import run_at_once
from asyncexec.framework.device_name import parse_device_name
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.graph.node import Node
from asyncexec.placement.node_traits import is_bound
from asyncexec.placement.placement_rules import Placement
from asyncexec.placement.placer import place_nodes
from tests.placement.fake_devices import KERNELS, fake_devices, load, rules

# What is made: what it takes of (f)loats, (h)andles and (r)eferences, and gives.
OPS = {
    "FakeCPUGPUOutput": ("", "f"),
    "FakeGPUOutput": ("", "f"),
    "FakeVariable": ("", "r"),
    "VariableCPU": ("", "r"),
    "CreateDatasetRP": ("", "h"),
    "CreateDatasetSP": ("", "h"),
    "FakeRelu": ("f", "f"),
    "ReluCPU": ("f", "f"),
    "FakeAdd": ("ff", "f"),
    "FakeDatasetOp": ("f", "f"),
    "FakeDeviceEnforce": ("r", "f"),
    "IteratorNP": ("h", "f"),
    "IteratorGPU": ("h", "f"),
    "Shape": ("f", ""),
}
DEVICES = [
    "/device:FakeCPU:0",
    "/device:FakeCPU:1",
    "/device:FakeGPU:*",
    "/job:a",
    "/device:FakeGPU:1",
    "/device:FakeGPU:9",
]


def random_graph(seed: int) -> list[Node]:
    rng = random.Random(seed)
    made: dict[str, list[str]] = {"f": [], "h": [], "r": []}
    lines: list[str] = []
    for _ in range(rng.randint(1, 20)):
        op, (takes, gives) = rng.choice(list(OPS.items()))
        if any(not made[kind] for kind in takes):
            continue
        name = f"n{len(lines)}"
        inputs = [rng.choice(made[kind]) for kind in takes]
        group = f'[_class=["loc:@n{rng.randrange(len(lines))}"]]' if lines and rng.random() < 0.15 else ""
        device = f" @ {rng.choice(DEVICES)}" if rng.random() < 0.3 else ""
        lines.append(f"{name}: {op}{group}{'(' + ', '.join(inputs) + ')' if inputs else ''}{device}")
        if gives:
            made[gives].append(name)
    return list(load("\n".join(lines)))


def placement_of(nodes: list[Node], *, soft: bool) -> Placement | None:
    """Where the nodes go; None when they can't be placed."""
    try:
        return run_at_once(place_nodes(nodes, rules(fake_devices(2), soft=soft)))
    except InvalidArgumentError:
        return None


def bound_edges(nodes: list[Node]) -> list[tuple[Node, Node]]:
    return [
        (tensor.op, node)
        for node in nodes
        for tensor, dtype in zip(node.inputs, node.properties.input_dtypes, strict=True)
        if is_bound(dtype)
    ]


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.booleans())
def test_what_is_placed_can_run_there(seed: int, soft: bool) -> None:
    nodes = random_graph(seed)
    placement = placement_of(nodes, soft=soft)
    if placement is None:
        return
    edges = bound_edges(nodes)
    assert all(KERNELS.find(node.op, placement.device_of(node).device_type, {}) for node in nodes)
    assert all(placement.device_of(source) is placement.device_of(node) for source, node in edges)
    groups = {node: node.attrs["_class"][0].removeprefix(b"loc:@").decode() for node in nodes if "_class" in node.attrs}
    free = set(nodes).difference(*edges)
    for node in [] if soft else nodes:
        device = placement.device_of(node)
        others = [other for other in nodes if other.name == groups.get(node)]
        assert all(placement.device_of(other) is device for other in others)
        if node in free:
            assert parse_device_name(node.device).accepts(device.parsed_name)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32))
def test_soft_placement_changes_nothing_where_it_is_not_needed(seed: int) -> None:
    nodes = random_graph(seed)
    strict, soft = placement_of(nodes, soft=False), placement_of(nodes, soft=True)
    if strict is not None:
        assert soft is not None
        assert [soft.device_of(node).name for node in nodes] == [strict.device_of(node).name for node in nodes]
