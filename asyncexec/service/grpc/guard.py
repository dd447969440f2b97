"""Guard: who may call the services over gRPC, and until when."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import grpc

from asyncexec.service.app import Tokens
from asyncexec.service.grpc.observer import GrpcObserver
from asyncexec.service.open_streams import SHUTTING_DOWN, OpenStreams

_LINGER_S: Final = 0.5


class Guard(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Finds the handlers of calls among those of *services*, for callers who may.

    It is no interceptor: ``grpc.aio`` runs those as coroutines around each call.

    A server that is stopped tells the channels of its clients to connect elsewhere, and cancels calls that come even
    so, which a client cannot tell from calls that have run.  So at the end calls wait until the server is stopped, and
    are refused then, with the status that lets a client try another server: those who call all the time do not call in
    between, and who tries again does so on another connection.

    Args:
        tokens: of those who may call.
        free: the methods that anybody may call.
        streams: those that are open, which end when no more calls are taken.
        observer: is told of each call, also of those that are refused.
    """

    def __init__(
        self,
        services: Sequence[grpc.GenericRpcHandler],
        tokens: Tokens,
        free: Sequence[str],
        streams: OpenStreams,
        observer: GrpcObserver,
    ) -> None:
        self._services = tuple(services)
        self._tokens = tokens
        self._free = frozenset(free)
        self._streams = streams
        self._refuses = asyncio.Event()
        self._observer = observer
        self._is_used = False
        self._is_closed = False

    async def close(self) -> None:
        """Let new calls wait; ends when those who call all the time do."""
        self._is_closed = True
        self._streams.end()
        if self._is_used:
            await _linger()

    def refuse(self) -> None:
        """Refuse the calls that wait: the server has been stopped."""
        self._refuses.set()

    def service(self, details: Any) -> Any:
        """The handler of a call; None for one that is not known."""
        self._is_used = True
        handler = self._found(details)
        return None if handler is None else self._observer.observed(details.method, handler)

    def _found(self, details: Any) -> object:
        for each in self._services:
            handler = each.service(details)
            if handler is not None:
                break
        else:
            return None
        if self._is_closed:
            return _refusing(handler, grpc.StatusCode.UNAVAILABLE, SHUTTING_DOWN, self._refuses)
        if self._tokens and details.method not in self._free and not self._tokens.allow(_authorization(details)):
            return _refusing(handler, grpc.StatusCode.UNAUTHENTICATED, "unauthorized")
        return handler


async def _linger() -> None:
    await asyncio.sleep(_LINGER_S)


def _authorization(details: Any) -> bytes | None:
    given = next((value for key, value in details.invocation_metadata if key == "authorization"), None)
    return None if given is None else given.encode()


def _refusing(handler: Any, status: grpc.StatusCode, told: str, when: asyncio.Event | None = None) -> Any:
    """The same kind of call as *handler*, refused *when* that is set."""

    async def refuse(request: object, context: Any) -> Any:
        if when is not None:
            await when.wait()
        await context.abort(status, told)

    async def refuse_stream(requests: object, context: object) -> AsyncIterator[object]:
        await refuse(requests, context)
        yield None

    make = grpc.stream_stream_rpc_method_handler if handler.response_streaming else grpc.unary_unary_rpc_method_handler
    return make(
        refuse_stream if handler.response_streaming else refuse,
        handler.request_deserializer,
        handler.response_serializer,
    )
