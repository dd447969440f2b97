"""A session whose event loop was closed with calls under way: the next loop has it to itself.

Nothing that waits in the closed loop ever runs again.  What it had (places, worker threads, locks, turns at
queues) is there for the next; and what is left of it does no harm, whether it is collected before or after that.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import pytest
import uvloop

import asyncexec as ax
from asyncexec.framework.cooperative import TURNS
from asyncexec.framework.kernel_warning import KernelWarning
from tests.running import settle

NewLoop: TypeAlias = Callable[[], asyncio.AbstractEventLoop]
LOOPS: list[NewLoop] = [asyncio.new_event_loop, uvloop.new_event_loop]
CONFIGS = {
    "plain": ax.SessionConfig(device_count={"CPU": 2}),
    "one step": ax.SessionConfig(device_count={"CPU": 2}, max_concurrent_steps=1, drain_timeout_s=None),
    "rendezvous": ax.SessionConfig(device_count={"CPU": 2}, feed_fetch_medium="rendezvous"),
}
INT: dict[str, Any] = {"outputs": [ax.int64], "shapes": [[]]}


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """That pending tasks were destroyed is asyncio's to log, and true; all else that is raised then fails the test."""
    caplog.set_level(logging.CRITICAL, "asyncio")
    yield
    gc.collect()


class Kernels:
    """A graph with x + 1 by way of each kind of kernel; while they are stuck, those do not end."""

    def __init__(self) -> None:
        self.is_stuck = True
        self.has_begun = False
        self.go = threading.Event()

        @ax.op(**INT)
        async def awaits(x: Any) -> Any:
            if self.is_stuck:
                await asyncio.Event().wait()
            return x + 1

        def works(x: Any) -> Any:
            self.has_begun = True
            if self.is_stuck:
                self.go.wait(60)
            return x + 1

        with ax.Graph() as self.graph:
            self.x = ax.placeholder(ax.int64, [], name="x")
            _, looped = ax.while_loop(lambda i, _: i < 1, lambda i, v: (i + 1, awaits(v)), (ax.constant(0), self.x))
            with ax.device("/cpu:1"):
                far = ax.identity(self.x)
            self.fetches: dict[str, ax.Tensor] = {
                "async": awaits(self.x),
                "worker": ax.op(**INT, expensive=True)(works)(self.x),
                "limited": ax.op(**INT, expensive=True, limiter=1)(works)(self.x),
                "timed": ax.op(**INT, timeout=60)(works)(self.x),
                "loop": looped,
                "devices": awaits(far),
            }

    def let_go(self) -> None:
        self.is_stuck = False
        self.go.set()


class Use:
    """Uses of a session that fetch *y*, each waiting for it as long as kernels are stuck, and then giving three."""

    def __init__(self, session: ax.Session, kernels: Kernels, kind: str) -> None:
        self._session = session
        self._y, self._x = kernels.fetches[kind], kernels.x

    async def run(self) -> list[Any]:
        return await asyncio.gather(*[self._session.run(self._y, {self._x: i}) for i in range(3)])

    async def partial_run(self) -> list[Any]:
        found = []
        for i in range(3):
            async with self._session.partial_run([self._y], [self._x]) as step:
                await step.feed({self._x: i})
                found.append(await step.fetch(self._y))
        return found

    async def stream(self) -> list[Any]:
        async with self._session.stream(self._y, window=2) as stream:

            async def send() -> None:
                for i in range(3):
                    await stream.send({self._x: i})
                await stream.close()

            sending = asyncio.ensure_future(send())
            found = [out async for out in stream]
            await sending
        return found

    async def map(self) -> list[Any]:
        items = ({self._x: i} for i in range(3))
        return [out async for out in self._session.map(self._y, items, window=2)]

    async def map_async(self) -> list[Any]:
        async def items() -> AsyncIterator[Any]:
            for i in range(3):
                yield {self._x: i}

        return [out async for out in self._session.map(self._y, items(), window=2)]


USES = [Use.run, Use.partial_run, Use.stream, Use.map, Use.map_async]


def begin_and_close(
    loop: asyncio.AbstractEventLoop, use: Awaitable[Any], *, collects: bool, turns: int = 12 * TURNS
) -> Any:
    """Let *use* come as far as it can, and close the loop; who keeps what this gives keeps what is left of it."""
    task = asyncio.ensure_future(use, loop=loop)
    loop.run_until_complete(settle(turns))
    assert not task.done()
    loop.close()
    if not collects:
        return task
    del task, use
    gc.collect()
    return None


def finish(loop: asyncio.AbstractEventLoop, session: ax.Session, use: Callable[[], Awaitable[Any]]) -> Any:
    """What *use* gives in another loop; the session is closed then."""

    async def main() -> Any:
        result = await asyncio.wait_for(use(), 10)
        statistics = session.statistics()
        assert (statistics.running_steps, statistics.queued_steps) == (0, 0)
        await asyncio.wait_for(session.close(), 10)
        return result

    try:
        return loop.run_until_complete(main())
    finally:
        loop.close()


CASES = [("plain", kind) for kind in ("async", "worker", "limited", "timed", "loop", "devices")]
CASES += [(config, kind) for config in ("one step", "rendezvous") for kind in ("async", "worker", "devices")]


@pytest.mark.parametrize("collects", [False, True], ids=["kept", "collected"])
@pytest.mark.parametrize("use", USES, ids=lambda use: use.__name__)
@pytest.mark.parametrize(("config", "kind"), CASES, ids="-".join)
@pytest.mark.parametrize("new_loop", LOOPS, ids=["asyncio", "uvloop"])
def test_the_next_loop_has_the_session_to_itself(
    new_loop: NewLoop, config: str, kind: str, use: Callable[[Use], Any], collects: bool
) -> None:
    kernels = Kernels()
    session = ax.Session(kernels.graph, CONFIGS[config])
    using = Use(session, kernels, kind)
    left = begin_and_close(new_loop(), use(using), collects=collects)
    kernels.let_go()
    assert finish(new_loop(), session, lambda: use(using)) == [1, 2, 3]
    del left


@pytest.mark.parametrize("collects", [False, True], ids=["kept", "collected"])
def test_what_was_being_built_is_built_anew(collects: bool) -> None:
    """Others waited for the one who built."""
    with ax.Graph() as graph:
        x = y = ax.placeholder(ax.float32, [], name="x")
        for _ in range(2000):
            y = y + 1.0
    session = ax.Session(graph)

    async def use() -> Any:
        return await asyncio.gather(*[session.run(y, {x: 1.0}) for _ in range(3)])

    left = begin_and_close(asyncio.new_event_loop(), use(), collects=collects, turns=3)
    assert session.statistics().cached_signatures == 0
    assert finish(asyncio.new_event_loop(), session, use) == [2001.0] * 3
    del left


@pytest.mark.parametrize("collects", [False, True], ids=["kept", "collected"])
@pytest.mark.parametrize("which", ["dequeue", "enqueue"])
def test_who_stood_in_line_at_a_queue_takes_nothing(which: str, collects: bool) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [], name="x")
        attrs: dict[str, Any] = {"component_types": [ax.int64]}
        queue: Any = ax.create_op("FIFOQueueV2", [], attrs={**attrs, "shapes": [[]], "capacity": 1})
        ax.create_op("QueueEnqueueV2", [queue, [x]], name="enqueue")
        taken = ax.create_op("QueueDequeueV2", [queue], attrs=attrs, name="dequeue")
    session = ax.Session(graph)
    fetch, number = (taken, 2) if which == "dequeue" else ("enqueue", 3)

    async def wait_in_line() -> None:
        await asyncio.gather(*[session.run(fetch, {} if fetch is taken else {x: i}) for i in range(number)])

    async def use() -> Any:
        found = [await session.run(taken)] if which == "enqueue" else []
        await session.run("enqueue", {x: 7})
        return [*found, await session.run(taken)]

    left = begin_and_close(asyncio.new_event_loop(), wait_in_line(), collects=collects)
    found = finish(asyncio.new_event_loop(), session, use)
    *first, last = np.ravel(found).tolist()
    assert last == 7
    assert len(first) == (which == "enqueue")
    assert set(first) <= set(range(number))  # whoever was first in line
    del left


@pytest.mark.parametrize("collects", [False, True], ids=["kept", "collected"])
@pytest.mark.parametrize("timeout_s", [60.0, 0.0], ids=["gathered", "running"])
def test_a_batch_that_never_ran_takes_no_calls(timeout_s: float, collects: bool) -> None:
    is_stuck = True

    @ax.op(outputs=[ax.float32])
    async def model(rows: Any) -> Any:
        if is_stuck:
            await asyncio.Event().wait()
        return rows

    @ax.batch(max_size=4, timeout_s=timeout_s)
    def doubled(rows: Any) -> Any:
        return model(rows) * 2.0

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [1], name="x")
        y = doubled(x)
    session = ax.Session(graph)

    async def use(number: int) -> Any:
        return await asyncio.gather(*[session.run(y, {x: [i]}) for i in range(number)])

    left = begin_and_close(asyncio.new_event_loop(), use(3), collects=collects, turns=40)
    is_stuck = False
    found = finish(asyncio.new_event_loop(), session, lambda: use(4))
    assert np.ravel(found).tolist() == [0.0, 2.0, 4.0, 6.0]
    del left


def test_a_thread_that_does_not_come_back_is_taken_for_lost() -> None:
    """It counts as one of the pool's until then, and the close of the session does not wait for it."""
    kernels = Kernels()
    session = ax.Session(kernels.graph, ax.SessionConfig(num_worker_threads=1, device_count={"CPU": 2}))

    async def begin() -> None:
        running = asyncio.ensure_future(Use(session, kernels, "worker").run())
        while not kernels.has_begun:  # noqa: ASYNC110 - the thread tells nobody
            await asyncio.sleep(0)
        reached.append(True)
        await running

    reached: list[bool] = []
    loop = asyncio.new_event_loop()
    left = loop.create_task(begin())
    while not reached:
        loop.run_until_complete(settle())
    loop.close()

    async def use() -> Any:
        await session.run(kernels.fetches["devices"], {kernels.x: 1})
        return [(pool.busy, pool.abandoned, pool.queued) for pool in session.statistics().worker_pools.values()]

    kernels.is_stuck = False
    with pytest.warns(KernelWarning, match="was still on its worker thread when the session was closed"):
        assert finish(asyncio.new_event_loop(), session, use) == [(1, 1, 0), (0, 0, 0)]
    kernels.go.set()
    del left


def test_a_session_that_was_draining_can_be_closed() -> None:
    kernels = Kernels()
    session = ax.Session(kernels.graph, CONFIGS["one step"])

    async def close() -> None:
        running = asyncio.ensure_future(Use(session, kernels, "async").run())
        await settle()
        await session.close()
        await running

    left = begin_and_close(asyncio.new_event_loop(), close(), collects=False)
    with asyncio.Runner() as runner:
        runner.run(asyncio.wait_for(session.close(), 10))
    assert (session.statistics().running_steps, session.statistics().queued_steps) == (0, 0)
    del left


@pytest.mark.parametrize("new_loop", LOOPS, ids=["asyncio", "uvloop"])
def test_one_loop_after_the_other(new_loop: NewLoop) -> None:
    """In each of them calls wait for each other: while a signature is built, to be let in, at a limiter."""
    kernels = Kernels()
    kernels.let_go()
    session = ax.Session(kernels.graph, CONFIGS["one step"])
    for kind in kernels.fetches:
        using = Use(session, kernels, kind)
        for use in USES:
            with asyncio.Runner(loop_factory=new_loop) as runner:
                assert runner.run(use(using)) == [1, 2, 3]
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(session.close())
