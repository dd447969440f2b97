"""What is told of each call over HTTP: it is counted, and has a span and a line in the log where these are wanted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from typing import Any, Final, TypeAlias

from asyncexec.framework.clock import monotonic_ns as now_ns
from asyncexec.service.http.errors import CLIENT_CLOSED_REQUEST
from asyncexec.service.http.infer import Answer, Rest, Waiting
from asyncexec.service.observing.access_log import log_call, trace_id_of
from asyncexec.service.observing.call_record import CallRecord, end_call
from asyncexec.service.observing.log_lines import ACCESS
from asyncexec.service.observing.server_spans import ServerSpan
from asyncexec.service.observing.telemetry import Telemetry

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

_METHODS: Final = frozenset(("CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"))
_OK: Final = 200
_OTHER: Final = "_OTHER"
_FAULTS: Final = 500  # from this status on the service is at fault ...
_NO_FAULTS: Final = (501, 503, 504)  # ... but for what it cannot do, refuses to do, or has no time for


class HttpExchange:
    """A call over HTTP, which *telemetry* is told of: what goes to and fro, from its begin to its end()."""

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

    def __init__(self, telemetry: Telemetry, scope: Scope, receive: Receive, send: Send) -> None:
        self._telemetry = telemetry
        self._scope = scope
        self._receive = receive
        self._send = send
        self.status = self.bytes_in = self.bytes_out = 0
        telemetry.counts.http.under_way += 1
        self._is_watched = telemetry.begin_call()
        self._begin_ns = now_ns()
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
            self._tell(call, is_fault=_is_fault(status))

    def _tell(self, call: CallRecord | None, *, is_fault: bool) -> None:
        scope, span, status = self._scope, self._span, self.status
        if span is not None:
            _end(span, scope, status, {} if call is None else call.attributes())
        if (self._is_watched or is_fault) and ACCESS.isEnabledFor(logging.WARNING if is_fault else logging.INFO):
            trace_id = span.trace_id if span is not None else trace_id_of(_carrier(scope))
            fields = _fields(scope, status, self.bytes_in, self.bytes_out, trace_id)
            log_call(call, fields, now_ns() - self._begin_ns, is_fault=is_fault)


def counted(
    telemetry: Telemetry, found: Answer | Waiting | Rest, scope: Scope, bytes_in: int, begin_ns: int
) -> Answer | Waiting | Rest:
    """*found* for a call of which only its counts are told, and if it fails by a fault of the service."""
    if isinstance(found, Waiting):
        telemetry.counts.http.under_way += 1
        return Waiting(found.outcome, partial(_ended, telemetry, found.answer, scope, bytes_in, begin_ns))
    return _counted(telemetry, found, scope, bytes_in, begin_ns)


def _counted(telemetry: Telemetry, found: Answer | Rest, scope: Scope, bytes_in: int, begin_ns: int) -> Answer | Rest:
    if not isinstance(found, Answer):
        return partial(_finish, telemetry, found, scope, bytes_in, begin_ns)
    _note(telemetry, scope, found.status, bytes_in, len(found.content), begin_ns)
    return found


def _ended(
    telemetry: Telemetry, answer: Callable[[], Answer | Rest], scope: Scope, bytes_in: int, begin_ns: int
) -> Answer | Rest:
    """What *answer* gives, now that what the call waited for is there; it is told of as by counted()."""
    telemetry.counts.http.under_way -= 1
    try:
        found = answer()
    except asyncio.CancelledError:
        _note(telemetry, scope, CLIENT_CLOSED_REQUEST, bytes_in, 0, begin_ns)
        raise
    return _counted(telemetry, found, scope, bytes_in, begin_ns)


async def _finish(
    telemetry: Telemetry, rest: Rest, scope: Scope, bytes_in: int, begin_ns: int, receive: Receive
) -> Answer:
    """What *rest* gives; it is told of as by counted()."""
    telemetry.counts.http.under_way += 1
    status, bytes_out = _FAULTS, 0
    try:
        answer = await rest(receive)
        status, bytes_out = answer.status, len(answer.content)
        return answer
    except asyncio.CancelledError:
        status = CLIENT_CLOSED_REQUEST
        raise
    finally:
        telemetry.counts.http.under_way -= 1
        _note(telemetry, scope, status, bytes_in, bytes_out, begin_ns)


def _note(telemetry: Telemetry, scope: Scope, status: int, bytes_in: int, bytes_out: int, begin_ns: int) -> None:
    """A call that nobody watched has ended."""
    telemetry.counts.http.note(status, bytes_in, bytes_out)
    if status == _OK:
        return
    call = end_call()
    if _is_fault(status) and ACCESS.isEnabledFor(logging.WARNING):
        fields = _fields(scope, status, bytes_in, bytes_out, trace_id_of(_carrier(scope)))
        log_call(call, fields, now_ns() - begin_ns, is_fault=True)


def _is_fault(status: int) -> bool:
    return status >= _FAULTS and status not in _NO_FAULTS


def _fields(scope: Scope, status: int, bytes_in: int, bytes_out: int, trace_id: str) -> dict[str, object]:
    client = scope.get("client")
    return {
        "protocol": "http",
        "method": _method(scope),
        "route": _route(scope) or scope["path"],
        "status": status,
        "bytes_in": bytes_in,
        "bytes_out": bytes_out,
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
    attributes: dict[str, object] = {
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
