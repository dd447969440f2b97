"""Workers that are lost at any phase of a step: a typed error that names them, nothing left, the next step right."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from tests.distributed.clusters import until
from tests.distributed.faulty_clusters import (
    CLIENT,
    SIZE,
    Chain,
    Faulty,
    chain,
    close_gates,
    faulty_cluster,
    ones,
    open_gates,
    run_right,
    task,
)

UNAVAILABLE = ax.errors.UnavailableError


async def failing(session: ax.Session, steps: Chain) -> asyncio.Task[Any]:
    return asyncio.create_task(session.run(steps.fetch, {steps.feed: ones()}))


async def check_fails(running: asyncio.Task[Any], name: str) -> None:
    """The step fails with UnavailableError, which names the worker."""
    async with asyncio.timeout(30):
        await asyncio.wait([running])
    error = running.exception()
    assert isinstance(error, UNAVAILABLE), repr(error)
    assert name in "\n".join([str(error), *getattr(error, "__notes__", ())]), repr(error)


async def check_ends(running: asyncio.Task[Any], lost: int, phase: str) -> None:
    """The step fails, but for one that has all that it needs of the worker."""
    if (phase, lost) == ("second", 0):
        open_gates()
        assert np.array_equal(await running, np.full(SIZE, -3, np.float32))
    else:
        await check_fails(running, task(lost))


async def begin(faulty: Faulty, session: ax.Session, steps: Chain, phase: str) -> asyncio.Task[Any]:
    """A step that has come to *phase*."""
    running = await failing(session, steps)
    if phase == "first":
        await faulty.gate("first").arrived.wait()
    elif phase == "second":
        faulty.gate("first").opened.set()
        await faulty.gate("second").arrived.wait()
    else:
        await asyncio.sleep(0)  # it has told the workers nothing yet, or not all
    return running


@pytest.mark.parametrize("lost", [0, 1])
@pytest.mark.parametrize("phase", ["begin", "first", "second"])
@pytest.mark.one_of("loop")
async def test_a_connection_to_a_worker_is_cut(phase: str, lost: int) -> None:
    async with faulty_cluster() as faulty:
        steps = chain()
        async with ax.Session(steps.graph, cluster=faulty.cluster) as session:
            await run_right(session, steps)
            close_gates()
            running = await begin(faulty, session, steps, phase)
            faulty.proxies[lost].of(CLIENT).cut()
            await check_ends(running, lost, phase)
            del running
            open_gates()
            await faulty.nothing_is_left()
            await run_right(session, steps)
            await faulty.nothing_is_left()


@pytest.mark.parametrize("lost", [0, 1])
@pytest.mark.parametrize("phase", ["begin", "first", "second"])
@pytest.mark.one_of("loop", "lost")
async def test_a_worker_is_started_again(phase: str, lost: int) -> None:
    async with faulty_cluster() as faulty:
        steps = chain()
        async with ax.Session(steps.graph, cluster=faulty.cluster) as session:
            await run_right(session, steps)
            close_gates()
            running = await begin(faulty, session, steps, phase)
            await faulty.restart(lost)
            await check_ends(running, lost, phase)
            del running
            open_gates()
            await faulty.nothing_is_left()
            await run_right(session, steps)
            await faulty.nothing_is_left()


@pytest.mark.parametrize("how", ["cut", "refuse", "swallow"])
@pytest.mark.one_of("loop")
async def test_workers_lose_each_other(how: str) -> None:
    """Worker 0 cannot reach worker 1, while the client reaches both."""
    async with faulty_cluster() as faulty:
        steps = chain()
        async with ax.Session(steps.graph, cluster=faulty.cluster) as session:
            await run_right(session, steps)
            close_gates()
            running = await begin(faulty, session, steps, "first")
            wire = faulty.proxies[1].of(task(0))
            faulty.proxies[1].refuses = how == "refuse"
            if how == "swallow":
                wire.swallows = True
            else:
                wire.cut()
            open_gates()  # the value is on its way, or cannot be sent
            async with asyncio.timeout(30):
                await asyncio.wait([running])
            if how == "cut" and running.exception() is None:
                pass  # the value went by another connection
            else:
                await check_fails(running, task(0) if how == "cut" else "/job:worker/")
            del running
            faulty.proxies[1].refuses = False
            await faulty.nothing_is_left()
            # Of a connection that only stays silent, the other end may find out later, and fail the next step by it.
            await run_right(session, steps, retries=int(how == "swallow"))
            await faulty.nothing_is_left()


@pytest.mark.parametrize("lost", [0, 1])
@pytest.mark.one_of("loop", "lost")
async def test_a_half_open_connection(lost: int) -> None:
    """Both ends believe that the other is there; pings tell that it is not."""
    async with faulty_cluster() as faulty:
        steps = chain()
        async with ax.Session(steps.graph, cluster=faulty.cluster) as session:
            await run_right(session, steps)
            close_gates()
            running = await begin(faulty, session, steps, "first")
            faulty.proxies[lost].of(CLIENT).swallows = True
            await check_fails(running, task(lost))
            del running
            open_gates()
            await faulty.nothing_is_left()
            await run_right(session, steps)
            await faulty.nothing_is_left()


@pytest.mark.one_of("loop")
async def test_a_worker_that_stops_reading() -> None:
    async with faulty_cluster() as faulty:
        steps = chain()
        async with ax.Session(steps.graph, cluster=faulty.cluster) as session:
            await run_right(session, steps)
            faulty.proxies[0].of(CLIENT).flows.clear()
            running = await failing(session, steps)
            await check_fails(running, task(0))
            del running
            await faulty.nothing_is_left()
            await run_right(session, steps)


@pytest.mark.one_of("loop")
async def test_a_slow_connection_changes_nothing() -> None:
    async with faulty_cluster() as faulty:
        steps = chain()
        async with ax.Session(steps.graph, cluster=faulty.cluster) as session:
            for proxy in faulty.proxies:
                for wire in proxy.wires:
                    wire.delay_s = 0.003
            for _ in range(3):
                await run_right(session, steps)
            await faulty.nothing_is_left()


@pytest.mark.one_of("loop")
async def test_others_go_on() -> None:
    """Steps that do not need the worker that is lost, and other sessions."""
    async with faulty_cluster(3) as faulty:
        steps = chain()
        with steps.graph, ax.device("/job:worker/task:2"):
            other = ax.negative(steps.feed)
        async with (
            ax.Session(steps.graph, cluster=faulty.cluster) as session,
            ax.Session(steps.graph, cluster=faulty.cluster) as second,
        ):
            await run_right(session, steps)
            close_gates()
            running = await begin(faulty, session, steps, "first")
            beside = asyncio.create_task(second.run(other, {steps.feed: np.ones(3, np.float32)}))
            faulty.proxies[1].of(CLIENT).cut()
            await check_fails(running, task(1))
            assert (await beside).tolist() == [-1, -1, -1]
            assert (await session.run(other, {steps.feed: np.ones(3, np.float32)})).tolist() == [-1, -1, -1]
            del running
            await run_right(second, steps)
            await run_right(session, steps)
            await faulty.nothing_is_left()


@pytest.mark.one_of("loop")
async def test_the_caller_gives_up_while_a_worker_is_dialed() -> None:
    """A step that has ended before its worker is back is not begun there, and nothing of it waits."""
    async with faulty_cluster() as faulty:
        steps = chain()
        async with ax.Session(steps.graph, cluster=faulty.cluster) as session:
            await run_right(session, steps)
            close_gates()
            faulty.proxies[0].refuses = True
            faulty.proxies[0].of(CLIENT).cut()
            link = faulty.cluster.link(task(0))
            assert link is not None
            await until(lambda: link.connection is None)
            running = await failing(session, steps)
            await until(lambda: any(each._held for each in faulty.cluster._sessions.values()))
            running.cancel()
            await asyncio.wait([running])
            assert running.cancelled()
            del running
            await faulty.nothing_is_left()
            faulty.proxies[0].refuses = False
            await link.connected()
            await faulty.nothing_is_left()
            assert not faulty.gate("first").arrived.is_set()
            await run_right(session, steps)


@pytest.mark.one_of("loop")
async def test_a_worker_that_does_not_come_back() -> None:
    async with faulty_cluster(reconnect_timeout_s=0.2) as faulty:
        steps = chain()
        async with ax.Session(steps.graph, cluster=faulty.cluster) as session:
            await run_right(session, steps)
            faulty.proxies[1].refuses = True
            faulty.proxies[1].of(CLIENT).cut()
            for _ in range(2):
                running = await failing(session, steps)
                await check_fails(running, task(1))
                del running
            await faulty.nothing_is_left()
            faulty.proxies[1].refuses = False
            await run_right(session, steps)


@pytest.mark.one_of("loop")
async def test_the_coordinator_dies() -> None:
    """Its connections are cut: nothing of its steps is left on any worker, and they serve others."""
    async with faulty_cluster() as faulty:
        steps = chain()
        session = ax.Session(steps.graph, cluster=faulty.cluster)
        await run_right(session, steps)
        close_gates()
        running = await begin(faulty, session, steps, "first")
        for proxy in faulty.proxies:
            proxy.refuses = True
            proxy.of(CLIENT).cut()
        await until(lambda: not any(worker.num_sessions for worker in faulty.workers))
        await check_fails(running, "/job:worker/")
        await until(lambda: faulty.gate("first").num_cancelled == 1)
        del running
        gc.collect()
        await faulty.nothing_is_left()
        await until(lambda: not any(worker._closing for worker in faulty.workers))
        for proxy in faulty.proxies:
            proxy.refuses = False
        await run_right(session, steps)
        await session.close()
        await faulty.nothing_is_left()
