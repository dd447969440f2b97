"""Traces of streams, maps and callables."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

import asyncexec as ax


@ax.op(retries=1)
async def fetched(x: float) -> float:
    await asyncio.sleep(0)
    if x == 2:
        raise ValueError("two")
    return x


@ax.op(expensive=True)
def worked(x: float) -> float:
    return x + 1


@pytest.fixture
def graph() -> ax.Graph:
    with ax.Graph() as graph:
        ax.identity(worked(fetched(ax.placeholder(ax.float64, [], name="x"))), name="y")
    return graph


def counted(metadata: ax.RunMetadata) -> Counter[str]:
    return Counter(node.node_name for device in metadata.step_stats.dev_stats for node in device.node_stats)


@pytest.mark.parametrize("executor_type", ["", "COMPILED", "TAGGED_TOKEN"])
async def test_map(graph: ax.Graph, executor_type: str) -> None:
    metadata = ax.RunMetadata()
    async with ax.Session(graph, ax.SessionConfig(executor_type=executor_type)) as session:
        items = [{"x:0": float(value)} for value in range(5)]
        results = [out async for out in session.map("y:0", items, on_error="yield", metadata=metadata)]
        assert len(results) == 5
        assert [out async for out in session.map("y:0", items[:2])] == [1.0, 2.0]
    assert counted(metadata) == {"fetched": 5, "worked": 4, "y": 4}
    (device,) = metadata.step_stats.dev_stats
    assert [node.failure for node in device.node_stats if node.failure] == ["ValueError: two"]
    assert "event loop" in device.thread_names.values()
    assert len(device.thread_names) > 1


async def test_stream(graph: ax.Graph) -> None:
    metadata = ax.RunMetadata()
    async with ax.Session(graph) as session, session.stream("y:0", metadata=metadata) as stream:
        for value in (0.0, 1.0, 3.0):
            await stream.send({"x:0": value})
        await stream.close()
        assert [out async for out in stream] == [1.0, 2.0, 4.0]
    assert counted(metadata) == {"fetched": 3, "worked": 3, "y": 3}


async def test_callable_fills_it_anew(graph: ax.Graph) -> None:
    metadata = ax.RunMetadata()
    async with ax.Session(graph) as session:
        call = session.make_callable("y:0", ["x:0"], metadata=metadata)
        for value in (0.0, 1.0, 3.0, 4.0):
            assert await call(value) == value + 1
            assert counted(metadata) == {"fetched": 1, "worked": 1, "y": 1}
        plain = session.make_callable("y:0", ["x:0"])
        assert await plain(5.0) == 6.0
    assert [node.node_name for node in metadata.step_stats.dev_stats[0].node_stats] == ["fetched", "worked", "y"]


def test_blocking_map(graph: ax.Graph) -> None:
    metadata = ax.RunMetadata()
    with ax.BlockingSession(graph) as session:
        assert list(session.map("y:0", [{"x:0": 0.0}], metadata=metadata)) == [1.0]
    assert counted(metadata) == {"fetched": 1, "worked": 1, "y": 1}
