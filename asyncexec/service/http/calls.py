"""A call over HTTP: its handler answers errors, too, and its work ends when the client goes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, TypeAlias, TypeVar

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from asyncexec.framework.errors import CancelledError
from asyncexec.service.begun import Begun
from asyncexec.service.http.body import compressed
from asyncexec.service.http.errors import error_response

T = TypeVar("T")
_WATCHED_AFTER_S: Final = 0.005
Handler: TypeAlias = Callable[[Request], Awaitable[Response]]


def answering(
    handler: Handler, respond: Callable[[Exception], Response] = error_response, *, compresses: bool = True
) -> ASGIApp:
    """*handler*, which answers errors too, with what *respond* makes of them, as the endpoint of a route.

    Where it *compresses*, that is done for clients that accept it.
    """
    return _Answering(handler, respond, compresses=compresses)


class _Answering:
    """An ASGI app, and no function: those Starlette wraps into some more."""

    __slots__ = ("_compresses", "_handler", "_respond")

    def __init__(self, handler: Handler, respond: Callable[[Exception], Response], *, compresses: bool) -> None:
        self._handler = handler
        self._respond = respond
        self._compresses = compresses

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        try:
            response = await self._handler(request)
            if self._compresses:
                await _compress(response, dict(scope["headers"]))
        except Exception as error:
            response = self._respond(error)
        await response(scope, receive, send)


async def _compress(response: Response, headers: Mapping[bytes, bytes]) -> None:
    if isinstance(response, StreamingResponse):
        return
    response.body, coding = await compressed(bytes(response.body), headers)
    if coding is not None:
        response.headers["content-encoding"] = coding
        response.headers["content-length"] = str(len(response.body))


async def unless_disconnected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """What *work* returns; it is cancelled when the client goes."""
    begun = Begun(work)
    if begun.has_ended:
        value: T = begun.value  # type: ignore[assignment]
        return value
    watch = _Watch(receive)
    handle = asyncio.get_running_loop().call_later(_WATCHED_AFTER_S, watch.begin)  # what is quicker needs no watch
    try:
        return await begun
    except asyncio.CancelledError:
        watch.raise_for_client()
        raise
    finally:
        handle.cancel()
        await watch.end()


class _Watch:
    """Cancels the task that made it when the client goes."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._watched = asyncio.current_task()
        self._watching: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self._has_cancelled = False

    def begin(self) -> None:
        self._watching = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        try:
            while (await self._receive())["type"] != "http.disconnect":
                pass
        except Exception as error:
            self._failure = error
        self._has_cancelled = True
        assert self._watched is not None
        self._watched.cancel()

    def raise_for_client(self) -> None:
        """Raise CancelledError, or why the connection broke, if the task was cancelled for that."""
        if not self._has_cancelled:
            return
        assert self._watched is not None
        if self._watched.uncancel():
            return  # somebody else has cancelled it, too
        raise self._failure or CancelledError("the client has gone")

    async def end(self) -> None:
        """Watch no more."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
