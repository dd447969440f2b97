"""LiveFeed: a snapshot each second for those who look, made once for all of them, and not at all when nobody looks.

A reader that is slower than the snapshots gets the latest when it is ready again.  So nothing piles up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from asyncexec.framework.errors import ResourceExhaustedError, UnavailableError
from asyncexec.process.loop_lag import LoopLag

MOST_READERS: Final = 32
PERIOD_S: Final = 1.0
SLOWEST_S: Final = 30.0  # for a reader to take a snapshot
LONGEST_S: Final = 60.0  # of a connection; the page makes a new one: so a server that waits for connections can end

_LOGGER: Final = logging.getLogger("asyncexec.service")


class LiveFeed:
    """Snapshots that *take* makes of what *lag* has measured meanwhile.

    Attributes:
        num_readers: those who look now.
    """

    def __init__(
        self, take: Callable[[LoopLag], Awaitable[bytes]], period_s: float = PERIOD_S, lag: LoopLag | None = None
    ) -> None:
        self._take = take
        self._lag = lag or LoopLag()
        self._period_s = period_s
        self._latest = b""
        self._number = 0
        self._changed: asyncio.Event = asyncio.Event()
        self._sampling: asyncio.Task[None] | None = None
        self._has_ended = False
        self.num_readers: int = 0

    def check_room(self) -> None:
        """Whether one more may look.

        Raises:
            ResourceExhaustedError: too many do; UnavailableError: the service ends.
        """
        if self._has_ended:
            raise UnavailableError("the service ends")
        if self.num_readers >= MOST_READERS:
            raise ResourceExhaustedError(f"{MOST_READERS} readers look at the service already")

    @contextmanager
    def reading(self) -> Iterator[Callable[[], Awaitable[bytes | None]]]:
        """Yields what waits for the next snapshot, and returns None when there are no more; errors of check_room()."""
        self.check_room()
        self.num_readers += 1
        if self._sampling is None:
            self._sampling = asyncio.create_task(self._sample())
        seen = self._number

        async def wait_next() -> bytes | None:
            nonlocal seen
            while self._number == seen and not self._has_ended:
                await self._changed.wait()
            seen = self._number
            return None if self._has_ended else self._latest

        try:
            yield wait_next
        finally:
            self.num_readers -= 1
            if not self.num_readers and self._sampling is not None:
                self._sampling.cancel()
                self._sampling = None

    async def _sample(self) -> None:
        while True:
            try:
                self._latest = await self._take(self._lag)
            except Exception:  # that of one second: the next may succeed
                _LOGGER.exception("the live page has no snapshot")
            else:
                self._number += 1
                self._tell()
            await self._lag.measure(self._period_s)

    def _tell(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def end(self) -> None:
        """Send nothing more; those who look are told that it has ended."""
        self._has_ended = True
        self._tell()


class EventStream(Response):
    """The snapshots of *feed* as server-sent events."""

    def __init__(self, feed: LiveFeed, headers: dict[str, str]) -> None:
        super().__init__(headers=headers, media_type="text/event-stream")
        del self.headers["content-length"]
        self._feed = feed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._feed.reading() as wait_next:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            gone = asyncio.create_task(_until_disconnected(receive))
            telling = asyncio.create_task(_tell(wait_next, send))
            try:
                await asyncio.wait((gone, telling), return_when=asyncio.FIRST_COMPLETED, timeout=LONGEST_S)
            finally:
                gone.cancel()
                telling.cancel()
                outcomes = await asyncio.gather(gone, telling, return_exceptions=True)
        if any(isinstance(outcome, OSError) for outcome in outcomes):  # a TimeoutError is one
            _LOGGER.info("a reader of the live page was too slow, or has gone")
            return  # and the server closes the connection
        with suppress(TimeoutError):
            async with asyncio.timeout(SLOWEST_S):
                await send({"type": "http.response.body", "body": b""})


async def _tell(wait_next: Callable[[], Awaitable[bytes | None]], send: Callable[[Message], Awaitable[object]]) -> None:
    while (snapshot := await wait_next()) is not None:
        async with asyncio.timeout(SLOWEST_S):
            await send({"type": "http.response.body", "body": b"data: %b\n\n" % snapshot, "more_body": True})


async def _until_disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
