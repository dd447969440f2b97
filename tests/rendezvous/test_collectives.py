"""Collectives among three devices: results, what does not fit, aborts; values and codes are TensorFlow's (2.21)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework import types
from asyncexec.framework.collective import CollectiveMember, CollectiveStatistics
from asyncexec.framework.derived import is_derived
from asyncexec.framework.errors import (
    AbortedError,
    CancelledError,
    DeadlineExceededError,
    InternalError,
    InvalidArgumentError,
    OpError,
)
from asyncexec.framework.executor import current_step
from asyncexec.rendezvous.collective_executor import OFFLOADED_SIZE, LocalCollectiveExecutor
from tests.ops.kernel_bench import KernelBench, infer
from tests.running import started

DEVICE: Final = "/job:localhost/replica:0/task:0/device:CPU:"
NOTHING: Final = CollectiveStatistics(1, 0, 0)


@pytest.fixture
def executor() -> LocalCollectiveExecutor:
    return LocalCollectiveExecutor()


def member(device: int, size: int = 3, **others: Any) -> CollectiveMember:
    options = {"group_key": 1, "instance_key": 1} | others
    return CollectiveMember(f"{DEVICE}{device}", group_size=size, **options)


def floats(*values: float) -> Any:
    return np.array(values, np.float32)


async def outcomes(*calls: Coroutine[Any, Any, Any]) -> list[Any]:
    """What each call returned or raised."""
    return await asyncio.gather(*calls, return_exceptions=True)


def assert_failed(found: list[Any], kind: type[OpError], text: str) -> None:
    """All calls have the error; for all but one it is derived."""
    assert [type(error) for error in found] == [kind] * len(found), found
    assert all(text in str(error) for error in found), found
    assert [is_derived(error) for error in found].count(False) == 1


@pytest.mark.parametrize(
    ("merge_op", "final_op", "dtype", "expected"),
    [
        ("Add", "Id", "float32", [111, 222]),
        ("Add", "Div", "float32", [37, 74]),
        ("Add", "Id", "float16", [111, 222]),
        ("Mul", "Id", "float64", [1000, 8000]),
        ("Min", "Id", "int32", [1, 2]),
        ("Max", "Id", "int64", [100, 200]),
        ("Add", "Div", "int32", [37, 74]),
    ],
)
async def test_all_reduce(
    executor: LocalCollectiveExecutor, merge_op: Any, final_op: Any, dtype: str, expected: list[int]
) -> None:
    values = [np.array(values, dtype) for values in ([1, 2], [10, 20], [100, 200])]
    found = await asyncio.gather(
        *(executor.all_reduce(member(device), value, merge_op, final_op) for device, value in enumerate(values))
    )
    for result in found:
        assert result.dtype == dtype
        assert result.tolist() == expected
    assert executor.statistics() == NOTHING


async def test_division_of_integers_rounds_towards_zero(executor: LocalCollectiveExecutor) -> None:
    values = [np.array([-5, 5], np.int32), np.array([0, 0], np.int32)]
    found = await asyncio.gather(
        *(executor.all_reduce(member(device, 2), value, "Add", "Div") for device, value in enumerate(values))
    )
    assert found[0].tolist() == [-2, 2]


async def test_scalars_stay_scalars_and_wrap_around(executor: LocalCollectiveExecutor) -> None:
    found = await asyncio.gather(
        *(executor.all_reduce(member(d, 2), np.int32(v), "Add", "Id") for d, v in enumerate([2**31 - 1, 1]))
    )
    assert [type(result) for result in found] == [np.int32] * 2
    assert found[0] == -(2**31)


async def test_nan_stays_nan(executor: LocalCollectiveExecutor) -> None:
    values = [floats(1, np.nan), floats(10, 20), floats(100, 200)]
    found = await asyncio.gather(*(executor.all_reduce(member(d), v, "Min", "Id") for d, v in enumerate(values)))
    assert np.array_equal(found[2], floats(1, np.nan), equal_nan=True)


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [1, 2, 0]])
async def test_values_are_merged_in_the_order_of_the_devices(
    executor: LocalCollectiveExecutor, order: list[int]
) -> None:
    values = {0: floats(1e8), 2: floats(1), 10: floats(-1e8)}  # (1e8 + 1) - 1e8 is 0, (1e8 - 1e8) + 1 is not
    devices = [list(values)[index] for index in order]
    found = await asyncio.gather(*(executor.all_reduce(member(d), values[d], "Add", "Id") for d in devices))
    assert [result.tolist() for result in found] == [[0.0]] * 3


async def test_each_waits_for_all(executor: LocalCollectiveExecutor) -> None:
    waiting = [await started(executor.all_reduce(member(device), floats(1), "Add", "Id")) for device in (2, 0)]
    assert executor.statistics() == CollectiveStatistics(1, 1, 2)
    assert not any(task.done() for task in waiting)
    await executor.all_reduce(member(1), floats(1), "Add", "Id")
    assert [(await task).tolist() for task in waiting] == [[3.0], [3.0]]


@pytest.mark.parametrize("size", [1, 3])
async def test_results_share_no_memory(executor: LocalCollectiveExecutor, size: int) -> None:
    values = [floats(1, 2) for _ in range(size)]
    for name in ("reduce", "gather", "broadcast"):
        calls = [collective(executor, name, member(d, size, instance_key=len(name)), v) for d, v in enumerate(values)]
        arrays = [*values, *await asyncio.gather(*calls)]
        if name == "broadcast":
            assert arrays.pop(size) is values[0]  # the sender has its own value back
        for index, array in enumerate(arrays):
            assert not any(np.shares_memory(array, other) for other in arrays[:index])
    assert [value.tolist() for value in values] == [[1, 2]] * size


def collective(executor: LocalCollectiveExecutor, name: str, who: CollectiveMember, value: Any) -> Any:
    """A call of the collective *name*; the first device is the one that broadcasts."""
    if name == "reduce":
        return executor.all_reduce(who, value, "Add", "Id")
    if name == "gather":
        return executor.gather(who, value)
    if who.device.endswith(":0"):
        return executor.broadcast_send(who, value)
    return executor.broadcast_recv(who, types.float32, value.shape)


async def test_gather_joins_in_the_order_of_the_devices(executor: LocalCollectiveExecutor) -> None:
    calls = [executor.gather(member(device), np.array([[device, 1]])) for device in (10, 0, 2)]
    assert [result.tolist() for result in await asyncio.gather(*calls)] == [[[0, 1], [2, 1], [10, 1]]] * 3


async def test_broadcast(executor: LocalCollectiveExecutor) -> None:
    found = await asyncio.gather(
        executor.broadcast_recv(member(0), types.float32, [2]),
        executor.broadcast_send(member(1), floats(1, 2)),
        executor.broadcast_recv(member(2), types.float32, np.array([2])),
    )
    assert [result.tolist() for result in found] == [[1, 2]] * 3


async def test_reduce_gives_to_the_root_alone(executor: LocalCollectiveExecutor) -> None:
    calls = [executor.reduce(member(d), floats(d), "Add", "Id", is_root=d == 1) for d in range(3)]
    first, root, last = await asyncio.gather(*calls)
    assert (first, root.tolist(), last) == (None, [3.0], None)


async def test_instances_and_groups_do_not_meet(executor: LocalCollectiveExecutor) -> None:
    keys = [(1, 1), (1, 2), (2, 1)]
    calls = [
        executor.all_reduce(member(d, 2, group_key=group, instance_key=i), floats(10 * group + i), "Add", "Id")
        for d in range(2)
        for group, i in keys
    ]
    assert [result.tolist() for result in await asyncio.gather(*calls)] == [[22], [24], [42]] * 2


async def test_an_instance_in_a_loop_is_one_collective_an_iteration(executor: LocalCollectiveExecutor) -> None:
    calls = [executor.all_reduce(member(0, 2), floats(i), "Add", "Id") for i in range(5)]
    calls += [executor.all_reduce(member(1, 2), floats(10 * i), "Add", "Id") for i in range(5)]
    assert [result.tolist() for result in await asyncio.gather(*calls)] == [[0], [11], [22], [33], [44]] * 2
    assert executor.statistics() == NOTHING


Call = Callable[[LocalCollectiveExecutor], list[Coroutine[Any, Any, Any]]]
MISFITS: Final[list[tuple[str, Call, type[OpError], str]]] = [
    (
        "shape",
        lambda e: [e.all_reduce(member(d), np.zeros(2 + d // 2), "Add", "Id") for d in range(3)],
        InvalidArgumentError,
        "Shape mismatch in the collective instance 1",
    ),
    (
        "gathered shape",
        lambda e: [e.gather(member(d), np.zeros((1 + d // 2, 2))) for d in range(3)],
        InvalidArgumentError,
        "expected shape [6, 2] but another member in the group expected shape [3, 2]",
    ),
    ("rank", lambda e: [e.gather(member(d), np.float32(1)) for d in range(3)], InvalidArgumentError, "rank > 0"),
    (
        "dtype",
        lambda e: [e.all_reduce(member(d), np.zeros(2, "fff d"[2 * d]), "Add", "Id") for d in range(3)],
        InternalError,
        "Collective instance 1 expected all-reduce of float32 but got all-reduce of float64",
    ),
    (
        "kind",
        lambda e: [collective(e, name, member(d), floats(1)) for d, name in enumerate(("reduce", "gather", "reduce"))],
        InternalError,
        "Collective instance 1 expected all-reduce",
    ),
    (
        "merge op",
        lambda e: [e.all_reduce(member(d), floats(1), "Mul" if d else "Add", "Id") for d in range(3)],
        InternalError,
        "expected Add and Id but got Mul and Id",
    ),
    (
        "size",
        lambda e: [e.all_reduce(member(d, 3 - d // 2), floats(1), "Add", "Id") for d in range(3)],
        InternalError,
        "is joining a group with size 2, but that group has size 3 (group_key=1)",
    ),
    (
        "no size",
        lambda e: [e.all_reduce(member(d, 3 * (d != 2)), floats(1), "Add", "Id") for d in range(3)],
        InvalidArgumentError,
        "group_size must be positive integer but got 0",
    ),
    (
        "full",
        lambda e: [e.all_reduce(member(d, 2, instance_key=d), floats(1), "Add", "Id") for d in range(3)],
        InternalError,
        "is joining a group that is already full (group_key=1)",
    ),
    (
        "two sources",
        lambda e: [e.broadcast_send(member(d), floats(1)) for d in range(3)],
        InternalError,
        "Instance 1 already has source 0, received second claim from 1",
    ),
    (
        "no source",
        lambda e: [e.broadcast_recv(member(d), types.float32, [1]) for d in range(3)],
        InternalError,
        "Instance 1 found no source for broadcast",
    ),
    (
        "no root",
        lambda e: [e.reduce(member(d), floats(1), "Add", "Id", is_root=False) for d in range(3)],
        InternalError,
        "found no source for reduction",
    ),
]


@pytest.mark.parametrize(("call", "kind", "text"), [misfit[1:] for misfit in MISFITS], ids=[m[0] for m in MISFITS])
async def test_what_does_not_fit_fails_for_all(
    executor: LocalCollectiveExecutor, call: Call, kind: type[OpError], text: str
) -> None:
    assert_failed(await outcomes(*call(executor)), kind, text)
    with pytest.raises(kind):
        await executor.gather(member(0, 1, group_key=99), floats(1))
    assert executor.statistics().num_waiters == 0


async def test_an_abort_wakes_all(executor: LocalCollectiveExecutor) -> None:
    calls = [executor.all_reduce(member(d, instance_key=d // 2), floats(1), "Add", "Id") for d in range(3)]
    waiting = [await started(call) for call in calls]
    executor.start_abort(AbortedError("falling sky"))
    executor.start_abort(InternalError("too late"))
    for error in await outcomes(*waiting):
        assert isinstance(error, AbortedError)
        assert is_derived(error)
    with pytest.raises(AbortedError, match="falling sky"):
        await executor.broadcast_send(member(0), floats(1))


async def test_who_is_cancelled_ends_it_for_the_others(executor: LocalCollectiveExecutor) -> None:
    tasks = [await started(executor.all_reduce(member(d), floats(1), "Add", "Id")) for d in range(2)]
    tasks[0].cancel()
    with pytest.raises(CancelledError, match=r"was cancelled on .*CPU:0"):
        await tasks[1]
    assert tasks[0].cancelled()


async def test_who_is_stuck_and_when_to_ask(executor: LocalCollectiveExecutor) -> None:
    """Members with a timeout help themselves; those whose last member has come are not stuck."""
    asked: list[int] = []
    executor.on_wait(lambda: asked.append(len(executor.stuck())))
    first, timed = member(0, node="first"), member(1, timeout_s=30, node="timed")
    tasks = [await started(executor.all_reduce(who, floats(1), "Add", "Id")) for who in (first, timed)]
    assert executor.stuck() == [first]
    tasks.append(await started(executor.all_reduce(member(2), floats(1), "Add", "Id")))
    assert [(await task).tolist() for task in tasks] == [[3.0]] * 3
    assert executor.stuck() == []
    assert asked == [1, 1]


@pytest.mark.virtual_clock
async def test_who_waits_too_long_gives_up(executor: LocalCollectiveExecutor) -> None:
    patient = await started(executor.all_reduce(member(0), floats(1), "Add", "Id"))
    loop = asyncio.get_running_loop()
    start = loop.time()
    with pytest.raises(DeadlineExceededError, match="timed out waiting for other workers"):
        await executor.all_reduce(member(1, timeout_s=30), floats(1), "Add", "Id")
    assert loop.time() - start == pytest.approx(30)
    with pytest.raises(DeadlineExceededError):
        await patient


async def test_large_values_are_merged_elsewhere() -> None:
    goes_on, asked = asyncio.Event(), asyncio.Event()

    async def offload(function: Callable[..., Any], args: Sequence[Any], node: str) -> Any:
        asked.set()
        await goes_on.wait()
        return function(*args)

    executor = LocalCollectiveExecutor(offload=offload)
    assert (await executor.all_reduce(member(0, 1), floats(1), "Add", "Id")).tolist() == [1]
    assert not asked.is_set()
    large = np.ones(OFFLOADED_SIZE // 16)  # two of them are as large as it takes
    tasks = [await started(executor.gather(member(d, 2, group_key=2), large)) for d in range(2)]
    assert asked.is_set()
    assert not any(task.done() for task in tasks)
    goes_on.set()
    assert [len(await task) for task in tasks] == [2 * len(large)] * 2


async def test_an_abort_while_values_are_merged_elsewhere() -> None:
    goes_on = asyncio.Event()

    async def offload(function: Callable[..., Any], args: Sequence[Any], node: str) -> Any:
        await goes_on.wait()
        return function(*args)

    executor = LocalCollectiveExecutor(offload=offload)
    tasks = [await started(executor.gather(member(d, 2), np.ones(OFFLOADED_SIZE))) for d in range(2)]
    executor.start_abort(AbortedError("falling sky"))
    goes_on.set()
    assert [type(error) for error in await outcomes(*tasks)] == [AbortedError] * 2


class Collectives(KernelBench):
    """The kernels of nodes, one a device."""

    def node(self, op: str, device: int, *inputs: Any, keys: bool = True, **attrs: Any) -> Any:
        if keys and op.endswith("V2"):
            inputs = (*inputs, np.int32(2), np.int32(1), np.int32(7))
        elif keys:
            attrs |= {"group_size": 2, "group_key": 1, "instance_key": 7}
        return self.run(op, *inputs, name=f"n{device}", device=f"{DEVICE}{device}", **({"T": "float32"} | attrs))


@pytest.fixture
def nodes() -> Iterator[Collectives]:
    token = current_step.set(ax.Executor.Args(ax.Rendezvous(), collective_executor=LocalCollectiveExecutor()))
    yield Collectives()
    current_step.reset(token)


REDUCE: Final = {"merge_op": "Add", "final_op": "Div"}


@pytest.mark.parametrize(
    ("op", "attrs"), [("CollectiveReduce", REDUCE | {"subdiv_offsets": [0]}), ("CollectiveReduceV2", REDUCE)]
)
async def test_reduce_nodes(nodes: Collectives, op: str, attrs: dict[str, Any]) -> None:
    found = await asyncio.gather(nodes.node(op, 0, floats(1, 2), **attrs), nodes.node(op, 1, floats(3, 4), **attrs))
    assert [result.tolist() for result in found] == [[2, 3]] * 2


async def test_all_to_all_nodes(nodes: Collectives) -> None:
    values = floats(1, 2), floats(10, 20)
    found = await asyncio.gather(*(nodes.node("CollectiveAllToAllV2", i, value) for i, value in enumerate(values)))
    assert [result.tolist() for result in found] == [[1, 10], [2, 20]]  # as TensorFlow's


async def test_reduce_scatter_nodes(nodes: Collectives) -> None:
    values = floats(1, 2, 3, 4), floats(10, 20, 30, 40)
    attrs = {"merge_op": "Add", "final_op": "Div"}
    found = await asyncio.gather(
        *(nodes.node("CollectiveReduceScatterV2", i, value, **attrs) for i, value in enumerate(values))
    )
    assert [result.tolist() for result in found] == [[5.5, 11], [16.5, 22]]


async def test_values_without_a_piece_for_each(executor: LocalCollectiveExecutor) -> None:
    waiting = await started(executor.all_to_all(member(0), floats(1, 2, 3)))
    found = await outcomes(executor.all_to_all(member(1), floats(1, 2)))
    found += await asyncio.gather(waiting, return_exceptions=True)
    assert_failed(found, InvalidArgumentError, "first dimension size (2)")
    with pytest.raises(InvalidArgumentError):
        await executor.reduce_scatter(member(2), floats(1, 2, 3, 4), "Add", "Id")


@pytest.mark.parametrize(("op", "attrs"), [("CollectiveGather", {"shape": [2]}), ("CollectiveGatherV2", {})])
async def test_gather_nodes(nodes: Collectives, op: str, attrs: dict[str, Any]) -> None:
    found = await asyncio.gather(nodes.node(op, 1, floats(1), **attrs), nodes.node(op, 0, floats(2), **attrs))
    assert [result.tolist() for result in found] == [[2, 1]] * 2


async def test_broadcast_nodes(nodes: Collectives) -> None:
    found = await asyncio.gather(
        nodes.node("CollectiveBcastSend", 0, floats(1, 2), shape=[2]),
        nodes.node("CollectiveBcastRecv", 1, shape=[2]),
    )
    assert [result.tolist() for result in found] == [[1, 2]] * 2


async def test_broadcast_nodes_whose_keys_are_inputs(nodes: Collectives) -> None:
    keys = (np.int32(2), np.int32(1), np.int32(7))
    found = await asyncio.gather(
        nodes.node("CollectiveBcastSendV2", 0, floats(1, 2)),
        nodes.node("CollectiveBcastRecvV2", 1, *keys, np.array([2], np.int32), keys=False),
    )
    assert [result.tolist() for result in found] == [[1, 2]] * 2


async def test_nodes_that_are_wrong_in_themselves(nodes: Collectives) -> None:
    keys = (np.int32(2), np.int32(1), np.int32(7))
    with pytest.raises(InternalError, match="does not match shape of input"):
        await nodes.node("CollectiveBcastSend", 0, floats(1, 2), shape=[3])
    with pytest.raises(InvalidArgumentError, match="Unexpected dimensions on input group_size, got"):
        await nodes.node("CollectiveGatherV2", 0, floats(1), np.array([2]), *keys[1:], keys=False)
    with pytest.raises(InvalidArgumentError, match="Dimension -1 must be >= 0"):
        await nodes.node("CollectiveBcastRecvV2", 0, *keys, np.array([-1]), keys=False)
    with pytest.raises(InvalidArgumentError, match="group_size must be positive integer but got 0"):
        nodes.kernel("CollectiveGather", T="float32", shape=[2], group_size=0, group_key=1, instance_key=7)


async def test_nodes_without_an_executor() -> None:
    with pytest.raises(InternalError, match="Failed to get CollectiveExecutor"):
        await Collectives().node("CollectiveReduceV2", 0, floats(1), **REDUCE)


def test_shapes_of_outputs() -> None:
    assert infer("CollectiveReduceV2", [2, 3], [], [], [], T="float32", **REDUCE) == [[2, 3]]
    assert infer("CollectiveGatherV2", [2, 3], [], [], [], T="float32") == [[None, 3]]
    assert infer("CollectiveGatherV2", None, [], [], [], T="float32") == [None]
    assert infer("CollectiveBcastRecvV2", [], [], [], [2], T="float32") == [[None, None]]
    values = (None, None, None, np.array([3, 4], np.int32))
    assert infer("CollectiveBcastRecvV2", [], [], [], [2], T="float32", values=values) == [[3, 4]]
    assert infer("CollectiveReduceScatterV2", [4, 3], [], [], [], **REDUCE, T="float32") == [[None, 3]]
    assert infer("CollectiveAllToAllV2", [4, 3], [], [], [], T="float32") == [[4, 3]]
    keys = {"group_size": 3, "group_key": 1, "instance_key": 1, "T": "float32"}
    assert infer("CollectiveBcastSend", [3], shape=[4], **keys) == [[4]]
    assert infer("CollectiveGather", [1], shape=[3], **keys) == [[3]]
    with pytest.raises(InvalidArgumentError, match="at least rank 1"):
        infer("CollectiveGatherV2", [], [], [], [], T="float32")
