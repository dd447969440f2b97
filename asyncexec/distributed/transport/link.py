"""Link: the asyncio protocol of one socket; first the handshake, then a connection."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

from asyncexec.distributed.transport.connection import Connection
from asyncexec.distributed.transport.frames import BrokenFrameError
from asyncexec.distributed.transport.handshake import MAX_RECORD_BYTES, Handshake, refusal
from asyncexec.distributed.transport.identity import Identity
from asyncexec.distributed.transport.options import TransportOptions
from asyncexec.distributed.transport.receiver import Receiver
from asyncexec.framework.errors import OpError, UnauthenticatedError, UnavailableError


class Link(asyncio.BufferedProtocol):
    """What a socket brings goes to the handshake, and then to the connection.

    *on_ready* gets the connection, or *on_failed* the error; *on_end* is called when the socket is
    closed, whatever became of it.
    """

    def __init__(
        self,
        handshake: Handshake,
        identity: Identity,
        address: str,
        options: TransportOptions,
        make_receiver: Callable[[Connection], Receiver],
        on_ready: Callable[[Link, Connection], None],
        on_failed: Callable[[Link, OpError], None],
        on_end: Callable[[Link], None],
    ) -> None:
        self._handshake = handshake
        self._identity = identity
        self._address = address
        self._options = options
        self._make_receiver = make_receiver
        self._on_ready = on_ready
        self._on_failed = on_failed
        self._on_end = on_end
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._has_failed = False
        self._buffer = memoryview(bytearray(MAX_RECORD_BYTES))
        self._filled = 0
        self.connection: Connection | None = None

    def abort(self) -> None:
        """Close the socket at once; nobody is told."""
        self._stop_timer()
        self._has_failed = True
        if self.connection is not None:
            self.connection.abort()
        elif self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        if self._has_failed:
            transport.abort()
            return
        timeout_s = self._options.handshake_timeout_s
        late = UnavailableError(f"{self._address}: the handshake has not ended within {timeout_s:g} s")
        self._timer = asyncio.get_running_loop().call_later(timeout_s, self._fail, late)
        transport.write(self._handshake.begin())

    def get_buffer(self, sizehint: int) -> memoryview:
        if self.connection is not None:
            return self.connection.reader.free_memory()
        return self._buffer if self._has_failed else self._buffer[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        if self.connection is not None:
            try:
                self.connection.reader.advance(nbytes)
            except BrokenFrameError as error:
                self.connection.lose(error)
        elif not self._has_failed:
            self._filled += nbytes
            try:
                self._shake_hands()
            except OpError as error:
                answer = b"" if self._handshake.is_refused else refusal(error)
                self._fail(type(error)(f"{self._address}: {error.message}"), answer)

    def eof_received(self) -> bool:
        return False  # the transport closes itself

    def pause_writing(self) -> None:
        if self.connection is not None:
            self.connection.pause()

    def resume_writing(self) -> None:
        if self.connection is not None:
            self.connection.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.connection is not None:
            self.connection.on_ended(exc)
        elif isinstance(exc, ssl.SSLError):
            self._fail(UnauthenticatedError(f"{self._address}: TLS has failed: {exc}"))
        else:
            why = "the connection has ended" if exc is None else f"{exc}"
            self._fail(UnavailableError(f"{self._address}: {why} during the handshake"))
        self._on_end(self)

    def _shake_hands(self) -> None:
        assert self._transport is not None  # since connection_made
        start = 0
        while not self._handshake.is_done:
            size, answer = self._handshake.receive(self._buffer[start : self._filled])
            if answer:
                self._transport.write(answer)
            if not size:
                break
            start += size
        rest = bytes(self._buffer[start : self._filled])
        if self._handshake.is_done:
            self._begin(self._transport, rest)
        else:
            self._buffer[: len(rest)] = rest
            self._filled = len(rest)

    def _begin(self, transport: asyncio.Transport, rest: bytes) -> None:
        self._stop_timer()
        peer = self._handshake.peer
        assert peer is not None  # the handshake is done
        options = self._options
        objects = options.objects and bool(peer.program) and peer.program == self._identity.program
        connection = Connection(transport, peer, self._address, options, self._handshake.first_ping, objects=objects)
        receiver = self._make_receiver(connection)
        self.connection = connection
        self._buffer = memoryview(b"")
        self._on_ready(self, connection)
        try:
            connection.start(receiver, rest)
        except BrokenFrameError as error:
            connection.lose(error)

    def _fail(self, error: OpError, answer: bytes = b"") -> None:
        self._stop_timer()
        if self._has_failed:
            return
        self._has_failed = True
        if self._transport is not None:
            if answer:
                self._transport.write(answer)
            self._transport.close()
        self._on_failed(self, error)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
