"""The step stats of a traced run have the nodes of the batches that its rows were in."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import asyncexec as ax
from tests.running import import_all_names

TRACED = ax.RunOptions(trace=True)


@pytest.fixture(scope="module", autouse=True)
def all_names() -> None:
    import_all_names()


@ax.batch(max_size=4, timeout_s=0.0)
def inner(rows: Any) -> Any:
    return ax.square(rows, name="square")


@ax.batch(max_size=4, timeout_s=0.0)
def model(rows: Any) -> Any:
    return ax.negative(rows, name="minus")


def nodes_of(metadata: ax.RunMetadata) -> list[tuple[str, str]]:
    """Device and name of each execution."""
    return [
        (device.device[-5:], node.node_name) for device in metadata.step_stats.dev_stats for node in device.node_stats
    ]


@pytest.mark.parametrize("medium", ["call_frame", "rendezvous"])
async def test_each_traced_caller_sees_the_batch(medium: Any) -> None:
    with ax.Graph() as graph:
        fed = ax.placeholder(ax.float32, [None])
        result = model(fed)
    traces = [ax.RunMetadata(), ax.RunMetadata(), ax.RunMetadata()]
    async with ax.Session(graph, ax.SessionConfig(feed_fetch_medium=medium)) as session:
        plain = session.run(result, {fed: [1.0]}, metadata=traces[0])
        traced = [session.run(result, {fed: [i]}, options=TRACED, metadata=traces[i]) for i in (1, 2)]
        results = await asyncio.gather(plain, *traced)
    assert [each.tolist() for each in results] == [[-1.0], [-1.0], [-2.0]]
    assert nodes_of(traces[0]) == []
    for metadata in traces[1:]:
        found = nodes_of(metadata)
        assert found.count(("CPU:0", "model/minus")) == 1
        assert found.count(("CPU:0", "model")) == 1
        (device,) = metadata.step_stats.dev_stats
        times = [node.all_start_nanos for node in device.node_stats]
        assert times == sorted(times)
        call, node = (next(n for n in device.node_stats if n.node_name == name) for name in ("model", "model/minus"))
        assert call.all_start_nanos <= node.all_start_nanos
        end = node.all_start_nanos + node.all_end_rel_nanos
        assert end <= call.all_start_nanos + call.all_end_rel_nanos


async def test_a_batch_within_a_batch_is_seen_and_only_as_long_as_it_is_traced() -> None:
    @ax.batch(max_size=4, timeout_s=0.0)
    def outer(rows: Any) -> Any:
        return inner(rows)

    with ax.Graph() as graph:
        fed = ax.placeholder(ax.float32, [None])
        result = outer(fed)
    traces = [ax.RunMetadata(), ax.RunMetadata()]
    async with ax.Session(graph) as session:
        await session.run(result, {fed: [2.0]}, options=TRACED, metadata=traces[0])
        await session.run(result, {fed: [2.0]}, metadata=traces[1])
    names = [name for _, name in nodes_of(traces[0])]
    assert sum(name.endswith("/square") for name in names) == 1
    assert nodes_of(traces[1]) == []


async def test_a_call_in_two_batches_sees_both() -> None:
    with ax.Graph() as graph:
        fed = ax.placeholder(ax.float32, [None])
        result = ax.batch(max_size=4, allowed_sizes=[2], timeout_s=0.0)(lambda rows: ax.negative(rows, name="minus"))(
            fed
        )
    metadata = ax.RunMetadata()
    async with ax.Session(graph) as session:
        await session.run(result, {fed: [1.0, 2.0, 3.0]}, options=TRACED, metadata=metadata)
    assert sum(name.endswith("/minus") for _, name in nodes_of(metadata)) == 2


async def test_a_batch_that_fails_is_seen_up_to_where_it_failed() -> None:
    @ax.op(outputs=[ax.float32])
    def fails(rows: Any) -> Any:
        raise ValueError("no")

    @ax.batch(max_size=4, timeout_s=0.0)
    def failing(rows: Any) -> Any:
        return fails(ax.negative(rows, name="minus"))

    with ax.Graph() as graph:
        fed = ax.placeholder(ax.float32, [None])
        result = failing(fed)
    metadata = ax.RunMetadata()
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.InvalidArgumentError):
            await session.run(result, {fed: [1.0]}, options=TRACED, metadata=metadata)
    assert ("CPU:0", "failing/minus") in nodes_of(metadata)
