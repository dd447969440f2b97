"""Server-sent events: the responses of a model as they are ready, over HTTP."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from asyncexec.framework.errors import CancelledError
from asyncexec.service.http.body import off_loop
from asyncexec.service.http.calls import unless_disconnected
from asyncexec.service.http.codec import encode_generate
from asyncexec.service.http.errors import error_response
from asyncexec.service.requests import InferResponse

_MEDIA_TYPE: Final = "text/event-stream"


async def event_stream(responses: AsyncGenerator[InferResponse, None], receive: Receive) -> Response:
    """A response that sends each of *responses* when it is ready; an error that comes before the first is raised."""
    try:
        first = await unless_disconnected(receive, _first(responses))
    except BaseException:
        await responses.aclose()
        raise
    return _EventStream(_events(first, responses), media_type=_MEDIA_TYPE)


async def _first(responses: AsyncGenerator[InferResponse, None]) -> InferResponse | None:
    return await anext(responses, None)


async def _events(
    first: InferResponse | None, responses: AsyncGenerator[InferResponse, None]
) -> AsyncGenerator[bytes, None]:
    async with aclosing(responses):
        try:
            if first is not None:
                yield await _event(first)
                del first  # the next one may be long in coming
                async for response in responses:
                    yield await _event(response)
        except Exception as error:  # the status has been sent
            yield b"data: %b\n\n" % bytes(error_response(error).body)


async def _event(response: InferResponse) -> bytes:
    return await off_loop(response.num_bytes, lambda: b"data: %b\n\n" % encode_generate(response))


class _EventStream(StreamingResponse):
    """Takes an event when the client has taken the one before, and no more once the client has gone."""

    body_iterator: AsyncGenerator[bytes, None]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self.body_iterator):
            try:
                await unless_disconnected(receive, self.stream_response(send))
            except (CancelledError, OSError):
                return  # the client has gone
