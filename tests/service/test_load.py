"""The service under load and abuse: typed answers, memory that stays flat, others that are served, and nothing left.

The service is a process of its own, whose memory, files and tasks are looked at.  No time is asserted.
"""

from __future__ import annotations

import asyncio
import gzip
import resource
import socket
import struct
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import pytest

from asyncexec.service.protocol_messages import message
from tests.service.conftest import nothing_of_grpc_left
from tests.service.load_client import (
    LoadServer,
    connected,
    infer,
    infer_message,
    load_server,
    method,
    read_answer,
)

pytestmark = [
    pytest.mark.deep,
    pytest.mark.allow_blocking,
    pytest.mark.usefixtures("grpc_library"),
    pytest.mark.skipif(sys.platform != "linux", reason="looks at the process as Linux shows it"),
    pytest.mark.timeout(300),
]

MB = 2**20
MANY_CONNECTIONS = 10_000
SPARE_FILES = 500  # of a process that has so many connections
IN_FLIGHT = 1_000
LATE_FILES = 5  # gRPC closes the last few of its connections when others come
HEAD = b"POST /v2/models/identity/infer HTTP/1.1\r\nHost: a\r\n"
RESET = struct.pack("ii", 1, 0)


@pytest.fixture
def many_files() -> int:
    """How many connections this process and a child may have; the limit is raised as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MANY_CONNECTIONS + SPARE_FILES
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
    return most - SPARE_FILES


@dataclass
class Watched:
    """A server, and what it had before it was under load."""

    server: LoadServer
    before: dict[str, int]
    files: int
    memory_mb: float

    @property
    def grown_mb(self) -> float:
        return self.server.memory_mb - self.memory_mb

    async def is_served(self, value: float = 7.0) -> bool:
        """Whether somebody else is served, over both protocols."""
        async with connected(self.server.http) as (reader, writer):
            writer.write(infer("identity", value))
            over_http = (await read_answer(reader)).data == [value]
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self.server.grpc}") as channel:
            answer = await channel.unary_unary(method("ModelInfer"))(infer_message("identity", value))
        return over_http and message("ModelInferResponse").FromString(answer).outputs[0].shape == [1]


@asynccontextmanager
async def watched() -> AsyncIterator[Watched]:
    """A server that serves afterwards as before, with no task, step or file more."""
    async with nothing_of_grpc_left(), load_server() as server:
        found = Watched(server, {}, 0, 0.0)
        for _ in range(20):
            assert await found.is_served()
        found.before = await server.until(lambda told: told["running"] == 0)
        await _settled(lambda: server.num_files)
        found.files, found.memory_mb = server.num_files, server.memory_mb
        yield found
        assert await found.is_served()
        # The test's own timeout ends these.
        await server.until(lambda told: told["running"] == 0 and told["tasks"] <= found.before["tasks"])
        while server.num_files > found.files + LATE_FILES:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def _settled(value: Callable[[], int]) -> None:
    """Ends when *value* has been the same for a while."""
    seen = [value()]
    while len(seen) < 10 or len(set(seen[-10:])) > 1:
        await asyncio.sleep(0.02)
        seen.append(value())


def reset(writer: asyncio.StreamWriter) -> None:
    """Let the connection vanish: the server gets a RST."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    writer.transport.abort()


async def in_groups(count: int, size: int, call: Callable[[int], Any]) -> list[Any]:
    """What *call* gives for the numbers up to *count*, *size* at a time."""
    found: list[Any] = []
    for begin in range(0, count, size):
        found += await asyncio.gather(*(call(i) for i in range(begin, min(count, begin + size))))
    return found


async def test_ten_thousand_connections(many_files: int, record_property: Callable[[str, object], None]) -> None:
    record_property("counts", {"connections": many_files})
    async with watched() as under:
        connections = await in_groups(
            many_files, 500, lambda _: asyncio.open_connection("127.0.0.1", under.server.http)
        )

        async def ask(i: int) -> list[Any]:
            reader, writer = connections[i]
            writer.write(infer("identity", float(i)))
            return (await read_answer(reader)).data

        while under.server.num_files < under.files + many_files:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        assert await under.is_served()
        idle_mb = under.grown_mb
        assert await in_groups(many_files, 500, ask) == [[float(i)] for i in range(many_files)]
        assert idle_mb < many_files * 0.03
        assert under.grown_mb < many_files * 0.04
        for _, writer in connections:
            reset(writer)


async def test_a_thousand_requests_under_way() -> None:
    async with watched() as under, AsyncExitStack() as stack:
        channels = [
            await stack.enter_async_context(
                grpc.aio.insecure_channel(
                    f"127.0.0.1:{under.server.grpc}", options=[("grpc.use_local_subchannel_pool", 1)]
                )
            )
            for _ in range(4)
        ]
        calls = [channel.unary_unary(method("ModelInfer")) for channel in channels]

        async def over_http(value: float) -> Any:
            async with connected(under.server.http) as (reader, writer):
                writer.write(infer("held", value))
                return (await read_answer(reader)).data[0]

        async def over_grpc(value: float) -> Any:
            answer = await calls[int(value) % len(calls)](infer_message("held", value))
            raw = message("ModelInferResponse").FromString(answer).raw_output_contents[0]
            return struct.unpack("f", raw)[0]

        half = IN_FLIGHT // 2
        asked = [asyncio.create_task(ask(float(i))) for i in range(half) for ask in (over_http, over_grpc)]
        await under.server.until(lambda told: told["running"] == IN_FLIGHT)
        assert await under.is_served()
        await under.server.ask("release")
        assert await asyncio.gather(*asked) == [float(i) for i in range(half) for _ in range(2)]
        assert under.grown_mb < 100


async def test_clients_that_vanish_with_a_request_under_way() -> None:
    async with watched() as under:
        ends: list[Callable[[asyncio.StreamWriter], None]] = [reset, lambda writer: writer.transport.abort()]
        for end in ends:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{under.server.grpc}") as channel:
                calls = [channel.unary_unary(method("ModelInfer"))(infer_message("held", 1.0)) for _ in range(100)]
                stream = channel.stream_stream(method("ModelStreamInfer"))()
                for _ in range(10):
                    await stream.write(infer_message("held", 1.0))
                made = await in_groups(200, 50, lambda _: asyncio.open_connection("127.0.0.1", under.server.http))
                for _, writer in made:
                    writer.write(infer("held", 1.0))
                await under.server.until(lambda told: told["running"] == 310)
                for _, writer in made:
                    end(writer)
                for call in calls[::2]:
                    call.cancel()
            await under.server.until(lambda told: told["running"] == 0)
        assert under.grown_mb < 50


async def test_clients_that_vanish_in_the_middle_of_a_request_or_of_an_answer() -> None:
    whole = infer("large", MB, datatype="INT32")  # 4 MB of JSON

    async def vanish(i: int) -> None:
        async with connected(under.server.http) as (reader, writer):
            part = whole if i % 4 == 0 else whole[: i % len(whole)]
            writer.write(part)
            await writer.drain()
            if part is whole:
                await reader.readexactly(100)
            reset(writer)

    async with watched() as under:
        await in_groups(400, 20, vanish)
        await under.server.until(lambda told: told["tasks"] <= under.before["tasks"])
        assert under.grown_mb < 400  # a hundred answers, of 40 MB while they are made


async def test_bodies_that_come_a_byte_at_a_time() -> None:
    async with watched() as under:
        made = await in_groups(300, 50, lambda _: asyncio.open_connection("127.0.0.1", under.server.http))
        for _, writer in made:
            writer.write(HEAD + b"Content-Length: %d\r\n\r\n" % (60 * MB))
        slow, body = infer("identity", 3.0).split(b"\r\n\r\n")
        async with connected(under.server.http) as (reader, writer):
            writer.write(slow + b"\r\n\r\n")
            for byte in body:
                for _, other in made:
                    other.write(b"x")
                writer.write(bytes([byte]))
                await asyncio.sleep(0)
            assert (await read_answer(reader)).data == [3.0]
        assert await under.is_served()
        assert under.grown_mb < 50
        for _, writer in made:
            reset(writer)


def chunks() -> AsyncIterator[bytes]:
    async def of(piece: bytes) -> AsyncIterator[bytes]:
        for _ in range(1024):
            yield b"%x\r\n%b\r\n" % (len(piece), piece)

    return of(bytes(MB))


async def _pieces(piece: bytes, count: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield piece


@pytest.mark.parametrize("way", ["told", "chunked", "compressed"])
async def test_a_gigabyte_is_refused(way: str) -> None:
    async def send(_: int) -> None:
        headers, pieces = {
            "told": (b"Content-Length: %d\r\n" % 2**30, _pieces(bytes(MB), 1024)),
            "chunked": (b"Transfer-Encoding: chunked\r\n", chunks()),
            "compressed": (b"Content-Encoding: gzip\r\nContent-Length: %d\r\n" % len(bomb), _pieces(bomb, 1)),
        }[way]
        async with connected(under.server.http) as (reader, writer):
            writer.write(HEAD + b"Inference-Header-Content-Length: 2\r\n" + headers + b"\r\n")  # no JSON, which is less
            answering = asyncio.create_task(read_answer(reader))
            async for piece in pieces:  # as a client that does not look at the answer before it has sent all
                writer.write(piece)
                await writer.drain()
            answer = await answering
            assert answer.status == 413
            assert answer.body == b'{"error":"the body of a request has at most 67108864 bytes"}'
            nonlocal most
            most = max(most, under.grown_mb)

    bomb = b"" if way != "compressed" else await asyncio.to_thread(gzip.compress, bytes(2**30), 1)
    most = 0.0
    async with watched() as under:
        for i in range(2):
            await send(i)
        assert most < (150 if way == "told" else 400)
        await asyncio.gather(*map(send, range(4)))
        assert await under.is_served()


@pytest.mark.parametrize("name", ["ModelInfer", "ModelStreamInfer"])
async def test_messages_past_the_limit_are_refused(name: str) -> None:
    async with (
        watched() as under,
        grpc.aio.insecure_channel(
            f"127.0.0.1:{under.server.grpc}", options=[("grpc.max_send_message_length", -1)]
        ) as channel,
    ):
        large = bytes(100 * MB)
        for _ in range(30):
            if name == "ModelInfer":
                call = channel.unary_unary(method(name))(large)
            else:
                call = channel.stream_stream(method(name))()
                await call.write(large)
            assert await call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert under.grown_mb < 500  # the allocator of gRPC's threads keeps some; 30 messages have 3 GB


async def test_readers_that_do_not_read() -> None:
    async with watched() as under:
        asked = infer("large", MB, datatype="INT32")  # 4 MB of JSON
        made = await in_groups(20, 20, lambda _: asyncio.open_connection("127.0.0.1", under.server.http, limit=1024))
        for _, writer in made:
            for _ in range(50):
                writer.write(asked)
        for _ in range(20):
            assert await under.is_served()
        assert under.grown_mb < 20 * 4 * 8
        for _, writer in made:
            reset(writer)


async def test_connections_that_come_and_go() -> None:
    async def come_and_go(i: int) -> None:
        async with connected(under.server.http) as (reader, writer):
            if i % 3:
                writer.write(infer("identity", float(i)))
                assert (await read_answer(reader)).data == [float(i)]
            if i % 2:
                reset(writer)

    async with watched() as under:
        await in_groups(5_000, 50, come_and_go)
        async with AsyncExitStack() as stack:
            for _ in range(200):
                channel = grpc.aio.insecure_channel(
                    f"127.0.0.1:{under.server.grpc}", options=[("grpc.use_local_subchannel_pool", 1)]
                )
                await stack.enter_async_context(channel)
                await channel.unary_unary(method("ModelInfer"))(infer_message("identity", 1.0))
        assert under.grown_mb < 50
