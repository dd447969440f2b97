"""What is told of each call over gRPC: it is counted, and has a span and a line in the log where these are wanted."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Final, Self

import grpc

from asyncexec.framework.clock import monotonic_ns as now_ns
from asyncexec.service.observing.access_log import log_call, trace_id_of
from asyncexec.service.observing.call_record import end_call
from asyncexec.service.observing.log_lines import ACCESS
from asyncexec.service.observing.telemetry import Telemetry

_OK: Final = grpc.StatusCode.OK
_OK_NAME: Final = _OK.name
_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}
_FAULTS: Final = (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL, grpc.StatusCode.DATA_LOSS)
_FAILED: Final = (
    *_FAULTS,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.UNAVAILABLE,
)  # what the conventions for spans of servers take for an error


class GrpcObserver:
    """Tells *telemetry* of the calls of handlers."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._known: dict[str, tuple[Any, object]] = {}  # what was made of which handler, by the name of the call

    def observed(self, name: str, handler: object) -> Any:
        """*handler*, of the calls of that *name*, which are told of."""
        known = self._known.get(name)
        if known is None or known[0] is not handler:
            known = self._known[name] = handler, self._observed(name, handler)
        return known[1]

    def _observed(self, name: str, handler: Any) -> object:
        """*handler*, whose calls are told of."""
        telemetry = self._telemetry

        unary, counts = handler.unary_unary, telemetry.counts.grpc

        async def answer(data: Any, context: object) -> object:
            if telemetry.is_watching:
                return await answer_watched(data, context)
            begin_ns = now_ns()
            counts.under_way += 1
            try:
                response = await unary(data, context)
            except BaseException as error:
                counts.under_way -= 1
                call = _Exchange(telemetry, name, context, begin_ns=begin_ns)
                call.bytes_in = len(data)
                call.fail(error)
                call.end()
                raise
            counts.under_way -= 1
            counts.note(_OK_NAME, len(data), len(response))
            return response

        async def answer_watched(data: Any, context: object) -> object:
            with _Exchange(telemetry, name, context) as call:
                call.bytes_in = len(data)
                response = await unary(data, context)
                call.bytes_out = len(response)
                return response

        async def converse(requests: Any, context: object) -> None:
            with _Exchange(telemetry, name, context) as call:
                call.bytes_in = 0 if handler.request_streaming else len(requests)
                await converses(requests, _Counted(context, call))

        async def generate(requests: object, context: object) -> AsyncIterator[object]:
            with _Exchange(telemetry, name, context) as call:
                async for response in converses(requests, context):
                    call.bytes_out += len(response)
                    yield response

        coders = handler.request_deserializer, handler.response_serializer
        if handler.unary_unary is not None:
            return grpc.unary_unary_rpc_method_handler(answer, *coders)
        converses = handler.stream_stream or handler.unary_stream
        assert converses is not None  # no service here takes a stream for one answer
        make = (
            grpc.stream_stream_rpc_method_handler if handler.request_streaming else grpc.unary_stream_rpc_method_handler
        )
        return make(generate if inspect.isasyncgenfunction(converses) else converse, *coders)


class _Exchange:
    """A call, from its begin to its end(); *begin_ns* is when one began that has failed, and that nobody watched."""

    __slots__ = (
        "_begin_ns",
        "_code",
        "_context",
        "_is_watched",
        "_name",
        "_span",
        "_telemetry",
        "bytes_in",
        "bytes_out",
    )

    def __init__(self, telemetry: Telemetry, name: str, context: Any, *, begin_ns: int | None = None) -> None:
        self.bytes_in = self.bytes_out = 0
        self._code = _OK
        self._telemetry, self._name, self._context = telemetry, name, context
        telemetry.counts.grpc.under_way += 1
        self._is_watched = begin_ns is None and telemetry.begin_call()
        self._begin_ns = now_ns() if begin_ns is None else begin_ns
        spans = telemetry.spans if self._is_watched else None
        self._span = None if spans is None else spans.begin(*_begun(name, context))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.fail(error)
        self.end()

    def fail(self, error: BaseException) -> None:
        """It fails with *error*, which was told to the client."""
        if not isinstance(error, asyncio.CancelledError):
            self._code = _code_of(self._context)
            return
        left_s = self._context.time_remaining()
        is_late = left_s is not None and left_s <= 0
        self._code = grpc.StatusCode.DEADLINE_EXCEEDED if is_late else grpc.StatusCode.CANCELLED

    def end(self) -> None:
        """It has ended: tell of it."""
        call = end_call()
        code, span, counts = self._code, self._span, self._telemetry.counts.grpc
        counts.under_way -= 1
        counts.note(code.name, self.bytes_in, self.bytes_out)
        if span is not None:
            attributes: dict[str, object] = {} if call is None else dict(call.attributes())
            attributes["rpc.grpc.status_code"] = code.value[0]
            span.end(attributes, error_type=code.name if code in _FAILED else "")
        is_fault = code in _FAULTS
        level = logging.WARNING if is_fault else logging.INFO
        if (self._is_watched or is_fault) and ACCESS.isEnabledFor(level):
            fields = {
                "protocol": "grpc",
                "method": self._name,
                "status": code.name,
                "bytes_in": self.bytes_in,
                "bytes_out": self.bytes_out,
                "client": _client(self._context),
                "trace_id": span.trace_id if span is not None else trace_id_of(_metadata(self._context)),
            }
            log_call(call, fields, now_ns() - self._begin_ns, is_fault=is_fault)


class _Counted:
    """The context of a stream, whose bytes are counted."""

    def __init__(self, context: Any, exchange: _Exchange) -> None:
        self._context = context
        self._exchange = exchange

    def __getattr__(self, name: str) -> object:
        return getattr(self._context, name)

    async def read(self) -> Any:
        data = await self._context.read()
        if data is not grpc.aio.EOF:
            self._exchange.bytes_in += len(data)
        return data

    async def write(self, message: bytes) -> None:
        self._exchange.bytes_out += len(message)
        await self._context.write(message)


def _code_of(context: Any) -> grpc.StatusCode:
    """The status of a call that has raised something."""
    code = context.code()
    found = code if isinstance(code, grpc.StatusCode) else _CODES.get(code)
    return grpc.StatusCode.UNKNOWN if found in (None, _OK) else found


def _metadata(context: Any) -> dict[str, str]:
    given = context.invocation_metadata() or ()
    return {name: value for name, value in given if isinstance(value, str)}


def _begun(name: str, context: object) -> tuple[str, dict[str, str], dict[str, Any]]:
    """The name of a span, what the client says, and the attributes."""
    service, _, method = name.removeprefix("/").partition("/")
    attributes = {"rpc.system": "grpc", "rpc.service": service, "rpc.method": method}
    attributes["client.address"] = _client(context)
    return f"{service}/{method}", _metadata(context), attributes


def _client(context: Any) -> str:
    """The address of the client, without its port."""
    peer: str = context.peer()
    return peer.partition(":")[2].rpartition(":")[0]
