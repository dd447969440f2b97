"""Worker threads that sessions share: as many as cores, in turns, and none when the last session is closed."""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections import Counter
from typing import Any, Final

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.executor.workers.offload import WorkerPool
from asyncexec.process.cores import num_cores
from tests.on_threads import at_once
from tests.running import raw_op, settle

CORES: Final = num_cores()
SOON_S: Final = 10
PATIENT: Final = ax.SessionConfig(worker_grace_s=None, cancel_grace_s=None)
QUICK_TO_LEAVE: Final = ax.SessionConfig(worker_grace_s=0, cancel_grace_s=0)


def worker_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("asyncexec-worker")}


class Kernels:
    """A graph of calls on worker threads, which note who they are for, and wait while the gate is shut."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.begun: list[str] = []
        self.threads: set[int] = set()

    def graph(self, name: str, count: int) -> tuple[ax.Graph, list[ax.Tensor]]:
        def work(x: Any) -> Any:
            self.threads.add(threading.get_ident())
            self.begun.append(name)
            assert self.gate.wait(SOON_S)
            return x

        with ax.Graph() as graph:
            x = ax.constant(np.float32(1))
            node = raw_op("Work", work, dtype=ax.float32, is_expensive=True)
            return graph, [node(x) for _ in range(count)]

    async def until_begun(self, count: int) -> None:
        while len(self.begun) < count:  # noqa: ASYNC110 - a thread does it
            await asyncio.sleep(0.001)


@pytest.fixture
def kernels() -> Kernels:
    return Kernels()


async def test_many_sessions_have_as_many_threads_as_cores(kernels: Kernels) -> None:
    before = worker_threads()
    graphs = [kernels.graph(str(i), 30) for i in range(5)]
    sessions = [ax.Session(graph) for graph, _ in graphs]
    runs = [session.run(fetches) for session, (_, fetches) in zip(sessions, graphs, strict=True)]
    for values in await asyncio.gather(*runs):
        assert values == [1.0] * 30
    started = worker_threads() - before
    assert 1 <= len(started) <= CORES
    assert {thread.ident for thread in started} >= kernels.threads
    for session in sessions:
        (pool,) = session.statistics().worker_pools.values()
        assert (pool.threads, pool.completed, pool.busy, pool.queued) == (len(started), 30, 0, 0)
    for session in sessions[:-1]:
        await session.close()
    assert worker_threads() - before == started
    await sessions[-1].close()
    assert worker_threads() - before == set()


async def test_a_session_that_names_a_number_has_threads_of_its_own(kernels: Kernels) -> None:
    before = worker_threads()
    graph, fetches = kernels.graph("shared", 20)
    own_graph, own_fetches = kernels.graph("own", 20)
    async with ax.Session(graph) as session, ax.Session(own_graph, ax.SessionConfig(num_worker_threads=3)) as own:
        await session.run(fetches)
        shared, threads = set(kernels.threads), worker_threads()
        kernels.threads.clear()
        kernels.gate.clear()
        run = asyncio.ensure_future(own.run(own_fetches))
        await kernels.until_begun(23)  # three at once, whatever the number of cores is
        kernels.gate.set()
        await run
        assert kernels.threads.isdisjoint(shared)
        assert len(worker_threads() - threads) == 3
        assert len(threads - before) <= CORES


@pytest.fixture
def one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """So there is one thread, and an order in which it takes its jobs."""
    monkeypatch.setattr("asyncexec.process.cores.usable_cores", lambda: 1)


@pytest.mark.usefixtures("one_core")
async def test_a_session_that_floods_the_threads_does_not_starve_others(kernels: Kernels) -> None:
    graph, fetches = kernels.graph("many", 300)
    other_graph, other_fetches = kernels.graph("few", 3)
    async with ax.Session(graph) as session, ax.Session(other_graph) as other:
        kernels.gate.clear()
        flood = asyncio.ensure_future(session.run(fetches))
        await kernels.until_begun(1)
        run = asyncio.ensure_future(other.run(other_fetches))
        for each, count in ((session, 299), (other, 3)):
            while each.statistics().worker_pools[each.list_devices()[0]].queued < count:  # noqa: ASYNC110
                await asyncio.sleep(0)
        kernels.gate.set()
        await asyncio.gather(flood, run)
    places = [place for place, name in enumerate(kernels.begun) if name == "few"]
    # In turns with those of the other session; of calls that begin at the same time either may be noted first.
    assert len(places) == 3
    assert all(place <= turn + CORES for place, turn in zip(places, (2, 4, 6), strict=True))


async def test_a_closed_session_leaves_no_job_behind(kernels: Kernels) -> None:
    graph, fetches = kernels.graph("closed", 50)
    other_graph, other_fetches = kernels.graph("open", 5)
    async with ax.Session(other_graph) as other:
        session = ax.Session(graph)
        kernels.gate.clear()
        runs = [asyncio.ensure_future(each) for each in (session.run(fetches), other.run(other_fetches))]
        await kernels.until_begun(CORES)
        closing = asyncio.ensure_future(session.close())
        await settle()
        kernels.gate.set()
        await closing
        with pytest.raises(ax.errors.CancelledError):
            await runs[0]
        num_begun = kernels.begun.count("closed")
        assert num_begun <= CORES
        assert await runs[1] == [1.0] * 5
        assert await other.run(other_fetches) == [1.0] * 5
        assert kernels.begun.count("closed") == num_begun


async def test_threads_that_a_closed_session_does_not_give_back_are_replaced(kernels: Kernels) -> None:
    before = worker_threads()
    graph, fetches = kernels.graph("stuck", CORES)
    other = Kernels()
    other_graph, other_fetches = other.graph("other", 2 * CORES)
    async with ax.Session(other_graph) as session:
        kernels.gate.clear()
        stuck = ax.Session(graph, QUICK_TO_LEAVE)
        run = asyncio.ensure_future(stuck.run(fetches))
        await kernels.until_begun(CORES)
        waiting = asyncio.ensure_future(session.run(other_fetches))
        await settle()
        assert not other.begun
        with pytest.warns(ax.KernelWarning, match="worker thread"):
            await stuck.close()
        with pytest.raises(ax.errors.CancelledError):
            await run
        assert await waiting == [1.0] * (2 * CORES)
        (pool,) = session.statistics().worker_pools.values()
        assert (pool.threads <= CORES, pool.queued) == (True, 0)
        kernels.gate.set()
    for thread in worker_threads() - before:
        thread.join(SOON_S)
        assert not thread.is_alive()


async def test_calls_that_do_not_come_back_leave_threads_to_others(kernels: Kernels) -> None:
    """Of their own session, and of others; and yet there is a limit to the threads that are made."""
    before = worker_threads()
    graph, fetches = kernels.graph("stuck", CORES)
    other = Kernels()
    other_graph, other_fetches = other.graph("other", 2 * CORES)
    config = ax.SessionConfig(cancel_grace_s=0, worker_grace_s=10)
    async with ax.Session(other_graph) as session, ax.Session(graph, config) as stuck:
        kernels.gate.clear()
        for number in range(3):
            run = asyncio.ensure_future(stuck.run(fetches))
            await kernels.until_begun(CORES * min(number + 1, 2))
            await settle()
            run.cancel()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ax.KernelWarning)
                await asyncio.wait([run])
            assert run.cancelled()
            assert len(kernels.begun) == CORES * min(number + 1, 2)
            if not number:
                assert await session.run(other_fetches) == [1.0] * (2 * CORES)
        assert len(worker_threads() - before) == 2 * CORES
        (pool,) = stuck.statistics().worker_pools.values()
        assert (pool.busy, pool.abandoned, pool.queued) == (2 * CORES, 2 * CORES, 0)
        kernels.gate.set()
        while stuck.statistics().worker_pools[stuck.list_devices()[0]].busy:  # noqa: ASYNC110 - threads end it
            await asyncio.sleep(0.001)
        assert await stuck.run(fetches) == [1.0] * CORES
        while len(worker_threads() - before) > CORES:  # noqa: ASYNC110 - the others are about to end
            await asyncio.sleep(0.001)


@pytest.mark.allow_blocking
@pytest.mark.parametrize("cores", [1, 3])
async def test_calls_on_shared_threads_that_wait_for_calls_of_other_sessions(
    monkeypatch: pytest.MonkeyPatch, cores: int
) -> None:
    """As many as there are threads, and each waits: those calls have threads of their session's own."""
    monkeypatch.setattr("asyncexec.process.cores.usable_cores", lambda: cores)
    meeting = threading.Barrier(cores)
    with ax.Graph() as inner_graph:
        inner = raw_op("Inner", lambda: np.float32(7), dtype=ax.float32, is_expensive=True)()
    with ax.BlockingSession(inner_graph) as inner_session:

        def wait(x: Any) -> Any:
            meeting.wait(SOON_S)
            return inner_session.run(inner)

        with ax.Graph() as graph:
            x = ax.constant(np.float32(1))
            outer = [raw_op("Outer", wait, dtype=ax.float32, is_expensive=True)(x) for _ in range(cores)]
        async with ax.Session(graph) as session:
            for _ in range(3):
                assert await asyncio.wait_for(session.run(outer), SOON_S) == [7.0] * cores


@pytest.mark.allow_blocking  # what the threads of the loops share has locks
def test_sessions_in_several_threads(kernels: Kernels) -> None:
    """Each in a loop of its own; some of their runs are cancelled, and sessions come and go."""
    before = worker_threads()
    graphs = {name: kernels.graph(name, 8) for name in "abcd"}

    async def use(name: str) -> int:
        ended, (graph, fetches) = 0, graphs[name]
        for _ in range(10):
            async with ax.Session(graph, PATIENT) as session:
                runs = [asyncio.ensure_future(session.run(fetches)) for _ in range(4)]
                await asyncio.sleep(0)
                runs[0].cancel()
                for run in runs[1:]:
                    assert await run == [1.0] * 8
                    ended += 1
                await asyncio.wait(runs[:1])
                (pool,) = session.statistics().worker_pools.values()
                assert (pool.busy, pool.queued, pool.abandoned) == (0, 0, 0)
        return ended

    assert at_once(*(lambda name=name: asyncio.run(use(name)) for name in "abcd")) == [30] * 4  # type: ignore[misc]
    counts = Counter(kernels.begun)
    assert all(counts[name] >= 240 for name in "abcd")
    assert worker_threads() - before == set()


@pytest.mark.usefixtures("one_core")
async def test_jobs_of_pools_in_turns() -> None:
    """One each, whatever the number of jobs of the others."""
    go, order, done = threading.Event(), list[str](), asyncio.Event()
    pools = {name: WorkerPool(is_shared=True) for name in "abc"}
    pools["a"].submit(go.wait, (SOON_S,), lambda _: None)
    while not pools["a"].statistics().busy:  # noqa: ASYNC110 - a thread begins it
        await asyncio.sleep(0.001)
    for name, count in (("a", 30), ("b", 1), ("c", 3)):
        for _ in range(count):
            pools[name].submit(order.append, (name,), lambda _: len(order) == 34 and done.set())
    go.set()
    await done.wait()
    assert "".join(order) == "abcacac" + "a" * 27
    for pool in pools.values():
        await pool.close()
