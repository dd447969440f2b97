"""Bodies of HTTP requests and responses: limited, compressed, and worked on outside the event loop where large."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import Mapping
from typing import Final

import anyio.to_thread
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.service.begun import Begun
from asyncexec.service.held_bytes import SMALL_BYTES, HeldBytes
from asyncexec.service.off_loop import off_loop as off_loop

WORTH_COMPRESSING_BYTES: Final = 2**10
_FAST: Final = 1  # zlib's level
_MOST_DIGITS: Final = 18
_CODINGS: Final = ("gzip", "deflate")
_GZIP_BITS, _ZLIB_BITS, _RAW_BITS = zlib.MAX_WBITS + 16, zlib.MAX_WBITS, -zlib.MAX_WBITS


async def read_body(
    headers: Mapping[bytes, bytes], receive: Receive, max_bytes: int, timeout_s: float, held: HeldBytes
) -> bytes:
    """The body of a request with these *headers*, decompressed.

    Raises:
        HTTPException: 408, it has not come within *timeout_s*; 413, it has more than *max_bytes*, compressed or not;
            415, its coding is not known.
        InvalidArgumentError: it is not what its coding says.
        UnavailableError: all requests together hold too many bytes; *held* are those of this one.
    """
    coding = _coding(headers) if b"content-encoding" in headers else None
    received = Begun(_received(headers, receive, max_bytes, held))
    if received.has_ended:  # it came with the headers
        body = received.value or b""
    else:
        try:
            async with asyncio.timeout(timeout_s):
                body = await received
        except TimeoutError:
            raise HTTPException(408, f"the body has not come within {timeout_s:g} s", {"Connection": "close"}) from None
    if coding is None:
        return body
    # A thread even where it is small: what it becomes may be 1000 times as large.
    content = await anyio.to_thread.run_sync(_decompressed, body, coding, max_bytes)
    held.grow_to(len(content))
    return content


def _coding(headers: Mapping[bytes, bytes]) -> str | None:
    coding = headers[b"content-encoding"].decode("latin-1").strip().lower()
    if coding in _CODINGS:
        return coding
    if coding in ("", "identity"):
        return None
    raise HTTPException(415, f"content-encoding '{coding}' is not known", {"Accept-Encoding": ", ".join(_CODINGS)})


async def _received(headers: Mapping[bytes, bytes], receive: Receive, max_bytes: int, held: HeldBytes) -> bytes:
    told = headers.get(b"content-length", b"")
    if told.isdigit() and (len(told) > _MOST_DIGITS or int(told) > max_bytes):
        raise _too_large(max_bytes)
    chunks: list[bytes] = []
    size = 0
    has_more = True
    while has_more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > max_bytes:
            raise _too_large(max_bytes)
        if size > SMALL_BYTES:
            held.grow_to(size)
        chunks.append(chunk)
        has_more = message.get("more_body", False)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _too_large(max_bytes: int) -> HTTPException:
    # What the client still sends is read and dropped: it would not see the answer if the connection were closed.
    return HTTPException(413, f"the body of a request has at most {max_bytes} bytes")


def _decompressed(body: bytes, coding: str, max_bytes: int) -> bytes:
    bits = _GZIP_BITS
    if coding == "deflate":
        bits = _ZLIB_BITS if _has_zlib_header(body) else _RAW_BITS  # clients send one or the other
    stream = zlib.decompressobj(bits)
    try:
        content = stream.decompress(body, max_bytes + 1)
    except zlib.error as error:
        raise InvalidArgumentError(f"the body is not {coding}: {error}") from None
    if len(content) > max_bytes:
        raise _too_large(max_bytes)
    if not stream.eof:
        raise InvalidArgumentError(f"the body ends before its {coding} does")
    if stream.unused_data:  # a second member, say: reading very many empty ones would take quadratic time
        raise InvalidArgumentError(f"{len(stream.unused_data)} bytes follow the {coding} of the body")
    return content


def _has_zlib_header(body: bytes) -> bool:
    return len(body) > 1 and body[0] & 0x0F == zlib.DEFLATED and int.from_bytes(body[:2], "big") % 31 == 0


async def compressed(content: bytes, headers: Mapping[bytes, bytes]) -> tuple[bytes, str | None]:
    """*content*, and how it is coded, for a client that sent *headers*: compressed where it accepts that and gains."""
    if len(content) <= WORTH_COMPRESSING_BYTES:
        return content, None
    coding = _accepted(headers.get(b"accept-encoding", b"").decode("latin-1"))
    if coding is None:
        return content, None
    return await off_loop(len(content), _compressed, content, coding), coding


def _compressed(content: bytes, coding: str) -> bytes:
    return gzip.compress(content, _FAST, mtime=0) if coding == "gzip" else zlib.compress(content, _FAST)


def _accepted(accept_encoding: str) -> str | None:
    """The coding to answer with, if any."""
    weights: dict[str, float] = {}
    for part in accept_encoding.split(","):
        coding, _, parameter = part.partition(";")
        weights[coding.strip().lower()] = _weight(parameter.strip().lower())
    any_other = weights.get("*", 0.0)
    return next((coding for coding in _CODINGS if weights.get(coding, any_other) > 0), None)


def _weight(parameter: str) -> float:
    if not parameter:
        return 1.0
    try:
        return float(parameter.removeprefix("q="))
    except ValueError:
        return 0.0
