"""ax.Executor.Args: an executor on its own, and what it does with each thing that it is given."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.compilation.bind_kernel import KernelBinder
from asyncexec.executor.diagnostics.step_stats_collector import StepStatsCollector
from asyncexec.framework import types
from asyncexec.framework.cooperative import run_at_once
from asyncexec.framework.derived import is_derived
from asyncexec.framework.device import Device
from asyncexec.framework.resource_mgr import ResourceMgr
from asyncexec.ops.state.session_state import SessionState
from asyncexec.rendezvous.collective_executor import LocalCollectiveExecutor
from tests.executor.channels import full, recv, send
from tests.executor.executors import AllAtOnce, OneByOne, registered
from tests.running import settle, started

FLOAT: Final = types.float32
ONE: Final = np.float32(1)


@pytest.fixture(autouse=True)
def executor_types() -> Iterator[None]:
    with registered(ONE_BY_ONE=OneByOne, ALL_AT_ONCE=AllAtOnce):
        yield


each_type = pytest.mark.parametrize("executor_type", ["TAGGED_TOKEN", "ONE_BY_ONE", "ALL_AT_ONCE"])


def adder() -> ax.Graph:
    """c = a + b."""
    with ax.Graph() as graph:
        send(ax.add(recv(FLOAT, "a"), recv(FLOAT, "b"), name="sum"), "c")
    return graph


async def received(rendezvous: ax.Rendezvous, key: str) -> Any:
    value, is_dead, _ = await rendezvous.recv(full(key))
    assert not is_dead
    return value


# The rendezvous.


@each_type
async def test_inputs_come_by_key_and_outputs_go_by_key(executor_type: str) -> None:
    executor, rendezvous = ax.new_executor(adder(), executor_type), ax.Rendezvous()
    for a in range(3):
        rendezvous.send(full("a"), np.float32(a))
        rendezvous.send(full("b"), ONE)
        await executor.run(ax.Executor.Args(rendezvous))
        assert await received(rendezvous, "c") == a + 1
    assert rendezvous.statistics().num_items == 0


@each_type
async def test_inputs_may_come_while_the_step_waits(executor_type: str) -> None:
    executor, rendezvous = ax.new_executor(adder(), executor_type), ax.Rendezvous()
    run = await started(executor.run(ax.Executor.Args(rendezvous)))
    await settle()
    rendezvous.send(full("b"), ONE)
    await settle()
    assert not run.done()
    rendezvous.send(full("a"), ONE)
    await run
    assert await received(rendezvous, "c") == 2


@each_type
async def test_steps_of_one_executor_have_a_rendezvous_each(executor_type: str) -> None:
    executor = ax.new_executor(adder(), executor_type)
    channels = [ax.Rendezvous() for _ in range(5)]
    runs = [await started(executor.run(ax.Executor.Args(rendezvous))) for rendezvous in channels]
    for i, rendezvous in enumerate(channels):
        rendezvous.send(full("a"), np.float32(i))
        rendezvous.send(full("b"), ONE)
    await asyncio.gather(*runs)
    assert [await received(rendezvous, "c") for rendezvous in channels] == [1, 2, 3, 4, 5]


@each_type
async def test_a_dead_input_makes_a_dead_output(executor_type: str) -> None:
    executor, rendezvous = ax.new_executor(adder(), executor_type), ax.Rendezvous()
    rendezvous.send(full("a"), None, is_dead=True)
    rendezvous.send(full("b"), ONE)
    await executor.run(ax.Executor.Args(rendezvous))
    value, is_dead, _ = await rendezvous.recv(full("c"))
    assert (value, is_dead) == (None, True)


@each_type
async def test_what_is_received_is_of_the_dtype_that_was_declared(executor_type: str) -> None:
    executor, rendezvous = ax.new_executor(adder(), executor_type), ax.Rendezvous()
    rendezvous.send(full("a"), 1.0)
    rendezvous.send(full("b"), ONE)
    with pytest.raises(ax.errors.InternalError, match="not float32") as caught:
        await executor.run(ax.Executor.Args(rendezvous))
    assert caught.value.op == "_Recv"


async def test_a_failure_aborts_the_rendezvous() -> None:
    with ax.Graph() as graph:
        ax.create_op("Assert", [recv(types.bool, "a"), [ax.constant("wrong")]], name="checked")
        send(recv(FLOAT, "b"), "c")
    rendezvous = ax.Rendezvous()
    receiver = await started(rendezvous.recv(full("c")))
    rendezvous.send(full("a"), np.bool_(False))
    with pytest.raises(ax.errors.InvalidArgumentError, match="wrong") as caught:
        await ax.new_executor(graph).run(ax.Executor.Args(rendezvous))
    assert caught.value.node == "checked"
    with pytest.raises(ax.errors.InvalidArgumentError) as told:
        await receiver
    assert is_derived(told.value)


# Loops and functions, in the general executor.


async def test_functions_and_loops_need_no_session() -> None:
    with ax.Graph() as graph:
        n = recv(types.int32, "n")
        (total,) = ax.while_loop(lambda i: i < n, lambda i: [i + 3], [ax.constant(0)])
        send(ax.cond(total > 10, lambda: total, lambda: -total), "total")
    executor, rendezvous = ax.new_executor(graph), ax.Rendezvous()
    for n_value, expected in ((10, 12), (4, -6)):
        rendezvous.send(full("n"), np.int32(n_value))
        await executor.run(ax.Executor.Args(rendezvous))
        assert await received(rendezvous, "total") == expected


async def test_a_loop_needs_a_built_in_executor() -> None:
    with ax.Graph() as graph:
        ax.while_loop(lambda i: i < 3, lambda i: [i + 1], [ax.constant(0)])
    with pytest.raises(ax.errors.UnimplementedError, match="only the built-in executors run loops"):
        ax.new_executor(graph, "ONE_BY_ONE")


# Cancellation.


async def test_the_cancellation_manager_ends_the_step() -> None:
    executor, rendezvous, manager = ax.new_executor(adder()), ax.Rendezvous(), ax.CancellationManager()
    run = await started(executor.run(ax.Executor.Args(rendezvous, cancellation_manager=manager)))
    await settle()
    thread = threading.Thread(target=manager.start_cancel)
    thread.start()
    with pytest.raises(ax.errors.CancelledError, match="cancellation manager"):
        await run
    thread.join()
    assert rendezvous.error is not None


async def test_a_step_of_a_cancelled_manager_does_not_begin() -> None:
    calls: list[float] = []

    @ax.op
    def note(value: float) -> float:
        calls.append(value)
        return value

    with ax.Graph() as graph:
        note(ax.constant(1.0, ax.float64))
    manager = ax.CancellationManager()
    manager.start_cancel()
    with pytest.raises(ax.errors.CancelledError, match="cancellation manager"):
        await ax.new_executor(graph).run(ax.Executor.Args(ax.Rendezvous(), cancellation_manager=manager))
    assert calls == []


async def test_a_manager_that_is_cancelled_after_the_step_is_nothing_to_it() -> None:
    rendezvous, manager = ax.Rendezvous(), ax.CancellationManager()
    rendezvous.send(full("a"), ONE)
    rendezvous.send(full("b"), ONE)
    await ax.new_executor(adder()).run(ax.Executor.Args(rendezvous, cancellation_manager=manager))
    manager.start_cancel()
    await settle()
    assert await received(rendezvous, "c") == 2


async def test_a_failure_cancels_the_manager() -> None:
    rendezvous, manager, told = ax.Rendezvous(), ax.CancellationManager(), list[int]()
    manager.register_callback(manager.get_cancellation_token(), lambda: told.append(1))
    rendezvous.send(full("a"), b"no float")
    with pytest.raises(ax.errors.InternalError):
        await ax.new_executor(adder()).run(ax.Executor.Args(rendezvous, cancellation_manager=manager))
    assert told == [1]
    assert manager.is_cancelled


async def test_a_callback_that_fails_is_warned_of() -> None:
    def fail() -> None:
        raise LookupError("nobody there")

    rendezvous, manager = ax.Rendezvous(), ax.CancellationManager()
    manager.register_callback(manager.get_cancellation_token(), fail)
    rendezvous.send(full("a"), b"no float")
    with (
        pytest.warns(ax.KernelWarning, match="LookupError: nobody there"),
        pytest.raises(ax.errors.InternalError, match="not float32"),
    ):
        await ax.new_executor(adder()).run(ax.Executor.Args(rendezvous, cancellation_manager=manager))


@each_type
async def test_the_callers_cancellation_ends_the_step(executor_type: str) -> None:
    run = await started(ax.new_executor(adder(), executor_type).run(ax.Executor.Args(ax.Rendezvous())))
    await settle()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run


# What else there is.


@each_type
async def test_the_stats_collector_is_told_of_each_node(executor_type: str) -> None:
    rendezvous, collector = ax.Rendezvous(), StepStatsCollector()
    rendezvous.send(full("a"), ONE)
    rendezvous.send(full("b"), ONE)
    await ax.new_executor(adder(), executor_type).run(ax.Executor.Args(rendezvous, stats_collector=collector))
    (device,) = run_at_once(collector.step_stats(lambda node: "here")).dev_stats
    assert sorted(node.node_name for node in device.node_stats) == ["_Recv", "_Recv_1", "_Send", "sum"]
    num_bytes = {node.node_name: sum(each.live_bytes for each in node.memory) for node in device.node_stats}
    assert num_bytes == {"_Recv": 4, "_Recv_1": 4, "_Send": 0, "sum": 4}


@each_type
async def test_the_session_state_keeps_the_tensors_of_handles(executor_type: str) -> None:
    """What one executor keeps another one reads, where both are given the same."""
    with ax.Graph() as graph:
        send(ax.create_op("GetSessionHandle", [recv(FLOAT, "a")]), "handle")
    with ax.Graph() as reader:
        send(ax.create_op("GetSessionTensor", [recv(types.string, "handle")], {"dtype": FLOAT}), "b")
    args = ax.Executor.Args(ax.Rendezvous(), session_state=SessionState())
    args.rendezvous.send(full("a"), np.float32(7))
    await ax.new_executor(graph, executor_type).run(args)
    handle, *_ = await args.rendezvous.recv(full("handle"))
    handle.keep()
    args.rendezvous.send(full("handle"), handle)
    await ax.new_executor(reader, executor_type).run(args)
    assert (await args.rendezvous.recv(full("b")))[0] == 7
    args.rendezvous.send(full("handle"), handle)
    with pytest.raises(ax.errors.InvalidArgumentError, match="not in the session store"):
        await ax.new_executor(reader, executor_type).run(replace(args, session_state=None))


async def test_executors_meet_in_collectives() -> None:
    with ax.Graph() as graph:
        options = {"group_size": 2, "group_key": 1, "instance_key": 1, "merge_op": "Add", "final_op": "Id"}
        total = ax.create_op("CollectiveReduce", [recv(FLOAT, "a")], {**options, "subdiv_offsets": [0]})
        send(total, "total")
    collectives = LocalCollectiveExecutor()

    async def run(device: int, executor_type: str) -> Any:
        params = ax.ExecutorParams.of(graph)
        device_of = Device(replace(params.device.attributes, name=params.device.name[:-1] + str(device)))
        binder = KernelBinder(ResourceMgr(), device_of)
        executor = ax.new_executor(replace(params, device=device_of, binder=binder), executor_type)
        rendezvous = ax.Rendezvous()
        rendezvous.send(full("a"), np.float32([1, device]))
        await executor.run(ax.Executor.Args(rendezvous, collective_executor=collectives))
        return (await received(rendezvous, "total")).tolist()

    assert await asyncio.gather(run(0, "ONE_BY_ONE"), run(1, "TAGGED_TOKEN")) == [[2, 1], [2, 1]]


def threads_of(pool: ax.WorkerPool | None, executor_type: str) -> Any:
    seen: list[str] = []

    @ax.op(expensive=True)
    def work(value: float) -> float:
        seen.append(threading.current_thread().name)
        return value

    async def run() -> list[str]:
        with ax.Graph() as graph:
            work(ax.constant(1.0, ax.float64))
        await ax.new_executor(graph, executor_type).run(ax.Executor.Args(ax.Rendezvous(), runner=pool))
        return seen

    return run()


@each_type
async def test_expensive_kernels_run_on_the_threads_of_the_runner(executor_type: str) -> None:
    pool = ax.WorkerPool(1, name="mine")
    try:
        assert await threads_of(pool, executor_type) == ["mine-0"]
    finally:
        await pool.close()


async def test_without_a_runner_there_are_threads_for_the_step() -> None:
    assert await threads_of(None, "TAGGED_TOKEN") == ["asyncexec-worker-0"]
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("asyncexec-worker")] == []
    assert await threads_of(None, "ONE_BY_ONE") == [threading.current_thread().name]


@pytest.mark.parametrize("waits", [True, False])
async def test_sync_on_finish_waits_for_the_device(waits: bool) -> None:
    synced: list[int] = []

    class Queue:
        async def copy_in(self, value: Any) -> Any:
            return value

        async def copy_out(self, value: Any) -> Any:
            return value

        async def sync(self) -> None:
            synced.append(1)

    with ax.Graph() as graph:
        ax.constant(1.0)
    params = ax.ExecutorParams.of(graph)
    device = Device(params.device.attributes, context=Queue())
    await ax.new_executor(replace(params, device=device)).run(ax.Executor.Args(ax.Rendezvous(), sync_on_finish=waits))
    assert synced == [1] * waits
