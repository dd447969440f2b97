"""A step that is ended at any of its suspension points leaves nothing, and the next run is right.

Cases of steps alone: loops, devices, queues, worker threads, runs within runs.  See ``injection.py`` for how they are
ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import asyncexec as ax
from asyncexec.framework.cooperative import outlast
from asyncexec.framework.kernel import KernelKind
from tests.running import raw_op
from tests.session.injection import (
    REAL_TIME,
    WAYS,
    Case,
    Watch,
    Way,
    close_at_every_point,
    end_at_every_point,
    end_beside_another,
    of_ways,
    some_points,
)

pytestmark = pytest.mark.virtual_clock

ASYNC: dict[str, Any] = {"kind": KernelKind.ASYNC, "dtype": ax.float32}


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
    nested_runs,
    behind_the_door,
    partial_run,
]


cases = pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
independent = [make for make in CASES if make is not queue]  # two runs of that take each other's elements


@some_points
@of_ways(*WAYS)
@cases
async def test_ended_at_every_point(make: Callable[[Watch], Case], way: Way, points: range) -> None:
    await end_at_every_point(make, way, points)


@pytest.mark.parametrize("make", independent, ids=lambda make: make.__name__)
async def test_ended_beside_another(make: Callable[[Watch], Case]) -> None:
    await end_beside_another(make)


@cases
async def test_session_closed_at_every_point(make: Callable[[Watch], Case]) -> None:
    await close_at_every_point(make, has_cycles=make is behind_the_door)  # its tasks and their errors


@REAL_TIME
@of_ways(*WAYS)
async def test_ended_at_every_point_with_workers(way: Way) -> None:
    await end_at_every_point(workers, way)


@REAL_TIME
async def test_ended_beside_another_with_workers() -> None:
    await end_beside_another(workers)


@REAL_TIME
async def test_session_closed_at_every_point_with_workers() -> None:
    await close_at_every_point(workers)
