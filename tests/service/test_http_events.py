"""Server-sent events: responses as they are ready, errors, slow readers, and clients that go."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import orjson
import pytest
from starlette.types import Message

import asyncexec as ax
from asyncexec.service.http.front import http_app
from asyncexec.service.server import serving
from tests.service.decoupled_models import Taps
from tests.service.http_models import FakeRepository
from tests.service.models import until

PATH = "/v2/models/m/generate_stream"


def client_of(repository: FakeRepository) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(http_app(repository)), base_url="http://test")


def events(content: bytes) -> list[Any]:
    assert content.endswith(b"\n\n") or not content
    parts = content.split(b"\n\n")[:-1]
    assert all(part.startswith(b"data: ") for part in parts)
    return [json.loads(part.removeprefix(b"data: ")) for part in parts]


class Reader:
    """A client that takes an event whenever *takes* lets it, and goes once *leaves* is set."""

    def __init__(self, repository: FakeRepository, document: Any) -> None:
        self.app = http_app(repository)
        self.messages: list[Message] = [{"type": "http.request", "body": orjson.dumps(document), "more_body": False}]
        self.takes = asyncio.Semaphore(0)
        self.leaves = asyncio.Event()
        self.started: asyncio.Queue[Message] = asyncio.Queue()
        self.events: asyncio.Queue[Any] = asyncio.Queue()

    async def receive(self) -> Message:
        if self.messages:
            return self.messages.pop(0)
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started.put_nowait(message)
            return
        await self.takes.acquire()
        for event in events(message["body"]):
            self.events.put_nowait(event)

    def begin(self) -> asyncio.Task[None]:
        scope = {"type": "http", "method": "POST", "path": PATH, "headers": [], "query_string": b""}
        return asyncio.ensure_future(self.app(scope, self.receive, self.send))


async def test_an_event_for_each_response() -> None:
    taps = Taps()
    taps.counts[3] = 3
    taps.let(3, 3)
    repository = FakeRepository(taps.model)
    async with client_of(repository) as client:
        answer = await client.post(PATH, json={"n": 3, "id": "a"})
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
        about = {"model_name": "m", "model_version": "1", "id": "a"}
        assert events(answer.content) == [{**about, "y": i} for i in range(3)]
        taps.counts[0] = 0
        answer = await client.post(PATH, json={"n": 0})
        assert (answer.status_code, answer.content) == (200, b"")
    await repository.close()


async def test_an_event_comes_when_its_response_is_ready() -> None:
    taps = Taps()
    repository = FakeRepository(taps.model)
    reader = Reader(repository, {"n": 1})
    call = reader.begin()
    for i in range(3):
        taps.let(1)
        reader.takes.release()
        assert (await reader.events.get())["y"] == i
    assert reader.started.get_nowait()["status"] == 200
    reader.leaves.set()
    await call
    assert taps.closed == [1]
    assert taps.model.statistics.cancel.count == 1
    await repository.close()


async def test_a_client_that_goes_while_nothing_comes() -> None:
    taps = Taps()
    taps.let(1)
    repository = FakeRepository(taps.model)
    reader = Reader(repository, {"n": 1})
    reader.takes.release()
    call = reader.begin()
    await reader.events.get()
    reader.leaves.set()
    await call
    assert taps.closed == [1]
    await repository.close()


async def test_a_slow_reader_holds_the_source() -> None:
    taps = Taps()
    taps.let(1, 1000)
    repository = FakeRepository(taps.model)
    reader = Reader(repository, {"n": 1})
    call = reader.begin()
    await until(lambda: taps.drawn.get(1, 0) > 10)
    for _ in range(500):
        await asyncio.sleep(0)
    assert taps.drawn[1] < 30
    reader.leaves.set()
    await call
    assert taps.closed == [1]
    await repository.close()


async def test_errors_before_and_after_the_first_response() -> None:
    taps = Taps()
    taps.counts = {1: 0, 2: 2}
    taps.failures = {1: ax.errors.InvalidArgumentError("n is 1"), 2: ValueError("it broke")}
    taps.let(2, 2)
    repository = FakeRepository(taps.model)
    async with client_of(repository) as client:
        answer = await client.post(PATH, json={"n": 1})
        assert (answer.status_code, answer.json()) == (400, {"error": "n is 1"})
        answer = await client.post(PATH, json={})
        assert answer.status_code == 400
        assert "missing required input" in answer.json()["error"]
        answer = await client.post(PATH, json={"n": 2})
        first, second, third = events(answer.content)
        assert (answer.status_code, first["y"], second["y"]) == (200, 0, 1)
        assert list(third) == ["error"]
        assert third["error"].startswith("ValueError: it broke")
    await repository.close()


async def test_generate_is_for_one_response() -> None:
    taps = Taps()
    taps.counts = {0: 0, 1: 1, 2: 2}
    for n in (1, 2, 3):
        taps.let(n, 3)
    repository = FakeRepository(taps.model)
    async with client_of(repository) as client:
        answer = await client.post("/v2/models/m/generate", json={"n": 1})
        assert (answer.status_code, answer.json()["y"]) == (200, 0)
        for n in (0, 2, 3):
            answer = await client.post("/v2/models/m/generate", json={"n": n})
            assert answer.status_code == 400
            assert answer.json() == {
                "error": "generate expects model to produce exactly 1 response, use generate stream for model that "
                "generates various number of responses"
            }
        inputs = [{"name": "n", "datatype": "INT32", "shape": [], "data": [1]}]
        answer = await client.post("/v2/models/m/infer", json={"inputs": inputs})
        assert answer.status_code == 501
        told = "HTTP end point doesn't support models with decoupled transaction policy"
        assert answer.json() == {"error": told}
    assert taps.closed == [1, 0, 2, 3]
    await repository.close()


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_events_are_not_compressed(coding: str) -> None:
    taps = Taps()
    taps.counts[1] = 100
    taps.let(1, 100)
    repository = FakeRepository(taps.model)
    async with client_of(repository) as client:
        answer = await client.post(PATH, json={"n": 1}, headers={"Accept-Encoding": coding})
        assert "content-encoding" not in answer.headers
        assert len(events(answer.content)) == 100
    await repository.close()


@pytest.mark.allow_blocking  # uvicorn closes its sockets in the loop
async def test_a_client_on_a_port_that_leaves() -> None:
    closed = asyncio.Event()

    async def endless() -> AsyncIterator[int]:
        try:
            while True:
                yield 1
        finally:
            closed.set()

    with ax.Graph() as graph:
        ax.identity(ax.source(endless, ax.int32, []), name="y")
    async with serving({"m": graph}, http_port=0, grpc_port=None) as ports, httpx.AsyncClient() as client:
        url = f"http://127.0.0.1:{ports.http}{PATH}"
        async with client.stream("POST", url, json={}) as answer:
            first = await anext(answer.aiter_lines())
            assert json.loads(first.removeprefix("data: "))["y"] == 1
        await asyncio.wait_for(closed.wait(), 60)
