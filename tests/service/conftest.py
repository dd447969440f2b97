"""What grpc keeps as long as anything of it is in use, which is none of a test's business."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import grpc
import pytest

from asyncexec.service.observing.call_record import current_call
from tests.conftest import open_files


@pytest.fixture(autouse=True)
def no_call() -> Iterator[None]:
    """No call is being answered when a test begins: what one notes of a failure stays in the context it is noted in."""
    token = current_call.set(None)
    yield
    current_call.reset(token)


@pytest.fixture(scope="module")
def grpc_library() -> Iterator[None]:
    """A thread that polls, and files, are there for all tests of the module."""
    with asyncio.Runner() as runner, grpc.insecure_channel("127.0.0.1:1"):
        runner.run(_start_grpc())
        yield
        grpc.aio.shutdown_grpc_aio()


async def _start_grpc() -> None:
    grpc.aio.init_grpc_aio()
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        with pytest.raises(grpc.aio.AioRpcError):  # there is no such call
            await channel.unary_unary("/none/None")(b"")
    await server.stop(None)


@asynccontextmanager
async def nothing_of_grpc_left() -> AsyncIterator[None]:
    """Waits at the end for what grpc's threads and tasks close by themselves.

    The end of a call is known to the client before the server's task for it has ended.
    """
    tasks, files = asyncio.all_tasks(), open_files()
    yield
    for _ in range(1000):
        gc.collect(0)
        left = {path for _, path in open_files() - files} - {"/dev/null"}  # which uvloop keeps once it has listened
        if not (asyncio.all_tasks() - tasks or left):
            return
        await asyncio.sleep(0.005)


@pytest.fixture
def no_lingering(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server's end does not wait for callers to notice it."""

    async def linger() -> None:
        pass

    monkeypatch.setattr("asyncexec.service.grpc.guard._linger", linger)
