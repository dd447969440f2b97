"""A call over HTTP: its handler answers errors, too, and its work ends when the client goes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive

from asyncexec.framework.errors import CancelledError
from asyncexec.service.http_body import compress
from asyncexec.service.http_errors import error_response

T = TypeVar("T")
Handler: TypeAlias = Callable[[Request], Awaitable[Response]]


def answering(handler: Handler, respond: Callable[[Exception], Response] = error_response) -> Handler:
    """*handler*, which answers errors too, with what *respond* makes of them."""

    async def answer(request: Request) -> Response:
        try:
            response = await handler(request)
            await compress(response, request.headers.get("accept-encoding", ""))
        except Exception as error:
            return respond(error)
        return response

    return answer


async def unless_disconnected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """What *work* returns; it is cancelled when the client goes."""
    running, gone = asyncio.create_task(work), asyncio.create_task(_wait_disconnected(receive))
    try:
        await asyncio.wait((running, gone), return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            gone.result()
            raise CancelledError("the client has gone")
        return running.result()
    finally:
        running.cancel()
        gone.cancel()
        await asyncio.gather(running, gone, return_exceptions=True)


async def _wait_disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
