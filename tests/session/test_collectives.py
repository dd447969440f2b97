"""Collectives among the CPU devices of one step: what they give, what does not fit, and members that never come."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.kernel import KernelKind
from tests.running import import_all_names, raw_op, settle, started

CONFIG: Final = ax.SessionConfig(device_count={"CPU": 3}, debug=True)
REDUCE: Final = {"merge_op": "Add", "final_op": "Id"}


@pytest.fixture(scope="module", autouse=True)
def op_modules() -> None:
    """Import what is used here: a test that runs in a loop must not read files."""
    import_all_names()
    with ax.Graph():
        reduce(ax.constant([1.0]))
        ax.while_loop(lambda i: i < 1, lambda i: i + 1, [0])


def reduce(value: Any, size: int = 3, *, group: int = 1, instance: int = 1, timeout: float = 0.0, **others: Any) -> Any:
    attrs = REDUCE | {"timeout_seconds": timeout} | others
    name = attrs.pop("name", None)
    return ax.create_op("CollectiveReduceV2", [value, size, group, instance, []], attrs, name)


@pytest.fixture
def graph() -> Iterator[ax.Graph]:
    """The graph that the test builds."""
    with ax.Graph() as graph:
        yield graph


def on(device: int) -> Any:
    return ax.device(f"/cpu:{device}")


def on_each(make: Any, count: int = 3) -> list[Any]:
    """What *make* makes of the number of a device, on that device, for each of them."""
    made = []
    for device in range(count):
        with on(device):
            made.append(make(device))
    return made


async def run(graph: ax.Graph, *args: Any, **others: Any) -> Any:
    async with ax.Session(graph, CONFIG) as session:
        return await session.run(*args, **others)


@pytest.mark.parametrize(
    ("merge_op", "final_op", "expected"), [("Add", "Id", [6, 60]), ("Add", "Div", [2, 20]), ("Max", "Id", [3, 30])]
)
async def test_reduce(graph: ax.Graph, merge_op: str, final_op: str, expected: list[int]) -> None:
    nodes = on_each(lambda d: reduce(ax.constant([d + 1.0, 10.0 * (d + 1)]), merge_op=merge_op, final_op=final_op))
    for value in await run(graph, nodes):
        assert value.tolist() == expected


async def test_gather_is_in_the_order_of_the_devices(graph: ax.Graph) -> None:
    nodes = on_each(lambda d: ax.create_op("CollectiveGatherV2", [ax.constant([[d, d]]), 3, 1, 1, []]))
    for value in await run(graph, nodes[::-1]):
        assert value.tolist() == [[0, 0], [1, 1], [2, 2]]


async def test_broadcast(graph: ax.Graph) -> None:
    keys = (3, 1, 1)
    with on(1):
        sent = ax.create_op("CollectiveBcastSendV2", [ax.constant([1.0, 2.0]), *keys])
    received = []
    for device in (0, 2):
        with on(device):
            received.append(ax.create_op("CollectiveBcastRecvV2", [*keys, [2]], {"T": ax.float32}))
    assert [value.tolist() for value in await run(graph, [sent, *received])] == [[1.0, 2.0]] * 3


async def test_keys_that_are_attrs(graph: ax.Graph) -> None:
    attrs = REDUCE | {"group_size": 3, "group_key": 1, "instance_key": 1, "subdiv_offsets": [0]}
    nodes = on_each(lambda d: ax.create_op("CollectiveReduce", [ax.constant([float(d)])], attrs))
    assert [value.tolist() for value in await run(graph, nodes)] == [[3.0]] * 3


async def test_one_device_is_a_group_too(graph: ax.Graph) -> None:
    assert (await run(graph, reduce(ax.constant([2.0]), 1))).tolist() == [2.0]


async def test_in_loops_that_go_round_together(graph: ax.Graph) -> None:
    """v = v + the sum of all, five times: 3 devices that begin with 0, 1 and 2."""

    def loop(device: int) -> Any:
        def body(i: Any, v: Any) -> Any:
            with on(device):
                return i + 1, v + reduce(v)

        return ax.while_loop(lambda i, v: i < 5, body, [0, ax.constant([float(device)])])[1]

    got = [value.tolist() for value in await run(graph, on_each(loop))]
    values = [0.0, 1.0, 2.0]
    for _ in range(5):
        values = [value + sum(values) for value in values]
    assert got == [[value] for value in values]


@pytest.mark.parametrize(
    ("make", "kind", "text"),
    [
        (lambda d: reduce(ax.constant([1.0] * (1 + d // 2))), "InvalidArgumentError", "Shape mismatch"),
        (lambda d: reduce(ax.constant([1.0], [ax.float32, ax.float64][d // 2])), "InternalError", "float64"),
        (lambda d: reduce(ax.constant([1.0]), 3 - d // 2), "InternalError", "that group has size"),
        (lambda d: reduce(ax.constant([1.0]), 0), "InvalidArgumentError", "must be positive integer but got 0"),
        (lambda d: reduce(ax.constant([1.0]), merge_op="Mul" if d else "Add"), "InternalError", "expected Add and Id"),
    ],
    ids=["shape", "dtype", "size", "no size", "merge op"],
)
async def test_what_does_not_fit_ends_the_step(graph: ax.Graph, make: Any, kind: str, text: str) -> None:
    nodes, good = on_each(make), reduce(ax.constant([1.0]), 1, group=9)
    async with ax.Session(graph, CONFIG) as session:
        for _ in range(2):
            with pytest.raises(getattr(ax.errors, kind), match=text) as caught:
                await session.run(nodes)
            assert caught.value.node in {node.op.name for node in nodes}
        assert (await session.run(good)).tolist() == [1.0]


async def test_a_group_that_never_comes(graph: ax.Graph) -> None:
    nodes = on_each(lambda d: reduce(ax.constant([1.0]), name=f"r{d}"), 2)
    with pytest.raises(ax.errors.InternalError, match=r"r0 .*group 1, instance 1.*r1 .*2 waiting collectives"):
        await run(graph, nodes)


async def test_a_group_that_never_comes_in_an_item_of_a_stream(graph: ax.Graph) -> None:
    x = ax.placeholder(ax.float32, [1], name="x")
    nodes = on_each(lambda d: reduce(x, name=f"r{d}"), 2)
    async with ax.Session(graph, CONFIG) as session:
        found = [out async for out in session.map(nodes, [{x: [1.0]}, {x: [2.0]}], on_error="yield")]
    for number, error in enumerate(found):
        assert isinstance(error, ax.errors.InternalError)
        assert f"item {number}: " in error.message
        assert "2 waiting collectives will never be met" in error.message


async def test_members_that_wait_for_each_other(graph: ax.Graph) -> None:
    """Device 0 begins instance 1 first, device 1 instance 2."""
    lasts = []
    for device, order in enumerate([(1, 2), (2, 1)]):
        with on(device):
            first = reduce(ax.constant([1.0]), 2, instance=order[0])
            lasts.append(reduce(first, 2, instance=order[1]))
    with pytest.raises(ax.errors.InternalError, match="2 waiting collectives will never be met"):
        await run(graph, lasts)


async def test_a_member_in_a_branch_that_is_not_taken(graph: ax.Graph) -> None:
    taken = ax.placeholder(ax.bool, [])

    def make(device: int) -> Any:
        value = ax.constant([1.0 + device])
        if device == 1:
            return ax.cond(taken, lambda: reduce(value, name="inside"), lambda: ax.identity(value))
        return reduce(value)

    nodes = on_each(make)
    async with ax.Session(graph, CONFIG) as session:
        assert [value.tolist() for value in await session.run(nodes, {taken: True})] == [[6.0]] * 3
        with pytest.raises(ax.errors.InternalError, match="2 waiting collectives will never be met"):
            await session.run(nodes, {taken: False})


@pytest.mark.parametrize("kind", [KernelKind.ASYNC, KernelKind.EXPENSIVE])
async def test_a_member_that_comes_late_is_waited_for(graph: ax.Graph, kind: KernelKind) -> None:
    """As long as anything is under way, nobody is stuck."""
    come = asyncio.Event()

    async def late() -> Any:
        await come.wait()
        return np.array([5.0], np.float32)

    kernel = late if kind is KernelKind.ASYNC else lambda: np.array([5.0], np.float32)
    nodes = on_each(lambda d: reduce(ax.constant([1.0])), 2)
    with on(2):
        source = raw_op("Late", kernel, kind=kind, dtype=ax.float32, is_expensive=kind is KernelKind.EXPENSIVE or None)
        nodes.append(reduce(source()))
    async with ax.Session(graph, CONFIG) as session:
        task = await started(session.run(nodes))
        await settle(50)
        assert kind is not KernelKind.ASYNC or not task.done()
        come.set()
        assert [value.tolist() for value in await task] == [[7.0]] * 3


@pytest.mark.virtual_clock
async def test_a_timeout_of_its_own(graph: ax.Graph) -> None:
    nodes = on_each(lambda d: reduce(ax.constant([1.0]), timeout=30.0), 2)
    loop = asyncio.get_running_loop()
    start = loop.time()
    with pytest.raises(ax.errors.DeadlineExceededError, match="timed out waiting for other workers"):
        await run(graph, nodes)
    assert loop.time() - start == pytest.approx(30)


def waiting_graph(graph: ax.Graph, kernel: Any) -> list[Any]:
    """Two of three members, and a node that they could still be waiting for."""
    nodes = on_each(lambda d: reduce(ax.constant([1.0])), 2)
    with on(2):
        nodes.append(reduce(raw_op("Last", kernel, kind=KernelKind.ASYNC, dtype=ax.float32)(), name="last"))
    return nodes


@pytest.mark.virtual_clock
async def test_the_timeout_of_the_run(graph: ax.Graph) -> None:
    nodes = waiting_graph(graph, asyncio.Event().wait)
    async with ax.Session(graph, CONFIG) as session:
        with pytest.raises(ax.errors.DeadlineExceededError, match="more than its timeout of 60 s"):
            await session.run(nodes, options=ax.RunOptions(timeout=60))


async def test_cancellation(graph: ax.Graph) -> None:
    nodes = waiting_graph(graph, asyncio.Event().wait)
    async with ax.Session(graph, CONFIG) as session:
        task = await started(session.run(nodes))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_the_cause_is_reported_and_not_what_fails_with_it(graph: ax.Graph) -> None:
    fail = asyncio.Event()

    async def failing() -> Any:
        await fail.wait()
        raise ax.errors.AbortedError("falling sky")

    nodes = waiting_graph(graph, failing)
    async with ax.Session(graph, CONFIG) as session:
        task = await started(session.run(nodes))
        fail.set()
        with pytest.raises(ax.errors.AbortedError, match="falling sky") as caught:
            await task
        assert caught.value.node == "Last"


@pytest.mark.parametrize("size", [2, 3], ids=["misfit", "stuck"])
async def test_a_failed_step_keeps_no_values(graph: ax.Graph, size: int) -> None:
    made: list[weakref.ref[Any]] = []

    def make() -> Any:
        value = np.ones(10, np.float32)
        made.append(weakref.ref(value))
        return value

    merge_ops = ["Add", "Mul" if size == 2 else "Add"]
    nodes = on_each(lambda d: reduce(raw_op("Make", make, dtype=ax.float32)(), size, merge_op=merge_ops[d]), 2)
    gc.disable()
    try:
        async with ax.Session(graph, CONFIG) as session:
            with pytest.raises(ax.errors.InternalError):
                await session.run(nodes)
            await settle()
            assert [value() for value in made] == [None, None]
    finally:
        gc.enable()


async def test_a_successful_step_keeps_no_values(graph: ax.Graph) -> None:
    nodes = on_each(lambda d: reduce(ax.constant([1.0])))
    gc.disable()
    try:
        async with ax.Session(graph, CONFIG) as session:
            values = await session.run(nodes)
            left = [weakref.ref(value) for value in values]
            del values
            await settle()
            assert [value() for value in left] == [None] * 3
    finally:
        gc.enable()


async def test_steps_with_the_same_keys_do_not_mix(graph: ax.Graph) -> None:
    """The members of ten steps come one by one, each step's after those of all others."""
    turns = [asyncio.Event() for _ in range(3)]
    x = ax.placeholder(ax.float32, [1])

    def make(device: int) -> Any:
        async def wait(value: Any) -> Any:
            await turns[device].wait()
            return value

        return reduce(raw_op("Wait", wait, kind=KernelKind.ASYNC, dtype=ax.float32)(x))

    nodes = on_each(make)
    async with ax.Session(graph, CONFIG) as session:
        tasks = [await started(session.run(nodes, {x: [float(i)]})) for i in range(10)]
        for turn in turns:
            assert not any(task.done() for task in tasks)
            turn.set()
            await settle(20)
        for i, task in enumerate(tasks):
            assert [value.tolist() for value in await task] == [[3.0 * i]] * 3
