"""The HTTP server: uvicorn, with bounds on what comes before a request's body, and an end that loses no request."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import select
import socket
import ssl
import struct
import sys
from collections.abc import Callable, Collection
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeAlias

import httptools
import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from asyncexec.framework.errors import InvalidArgumentError, UnavailableError
from asyncexec.service.http.connections import WatchedReader, WebSocketProtocol
from asyncexec.service.http.errors import error_response
from asyncexec.service.http.infer import Answer, Rest, Waiting, refusal
from asyncexec.service.observing.call_record import end_call

_MOST_HEAD_BYTES: Final = 2**16  # of a request: its line and its headers
_PIECE_BYTES: Final = 2**14
_MOST_WAITING: Final = 16
_HEAD_TIMEOUT_S: Final = 30.0
_LINGER_S: Final = 0.5  # how long callers that keep their connections have to notice that they are to be closed
_LOOK_S: Final = 0.02
_LEAST_DRAIN_S: Final = 0.25  # uvicorn looks ten times a second whether connections have ended
_SO_ATTACH_FILTER: Final = 26  # Linux; Python has no name for it
_DROP_ALL: Final = struct.pack("HBBI", 6, 0, 0, 0)  # a filter of packets: return 0, the bytes to keep


Begin: TypeAlias = Callable[[Any, bytes], Answer | Waiting | Rest | None]  # takes the scope and the body of a request


class _Forgotten(list[tuple[bytes, bytes]]):
    """Where the headers go that follow a chunked body: nobody is to be told them as if they had come before it."""

    def append(self, header: tuple[bytes, bytes]) -> None:
        """Forget *header*."""


_FORGOTTEN: Final = _Forgotten()
_CLOSE: Final = (b"connection", b"close")


class _Flow(FlowControl):
    """Reads no more while many requests wait for those before them on the same connection."""

    def __init__(self, transport: Any, waiting: Collection[object]) -> None:
        super().__init__(transport)
        self._waiting = waiting

    def resume_reading(self) -> None:
        if len(self._waiting) < _MOST_WAITING:  # otherwise nobody would notice that the client goes
            super().resume_reading()


class BoundedProtocol(WatchedReader, HttpToolsProtocol):
    """One connection, within bounds.

    - Bytes that take no request further, as those of a head without an end, are limited in number and in time.
    - What follows a body is no header.
    - A request that asks for another protocol than WebSocket is answered by this one.
    - What is no request does not take away the answers to those before it.
    """

    _head_bytes: int = 0  # of what came with a head that is not complete, but for the last
    _idle_bytes: int = 0  # since a request got further
    _is_in_head: bool = True
    _asks_for_upgrade: bool = False
    _data: bytes = b""  # what is read now
    _next_data: bytes = b""  # and after it
    _read_bytes: int = 0  # of it
    _has_got_further: bool = False  # by it
    _running: RequestResponseCycle | None = None
    _outcome: asyncio.Future[Any] | None = None  # that it waits for, where no task does
    _is_reading: bool = False
    _arriving: RequestResponseCycle | None = None  # what is read now belongs to it
    _timer: asyncio.TimerHandle | None = None
    _idle_timer: asyncio.TimerHandle | None = None
    _idle_since_s: float | None = None

    def __init__(self, *, begin: Begin | None = None, **options: Any) -> None:
        super().__init__(**options)
        self._begin = begin

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.flow = _Flow(transport, self.pipeline)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        super().connection_lost(exc)
        self.pipeline.clear()
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True  # uvicorn tells only the request that came last
            self._running.message_event.set()
            if self._outcome is not None:
                self._outcome.cancel()

    def data_received(self, data: bytes) -> None:
        if len(data) <= _MOST_HEAD_BYTES:
            self._take(data)
            return
        for begin in range(0, len(data), _PIECE_BYTES):  # to know which part of it got a request further
            if not self.transport.is_closing() and self.transport.get_protocol() is self:
                self._take(data[begin : begin + _PIECE_BYTES])

    def _take(self, data: bytes) -> None:
        self._next_data, self._read_bytes, self._has_got_further = data, len(data), False
        self._is_reading = True
        while self._next_data:
            self._data, self._next_data = self._next_data, b""
            super().data_received(self._data)
        self._data, self._is_reading = b"", False
        if self._arriving is not None:
            self._begin_arriving()
        self._idle_bytes = 0 if self._has_got_further else self._idle_bytes + len(data)
        if self._idle_bytes > _MOST_HEAD_BYTES:
            self.transport.close()
        elif self._is_in_head:
            self._head_bytes += len(data)
            if self._timer is None:
                self._wait_for_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_head, self._head_bytes, self._has_got_further = True, 0, True

    def on_headers_complete(self) -> None:
        self._stop_waiting()
        num_bytes = self._head_bytes + self._read_bytes
        self._is_in_head, self._head_bytes, self._has_got_further = False, 0, True
        if num_bytes > _MOST_HEAD_BYTES and sum(map(len, chain(*self.headers))) > _MOST_HEAD_BYTES:
            raise InvalidArgumentError("the headers of a request are too long")
        is_upgrade = self.parser.should_upgrade()
        self._asks_for_upgrade = is_upgrade and not self._should_upgrade()
        if self._asks_for_upgrade:
            return  # and it is read again
        super().on_headers_complete()
        if not is_upgrade:  # else they are looked at again
            self.headers = _FORGOTTEN

    def on_body(self, body: bytes) -> None:
        self._has_got_further = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        if not self._asks_for_upgrade:
            super().on_message_complete()

    def _unsupported_upgrade_warning(self) -> None:
        """Have the request read again without the header, for the parser ends at the end of its head."""
        stopped = sys.exc_info()[1]
        method = self.parser.get_method()
        if method == b"CONNECT" or stopped is None:
            self.send_400_response("Invalid HTTP request received.")
            return
        (offset,) = stopped.args
        lines = [b"%b %b HTTP/%b" % (method, self.url, self.parser.get_http_version().encode())]
        lines += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        rest = self._data[offset:]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
        self._next_data = b"\r\n".join((*lines, b"", rest))

    def send_400_response(self, msg: str) -> None:
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.more_body or cycle.response_complete:
            super().send_400_response(msg)
        else:  # the answer to the last request ends the connection
            cycle.keep_alive = False
            self.flow.pause_reading()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Begin to answer; a request that is being read begins when what has come is read: then it may be complete."""
        self._running = cycle
        if self._is_reading and not self._arriving:
            self._arriving = cycle
        else:
            super()._start_asgi_task(cycle, partial(_answer, app, cycle))

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
            return
        self._idle_since_s = self.loop.time()
        if self._idle_timer is None:
            self._idle_timer = self.loop.call_later(self.timeout_keep_alive, self._look_at_idleness)

    def _look_at_idleness(self) -> None:
        """Close the connection if nothing has come for long: one timer for many requests, as each takes time."""
        self._idle_timer = None
        if self._idle_since_s is None:  # the next answer begins anew
            return
        left_s = self._idle_since_s + self.timeout_keep_alive - self.loop.time()
        if left_s > 0:
            self._idle_timer = self.loop.call_later(left_s, self._look_at_idleness)
        else:
            self.timeout_keep_alive_handler()

    def _unset_keepalive_if_required(self) -> None:
        self._idle_since_s = None

    def _begin_arriving(self) -> None:
        cycle, self._arriving = self._arriving, None
        assert cycle is not None
        found = None
        if self._begin is not None and not (
            cycle.more_body or cycle.waiting_for_100_continue or self.flow.write_paused or self.transport.is_closing()
        ):
            found = self._begin(cycle.scope, bytes(cycle.body))
        if found is None:
            super()._start_asgi_task(cycle, partial(_answer, self.app, cycle))
        elif isinstance(found, Waiting):
            self._outcome = found.outcome
            self.tasks.add(found.outcome)  # type: ignore[arg-type]  # a server that ends waits for it, or cancels it
            found.outcome.add_done_callback(partial(self._has_waited, cycle, found))
        else:
            self._answer_with(cycle, found)

    def _has_waited(self, cycle: RequestResponseCycle, waiting: Waiting, outcome: asyncio.Future[Any]) -> None:
        self._outcome = None
        self.tasks.discard(outcome)
        try:
            found = waiting.answer()
        except asyncio.CancelledError:
            found = refusal(_ended())
            end_call()  # which was noted as failed, in the context of all calls of this connection
        self._answer_with(cycle, found)

    def _answer_with(self, cycle: RequestResponseCycle, found: Answer | Rest) -> None:
        """Send the answer, by a task where that has to wait."""
        if not isinstance(found, Answer):
            super()._start_asgi_task(cycle, partial(_answer, partial(self._finish, cycle, found), cycle))
        elif cycle.flow.write_paused and not cycle.disconnected:
            self._answer_with(cycle, partial(_given, found))
        elif not cycle.disconnected:
            self._send(cycle, found)

    async def _finish(self, cycle: RequestResponseCycle, rest: Rest, _scope: Any, receive: Any, _send: Any) -> None:
        """Send what *rest* answers."""
        answer = await rest(receive)
        if cycle.flow.write_paused and not cycle.disconnected:
            await cycle.flow.drain()
        if not cycle.disconnected:
            self._send(cycle, answer)

    def _send(self, cycle: RequestResponseCycle, answer: Answer) -> None:
        """Send *answer*, all of it at once: by messages of ASGI it would be sent in parts."""
        cycle.response_started = cycle.response_complete = True
        headers = cycle.default_headers + answer.headers
        if _CLOSE in headers:
            cycle.keep_alive = False
        elif not cycle.keep_alive:
            headers.append(_CLOSE)
        lines = [STATUS_LINE[answer.status]]
        for name, value in headers:
            lines += name, b": ", value, b"\r\n"
        lines += b"\r\n", answer.content
        self.transport.write(b"".join(lines))
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response()

    def shutdown(self) -> None:
        """Close the connection if nothing is under way; what has arrived and has not been read is under way."""
        if not _is_readable(self.transport.get_extra_info("socket")):
            super().shutdown()

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


async def _answer(app: Any, cycle: RequestResponseCycle, scope: Any, receive: Any, send: Any) -> None:
    """Have *app* answer; a request that is cancelled, as those that a server's end does not wait for, gets a 503."""
    try:
        await app(scope, receive, send)
    except asyncio.CancelledError:
        if not (cycle.response_started or cycle.flow.write_paused):
            await error_response(_ended())(scope, receive, send)


def _ended() -> UnavailableError:
    return UnavailableError("the service ended before the request did")


async def _given(answer: Answer, _: object) -> Answer:
    return answer


class HttpServer(uvicorn.Server):
    """A server of *app* that leaves signals to the process.

    Args:
        certificate, key: files in PEM; None for clear text.
        drain_s: how long requests have to end.
        max_bytes: of a message of a WebSocket.
        begin: begins to answer a request whose body has come, if it does not need *app* for that.

    Raises:
        InvalidArgumentError: the certificate or the key cannot be used.
    """

    def __init__(
        self,
        app: Any,
        certificate: Path | None,
        key: Path | None,
        drain_s: float,
        max_bytes: int,
        begin: Begin | None = None,
    ) -> None:
        self._listening: list[socket.socket] = []
        config = uvicorn.Config(
            app,
            http=partial(BoundedProtocol, begin=begin),  # type: ignore[arg-type]
            ws=WebSocketProtocol,
            ws_max_size=max_bytes,
            ws_per_message_deflate=False,
            ws_ping_timeout=None,  # one who reads slowly answers no ping; one who has gone is noticed by the next
            lifespan="off",
            log_config=None,
            log_level="error",  # nobody is to fill the log by sending what is no request
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=max(_LEAST_DRAIN_S, drain_s),  # type: ignore[arg-type]
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

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._listening = list(sockets or ())
        await super().startup(sockets)

    async def end(self) -> None:
        """Take no more connections, and tell those who keep theirs to close them, and give them time to notice."""
        # Both: uvicorn makes the headers of all answers anew in each second.
        for headers in (self.server_state.default_headers, self.config.encoded_headers):
            headers.append((b"connection", b"close"))
        await self._stop_listening()
        for _ in range(round(_LINGER_S / _LOOK_S)):
            if not self.server_state.connections:
                break
            await asyncio.sleep(_LOOK_S)

    async def _stop_listening(self) -> None:
        """Close the port when the connections that the system has made are accepted: it would reset them."""
        for listening in self._listening:
            _drop_packets(listening)
        loop = asyncio.get_running_loop()
        late = loop.time() + _LINGER_S
        while any(map(_is_readable, self._listening)) and loop.time() < late:  # noqa: ASYNC110
            await asyncio.sleep(0)
        for server in getattr(self, "servers", ()):
            server.close()


def _drop_packets(listening: socket.socket) -> None:
    """Let the system make no more connections to *listening*, where it can; who tries is refused when it is closed."""
    if sys.platform != "linux":
        return
    filters = ctypes.create_string_buffer(_DROP_ALL)
    with contextlib.suppress(OSError):  # some containers have no filters: then a connection may be reset
        listening.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HL", 1, ctypes.addressof(filters)))


def _is_readable(end: Any) -> bool:
    """Whether there is something to read, or to accept, from *end*, a socket; False where that cannot be told."""
    if end is None or end.fileno() < 0 or not hasattr(select, "poll"):
        return False
    poll = select.poll()
    poll.register(end.fileno(), select.POLLIN)
    return bool(poll.poll(0))
