"""A step that is ended at any point in what single nodes wait for leaves nothing, and the next run is right.

Cases of ops with policies, in processes and in functions, of collectives, batches, handles, variables, and of the other
ways to run a step.  See ``injection.py`` for how they are ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from multiprocessing import resource_tracker
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.kernel import KernelKind
from tests.executor import process_functions
from tests.running import raw_op, settle
from tests.session.injection import (
    REAL_TIME,
    WAYS,
    Case,
    Watch,
    Way,
    by_anyio,
    by_cancel,
    by_cancelling_on_and_on,
    close_at_every_point,
    end_at_every_point,
    end_beside_another,
    of_ways,
    some_points,
)

pytestmark = pytest.mark.virtual_clock

ASYNC: dict[str, Any] = {"kind": KernelKind.ASYNC, "dtype": ax.float32}
VECTOR: dict[str, Any] = {"outputs": [ax.float32], "shapes": [[3]]}
THREADS = ax.SessionConfig(num_worker_threads=2)


def fed() -> ax.Tensor:
    return ax.placeholder(ax.float32, [3], name="x")


def simple(watch: Watch, graph: ax.Graph, fetch: Any, expected: Any, **others: Any) -> Case:
    """A run that feeds ones."""
    return Case(graph, lambda session: session.run(fetch, {"x:0": watch.keep(1)}), expected, **others)


def limited(watch: Watch) -> Case:
    """Three nodes that wait for one slot."""
    limiter = ax.Limiter(1)

    @ax.op(limiter=limiter, **VECTOR)
    async def pause(x: Any) -> Any:
        return await watch.pause(x)

    with ax.Graph() as graph:
        x = fed()
        total = ax.reduce_sum(ax.add_n([pause(x) for _ in range(3)]))

    def check(where: str) -> None:
        now = limiter.statistics()
        assert (now.inside, now.waiting) == (0, 0), where

    return simple(watch, graph, total, 18, check_idle=check)


def tried_again(watch: Watch) -> Case:
    """An attempt that is too slow, one that fails, and one that succeeds; between them nobody holds the slot."""
    limiter = ax.Limiter(1)
    attempts: dict[int, int] = {}
    retries = ax.Retry(attempts=3, wait_initial_s=1.0)

    @ax.op(limiter=limiter, retries=retries, timeout=1.0, **VECTOR)
    async def flaky(x: Any) -> Any:
        number = attempts[id(x)] = attempts.get(id(x), 0) + 1
        if number == 1:
            await asyncio.sleep(2)
        value = await watch.pause(x)
        if number == 2:
            raise ConnectionError("not yet")
        return value

    with ax.Graph() as graph:
        x = fed()
        total = ax.reduce_sum(flaky(x))

    async def run(session: ax.Session) -> Any:
        value = watch.keep(1)
        attempts.pop(id(value), None)
        return await session.run(total, {x: value})

    def check(where: str) -> None:
        now = limiter.statistics()
        assert (now.inside, now.waiting) == (0, 0), where

    return Case(graph, run, 6, check_idle=check)


def policies_on_workers(watch: Watch) -> Case:
    limiter = ax.Limiter(1)

    @ax.op(limiter=limiter, timeout=1.0, expensive=True, **VECTOR)
    def work(x: Any) -> Any:
        return watch.work(x)

    with ax.Graph() as graph:
        x = fed()
        total = ax.reduce_sum(ax.add_n([work(x) for _ in range(3)]))

    def check(where: str) -> None:
        now = limiter.statistics()
        assert (now.inside, now.waiting) == (0, 0), where

    return simple(watch, graph, total, 18, check_idle=check, config=THREADS)


def function_calls(watch: Watch) -> Case:
    """Functions, one of which calls the other in a branch and in a loop."""
    pause = raw_op("Pause", watch.pause, **ASYNC)

    @ax.function
    def inner(x: Any) -> Any:
        return ax.ensure_shape(pause(x), [3])

    @ax.function
    def outer(x: Any, taken: Any) -> Any:
        one = ax.cond(taken, lambda: inner(x), lambda: x)
        return ax.while_loop(lambda i, _: i < 2, lambda i, v: (i + 1, inner(v)), (ax.constant(0), one))[1]

    with ax.Graph() as graph:
        x = fed()
        total = ax.reduce_sum(outer(x, ax.reduce_sum(x) > 0.0))
    return simple(watch, graph, total, 12)


def mapped(watch: Watch) -> Case:
    """TensorArrays, written in iterations that overlap."""
    pause = raw_op("Pause", watch.pause, **ASYNC)
    with ax.Graph() as graph:
        x = fed()
        rows = ax.stack([x, x * 2.0, x * 3.0])
        total = ax.reduce_sum(ax.map_fn(lambda row: ax.ensure_shape(pause(row), [3]), rows))
    return simple(watch, graph, total, 27)


def collectives(watch: Watch) -> Case:
    """Two devices that come to a reduction and to a broadcast at different times."""
    reduction = {"merge_op": "Add", "final_op": "Id"}
    pause = raw_op("Pause", watch.pause, **ASYNC)
    with ax.Graph() as graph:
        x = fed()
        found = []
        for device in range(2):
            with ax.device(f"/cpu:{device}"):
                value = x
                for _ in range(device + 1):
                    value = pause(value)
                reduced = ax.create_op("CollectiveReduceV2", [value, 2, 1, 1, []], reduction)
                gathered = ax.create_op("CollectiveGatherV2", [pause(reduced), 2, 1, 2, []])
                found.append(ax.reduce_sum(gathered))
    config = ax.SessionConfig(device_count={"CPU": 2})
    return simple(watch, graph, found, [36, 36], config=config)


def failing(watch: Watch) -> Case:
    """A step that fails while others wait: whoever is cancelled gets that and not the failure."""
    pause = raw_op("Pause", watch.pause, **ASYNC)

    async def fail(x: Any) -> Any:
        await settle(2)
        watch.keep(1)
        raise ValueError("failed")

    with ax.Graph() as graph:
        x = fed()
        with ax.device("/cpu:1"):
            other = pause(pause(x))
        with ax.device("/cpu:0"):
            fetches = [raw_op("Fail", fail, **ASYNC)(x), pause(other)]

    async def run(session: ax.Session) -> Any:
        try:
            await session.run(fetches, {x: watch.keep(1)})
        except ax.errors.InvalidArgumentError as error:
            return error.node

    return Case(graph, run, "Fail", ax.SessionConfig(device_count={"CPU": 2}))


def misbehaving(watch: Watch) -> Case:
    """Kernels that swallow their cancellation, make something else of it, or take their time over it."""

    async def swallow(x: Any) -> Any:
        try:
            await settle(4)
        except asyncio.CancelledError:
            await settle(2)
        return watch.keep(x[0])

    async def translate(x: Any) -> Any:
        try:
            await settle(4)
        except asyncio.CancelledError as error:
            raise ValueError(f"was cancelled, with {x}") from error
        return watch.keep(x[0])

    async def end_late(x: Any) -> Any:
        try:
            await settle(4)
        finally:
            await asyncio.sleep(0.5)
        return watch.keep(x[0])

    with ax.Graph() as graph:
        x = fed()
        kernels = {"Swallow": swallow, "Translate": translate, "EndLate": end_late}
        total = ax.reduce_sum(ax.add_n([raw_op(name, kernel, **ASYNC)(x) for name, kernel in kernels.items()]))
    return simple(watch, graph, total, 9)


def handles(watch: Watch) -> Case:
    """A tensor that is kept by one run, read by the next, and forgotten with its handle."""
    pause = raw_op("Pause", watch.pause, **ASYNC)
    with ax.Graph() as graph:
        x = fed()
        handle = ax.get_session_handle(pause(x))
        holder, kept = ax.get_session_tensor("/job:localhost/replica:0/task:0/device:CPU:0", ax.float32)
        total = ax.reduce_sum(pause(kept))

    async def run(session: ax.Session) -> Any:
        got = await session.run(handle, {x: watch.keep(1)})
        return await session.run(total, {holder: got})

    return Case(graph, run, 9)


def variables(watch: Watch) -> Case:
    """What a step that was ended has assigned the next one assigns anew."""
    pause = raw_op("Pause", watch.pause, **ASYNC)
    with ax.Graph() as graph:
        x = fed()
        variable = ax.Variable(np.zeros(3, np.float32), name="v")
        first = variable.assign(ax.ensure_shape(pause(x), [3]))
        with ax.control_dependencies([first]):
            second = variable.assign_add(ax.ensure_shape(pause(x), [3]))
        with ax.control_dependencies([second]):
            total = ax.reduce_sum(variable.read_value())
    return simple(watch, graph, total, 12)


def callables(watch: Watch) -> Case:
    with ax.Graph() as graph:
        x = fed()
        total = ax.reduce_sum(raw_op("Pause", watch.pause, **ASYNC)(x))
    made: dict[int, Any] = {}

    async def run(session: ax.Session) -> Any:
        if id(session) not in made:
            made.clear()
            made[id(session)] = session.make_callable(total, [x])
        return await made[id(session)](watch.keep(1))

    return Case(graph, run, 6)


def through_the_rendezvous(watch: Watch) -> Case:
    pause = raw_op("Pause", watch.pause, **ASYNC)
    with ax.Graph() as graph:
        x = fed()
        total = ax.reduce_sum(pause(pause(x)))
    return simple(watch, graph, total, 9, config=ax.SessionConfig(feed_fetch_medium="rendezvous"))


def traced(watch: Watch) -> Case:
    """With a timeout and step stats."""
    pause = raw_op("Pause", watch.pause, **ASYNC)
    with ax.Graph() as graph:
        x = fed()
        total = ax.reduce_sum(pause(pause(x)))

    async def run(session: ax.Session) -> Any:
        metadata, options = ax.RunMetadata(), ax.RunOptions(trace=True, timeout=10.0)
        return await session.run(total, {x: watch.keep(1)}, options=options, metadata=metadata)

    return Case(graph, run, 9)


def timed_out(watch: Watch) -> Case:
    """A run that ends by its own timeout."""

    async def wait(x: Any) -> Any:
        try:
            await asyncio.sleep(100)
        finally:
            await settle(2)

    with ax.Graph() as graph:
        x = fed()
        fetch = raw_op("Wait", wait, **ASYNC)(raw_op("Pause", watch.pause, **ASYNC)(x))

    async def run(session: ax.Session) -> Any:
        try:
            await session.run(fetch, {x: watch.keep(1)}, options=ax.RunOptions(timeout=10.0))
        except ax.errors.DeadlineExceededError:
            return "too slow"

    return Case(graph, run, "too slow")


def queue_close(watch: Watch) -> Case:
    """Enqueues that wait for room, and a close that waits for them; a queue of its own each time."""
    pause = raw_op("Pause", watch.pause, **ASYNC)
    with ax.Graph() as graph:
        x = fed()
        handle = ax.create_op("FIFOQueueV2", [], {"component_types": [ax.float32], "capacity": 1})
        puts = [ax.create_op("QueueEnqueueV2", [handle, [x]], name=f"put_{i}") for i in range(2)]
        with ax.control_dependencies([pause(x)]):
            close = ax.create_op("QueueCloseV2", [handle])
        with ax.control_dependencies([pause(pause(x))]):
            (taken,) = ax.create_op("QueueDequeueV2", [handle], {"component_types": [ax.float32]})
        with ax.control_dependencies([taken]):
            (more,) = ax.create_op("QueueDequeueV2", [handle], {"component_types": [ax.float32]})
        total = ax.reduce_sum(taken + more)

    async def run(session: ax.Session) -> Any:
        async with ax.Session(graph) as inner:
            return await inner.run(total, {x: watch.keep(1)}, targets=[*puts, close])

    return Case(graph, run, 6)


def batches(watch: Watch) -> Case:
    """Three calls that are gathered into a full batch and one that has to wait for its time."""

    @ax.op(outputs=[ax.float32])
    async def compute(rows: Any) -> Any:
        await settle(2)
        return rows + 1

    @ax.batch(max_size=2, timeout_s=1.0)
    def model(rows: Any) -> Any:
        return compute(rows)

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [1, 3], name="x")
        pause = raw_op("Pause", watch.pause, **ASYNC)
        out = [model(ax.expand_dims(ax.ensure_shape(pause(x[0] * float(i)), [3]), 0)) for i in range(3)]
        total = ax.reduce_sum(ax.add_n(out))
    return Case(graph, lambda session: session.run(total, {x: [watch.keep(1)]}), 27)


def in_a_process(watch: Watch) -> Case:
    """Two calls for one process."""
    with ax.Graph() as graph:
        x = ax.cast(fed(), ax.float64)
        first = process_functions.sum_and_scaled(x, 2.0)
        total = first[0] + process_functions.sum_and_scaled(x, 3.0)[0]
    return simple(watch, graph, total, 6, config=ax.SessionConfig(num_processes=1))


CASES = [
    limited,
    tried_again,
    function_calls,
    mapped,
    collectives,
    failing,
    misbehaving,
    handles,
    variables,
    callables,
    through_the_rendezvous,
    traced,
    timed_out,
    queue_close,
    batches,
]
cases = pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
independent = [make for make in CASES if make is not variables]  # two runs of that write the same one
real = pytest.mark.parametrize("make", [policies_on_workers, in_a_process], ids=lambda make: make.__name__)


@pytest.fixture(scope="module", autouse=True)
def tracker() -> None:
    """Start what the program keeps for its processes, before a test counts its open files."""
    resource_tracker.ensure_running()


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
    await close_at_every_point(make)


@REAL_TIME
@pytest.mark.allow_blocking  # a process is started, and opens files
@some_points
@of_ways(by_cancel, by_cancelling_on_and_on, by_anyio)
@real
async def test_ended_at_every_point_with_threads(make: Callable[[Watch], Case], way: Way, points: range) -> None:
    await end_at_every_point(make, way, points)


@REAL_TIME
@pytest.mark.allow_blocking
@real
async def test_ended_beside_another_with_threads(make: Callable[[Watch], Case]) -> None:
    await end_beside_another(make)


@REAL_TIME
async def test_session_closed_at_every_point_with_threads() -> None:
    await close_at_every_point(policies_on_workers)


@REAL_TIME
@pytest.mark.deep
@pytest.mark.allow_blocking
async def test_session_closed_at_every_point_with_a_process() -> None:
    await close_at_every_point(in_a_process)
