"""The HTTP server: uvicorn, with bounds on what comes before a request's body, and an end that loses no request."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from itertools import chain
from pathlib import Path
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from asyncexec.framework.errors import InvalidArgumentError

_MOST_HEAD_BYTES: Final = 2**16  # of a request: its line and its headers
_HEAD_TIMEOUT_S: Final = 30.0
_LINGER_S: Final = 0.5  # how long callers that keep their connections have to notice that they are to be closed
_LOOK_S: Final = 0.02


class _Forgotten(list[tuple[bytes, bytes]]):
    """Where the headers go that follow a chunked body: nobody is to be told them as if they had come before it."""

    def append(self, header: tuple[bytes, bytes]) -> None:
        """Forget *header*."""


_FORGOTTEN: Final = _Forgotten()


class BoundedProtocol(HttpToolsProtocol):
    """One connection.  The head of a request is bounded in size and time, and what follows a body is no header."""

    _head_bytes: int = 0  # of a head that is not complete
    _read_bytes: int = 0  # by the last read
    _is_in_head: bool = True
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._read_bytes = len(data)
        super().data_received(data)
        if self._is_in_head:
            self._head_bytes += len(data)
            if self._head_bytes > _MOST_HEAD_BYTES:
                self.transport.close()
            elif self._timer is None:
                self._wait_for_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_head, self._head_bytes = True, 0

    def on_headers_complete(self) -> None:
        self._stop_waiting()
        self._is_in_head, self._head_bytes = False, 0
        if self._read_bytes > _MOST_HEAD_BYTES and sum(map(len, chain(*self.headers))) > _MOST_HEAD_BYTES:
            raise InvalidArgumentError("the headers of a request are too long")
        super().on_headers_complete()
        if not self.parser.should_upgrade():  # else they are looked at again
            self.headers = _FORGOTTEN

    def _wait_for_head(self) -> None:
        self._timer = self.loop.call_later(_HEAD_TIMEOUT_S, self._head_is_late)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _head_is_late(self) -> None:
        self._timer = None
        if not self.transport.is_closing():
            self.transport.close()


class HttpServer(uvicorn.Server):
    """A server of *app* that leaves signals to the process.

    Args:
        certificate, key: files in PEM; None for clear text.
        drain_s: how long requests have to end.
        max_bytes: of a message of a WebSocket.

    Raises:
        InvalidArgumentError: the certificate or the key cannot be used.
    """

    def __init__(self, app: Any, certificate: Path | None, key: Path | None, drain_s: float, max_bytes: int) -> None:
        config = uvicorn.Config(
            app,
            http=BoundedProtocol,
            ws="websockets-sansio",
            ws_max_size=max_bytes,
            ws_per_message_deflate=False,
            ws_ping_timeout=None,  # one who reads slowly answers no ping; one who has gone is noticed by the next
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=max(1, round(drain_s)),
            ssl_certfile=None if certificate is None else str(certificate),
            ssl_keyfile=None if key is None else str(key),
            ssl_version=ssl.PROTOCOL_TLS_SERVER,
        )
        super().__init__(config)
        try:
            config.load()  # now: a server that cannot do this later is not listened to, and nobody is told
        except OSError as error:  # ssl.SSLError is one
            told = f"the certificate {certificate} cannot be used with the key {key}: {error.strerror or error}"
            raise InvalidArgumentError(told) from None

    def capture_signals(self) -> contextlib.AbstractContextManager[None]:  # type: ignore[override]
        return contextlib.nullcontext()

    async def end(self) -> None:
        """Take no more connections, and tell those who keep theirs to close them, and give them time to notice."""
        for server in getattr(self, "servers", ()):
            server.close()
        # Both: uvicorn makes the headers of all answers anew in each second.
        for headers in (self.server_state.default_headers, self.config.encoded_headers):
            headers.append((b"connection", b"close"))
        for _ in range(round(_LINGER_S / _LOOK_S)):
            if not self.server_state.connections:
                break
            await asyncio.sleep(_LOOK_S)
