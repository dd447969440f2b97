"""The routes of the live page: open files with strict headers, data for those with a token, and traced calls."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import numpy as np
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

import asyncexec as ax
from asyncexec.service.app import InferenceApp, create_app
from asyncexec.service.live import routes
from asyncexec.service.models.files import ModelSource
from asyncexec.service.models.repository import ModelRepository
from asyncexec.service.server import serving
from tests.service.http_models import calling
from tests.service.models import sums

HOSTILE = "<img src=x onerror=alert(1)>"
INPUTS = {"inputs": [{"name": name, "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]} for name in ("x", "y")]}
MODEL = "/live/models/m/versions/1"


@contextlib.asynccontextmanager
async def client_of(app: InferenceApp | Starlette, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    base = {"base_url": "http://service", **options}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), **base) as client:
        yield client


@contextlib.asynccontextmanager
async def page_of(source: Any, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    async with create_app({"m": source}, page=True, **options) as app, client_of(app) as client:
        yield client


async def test_the_page_and_its_files_are_open_and_name_relative_addresses_alone() -> None:
    async with page_of(sums(), tokens=["t"]) as client:
        page = await client.get("/")
        assert page.status_code == 200
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        found = re.findall(r'(?:src|href)="([^"#]+)"', page.text)
        assert len(found) >= 8
        for address in found:
            assert re.fullmatch(r"live/files/[a-z_.]+", address)
            file = await client.get(f"/{address}")
            kind = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}[address.rpartition(".")[2]]
            assert (file.status_code, file.headers["content-type"].partition(";")[0]) == (200, kind)
        for path in ("/live/events", MODEL, "/live/files", "/live/", "/live/none"):
            assert (await client.get(path)).status_code == 401
        assert (await client.post(f"{MODEL}/infer", json=INPUTS)).status_code == 401
        assert (await client.get(MODEL, headers={"Authorization": "Bearer t"})).status_code == 200


async def test_nothing_in_the_page_is_inline_or_of_another_host() -> None:
    async with page_of(sums()) as client:
        page = await client.get("/")
        policy = dict(part.strip().partition(" ")[::2] for part in page.headers["content-security-policy"].split(";"))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert policy["frame-ancestors"] == "'none'"
        assert page.headers["x-content-type-options"] == "nosniff"
        assert page.headers["x-frame-options"] == "DENY"
        assert not re.search(r"<script(?![^>]* src=)|<style|style=|\son\w+=|https?://", page.text)
        for name in ("live.js", "live_parts.js", "live_run.js", "live.css", "base.css", "graph.css", "graph.js"):
            text = (await client.get(f"/live/files/{name}")).text
            assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", text)
            assert set(re.findall(r"https?://[^\"' ]+", text)) <= {"http://www.w3.org/2000/svg"}


async def test_files_are_kept_by_their_etag_and_sent_compressed() -> None:
    async with page_of(sums()) as client:
        first = await client.get("/live/files/live.js")
        etag = first.headers["etag"]
        assert first.headers["content-encoding"] == "gzip"
        assert first.headers["cache-control"] == "no-cache"
        plain = await client.get("/live/files/live.js", headers={"Accept-Encoding": "identity"})
        assert "content-encoding" not in plain.headers
        assert plain.text == first.text
        again = await client.get("/live/files/live.js", headers={"If-None-Match": f'"x", W/{etag}'})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
        assert (await client.get("/live/files/live.js", headers={"If-None-Match": '"x"'})).status_code == 200
        head = await client.head("/")
        assert (head.status_code, head.content) == (200, b"")


@pytest.mark.parametrize("path", ["/live/files/none.js", "/live/files/..%2f__init__.py", "/live/files/", "/live/x"])
async def test_what_is_not_there(path: str) -> None:
    async with page_of(sums()) as client:
        answer = await client.get(path)
        assert (answer.status_code, answer.json()) == (404, {"error": "Not Found"})
        assert (await client.post("/")).status_code == 405


async def test_an_app_has_no_page_unless_it_is_asked_for() -> None:
    async with create_app({"m": sums()}) as app, client_of(app) as client:
        for path in ("/", "/live/files/live.js", "/live/events", MODEL):
            assert (await client.get(path)).status_code == 404


async def test_behind_a_prefix() -> None:
    async with create_app({"m": sums()}, page=True) as service:
        async with client_of(Starlette(routes=[Mount("/models", service)])) as client:
            assert "<title>" in (await client.get("/models/")).text
            assert (await client.get("/models/live/files/live.css")).status_code == 200
            assert (await client.get(f"/models{MODEL}")).json()["name"] == "m"
            moved = await client.get("/models", follow_redirects=True)
            assert (moved.status_code, moved.url.path) == (200, "/models/")
        transport = httpx.ASGITransport(service, root_path="/a/b")
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
            assert (await client.get("/a/b/")).status_code == 200
            bare = await client.get("/a/b")
            assert (bare.status_code, bare.headers["location"]) == (307, "b/")


async def test_a_model_is_described_with_its_graph_and_samples() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, 2], name="x")
        ax.placeholder_with_default(np.int32(1), [], name="k")
        ax.negative(x, name="y")
    sample = {"sample": {"string_value": json.dumps([{"x": [[1, 2]]}, {"x": HOSTILE}])}}
    async with page_of(ModelSource(graph, config={"parameters": sample})) as client:
        answer = await client.get(MODEL)
        assert answer.headers["cache-control"] == "no-store"
        told = answer.json()
    assert told["inputs"] == [
        {"name": "x", "datatype": "FP32", "shape": [-1, 2], "is_optional": False},
        {"name": "k", "datatype": "INT32", "shape": [], "is_optional": True},
    ]
    assert told["samples"] == [{"x": [[1, 2]]}, {"x": HOSTILE}]
    assert told["num_nodes"] == len(told["graph"]["names"]) == graph.num_nodes
    assert told["lines"]["y"].startswith(f"{__file__}:")


async def test_the_page_is_there_while_models_are_loaded() -> None:
    loaded = asyncio.Event()

    class Slow(ModelRepository):
        async def start(self) -> None:
            await loaded.wait()
            await super().start()

    app = create_app(Slow(sources={"m": sums()}), page=True)
    async with client_of(app) as client:
        assert (await client.get("/")).status_code == 200
        assert (await client.get(MODEL)).status_code == 404
        loaded.set()
        await app.start()
        assert (await client.get(MODEL)).status_code == 200
    await app.close()


@pytest.mark.parametrize("text", ["{", "", "3"])
async def test_a_sample_that_is_none(text: str) -> None:
    source = ModelSource(sums(), config={"parameters": {"sample": {"string_value": text}}})
    async with page_of(source) as client:
        assert (await client.get(MODEL)).json()["samples"] == ([3] if text == "3" else [])


async def test_a_large_graph_is_described_without_its_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "MOST_NODES", 3)
    async with page_of(sums()) as client:
        told = (await client.get(MODEL)).json()
    assert (told["graph"], told["num_nodes"]) == (None, 4)


@pytest.mark.parametrize("config", [{}, {"max_batch_size": 8, "dynamic_batching": {}}])
async def test_a_traced_call_answers_as_the_protocol_and_with_a_timeline(config: dict[str, Any]) -> None:
    async with page_of(ModelSource(sums(), config=config)) as client:
        plain = (await client.post("/v2/models/m/infer", json=INPUTS)).json()
        traced = (await client.post(f"{MODEL}/infer", json=INPUTS)).json()
    timeline = traced.pop("timeline")
    assert traced == plain
    assert {"sum", "diff"} <= {each["node"] for each in timeline["executions"]}
    assert timeline["rows"] == ["event loop"]
    assert all(0 <= each["start_us"] <= timeline["end_us"] for each in timeline["executions"])
    assert timeline["left_out"] == 0


async def test_a_traced_call_that_fails_has_a_timeline_too() -> None:
    async def fail(x: float) -> float:
        raise LookupError(HOSTILE)

    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [], "data": [1]}]}
    async with page_of(calling(fail)) as client:
        answer = await client.post(f"{MODEL}/infer", json=body)
        wrong = await client.post(f"{MODEL}/infer", json={"inputs": []})
        none = await client.post("/live/models/none/versions/1/infer", json=body)
        broken = await client.post(f"{MODEL}/infer", content=b"{")
    assert answer.status_code == 500
    assert HOSTILE in answer.json()["error"]
    failed = [each for each in answer.json()["timeline"]["executions"] if each["failure"]]
    assert [each["node"] for each in failed] == ["fail"]
    assert (wrong.status_code, wrong.json()["timeline"]["executions"]) == (400, [])
    assert (none.status_code, broken.status_code) == (404, 400)


async def test_one_call_is_traced_at_a_time_and_not_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, limit = asyncio.Event(), routes.LONGEST_TRACED_S
    monkeypatch.setattr(routes, "LONGEST_TRACED_S", 0.05)

    async def hang(x: float) -> float:
        begun.set()
        await asyncio.Event().wait()
        return x

    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [], "data": [1]}]}
    async with page_of(calling(hang)) as client:
        first = asyncio.create_task(client.post(f"{MODEL}/infer", json=body))
        await begun.wait()
        second = await client.post(f"{MODEL}/infer", json=body)
        assert (second.status_code, second.headers["retry-after"]) == (503, "1")
        answer = await first
    assert (answer.status_code, answer.json()["error"]) == (504, "a call that is traced has 0.05 s")
    assert limit == 10


async def test_the_json_of_a_traced_call_is_bounded_as_any() -> None:
    async with page_of(calling(asyncio.sleep)) as client:
        assert (await client.post(f"{MODEL}/infer", content=b" " * (2**24 + 1))).status_code == 413


async def test_few_of_many_executions_are_shown() -> None:
    with ax.Graph() as graph:
        n = ax.placeholder(ax.int32, [], name="n")
        ax.while_loop(lambda i: i < n, lambda i: [i + 1], [ax.constant(0)], name="count")
    body = {"inputs": [{"name": "n", "datatype": "INT32", "shape": [], "data": [300]}]}
    async with page_of(graph) as client:
        timeline = (await client.post(f"{MODEL}/infer", json=body)).json()["timeline"]
    assert len(timeline["executions"]) == 500
    assert timeline["left_out"] > 1000
    starts = [each["start_us"] for each in timeline["executions"]]
    assert starts == sorted(starts)


@pytest.mark.allow_blocking
async def test_events_come_from_the_server_and_end_when_it_does() -> None:
    async with httpx.AsyncClient() as client:
        async with serving({"m": sums()}, http_port=0, grpc_port=None) as ports:
            url = f"http://127.0.0.1:{ports.http}"
            stack = contextlib.AsyncExitStack()
            events = await stack.enter_async_context(client.stream("GET", f"{url}/live/events"))
            assert events.headers["content-type"].startswith("text/event-stream")
            assert events.headers["cache-control"] == "no-store"
            lines = events.aiter_lines()
            snapshot = json.loads((await anext(lines)).removeprefix("data: "))
            assert [model["name"] for model in snapshot["models"]] == ["m"]
            rest = asyncio.create_task(_all(lines))
        await rest  # else the service would have waited for its reader
        await stack.aclose()


async def _all(lines: AsyncIterator[str]) -> list[str]:
    return [line async for line in lines]


@pytest.mark.allow_blocking
async def test_a_served_page_can_be_left_out() -> None:
    async with (
        serving({"m": sums()}, http_port=0, grpc_port=None, page=False) as ports,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{ports.http}") as client,
    ):
        assert (await client.get("/")).status_code == 404
        assert (await client.get("/v2")).status_code == 200
