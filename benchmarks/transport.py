"""Rows of the transport between processes: there and back, beside the same bytes over a plain socket by hand."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, Final

import numpy as np

import asyncexec as ax
from asyncexec.distributed.transport.connection import Connection
from asyncexec.distributed.transport.dialing import dial
from asyncexec.distributed.transport.identity import Identity
from asyncexec.framework.errors import OpError
from benchmarks.measure import Settings, Times, alternate, calling, ratios
from benchmarks.report import FLOOR, OURS, Benchmark, Row, Target
from benchmarks.runs import US_PER_S, scaled
from benchmarks.transport_peer import OPEN, PlainSocket

HERE: Final = Identity("/job:bench/replica:0/task:0", 2)
MAX_US: Final = 100.0  # for a scalar
MIN_BANDWIDTH: Final = 0.7  # of a plain socket's, for the largest
SIZES: Final = {"message": 8, "scalar": 4, "40kB": 40_000, "4MB": 4_000_000, "64MB": 64_000_000}

Ask = Callable[[], Awaitable[Any]]


class Answers:
    """The answers that come."""

    def __init__(self, _: Connection | None = None) -> None:
        self._waiter: asyncio.Future[Any] | None = None

    def wait(self) -> asyncio.Future[Any]:
        self._waiter = asyncio.get_running_loop().create_future()
        return self._waiter

    def come(self, answer: Any) -> None:
        assert self._waiter is not None  # somebody has asked
        self._waiter.set_result(answer)

    def on_message(self, kind: int, body: bytes) -> None:
        self.come(body)

    def on_tensor(self, step_id: int, key: str, value: Any, is_dead: bool) -> None:
        self.come(value)

    def on_bad_tensor(self, step_id: int, key: str, error: OpError) -> None:
        raise error

    def on_lost(self, error: OpError) -> None:
        raise error


@asynccontextmanager
async def peer() -> AsyncIterator[list[str]]:
    """The addresses of another process."""
    with tempfile.TemporaryDirectory() as folder:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "benchmarks.transport_peer", folder,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield (await process.stdout.readline()).decode().split()
        finally:
            process.stdin.close()
            await process.wait()


async def ours(name: str, address: str, stack: AsyncExitStack) -> Ask:
    """By the transport."""
    answers = Answers()
    connection = await dial(address, HERE, OPEN, lambda connection: answers)
    stack.push_async_callback(connection.close)
    if name == "message":

        async def ask() -> None:
            answer = answers.wait()
            connection.send(1, b"12345678")
            await answer

    else:
        value = np.float32(1) if name == "scalar" else np.ones(SIZES[name] // 4, np.float32)

        async def ask() -> None:
            answer = answers.wait()
            connection.send_tensor(1, "/job:a/device:CPU:0;1;/job:b/device:CPU:0;edge_1_x;0:0", value)
            await answer

    return ask


async def by_hand(name: str, address: str, stack: AsyncExitStack) -> Ask:
    """By a socket."""
    answers = Answers()
    loop, protocol = asyncio.get_running_loop(), PlainSocket(lambda _, array: answers.come(array))
    if address.isdigit():
        await loop.create_connection(lambda: protocol, "127.0.0.1", int(address))
    else:
        await loop.create_unix_connection(lambda: protocol, address)
    stack.callback(protocol.close)
    value = np.ones(SIZES[name], np.uint8)

    async def ask() -> None:
        answer = answers.wait()
        protocol.send(value)
        await answer

    return ask


async def _race(name: str, is_tcp: bool, settings: Settings) -> dict[str, Times]:
    async with AsyncExitStack() as stack:
        addresses = await stack.enter_async_context(peer())
        ask = await ours(name, addresses[is_tcp], stack)
        plain = await by_hand(name, addresses[2 + is_tcp], stack)
        return await alternate([await calling(OURS, ask), await calling(FLOOR, plain)], settings)


def measure(name: str, is_tcp: bool, settings: Settings) -> Row:
    """What *name* says there and back; twice its bytes go over the socket."""
    times = ax.run(partial(_race, name, is_tcp, settings))
    targets: tuple[Target, ...] = ()
    if name in ("message", "scalar"):
        targets = (Target(f"at most {MAX_US:g} µs", times[OURS].median * US_PER_S, MAX_US),)
    elif name == "64MB":
        found = ratios(times[OURS], [times[FLOOR]])
        targets = (Target("at most 1.43 of the floor's time", None if found is None else found[0], 1 / MIN_BANDWIDTH),)
    return Row(f"transport_{'tcp' if is_tcp else 'unix'}_{name}", "µs", scaled(times, US_PER_S), targets)


BENCHMARKS: Final = tuple(
    Benchmark(f"transport_{kind}_{name}", partial(measure, name, kind == "tcp"))
    for kind in ("unix", "tcp")
    for name in SIZES
)
