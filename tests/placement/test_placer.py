"""The device of each node: asked for, absent, impossible."""

from __future__ import annotations

import logging

import pytest

import asyncexec as ax
from asyncexec.framework.cooperative import run_at_once
from asyncexec.placement.device_set import DeviceSet
from asyncexec.placement.placer import Placer


def graph_on(*devices: str) -> ax.Graph:
    with ax.Graph() as graph:
        for i, device in enumerate(devices):
            with ax.device(device):
                ax.create_op("Const", [], {"value": float(i), "dtype": ax.float32}, name=f"n{i}")
    return graph


def placed(graph: ax.Graph, count: int = 1, *, soft: bool = False, log: bool = False) -> list[str]:
    placer = Placer(graph, DeviceSet({"CPU": count}), allow_soft_placement=soft, log_placement=log)
    run_at_once(placer.place())
    return [str(placer.device_of(node)).removeprefix("/job:localhost/replica:0/task:0") for node in graph]


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


def test_soft_placement_takes_the_default_device() -> None:
    assert placed(graph_on("/device:GPU:0"), soft=True) == ["/device:CPU:0"]


def test_placement_is_logged_when_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="asyncexec.placement"):
        placed(graph_on("/cpu:0"), log=True)
    assert [record.getMessage() for record in caplog.records] == [
        "n0: (Const): /job:localhost/replica:0/task:0/device:CPU:0"
    ]


@pytest.mark.parametrize("device_count", [{"CPU": 0}, {"GPU": 1}])
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
