"""A proxy between processes of a cluster that delays, cuts, swallows or stops reading, and never reorders."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path

_NAME = re.compile(rb'"name": "([^"]+)"')
_PIECE = 1 << 16


class Wire:
    """One connection by way of a proxy.

    Attributes:
        caller: the name of the process that has dialed, once it has told.
        swallows: whether what comes from either end is thrown away: both believe that the other is there.
        flows: cleared to stop reading from either end.
        delay_s: how long each piece waits before it goes on.
    """

    def __init__(self, near: asyncio.StreamWriter, far: asyncio.StreamWriter) -> None:
        self.caller = ""
        self.swallows = False
        self.flows = asyncio.Event()
        self.flows.set()
        self.delay_s = 0.0
        self.num_bytes = 0
        self.on_piece: Callable[[Wire], None] = lambda wire: None
        self._ends = (near, far)

    def cut(self) -> None:
        """Close both ends at once."""
        for end in self._ends:
            end.transport.abort()

    @property
    def is_open(self) -> bool:
        return not any(end.transport.is_closing() for end in self._ends)

    async def pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while piece := await reader.read(_PIECE):
                if not self.caller and (found := _NAME.search(piece)):
                    self.caller = found[1].decode()
                await self.flows.wait()
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                self.num_bytes += len(piece)
                self.on_piece(self)
                if not self.swallows:
                    writer.write(piece)
                    await writer.drain()
        if not self.swallows:
            writer.transport.abort() if writer.transport.is_closing() else writer.close()


class Proxy:
    """Listens at a socket, and passes on what comes to a process that listens at another."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.wires: list[Wire] = []
        self.refuses = False

    def of(self, caller: str) -> Wire:
        """The connection that *caller* has made last."""
        return next(wire for wire in reversed(self.wires) if wire.caller.startswith(caller) and wire.is_open)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refuses:
            writer.transport.abort()
            return
        try:
            there, out = await asyncio.open_unix_connection(self.target)
        except OSError:
            writer.transport.abort()
            return
        wire = Wire(writer, out)
        self.wires.append(wire)
        try:
            await asyncio.gather(wire.pump(reader, out), wire.pump(there, writer))
        finally:
            wire.cut()


@contextlib.asynccontextmanager
async def proxy(target: str, at: Path) -> AsyncIterator[Proxy]:
    """A proxy at *at* for what listens at *target*, both the paths of unix sockets."""
    found = Proxy(target)
    tasks: set[asyncio.Task[None]] = set()

    def on_connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(found.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_unix_server(on_connected, str(at))
    try:
        yield found
    finally:
        server.close()
        for wire in found.wires:
            wire.flows.set()
            wire.cut()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()
