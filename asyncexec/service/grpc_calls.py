"""A call over gRPC: a message to a message; what it raises becomes a status.

Messages are read and written here and not by grpc, so that what is no message is an error of the caller like any other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, NoReturn, Protocol, TypeAlias

import grpc
from google.protobuf.message import DecodeError

from asyncexec.framework.errors import InvalidArgumentError, OpError, ResourceExhaustedError

Call: TypeAlias = Callable[[Any], Awaitable[Any]]  # a request to a response, both messages

_MOST_DETAILS: Final = 2000  # bytes; details travel in headers, of which peers take 8 kB
_LOGGER: Final = logging.getLogger("asyncexec.service")


class Context(Protocol):
    """What is used of grpc.aio's context of a call."""

    async def abort(self, code: grpc.StatusCode, details: str) -> NoReturn: ...
    async def read(self) -> Any: ...
    async def write(self, message: bytes) -> None: ...


class Failure(NamedTuple):
    """How a call failed: what its caller is told."""

    status: grpc.StatusCode
    details: str


async def outcome(call: Call, request: Any, data: bytes) -> bytes | Failure:
    """What *call* answers to *request*, an empty message that *data* is read into."""
    try:
        try:
            request.ParseFromString(data)
        except DecodeError:
            raise InvalidArgumentError(f"the request is no {request.DESCRIPTOR.name}") from None
        response = await call(request)
        answer: bytes = response.SerializeToString()
        return answer
    except OpError as error:
        return _failure_of(error)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # The model's own code raised it.  grpc takes it for a cancellation by the client, and would send no status.
        return Failure(grpc.StatusCode.CANCELLED, "the model cancelled the call")
    except Exception:
        _LOGGER.exception("a call with %s failed", request.DESCRIPTOR.name)
        return Failure(grpc.StatusCode.INTERNAL, "internal error")


def _failure_of(error: OpError) -> Failure:
    if error.node is not None:
        details = "\n".join(str(error).splitlines()[:3])
    else:
        details = error.message if error.hint is None else f"{error.message}; {error.hint}"
    details = details.encode(errors="replace")[:_MOST_DETAILS].decode(errors="ignore")
    if isinstance(error, ResourceExhaustedError):
        return Failure(grpc.StatusCode.UNAVAILABLE, details)
    return Failure(grpc.StatusCode[error.code.name], details)


def unary(request_class: Any, call: Call) -> grpc.RpcMethodHandler:
    """The handler of *call*, which takes one message of *request_class*."""

    async def handle(data: bytes, context: Context) -> bytes:
        answer = await outcome(call, request_class(), data)
        if isinstance(answer, Failure):
            await context.abort(answer.status, answer.details)
        return answer

    return grpc.unary_unary_rpc_method_handler(handle)
