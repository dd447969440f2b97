"""The end of a service under load: every request that it has accepted is answered.

A request over HTTP is accepted when the system has made the connection, and all of the request has arrived before the
service closes it.  A call over gRPC is accepted unless it ends with UNAVAILABLE, which tells that nothing has been run.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter

import grpc
import numpy as np
import pytest

from asyncexec.service.open_streams import SHUTTING_DOWN
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
    pytest.mark.allow_blocking,
    pytest.mark.one_of("loop"),
    pytest.mark.usefixtures("grpc_library"),
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a port close without resetting connections"),
]

NUM_HTTP, NUM_GRPC, NUM_STREAMS = 32, 8, 4
NUM_TRIALS, NUM_TRIALS_DEEP = 2, 20
NUM_BEFORE = 200  # answers, before the service is told to end
NUM_HELD = 40  # calls over each protocol
NUM_STREAMED = 10  # requests of a stream


class Callers:
    """Callers that ask as fast as they can, until they are refused.

    Attributes:
        answered: how many requests were.
        unanswered: what became of the others.
    """

    def __init__(self, server: LoadServer) -> None:
        self.server = server
        self.answered = 0
        self.unanswered: Counter[str] = Counter()
        self.has_load = asyncio.Event()

    def note_answer(self) -> None:
        self.answered += 1
        if self.answered >= NUM_BEFORE:
            self.has_load.set()

    async def over_http(self, *, keeps: bool) -> None:
        """One request a connection, or many where the caller *keeps* its connection."""
        while True:
            try:
                async with connected(self.server.http) as (reader, writer):
                    await self._ask_on(reader, writer, keeps=keeps)
            except ConnectionRefusedError:
                return

    async def _ask_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, keeps: bool) -> None:
        is_last = False
        while not is_last:
            try:
                writer.write(infer("identity", float(self.answered)))
                answer = await read_answer(reader)
            except (ConnectionError, asyncio.IncompleteReadError) as error:
                self.unanswered[repr(error)] += 1
                return
            assert answer.status == 200
            self.note_answer()
            is_last = answer.is_last or not keeps

    async def over_grpc(self) -> None:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self.server.grpc}") as channel:
            call = channel.unary_unary(method("ModelInfer"))
            while True:
                try:
                    await call(infer_message("identity", 1.0))
                except grpc.aio.AioRpcError as error:
                    if error.code() is not grpc.StatusCode.UNAVAILABLE:
                        self.unanswered[repr(error)] += 1
                    if error.details() != SHUTTING_DOWN:  # nobody listens
                        return
                else:
                    self.note_answer()

    async def over_streams(self) -> None:
        """One stream after another, with a request each: to write to one that has ended hides why it has."""
        refused = 0
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self.server.grpc}") as channel:
            while refused < 2:
                stream = channel.stream_stream(method("ModelStreamInfer"))()
                try:
                    await stream.write(infer_message("identity", 1.0))
                except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                    refused += 1
                    continue
                try:
                    assert await stream.read() is not grpc.aio.EOF
                except grpc.aio.AioRpcError as error:
                    if error.code() is not grpc.StatusCode.UNAVAILABLE:
                        self.unanswered[repr(error)] += 1
                    refused += 1
                else:
                    self.note_answer()
                    stream.cancel()


@pytest.mark.parametrize(
    "trial",
    [
        *range(NUM_TRIALS),
        *(pytest.param(trial, marks=pytest.mark.deep) for trial in range(NUM_TRIALS, NUM_TRIALS_DEEP)),
    ],
)
async def test_what_is_accepted_under_load_is_answered(trial: int) -> None:
    async with nothing_of_grpc_left(), load_server() as server:
        callers = Callers(server)
        async with asyncio.TaskGroup() as tasks:
            for i in range(NUM_HTTP):
                tasks.create_task(callers.over_http(keeps=i % 2 == 0))
            for _ in range(NUM_GRPC):
                tasks.create_task(callers.over_grpc())
            for _ in range(NUM_STREAMS):
                tasks.create_task(callers.over_streams())
            await callers.has_load.wait()
            server.terminate()
        assert callers.unanswered == {}
        assert await server.end() == {"tasks": 1, "running": 0, "answered": callers.answered}


async def test_what_is_under_way_is_answered() -> None:
    async def over_http(value: float) -> float:
        async with connected(server.http) as (reader, writer):
            writer.write(infer("held", value))
            answer = await read_answer(reader)
            assert answer.is_last
            return float(answer.data[0])

    async def over_grpc(value: float) -> float:
        answer = message("ModelInferResponse").FromString(await call(infer_message("held", value)))
        return float(np.frombuffer(answer.raw_output_contents[0], np.float32)[0])

    async def over_stream() -> list[float]:
        """The answers to many requests on a stream that the client does not end."""
        stream = channel.stream_stream(method("ModelStreamInfer"))()
        for value in range(NUM_STREAMED):
            await stream.write(infer_message("held", value))
        found = []
        for _ in range(NUM_STREAMED):
            response = message("ModelStreamInferResponse").FromString(await stream.read()).infer_response
            found.append(float(np.frombuffer(response.raw_output_contents[0], np.float32)[0]))
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stream.read()
        assert (raised.value.code(), raised.value.details()) == (grpc.StatusCode.UNAVAILABLE, SHUTTING_DOWN)
        return found

    async with (
        nothing_of_grpc_left(),
        load_server() as server,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.grpc}") as channel,
    ):
        call = channel.unary_unary(method("ModelInfer"))
        num_held = 2 * NUM_HELD + NUM_STREAMED
        calls = [asyncio.create_task(ask(value)) for ask in (over_http, over_grpc) for value in range(NUM_HELD)]
        streamed = asyncio.create_task(over_stream())
        await server.until(lambda found: found["running"] == num_held)
        server.terminate()
        while True:
            try:
                async with connected(server.http):
                    await asyncio.sleep(0.01)
            except ConnectionRefusedError:
                break
        assert (await server.ask("release"))["running"] == num_held
        assert await asyncio.gather(*calls) == [*range(NUM_HELD)] * 2
        assert await streamed == [*range(NUM_STREAMED)]
        assert await server.end() == {"tasks": 1, "running": 0, "answered": num_held}
