"""Both orders: place all nodes, then prune; or prune first, and then an unneeded node may ask for any device."""

from __future__ import annotations

import pytest

import asyncexec as ax
from tests.passes.rewriting import graph_of

TEXT = """
    x: Placeholder[float32, []]
    y: Neg(x)
    elsewhere: Abs(x) @ /gpu:7
"""


@pytest.fixture
def graph() -> ax.Graph:
    return graph_of(TEXT)


async def test_all_nodes_are_placed_needed_or_not(graph: ax.Graph) -> None:
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.InvalidArgumentError, match="elsewhere"):
            await session.run("y:0", {"x:0": 1.0})


@pytest.mark.parametrize("medium", ["call_frame", "rendezvous"])
async def test_only_what_is_needed_is_placed(graph: ax.Graph, medium: str) -> None:
    config = ax.SessionConfig(place_pruned_graph=True, feed_fetch_medium=medium)
    async with ax.Session(graph, config) as session:
        assert await session.run("y:0", {"x:0": 1.0}) == -1
        assert await session.run("y:0", {"elsewhere:0": 1.0, "x:0": 2.0}) == -2
        with pytest.raises(ax.errors.InvalidArgumentError, match="elsewhere"):
            await session.run("elsewhere:0", {"x:0": 1.0})
        assert await session.run("y:0", {"x:0": 3.0}) == -3


async def test_a_variable_stays_where_the_first_signature_had_it() -> None:
    with ax.Graph() as graph:
        one = ax.Variable(1.0, name="one")
        with ax.device("/cpu:1"):
            set_there = one.assign(5.0, name="set_there")
        read = ax.identity(one, name="read")
    config = ax.SessionConfig(place_pruned_graph=True, device_count={"CPU": 2})
    devices = []
    async with ax.Session(graph, config) as session:
        for fetch in (set_there, read, read):
            options, metadata = ax.RunOptions(output_partition_graphs=True), ax.RunMetadata()
            await session.run(fetch, options=options, metadata=metadata)
            devices += [
                node.device for part in metadata.partition_graphs for node in part.node if node.op == "VarHandleOp"
            ]
        assert await session.run(read) == 5
    assert [device[-5:] for device in devices] == ["CPU:1"] * 3
