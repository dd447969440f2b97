"""``ax.cancellation_manager()``: a kernel on a worker thread hears that its step has ended.

``TestTimeoutCleanShutdown`` of TensorFlow's ``direct_session_test.cc`` is the first test, by every way to end a step.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import asyncexec as ax
from tests.running import let_threads_free, raw_op, settle, started

# A step that is cancelled waits for its threads as long as it takes.
PATIENT = ax.SessionConfig(worker_grace_s=None, cancel_grace_s=None)


class Kernels:
    """Kernels on worker threads that run until they are cancelled."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.threads: list[int] = []
        self.begun = threading.Event()
        self.go = threading.Event()

    def polls(self, x: Any) -> Any:
        """Asks again and again, as a kernel does that computes in steps."""
        manager = ax.cancellation_manager()
        self.begun.set()
        while not manager.is_cancelled:
            pass
        self.log.append("has ended")
        return x

    def is_woken(self, x: Any) -> Any:
        """Waits for something that a callback interrupts."""
        manager, interrupted = ax.cancellation_manager(), threading.Event()
        token = manager.get_cancellation_token()

        def interrupt() -> None:
            self.threads.append(threading.get_ident())
            interrupted.set()

        assert manager.register_callback(token, interrupt)
        self.begun.set()
        assert interrupted.wait(20)
        assert not manager.deregister_callback(token)
        self.log.append("has ended")
        return x

    async def wait_begun(self) -> None:
        while not self.begun.is_set():  # noqa: ASYNC110 - the thread tells nobody
            await asyncio.sleep(0)


async def wait_in_service(session: ax.Session) -> None:
    """Returns when calls that were abandoned have returned."""
    while any(pool.abandoned for pool in session.statistics().worker_pools.values()):  # noqa: ASYNC110 - as above
        await asyncio.sleep(0)


@pytest.fixture
def kernels() -> Kernels:
    return Kernels()


Way = Callable[[ax.Session, "asyncio.Task[Any]"], Awaitable[Any]]


async def cancels(session: ax.Session, run: asyncio.Task[Any]) -> None:
    run.cancel()


async def closes(session: ax.Session, run: asyncio.Task[Any]) -> None:
    await session.close()


async def fails(session: ax.Session, run: asyncio.Task[Any]) -> None:
    """The queue is closed, which a node of the step waits at."""
    await session.run([], targets="close")


ENDS: dict[Way, type[BaseException]] = {
    cancels: asyncio.CancelledError,
    closes: ax.errors.CancelledError,
    fails: ax.errors.OutOfRangeError,
}


@pytest.mark.parametrize("kernel", [Kernels.polls, Kernels.is_woken], ids=lambda one: one.__name__)
@pytest.mark.parametrize("end", ENDS, ids=lambda one: one.__name__)
@pytest.mark.parametrize("options", [{}, {"limiter": 1}], ids=["plain", "with policies"])
async def test_a_kernel_hears_that_its_step_has_ended(kernels: Kernels, kernel: Any, end: Way, options: Any) -> None:
    with ax.Graph() as graph:
        queue = ax.FIFOQueue(1, [ax.float32], [[]])
        op = ax.op(name="Until", expensive=True, **options)(kernel.__get__(kernels))
        fetches = [op(ax.constant(1.0)), queue.dequeue()]
        queue.close(name="close")
    async with ax.Session(graph, PATIENT) as session:
        run = await started(session.run(fetches))
        await kernels.wait_begun()
        await settle()
        assert kernels.log == []
        await end(session, run)
        with pytest.raises(ENDS[end]):
            await run
        assert kernels.log == ["has ended"]
        assert set(kernels.threads) <= {threading.get_ident()}
        assert all(pool.abandoned == 0 for pool in session.statistics().worker_pools.values())


@pytest.mark.virtual_clock(waits_for_workers=False)
@pytest.mark.parametrize("of", ["run", "op"])
async def test_a_kernel_hears_that_its_time_is_over(kernels: Kernels, of: str) -> None:
    with ax.Graph() as graph:
        op = ax.op(name="Until", expensive=True, timeout=2 if of == "op" else None)(kernels.polls)
        fetch = op(ax.constant(1.0))
    async with ax.Session(graph, PATIENT) as session:
        run = await started(session.run(fetch, options=ax.RunOptions(timeout=2) if of == "run" else None))
        await kernels.wait_begun()
        with pytest.raises(ax.errors.DeadlineExceededError):
            await run
        await wait_in_service(session)
    assert kernels.log == ["has ended"]


async def test_a_kernel_that_asks_after_its_step_has_ended(kernels: Kernels) -> None:
    """Its call was abandoned before."""
    answers: list[bool] = []

    def asks_late(x: Any) -> Any:
        kernels.begun.set()
        kernels.go.wait(20)
        manager = ax.cancellation_manager()
        answers.append(manager.is_cancelled)
        answers.append(manager.register_callback(manager.get_cancellation_token(), lambda: None))
        return x

    with ax.Graph() as graph:
        fetch = raw_op("Late", asks_late, is_expensive=True)(ax.constant(1.0))
    async with ax.Session(graph, ax.SessionConfig(cancel_grace_s=0)) as session:
        run = await started(session.run(fetch))
        await kernels.wait_begun()
        run.cancel()
        with pytest.warns(ax.KernelWarning, match="has not come back"):
            await asyncio.wait([run])
        kernels.go.set()
        await wait_in_service(session)
    assert answers == [True, False]


async def test_calls_have_managers_of_their_own(kernels: Kernels) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.object, [])
        other = Kernels()
        op = raw_op("Until", lambda which: which.polls(0), is_expensive=True)
        fetch = op(x)
    async with ax.Session(graph, PATIENT.model_copy(update={"num_worker_threads": 2})) as session:
        run, other_run = [await started(session.run(fetch, {x: one})) for one in (kernels, other)]
        await kernels.wait_begun()
        await other.wait_begun()
        run.cancel()
        await asyncio.wait([run])
        assert (kernels.log, other.log, other_run.done()) == (["has ended"], [], False)
        other_run.cancel()
        await asyncio.wait([other_run])


async def test_callback_that_fails(kernels: Kernels) -> None:
    def registers(x: Any) -> Any:
        manager = ax.cancellation_manager()
        manager.register_callback(manager.get_cancellation_token(), lambda: 1 // 0)
        return kernels.polls(x)

    with ax.Graph() as graph:
        fetch = raw_op("Until", registers, is_expensive=True)(ax.constant(1.0), name="bad")
    async with ax.Session(graph, PATIENT) as session:
        run = await started(session.run(fetch))
        await kernels.wait_begun()
        run.cancel()
        with pytest.warns(ax.KernelWarning, match="callback of node 'bad' has failed: ZeroDivisionError"):
            await asyncio.wait([run])
        assert run.cancelled()
        assert kernels.log == ["has ended"]


async def test_a_manager_dies_with_its_call() -> None:
    managers: list[weakref.ref[Any]] = []
    with ax.Graph() as graph:
        fetch = raw_op("Ask", lambda: managers.append(weakref.ref(ax.cancellation_manager())), is_expensive=True)()
    async with ax.Session(graph) as session:
        await session.run(fetch)
        await session.run(fetch)
        await let_threads_free(lambda: managers[0]())
        assert managers[0]() is None


def asks(x: Any = None) -> Any:
    return ax.cancellation_manager()


async def asks_later(x: Any) -> Any:
    return ax.cancellation_manager()


@pytest.mark.parametrize("kernel", [asks, asks_later], ids=lambda one: one.__name__)
async def test_no_call_on_a_worker_thread(kernel: Any) -> None:
    with pytest.raises(ax.errors.FailedPreconditionError, match="only a call on a worker thread"):
        asks()
    with ax.Graph() as graph:
        fetch = ax.op(name="Ask", expensive=False)(kernel)(ax.constant(1.0), name="asks")
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.FailedPreconditionError, match="only a call on a worker thread") as caught:
            await session.run(fetch)
    assert caught.value.node == "asks"
    assert "asyncio.CancelledError" in (caught.value.hint or "")


async def test_a_kernel_on_a_worker_thread_has_the_time_of_a_cancelled_call_where_a_map_was_left(
    kernels: Kernels,
) -> None:
    """Nobody waits for results: neither who left the ``async for``, nor who closes the session then."""

    def waits(x: Any) -> Any:
        if x:
            kernels.begun.set()
            kernels.go.wait(20)
        return x

    with ax.Graph() as graph:
        x = ax.placeholder(ax.object, [])
        fetch = raw_op("Wait", waits, is_expensive=True)(x, name="stuck")
    session = ax.Session(graph, ax.SessionConfig(worker_grace_s=1.0, cancel_grace_s=0.001))

    async def leave() -> None:
        async with session:
            async for _ in session.map(fetch, [{x: 0}, {x: 1}]):
                await kernels.wait_begun()
                break

    with pytest.warns(ax.KernelWarning) as warned:
        await leave()
    kernels.go.set()
    assert "'stuck' has not come back from its worker thread within 0.001 s" in str(warned[0].message)
    await wait_in_service(session)
