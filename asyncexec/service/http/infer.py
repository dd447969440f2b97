"""``POST /v2/models/NAME/infer``: what a service is asked for most, as an ASGI app without layers around it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from starlette.types import Receive, Scope, Send

from asyncexec.service.held_bytes import SMALL_BYTES, HeldBytes
from asyncexec.service.http.body import WORTH_COMPRESSING_BYTES, compressed, off_loop, read_body
from asyncexec.service.http.calls import unless_disconnected
from asyncexec.service.http.codec import MAX_JSON_BYTES, EncodedResponse, InferCall, decode_infer, encode_infer
from asyncexec.service.http.errors import error_response
from asyncexec.service.models.batches import WaitingCall
from asyncexec.service.models.model import check_one_response
from asyncexec.service.models.repository import ModelRepository
from asyncexec.service.requests import InferResponse
from asyncexec.service.shared_memory import SharedMemory

_HEADER_LENGTH: Final = b"inference-header-content-length"
_JSON: Final = (b"content-type", b"application/json")
_BINARY: Final = (b"content-type", b"application/octet-stream")


class Answer(NamedTuple):
    """What a request is answered with."""

    status: int
    headers: list[tuple[bytes, bytes]]
    content: bytes


Rest: TypeAlias = Callable[[Receive], Coroutine[Any, Any, Answer]]  # what is left to do for an answer


class Waiting(NamedTuple):
    """What a request waits for, and no task does.

    Attributes:
        outcome: is done when it is there, and cancelled by who wants no answer.
        answer: to be called then: gives what answers the request, or raises asyncio.CancelledError.
    """

    outcome: asyncio.Future[Any]
    answer: Callable[[], Answer | Rest]


class InferEndpoint:
    """Answers inference requests to the models of *repository*.

    Args:
        shared: the regions of shared memory that tensors may be in.
        max_body_bytes, body_timeout_s: see ``read_body``.
    """

    def __init__(
        self, repository: ModelRepository, shared: SharedMemory, max_body_bytes: int, body_timeout_s: float
    ) -> None:
        self._repository = repository
        self._shared = shared
        self._max_body_bytes = max_body_bytes
        self._max_json_bytes = min(max_body_bytes, MAX_JSON_BYTES)
        self._body_timeout_s = body_timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked: Mapping[str, str] = scope["path_params"]
        await self.answer(asked["name"], asked.get("version", ""), scope, receive, send)

    async def answer(self, name: str, version: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request to the *version* of the model of that *name*; "" is the newest."""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        with HeldBytes() as held:
            try:
                self._repository.model(name, version)  # an unknown one is refused before its inputs are read
                most = self._max_body_bytes if _HEADER_LENGTH in headers else self._max_json_bytes
                body = await read_body(headers, receive, most, self._body_timeout_s, held)
                model = self._repository.model(name, version)
                check_one_response(model, "HTTP end point")
                with model.held():
                    call = await off_loop(len(body), decode_infer, model, version, body, _told_length(headers))
                    answer = await self.finish(call, headers, receive)
            except Exception as error:
                answer = refusal(error)
        await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
        await send({"type": "http.response.body", "body": answer.content})

    def begin(self, name: str, version: str, headers: Mapping[bytes, bytes], body: bytes) -> Answer | Waiting | Rest:
        """What answers a request with these *headers* and the small *body*, or else what is left to do.

        No task has to call this: it awaits nothing, and calls no function of users.
        """
        try:
            model = self._repository.model(name, version)
            check_one_response(model, "HTTP end point")
            call = decode_infer(model, version, body, _told_length(headers))
            if call.request.shared_inputs is not None:
                return partial(self.finish, call, headers)
            waiting = model.begin(call.request)
            if waiting is not None:
                return Waiting(waiting.outcome, partial(_ended, call, waiting, headers))
            response = model.answer_at_once(call.request)
            return partial(self.finish, call, headers) if response is None else _answer(call, response, headers)
        except Exception as error:
            return refusal(error)

    async def finish(self, call: InferCall, headers: Mapping[bytes, bytes], receive: Receive) -> Answer:
        """What answers *call*, of a request with these *headers*; it ends when *receive* tells that its client has."""
        try:
            model = self._repository.model(call.request.model_name, call.request.model_version)
            response = await unless_disconnected(receive, self._shared.infer(model, call.request))
        except Exception as error:
            return refusal(error)
        return await _encoded(call, response, headers)


def _ended(call: InferCall, waiting: WaitingCall, headers: Mapping[bytes, bytes]) -> Answer | Rest:
    """What answers *call*, now that *waiting* has ended."""
    try:
        return _answer(call, waiting.response(), headers)
    except Exception as error:
        return refusal(error)


def _answer(call: InferCall, response: InferResponse, headers: Mapping[bytes, bytes]) -> Answer | Rest:
    """*response*, which answers *call*, if it is small, else what is left to do for that."""
    if response.num_bytes > SMALL_BYTES:
        return partial(_encoded, call, response, headers)
    encoded = encode_infer(call, response)
    if len(encoded.content) > WORTH_COMPRESSING_BYTES and b"accept-encoding" in headers:
        return partial(_compressed, encoded, headers)
    return Answer(200, _headers(encoded, encoded.content, None), encoded.content)


async def _encoded(
    call: InferCall, response: InferResponse, headers: Mapping[bytes, bytes], _: Receive | None = None
) -> Answer:
    """*response*, which answers *call*."""
    try:
        return await _compressed(await off_loop(response.num_bytes, encode_infer, call, response), headers)
    except Exception as error:
        return refusal(error)


async def _compressed(encoded: EncodedResponse, headers: Mapping[bytes, bytes], _: Receive | None = None) -> Answer:
    content, coding = await compressed(encoded.content, headers)
    return Answer(200, _headers(encoded, content, coding), content)


def refusal(error: Exception) -> Answer:
    """What tells the client of *error*."""
    refused = error_response(error)
    return Answer(refused.status_code, refused.raw_headers, bytes(refused.body))


def _told_length(headers: Mapping[bytes, bytes]) -> str | None:
    """What the client says of the length of the JSON, if it does."""
    length = headers.get(_HEADER_LENGTH)
    return None if length is None else length.decode("latin-1")


def _headers(encoded: EncodedResponse, content: bytes, coding: str | None) -> list[tuple[bytes, bytes]]:
    """The headers of a response of *content*."""
    length = encoded.header_length
    headers = [(b"content-length", b"%d" % len(content)), _JSON if length is None else _BINARY]
    if length is not None:
        headers.append((_HEADER_LENGTH, b"%d" % length))
    if coding is not None:
        headers.append((b"content-encoding", coding.encode()))
    return headers
