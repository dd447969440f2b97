"""A deadline is kept, and a cancellation, though a kernel on a worker thread does not come back.

The kernel is let go only when the run has ended: if that waited for it, no test here would end.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import numpy as np
import pytest

import asyncexec as ax
from asyncexec.executor.workers.pool_statistics import PoolStatistics
from asyncexec.framework.kernel_warning import KernelWarning
from tests.running import raw_op, started

SOON = 0.005
CONFIG = ax.SessionConfig(num_worker_threads=2, device_count={"CPU": 2}, worker_grace_s=None)


class Stuck:
    """An op that blocks its thread until it may end."""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.num_begun = self.num_ended = 0
        self.op = raw_op("Stuck", self._wait, dtype=ax.float64, is_expensive=True)

    def _wait(self, x: Any) -> Any:
        self.num_begun += 1
        self.may_end.wait(60)
        self.num_ended += 1
        return x

    async def wait_begun(self) -> None:
        while not self.num_begun:  # noqa: ASYNC110 - a thread tells nobody
            await asyncio.sleep(0)


@pytest.fixture
def stuck() -> Iterator[Stuck]:
    found = Stuck()
    yield found
    found.may_end.set()


@pytest.fixture
def graph() -> ax.Graph:
    with ax.Graph() as graph:
        ax.placeholder(ax.float64, [None], name="x")
    return graph


def fetch_of(graph: ax.Graph, stuck: Stuck, place: str) -> ax.Tensor:
    with graph:
        x = graph["x:0"]
        if place == "in a loop":
            _, found = ax.while_loop(lambda i, _: i < 1, lambda i, y: (i + 1, stuck.op(y, name="stuck")), (0, x))
        elif place == "on two devices":
            with ax.device("/cpu:1"):
                y = ax.identity(stuck.op(x, name="stuck"))
            found = -y
        else:
            found = -stuck.op(x, name="stuck")
    return found


@asynccontextmanager
async def session_of(graph: ax.Graph, stuck: Stuck) -> AsyncIterator[ax.Session]:
    """One that is closed when the kernel has ended."""
    async with ax.Session(graph, CONFIG) as session:
        try:
            yield session
        finally:
            stuck.may_end.set()
            while any(pool.abandoned for pool in session.statistics().worker_pools.values()):  # noqa: ASYNC110
                await asyncio.sleep(0)


def at_work(session: ax.Session) -> PoolStatistics:
    """Of the device that the kernel is on."""
    return max(session.statistics().worker_pools.values(), key=lambda pool: pool.threads)


Run = Callable[..., Awaitable[Any]]


async def by_option(run: Run) -> None:
    with pytest.raises(ax.errors.DeadlineExceededError, match=f"timeout of {SOON:g} s"):
        await run(options=ax.RunOptions(timeout=SOON))


async def by_asyncio(run: Run) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(SOON):
            await run()


async def by_anyio(run: Run) -> None:
    with pytest.raises(TimeoutError):
        with anyio.fail_after(SOON):
            await run()


async def by_cancellation(run: Run) -> None:
    task = await started(run())
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


WAYS = pytest.mark.parametrize("end", [by_option, by_asyncio, by_anyio, by_cancellation])


@WAYS
@pytest.mark.parametrize("place", ["alone", "in a loop", "on two devices"])
async def test_a_run_ends_before_its_kernel(
    graph: ax.Graph, stuck: Stuck, end: Callable[[Run], Awaitable[None]], place: str
) -> None:
    fetch = fetch_of(graph, stuck, place)
    async with session_of(graph, stuck) as session:
        with graph:
            other = graph["x:0"] * 2.0
        assert await session.run(other, {"x:0": np.ones(1)}) == 2.0
        fed = [np.ones(1)]
        ref = weakref.ref(fed[0])

        async def run(**options: Any) -> Any:
            await session.run(fetch, {"x:0": fed[0]}, **options)

        async def end_until_it_has_begun() -> None:
            while not stuck.num_begun:
                await end(run)

        with pytest.warns(KernelWarning, match=r"stuck' has not come back from its worker thread within 0\.025 s"):
            await end_until_it_has_begun()
        found = at_work(session)
        assert (stuck.num_ended, found.busy, found.abandoned) == (0, stuck.num_begun, stuck.num_begun)
        assert await session.run(other, {"x:0": np.ones(1)}) == 2.0
        stuck.may_end.set()
        while at_work(session).abandoned:  # noqa: ASYNC110
            await asyncio.sleep(0)
        found = at_work(session)
        assert (found.busy, found.given_up, found.completed) == (0, stuck.num_begun, stuck.num_begun)
        fed.clear()
        gc.collect()
        while ref() is not None:  # noqa: ASYNC110 - the thread lets go of it in its own time
            await asyncio.sleep(0)
        assert await session.run(fetch, {"x:0": np.ones(1)}) is not None


@pytest.mark.parametrize("how", ["left", "cancelled in a fetch"])
async def test_a_partial_run_ends_before_its_kernel(graph: ax.Graph, stuck: Stuck, how: str) -> None:
    fetch = fetch_of(graph, stuck, "alone")
    async with session_of(graph, stuck) as session:

        async def leave() -> None:
            async with asyncio.timeout(None) as scope, session.partial_run([fetch], ["x:0"]) as step:
                await step.feed({"x:0": np.ones(1)})
                await stuck.wait_begun()
                if how != "left":
                    scope.reschedule(0)
                    await step.fetch(fetch)

        with pytest.warns(KernelWarning, match="'stuck'"), suppress(TimeoutError):
            await leave()
        assert stuck.num_ended == 0


async def test_a_nested_run_ends_before_its_kernel(graph: ax.Graph, stuck: Stuck) -> None:
    """The kernel that it is called from is cancelled by its step, and is its caller."""
    inner = fetch_of(graph, stuck, "alone")
    async with session_of(graph, stuck) as session:

        @ax.op
        async def nested(x: Any) -> Any:
            return await session.run(inner, {"x:0": np.ones(1)})

        with graph:
            outer = nested(graph["x:0"])
        run = await started(session.run(outer, {"x:0": np.ones(1)}))
        await stuck.wait_begun()
        run.cancel()
        with pytest.warns(KernelWarning, match="'stuck'"):
            await asyncio.wait([run])
        assert (run.cancelled(), stuck.num_ended) == (True, 0)


@pytest.mark.virtual_clock(waits_for_workers=False)
@pytest.mark.parametrize("place", ["alone", "on two devices"])
async def test_who_is_cancelled_while_a_failed_step_waits(graph: ax.Graph, stuck: Stuck, place: str) -> None:
    fetch, loop = fetch_of(graph, stuck, place), asyncio.get_running_loop()
    go = asyncio.Event()

    async def fail(x: Any) -> None:
        await go.wait()
        raise ValueError("enough")

    with graph:
        failing = ax.op(fail)(graph["x:0"])
    async with session_of(graph, stuck) as session:
        run = asyncio.ensure_future(session.run([fetch, failing], {"x:0": np.ones(1)}))
        await stuck.wait_begun()
        go.set()
        await asyncio.sleep(1_000_000)
        assert not run.done()
        begun = loop.time()
        run.cancel()
        with pytest.warns(KernelWarning, match=r"within 0\.025 s"):
            await asyncio.wait([run])
        assert run.cancelled()
        assert loop.time() - begun == pytest.approx(0.025, abs=1e-6)


async def test_a_deadline_while_the_graph_is_prepared() -> None:
    """Nothing of the run is left, and the next one prepares it again."""
    with ax.Graph() as graph:
        y = x = ax.placeholder(ax.float64, [], name="x")
        for _ in range(3000):
            y = -y
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.DeadlineExceededError):
            await session.run(y, {x: 1.0}, options=ax.RunOptions(timeout=1e-4))
        assert session.statistics().cached_signatures == 0
        assert await session.run(y, {x: 1.0}) == 1.0
