"""Streams whose items, sources, consumers or kernels are not as they should be: what is said, and what it names."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import asyncexec as ax
from tests.running import settle, started

pytestmark = pytest.mark.one_of("loop")

INVALID = ax.errors.InvalidArgumentError
ENDED = (ax.errors.AbortedError, ax.errors.FailedPreconditionError)  # what who sends to a stream hears then
NUM_ITEMS = 8000
BAD = 7003


class Doubling:
    """y = 2 x."""

    def __init__(self) -> None:
        with ax.Graph() as self.graph:
            self.x = ax.placeholder(ax.float32, [], name="x")
            self.y = self.x * 2.0

    def items(self, bad: Any) -> Iterator[dict[ax.Tensor, Any]]:
        return ({self.x: bad if i == BAD else float(i)} for i in range(NUM_ITEMS))


async def from_iterable(session: ax.Session, doubling: Doubling, bad: Any, **options: Any) -> list[Any]:
    return [out async for out in session.map(doubling.y, doubling.items(bad), **options)]


async def from_async_iterable(session: ax.Session, doubling: Doubling, bad: Any, **options: Any) -> list[Any]:
    async def items() -> AsyncIterator[dict[ax.Tensor, Any]]:
        for item in doubling.items(bad):
            yield item

    return [out async for out in session.map(doubling.y, items(), **options)]


async def from_a_sender(session: ax.Session, doubling: Doubling, bad: Any, **options: Any) -> list[Any]:
    async with session.stream(doubling.y, **options) as stream:

        async def send() -> None:
            with contextlib.suppress(*ENDED):  # with the bad item
                for item in doubling.items(bad):
                    await stream.send(item)
                await stream.close()

        sending = asyncio.create_task(send())
        try:
            return [out async for out in stream]
        finally:
            await sending


WAYS = [from_iterable, from_async_iterable, from_a_sender]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize(
    ("bad", "error", "message"),
    [
        ([1.0], INVALID, rf"^item {BAD}: cannot feed a value of shape \[1\] for 'x:0', which has the shape \[\]"),
        ("text", TypeError, rf"^item {BAD}: cannot feed 'x:0': str 'text' cannot be made a tensor of float32"),
    ],
    ids=["shape", "dtype"],
)
async def test_item_7003_is_named(way: Any, bad: Any, error: type[Exception], message: str) -> None:
    doubling = Doubling()
    async with ax.Session(doubling.graph) as session:
        with pytest.raises(error, match=message) as caught:
            await way(session, doubling, bad)
        assert isinstance(caught.value, ax.errors.OpError)
        assert caught.value.node == "x"
        found = await way(session, doubling, bad, on_error="yield")
    assert [i for i, out in enumerate(found) if isinstance(out, ax.errors.OpError)] == [BAD]
    assert str(found[BAD]).startswith(f"item {BAD}: cannot feed")
    assert [float(out) for i, out in enumerate(found) if i != BAD] == [2.0 * i for i in range(NUM_ITEMS) if i != BAD]


class Broken:
    """A source that gives three items, and then raises; for ``async for`` or for ``for``."""

    def __init__(self, x: ax.Tensor, error: BaseException) -> None:
        self._x, self._error = x, error
        self._number = 0

    def __iter__(self) -> Iterator[Any]:
        return self

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    def __next__(self) -> Any:
        self._number += 1
        if self._number > 3:
            raise self._error
        return {self._x: float(self._number)}

    async def __anext__(self) -> Any:
        await asyncio.sleep(0)
        return self.__next__()


class OnlyAsync(Broken):
    __iter__ = None  # type: ignore[assignment]


class OnlyPlain(Broken):
    __aiter__ = None  # type: ignore[assignment]


async def take_all(outputs: ax.StreamMap, found: list[float]) -> None:
    async for out in outputs:
        found.append(out)


ERRORS = [
    OSError("the feed is gone"),
    ax.errors.UnavailableError("later"),
    KeyError("k"),
    ExceptionGroup("g", [OSError()]),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("kind", [OnlyPlain, OnlyAsync])
@pytest.mark.parametrize("on_error", ["raise", "yield"])
async def test_source_that_raises(kind: Callable[..., Any], error: Exception, on_error: Any) -> None:
    """What it raises comes out as it is, behind what it gave before."""
    doubling, found = Doubling(), list[float]()
    async with ax.Session(doubling.graph) as session:
        outputs = session.map(doubling.y, kind(doubling.x, error), on_error=on_error)
        with pytest.raises(type(error)) as caught:
            await take_all(outputs, found)
        assert caught.value is error
        assert session.statistics().running_steps == 0
    assert found == [2, 4, 6]


@pytest.mark.virtual_clock
@pytest.mark.parametrize("end", ["leave", "close the session"])
async def test_consumer_that_stops_reading(end: str) -> None:
    """Its senders wait, as long as it likes; they hear of the end, whichever way that comes."""
    doubling, sent = Doubling(), []

    async def send_on(stream: ax.Stream) -> None:
        while True:
            await stream.send({doubling.x: 1.0})
            sent.append(1)

    session = ax.Session(doubling.graph)
    async with session.stream(doubling.y, window=4) as stream:
        senders = [await started(send_on(stream)) for _ in range(3)]
        assert await anext(stream) == 2
        await asyncio.sleep(1000)
        assert len(sent) == 5
        if end == "close the session":
            await session.close()
    for sender in senders:
        with pytest.raises(ENDED):
            await sender
    await session.close()


async def leaves(session: ax.Session, x: ax.Tensor, y: ax.Tensor, begun: asyncio.Event) -> None:
    async with session.stream(y) as stream:
        await stream.send({x: 1.0})
        await begun.wait()


async def closes_the_session(session: ax.Session, x: ax.Tensor, y: ax.Tensor, begun: asyncio.Event) -> None:
    async with session.stream(y) as stream:
        await stream.send({x: 1.0})
        await begun.wait()
        await session.close()


async def drops_the_map(session: ax.Session, x: ax.Tensor, y: ax.Tensor, begun: asyncio.Event) -> None:
    taking = await started(anext(session.map(y, [{x: 1.0}])))
    await begun.wait()
    taking.cancel()
    await asyncio.wait([taking])
    await session.close()


@pytest.mark.virtual_clock
@pytest.mark.parametrize("end", [leaves, closes_the_session, drops_the_map], ids=lambda end: end.__name__)
async def test_kernel_that_swallows_its_cancellation(end: Any) -> None:
    begun, stop = asyncio.Event(), asyncio.Event()

    async def deaf(x: Any) -> Any:
        begun.set()
        while not stop.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await stop.wait()
        return x

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [])
        y = ax.op(name="Deaf", outputs=[ax.float32])(deaf)(x, name="deaf")
    session = ax.Session(graph, ax.SessionConfig(async_grace_s=5))
    with pytest.warns(ax.KernelWarning, match="'deaf' swallows its cancellation"):
        await end(session, x, y, begun)
    assert asyncio.get_running_loop().time() == pytest.approx(5, abs=0.1)
    stop.set()
    await settle()
    await session.close()


async def test_send_after_close_and_after_a_failure() -> None:
    doubling = Doubling()
    async with ax.Session(doubling.graph) as session:
        async with session.stream(doubling.y) as stream:
            await stream.send({doubling.x: 1.0})
            for _ in range(2):
                await stream.close()
                with pytest.raises(ax.errors.FailedPreconditionError, match="closed: nothing can be sent"):
                    await stream.send({doubling.x: 1.0})
            assert [out async for out in stream] == [2]
        async with session.stream(doubling.y) as stream:
            await stream.send({doubling.x: [1.0]})
            await settle()
            for _ in range(2):
                with pytest.raises(ax.errors.AbortedError, match="the stream has ended: item 0: cannot feed") as caught:
                    await stream.send({doubling.x: 1.0})
                assert isinstance(caught.value.__cause__, INVALID)
