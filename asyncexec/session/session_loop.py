"""SessionLoop: the event loop that a session is used in: one at a time, and any number one after the other.

What waits is woken by who belongs to the same loop, so what is under way in one loop keeps the others out.  But a loop
that was closed comes back to nothing: what was under way in it is dropped, and the next loop has the session to itself.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any, Protocol

from asyncexec.framework.errors import FailedPreconditionError
from asyncexec.framework.limiter import WaitQueue


def running_loop() -> asyncio.AbstractEventLoop:
    """The running event loop; FailedPreconditionError where there is none, as under trio."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise FailedPreconditionError(
            "a session runs in an asyncio event loop, and there is none here",
            hint="ax.run(main); from plain code, or from a thread that trio.to_thread starts: ax.BlockingSession",
        ) from None


class LoopPart(Protocol):
    """What of a session belongs to the loop while it is in use."""

    @property
    def is_in_use(self) -> bool:
        """Whether something is under way, which may come back to it."""
        ...

    def drop_loop(self) -> None:
        """Let go of what is under way: its loop is closed."""
        ...


class BuildLock(WaitQueue):
    """Lets one at a time build; an ``async with``."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(1, knows_waiters=False)

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(self, *exc_info: object) -> None:
        self.release()


class SessionLoop:
    """Knows the loop.

    Args:
        parts: what of the session belongs to it.

    Attributes:
        current: the loop that was used last; thread_id: the thread that it was entered in.
        build_lock: held by who builds executors, or changes the graph; to be asked for anew each time.
        building: the executors that are being built, or wait for the lock, by key; set when that is over.
    """

    __slots__ = ("_parts", "build_lock", "building", "current", "thread_id")

    def __init__(self, parts: Sequence[LoopPart]) -> None:
        self._parts = parts
        self.current: asyncio.AbstractEventLoop | None = None
        self.thread_id: int = 0
        self.build_lock: BuildLock = BuildLock()
        self.building: dict[Any, asyncio.Event] = {}

    @property
    def is_closed(self) -> bool:
        """Whether the loop that was used last is closed."""
        return self.current is not None and self.current.is_closed()

    def enter(self) -> None:
        """Let the running loop be the session's.

        Raises:
            FailedPreconditionError: something is under way in another one, or none runs.
        """
        loop = running_loop()
        if loop is not self.current:
            self._leave()
            self.current = loop
        self.thread_id = threading.get_ident()

    def _leave(self) -> None:
        if self.is_closed:
            self._drop()
        elif not self.build_lock.free or any(part.is_in_use for part in self._parts):
            raise FailedPreconditionError(
                "this session is being used in another event loop",
                hint="make a session for each loop; or asyncio.run_coroutine_threadsafe lets that loop make the call",
            )

    def _drop(self) -> None:
        self.build_lock = BuildLock()  # who held the other one may still release it
        self.building = {}
        for part in self._parts:
            part.drop_loop()
