"""Rows of the service under load: how long requests take by the number of callers, and what an overload does.

Callers are in this process and take processor time as well: their share is the same for all contestants.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import asyncexec as ax
from asyncexec.framework.extras import require
from benchmarks.measure import Settings, Times
from benchmarks.report import FLOOR, OURS, Benchmark, Row, Target
from benchmarks.runs import US_PER_S
from benchmarks.service import (
    CAN_SERVE,
    Ask,
    Server,
    binary_body,
    grpc_caller,
    http_caller,
    json_body,
    server,
    stream_caller,
)
from benchmarks.service_processes import CAPACITY, MOST_QUEUED, NUM_INSTANCES, SERVICE_S

MS_PER_S: Final = 1000
CALLERS: Final = (1, 8, 64)
LOAD_S: Final = 1.0  # of each number of callers
QUICK_S: Final = 0.1
OVERLOAD_S: Final = 3.0
NUM_CONNECTIONS: Final = 200
REFUSED_MS: Final = 5.0
LAG_MS: Final = 5.0
WARM_REQUESTS: Final = 50
MOST_WAITING_S: Final = SERVICE_S + MOST_QUEUED / CAPACITY  # of a request that is not refused

KSERVE: Final = "KServe"
KSERVE_PYTHON: Final = "KSERVE_PYTHON"  # where a Python is that has it

Call = Callable[[Server], AbstractAsyncContextManager[Ask]]


def _calls(model: str) -> dict[str, Call]:
    """The ways to ask *model*."""
    if model == "digits":
        asked = json_body("digits", (1, 8, 8, 1))
        return {"JSON": lambda found: http_caller(found.http, *asked)}
    return {
        "JSON": lambda found: http_caller(found.http, *json_body()),
        "binary": lambda found: http_caller(found.http, *binary_body()),
        "gRPC": lambda found: grpc_caller(found.grpc),
        "stream": lambda found: stream_caller(found.grpc),
    }


async def _load(found: Server, call: Call, count: int, seconds: float) -> tuple[list[float], float]:
    """The seconds that each request of *count* callers took, and the processor time of one."""
    taken: list[float] = []

    async def ask_on(ask: Ask) -> None:
        while (begun := time.perf_counter()) < end:
            await ask()
            taken.append(time.perf_counter() - begun)

    async with AsyncExitStack() as stack:
        askers = [await stack.enter_async_context(call(found)) for _ in range(count)]
        for ask in askers:
            for _ in range(max(1, WARM_REQUESTS // count)):
                await ask()
        used, end = await found.cpu_s(), time.perf_counter() + seconds
        await asyncio.gather(*map(ask_on, askers))
        return taken, (await found.cpu_s() - used) / len(taken)


@dataclass(frozen=True, slots=True)
class KServe(Server):
    """A server of KServe, in the process *pid*."""

    pid: int

    async def cpu_s(self) -> float:
        told = await asyncio.to_thread(Path(f"/proc/{self.pid}/stat").read_text)
        fields = told.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # in the program, in the system


@asynccontextmanager
async def _kserve() -> AsyncIterator[KServe]:
    program = str(Path(__file__).with_name("kserve_process.py"))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(os.environ[KSERVE_PYTHON], program, stdin=pipe, stdout=pipe)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        port = int(await process.stdout.readline())
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                await asyncio.sleep(0.1)
            else:
                writer.close()
                break
        yield KServe(port, 0, 0, process.pid)
    finally:
        process.stdin.close()
        await process.wait()


async def _loads(model: str, which: str, settings: Settings) -> tuple[Times, list[str]]:
    """The microseconds of JSON of 8 callers, and a line of each way and number of callers."""
    seconds = QUICK_S if settings.is_quick else LOAD_S
    times, lines = Times((0.0,)), []
    async with _kserve() if which == KSERVE else server(which) as found:
        for name, call in _calls(model).items():
            if which == KSERVE and name != "JSON":
                continue
            for count in CALLERS:
                taken, cpu_s = await _load(found, call, count, seconds)
                each = Times(tuple(taken)).scaled(US_PER_S)
                lines.append(
                    f"{name:6} {count:2} callers: {len(taken) / seconds:6,.0f} a second, "
                    f"p50 {each.median:6,.0f}, p99 {each.percentile(99):6,.0f}, CPU {cpu_s * US_PER_S:5,.0f} µs"
                )
                if (name, count) == ("JSON", 8):
                    times = each
    return times, lines


def measure_load(model: str, settings: Settings) -> Row:
    """Microseconds that a request of 8 callers takes; the notes have all ways and numbers of callers."""
    times, notes = {}, []
    contestants = {OURS: "ours"}
    if model == "identity":
        contestants |= {FLOOR: "by_hand"} | ({KSERVE: KSERVE} if KSERVE_PYTHON in os.environ else {})
    for name, which in contestants.items():
        times[name], lines = ax.run(_loads(model, which, settings))
        notes += [f"{name:9} {line}" for line in lines]
    return Row(f"service_load_{model}", "µs a request", times, notes=tuple(notes))


@asynccontextmanager
async def _pool(port: int, count: int) -> AsyncIterator[asyncio.Queue[Any]]:
    """Connections that are free."""
    free: asyncio.Queue[Any] = asyncio.Queue()
    made = [await asyncio.open_connection("127.0.0.1", port) for _ in range(count)]
    for each in made:
        free.put_nowait(each)
    try:
        yield free
    finally:
        for _, writer in made:
            writer.close()


async def _overload(seconds: float) -> tuple[Times, Times, float]:
    """Milliseconds of requests that are answered and of those that are refused, and how long the loop was held."""
    path, _, body = json_body("queued", (1,))
    request = f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    taken: dict[bytes, list[float]] = {b"200": [], b"503": []}

    async def ask(free: asyncio.Queue[Any]) -> None:
        reader, writer = connection = await free.get()
        begun = time.perf_counter()
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        await reader.readexactly(int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0]))
        taken[head.split()[1]].append(time.perf_counter() - begun)
        free.put_nowait(connection)

    async with server("overloaded") as found, _pool(found.http, NUM_CONNECTIONS) as free:
        for _ in range(WARM_REQUESTS):
            await asyncio.gather(*[ask(free) for _ in range(NUM_INSTANCES)])
        await _lag_ms(found)
        for each in taken.values():
            each.clear()
        begun, sent = time.perf_counter(), 0
        async with asyncio.TaskGroup() as tasks:
            while (now := time.perf_counter() - begun) < seconds:
                for _ in range(int(now * 2 * CAPACITY) - sent):
                    tasks.create_task(ask(free))
                    sent += 1
                await asyncio.sleep(0.001)
        lag_ms = await _lag_ms(found)
    answered, refused = (Times(tuple(each)).scaled(MS_PER_S) for each in taken.values())
    return answered, refused, lag_ms


async def _lag_ms(found: Server) -> float:
    path, _, body = json_body("lag", (1,))
    reader, writer = await asyncio.open_connection("127.0.0.1", found.http)
    writer.write(
        f"POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    )
    answer = (await reader.read()).partition(b"\r\n\r\n")[2]
    writer.close()
    told: float = require("orjson", extra="serve").loads(answer)["outputs"][0]["data"][0]
    return told


def measure_overload(settings: Settings) -> Row:
    """Milliseconds of the requests that are answered under twice the load that a model of a known capacity bears."""
    answered, refused, lag_ms = ax.run(_overload(OVERLOAD_S / 4 if settings.is_quick else OVERLOAD_S))
    limit_ms = 2 * MOST_WAITING_S * MS_PER_S
    targets: Sequence[Target] = (
        Target(f"p99 at most {limit_ms:g} ms", answered.percentile(99), limit_ms),
        Target(f"p99 of refusals at most {REFUSED_MS:g} ms", refused.percentile(99), REFUSED_MS),
        Target(f"loop held at most {LAG_MS:g} ms", lag_ms, LAG_MS),
    )
    total = len(answered.values) + len(refused.values)
    notes = (f"{len(refused.values)} of {total} requests refused, p50 {refused.median:.2g} ms",)
    return Row("service_overload", "ms a request", {OURS: answered}, tuple(targets), notes)


BENCHMARKS: Final = (
    *(
        Benchmark(f"service_load_{model}", partial(measure_load, model))
        for model in ("identity", "digits")
        if CAN_SERVE
    ),
    *((Benchmark("service_overload", measure_overload),) if CAN_SERVE else ()),
)
