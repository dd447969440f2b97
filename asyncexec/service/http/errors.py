"""What an HTTP client is told of an error: a status, and ``{"error": text}``."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from asyncexec.framework.errors import Code, OpError
from asyncexec.service.client_errors import told_to_client

CLIENT_CLOSED_REQUEST: Final = 499  # nginx's number for a client that has gone; nobody sees it but the log

_LOG: Final = logging.getLogger("asyncexec.service")
STATUSES: Final[Mapping[Code, int]] = {
    Code.CANCELLED: CLIENT_CLOSED_REQUEST,
    Code.INVALID_ARGUMENT: 400,
    Code.DEADLINE_EXCEEDED: 504,
    Code.NOT_FOUND: 404,
    Code.ALREADY_EXISTS: 400,
    Code.PERMISSION_DENIED: 403,
    Code.RESOURCE_EXHAUSTED: 503,
    Code.FAILED_PRECONDITION: 400,
    Code.UNIMPLEMENTED: 501,
    Code.UNAVAILABLE: 503,
    Code.UNAUTHENTICATED: 401,
}
_RETRIED: Final = (429, 503)
_INTERNAL: Final = 500
_MOST_CHARACTERS: Final = 2048  # of an error's text, which may repeat what the client sent


def json_response(content: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """*content* as JSON."""
    return Response(orjson.dumps(content), status, headers, "application/json")


def error_response(error: Exception, statuses: Mapping[Code, int] = STATUSES) -> Response:
    """What tells the client of *error*; one that is not for clients is logged, and its text is not sent."""
    if isinstance(error, OpError):
        code, text = told_to_client(error)
        status = statuses.get(code, _INTERNAL)
        return _response(status, text, {"Retry-After": "1"} if status in _RETRIED else None)
    if isinstance(error, HTTPException):
        return _response(error.status_code, error.detail, dict(error.headers or {}))
    if isinstance(error, ClientDisconnect):
        return _response(CLIENT_CLOSED_REQUEST, "the client has gone")
    _LOG.exception("an HTTP request failed", exc_info=error)
    return _response(_INTERNAL, "internal error")


def _response(status: int, text: str, headers: dict[str, str] | None = None) -> Response:
    text = text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}..."
    return json_response({"error": text.encode(errors="replace").decode()}, status, headers)
