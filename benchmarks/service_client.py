"""Rows of the client of the service: the processor time that it takes for a small request.

The server is a process of its own, so the clock of this process tells what its callers have used.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, Final

import numpy as np

import asyncexec as ax
from asyncexec.framework.extras import is_installed, require
from benchmarks.measure import Contestant, Settings, alternate, ratios
from benchmarks.report import FLOOR, OURS, Benchmark, Row, Target
from benchmarks.runs import US_PER_S
from benchmarks.service import Ask, server
from benchmarks.service_processes import NUM_FLOATS

NUM_REQUESTS: Final = 400  # a round
NUM_CALLERS: Final = 8
WARM_ROUNDS: Final = 3
MAX_RATIO: Final = 1.25  # of the same by hand

Open = Callable[[int], Any]  # a caller of the identity on a port


@asynccontextmanager
async def ours(port: int) -> AsyncIterator[Ask]:
    """By ``ax.connect``."""
    x = np.ones(NUM_FLOATS, np.float32)
    async with ax.connect(f"grpc://127.0.0.1:{port}", model="identity") as session:

        async def ask() -> None:
            _check(await session.run("y", {"x": x}))

        yield ask


@asynccontextmanager
async def by_hand(port: int) -> AsyncIterator[Ask]:
    """By a call of grpc.aio, with messages that are made and read by hand."""
    from asyncexec.service.protocol_messages import SERVICE, message

    grpc = require("grpc", extra="client")
    x = np.ones(NUM_FLOATS, np.float32)
    request_class, response_class = message("ModelInferRequest"), message("ModelInferResponse")
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary(
            f"/{SERVICE}/ModelInfer", lambda request: request.SerializeToString(), response_class.FromString
        )

        async def ask() -> None:
            request = request_class(model_name="identity")
            request.inputs.add(name="x", datatype="FP32", shape=x.shape)
            request.outputs.add(name="y")
            request.raw_input_contents.append(x.tobytes())
            response = await call(request)
            (output,) = response.outputs
            _check(np.frombuffer(response.raw_output_contents[0], np.float32).reshape(output.shape).copy())

        yield ask


@asynccontextmanager
async def tritons(port: int) -> AsyncIterator[Ask]:
    """By Triton's own client."""
    library = require("tritonclient.grpc.aio", extra="clients")
    x = np.ones(NUM_FLOATS, np.float32)
    async with library.InferenceServerClient(f"127.0.0.1:{port}") as client:

        async def ask() -> None:
            given = library.InferInput("x", x.shape, "FP32")
            given.set_data_from_numpy(x)
            found = await client.infer("identity", [given], outputs=[library.InferRequestedOutput("y")])
            _check(found.as_numpy("y"))

        yield ask


def _check(found: Any) -> None:
    if found.shape != (NUM_FLOATS,):
        raise RuntimeError(f"{found!r} is no answer")


async def _race(other: Open, settings: Settings) -> Any:
    async with AsyncExitStack() as stack:
        found = await stack.enter_async_context(server("ours"))
        contestants = []
        for name, make in ((OURS, ours), (FLOOR, other)):
            ask = await stack.enter_async_context(make(found.grpc))
            for _ in range(WARM_ROUNDS):
                await _cpu_of_a_request(ask)
            contestants.append(Contestant(name, partial(_cpu_of_a_request, ask)))
        return await alternate(contestants, settings, rounds=5)


async def _cpu_of_a_request(ask: Ask) -> float:
    async def ask_on() -> None:
        for _ in range(NUM_REQUESTS // NUM_CALLERS):
            await ask()

    begun = time.process_time()
    await asyncio.gather(*[ask_on() for _ in range(NUM_CALLERS)])
    return (time.process_time() - begun) / NUM_REQUESTS


def measure_client(name: str, other: Open, what: str, limit: float, settings: Settings) -> Row:
    """Microseconds of the client's processor time a request; the floor is *other*."""
    times = {name: each.scaled(US_PER_S) for name, each in ax.run(_race(other, settings)).items()}
    found = ratios(times[OURS], [times[FLOOR]])
    target = Target(f"at most {limit:g} of {what}", None if found is None else found[0], limit)
    return Row(name, "µs of CPU", times, (target,))


def _benchmark(name: str, other: Open, what: str, limit: float) -> Benchmark:
    return Benchmark(name, partial(measure_client, name, other, what, limit))


_CAN_SERVE: Final = all(map(is_installed, ("grpc", "orjson", "starlette", "uvicorn")))
BENCHMARKS: Final = (
    *((_benchmark("service_client", by_hand, "by hand", MAX_RATIO),) if _CAN_SERVE else ()),
    *(
        (_benchmark("service_client_triton", tritons, "Triton's client", 1.0),)
        if _CAN_SERVE and is_installed("tritonclient.grpc")
        else ()
    ),
)
