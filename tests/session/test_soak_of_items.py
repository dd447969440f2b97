"""Many items of streams of all sorts: memory stays flat, every item is run once, and comes out once in its place.

One stream runs for long, with an async kernel, a state, and failures that it yields; another over two devices and
worker threads, with retries; and thousands of short ones are each ended in another way.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import count
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from tests.running import let_threads_free, settle
from tests.session.flat_memory import FlatMemory, LiveArrays

# What pytest and a log keep of warnings is not flat; on a busy machine kernels are slow and late.
pytestmark = pytest.mark.filterwarnings("ignore::asyncexec.framework.kernel_warning.KernelWarning")
CONFIG = ax.SessionConfig(device_count={"CPU": 2}, num_worker_threads=2, slow_inline_ms=None)
ONCE_MORE = ax.Retry(attempts=2, wait_initial_s=0, on=ConnectionError)
FAILS_AT = 97  # and at each multiple


class Items:
    """Numbered items: y is the double of x, by way of an async kernel that fails for some; total is the sum so far.

    ``far`` goes by the other device and a worker thread, and is tried again for those that fail.
    """

    def __init__(self) -> None:
        self.num_begun = 0
        self.num_worked = 0
        self._lock = threading.Lock()
        self.arrays = LiveArrays()
        self._has_failed: set[float] = set()
        with ax.Graph() as self.graph:
            self.x = ax.placeholder(ax.float64, [1], name="x")
            awaited = self._op("awaited", self._double)(self.x + 0.0)
            total = ax.stream_state(np.zeros(1))
            self.total = total.update(total.value + awaited)
            self.y = awaited * 1.0
            with ax.device("/cpu:1"):
                tried = self._op("tried", self._double_at_last, retries=ONCE_MORE)(self.x)
            worked = self._op("worked", self._work, expensive=True)(tried)
            self.far = worked + 0.0

    def _op(self, name: str, kernel: Callable[..., Any], **options: Any) -> Any:
        return ax.op(name=name, outputs=[ax.float64], shapes=[[1]], **options)(kernel)

    async def _double(self, x: Any) -> Any:
        self.num_begun += 1
        await asyncio.sleep(0)
        if x[0] % FAILS_AT == FAILS_AT - 1:
            raise ValueError("failed")
        return self.arrays.keep(x * 2)

    async def _double_at_last(self, x: Any) -> Any:
        number = float(x[0])
        await asyncio.sleep(0)
        if number % FAILS_AT == FAILS_AT - 1 and number not in self._has_failed:
            self._has_failed.add(number)
            raise ConnectionError("not yet")
        self._has_failed.discard(number)
        return self.arrays.keep(x * 2)

    def _work(self, x: Any) -> Any:
        with self._lock:  # on several threads
            self.num_worked += 1
        return self.arrays.keep(x + 0)

    def feeds(self, number: int) -> dict[Any, Any]:
        return {self.x: self.arrays.keep(np.full(1, float(number)))}

    def first(self, number: int) -> Iterator[dict[Any, Any]]:
        return map(self.feeds, range(number))


async def sampled(outputs: ax.StreamMap, every: int, memory: FlatMemory) -> AsyncIterator[tuple[int, Any]]:
    """What comes out, with its number; what is held is looked at now and then."""
    counter = count()
    async for out in outputs:
        n = next(counter)
        yield n, out
        del out
        if n % every == every - 1:
            memory.sample()


async def soak_one_stream(number: int, samples: int) -> None:
    """Ordered, with a state, and with failures in the places of the items."""
    items, memory, total = Items(), FlatMemory(), 0
    async with ax.Session(items.graph, CONFIG) as session:
        outputs = session.map([items.y, items.total], items.first(number), window=32, on_error="yield")
        async for n, out in sampled(outputs, number // samples, memory):
            if n % FAILS_AT == FAILS_AT - 1:
                assert out.message == f"item {n}: ValueError: failed"
            else:
                total += 2 * n
                assert (out[0][0], out[1][0]) == (2 * n, total)
            assert items.num_begun <= n + 34
            del out
        await settle()
        assert (n, items.num_begun, items.arrays.alive) == (number - 1, number, 0)
    memory.check()


async def soak_over_devices_and_threads(number: int, samples: int) -> None:
    """As they complete; those that fail are tried again."""
    items, memory, window = Items(), FlatMemory(), 32
    missing = set[int]()  # of the numbers that have been passed
    last = -1
    async with ax.Session(items.graph, CONFIG) as session:
        outputs = session.map(items.far, items.first(number), window=window, ordered=False)
        async for _, out in sampled(outputs, number // samples, memory):
            n = int(out[0]) // 2
            if n > last:
                missing.update(range(last + 1, n))
                last = n
            else:
                missing.remove(n)
            del out
        await settle()
        await let_threads_free(lambda: items.arrays.alive)
        assert (last, missing, items.num_worked, items.arrays.alive) == (number - 1, set(), number, 0)
    memory.check()
    assert items.arrays.most <= 8 * window


class ShortStreams:
    """Ways to end a stream, each in the middle of something; all give what they are to give before."""

    def __init__(self, session: ax.Session, items: Items) -> None:
        self._session = session
        self._items = items
        self.ways = (
            self.all_taken,
            self.left_early,
            self.closed_early,
            self.failing,
            self.source_raises,
            self.consumer_cancelled,
            self.sender_cancelled,
            self.timed_out,
        )

    def _map(self, feeds: Any, **options: Any) -> ax.StreamMap:
        return self._session.map(self._items.total, feeds, window=4, **options)

    async def all_taken(self) -> None:
        found = [float(out[0]) async for out in self._map(self._items.first(8))]
        assert found == [n * (n + 1) for n in range(8)]

    async def left_early(self) -> None:
        async for out in self._map(self._items.first(100)):
            assert out[0] == 0
            break

    async def closed_early(self) -> None:
        async with self._map(self._items.first(100), ordered=False) as outputs:
            await anext(outputs)
        with pytest.raises(ax.errors.CancelledError, match="ended"):
            await anext(outputs)

    async def failing(self) -> None:
        feeds = map(self._items.feeds, range(FAILS_AT - 3, 200))
        with pytest.raises(ax.errors.InvalidArgumentError, match="item 2: ValueError: failed"):
            async for _ in self._map(feeds):
                pass

    async def source_raises(self) -> None:
        async def feeds() -> AsyncIterator[Any]:
            yield self._items.feeds(1)
            await asyncio.sleep(0)
            raise OSError("gone")

        with pytest.raises(OSError, match="gone"):
            async for _ in self._map(feeds()):
                pass

    async def consumer_cancelled(self) -> None:
        async def consume() -> None:
            async with self._map(self._items.first(100)) as outputs:
                async for _ in outputs:
                    pass

        task = asyncio.ensure_future(consume())
        await settle(6)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def sender_cancelled(self) -> None:
        async with self._session.stream(self._items.total, window=2) as stream:
            await stream.send(self._items.feeds(1))
            await stream.send(self._items.feeds(2))
            sender = asyncio.ensure_future(stream.send(self._items.feeds(50)))
            await settle(3)
            sender.cancel()
            await asyncio.wait([sender])
            assert [(await anext(stream))[0], (await anext(stream))[0]] == [2, 6]
            await stream.send(self._items.feeds(3))
            assert (await anext(stream))[0] == 12
            await stream.close()

    async def timed_out(self) -> None:
        async with self._session.stream(self._items.total) as stream:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await anext(stream)


async def soak_short_streams(number: int, samples: int) -> None:
    items, memory = Items(), FlatMemory()
    tasks = asyncio.all_tasks()
    async with ax.Session(items.graph, CONFIG) as session:
        short = ShortStreams(session, items)
        for n in range(number):
            await short.ways[n % len(short.ways)]()
            if n % (number // samples) == number // samples - 1:
                await settle(10)
                assert asyncio.all_tasks() == tasks
                assert items.arrays.alive == 0
                assert session.statistics().running_steps == 0
                memory.sample()
    memory.check()


@pytest.mark.one_of("loop")
async def test_thousands_of_items() -> None:
    await soak_one_stream(2_000, 5)
    await soak_over_devices_and_threads(1_000, 5)


async def test_hundreds_of_streams() -> None:
    await soak_short_streams(320, 5)


@pytest.mark.deep
@pytest.mark.timeout(900)
async def test_a_million_items_of_one_stream() -> None:
    await soak_one_stream(1_000_000, 20)


@pytest.mark.deep
@pytest.mark.timeout(1200)
async def test_hundreds_of_thousands_of_items_over_devices_and_threads() -> None:
    await soak_over_devices_and_threads(300_000, 20)


@pytest.mark.deep
@pytest.mark.timeout(900)
async def test_tens_of_thousands_of_streams() -> None:
    await soak_short_streams(64_000, 20)
