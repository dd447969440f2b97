"""Sources that swallow their cancellation: the stream waits for them as steps do for async kernels, and ends then."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import warnings
import weakref
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

import asyncexec as ax
from asyncexec.framework.kernel_warning import KernelWarning
from tests.running import settle, started
from tests.session.stream_graphs import plus

pytestmark = pytest.mark.virtual_clock
SIX = ax.SessionConfig(async_grace_s=6.0)


class Stuck:
    """Gives 0 and 1, and then nothing, until it is let go, whoever cancels it."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.is_stuck = asyncio.Event()
        self.num_cancelled = 0
        self.has_ended = False

    async def values(self) -> AsyncIterator[int]:
        yield 0
        yield 1
        self.is_stuck.set()
        while not self.go.is_set():
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                self.num_cancelled += 1
        self.has_ended = True

    async def first_of(self, outputs: AsyncIterator[Any]) -> Any:
        """What *outputs* gives first, when the source has come to where it is stuck."""
        first = await anext(outputs)
        await self.is_stuck.wait()
        return first

    async def let_go(self) -> None:
        self.go.set()
        await settle(10)
        assert self.has_ended


def source_graph(values: Any) -> tuple[ax.Graph, ax.Tensor]:
    with ax.Graph() as graph:
        return graph, plus(ax.source(values, ax.int64, [], name="reading"), 1)


async def leave(session: ax.Session, stream: Any) -> None:
    await stream.aclose()


async def close_session(session: ax.Session, stream: Any) -> None:
    await session.close()


async def close_and_drain(session: ax.Session, stream: Any) -> None:
    await stream.close()


async def cancel_runner(session: ax.Session, stream: Any) -> None:
    running = await started(stream.run())
    running.cancel()
    await asyncio.wait([running])
    await stream.aclose()


ENDS = [leave, close_session, close_and_drain, cancel_runner]


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
async def test_it_is_left_behind_and_named(end: Callable[[ax.Session, Any], Any]) -> None:
    stuck, loop = Stuck(), asyncio.get_running_loop()
    graph, y = source_graph(stuck.values)
    async with ax.Session(graph, SIX) as session:
        stream = await session.stream(y, window=8).__aenter__()
        assert [await anext(stream), await anext(stream)] == [1, 2]
        await stuck.is_stuck.wait()  # else it is cancelled where it does not swallow that
        start = loop.time()
        message = r"source 'reading' of a stream swallows its cancellation: it was cancelled 4 times .* within 6 s"
        with pytest.warns(KernelWarning, match=message):
            await end(session, stream)
        assert loop.time() - start == pytest.approx(6.03)
        assert stuck.num_cancelled == 4
        assert session.statistics().running_steps == 0
        await stream.aclose()
    assert loop.time() - start == pytest.approx(6.03)
    await stuck.let_go()


async def test_so_is_what_map_draws_from() -> None:
    stuck = Stuck()
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [], name="x")
        y = plus(x, 1)

    async def items() -> AsyncIterator[dict[ax.Tensor, int]]:
        async for value in stuck.values():
            yield {x: value}

    async with ax.Session(graph, SIX) as session:
        with pytest.warns(KernelWarning, match="what a map draws its items from swallows its cancellation"):
            async with session.map(y, items()) as outputs:
                assert await stuck.first_of(outputs) == 1
    await stuck.let_go()


async def test_so_is_what_windows_are_gathered_from() -> None:
    stuck = Stuck()
    with ax.Graph() as graph:
        y = ax.reduce_sum(ax.source(ax.windows(stuck.values, size=2), ax.int64, [None], name="windows"))
    async with ax.Session(graph, SIX) as session:
        with pytest.warns(KernelWarning, match="source 'windows' of a stream swallows"):
            async with session.stream(y) as stream:
                assert await anext(stream) == 1
    await stuck.let_go()
    await settle(20)


async def test_an_item_that_fails_ends_the_stream_without_its_source() -> None:
    stuck = Stuck()

    @ax.op
    async def invert(x: int) -> float:
        await stuck.is_stuck.wait()
        return 1 / int(x)

    with ax.Graph() as graph:
        y = invert(ax.source(stuck.values, ax.int64, [], name="reading"))
    async with ax.Session(graph, SIX) as session:
        with (
            pytest.warns(KernelWarning, match="source 'reading'"),
            pytest.raises(ax.errors.InvalidArgumentError, match="item 0"),
        ):
            await session.stream(y, window=8).run()
    await stuck.let_go()


@pytest.mark.parametrize("seconds", [5.0, 6.02])
async def test_who_cleans_up_in_time_is_waited_for(seconds: float) -> None:
    """Also one that ends while it is cancelled again."""
    cleaned: list[float] = []
    loop = asyncio.get_running_loop()

    async def values() -> AsyncIterator[int]:
        yield 0
        end = 0.0
        while not end or loop.time() < end - 1e-9:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(end - loop.time() if end else 3600)
            end = end or loop.time() + seconds
        cleaned.append(loop.time())

    graph, y = source_graph(values)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        async with ax.Session(graph, SIX) as session:
            async with session.stream(y) as stream:
                assert await anext(stream) == 1
                await settle()  # until the source waits
                start = loop.time()
            assert cleaned == [pytest.approx(start + seconds)]
            assert loop.time() == cleaned[0]
    await asyncio.sleep(60)  # no timer is left that would say something


async def test_without_a_limit_it_is_waited_for_as_long_as_it_takes() -> None:
    stuck = Stuck()
    graph, y = source_graph(stuck.values)
    async with ax.Session(graph, ax.SessionConfig(async_grace_s=None)) as session:
        stream = await session.stream(y).__aenter__()
        assert await stuck.first_of(stream) == 1
        leaving = await started(stream.aclose())
        await asyncio.sleep(10_000)
        assert (leaving.done(), stuck.num_cancelled) == (False, 1)
        await stuck.let_go()
        await leaving


async def test_who_was_left_behind_sends_nothing_and_holds_nothing() -> None:
    stuck = Stuck()
    graph, y = source_graph(stuck.values)
    session = ax.Session(graph, SIX)
    with pytest.warns(KernelWarning, match="source 'reading'"):
        async with session, session.stream(y) as stream:
            assert await stuck.first_of(stream) == 1
    scope = weakref.ref(stream._scope)
    await stuck.let_go()
    del stream
    gc.collect()
    assert scope() is None


async def test_a_caller_that_is_cancelled_meanwhile_waits_no_longer_than_that() -> None:
    stuck, loop = Stuck(), asyncio.get_running_loop()
    graph, y = source_graph(stuck.values)
    async with ax.Session(graph, SIX) as session:
        stream = await session.stream(y).__aenter__()
        assert await stuck.first_of(stream) == 1
        start = loop.time()
        leaving = await started(stream.aclose())
        for _ in range(3):
            leaving.cancel()
            await settle()
        assert not leaving.done()
        with pytest.warns(KernelWarning, match="source 'reading'"):
            await asyncio.wait([leaving])
        assert leaving.cancelled()
        assert loop.time() - start == pytest.approx(6.03)
    await stuck.let_go()
