"""Guard: who may call the services over gRPC, and until when."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import grpc

from asyncexec.service.app import Tokens

_LINGER_S: Final = 0.5  # how long callers have to notice that no calls are taken any more


class Guard(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Finds the handlers of calls among those of *services*, for callers who may.

    It is no interceptor: ``grpc.aio`` runs those as coroutines around each call.

    Args:
        tokens: of those who may call.
        free: the methods that anybody may call.
    """

    def __init__(self, services: Sequence[grpc.GenericRpcHandler], tokens: Tokens, free: Sequence[str]) -> None:
        self._services = tuple(services)
        self._tokens = tokens
        self._free = frozenset(free)
        self._is_used = False
        self._is_closed = False

    async def close(self) -> None:
        """Refuse new calls, and give those who call time to notice: a server that is stopped cancels what comes."""
        self._is_closed = True
        if self._is_used:
            await _linger()

    def service(self, details: Any) -> Any:
        """The handler of a call; None for one that is not known."""
        self._is_used = True
        for each in self._services:
            handler = each.service(details)
            if handler is not None:
                break
        else:
            return None
        if self._is_closed:
            return _refusing(handler, grpc.StatusCode.UNAVAILABLE, "the service is shutting down")
        if self._tokens and details.method not in self._free and not self._tokens.allow(_authorization(details)):
            return _refusing(handler, grpc.StatusCode.UNAUTHENTICATED, "unauthorized")
        return handler


async def _linger() -> None:
    await asyncio.sleep(_LINGER_S)


def _authorization(details: Any) -> bytes | None:
    given = next((value for key, value in details.invocation_metadata if key == "authorization"), None)
    return None if given is None else given.encode()


def _refusing(handler: Any, status: grpc.StatusCode, told: str) -> Any:
    """The same kind of call as *handler*, refused."""

    async def refuse(request: Any, context: Any) -> Any:
        await context.abort(status, told)

    async def refuse_stream(requests: Any, context: Any) -> AsyncIterator[Any]:
        await context.abort(status, told)
        yield None

    make = grpc.stream_stream_rpc_method_handler if handler.response_streaming else grpc.unary_unary_rpc_method_handler
    return make(
        refuse_stream if handler.response_streaming else refuse,
        handler.request_deserializer,
        handler.response_serializer,
    )
