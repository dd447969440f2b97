"""Both ends of a connection in one loop, and a receiver that keeps what comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from asyncexec.distributed.transport.connection import Connection
from asyncexec.distributed.transport.dialing import Listener, dial, listen
from asyncexec.distributed.transport.identity import Identity
from asyncexec.distributed.transport.options import TransportOptions
from asyncexec.distributed.transport.security import Security
from asyncexec.framework.errors import OpError

WORKER = Identity("/job:worker/replica:0/task:0", 0xA1, "worker", "p")
CHIEF = Identity("/job:chief/replica:0/task:0", 0xB2, "chief", "p")
OPEN = Security()
OPTIONS = TransportOptions()


class Recorder:
    """Keeps what comes, and wakes who waits for it."""

    def __init__(self, connection: Connection | None = None) -> None:
        self.connection = connection
        self.messages: list[tuple[int, bytes]] = []
        self.tensors: list[tuple[int, str, Any, bool]] = []
        self.bad: list[tuple[int, str, OpError]] = []
        self.lost: list[OpError] = []
        self._news = asyncio.Event()

    def on_message(self, kind: int, body: bytes) -> None:
        self.messages.append((kind, body))
        self._news.set()

    def on_tensor(self, step_id: int, key: str, value: Any, is_dead: bool) -> None:
        self.tensors.append((step_id, key, value, is_dead))
        self._news.set()

    def on_bad_tensor(self, step_id: int, key: str, error: OpError) -> None:
        self.bad.append((step_id, key, error))
        self._news.set()

    def on_lost(self, error: OpError) -> None:
        self.lost.append(error)
        self._news.set()

    async def until(self, condition: Callable[[Recorder], object]) -> None:
        """Wait until *condition* holds of what has come."""
        async with asyncio.timeout(30):
            while not condition(self):
                self._news.clear()
                await self._news.wait()


@dataclass
class Ends:
    """A connection from both ends."""

    listener: Listener
    near: Connection  # that dialed
    far: Connection
    at_near: Recorder
    at_far: Recorder


@asynccontextmanager
async def listening(
    address: str,
    security: Security = OPEN,
    options: TransportOptions = OPTIONS,
    refused: asyncio.Queue[OpError] | None = None,
) -> AsyncIterator[tuple[Listener, asyncio.Queue[Recorder]]]:
    """A listener, and the receivers of those who have come."""
    receivers: asyncio.Queue[Recorder] = asyncio.Queue()

    def make_receiver(connection: Connection) -> Recorder:
        receivers.put_nowait(receiver := Recorder(connection))
        return receiver

    on_refused = (asyncio.Queue[OpError]() if refused is None else refused).put_nowait
    listener = await listen(address, WORKER, security, make_receiver, options=options, on_refused=on_refused)
    try:
        yield listener, receivers
    finally:
        await listener.close()


@asynccontextmanager
async def connected(
    address: str,
    security: Security = OPEN,
    options: TransportOptions = OPTIONS,
    far_options: TransportOptions | None = None,
) -> AsyncIterator[Ends]:
    """A connection from CHIEF to WORKER; what is left of it at the end is closed."""
    async with listening(address, security, far_options or options) as (listener, receivers):
        made: list[Recorder] = []

        def make_receiver(connection: Connection) -> Recorder:
            made.append(Recorder(connection))
            return made[-1]

        near = await dial(listener.address, CHIEF, security, make_receiver, options=options)
        at_far = await asyncio.wait_for(receivers.get(), 30)
        far = at_far.connection
        assert far is not None
        try:
            yield Ends(listener, near, far, made[0], at_far)
        finally:
            near.abort()
            await near.close()


async def until(condition: Callable[[], object]) -> None:
    """Give others turns until *condition* holds; for what nothing else tells of."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0)


def address_of(kind: str, folder: Path) -> str:
    """An address to listen at, of that kind."""
    if kind == "unix":
        return f"unix:{folder}/s"
    if kind == "tcp6":
        return "tcp:[::1]:0"
    return "tcp:127.0.0.1:0"


both_kinds = pytest.mark.parametrize("kind", ["unix", "tcp"])
