"""A call over gRPC: a message to a message; what it raises becomes a status.

Messages are read and written here and not by grpc, so that what is no message is an error of the caller like any other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple, NoReturn, Protocol, TypeAlias

import grpc
from google.protobuf.message import DecodeError

from asyncexec.framework.errors import Code, InvalidArgumentError, OpError
from asyncexec.service.client_errors import told_to_client
from asyncexec.service.exchange import is_cancelled
from asyncexec.service.grpc.parsed_size import hold_parsed
from asyncexec.service.held_bytes import SMALL_BYTES, HeldBytes
from asyncexec.service.http.body import off_loop

Call: TypeAlias = Callable[[Any], Awaitable[Any]]  # a decoded request to a response: a message, or the bytes of one
Decode: TypeAlias = Callable[[Any], Any]  # a message to what a call takes

_MOST_DETAILS: Final = 2000  # bytes; details travel in headers, of which peers take 8 kB
_LOGGER: Final = logging.getLogger("asyncexec.service")


class Context(Protocol):
    """What is used of grpc.aio's context of a call."""

    async def abort(self, code: grpc.StatusCode, details: str) -> NoReturn: ...
    async def read(self) -> Any: ...
    async def write(self, message: bytes) -> None: ...
    def invocation_metadata(self) -> Sequence[tuple[str, str]] | None: ...


class Failure(NamedTuple):
    """How a call failed: what its caller is told."""

    status: grpc.StatusCode
    details: str


CANCELLED: Final = Failure(grpc.StatusCode.CANCELLED, "the model cancelled the call")
INTERNAL: Final = Failure(grpc.StatusCode.INTERNAL, "internal error")


async def outcome(call: Call, request: Any, data: bytes, decode: Decode | None = None) -> bytes | Failure:
    """What *call* answers to *request*, an empty message that *data* is read into, or to what *decode* makes of it."""
    try:
        if len(data) <= SMALL_BYTES:
            response = await call(read_message(request, data, decode))
        else:
            with HeldBytes() as held:
                await hold_parsed(held, data, request.DESCRIPTOR)
                response = await call(await off_loop(len(data), read_message, request, data, decode))
        answer: bytes = response if isinstance(response, bytes) else response.SerializeToString()
        return answer
    except OpError as error:
        return failure_of(error)
    except asyncio.CancelledError:
        if is_cancelled():
            raise
        # The model's own code raised it.  grpc takes it for a cancellation by the client, and would send no status.
        return CANCELLED
    except Exception:
        _LOGGER.exception("a call with %s failed", request.DESCRIPTOR.name)
        return INTERNAL


def read_message(request: Any, data: bytes, decode: Decode | None) -> Any:
    """*request*, an empty message that *data* is read into, or what *decode* makes of it; InvalidArgumentError."""
    try:
        request.ParseFromString(data)
    except DecodeError:
        raise InvalidArgumentError(f"the request is no {request.DESCRIPTOR.name}") from None
    return request if decode is None else decode(request)


def failure_of(error: OpError) -> Failure:
    """What the caller is told of *error*."""
    code, text = told_to_client(error)
    code = Code.UNAVAILABLE if code is Code.RESOURCE_EXHAUSTED else code  # so that clients try again
    return Failure(grpc.StatusCode[code.name], text.encode(errors="replace")[:_MOST_DETAILS].decode(errors="ignore"))


def unary(request_class: Any, call: Call, decode: Decode | None = None) -> grpc.RpcMethodHandler:
    """The handler of *call*, which takes one message of *request_class*, or what *decode* makes of it."""

    async def handle(data: bytes, context: Context) -> bytes:
        answer = await outcome(call, request_class(), data, decode)
        if isinstance(answer, Failure):
            await context.abort(answer.status, answer.details)
        return answer

    return grpc.unary_unary_rpc_method_handler(handle)
