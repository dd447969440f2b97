"""An output with more consumers than are delivered to in one go: the right results, and each node in the trace once."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

import asyncexec as ax
from tests.running import raw_op

MANY = 2500


@pytest.fixture
def calls() -> list[int]:
    return []


def traced(metadata: ax.RunMetadata) -> Counter[str]:
    (device,) = metadata.step_stats.dev_stats
    return Counter(stats.node_name for stats in device.node_stats)


async def run(
    graph: ax.Graph, fetches: object, feeds: object = None, targets: object = ()
) -> tuple[object, Counter[str]]:
    metadata = ax.RunMetadata()
    async with ax.Session(graph) as session:
        options = ax.RunOptions(trace=True)
        result = await session.run(fetches, feeds, targets=targets, options=options, metadata=metadata)  # type: ignore[arg-type]
    return result, traced(metadata)


@pytest.mark.one_of("loop")
async def test_consumers_of_a_value(calls: list[int]) -> None:
    with ax.Graph() as graph:
        source = raw_op("Source", lambda: calls.append(1) or 3.0, dtype=ax.float32)(name="source")
        consumers = [ax.add(source, float(i), name=f"c{i}") for i in range(MANY)]
    result, counts = await run(graph, [*consumers, source])
    assert result == [3.0 + i for i in range(MANY)] + [3.0]
    assert calls == [1]
    assert counts["source"] == 1
    assert all(counts[f"c{i}"] == 1 for i in range(MANY))


async def test_one_consumer_of_every_value_many_times() -> None:
    with ax.Graph() as graph:
        x = ax.identity(ax.placeholder(ax.float32, [], name="x"), name="source")
        total = ax.add_n([x] * MANY, name="total")
    result, counts = await run(graph, total, {"x:0": 2.0})
    assert result == 2.0 * MANY
    assert counts == {"source": 1, "total": 1}


@pytest.mark.one_of("loop")
async def test_consumers_of_a_feed() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        consumers = [ax.negative(x, name=f"c{i}") for i in range(MANY)]
    result, counts = await run(graph, consumers, {x: 2.0})
    assert result == [-2.0] * MANY
    assert counts == {f"c{i}": 1 for i in range(MANY)}


@pytest.mark.one_of("loop")
async def test_consumers_of_each_output_of_an_op() -> None:
    with ax.Graph() as graph:
        parts = ax.split(ax.identity(ax.constant([1.0, 2.0]), name="source"), 2, name="parts")
        consumers = [ax.negative(part) for _ in range(MANY // 2) for part in parts]
    result, counts = await run(graph, consumers)
    assert [float(value[0]) for value in result] == [-1.0, -2.0] * (MANY // 2)  # type: ignore[attr-defined]
    assert counts["parts"] == 1


@pytest.mark.one_of("loop")
@pytest.mark.parametrize("source", ["node", "feed"])
async def test_nodes_that_wait(calls: list[int], source: str) -> None:
    note = raw_op("Note", lambda: calls.append(1))
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        first = x if source == "feed" else raw_op("First", lambda: calls.append(0))(name="first")
        with ax.control_dependencies([first]):
            waiting = [note(name=f"w{i}") for i in range(MANY)]
    _, counts = await run(graph, [], {x: 1.0}, waiting)
    assert calls == [0] * (source == "node") + [1] * MANY
    assert sum(counts.values()) == MANY + (source == "node")
    assert set(counts.values()) == {1}


@pytest.mark.one_of("loop")
async def test_async_source_and_consumers() -> None:
    @ax.op
    async def later(x: float) -> float:
        await asyncio.sleep(0)
        return x

    with ax.Graph() as graph:
        source = later(ax.placeholder(ax.float64, [], name="x"), name="source")
        consumers = [later(source) for _ in range(MANY)]
    result, counts = await run(graph, consumers, {"x:0": 2.0})
    assert result == [2.0] * MANY
    assert counts.total() == MANY + 1


async def test_failure_behind_a_relay() -> None:
    def fail(x: float) -> float:
        raise ValueError("behind")

    with ax.Graph() as graph:
        source = ax.identity(ax.placeholder(ax.float32, [], name="x"))
        consumers = [ax.negative(source) for _ in range(MANY)]
        broken = raw_op("Broken", fail)(source, name="broken")
    async with ax.Session(graph) as session:
        for _ in range(2):
            with pytest.raises(ax.errors.InvalidArgumentError, match="behind") as caught:
                await session.run([*consumers, broken], {"x:0": 1.0})
            assert caught.value.node == "broken"
