"""The end of a step has its time: threads that do not come back are abandoned, kernels that will not end left behind.

Either is named in a warning, and the step ends.  The time is the loop's.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.executor.engine.ending import abandon_task
from asyncexec.executor.engine.grace_period import Grace
from asyncexec.executor.workers.offload import WorkerPool
from asyncexec.executor.workers.worker_calls import WorkerCalls
from asyncexec.framework.kernel_warning import KernelWarning, warn_of_kernel
from tests.running import raw_op, settle, started

FIVE = ax.SessionConfig(worker_grace_s=5, cancel_grace_s=0.025, num_worker_threads=2)


class Gate:
    """Kernels on worker threads that end when they are let go, and tell when they begin."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.num_begun = 0
        self.results: list[weakref.ref[Any]] = []

        def wait(x: Any) -> Any:
            self.num_begun += 1
            self.go.wait(60)
            result = np.ones(5)
            self.results.append(weakref.ref(result))
            return result

        self.function = wait
        self.op = raw_op("Wait", wait, is_expensive=True)

    async def wait_begun(self, number: int = 1) -> None:
        """Returns when so many calls have begun (the test's own time limit bounds it)."""
        while self.num_begun < number:  # noqa: ASYNC110 - the thread tells nobody
            await asyncio.sleep(0)


@pytest.fixture
def gate() -> Iterator[Gate]:
    found = Gate()
    yield found
    found.go.set()


@pytest.fixture
def graph() -> ax.Graph:
    return ax.Graph()


def pool_of(session: ax.Session) -> WorkerPool:
    (pool,) = session._state.pools.values()
    return pool


async def wait_in_service(pool: WorkerPool) -> None:
    while pool.statistics().abandoned:  # noqa: ASYNC110 - as above
        await asyncio.sleep(0)


async def cancelled(runs: list[asyncio.Task[Any]]) -> None:
    """Cancel *runs*, and wait for their end."""
    for run in runs:
        run.cancel()
    await asyncio.wait(runs)


def fail_later(go: asyncio.Event) -> Any:
    async def fail(x: Any) -> Any:
        await go.wait()
        raise ValueError("enough")

    return ax.op(name="FailLater")(fail)


@pytest.mark.virtual_clock(waits_for_workers=False)
@pytest.mark.parametrize("cause", ["failure", "cancellation", "timeout", "close"])
async def test_a_thread_that_does_not_come_back_is_abandoned(graph: ax.Graph, gate: Gate, cause: str) -> None:
    go, loop = asyncio.Event(), asyncio.get_running_loop()
    with graph:
        fetches = [gate.op(ax.constant(1.0), name="stuck"), fail_later(go)(ax.constant(1.0))]
    session = ax.Session(graph, FIVE)
    options = ax.RunOptions(timeout=2) if cause == "timeout" else None
    if cause == "timeout":
        fetches.pop()
    run = await started(session.run(fetches, options=options))
    await gate.wait_begun()

    async def end() -> None:
        if cause == "failure":
            go.set()
        elif cause == "cancellation":
            run.cancel()
        elif cause == "close":
            await session.close()
        await asyncio.wait([run])

    is_left = cause in ("cancellation", "timeout")
    seconds = "0.025" if is_left else "5"
    late = pytest.warns(KernelWarning, match=f"'stuck' has not come back from its worker thread within {seconds} s")
    closed = pytest.warns(KernelWarning, match="'stuck' was still on its worker thread when the session was closed")
    with late, closed if cause == "close" else contextlib.nullcontext():
        await end()
    assert loop.time() == pytest.approx(float(seconds) + (2 if cause == "timeout" else 0))
    expected = {
        "failure": ax.errors.InvalidArgumentError,
        "timeout": ax.errors.DeadlineExceededError,
        "close": ax.errors.CancelledError,
    }
    if cause == "cancellation":
        assert run.cancelled()
    else:
        assert type(run.exception()) is expected[cause]
    gate.go.set()
    if cause != "close":
        await wait_in_service(pool_of(session))
        assert pool_of(session).statistics().completed == 1
        await session.close()


@pytest.mark.virtual_clock(waits_for_workers=False)
async def test_abandoned_threads_count_and_come_back(graph: ax.Graph, gate: Gate) -> None:
    with graph:
        x = ax.placeholder(ax.object, [])
        stuck = gate.op(x, name="stuck")
    async with ax.Session(graph, FIVE) as session:
        pool = pool_of(session)
        runs = [await started(session.run(stuck, {x: i})) for i in range(2)]
        await gate.wait_begun(2)
        with pytest.warns(KernelWarning, match="stuck"):
            await cancelled(runs)
        found = pool.statistics()
        assert (found.threads, found.busy, found.abandoned, found.queued, found.completed) == (2, 2, 2, 0, 0)
        with pytest.raises(ax.errors.DeadlineExceededError):
            await session.run(stuck, {x: 2}, options=ax.RunOptions(timeout=1))  # waits for a thread, and is dropped
        waits = await started(session.run(stuck, {x: 3}))
        assert pool.statistics().queued == 1
        gate.go.set()
        np.testing.assert_array_equal(await waits, np.ones(5))
        await wait_in_service(pool)
        found = pool.statistics()
        assert (found.threads, found.busy, found.abandoned, found.queued, found.completed) == (2, 0, 0, 0, 3)
    assert gate.num_begun == 3


@pytest.mark.virtual_clock(waits_for_workers=False)
async def test_ten_thousand_cancelled_calls_make_no_more_threads_than_the_pool_has(graph: ax.Graph, gate: Gate) -> None:
    before = threading.active_count()
    with graph:
        x = ax.placeholder(ax.object, [])
        stuck = gate.op(x)
    async with ax.Session(graph, FIVE) as session:

        async def begin_and_cancel(number: int) -> None:
            runs = [asyncio.ensure_future(session.run(stuck, {x: i})) for i in range(number)]
            await settle()
            assert threading.active_count() == before + 2
            await cancelled(runs)
            assert all(run.cancelled() for run in runs)

        with pytest.warns(KernelWarning):
            await begin_and_cancel(1000)
        for _ in range(9):
            await begin_and_cancel(1000)
        assert pool_of(session).statistics().threads == 2
        assert pool_of(session).statistics().queued == 0
        gate.go.set()
        await session.run(stuck, {x: 0})
        await wait_in_service(pool_of(session))


@pytest.mark.virtual_clock(waits_for_workers=False)
async def test_a_late_result_is_dropped_and_holds_nothing(graph: ax.Graph, gate: Gate) -> None:
    """What the step held is free when it ends; what the call holds, when that does."""
    ran: list[Any] = []
    with graph:
        x, y = ax.placeholder(ax.object, []), ax.placeholder(ax.object, [])
        fetch = raw_op("Both", lambda *values: ran.append(values))(gate.op(x), y)
    gc.disable()
    try:
        async with ax.Session(graph, FIVE) as session:
            of_call, of_step = np.ones(3), np.ones(4)
            refs = weakref.ref(of_call), weakref.ref(of_step)
            run = await started(session.run(fetch, {x: of_call, y: of_step}))
            del of_call, of_step
            await gate.wait_begun()
            run.cancel()
            with pytest.warns(KernelWarning):
                await asyncio.wait([run])
            del run
            await settle()
            assert [ref() is None for ref in refs] == [False, True]
            gate.go.set()
            await wait_in_service(pool_of(session))
            while refs[0]() is not None or gate.results[0]() is not None:  # noqa: ASYNC110
                await asyncio.sleep(0)
    finally:
        gc.enable()
    assert ran == []


@pytest.mark.virtual_clock(waits_for_workers=False)
async def test_a_thread_that_comes_back_in_time_is_not_reported(graph: ax.Graph, gate: Gate) -> None:
    with graph:
        stuck = gate.op(ax.constant(1.0))
    async with ax.Session(graph, ax.SessionConfig(cancel_grace_s=None)) as session:
        run = await started(session.run(stuck))
        await gate.wait_begun()
        run.cancel()
        await asyncio.sleep(1_000_000)
        assert not run.done()
        gate.go.set()
        await asyncio.wait([run])
        assert pool_of(session).statistics().abandoned == 0


@pytest.mark.virtual_clock(waits_for_workers=False)
async def test_close_gives_up_on_abandoned_threads_at_once_and_says_so(graph: ax.Graph, gate: Gate) -> None:
    loop = asyncio.get_running_loop()
    with graph:
        stuck = gate.op(ax.constant(1.0), name="stuck")
    session = ax.Session(graph, FIVE)
    run = await started(session.run(stuck))
    await gate.wait_begun()
    run.cancel()
    with pytest.warns(KernelWarning, match="'stuck'"):
        await asyncio.wait([run])
    begun = loop.time()
    with pytest.warns(KernelWarning, match="'stuck' was still on its worker thread when the session was closed"):
        await session.close()
    assert loop.time() == begun


@pytest.mark.virtual_clock(waits_for_workers=False)
async def test_close_of_a_pool_whose_calls_do_not_end(gate: Gate) -> None:
    """Who waits for them hears of it; what had not begun never begins."""
    pool = WorkerPool(1, Grace(5.0))
    calls = WorkerCalls(pool)
    running = await started(calls.call(gate.go.wait, (60,), "running"))
    queued = await started(calls.call(gate.results.append, (None,), "queued"))
    while not pool.statistics().busy:  # noqa: ASYNC110
        await asyncio.sleep(0)
    with pytest.warns(KernelWarning, match="'running'"):
        await pool.close()
    for call in (running, queued):
        with pytest.raises(ax.errors.CancelledError):
            await call
    assert gate.results == []


def stubborn(
    stop: asyncio.Event, cancellations: list[float], stops_at: int = 100, begun: asyncio.Event | None = None
) -> Any:
    async def wait(x: float) -> float:
        if begun is not None:
            begun.set()
        while not stop.is_set() and len(cancellations) < stops_at:
            try:
                await stop.wait()
            except asyncio.CancelledError:
                cancellations.append(asyncio.get_running_loop().time())
        return x

    return ax.op(name="Stubborn")(wait)


@pytest.mark.virtual_clock(waits_for_workers=False)
@pytest.mark.parametrize("place", ["alone", "in a loop", "on two devices"])
async def test_kernel_that_swallows_its_cancellation_is_left_behind(graph: ax.Graph, place: str) -> None:
    stop, cancellations = asyncio.Event(), list[float]()
    op = stubborn(stop, cancellations)
    with graph:
        x = ax.constant(np.float64(1.0))
        if place == "in a loop":
            fetch = ax.while_loop(lambda i: i < 3.0, lambda i: op(i, name="deaf"), [x])
        elif place == "on two devices":
            with ax.device("/cpu:1"):
                fetch = -op(x, name="deaf")
            fetch = -fetch
        else:
            fetch = op(x, name="deaf")
    config = ax.SessionConfig(async_grace_s=5, device_count={"CPU": 2})
    async with ax.Session(graph, config) as session:
        with (
            pytest.warns(KernelWarning, match=r"deaf' swallows its cancellation"),
            pytest.raises(ax.errors.DeadlineExceededError),
        ):
            await session.run(fetch, options=ax.RunOptions(timeout=1))
        assert asyncio.get_running_loop().time() == pytest.approx(6, abs=0.1)
        assert len(cancellations) == 4
        stop.set()
        await settle()  # what it gives now is nobody's


@pytest.mark.virtual_clock(waits_for_workers=False)
@pytest.mark.parametrize("place", ["alone", "in a loop"])
async def test_kernel_that_is_left_behind_holds_nothing_of_the_step(graph: ax.Graph, place: str) -> None:
    """Nor does what it gives in the end reach anybody."""
    begun, stop, ran = asyncio.Event(), asyncio.Event(), list[Any]()
    op = stubborn(stop, [], begun=begun)
    with graph:
        waits = ax.placeholder(ax.object, [])
        x = ax.constant(np.float64(1.0))
        y = op(x) if place == "alone" else ax.while_loop(lambda i: i < 3.0, lambda i: op(i), [x])
        fetch = raw_op("Both", lambda *values: ran.append(values))(y, waits)
    gc.disable()
    try:
        async with ax.Session(graph, ax.SessionConfig(async_grace_s=5)) as session:
            value = np.ones(3)
            held = weakref.ref(value)
            run = asyncio.ensure_future(session.run(fetch, {waits: value}))
            await begun.wait()
            del value
            run.cancel()
            with pytest.warns(KernelWarning, match="swallows its cancellation"):
                await asyncio.wait([run])
            del run
            await settle()
            is_held = held() is not None
            stop.set()
            await settle()
    finally:
        gc.enable()
    assert not is_held
    assert ran == []


async def test_what_a_task_that_was_left_behind_raises_is_nobodys() -> None:
    async def fail() -> None:
        raise ValueError("late")

    loop, said = asyncio.get_running_loop(), list[Any]()
    loop.set_exception_handler(lambda _, context: said.append(context))
    abandon_task(loop.create_task(fail()))
    await settle()
    gc.collect()
    assert said == []


@pytest.mark.virtual_clock(waits_for_workers=False)
async def test_kernel_that_ends_when_it_is_cancelled_again(graph: ax.Graph) -> None:
    cancellations: list[float] = []
    with graph:
        fetch = stubborn(asyncio.Event(), cancellations, stops_at=2)(ax.constant(np.float64(1.0)))
    async with ax.Session(graph, ax.SessionConfig(async_grace_s=5)) as session:
        run = await started(session.run(fetch))
        run.cancel()
        await asyncio.wait([run])
        assert run.cancelled()
    assert cancellations == [0.0, pytest.approx(5.0)]


@pytest.mark.virtual_clock(waits_for_workers=False)
async def test_call_on_a_thread_that_is_interrupted() -> None:
    """Who makes a call can say how to end it; then its thread is not abandoned."""
    stop, pool, asked = threading.Event(), WorkerPool(1, Grace(cancel_s=5.0)), list[float]()
    loop = asyncio.get_running_loop()

    def interrupt() -> None:
        asked.append(loop.time())
        stop.set()
        while pool.statistics().busy:
            pass

    call = await started(WorkerCalls(pool).call(stop.wait, (60,), "patient", interrupt=interrupt))
    while not pool.statistics().busy:  # noqa: ASYNC110
        await asyncio.sleep(0)
    call.cancel()
    await asyncio.wait([call])
    assert call.cancelled()
    assert asked == [5.0]
    assert pool.statistics().abandoned == 0
    await pool.close()


def test_a_pool_outlives_the_loop_of_an_abandoned_call(gate: Gate) -> None:
    """The thread finds its loop closed; the next loop has the pool for itself."""
    pool = WorkerPool(1, Grace(cancel_s=0.0))
    calls = WorkerCalls(pool)

    async def abandon() -> None:
        call = await started(calls.call(gate.function, (np.ones(2),), "stuck"))
        await gate.wait_begun()
        call.cancel()
        await asyncio.wait([call])

    with pytest.warns(KernelWarning, match="stuck"):
        asyncio.run(abandon())
    gate.go.set()

    async def use() -> Any:
        result = await calls.call(divmod, (7, 2))
        await pool.close()
        return result

    assert asyncio.run(use()) == (3, 1)
    assert pool.statistics().abandoned == 0


async def test_where_warnings_are_errors_the_loop_is_told() -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    warn_of_kernel("kernel 'k' is slow")
    (context,) = told
    assert context["message"] == "kernel 'k' is slow"
    assert isinstance(context["exception"], KernelWarning)
