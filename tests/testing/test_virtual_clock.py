"""VirtualClockLoop: timers fire in their order and at their time, in no time."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import anyio
import pytest

import asyncexec as ax
from asyncexec import RunOptions, Session  # here, as imports block the loop
from asyncexec.testing import VirtualClockLoop

pytestmark = pytest.mark.virtual_clock


@dataclass(frozen=True)
class Waiting:
    """A graph whose one kernel is on a worker thread until it is released."""

    graph: ax.Graph
    fetch: ax.Tensor
    release: threading.Event


@pytest.fixture
def waiting() -> Waiting:
    release = threading.Event()

    @ax.op(outputs=[ax.bool], expensive=True)
    def wait(timeout_s: float) -> bool:
        return release.wait(float(timeout_s))

    with ax.Graph() as graph:
        return Waiting(graph, wait(ax.constant(30.0)), release)


async def test_an_hour_passes_at_once() -> None:
    await asyncio.sleep(3600)  # pytest's time limit is two minutes
    assert asyncio.get_running_loop().time() == 3600


async def test_timers_fire_in_their_order_whatever_the_computer_does() -> None:
    loop = asyncio.get_running_loop()
    seen: list[tuple[str, float]] = []

    async def wake(name: str, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        seen.append((name, loop.time()))

    await asyncio.gather(wake("c", 30), wake("a", 0.001), wake("b", 2.5))
    assert seen == [("a", 0.001), ("b", 2.5), ("c", 30)]


async def test_the_clock_stands_still_while_something_is_ready() -> None:
    loop = asyncio.get_running_loop()
    loop.call_later(10, lambda: None)
    for _ in range(100):
        await asyncio.sleep(0)
    assert loop.time() == 0


async def test_timeouts_of_asyncio_and_anyio_are_in_virtual_time() -> None:
    loop = asyncio.get_running_loop()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(60):
            await asyncio.Event().wait()
    with anyio.move_on_after(60) as scope:
        await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert loop.time() == 120


async def test_a_day_and_more_is_one_sleep() -> None:
    await asyncio.sleep(10 * 86_400 + 0.125)
    assert asyncio.get_running_loop().time() == 10 * 86_400 + 0.125


async def test_the_clock_waits_for_calls_on_threads() -> None:
    loop = asyncio.get_running_loop()
    release = threading.Event()
    call = loop.run_in_executor(None, release.wait)
    threading.Timer(0.02, release.set).start()
    async with asyncio.timeout(1):
        assert await call
    assert loop.time() == 0


async def test_the_clock_waits_for_threads_that_are_joined() -> None:
    """A loop's end has a time limit since Python 3.12."""

    class Slow(ThreadPoolExecutor):
        def shutdown(self, *args: bool, **kwargs: bool) -> None:
            time.sleep(0.02)
            super().shutdown(*args, **kwargs)

    loop = asyncio.get_running_loop()
    loop.set_default_executor(Slow())
    async with asyncio.timeout(300):
        await loop.shutdown_default_executor()
    assert loop.time() == 0


async def test_the_clock_waits_for_the_threads_of_a_session(waiting: Waiting) -> None:
    async with Session(waiting.graph) as session:
        threading.Timer(0.02, waiting.release.set).start()
        assert await session.run(waiting.fetch, options=RunOptions(timeout=1.0))
    assert asyncio.get_running_loop().time() == 0


@pytest.mark.virtual_clock(waits_for_workers=False)
async def test_the_clock_does_not_wait_if_told_so(waiting: Waiting) -> None:
    async with Session(waiting.graph) as session:
        with pytest.raises(ax.errors.DeadlineExceededError):
            await session.run(waiting.fetch, options=RunOptions(timeout=1.0))
        waiting.release.set()


@pytest.mark.virtual_clock(autojump_threshold_s=30)
async def test_within_the_threshold_the_outside_world_comes_first() -> None:
    loop = asyncio.get_running_loop()
    woken = asyncio.Event()
    threading.Timer(0.02, loop.call_soon_threadsafe, [woken.set]).start()
    async with asyncio.timeout(3600):
        await woken.wait()
    assert loop.time() == 0


async def test_sockets_work() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        with contextlib.closing(writer):
            writer.write(b"hello\n")
            assert await reader.readline() == b"hello\n"
        await writer.wait_closed()


async def test_start_is_where_it_is_put() -> None:
    loop = VirtualClockLoop(start_s=5.0)
    try:
        assert loop.time() == 5.0
    finally:
        loop.close()
