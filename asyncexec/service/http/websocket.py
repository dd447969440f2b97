"""WebSockets: a stream of requests of one model, and their answers, over HTTP.

A message is what the body of a call of ``infer`` is.  One that is text is JSON; one that is binary is the length of the
JSON in 4 bytes, little-endian, then the JSON, then the raw tensors.  An answer is binary where it has raw tensors.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import urlsplit

import orjson
from starlette.responses import Response
from starlette.routing import WebSocketRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from asyncexec.framework.errors import (
    CancelledError,
    InvalidArgumentError,
    OpError,
    PermissionDeniedError,
    UnavailableError,
)
from asyncexec.service.exchange import Asked, Exchange, is_cancelled
from asyncexec.service.held_bytes import HeldBytes
from asyncexec.service.http.body import off_loop
from asyncexec.service.http.codec import MAX_JSON_BYTES, InferCall, decode_infer, encode_infer
from asyncexec.service.http.errors import error_response
from asyncexec.service.models.model import Model
from asyncexec.service.models.repository import ModelRepository
from asyncexec.service.requests import IS_FINAL, WANTS_FINAL, InferResponse
from asyncexec.service.shared_memory import SharedMemory

Answer: TypeAlias = str | bytes

_RESTART, _TOO_BIG, _BROKEN, _REFUSED = 1012, 1009, 1011, 1008  # codes that a WebSocket is closed with
_CLOSES_WITHIN_S: Final = 1.0
_LENGTH: Final = struct.Struct("<I")
_LOGGER: Final = logging.getLogger("asyncexec.service")


class WebSockets:
    """Those that are open, to the models of *repository*; their messages have at most *max_bytes*.

    Tensors may be in *shared*.
    """

    def __init__(self, repository: ModelRepository, max_bytes: int, shared: SharedMemory | None = None) -> None:
        self._repository = repository
        self._shared = shared or SharedMemory()
        self._max_bytes = max_bytes
        self._open: set[_Connection] = set()
        self._is_ending = False

    def routes(self) -> Iterator[WebSocketRoute]:
        """Where they are opened."""
        for prefix in ("/v2/models/{name}", "/v2/models/{name}/versions/{version}"):
            yield WebSocketRoute(f"{prefix}/stream", self._serve)

    async def end(self, timeout_s: float) -> None:
        """Open no more, answer within *timeout_s* what has been read on those that are open, and close them."""
        self._is_ending = True
        connections = list(self._open)
        for connection in connections:
            connection.stop_reading()
        try:
            async with asyncio.timeout(timeout_s):
                for connection in connections:
                    await connection.has_ended.wait()
        except TimeoutError:
            for connection in connections:
                connection.cancel()
        for connection in connections:
            await connection.has_ended.wait()

    async def _serve(self, socket: WebSocket) -> None:
        name, version = socket.path_params["name"], socket.path_params.get("version", "")
        try:
            if self._is_ending:
                raise UnavailableError("the service is shutting down")
            _check_origin(socket)
            self._repository.model(name, version)
        except OpError as error:
            await deny(error_response(error), socket.scope, socket.receive, socket.send)
            return
        connection = _Connection(socket, self._repository, (name, version), self._max_bytes, self._shared)
        self._open.add(connection)
        try:
            await socket.accept()
            await connection.serve()
        except (WebSocketDisconnect, OSError):
            return  # before it was open
        finally:
            self._open.discard(connection)
            connection.has_ended.set()


def _check_origin(socket: WebSocket) -> None:
    """PermissionDeniedError for a page of another origin: its browser lets it in wherever its user can go."""
    origin = socket.headers.get("origin")
    if origin is None:
        return
    try:
        if urlsplit(origin).netloc == socket.headers.get("host"):
            return
    except ValueError:  # it is no URL
        pass
    raise PermissionDeniedError("a page of another origin may not open a WebSocket")


async def deny(response: Response, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with *response* a request, or one for a WebSocket, as far as the server can do that."""
    if scope["type"] == "websocket" and "websocket.http.response" not in (scope.get("extensions") or {}):
        await receive()
        await send({"type": "websocket.close", "code": _REFUSED})
        return
    await response(scope, receive, send)


class _Refused(NamedTuple):
    """A message that is no request: why, and the id that it has nevertheless."""

    error: Exception
    id: str


class _Connection:
    """One WebSocket; has_ended is set when it is closed, or the client has gone."""

    def __init__(
        self,
        socket: WebSocket,
        repository: ModelRepository,
        asked: tuple[str, str],
        max_bytes: int,
        shared: SharedMemory,
    ) -> None:
        self._shared = shared
        self.has_ended: asyncio.Event = asyncio.Event()
        self._socket = socket
        self._repository = repository
        self._asked = asked
        self._max_bytes = max_bytes
        self._ending = asyncio.Event()
        self._has_left = False
        self._reader: asyncio.Task[Any] | None = None  # while it waits for a message
        self._exchanging: asyncio.Task[bool] | None = None

    async def serve(self) -> None:
        """Answer the messages that come, until the client leaves or stop_reading() is called."""
        exchanging = self._exchanging = asyncio.create_task(Exchange[Answer](self._read, self._write).run())
        try:
            await asyncio.wait([exchanging])
        finally:
            self._exchanging = None
            exchanging.cancel()
            (outcome,) = await asyncio.gather(exchanging, return_exceptions=True)
        if self._has_left or isinstance(outcome, (WebSocketDisconnect, OSError)):
            return
        if isinstance(outcome, Exception):
            _LOGGER.error("a WebSocket failed", exc_info=outcome)
        await self._close(_BROKEN if isinstance(outcome, Exception) else _RESTART)

    def stop_reading(self) -> None:
        """Let serve() answer what has been read, and end."""
        self._ending.set()
        if self._reader is not None:
            self._reader.cancel()

    def cancel(self) -> None:
        """Let serve() end at once."""
        if self._exchanging is not None:
            self._exchanging.cancel()

    async def _close(self, code: int, reason: str | None = None) -> None:
        try:
            async with asyncio.timeout(_CLOSES_WITHIN_S):  # a client may read nothing
                await self._socket.close(code, reason)
        except (WebSocketDisconnect, OSError, RuntimeError):
            return  # the client was quicker

    async def _read(self) -> Asked[Answer] | None:
        data = await self._receive()
        if data is None:
            return None
        if len(data) > self._max_bytes:
            await self._close(_TOO_BIG, f"a message has at most {self._max_bytes} bytes")
            self._leave()
            return None
        held = HeldBytes()
        try:
            return await self._request_in(data, held)
        except BaseException:
            held.release()
            raise

    async def _request_in(self, data: str | bytes, held: HeldBytes) -> Asked[Answer]:
        try:
            held.grow_to(len(data))
            model = self._repository.model(*self._asked)
            call = await off_loop(len(data), lambda: _decoded(model, self._asked[1], data))
            num_bytes = len(data)
            if isinstance(call, InferCall):  # read here, so that calls of a sequence begin in the order they came in
                num_bytes += call.request.num_shared_bytes
                call = call._replace(request=await self._shared.with_inputs(call.request))
        except OpError as error:
            call = _Refused(error, await off_loop(len(data), lambda: _id_in(data)))
        if isinstance(call, _Refused):
            return Asked(len(data), lambda: _told(*call), held=held)
        is_decoupled = model.is_decoupled
        return Asked(num_bytes, lambda: self._answers(call, is_decoupled=is_decoupled), not is_decoupled, held)

    async def _receive(self) -> str | bytes | None:
        """The next message; None where there are to be no more."""
        if self._ending.is_set():
            return None
        self._reader = asyncio.current_task()
        try:
            message = await self._socket.receive()
        except asyncio.CancelledError:
            if not self._ending.is_set():
                raise
            return None
        finally:
            self._reader = None
        if message["type"] != "websocket.receive":
            self._leave()
            return None
        text: str | None = message.get("text")
        return message.get("bytes") if text is None else text

    def _leave(self) -> None:
        """Cancel what is under way."""
        self._has_left = True
        self.cancel()

    async def _write(self, answer: Answer) -> None:
        if isinstance(answer, str):
            await self._socket.send_text(answer)
        else:
            await self._socket.send_bytes(answer)

    async def _answers(self, call: InferCall, *, is_decoupled: bool) -> AsyncGenerator[Answer, None]:
        request = call.request
        try:
            model = self._repository.model(*self._asked)
            async with aclosing(self._shared.responses(model, request)) as responses:
                async for response in responses:
                    yield await _encoded(call, response, is_final=False if is_decoupled else None)
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            yield _error(CancelledError("the model cancelled the call"), request.id)
            return
        except Exception as error:
            yield _error(error, request.id)
            return
        if is_decoupled and request.parameters.get(WANTS_FINAL) is True:
            yield await _encoded(call, InferResponse(model.name, model.version, request.id, {}), is_final=True)


def _decoded(model: Model, version: str, data: str | bytes) -> InferCall | _Refused:
    try:
        if isinstance(data, str):
            return decode_infer(model, version, data.encode(), None)
        if len(data) < _LENGTH.size:
            raise InvalidArgumentError("a binary message begins with the length of its JSON in 4 bytes")
        return decode_infer(model, version, data[_LENGTH.size :], str(_LENGTH.unpack_from(data)[0]))
    except OpError as error:
        return _Refused(error, _id_in(data))


def _id_in(data: str | bytes) -> str:
    """The id in the JSON of a message which is no request, if it has one nevertheless."""
    if isinstance(data, bytes):
        (length,) = _LENGTH.unpack_from(data) if len(data) >= _LENGTH.size else (0,)
        data = data[_LENGTH.size : _LENGTH.size + length]
    if len(data) > MAX_JSON_BYTES:
        return ""
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError:
        return ""
    call_id = found.get("id") if isinstance(found, dict) else None
    return call_id if isinstance(call_id, str) else ""


async def _encoded(call: InferCall, response: InferResponse, *, is_final: bool | None) -> Answer:
    """The message that *response* is; it says whether it is the last where that is no matter of course."""
    if is_final is not None:
        response = response._replace(parameters={**response.parameters, IS_FINAL: is_final})

    def encode() -> Answer:
        encoded = encode_infer(call, response)
        if encoded.header_length is None:
            return encoded.content.decode()
        return _LENGTH.pack(encoded.header_length) + encoded.content

    return await off_loop(response.num_bytes, encode)


async def _told(error: Exception, call_id: str) -> AsyncGenerator[Answer, None]:
    yield _error(error, call_id)


def _error(error: Exception, call_id: str) -> str:
    told: dict[str, object] = orjson.loads(bytes(error_response(error).body))
    return orjson.dumps({**told, "id": call_id} if call_id else told).decode()
