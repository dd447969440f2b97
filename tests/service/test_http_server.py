"""The HTTP server: what comes over a connection, byte by byte, that no HTTP library would send."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httptools
import pytest

import asyncexec as ax
from asyncexec.service.http.server import BoundedProtocol
from asyncexec.service.server import Ports, serving
from tests.service.http_models import calling, unary
from tests.service.models import until

pytestmark = pytest.mark.allow_blocking  # uvicorn closes its sockets in the loop

BODY = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[2],"data":[1,2]}]}'
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
CHUNKED = b"Transfer-Encoding: chunked\r\n"
CHUNKS = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
POST = b"POST /v2/models/m/infer HTTP/1.1\r\nHost: a\r\n"
GET = b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n"
H2C = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"
UNKNOWN = b"Connection: Upgrade\r\nUpgrade: a/1, b\r\n"
END = b"\r\n"
LAST = GET + b"Connection: close\r\n\r\n"  # the server closes the connection after it


@pytest.fixture
async def ports() -> AsyncIterator[Ports]:
    async with serving({"m": unary(ax.float32, [None], ax.identity)}, http_port=0, grpc_port=None) as found:
        yield found


class Answers:
    """The statuses and bodies of the answers in what a server has sent."""

    def __init__(self, data: bytes) -> None:
        self.statuses: list[int] = []
        self.bodies: list[bytes] = []
        self.is_whole = True
        self._parser = httptools.HttpResponseParser(self)
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self.is_whole = False
        self.bodies.append(b"")

    def on_headers_complete(self) -> None:
        self.statuses.append(self._parser.get_status_code())

    def on_body(self, body: bytes) -> None:
        self.bodies[-1] += body

    def on_message_complete(self) -> None:
        self.is_whole = True


async def answers(ports: Ports, *parts: bytes) -> Answers:
    """What is answered to *parts*, until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", ports.http)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
        found = Answers(await reader.read())
    finally:
        writer.close()
    assert found.is_whole
    return found


@pytest.mark.parametrize("upgrade", [b"", H2C, UNKNOWN], ids=["", "h2c", "unknown"])
@pytest.mark.parametrize("framing", [LENGTH, CHUNKED])
async def test_the_body_of_a_request_is_read_whatever_it_may_be_upgraded_to(
    ports: Ports, upgrade: bytes, framing: bytes
) -> None:
    request = POST + upgrade + framing + END + (BODY if framing == LENGTH else CHUNKS)
    for parts in ([request, LAST], [request + LAST], [request[i : i + 1] for i in range(len(request))] + [LAST]):
        found = await answers(ports, *parts)
        assert found.statuses == [200, 200]
        assert b'"data":[1.0,2.0]' in found.bodies[0]


async def test_many_requests_at_once_that_ask_for_another_protocol(ports: Ports) -> None:
    request = GET + b"Connection: upgrade\r\nUpgrade: h2c\r\n\r\n"
    assert (await answers(ports, request * 600 + LAST)).statuses == [200] * 601


AMBIGUOUS = {
    "both lengths": POST + LENGTH + CHUNKED + END + CHUNKS,
    "two lengths": POST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "a length twice": POST + LENGTH + LENGTH + END + BODY,
    "a signed length": POST + b"Content-Length: +3\r\n\r\nabc",
    "a negative length": POST + b"Content-Length: -1\r\n\r\nabc",
    "a long length": POST + b"Content-Length: 99999999999999999999999\r\n\r\nabc",
    "a length in hex": POST + b"Content-Length: 0x3\r\n\r\nabc",
    "another coding": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunked is not last": POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "a space before the colon": POST + b"Content-Length : 3\r\n\r\nabc",
    "a folded header": POST + b"X: a\r\n Content-Length: 3\r\n\r\nabc",
    "a bare line feed": b"POST /v2/models/m/infer HTTP/1.1\nHost: a\n" + LENGTH + b"\n" + BODY,
    "a bare carriage return": POST + b"X: a\rContent-Length: 3\r\n\r\nabc",
    "NUL in a header": POST + b"X: a\0b\r\n\r\n",
    "a huge chunk": POST + CHUNKED + b"\r\nffffffffffffffffff\r\na\r\n",
    "a negative chunk": POST + CHUNKED + b"\r\n-1\r\na\r\n",
    "no end of a chunk": POST + CHUNKED + b"\r\n1\r\naa\r\n0\r\n\r\n",
    "a path that is no ASCII": b"GET /v2/\xff HTTP/1.1\r\nHost: a\r\n\r\n",
    "no path": b"GET http://a HTTP/1.1\r\nHost: a\r\n\r\n",
    "a malformed address": b"GET http://[::1 HTTP/1.1\r\nHost: a\r\n\r\n",
    "a tunnel": b"CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n",
    "another version": b"GET /v2 HTTP/2.5\r\nHost: a\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "an unknown method": b"FETCH /v2 HTTP/1.1\r\nHost: a\r\n\r\n",
    "TLS": bytes.fromhex("1603010200010001fc0303"),
}


@pytest.mark.parametrize("request_", AMBIGUOUS.values(), ids=AMBIGUOUS.keys())
async def test_what_may_be_read_in_two_ways_is_refused_with_all_that_follows(ports: Ports, request_: bytes) -> None:
    assert (await answers(ports, request_ + LAST)).statuses == [400]
    assert (await answers(ports, LAST)).statuses == [200]


async def test_what_is_no_request_takes_no_answer_away(ports: Ports) -> None:
    good = POST + LENGTH + END + BODY
    for first in (good, GET + END, good * 3, POST + H2C + LENGTH + END + BODY):
        found = await answers(ports, first + b"\0\0\0")
        assert found.statuses == [200] * first.count(b"Host")
    assert (await answers(ports, POST + CHUNKED + END + b"\0")).statuses == [400]


@pytest.mark.parametrize(
    "request_",
    [POST + CHUNKED + END + b"1;", POST + CHUNKED + END + CHUNKS[:-2] + b"A: ", GET + b"A: "],
    ids=["the extension of a chunk", "a header after the body", "a header"],
)
async def test_what_goes_on_and_gets_no_further_is_cut_off(ports: Ports, request_: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", ports.http)
    writer.write(request_)
    with contextlib.suppress(ConnectionError):
        while not reader.at_eof():
            writer.write(b"a" * 2**12)
            await writer.drain()
            await asyncio.sleep(0)
    writer.close()
    assert (await answers(ports, LAST)).statuses == [200]


async def test_a_large_body_with_the_next_request_after_it(ports: Ports) -> None:
    large = BODY.replace(b"[1,2]", b"[1,2" + b" " * 300_000 + b"]")
    request = POST + b"Content-Length: %d\r\n\r\n" % len(large) + large
    for parts in ([request + LAST[:20], LAST[20:]], [request, LAST]):
        assert (await answers(ports, *parts)).statuses == [200, 200]


async def test_few_of_many_requests_at_once_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, released = asyncio.Event(), asyncio.Event()
    kept = 0
    complete = BoundedProtocol.on_headers_complete

    def counting(self: Any) -> None:
        nonlocal kept
        complete(self)
        kept = max(kept, len(self.pipeline))

    monkeypatch.setattr(BoundedProtocol, "on_headers_complete", counting)

    async def wait(x: Any) -> Any:
        begun.set()
        await released.wait()
        return x

    body = BODY.replace(b"[2]", b"[]").replace(b"[1,2]", b"[1]")
    slow = POST + b"Content-Length: %d\r\n\r\n" % len(body) + body
    small = GET + b"X: %b\r\n\r\n" % (b"a" * 1000)
    count, most = 2_000, 2 * 2**18 // len(small)  # two reads
    async with serving({"m": calling(wait)}, http_port=0, grpc_port=None) as ports:
        sending = asyncio.create_task(answers(ports, slow, small * count, LAST))
        await begun.wait()
        await until(lambda: kept > 0)
        released.set()
        found = await sending
    assert found.statuses == [200] * (count + 2)
    assert 0 < kept <= most


@pytest.mark.parametrize("behind", [b"", GET + END, LAST], ids=["nothing", "a request", "the last one"])
async def test_a_request_ends_with_its_client_whatever_comes_behind_it(behind: bytes) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def wait(x: Any) -> Any:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return x

    body = BODY.replace(b"[2]", b"[]").replace(b"[1,2]", b"[1]")
    async with serving({"m": calling(wait)}, http_port=0, grpc_port=None) as ports:
        _, writer = await asyncio.open_connection("127.0.0.1", ports.http)
        writer.write(POST + b"Content-Length: %d\r\n\r\n" % len(body) + body + behind)
        await begun.wait()
        writer.close()
        await ended.wait()
