"""What the protocols of connections have in common: one whose client takes nothing is reset."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

_STUCK_S: Final = 60.0  # how long a client may take nothing of what is sent


class WatchedReader(asyncio.Protocol):
    """Resets the connection of a client that takes nothing of what is sent to it.

    Attributes:
        loop, transport: those of the connection.
    """

    loop: asyncio.AbstractEventLoop
    transport: Any
    _reader_timer: asyncio.TimerHandle | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_watching_reader()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._look_at_reader(None)

    def resume_writing(self) -> None:
        self._stop_watching_reader()
        super().resume_writing()

    def _look_at_reader(self, num_bytes: int | None) -> None:
        """Reset the connection if its client has taken nothing since *num_bytes* were to be sent."""
        left = self.transport.get_write_buffer_size()
        if num_bytes is not None and left >= num_bytes:  # a WebSocket is sent pings meanwhile
            self.transport.abort()
        else:
            self._reader_timer = self.loop.call_later(_STUCK_S, self._look_at_reader, left)

    def _stop_watching_reader(self) -> None:
        if self._reader_timer is not None:
            self._reader_timer.cancel()
            self._reader_timer = None


class WebSocketProtocol(WatchedReader, WebSocketsSansIOProtocol):
    """One WebSocket."""

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body"):
            self.handshake_complete = True  # by a refusal: uvicorn would log an error
