"""The feed: made once a second for all who look, not at all for nobody, and never more than a reader takes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import MutableMapping
from typing import Any

import pytest

import asyncexec as ax
from asyncexec.framework.clock import NS_PER_S
from asyncexec.process.loop_lag import LoopLag
from asyncexec.service.live.feed import LONGEST_S, MOST_READERS, SLOWEST_S, EventStream, LiveFeed

pytestmark = pytest.mark.virtual_clock


class Counted(LiveFeed):
    """Snapshots are numbers, each of its second."""

    def __init__(self) -> None:
        self.taken = 0
        loop = asyncio.get_running_loop()
        super().__init__(self.take, 1.0, LoopLag(lambda: round(loop.time() * NS_PER_S)))

    async def take(self, lag: LoopLag) -> bytes:
        self.taken += 1
        return str(self.taken).encode()


class Client:
    """What a server does for one client of *feed*; it takes a chunk each *slow_s*."""

    def __init__(self, feed: LiveFeed, slow_s: float = 0.0) -> None:
        self.feed = feed
        self.slow_s = slow_s
        self.chunks: list[bytes] = []
        self.has_ended = False
        self.gone = asyncio.Event()
        self.got = asyncio.Event()
        self.serving = asyncio.create_task(EventStream(feed, {})({"type": "http"}, self.receive, self.send))

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            return
        await asyncio.sleep(self.slow_s)
        self.chunks.append(message["body"])
        self.has_ended = not message.get("more_body", False)
        self.got.set()

    async def leave(self) -> None:
        self.gone.set()
        await self.serving


async def test_one_snapshot_for_all_readers_and_none_for_nobody() -> None:
    feed = Counted()
    await asyncio.sleep(10)
    assert feed.taken == 0
    clients = [Client(feed) for _ in range(3)]
    await asyncio.sleep(2.5)
    assert [client.chunks for client in clients] == [[b"data: 1\n\n", b"data: 2\n\n", b"data: 3\n\n"]] * 3
    for client in clients:
        await client.leave()
    assert feed.num_readers == 0
    await asyncio.sleep(10)
    assert feed.taken == 3
    late = Client(feed)
    await asyncio.sleep(0.5)
    assert late.chunks == [b"data: 4\n\n"]  # and not what is old
    await late.leave()


async def test_a_slow_reader_gets_the_latest() -> None:
    feed = Counted()
    slow = Client(feed, slow_s=4.4)
    await asyncio.sleep(13.3)
    assert slow.chunks == [b"data: 1\n\n", b"data: 5\n\n", b"data: 9\n\n"]
    await slow.leave()


async def test_a_reader_that_takes_nothing_is_dropped() -> None:
    feed = Counted()
    stuck = Client(feed, slow_s=10 * SLOWEST_S)
    await asyncio.sleep(SLOWEST_S + 1)
    assert stuck.serving.done()
    assert feed.num_readers == 0
    await stuck.serving


async def test_a_connection_ends_and_the_page_makes_a_new_one() -> None:
    client = Client(Counted())
    await asyncio.sleep(LONGEST_S + 0.5)
    assert client.serving.done()
    assert client.has_ended


async def test_a_reader_that_stops_taking_at_the_end_of_its_connection_is_left() -> None:
    client = Client(Counted())
    await asyncio.sleep(LONGEST_S - 5)
    client.slow_s = 100 * SLOWEST_S
    await asyncio.sleep(6)
    assert client.feed.num_readers == 0
    await asyncio.sleep(SLOWEST_S)
    assert client.serving.done()
    assert not client.has_ended
    await client.serving


async def test_the_number_of_readers_is_bounded() -> None:
    feed = Counted()
    with contextlib.ExitStack() as stack:
        for _ in range(MOST_READERS):
            stack.enter_context(feed.reading())
        with pytest.raises(ax.errors.ResourceExhaustedError, match="32 readers"), feed.reading():
            pass
    with feed.reading():
        assert feed.num_readers == 1
    await asyncio.sleep(0)


async def test_the_end_of_the_service_ends_all_connections() -> None:
    feed = Counted()
    clients = [Client(feed), Client(feed, slow_s=2.0)]
    await asyncio.sleep(0.5)
    feed.end()
    await asyncio.sleep(5)
    assert all(client.serving.done() and client.has_ended for client in clients)
    with pytest.raises(ax.errors.UnavailableError, match="ends"):
        feed.check_room()


async def test_a_snapshot_that_fails_is_logged_and_the_next_is_sent(caplog: pytest.LogCaptureFixture) -> None:
    class FailsFirst(Counted):
        async def take(self, lag: LoopLag) -> bytes:
            if not self.taken:
                self.taken = 1
                raise RuntimeError("broken")
            return await super().take(lag)

    client = Client(FailsFirst())
    await client.got.wait()
    assert client.chunks == [b"data: 2\n\n"]
    assert "the live page has no snapshot" in caplog.text
    await client.leave()
