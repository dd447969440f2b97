"""Feeds and fetches by the rendezvous: what a caller sees is what the call frame gives, errors and traces included."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from tests.graph.testing_ops import load
from tests.running import started

MEDIA = ("call_frame", "rendezvous")


@pytest.fixture(params=MEDIA)
def medium(request: pytest.FixtureRequest) -> Any:
    return request.param


def session(graph: ax.Graph, medium: Any, **settings: Any) -> ax.Session:
    return ax.Session(graph, config=ax.SessionConfig(feed_fetch_medium=medium, debug=True, **settings))


def two_device_graph() -> ax.Graph:
    with ax.Graph() as graph:
        with ax.device("/cpu:0"):
            x = ax.placeholder(ax.float32, [None], name="x")
        with ax.device("/cpu:1"):
            y = ax.add(x, 1.0, name="y")
        with ax.device("/cpu:0"):
            ax.multiply(y, x, name="z")
    return graph


async def test_over_two_devices(medium: Any) -> None:
    async with session(two_device_graph(), medium, device_count={"CPU": 2}) as running:
        y, z = await running.run(["y:0", "z:0"], {"x:0": [1, 2]})
    assert (y.tolist(), z.tolist()) == ([2, 3], [2, 6])


async def test_values_go_to_their_devices_and_come_from_them() -> None:
    metadata = ax.RunMetadata()
    options = ax.RunOptions(trace=True, output_partition_graphs=True)
    async with session(two_device_graph(), "rendezvous", device_count={"CPU": 2}) as running:
        await running.run("y:0", {"x:0": [1]}, options=options, metadata=metadata)
    graphs = {graph.node[0].device[-1]: graph for graph in metadata.partition_graphs}
    here = {device: {node.name: node for node in graph.node} for device, graph in graphs.items()}
    assert here["0"]["_recv_x_0"].op == "_Recv"
    assert here["1"]["_send_y_0"].op == "_Send"
    ran = {stats.node_name for device in metadata.step_stats.dev_stats for stats in device.node_stats}
    assert {"_recv_x_0", "y", "_send_y_0"} <= ran


async def test_a_fetch_that_is_fed_is_handed_back(medium: Any) -> None:
    async with session(load("x: Placeholder[float32]\ny: Neg(x)"), medium) as running:
        assert await running.run(["x:0"], {"x:0": 3}) == [3]
        assert await running.run(["y:0", "x:0"], {"x:0": 3}) == [-3, 3]
        assert await running.run(["y:0", "x:0"], {"x:0": 3, "y:0": 5}) == [5, 3]


async def test_a_feed_that_nobody_takes_and_a_run_of_nothing(medium: Any) -> None:
    async with session(load("x: Placeholder[float32]\ny: Const[2.0]"), medium) as running:
        assert await running.run("y:0", {"x:0": 3}) == 2
        assert await running.run([], {"x:0": 3}) == []
        assert await running.run([], targets=["y"]) == []


async def test_a_callable(medium: Any) -> None:
    async with session(load("x: Placeholder[float32]\ny: Neg(x)"), medium) as running:
        call = running.make_callable("y:0", ["x:0"])
        assert [await call(value) for value in (1, 2)] == [-1, -2]


DEAD = """
    x: Placeholder[float32, []]
    p: Placeholder[bool, []]
    s: Switch(x, p)
    n: Neg(s)
    m: Merge(n, s:1)
"""


async def test_a_dead_fetch_has_no_value(medium: Any) -> None:
    async with session(load(DEAD), medium) as running:
        assert await running.run(["n:0", "m:0"], {"x:0": 2, "p:0": False}) == [-2, -2]
        with pytest.raises(ax.errors.InvalidArgumentError, match="'n:0' does not have a value: it is dead") as caught:
            await running.run(["n:0", "m:0"], {"x:0": 2, "p:0": True})
        assert caught.value.node == "n"


LOOP = """
    i: Placeholder[int32, []]
    e: Enter[frame_name='w'](i)
    m: Merge(e, n)
    ten: Const[10](^m)
    l: Less(m, ten)
    c: LoopCond(l)
    s: Switch(m, c)
    one: Const[1](^m)
    a: Add(s:1, one)
    n: NextIteration(a)
    x: Exit(s)
"""


@pytest.mark.parametrize("devices", [1, 2])
async def test_a_fetch_inside_of_a_loop(medium: Any, devices: int) -> None:
    """As in TensorFlow, it has a value if it is alive in one iteration, and in more than one it is an error."""
    graph = load(LOOP.replace("Less(m, ten)", f"Less(m, ten) @ /cpu:{devices - 1}"))
    async with session(graph, medium, device_count={"CPU": devices}) as running:
        assert await running.run(["x:0", "s:0"], {"i:0": 5}) == [10, 10]
        assert await running.run(["x:0", "a:0"], {"i:0": 9}) == [10, 10]
        with pytest.raises(ax.errors.InternalError, match="fetch 1 has already been set"):
            await running.run(["x:0", "a:0"], {"i:0": 8})
        with pytest.raises(ax.errors.InvalidArgumentError, match="'a:0' does not have a value: it is inside loop 'w'"):
            await running.run(["x:0", "a:0"], {"i:0": 10})


VARIABLE = "v: VariableV2[shape=[], dtype=float32]\nw: Placeholder[float32, []]\na: Assign(v, w)\nd: Neg(v)"


async def test_a_variable_is_fetched_as_its_value(medium: Any) -> None:
    async with session(load(VARIABLE), medium) as running:
        assert await running.run("a:0", {"w:0": 4}) == 4
        assert await running.run(["v:0", "d:0"]) == [4, -4]
        assert await running.run("d:0", {"v:0": 1}) == -1


async def test_errors_name_nodes_of_the_users(medium: Any) -> None:
    async with session(load(VARIABLE), medium) as running:
        with pytest.raises(ax.errors.FailedPreconditionError) as caught:
            await running.run("v:0")
        assert (caught.value.node, caught.value.op) == ("v", "VariableV2")
        with pytest.raises(ax.errors.InvalidArgumentError, match="takes a reference to a variable, but a value is fed"):
            await running.run("a:0", {"v:0": 1, "w:0": 2})
        with pytest.raises(ax.errors.InvalidArgumentError, match="w -> a") as unfed:
            await running.run("a:0")
        assert unfed.value.node == "w"


async def test_a_run_that_waits_can_be_cancelled(medium: Any) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        never = ax.FIFOQueue(1, [ax.float32]).dequeue()
    async with session(graph, medium) as running:
        task = await started(running.run([x + 1.0, never], {x: np.float32(1)}))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await running.run(x + 1.0, {x: 1}) == 2


async def test_many_runs_at_once(medium: Any) -> None:
    async with session(two_device_graph(), medium, device_count={"CPU": 2}) as running:
        tasks = [await started(running.run("z:0", {"x:0": [i]})) for i in range(20)]
        assert [(await task).item() for task in tasks] == [i * (i + 1) for i in range(20)]
