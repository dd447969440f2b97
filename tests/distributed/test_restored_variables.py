"""``ax.Session(..., restore=...)``: variables of a worker that was lost are brought back before the next step runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import asyncexec as ax
from tests.distributed.clusters import SmallCluster, small_cluster, until


@dataclass
class Counters:
    """A variable on each of two workers, and what changes them."""

    graph: ax.Graph
    value: Any
    init: Any
    add: list[Any]
    read: list[Any]
    assign: list[Any]


def added(variable: Any) -> Any:
    """Its value, after 1 was added."""
    with ax.control_dependencies([variable.assign_add(ax.constant(1, ax.int64))]):
        return variable.read_value()


@pytest.fixture
def counters() -> Counters:
    with ax.Graph() as graph:
        value = ax.placeholder(ax.int64, [], name="value")
        variables = []
        for task in range(2):
            with ax.device(f"/job:worker/task:{task}"):
                variables.append(ax.Variable(ax.constant(0, ax.int64), name=f"v{task}"))
        init = ax.global_variables_initializer()
        add = [added(each) for each in variables]
        read = [each.read_value() for each in variables]
        assign = [each.assign(value) for each in variables]
    return Counters(graph, value, init, add, read, assign)


def restoring(counters: Counters, calls: list[int], value: int = 100) -> Callable[[ax.Session], Awaitable[None]]:
    """Assigns *value*, as a checkpoint has it."""

    async def restore(session: ax.Session) -> None:
        calls.append(len(calls))
        await session.run(counters.assign, {counters.value: value})

    return restore


async def lose(small: SmallCluster, task: int) -> None:
    """Have a worker started again; returns when the client has heard that the first is gone."""
    name = f"/job:worker/replica:0/task:{task}"
    before = small.cluster._workers[name]._times_lost
    await small.kill(task)
    await until(lambda: small.cluster._workers[name]._times_lost > before)
    await small.restart(task)


async def test_without_it_the_variables_are_uninitialized(counters: Counters) -> None:
    async with small_cluster() as small, ax.Session(counters.graph, cluster=small.cluster) as session:
        await session.run(counters.init)
        await session.run(counters.add)
        await lose(small, 0)
        with pytest.raises(ax.errors.FailedPreconditionError, match="v0"):
            await session.run(counters.read[0])
        assert await session.run(counters.read[1]) == 1


async def test_the_next_step_finds_what_was_restored(counters: Counters) -> None:
    calls: list[int] = []
    restore = restoring(counters, calls)
    async with (
        small_cluster() as small,
        ax.Session(counters.graph, cluster=small.cluster, restore=restore) as session,
    ):
        await session.run(counters.init)
        assert await session.run(counters.add) == [1, 1]
        assert calls == []
        await lose(small, 0)
        assert await session.run(counters.add[1]) == 2  # its worker is there
        assert calls == []
        assert await session.run(counters.add[0]) == 101
        assert await session.run(counters.read) == [101, 100]
        assert len(calls) == 1
        await lose(small, 1)
        await lose(small, 0)
        assert await session.run(counters.read) == [100, 100]
        assert len(calls) == 2


async def test_steps_that_come_meanwhile_wait_for_one_call(counters: Counters) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()
    calls: list[int] = []

    async def restore(session: ax.Session) -> None:
        begun.set()
        await go_on.wait()
        await restoring(counters, calls)(session)

    config = ax.SessionConfig(max_concurrent_steps=2)  # those that wait have all places
    async with (
        small_cluster() as small,
        ax.Session(counters.graph, config, cluster=small.cluster, restore=restore) as session,
    ):
        await session.run(counters.init)
        await lose(small, 0)
        steps = [asyncio.create_task(session.run(counters.add[0])) for _ in range(3)]
        await begun.wait()
        steps[0].cancel()  # whose step was the first
        await asyncio.wait([steps[0]])
        steps.append(asyncio.create_task(session.run(counters.add[0])))
        assert not any(step.done() for step in steps[1:])
        go_on.set()
        found = await asyncio.gather(*steps[1:])  # each reads what it and others have added by then
        assert set(found) <= {101, 102, 103}
        assert await session.run(counters.read[0]) == 103
        assert len(calls) == 1


async def test_partial_runs_and_streams_wait_too(counters: Counters) -> None:
    calls: list[int] = []
    restore = restoring(counters, calls)
    async with (
        small_cluster() as small,
        ax.Session(counters.graph, cluster=small.cluster, restore=restore) as session,
    ):
        await session.run(counters.init)
        await lose(small, 0)
        async with session.partial_run([counters.read[0]]) as step:
            assert await step.fetch(counters.read[0]) == 100
        await lose(small, 0)
        found = [int(each) async for each in session.map(counters.add[0], [{}, {}])]
        assert set(found) <= {101, 102}  # each reads what it and the other have added by then
        assert await session.run(counters.read[0]) == 102
        assert len(calls) == 2


@pytest.mark.parametrize("failure", [ValueError("no checkpoint"), ax.errors.NotFoundError("no checkpoint")], ids=repr)
async def test_what_it_raises_fails_the_steps_that_wait_and_the_next_tries_again(
    counters: Counters, failure: Exception
) -> None:
    calls: list[int] = []

    async def restore(session: ax.Session) -> None:
        if not calls:
            calls.append(0)
            raise failure
        await restoring(counters, calls)(session)

    async with (
        small_cluster() as small,
        ax.Session(counters.graph, cluster=small.cluster, restore=restore) as session,
    ):
        await session.run(counters.init)
        await lose(small, 0)
        with pytest.raises(ax.errors.FailedPreconditionError, match=r"restoring .*no checkpoint"):
            await session.run(counters.add)
        assert await session.run(counters.add) == [101, 101]


async def test_a_worker_that_is_lost_again_meanwhile(counters: Counters) -> None:
    calls: list[int] = []
    small: SmallCluster

    async def restore(session: ax.Session) -> None:
        await restoring(counters, calls)(session)
        if len(calls) == 1:
            await lose(small, 0)

    async with small_cluster() as small, ax.Session(counters.graph, cluster=small.cluster, restore=restore) as session:
        await session.run(counters.init)
        await lose(small, 0)
        with pytest.raises(ax.errors.UnavailableError, match="task:0"):
            await session.run(counters.add)
        assert await session.run(counters.add) == [101, 101]
        assert len(calls) == 2


async def test_a_session_that_is_closed_meanwhile(counters: Counters) -> None:
    begun = asyncio.Event()
    ended: list[BaseException] = []

    async def restore(session: ax.Session) -> None:
        begun.set()
        try:
            await asyncio.get_running_loop().create_future()
        except BaseException as error:
            ended.append(error)
            raise

    async with small_cluster() as small:
        async with ax.Session(counters.graph, cluster=small.cluster, restore=restore) as session:
            await session.run(counters.init)
            await lose(small, 0)
            step = asyncio.create_task(session.run(counters.add[0]))
            await begun.wait()
        assert isinstance(ended[0], asyncio.CancelledError)
        with pytest.raises(ax.errors.CancelledError):
            await step


async def test_variables_are_saved_and_restored_wherever_they_are(counters: Counters, tmp_path: Path) -> None:
    with counters.graph:
        here = ax.Variable(ax.constant(7, ax.int64), name="here")
        reference = ax.raw_ops.VariableV2(shape=[2], dtype=ax.float32, name="reference")
        with ax.device("/job:worker/task:1"):
            far = ax.raw_ops.VariableV2(shape=[2], dtype=ax.float32, name="far")
            set_far = ax.raw_ops.Assign(ref=far, value=[1.0, 2.0])
        set_reference = ax.raw_ops.Assign(ref=reference, value=[3.0, 4.0])
    path = tmp_path / "variables"
    read = {"here": here.read_value(), "v": counters.read, "far": far, "reference": reference}
    async with small_cluster() as small:
        async with ax.Session(counters.graph, cluster=small.cluster) as session:
            await session.run([], targets=[counters.init, here.initializer, set_far.op, set_reference.op])
            await session.run(counters.add)
            await session.save(path)
            saved = await session.run(read)
        async with ax.Session(counters.graph, cluster=small.cluster) as session:
            await session.restore(path)
            restored = await session.run(read)
            await session.restore(path, variables=["v0", "here"])
            with pytest.raises(ax.errors.NotFoundError, match="no variables 'v9'"):
                await session.save(path, variables=["v0", "v9"])
    assert saved["v"] == restored["v"] == [1, 1]
    assert (saved["here"], restored["here"]) == (7, 7)
    assert (restored["far"].tolist(), restored["reference"].tolist()) == ([1.0, 2.0], [3.0, 4.0])


async def test_a_checkpoint_may_be_named(counters: Counters, tmp_path: Path) -> None:
    path = tmp_path / "variables"
    async with small_cluster() as small, ax.Session(counters.graph, cluster=small.cluster, restore=path) as session:
        await session.run(counters.init)
        await session.run(counters.add)
        await session.save(path)
        await session.run(counters.add)
        await lose(small, 0)
        assert await session.run(counters.add) == [2, 2]  # both are as they were when they were saved
