"""``POST /v2/models/NAME/infer``: what a service is asked for most, as an ASGI app without layers around it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from starlette.types import Receive, Scope, Send

from asyncexec.service.held_bytes import HeldBytes
from asyncexec.service.http.body import compressed, off_loop, read_body
from asyncexec.service.http.calls import unless_disconnected
from asyncexec.service.http.codec import MAX_JSON_BYTES, EncodedResponse, decode_infer, encode_infer
from asyncexec.service.http.errors import error_response
from asyncexec.service.http.observer import Answered
from asyncexec.service.models.model import check_one_response
from asyncexec.service.models.repository import ModelRepository
from asyncexec.service.shared_memory import SharedMemory

_HEADER_LENGTH: Final = b"inference-header-content-length"
_JSON: Final = (b"content-type", b"application/json")
_BINARY: Final = (b"content-type", b"application/octet-stream")


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

    async def answer(self, name: str, version: str, scope: Scope, receive: Receive, send: Send) -> Answered:
        """Answer a request to the *version* of the model of that *name*; "" is the newest."""
        with HeldBytes() as held:
            return await self._answer(name, version, scope, receive, send, held)

    async def _answer(
        self, name: str, version: str, scope: Scope, receive: Receive, send: Send, held: HeldBytes
    ) -> Answered:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        body = b""
        try:
            self._repository.model(name, version)  # an unknown one is refused before its inputs are read
            length = headers.get(_HEADER_LENGTH)
            most = self._max_json_bytes if length is None else self._max_body_bytes
            body = await read_body(headers, receive, most, self._body_timeout_s, held)
            model = self._repository.model(name, version)
            check_one_response(model, "HTTP end point")
            with model.held():
                told = None if length is None else length.decode("latin-1")
                call = await off_loop(len(body), decode_infer, model, version, body, told)
                response = await unless_disconnected(receive, self._shared.infer(model, call.request))
            encoded = await off_loop(response.num_bytes, encode_infer, call, response)
            content, coding = await compressed(encoded.content, headers)
        except Exception as error:
            refused = error_response(error)
            await refused(scope, receive, send)
            return refused.status_code, len(body), len(refused.body)
        start = {"type": "http.response.start", "status": 200, "headers": _headers(encoded, content, coding)}
        await send(start)
        await send({"type": "http.response.body", "body": content})
        return 200, len(body), len(content)


def _headers(encoded: EncodedResponse, content: bytes, coding: str | None) -> list[tuple[bytes, bytes]]:
    """The headers of a response of *content*."""
    length = encoded.header_length
    headers = [(b"content-length", b"%d" % len(content)), _JSON if length is None else _BINARY]
    if length is not None:
        headers.append((_HEADER_LENGTH, b"%d" % length))
    if coding is not None:
        headers.append((b"content-encoding", coding.encode()))
    return headers
