"""Steps over several partitions: Sends and Recvs of the user's, dead values, order, turns of the loop, traces."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.kernel import KernelKind
from tests.executor.channels import CPU, SpyRendezvous, recv, send
from tests.executor.test_executor import Turns
from tests.fake_time import FakeTime
from tests.graph.testing_ops import load
from tests.running import raw_op, settle

CONFIG: Final = ax.SessionConfig(device_count={"CPU": 3}, num_worker_threads=2, debug=True)


@pytest.fixture(scope="module", autouse=True)
def op_modules() -> None:
    """Import what is used here: a test that runs in a loop must not read files."""
    with ax.Graph():
        ring(3, 1)
        ax.cond(ax.placeholder(ax.bool, []), lambda: ax.constant(1.0), lambda: ax.constant(2.0))
        ax.while_loop(lambda i: i < 1, lambda i: i + 1, [0])


@pytest.fixture
def graph() -> Iterator[ax.Graph]:
    with ax.Graph() as graph:
        yield graph


def on(device: int) -> Any:
    return ax.device(f"/cpu:{device}")


def ring(length: int, devices: int, add: Any = None) -> tuple[Any, Any]:
    """x + 1 + 1 + ..., each on the next device."""
    last = x = ax.placeholder(ax.float32, [])
    for i in range(length):
        with on(i % devices):
            last = add(last) if add is not None else last + 1.0
    return x, last


@pytest.mark.parametrize("target", [0, 1])
@pytest.mark.parametrize("comes_first", ["send", "recv"])
async def test_a_pair_of_the_users(graph: ax.Graph, target: int, comes_first: str) -> None:
    """On one device and over two; whichever is there first."""
    go = asyncio.Event()

    async def wait() -> Any:
        await go.wait()
        return np.float32(5)

    late = raw_op("Late", wait, kind=KernelKind.ASYNC, dtype=ax.float32)()
    value = late if comes_first == "recv" else ax.constant(5.0)
    pair = send(value, "k", target=target)
    got = recv(ax.float32, "k", target=target, control=[late.op] if comes_first == "send" else [])
    with on(target):
        doubled = got + got
    async with ax.Session(graph, CONFIG) as session:
        for _ in range(2):
            go.clear()
            run = asyncio.create_task(session.run(doubled, targets=[pair]))
            await settle()
            assert not run.done()
            go.set()
            assert await run == 10.0


@pytest.mark.parametrize("target", [0, 1])
async def test_a_recv_of_the_users_without_its_send(graph: ax.Graph, target: int) -> None:
    send(ax.constant(1.0), "k", target=target)
    got = recv(ax.float32, "k", target=target, name="got")
    fine = ax.constant(2.0)
    async with ax.Session(graph, CONFIG) as session:
        with pytest.raises(ax.errors.InvalidArgumentError, match=r"_Recv 'got' waits for the key .*;k'") as caught:
            await session.run(got)
        assert caught.value.node == "got"
        assert "run the _Send too" in str(caught.value)
        assert await session.run(got, {got: 3.0}) == 3.0
        assert await session.run(fine) == 2.0


async def test_two_sends_and_two_recvs_of_one_key(graph: ax.Graph) -> None:
    """Each Recv gets one of the values; which of them, only the order of the nodes tells."""
    first = send(ax.constant(1.0), "k")
    with ax.control_dependencies([first]):
        second = send(ax.constant(2.0), "k")
    one = recv(ax.float32, "k", control=[second])
    other = recv(ax.float32, "k", control=[one.op])
    async with ax.Session(graph, CONFIG) as session:
        assert await session.run([one, other], targets=[first, second]) == [1.0, 2.0]


async def test_a_dead_value_crosses_and_comes_back(graph: ax.Graph) -> None:
    """The side that is not taken goes over all devices, by data and by control edges, to a Merge on the first."""
    text = """
        x: Placeholder[float32, []]
        p: Placeholder[bool, []]
        s: Switch(x, p)
        f1: Neg(s:0) @ /cpu:1
        f2: Neg(f1) @ /cpu:2
        t1: Identity(s:1) @ /cpu:2
        wait: NoOp(^t1) @ /cpu:1
        after: Const[100.0](^wait) @ /cpu:2
        t2: AddV2(t1, after) @ /cpu:1
        m: Merge(f2, t2)
        which: Identity(m:1) @ /cpu:2
    """
    async with ax.Session(load(text), CONFIG) as session:
        for value, taken, expected in ((3.0, False, [3.0, 0]), (4.0, True, [104.0, 1])):
            assert await session.run(["m:0", "which:0"], {"x:0": value, "p:0": taken}) == expected
        for fetch, taken in (("f2:0", True), ("t2:0", False), ("after:0", False)):
            with pytest.raises(ax.errors.InvalidArgumentError, match="does not have a value"):
                await session.run(fetch, {"x:0": 1.0, "p:0": taken})


async def test_a_dead_send_of_the_users_gives_a_dead_value(graph: ax.Graph) -> None:
    taken = ax.placeholder(ax.bool, [])
    no, yes = ax.create_op("Switch", [ax.constant(1.0), taken])
    pair, got = send(yes, "k", target=1), recv(ax.float32, "k", target=1)
    with on(1):
        merged = ax.create_op("Merge", [[got, no]])[0]
    async with ax.Session(graph, CONFIG) as session:
        for value in (True, False):
            assert await session.run(merged, {taken: value}, targets=[pair]) == 1.0
        with pytest.raises(ax.errors.InvalidArgumentError, match="does not have a value"):
            await session.run(got, {taken: False}, targets=[pair])


async def test_a_switch_that_joins_its_input_on_the_one_device_that_is_left() -> None:
    text = """
        unused: Placeholder[float32, []]
        x: Placeholder[float32, []]
        p: Placeholder[bool, []]
        there: Identity(x) @ /cpu:1
        s: Switch(there, p) @ /cpu:2
    """
    async with ax.Session(load(text), CONFIG) as session:
        assert await session.run("s:1", {"unused:0": 7.0, "x:0": 1.0, "p:0": True}) == 1.0


@pytest.mark.one_of("loop")
@pytest.mark.parametrize("devices", [2, 3])
async def test_the_loop_gets_turns(graph: ax.Graph, devices: int) -> None:
    """3,000 nodes and as many crossings of 10 us each, in slices of a millisecond, whatever partitions they are in."""
    x, last = ring(3000, devices, raw_op("Step", lambda value: value, is_expensive=False, dtype=ax.float32))
    time = FakeTime()
    async with ax.Session(graph, ax.SessionConfig(device_count={"CPU": 3}), clock=time.clock) as session:
        await session.run(last, {x: 1.0})
        time.step_ns = 10_000
        async with Turns() as turns:
            assert await session.run(last, {x: 2.0}) == 2.0
    assert turns.count >= 3000 // 100


async def test_many_steps_at_once(graph: ax.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inline, awaited and worked on in turn over three devices; each step has its own values and its own rendezvous."""
    SpyRendezvous.made = steps = []
    monkeypatch.setattr("asyncexec.session.step_args.Rendezvous", SpyRendezvous)

    async def awaited(value: Any) -> Any:
        await asyncio.sleep(0)
        return value + np.float32(1)

    def plain(value: Any) -> Any:
        return value + np.float32(1)

    kinds = [
        raw_op("Awaited", awaited, kind=KernelKind.ASYNC, dtype=ax.float32),
        raw_op("Worked", plain, kind=KernelKind.EXPENSIVE, dtype=ax.float32, is_expensive=True),
        raw_op("Inline", plain, dtype=ax.float32),
        raw_op("Inline", plain, dtype=ax.float32),
    ]
    nodes = iter(range(12))
    x, last = ring(12, 3, lambda value: kinds[next(nodes) % 4](value))
    async with ax.Session(graph, CONFIG) as session:
        found = await asyncio.gather(*(session.run(last, {x: float(i)}) for i in range(200)))
    assert found == [i + 12.0 for i in range(200)]
    assert len(steps) == 200
    assert all(not step.aborts and step.statistics().num_waiters == 0 for step in steps)


@pytest.mark.parametrize("seed", range(8))
async def test_results_do_not_depend_on_the_order(graph: ax.Graph, seed: int) -> None:
    """Fibonacci numbers by a loop over two devices, its results gathered on a third."""

    def body(i: Any, a: Any, b: Any) -> Any:
        with on(0):
            total = a + b
        with on(1):
            return i + 1, ax.identity(b), ax.identity(total)

    n = ax.placeholder(ax.int32, [])
    results = ax.while_loop(lambda i, a, b: i < n, body, [0, 0, 1], parallel_iterations=3)
    with on(2):
        both = ax.stack([results[1], results[2]])
    config = CONFIG.model_copy(update={"schedule_seed": seed})
    async with ax.Session(graph, config) as session:
        for count, expected in ((0, [0, 1]), (1, [1, 1]), (10, [55, 89]), (30, [832040, 1346269])):
            assert (await session.run(both, {n: count})).tolist() == expected


async def run_traced(graph: ax.Graph, *args: Any, **others: Any) -> ax.RunMetadata:
    metadata = ax.RunMetadata()
    options = ax.RunOptions(trace=True, output_partition_graphs=True)
    async with ax.Session(graph, CONFIG) as session:
        await session.run(*args, options=options, metadata=metadata, **others)
    return metadata


async def test_what_ran_is_told_device_by_device(graph: ax.Graph) -> None:
    x = ax.placeholder(ax.float32, [], name="x")
    with on(1):
        doubled = ax.add(x, x, name="doubled")
    with on(2):
        ax.negative(doubled, name="last")
    metadata = await run_traced(graph, "last:0", {"x:0": 2.0})
    stats = {device.device: device.node_stats for device in metadata.step_stats.dev_stats}
    assert list(stats) == [f"{CPU}1", f"{CPU}2"]
    ran = [[node.node_name.partition("/")[0] for node in nodes] for nodes in stats.values()]
    assert ran == [["doubled", "doubled"], ["doubled", "last"]]  # the value, its Send; its Recv, and what takes it
    labels = [node.timeline_label.partition("(")[0] for nodes in stats.values() for node in nodes]
    assert [label.rpartition(" ")[2] for label in labels] == ["AddV2", "_Send", "_Recv", "Neg"]


async def test_what_is_dead_did_not_run(graph: ax.Graph) -> None:
    text = "x: Const[1.0]\np: Const[false]\ns: Switch(x, p)\nt: Neg(s:1) @ /cpu:1\nf: Neg(s:0)\nm: Merge(t, f)"
    metadata = await run_traced(load(text), "m:0")
    ran = {node.node_name.partition("/")[0] for stats in metadata.step_stats.dev_stats for node in stats.node_stats}
    assert "f" in ran
    assert "t" not in ran


async def test_partition_graphs(graph: ax.Graph) -> None:
    """One for each device; but for what is the runtime's own, they are the nodes that were asked for."""
    x, last = ring(4, 2)
    metadata = await run_traced(graph, last, {x: 1.0})
    parts = {part.node[0].device: part for part in metadata.partition_graphs}
    assert sorted(parts) == [f"{CPU}0", f"{CPU}1"]
    for device, part in parts.items():
        assert {node.device for node in part.node} == {device}
        with ax.Graph(), pytest.raises(ax.errors.InvalidArgumentError, match=r"runtime's own|name is invalid"):
            ax.import_graph_def(part)
    ops = sorted(node.op for part in parts.values() for node in part.node if node.op != "Const")
    assert ops == sorted(["AddV2"] * 4 + ["_Send", "_Recv"] * 3 + ["_Arg", "_Retval"])


async def test_a_partition_without_crossings_can_be_imported_again(graph: ax.Graph) -> None:
    with on(1):
        v = ax.Variable(1.0, name="v")
    metadata = await run_traced(graph, [], targets=[v.initializer])
    (part,) = metadata.partition_graphs
    with ax.Graph() as again:
        ax.import_graph_def(part)
    async with ax.Session(again, CONFIG) as session:
        await session.run([], targets=[v.initializer.name])


async def test_an_error_at_the_end_of_a_crossing_names_who_takes_the_value() -> None:
    """A Switch that gets no scalar from another device fails itself, not the Send."""
    text = """
        x: Const[1.0] @ /cpu:0
        p: Placeholder[bool]
        there: Identity(p) @ /cpu:1
        s: Switch(x, there) @ /cpu:0
    """
    async with ax.Session(load(text), CONFIG) as session:
        with pytest.raises(ax.errors.InvalidArgumentError) as caught:
            await session.run("s:1", {"p:0": [True, False]})
        assert caught.value.node == "s"
        assert await session.run("s:1", {"p:0": True}) == 1.0
