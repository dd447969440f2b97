"""What is told of each call over HTTP: it is counted, and has a span and a line in the log where these are wanted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from typing import Any, Final, TypeAlias

from asyncexec.framework.clock import monotonic_ns as now_ns
from asyncexec.service.http.errors import CLIENT_CLOSED_REQUEST
from asyncexec.service.observing.access_log import log_call, trace_id_of
from asyncexec.service.observing.call_record import CallRecord, end_call
from asyncexec.service.observing.log_lines import ACCESS
from asyncexec.service.observing.server_spans import ServerSpan
from asyncexec.service.observing.telemetry import Telemetry

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

Answered: TypeAlias = tuple[int, int, int]  # the status of an answer, and the bytes of the bodies that came and went

_METHODS: Final = frozenset(("CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"))
_OK: Final = 200
_OTHER: Final = "_OTHER"
_FAULTS: Final = 500  # from this status on the service is at fault ...
_NO_FAULTS: Final = (501, 503, 504)  # ... but for what it cannot do, refuses to do, or has no time for


class HttpExchange:
    """A call over HTTP, which *telemetry* is told of: what goes to and fro, from its begin to its end().

    Args:
        begin_ns: when a call began that has been answered, and of which only a fault is told.
    """

    __slots__ = (
        "_begin_ns",
        "_is_watched",
        "_receive",
        "_scope",
        "_send",
        "_span",
        "_telemetry",
        "bytes_in",
        "bytes_out",
        "status",
    )

    def __init__(
        self, telemetry: Telemetry, scope: Scope, receive: Receive, send: Send, *, begin_ns: int | None = None
    ) -> None:
        self._telemetry = telemetry
        self._scope = scope
        self._receive = receive
        self._send = send
        self.status = self.bytes_in = self.bytes_out = 0
        telemetry.counts.http.under_way += 1
        self._is_watched = begin_ns is None and telemetry.begin_call()
        self._begin_ns = now_ns() if begin_ns is None else begin_ns
        spans = telemetry.spans if self._is_watched else None
        self._span = None if spans is None else spans.begin(_method(scope), _carrier(scope), _begun(scope))

    async def receive(self) -> Message:
        message = await self._receive()
        if "body" in message:
            self.bytes_in += len(message["body"])
        return message

    def send(self, message: Message) -> Awaitable[None]:
        if "status" in message:
            self.status = message["status"]
        elif "body" in message:
            self.bytes_out += len(message["body"])
        return self._send(message)

    def fail(self, error: BaseException) -> None:
        """It ends with *error*."""
        if not self.status:
            self.status = CLIENT_CLOSED_REQUEST if isinstance(error, asyncio.CancelledError) else _FAULTS

    def end(self) -> None:
        """It has ended: tell of it."""
        call, counts = end_call(), self._telemetry.counts.http
        status = self.status = self.status or _FAULTS
        counts.under_way -= 1
        counts.note(status, self.bytes_in, self.bytes_out)
        if self._is_watched or status >= _FAULTS:
            self._tell(call, is_fault=status >= _FAULTS and status not in _NO_FAULTS)

    def _tell(self, call: CallRecord | None, *, is_fault: bool) -> None:
        scope, span, status = self._scope, self._span, self.status
        if span is not None:
            _end(span, scope, status, {} if call is None else call.attributes())
        if (self._is_watched or is_fault) and ACCESS.isEnabledFor(logging.WARNING if is_fault else logging.INFO):
            trace_id = span.trace_id if span is not None else trace_id_of(_carrier(scope))
            log_call(call, _fields(scope, self, trace_id), now_ns() - self._begin_ns, is_fault=is_fault)


async def counted(
    telemetry: Telemetry, answer: Coroutine[Any, Any, Answered], scope: Scope, receive: Receive, send: Send
) -> None:
    """Await *answer*, of a call of which only its counts are told, and that it failed by a fault of the service.

    That takes less time than an HttpExchange.
    """
    counts, begin_ns = telemetry.counts.http, now_ns()
    counts.under_way += 1
    status, bytes_in, bytes_out = _FAULTS, 0, 0
    try:
        status, bytes_in, bytes_out = await answer
    except asyncio.CancelledError:
        status = CLIENT_CLOSED_REQUEST
        raise
    finally:
        counts.under_way -= 1
        if status == _OK:
            counts.note(status, bytes_in, bytes_out)
        else:
            exchange = HttpExchange(telemetry, scope, receive, send, begin_ns=begin_ns)
            exchange.status, exchange.bytes_in, exchange.bytes_out = status, bytes_in, bytes_out
            exchange.end()


def _fields(scope: Scope, exchange: HttpExchange, trace_id: str) -> dict[str, Any]:
    client = scope.get("client")
    return {
        "protocol": "http",
        "method": _method(scope),
        "route": _route(scope) or scope["path"],
        "status": exchange.status,
        "bytes_in": exchange.bytes_in,
        "bytes_out": exchange.bytes_out,
        "client": client[0] if client else "",
        "trace_id": trace_id,
    }


def _end(span: ServerSpan, scope: Scope, status: int, attributes: dict[str, Any]) -> None:
    route = _route(scope)
    told = {**attributes, "http.response.status_code": status, "http.route": route}
    span.end(told, f"{_method(scope)} {route}".rstrip(), str(status) if status >= _FAULTS else "")


def _method(scope: Scope) -> str:
    method: str = scope["method"]
    return method if method in _METHODS else _OTHER


def _route(scope: Scope) -> str:
    """The pattern of the path that has matched; "" for an unknown path."""
    path: str = getattr(scope.get("route"), "path", "")
    return path


def _carrier(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def _begun(scope: Scope) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        "http.request.method": _method(scope),
        "url.scheme": scope.get("scheme", "http"),
        "url.path": scope["path"],
        "network.protocol.version": scope.get("http_version", "1.1"),
    }
    if scope.get("client"):
        attributes["client.address"] = scope["client"][0]
    if scope.get("server"):
        attributes["server.address"], attributes["server.port"] = scope["server"][0], scope["server"][1] or 0
    return attributes
