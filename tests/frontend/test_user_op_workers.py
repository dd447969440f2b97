"""Plain functions of user ops that are awaited run on the worker threads of their device, or not at all."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import asyncexec as ax
from asyncexec.framework.kernel_warning import KernelWarning
from asyncexec.testing.evaluate import evaluate
from tests.running import settle

TWO = ax.SessionConfig(num_worker_threads=2, device_count={"CPU": 2}, cancel_grace_s=0, worker_grace_s=5)


class Blocking:
    """An op that blocks its thread until it may end."""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.threads: list[str] = []
        self.most = 0

        def block(x: Any) -> Any:
            self.threads.append(threading.current_thread().name)
            self.may_end.wait(60)
            return x

        self.op = ax.op(name="Block")(block)

    async def wait_begun(self, number: int) -> None:
        while len(self.threads) < number:  # noqa: ASYNC110 - a thread tells nobody
            await asyncio.sleep(0)


@pytest.fixture
def blocking() -> Iterator[Blocking]:
    found = Blocking()
    yield found
    found.may_end.set()


@pytest.fixture
def graph() -> ax.Graph:
    with ax.Graph() as graph:
        ax.placeholder(ax.object, [], name="x")
    return graph


async def wait_in_service(session: ax.Session) -> None:
    while any(pool.abandoned for pool in session.statistics().worker_pools.values()):  # noqa: ASYNC110
        await asyncio.sleep(0)


async def test_the_threads_are_those_of_the_device(graph: ax.Graph, blocking: Blocking) -> None:
    blocking.may_end.set()
    with graph:
        fetches = []
        for device in ("/cpu:0", "/cpu:1"):
            with ax.device(device):
                fetches.append(blocking.op(graph["x:0"], limiter=3))
    async with ax.Session(graph, TWO) as session:
        assert await session.run(fetches, {"x:0": 5}) == [5, 5]
        assert [pool.completed for pool in session.statistics().worker_pools.values()] == [1, 1]
    assert all(name.startswith("asyncexec-worker") for name in blocking.threads)


async def test_attempts_past_their_timeout_count_against_the_pool(graph: ax.Graph, blocking: Blocking) -> None:
    """There are as many threads as the pool has, however many attempts there were."""
    node = blocking.op(graph["x:0"], timeout=0.002, retries=ax.Retry(attempts=20, wait_initial_s=0))
    before = threading.active_count()
    async with ax.Session(graph, TWO) as session:
        while len(blocking.threads) < 2:
            with pytest.raises(ax.errors.DeadlineExceededError):
                await session.run(node, {"x:0": 5})
        with pytest.raises(ax.errors.DeadlineExceededError, match="worker threads were busy"):
            await session.run(node, {"x:0": 5})
        pool = next(iter(session.statistics().worker_pools.values()))
        assert (pool.threads, pool.busy, pool.abandoned, pool.given_up, pool.queued) == (2, 2, 2, 2, 0)
        assert threading.active_count() == before + 2
        assert len(blocking.threads) == 2
        blocking.may_end.set()
        await wait_in_service(session)
        assert await session.run(node, {"x:0": 5}) == 5


@pytest.mark.one_of("loop")
async def test_ten_thousand_cancelled_calls(graph: ax.Graph, blocking: Blocking) -> None:
    node = blocking.op(graph["x:0"], limiter=10_000, name="stuck")
    before = threading.active_count()
    async with ax.Session(graph, TWO) as session:

        async def begin_and_cancel() -> None:
            for _ in range(10):
                runs = [asyncio.ensure_future(session.run(node, {"x:0": i})) for i in range(1000)]
                await settle()
                assert threading.active_count() <= before + 2
                await blocking.wait_begun(2)
                for run in runs:
                    run.cancel()
                await asyncio.wait(runs)

        with pytest.warns(KernelWarning, match="'stuck'") as warned:
            await begin_and_cancel()
        assert len([each for each in warned if "worker thread" in str(each.message)]) == 1
        assert next(iter(session.statistics().worker_pools.values())).given_up == 2
        blocking.may_end.set()
        await wait_in_service(session)


@pytest.mark.virtual_clock(waits_for_workers=False)
@pytest.mark.parametrize(("cause", "expected"), [("failure", 5), ("cancellation", 0), ("failure, cancellation", 3)])
async def test_the_slot_is_held_until_the_thread_is_free(
    graph: ax.Graph, blocking: Blocking, cause: str, expected: float
) -> None:
    """A step that has failed by itself waits longer, unless its caller is cancelled then."""
    limiter, go, loop = ax.Limiter(1), asyncio.Event(), asyncio.get_running_loop()

    async def fail(x: Any) -> None:
        await go.wait()
        raise ValueError("enough")

    fetches = [blocking.op(graph["x:0"], limiter=limiter), ax.op(fail)(graph["x:0"])]
    async with ax.Session(graph, TWO) as session:
        run = asyncio.ensure_future(session.run(fetches, {"x:0": 5}))
        await blocking.wait_begun(1)
        if "failure" in cause:
            go.set()
        if "cancellation" in cause:
            loop.call_later(3 if "failure" in cause else 0, run.cancel)
        begun = loop.time()
        with pytest.warns(KernelWarning, match="'Block'"):
            await asyncio.wait([run])
        assert loop.time() - begun == pytest.approx(expected)
        assert limiter.statistics().inside == 1
        assert run.cancelled() if "cancellation" in cause else run.exception() is not None
        blocking.may_end.set()
        await wait_in_service(session)
        assert limiter.statistics().inside == 0


def test_without_a_session_there_are_no_threads(graph: ax.Graph, blocking: Blocking) -> None:
    with pytest.raises(ax.errors.FailedPreconditionError, match="no session") as caught:
        evaluate(graph, [blocking.op(graph["x:0"], timeout=1, name="n")], {"x:0": 1})
    assert caught.value.node == "n"
