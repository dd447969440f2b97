"""The other end of the rows of the transport: a process that sends back what comes, by the transport and by hand.

``python -m benchmarks.transport_peer FOLDER`` prints four addresses: of the transport and of plain sockets, over
a unix socket in the folder and over TCP.  It ends when its input does.
"""

from __future__ import annotations

import asyncio
import struct
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, Final

import numpy as np

import asyncexec as ax
from asyncexec.distributed.transport.connection import Connection
from asyncexec.distributed.transport.dialing import listen
from asyncexec.distributed.transport.identity import Identity
from asyncexec.distributed.transport.security import Security
from asyncexec.framework.errors import OpError

PEER: Final = Identity("/job:peer/replica:0/task:0", 1)
OPEN: Final = Security()
SMALL_BYTES: Final = 64 * 1024
_LENGTH: Final = struct.Struct("<Q")


class Echo:
    """Sends back what comes."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def on_message(self, kind: int, body: bytes) -> None:
        self._connection.send(kind, body)

    def on_tensor(self, step_id: int, key: str, value: Any, is_dead: bool) -> None:
        self._connection.send_tensor(step_id, key, value, is_dead)

    def on_bad_tensor(self, step_id: int, key: str, error: OpError) -> None:
        raise error

    def on_lost(self, error: OpError) -> None:
        pass


class PlainSocket(asyncio.BufferedProtocol):
    """What a careful author writes: a length, then the bytes, which go straight into memory of their own."""

    def __init__(self, on_array: Callable[[PlainSocket, Any], None]) -> None:
        self._on_array = on_array
        self._length = memoryview(bytearray(_LENGTH.size))
        self._array: Any = None
        self._left = self._length
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def send(self, array: Any) -> None:
        length = _LENGTH.pack(array.nbytes)
        if array.nbytes < SMALL_BYTES:
            self._transport.write(length + array.tobytes())
        else:
            self._transport.write(length)
            self._transport.write(array.data)

    def close(self) -> None:
        self._transport.close()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._left

    def buffer_updated(self, nbytes: int) -> None:
        self._left = self._left[nbytes:]
        if self._left:
            return
        if self._array is None:
            self._array = np.empty(_LENGTH.unpack(self._length)[0], np.uint8)
            self._left = self._array.data
        else:
            array, self._array, self._left = self._array, None, self._length
            self._on_array(self, array)


async def main(folder: str) -> None:
    """Serve until the input ends."""
    loop = asyncio.get_running_loop()

    def make() -> PlainSocket:
        return PlainSocket(PlainSocket.send)

    async with AsyncExitStack() as stack:
        addresses = []
        for address in (f"unix:{folder}/ours", "tcp:127.0.0.1:0"):
            listener = await listen(address, PEER, OPEN, Echo)
            stack.push_async_callback(listener.close)
            addresses.append(listener.address)
        unix = await stack.enter_async_context(await loop.create_unix_server(make, f"{folder}/plain"))
        tcp = await stack.enter_async_context(await loop.create_server(make, "127.0.0.1", 0))
        print(*addresses, f"{folder}/plain", tcp.sockets[0].getsockname()[1], flush=True)
        await asyncio.to_thread(sys.stdin.read)
        unix.close()
        tcp.close()


if __name__ == "__main__":
    ax.run(main(sys.argv[1]))
