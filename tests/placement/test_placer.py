"""The placer of a session: CPU devices, graphs that grow, functions; errors and what is logged."""

from __future__ import annotations

import logging

import pytest

import asyncexec as ax
from asyncexec.framework.cooperative import run_at_once
from asyncexec.framework.device_factory import DeviceOptions, create_devices
from asyncexec.frontend.graph_io import import_into
from asyncexec.graph.graph_text import parse_graph_text
from asyncexec.placement.device_set import DeviceSet
from asyncexec.placement.placement_rules import PlacementRules
from asyncexec.placement.placer import Placer, place_nodes
from tests.placement.fake_devices import lines, load

CPU_PREFIX = "/job:localhost/replica:0/task:0"


def graph_on(*devices: str) -> ax.Graph:
    with ax.Graph() as graph:
        for i, device in enumerate(devices):
            with ax.device(device):
                ax.create_op("Const", [], {"value": float(i), "dtype": ax.float32}, name=f"n{i}")
    return graph


def cpu_rules(count: int = 1, *, soft: bool = False, log: bool = False) -> PlacementRules:
    """The rules of a session with that many CPU devices."""
    devices = DeviceSet(create_devices(DeviceOptions({"CPU": count})))
    return PlacementRules(devices, allow_soft_placement=soft, log_placement=log, needs_kernels=False)


def placement_of(graph: ax.Graph, placer: Placer) -> list[str]:
    return [placer.device_of(node).name.removeprefix(CPU_PREFIX) for node in graph]


def placed(graph: ax.Graph, count: int = 1, *, soft: bool = False, log: bool = False) -> list[str]:
    placer = Placer(graph, cpu_rules(count, soft=soft, log=log))
    run_at_once(placer.place())
    return placement_of(graph, placer)


def test_without_a_wish_a_node_goes_to_the_first_device() -> None:
    assert placed(graph_on("", "/device:CPU:*", "/task:0"), 2) == ["/device:CPU:0"] * 3


def test_a_node_goes_where_it_asks() -> None:
    full = "/job:localhost/replica:0/task:0/device:CPU:1"
    assert placed(graph_on("/cpu:1", "/device:CPU:0", full), 2) == ["/device:CPU:1", "/device:CPU:0", "/device:CPU:1"]


@pytest.mark.parametrize("device", ["/device:GPU:0", "/device:CPU:7", "/job:worker", "/replica:3/device:CPU:0"])
def test_an_impossible_device_is_named_with_those_there_are(device: str) -> None:
    with pytest.raises(ax.errors.InvalidArgumentError) as caught:
        placed(graph_on("", device))
    assert caught.value.node == "n1"
    assert device in caught.value.message
    assert "/device:CPU:0" in caught.value.message


@pytest.mark.parametrize("count", [1, 3])
def test_soft_placement_takes_the_default_device(count: int) -> None:
    assert placed(graph_on("/device:GPU:0", "/cpu:5"), count, soft=True) == ["/device:CPU:0"] * 2
    with pytest.raises(ax.errors.InvalidArgumentError, match="/job:worker"):
        placed(graph_on("/job:worker"), count, soft=True)


@pytest.mark.parametrize("count", [1, 3])
def test_a_malformed_device_is_told_with_its_node(count: int) -> None:
    graph = graph_on("", "/cpu:0")
    graph.operation("n1").device = "/foo:bar"
    with pytest.raises(ax.errors.InvalidArgumentError, match="Malformed device specification '/foo:bar'") as caught:
        placed(graph, count)
    assert caught.value.node == "n1"


def test_a_group_is_on_one_cpu() -> None:
    graph = load("""
        v: VarHandleOp[dtype=float32, shape=[]] @ /cpu:2
        x: Const[1.0] @ /cpu:1
        init: AssignVariableOp(v, x)
        read: ReadVariableOp[dtype=float32](v) @ /cpu:1
        with_x: Neg[_class=["loc:@x"]](read)
        free: Neg(read)
    """)
    placer = Placer(graph, cpu_rules(3))
    run_at_once(placer.place())
    assert lines(f"{node.name} @ {placer.device_of(node).name[-5:]}" for node in graph) == lines("""
        v @ CPU:2
        x @ CPU:1
        init @ CPU:2
        read @ CPU:2
        with_x @ CPU:1
        free @ CPU:0
    """)


def test_nodes_that_come_later_go_with_those_that_are_placed() -> None:
    graph = load("""
        v: VarHandleOp[dtype=float32, shape=[]] @ /cpu:1
        x: Const[1.0]
        y: Neg(x) @ /cpu:2
    """)
    placer = Placer(graph, cpu_rules(3))
    run_at_once(placer.place())
    more = """
        later: ReadVariableOp[dtype=float32](v) @ /cpu:2
        with_y: Neg[_class=["loc:@y"]](later)
        shape: Shape[T=float32](y)
        z: Neg[T=float32](x)
    """
    run_at_once(import_into(graph, parse_graph_text(more)))
    run_at_once(placer.place())
    run_at_once(placer.place())
    assert placement_of(graph, placer) == [f"/device:CPU:{i}" for i in (1, 2, 2, 1, 2, 2, 0)]


def test_a_graph_that_cannot_be_placed_stays_so_and_keeps_what_was_placed() -> None:
    graph = graph_on("/cpu:1")
    placer = Placer(graph, cpu_rules(2))
    run_at_once(placer.place())
    with graph, ax.device("/cpu:9"):
        ax.create_op("Const", [], {"value": 1.0, "dtype": ax.float32}, name="bad")
    for _ in range(2):
        with pytest.raises(ax.errors.InvalidArgumentError) as caught:
            run_at_once(placer.place())
        assert caught.value.node == "bad"
    assert str(placer.device_of(graph.operation("n0"))) == f"{CPU_PREFIX}/device:CPU:1"


def test_a_variable_stays_where_it_is_whatever_functions_become() -> None:
    graph = load("""
        v: VarHandleOp[dtype=float32, shape=[]] @ /cpu:1
        w: Const[1.0]
    """)
    placer = Placer(graph, cpu_rules(2))
    run_at_once(placer.place())
    v, w = graph.operation("v"), graph.operation("w")
    body = load("v: VarHandleOp[dtype=float32, shape=[]]\nw: Const[1.0]\nread: ReadVariableOp[dtype=float32](v)")
    nodes = list(body)
    placement = run_at_once(placer.place_nodes(nodes))
    assert [placement.device_of(node).name[-1] for node in nodes] == ["1", "0", "1"]
    assert [placer.device_of(node).name[-1] for node in (v, w)] == ["1", "0"]


def test_colocation_by_name_among_nodes_that_functions_become() -> None:
    nodes = list(
        load("""
        call/x: Const[1.0] @ /cpu:1
        call/y: Neg[_class=["loc:@call/x"]](call/x)
        call/z: Neg[_class=["loc:@call/y", "loc:@gone"]](call/x)
        call/w: Neg[_class=["loc:@gone"]](call/x)
        gone: NoOp
    """)
    )
    placement = run_at_once(place_nodes(nodes[:-1], cpu_rules(2)))
    assert {placement.device_of(node).name[-1] for node in nodes[:-1]} == {"1"}


@pytest.mark.parametrize("count", [1, 3])
def test_what_no_kernel_is_there_for_may_stand_in_a_graph(count: int) -> None:
    graph = load("x: Const[1.0]\nn: VariableNoKernels @ /cpu:0")
    assert placed(graph, count) == ["/device:CPU:0"] * 2


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("classes", [b"loc:@n0", (1,)])
def test_a_class_that_is_no_list_of_strings(count: int, classes: object) -> None:
    graph = graph_on("", "/cpu:0")
    with graph, ax.device("/cpu:5"):
        ax.create_op("Neg", [graph["n0:0"]], {"_class": classes}, name="n2")
    with pytest.raises(ax.errors.InvalidArgumentError, match="attr '_class' takes a list") as caught:
        placed(graph, count)
    assert caught.value.node == "n2"


def test_placement_is_logged_when_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="asyncexec.placement"):
        placed(graph_on("/cpu:0"), log=True)
    assert [record.getMessage() for record in caplog.records] == [
        "n0: (Const): /job:localhost/replica:0/task:0/device:CPU:0"
    ]


@pytest.mark.parametrize("device_count", [{"CPU": 0}, {"TPU": 1}])
def test_a_session_needs_devices_that_exist(device_count: dict[str, int]) -> None:
    with pytest.raises(ax.errors.InvalidArgumentError):
        ax.Session(ax.Graph(), config=ax.SessionConfig(device_count=device_count))


async def test_an_impossible_device_fails_runs_of_other_nodes_too() -> None:
    graph = graph_on("", "/device:GPU:0")
    async with ax.Session(graph) as session:
        for _ in range(2):
            with pytest.raises(ax.errors.InvalidArgumentError, match="GPU"):
                await session.run("n0:0")
    async with ax.Session(graph, config=ax.SessionConfig(allow_soft_placement=True)) as session:
        assert await session.run("n0:0") == 0


async def test_step_stats_tell_the_device() -> None:
    metadata = ax.RunMetadata()
    config = ax.SessionConfig(device_count={"CPU": 2})
    async with ax.Session(graph_on("/cpu:0", "/cpu:1"), config=config) as session:
        await session.run(["n0:0", "n1:0"], options=ax.RunOptions(trace=True), metadata=metadata)
        devices = session.list_devices()
    dev_stats = metadata.step_stats.dev_stats
    nodes = {stats.device[-5:]: [node.node_name for node in stats.node_stats] for stats in dev_stats}
    assert nodes == {"CPU:0": ["n0"], "CPU:1": ["n1"]}
    assert devices == [f"/job:localhost/replica:0/task:0/device:CPU:{i}" for i in range(2)]
