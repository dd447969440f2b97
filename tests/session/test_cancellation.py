"""A step that is ended at any of its suspension points leaves nothing, and the next run is right.

The points are enumerated, not sampled: a first run tells how many turns of the loop the step takes, and then one run is
ended after each number of turns.
"""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import anyio
import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.cooperative import outlast
from asyncexec.framework.kernel import KernelKind
from asyncexec.rendezvous.intra_process import IntraProcessRendezvous
from asyncexec.session import graph_execution_state
from tests.running import raw_op, settle

ASYNC: dict[str, Any] = {"kind": KernelKind.ASYNC, "dtype": ax.float32}


@dataclass
class Watch:
    """Tensors and rendezvous of the steps that ran."""

    tensors: list[weakref.ref[Any]] = field(default_factory=list)
    channels: list[IntraProcessRendezvous] = field(default_factory=list)

    def keep(self, value: float) -> Any:
        array = np.full(3, value, np.float32)
        self.tensors.append(weakref.ref(array))
        return array

    def alive(self) -> int:
        return sum(ref() is not None for ref in self.tensors)

    async def pause(self, value: Any) -> Any:
        """An async kernel that takes some turns, and some more to clean up."""
        try:
            await settle(2)
            return self.keep(value[0] + 1)
        finally:
            await settle(1)

    def work(self, value: Any) -> Any:
        """The kernel of a worker thread."""
        return self.keep(value[0] + 1)


Run = Callable[[ax.Session], Awaitable[Any]]


@dataclass
class Case:
    """What is run, with what it gives: the same each time."""

    graph: ax.Graph
    run: Run
    expected: Any
    config: ax.SessionConfig = field(default_factory=ax.SessionConfig)


def loop_with_async_body(watch: Watch) -> Case:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [3], name="x")
        _, out = ax.while_loop(
            lambda i, v: i < 4,
            lambda i, v: (i + 1, ax.ensure_shape(raw_op("Pause", watch.pause, **ASYNC)(v), [3])),
            (ax.constant(0), x),
            parallel_iterations=2,
        )
        total = ax.reduce_sum(out)
    return Case(graph, lambda session: session.run(total, {x: watch.keep(1)}), 15)


def nested_loops(watch: Watch) -> Case:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [3], name="x")

        def inner(i: Any, v: Any) -> Any:
            loop = ax.while_loop(
                lambda j, w: j < 2,
                lambda j, w: (j + 1, ax.ensure_shape(raw_op("Pause", watch.pause, **ASYNC)(w), [3])),
                (ax.constant(0), v),
            )
            return i + 1, loop[1]

        _, out = ax.while_loop(lambda i, v: i < 2, inner, (ax.constant(0), x))
        total = ax.reduce_sum(out)
    return Case(graph, lambda session: session.run(total, {x: watch.keep(1)}), 15)


def two_devices(watch: Watch) -> Case:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [3], name="x")
        value = x
        for turn in range(4):
            with ax.device(f"/cpu:{turn % 2}"):
                value = raw_op("Pause", watch.pause, **ASYNC)(value)
        with ax.device("/cpu:0"):
            total = ax.reduce_sum(value)
    config = ax.SessionConfig(device_count={"CPU": 2})
    return Case(graph, lambda session: session.run(total, {x: watch.keep(1)}), 15, config)


def loop_over_two_devices(watch: Watch) -> Case:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [3], name="x")

        def body(i: Any, v: Any) -> Any:
            with ax.device("/cpu:1"):
                return i + 1, ax.ensure_shape(raw_op("Pause", watch.pause, **ASYNC)(v), [3])

        _, out = ax.while_loop(lambda i, v: i < 3, body, (ax.constant(0), x))
        total = ax.reduce_sum(out)
    config = ax.SessionConfig(device_count={"CPU": 2})
    return Case(graph, lambda session: session.run(total, {x: watch.keep(1)}), 12, config)


def queue(watch: Watch) -> Case:
    """Two wait in the queue's line, and what they wait for comes after a pause."""
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [3], name="x")
        handle = ax.create_op(
            "FIFOQueueV2", [], {"component_types": [ax.float32], "shapes": [[3]], "capacity": 1}, name="queue"
        )
        taken = [
            ax.create_op("QueueDequeueV2", [handle], {"component_types": [ax.float32]}, name=f"take_{i}")
            for i in range(2)
        ]
        taken = [tensor[0] if isinstance(tensor, (list, tuple)) else tensor for tensor in taken]
        paused = raw_op("Pause", watch.pause, **ASYNC)(x)
        put = [ax.create_op("QueueEnqueueV2", [handle, [paused]], name=f"put_{i}") for i in range(2)]
        total = ax.reduce_sum(taken[0] + taken[1])
        size = ax.create_op("QueueSizeV2", [handle])
        drop = ax.create_op("QueueDequeueUpToV2", [handle, size], {"component_types": [ax.float32]}, name="drop")

    async def run(session: ax.Session) -> Any:
        if await session.run(size):  # what an enqueue of the step before had put, when that was ended
            await session.run(drop)
        return await session.run(total, {x: watch.keep(1)}, targets=put)

    return Case(graph, run, 12)


def workers(watch: Watch) -> Case:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [3], name="x")
        work = raw_op("Work", watch.work, dtype=ax.float32, is_expensive=True)
        out = [work(raw_op("Pause", watch.pause, **ASYNC)(work(x))) for _ in range(3)]
        total = ax.reduce_sum(ax.add_n(out))
    config = ax.SessionConfig(num_worker_threads=2)
    return Case(graph, lambda session: session.run(total, {x: watch.keep(1)}), 36, config)


def nested_runs(watch: Watch, **limits: Any) -> Case:
    sessions: list[ax.Session] = []
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [3], name="x")
        inner = raw_op("Pause", watch.pause, **ASYNC)(x)

        async def nest(value: Any) -> Any:
            return await sessions[-1].run(inner, {x: value})

        total = ax.reduce_sum(raw_op("Nest", nest, **ASYNC)(raw_op("Nest", nest, **ASYNC)(x)))

    async def run(session: ax.Session) -> Any:
        sessions.append(session)
        return await session.run(total, {x: watch.keep(1)})

    return Case(graph, run, 9, ax.SessionConfig(**limits))


def behind_the_door(watch: Watch) -> Case:
    """Three at once, one after the other."""
    case = nested_runs(watch, max_concurrent_steps=1)
    one = case.run

    async def run(session: ax.Session) -> Any:
        tasks = [asyncio.ensure_future(one(session)) for _ in range(3)]
        try:
            return [await task for task in tasks]
        finally:
            for task in tasks:
                task.cancel()
            try:
                await outlast(lambda: all(task.done() for task in tasks), lambda: asyncio.wait(tasks))
            finally:
                tasks.clear()  # else an error of theirs would be in a cycle

    return Case(case.graph, run, [9, 9, 9], case.config)


def partial_run(watch: Watch) -> Case:
    with ax.Graph() as graph:
        x, y = ax.placeholder(ax.float32, [3], name="x"), ax.placeholder(ax.float32, [3], name="y")
        first = ax.reduce_sum(raw_op("Pause", watch.pause, **ASYNC)(x))
        second = first + ax.reduce_sum(raw_op("Pause", watch.pause, **ASYNC)(y))

    async def run(session: ax.Session) -> Any:
        async with session.partial_run([first, second], [x, y]) as step:
            await step.feed({x: watch.keep(1)})
            found = await step.fetch(first)
            await step.feed({y: watch.keep(float(found))})
            return await step.fetch(second)

    return Case(graph, run, 27)


CASES = [
    loop_with_async_body,
    nested_loops,
    two_devices,
    loop_over_two_devices,
    queue,
    workers,
    nested_runs,
    behind_the_door,
    partial_run,
]


async def by_cancel(run: Callable[[], Awaitable[Any]], turns: int) -> bool:
    task = asyncio.ensure_future(run())
    await settle(turns)
    task.cancel()
    await asyncio.wait([task])
    return not task.cancelled()


async def by_cancelling_twice(run: Callable[[], Awaitable[Any]], turns: int) -> bool:
    task = asyncio.ensure_future(run())
    await settle(turns)
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    return not task.cancelled()


async def by_timeout(run: Callable[[], Awaitable[Any]], turns: int) -> bool:
    """asyncio's, moved to now."""
    loop = asyncio.get_running_loop()

    async def expire(scope: asyncio.Timeout) -> None:
        await settle(turns)
        scope.reschedule(loop.time())

    try:
        async with asyncio.timeout(None) as scope:
            expiring = asyncio.ensure_future(expire(scope))
            await run()
    except TimeoutError:
        return False
    finally:
        expiring.cancel()
        await asyncio.wait([expiring])
    return True


async def by_anyio(run: Callable[[], Awaitable[Any]], turns: int) -> bool:
    """Level cancellation: whatever awaits in the scope is hit again and again."""

    async def cancel(scope: anyio.CancelScope) -> None:
        await settle(turns)
        scope.cancel()

    with anyio.CancelScope() as scope:
        cancelling = asyncio.ensure_future(cancel(scope))
        await run()
    cancelling.cancel()
    await asyncio.wait([cancelling])
    return not scope.cancelled_caught


async def by_sibling(run: Callable[[], Awaitable[Any]], turns: int) -> bool:
    """Another task of the caller's TaskGroup fails."""

    async def fail() -> None:
        await settle(turns)
        if not task.done():
            raise RuntimeError("sibling")

    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(run())  # type: ignore[arg-type, var-annotated]
            group.create_task(fail())
    except ExceptionGroup as errors:
        if [str(error) for error in errors.exceptions] != ["sibling"]:
            raise
        return False
    return True


WAYS = [by_cancel, by_cancelling_twice, by_timeout, by_anyio, by_sibling]


@pytest.fixture
def no_collector() -> Iterator[None]:
    """A tensor dies when nobody refers to it, or it does not die."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    watch = Watch()

    class Recorded(IntraProcessRendezvous):
        def __init__(self) -> None:
            super().__init__()
            watch.channels.append(self)

    monkeypatch.setattr(graph_execution_state, "IntraProcessRendezvous", Recorded)
    return watch


def pending_timers() -> list[Any]:
    scheduled: Any = getattr(asyncio.get_running_loop(), "_scheduled", [])
    return [handle for handle in scheduled if not handle.cancelled()]


def check_nothing_is_left(session: ax.Session, watch: Watch, where: str) -> None:
    statistics = session.statistics()
    assert (statistics.running_steps, statistics.queued_steps) == (0, 0), where
    for pool in statistics.worker_pools.values():
        assert (pool.busy, pool.abandoned, pool.queued) == (0, 0, 0), where
    for rendezvous in watch.channels:
        left = rendezvous.statistics()
        assert (left.num_items, left.num_waiters) == (0, 0), where
    assert asyncio.all_tasks() == {asyncio.current_task()}, where
    assert pending_timers() == [], where
    watch.channels.clear()


@pytest.mark.virtual_clock
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
async def test_ended_at_every_turn(
    no_collector: None, watch: Watch, make: Callable[[Watch], Case], way: Callable[..., Awaitable[bool]]
) -> None:
    case = make(watch)
    async with ax.Session(case.graph, case.config) as session:
        assert await case.run(session) == case.expected
        await settle()
        baseline = watch.alive()
        turns = num_ended = 0
        while not await way(lambda: case.run(session), turns):
            num_ended += 1
            where = f"ended after {turns} turns"
            await settle(2)
            if way is by_sibling:
                gc.collect()  # the TaskGroup's own error is in a cycle
            check_nothing_is_left(session, watch, where)
            assert watch.alive() <= baseline, where
            if turns % 5 == 0:
                assert await case.run(session) == case.expected, where
            watch.tensors[:] = [ref for ref in watch.tensors if ref() is not None]
            turns += 1
        assert num_ended > 5
        assert await case.run(session) == case.expected
        check_nothing_is_left(session, watch, "at the end")


@pytest.mark.virtual_clock
@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
async def test_session_closed_at_every_turn(no_collector: None, watch: Watch, make: Callable[[Watch], Case]) -> None:
    case = make(watch)
    turns, is_over = 0, False
    while not is_over:
        session = ax.Session(case.graph, case.config)
        task = asyncio.ensure_future(case.run(session))
        await settle(turns)
        is_over = task.done()
        await session.close()
        await asyncio.wait([task])
        error = task.exception()
        if is_over:
            assert task.result() == case.expected
        elif error is not None:  # else it got to its end without awaiting anything more
            errors = error.exceptions if isinstance(error, BaseExceptionGroup) else [error]
            assert all(isinstance(error, ax.errors.CancelledError) for error in errors)
            del errors
        del task, error
        await settle(2)
        if make is behind_the_door:
            gc.collect()  # its tasks and their errors are in cycles
        check_nothing_is_left(session, watch, f"closed after {turns} turns")
        assert watch.alive() == 0
        turns += 3
    assert turns > 5
