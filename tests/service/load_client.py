"""Clients for the tests of load: the process of a service, and connections that tell what becomes of each request."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from asyncexec.service.protocol_messages import SERVICE, message

ROOT = Path(__file__).parents[2]


@dataclass
class LoadServer:
    """A process of ``tests.service.load_server``."""

    process: subprocess.Popen[str]
    http: int = 0
    grpc: int = 0

    async def ask(self, line: str) -> dict[str, int]:
        """What the server is doing, after what *line* tells it."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return await self._told()

    async def _told(self) -> dict[str, int]:
        found: dict[str, int] = json.loads(await self.line())
        return found

    async def line(self) -> str:
        """The next line that it prints."""
        assert self.process.stdout is not None
        return await asyncio.to_thread(self.process.stdout.readline)

    async def until(self, holds: Callable[[dict[str, int]], bool]) -> dict[str, int]:
        """What the server is doing when that *holds*; the test's own timeout ends the wait."""
        while not holds(found := await self.ask("tell")):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        return found

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    async def end(self) -> dict[str, int]:
        """What the server did in all, when it has ended without an error."""
        found = await self._told()
        assert await asyncio.to_thread(self.process.wait) == 0
        return found

    @property
    def memory_mb(self) -> float:
        """The memory that is its own and in use."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("RssAnon:")[2].split()[0]) / 1024

    @property
    def num_files(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))


@asynccontextmanager
async def load_server(**options: Any) -> AsyncIterator[LoadServer]:
    """A service on any free ports, with *options* of ``serve``; it is killed if it has not ended by itself."""
    given = json.dumps({"http_port": 0, "grpc_port": 0} | options)
    # Not by the loop: uvloop forks, which grpc's threads do not bear.
    with subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-m", "tests.service.load_server", given],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as process:
        server = LoadServer(process)
        try:
            server.http, server.grpc = map(int, (await server.line()).split())
            yield server
        finally:
            process.kill()


def post(path: str, body: bytes, *headers: str) -> bytes:
    """A request over HTTP."""
    head = [f"POST {path} HTTP/1.1", "Host: a", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*head, "", ""]).encode() + body


def infer(model: str, *values: float, datatype: str = "FP32") -> bytes:
    """A request for *model* of input x."""
    given = {"name": "x", "datatype": datatype, "shape": [len(values)], "data": values}
    return post(f"/v2/models/{model}/infer", json.dumps({"inputs": [given]}).encode())


def infer_message(model: str, *values: float) -> bytes:
    """The same as a ModelInferRequest."""
    request = message("ModelInferRequest")(model_name=model)
    request.inputs.add(name="x", datatype="FP32", shape=[len(values)])
    request.raw_input_contents.append(np.array(values, np.float32).tobytes())
    encoded: bytes = request.SerializeToString()
    return encoded


def method(name: str) -> str:
    return f"/{SERVICE}/{name}"


@dataclass
class Answer:
    """An answer over HTTP."""

    status: int
    head: bytes
    body: bytes

    @property
    def is_last(self) -> bool:
        """Whether it says that the connection is closed."""
        return b"\r\nconnection: close" in self.head.lower()

    @property
    def data(self) -> list[Any]:
        """The elements of the first output."""
        found: list[Any] = json.loads(self.body)["outputs"][0]["data"]
        return found


async def read_answer(reader: asyncio.StreamReader) -> Answer:
    """The next answer; IncompleteReadError or ConnectionError where none comes."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0])
    return Answer(int(head.split()[1]), head, await reader.readexactly(length))


@asynccontextmanager
async def connected(port: int, **options: Any) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection, which is reset at the end if it has not been closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, **options)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
