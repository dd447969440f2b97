"""Values that a run gives before its result: ``ax.emit``, and the channel that takes them to the caller.

The channel of a run stands in a context variable, as its span does.  So tasks, worker threads and nested runs find it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Generator
from concurrent.futures import Future
from contextvars import ContextVar
from typing import Any, Final

from asyncexec.framework.errors import CancelledError, ResourceExhaustedError


class Emission:
    """A value that was emitted; awaiting it waits until the caller of the run has room for the value."""

    __slots__ = ("_channel", "_room", "is_awaited", "value")

    def __init__(self, channel: EventChannel | None, value: object) -> None:
        self._channel = channel
        self._room: asyncio.Future[None] | Future[None] | None = None
        self.is_awaited: bool = False
        self.value: Any = value

    def __await__(self) -> Generator[Any, None, None]:
        channel = self._channel
        if channel is None:
            return
        channel.note_awaited(self)
        self._room = room = channel.loop.create_future()
        try:
            yield from room
        except asyncio.CancelledError:
            channel.withdraw(self)
            raise

    def tell(self, waiter: Future[None]) -> None:
        """Let *waiter*, which another thread waits for, be done when there is room."""
        channel = self._channel
        if channel is None:
            waiter.set_result(None)
        else:
            channel.note_awaited(self)
            self._room = waiter

    def take(self) -> Any:
        """The value; who waits for room goes on."""
        self._channel = None
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        return self.value


_TAKEN: Final = Emission(None, None)


class EventChannel:
    """The events of one run, for one reader.

    At most *max_events* wait for the reader.  Behind them wait those whose emitters await room, one for each emitter;
    and of those that nobody awaits, as many as *max_events* again.

    Attributes:
        loop: the event loop of the run.
    """

    __slots__ = ("_events", "_is_closed", "_max_events", "_num_unawaited", "_reader", "_waiting", "loop")

    def __init__(self, max_events: int) -> None:
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self._max_events = max_events
        self._events: deque[object] = deque()
        self._waiting: deque[Emission] = deque()
        self._num_unawaited = 0
        self._is_closed = False
        self._reader: asyncio.Future[None] | None = None

    def put(self, value: object) -> Emission:
        """Take *value*, in the loop.

        Raises:
            ResourceExhaustedError: too many values wait, and nobody awaits room for them.
        """
        if self._is_closed:
            return _TAKEN
        if len(self._events) < self._max_events and not self._waiting:
            self._events.append(value)
            self.wake()
            return _TAKEN
        if self._num_unawaited >= self._max_events:
            raise ResourceExhaustedError(
                f"{len(self._events) + len(self._waiting)} emitted values wait for the caller of run_events",
                hint="wait for room: await ax.emit(value)",
            )
        emission = Emission(self, value)
        self._num_unawaited += 1
        self._waiting.append(emission)
        return emission

    def put_from_thread(self, value: object) -> None:
        """Take *value* from another thread, which waits for room.

        Raises:
            CancelledError: the loop of the run is closed.
        """
        waiter: Future[None] = Future()

        def begin() -> None:
            try:
                self.put(value).tell(waiter)
            except ResourceExhaustedError as error:
                waiter.set_exception(error)

        try:
            self.loop.call_soon_threadsafe(begin)
        except RuntimeError:
            raise CancelledError("nobody listens to the events of this run any more") from None
        waiter.result()

    def note_awaited(self, emission: Emission) -> None:
        """Somebody waits for room for *emission*."""
        if not emission.is_awaited:
            emission.is_awaited = True
            self._num_unawaited -= 1

    def withdraw(self, emission: Emission) -> None:
        """Forget *emission*: who waited for room was cancelled."""
        if emission in self._waiting:
            self._waiting.remove(emission)

    @property
    def has_event(self) -> bool:
        """Whether ``take`` has one to give."""
        return bool(self._events)

    def take(self) -> Any:
        """The next event, which is there; the first of those that wait for room gets it."""
        event = self._events.popleft()
        if self._waiting:
            self._admit(self._waiting.popleft())
        return event

    def _admit(self, emission: Emission) -> None:
        if not emission.is_awaited:
            self._num_unawaited -= 1
        self._events.append(emission.take())

    async def wait(self) -> None:
        """Wait until there is an event, or ``wake`` is called."""
        self._reader = self.loop.create_future()
        try:
            await self._reader
        finally:
            self._reader = None

    def wake(self) -> None:
        """Let the reader see what there is."""
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def close(self) -> None:
        """Nobody reads any more: who waits for room goes on, and what is emitted from now on is dropped."""
        self._is_closed = True
        self._events.clear()
        while self._waiting:
            self._waiting.popleft().take()


channel_here: Final[ContextVar[EventChannel | None]] = ContextVar("asyncexec_events", default=None)


def emit_value(value: object) -> Emission:
    """Give *value* to the ``run_events`` that the running code is a part of; nothing happens where there is none.

    Raises:
        ResourceExhaustedError: too many values wait for the caller, and nobody awaits room for them.
    """
    channel = channel_here.get()
    if channel is None:
        return _TAKEN
    try:
        loop: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
    except RuntimeError:
        loop = None
    if loop is channel.loop:
        return channel.put(value)
    channel.put_from_thread(value)
    return _TAKEN
