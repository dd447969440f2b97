"""Rows of the service: the processor time of a request, beside a server written by hand, and what batches gain.

Servers are processes of their own, and their own clocks tell what they have used; callers are in this one.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

import asyncexec as ax
from asyncexec.framework.extras import is_installed, require
from benchmarks.measure import Contestant, Settings, alternate, ratios
from benchmarks.report import FLOOR, OURS, Benchmark, Row, Target
from benchmarks.runs import US_PER_S
from benchmarks.service_processes import HEADER, NUM_FLOATS

NUM_REQUESTS: Final = 400  # a round
NUM_CALLERS: Final = 8
MAX_RATIO: Final = 1.25
NUM_BATCHED_CALLERS: Final = 64
NUM_BATCHED_REQUESTS: Final = 1280  # a round: its begin and its end, where few wait, are to count little
LEAST_GAIN: Final = 4
WARM_ROUNDS: Final = 3

CALLS: Final = ("json", "binary", "grpc", "stream")

Ask = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Server:
    """The ports of a server in another process."""

    http: int
    grpc: int
    clock: int

    async def cpu_s(self) -> float:
        """The processor time that it has used."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.clock)
        told = await reader.read()
        writer.close()
        return int(told) / 1e9


@asynccontextmanager
async def server(name: str) -> AsyncIterator[Server]:
    """A server of ``benchmarks.service_processes``."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.service_processes", name),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield Server(*map(int, (await process.stdout.readline()).split()))
    finally:
        process.stdin.close()
        await process.wait()


def json_body(model: str = "identity", shape: Sequence[int] = (NUM_FLOATS,)) -> tuple[str, dict[str, str], bytes]:
    """The path, headers and body of a request in JSON."""
    values = np.ones(shape, np.float32)
    name = "images" if model.startswith("digits") else "x"
    given = {"name": name, "datatype": "FP32", "shape": list(shape), "data": values.ravel().tolist()}
    headers = {"Content-Type": "application/json"}
    return f"/v2/models/{model}/infer", headers, require("orjson", extra="serve").dumps({"inputs": [given]})


def binary_body() -> tuple[str, dict[str, str], bytes]:
    """The same with binary data."""
    raw = np.ones(NUM_FLOATS, np.float32).tobytes()
    given = {
        "name": "x",
        "datatype": "FP32",
        "shape": [NUM_FLOATS],
        "parameters": {"binary_data_size": len(raw)},
    }
    asked = {"inputs": [given], "parameters": {"binary_data_output": True}}
    head = require("orjson", extra="serve").dumps(asked)
    return "/v2/models/identity/infer", {HEADER: str(len(head))}, head + raw


@asynccontextmanager
async def http_caller(port: int, path: str, headers: dict[str, str], body: bytes) -> AsyncIterator[Ask]:
    """Asks over one connection that is kept."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    told = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    request = f"POST {path} HTTP/1.1\r\nHost: test\r\n{told}Content-Length: {len(body)}\r\n\r\n".encode() + body

    async def ask() -> None:
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0])
        answer = await reader.readexactly(length)
        if not head.startswith(b"http/1.1 200"):
            raise RuntimeError(answer.decode(errors="replace"))

    try:
        yield ask
    finally:
        writer.close()


@asynccontextmanager
async def grpc_caller(port: int) -> AsyncIterator[Ask]:
    """Asks over one channel."""
    from asyncexec.service.protocol_messages import SERVICE

    data = _infer_message()
    grpc = require("grpc", extra="serve")
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary(f"/{SERVICE}/ModelInfer")

        async def ask() -> None:
            await call(data)

        yield ask


@asynccontextmanager
async def stream_caller(port: int) -> AsyncIterator[Ask]:
    """Asks on one stream that stays open, one request at a time."""
    from asyncexec.service.protocol_messages import SERVICE

    data = _infer_message()
    grpc = require("grpc", extra="serve")
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stream = channel.stream_stream(f"/{SERVICE}/ModelStreamInfer")()

        async def ask() -> None:
            await stream.write(data)
            await stream.read()

        yield ask
        stream.cancel()


def _infer_message() -> bytes:
    from asyncexec.service.protocol_messages import message

    request = message("ModelInferRequest")(model_name="identity")
    request.inputs.add(name="x", datatype="FP32", shape=[NUM_FLOATS])
    request.raw_input_contents.append(np.ones(NUM_FLOATS, np.float32).tobytes())
    data: bytes = request.SerializeToString()
    return data


async def _ask_all(askers: Sequence[Ask], count: int) -> None:
    """*count* requests, as many at a time as there are *askers*."""

    async def ask_on(ask: Ask) -> None:
        for _ in range(count // len(askers)):
            await ask()

    await asyncio.gather(*map(ask_on, askers))


async def _race(call: str, settings: Settings) -> Any:
    async with AsyncExitStack() as stack:
        contestants = []
        for name, which in ((OURS, "ours"), (FLOOR, "by_hand")):
            found = await stack.enter_async_context(server(which))
            askers = [await stack.enter_async_context(_caller(call, found)) for _ in range(NUM_CALLERS)]
            for _ in range(WARM_ROUNDS):
                await _ask_all(askers, NUM_REQUESTS)
            contestants.append(Contestant(name, partial(_cpu_of_a_request, found, askers)))
        return await alternate(contestants, settings, rounds=5)


def _caller(call: str, found: Server) -> Any:
    if call == "grpc":
        return grpc_caller(found.grpc)
    if call == "stream":
        return stream_caller(found.grpc)
    return http_caller(found.http, *(json_body() if call == "json" else binary_body()))


async def _cpu_of_a_request(found: Server, askers: Sequence[Ask]) -> float:
    begun = await found.cpu_s()
    await _ask_all(askers, NUM_REQUESTS)
    return (await found.cpu_s() - begun) / NUM_REQUESTS


def measure_cpu(call: str, settings: Settings) -> Row:
    """Microseconds of the server's processor time a request."""
    times = {name: each.scaled(US_PER_S) for name, each in ax.run(_race(call, settings)).items()}
    found = ratios(times[OURS], [times[FLOOR]])
    target = Target(f"at most {MAX_RATIO:g} of by hand", None if found is None else found[0], MAX_RATIO)
    return Row(f"service_{call}", "µs of CPU", times, (target,))


async def _race_of_batches(settings: Settings) -> Any:
    async with AsyncExitStack() as stack:
        found = await stack.enter_async_context(server("ours"))
        contestants = []
        for name, model in ((OURS, "digits_batched"), (FLOOR, "digits")):
            asked = json_body(model, (1, 8, 8, 1))
            enter = stack.enter_async_context
            askers = [await enter(http_caller(found.http, *asked)) for _ in range(NUM_BATCHED_CALLERS)]
            for _ in range(WARM_ROUNDS):
                await _ask_all(askers, NUM_REQUESTS)
            contestants.append(Contestant(name, partial(_seconds_of_a_request, askers)))
        return await alternate(contestants, settings, rounds=5)


async def _seconds_of_a_request(askers: Sequence[Ask]) -> float:
    begun = time.perf_counter()
    await _ask_all(askers, NUM_BATCHED_REQUESTS)
    return (time.perf_counter() - begun) / NUM_BATCHED_REQUESTS


def measure_batches(settings: Settings) -> Row:
    """Microseconds a request of the digits model; the floor is the same service without batches."""
    times = {name: each.scaled(US_PER_S) for name, each in ax.run(_race_of_batches(settings)).items()}
    found = ratios(times[OURS], [times[FLOOR]])
    limit = 1 / LEAST_GAIN
    target = Target(f"at most {limit:g} of one at a time", None if found is None else found[0], limit)
    return Row("service_batches", "µs a request", times, (target,))


CAN_SERVE: Final = all(map(is_installed, ("grpc", "orjson", "starlette", "uvicorn")))
BENCHMARKS: Final = (
    *(Benchmark(f"service_{call}", partial(measure_cpu, call)) for call in CALLS if CAN_SERVE),
    *((Benchmark("service_batches", measure_batches),) if CAN_SERVE else ()),
)
