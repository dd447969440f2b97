"""Nodes that functions become: their bodies are placed once they are written out.

The cases of calls in placer_test.cc, on the graph that is left of them: where TensorFlow says something of the call
itself, there is nothing here to be placed.
"""

from __future__ import annotations

import pytest

import asyncexec as ax
from asyncexec.framework.cooperative import run_at_once
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.graph_def import FunctionDef, NodeDef
from asyncexec.graph.node import Node
from asyncexec.optimization.lower_functional_ops import LowerFunctionalOps
from asyncexec.pruning.prune import prune
from tests.optimization.function_text import call, function, load, node
from tests.placement.fake_devices import PREFIX, fake_devices, placed_nodes, rules

R, F = ax.resource, ax.float32
CPU, GPU = "/device:FakeCPU:0", "/device:FakeGPU:0"

RESOURCE_OUTPUT = function(
    "ResourceOutput(x: float32, y: resource) -> y_out: resource, two_x: float32",
    node("two", "Add", "x x", T=F),
    ret="y_out=y two_x=two:z:0",
)
SWAP = function(
    "Swap(i0: resource, i1: resource) -> o0: resource, o1: resource",
    node("s0", "Identity", "i1", T=R),
    node("s1", "Identity", "i0", T=R),
    ret="o0=s0:output:0 o1=s1:output:0",
)
RESOURCE_IDENTITY = function(
    "ResourceIdentity(x: resource) -> y: resource", node("y", "Identity", "x", T=R), ret="y=y:output:0"
)
CPU_RESOURCE = function(
    "CPUResource(x: float32) -> ds: resource, x_out: float32",
    node("make_ds", "CreateDatasetCPU"),
    ret="ds=make_ds:o:0 x_out=x",
)
NESTED_CPU_RESOURCE = function(
    "NestedCPUResource(x: float32) -> ds: resource, x_out: float32",
    call("y", "CPUResource", "x", [F], [R, F]),
    ret="ds=y:output:0 x_out=y:output:1",
)
BACK_TO_BACK = function(
    "BackToBack() -> output: resource",
    node("cpu_ds", "CreateDatasetCPU"),
    call("y", "ResourceIdentity", "cpu_ds:o:0", [R], [R]),
    call("w", "ResourceIdentity", "y:output:0", [R], [R]),
    node("gpu_ds", "CreateDatasetGPU"),
    call("z", "ResourceIdentity", "gpu_ds:o:0", [R], [R]),
    node("add", "FakeAddResources", "w:output:0 z:output:0"),
    ret="output=add:z:0",
)
FUNCTIONS = (RESOURCE_OUTPUT, SWAP, RESOURCE_IDENTITY, CPU_RESOURCE, NESTED_CPU_RESOURCE, BACK_TO_BACK)


def at(node_def: NodeDef, device: str) -> NodeDef:
    return NodeDef.from_fields(node_def.__dict__ | {"device": device})


def arg(name: str, dtype: ax.DType, device: str = "") -> NodeDef:
    return at(node(name, "Placeholder", dtype=dtype), device)


def out(name: str, source: str, dtype: ax.DType, device: str = "") -> NodeDef:
    return at(node(name, "Identity", source, T=dtype), device)


def written_out(parts: list[NodeDef], *fetches: str, functions: tuple[FunctionDef, ...] = FUNCTIONS) -> list[Node]:
    """The nodes that these fetches run, the functions' bodies among them."""
    graph = load(*parts, *functions)
    wanted = prune([], [graph.tensor(name) for name in fetches], [])
    client_graph = run_at_once(LowerFunctionalOps(graph).run(run_at_once(wanted)))
    return list(client_graph.nodes)


def devices_of(parts: list[NodeDef], *fetches: str, soft: bool = True) -> dict[str, str]:
    """Where the nodes of a graph run, with one device of each type."""
    text = placed_nodes(written_out(parts, *fetches), rules(fake_devices(1), soft=soft))
    return dict(line.removesuffix(":0").split(" @ ") for line in text.splitlines())


@pytest.mark.parametrize(
    ("a", "ai", "r1"),
    [(GPU, None, ""), (GPU, "", ""), ("", GPU, ""), (GPU, None, GPU)],
    ids=["plain", "identities", "identities with a device", "an output with another device"],
)
def test_a_resource_that_a_call_passes_on_stays(a: str, ai: str | None, r1: str) -> None:
    parts = [arg("a", F, a), arg("b", R, CPU)]
    inputs = "a b"
    if ai is not None:
        parts += [out("ai", "a", F, ai), out("bi", "b", R)]
        inputs = "ai bi"
    parts += [call("y", "ResourceOutput", inputs, [F, R], [R, F]), out("r1", "y:0", R, r1), out("r2", "y:1", F)]
    found = devices_of(parts, "r1:0", "r2:0", soft=False)
    assert (found["a"], found["b"], found["y/two"]) == ("FakeGPU", "FakeCPU", "FakeGPU")
    assert (found["r1"], found["r2"]) == ("FakeCPU", "FakeGPU")


def swapped(a: str, b: str, y: str, r1: str = "", r2: str = "") -> list[NodeDef]:
    return [
        arg("a", R, a),
        arg("b", R, b),
        at(call("y", "Swap", "a b", [R, R], [R, R]), y),
        out("r1", "y:0", R, r1),
        out("r2", "y:1", R, r2),
    ]


@pytest.mark.parametrize(
    ("a", "b", "y", "expected"),
    [
        (CPU, GPU, "", {"a": "FakeCPU", "b": "FakeGPU", "r1": "FakeGPU", "r2": "FakeCPU"}),
        (CPU, GPU, CPU, {"a": "FakeCPU", "b": "FakeGPU", "r1": "FakeGPU", "r2": "FakeCPU"}),
        ("", GPU, CPU, {"a": "FakeGPU", "b": "FakeGPU", "r1": "FakeGPU", "r2": "FakeGPU"}),
        ("", CPU, "", {"a": "FakeGPU", "b": "FakeCPU", "r1": "FakeCPU", "r2": "FakeGPU"}),
    ],
)
def test_two_resources_that_a_call_swaps(a: str, b: str, y: str, expected: dict[str, str]) -> None:
    assert devices_of(swapped(a, b, y), "r1:0", "r2:0", soft=False) == expected


def test_a_resource_from_a_call_with_several_users() -> None:
    parts = [*swapped("", CPU, "", r2=""), out("r3", "y:1", R, GPU)]
    found = devices_of(parts, "r1:0", "r2:0", "r3:0", soft=False)
    assert {found[name] for name in ("b", "r1")} == {"FakeCPU"}
    assert {found[name] for name in ("a", "r2", "r3")} == {"FakeGPU"}


@pytest.mark.parametrize("second", ["r2", "r3"])
def test_a_resource_that_is_given_twice_is_in_one_place(second: str) -> None:
    parts = [
        arg("a", R),
        call("y", "Swap", "a a", [R, R], [R, R]),
        out("r1", "y:0", R),
        out("r2", "y:1", R, CPU if second == "r2" else ""),
        out("r3", "y:0", R, CPU if second == "r3" else ""),
    ]
    found = devices_of(parts, "r1:0", "r2:0", "r3:0", soft=False)
    assert set(found.values()) == {"FakeCPU"}


def test_users_of_it_that_ask_for_two_devices_are_in_one_place_too() -> None:
    parts = [arg("a", R), call("y", "Swap", "a a", [R, R], [R, R]), out("r1", "y:0", R, GPU), out("r2", "y:1", R, CPU)]
    found = devices_of(parts, "r1:0", "r2:0", soft=False)
    assert len(set(found.values())) == 1


@pytest.mark.parametrize("y", ["", GPU])
def test_what_the_user_of_a_resource_asks_for_is_ignored(y: str) -> None:
    parts = [arg("a", R, CPU), at(call("y", "ResourceIdentity", "a", [R], [R]), y), out("r1", "y:0", R, GPU)]
    found = devices_of(parts, "r1:0", soft=False)
    assert (found["a"], found["r1"]) == ("FakeCPU", "FakeCPU")


@pytest.mark.parametrize(
    ("calls", "inputs"),
    [
        ([("y", "a")], "y:0 b"),
        ([("y", "a"), ("z", "b")], "y:0 z:0"),
        ([("y", "a"), ("w", "y:0"), ("z", "b")], "w:0 z:0"),
    ],
    ids=["one call", "two", "two back to back"],
)
def test_resources_of_two_devices_do_not_meet_through_calls(calls: list[tuple[str, str]], inputs: str) -> None:
    parts = [arg("a", R, CPU), arg("b", R, GPU)]
    parts += [call(name, "ResourceIdentity", source, [R], [R]) for name, source in calls]
    parts += [node("add", "FakeAddResources", inputs)]
    with pytest.raises(InvalidArgumentError) as caught:
        devices_of(parts, "add:0")
    assert (
        "Cannot place the graph because a reference or resource edge connects colocation groups with incompatible "
        f"resource devices: {GPU} vs {CPU}"
    ) in caught.value.message


@pytest.mark.parametrize("name", ["CPUResource", "NestedCPUResource"])
def test_a_resource_that_a_body_can_make_on_one_device_only(name: str) -> None:
    parts = [arg("a", F), call("y", name, "a", [F], [R, F]), out("id", "y:0", R)]
    nodes = written_out(parts, "id:0")
    with pytest.raises(InvalidArgumentError, match="Could not satisfy explicit device specification"):
        placed_nodes(nodes, rules(fake_devices(1)), {"id": f"{PREFIX}{GPU}"})


def test_resources_that_a_body_makes_on_two_devices() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        devices_of([call("y", "BackToBack", "", [], [R])], "y:0")
    assert (
        "Nodes were connected by a reference connection (requiring them to be on the same device), but the two nodes "
        "were assigned two different devices"
    ) in caught.value.message
    assert caught.value.node == "y/add"


@pytest.mark.parametrize(
    "functions",
    [
        [function("F1(x: resource) -> y: resource", call("out", "F1", "x", [R], [R]), ret="y=out:output:0")],
        [
            function("F1(x: resource) -> y: resource", call("out", "F2", "x", [R], [R]), ret="y=out:output:0"),
            function("F2(x: resource) -> y: resource", call("out", "F1", "x", [R], [R]), ret="y=out:output:0"),
        ],
    ],
    ids=["itself", "another that calls it"],
)
def test_recursion_is_refused_before_anything_is_placed(functions: list[FunctionDef]) -> None:
    """TensorFlow's placer says UNIMPLEMENTED; here such a library, without an end, cannot even be loaded."""
    parts = [arg("a", R), call("y", "F1", "a", [R], [R]), out("r1", "y:0", R)]
    with pytest.raises(InvalidArgumentError, match="F1"):
        written_out(parts, "r1:0", functions=tuple(functions))
